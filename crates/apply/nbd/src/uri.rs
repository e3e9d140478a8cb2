//! URIs of exports, as the NBD project defines them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::handshake;
use crate::wire::PORT;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a TCP port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a Unix socket.
    Unix(PathBuf),
}

/// The URI of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Address of its server.
    pub address: Address,
    /// Its name; empty for the default export.
    pub export: String,
    /// Query parameters whose names begin with `x-`, which each client defines for itself.
    pub extensions: Vec<(String, String)>,
}

/// Why a text is not the URI of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another form.
    #[error("an NBD server is written `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`")]
    Form,
    /// The scheme asks for TLS.
    #[error(
        "TLS to an NBD server is not supported: use `nbd://`, or a tunnel (`nbdkit nbd` with `tls=require` is one)"
    )]
    Tls,
    /// It has a user's name, a fragment, or an authority in front of a Unix socket.
    #[error("`{0}` has no place in the URI of an NBD server")]
    Superfluous(String),
    /// The port is none.
    #[error("`{0}` is not a port: it is a number from 1 to 65535")]
    Port(String),
    /// A Unix socket is not named.
    #[error("the URI of a Unix socket ends with `?socket=PATH`")]
    Socket,
    /// A query parameter is not known.
    #[error("the parameter `{0}` is not known here")]
    Parameter(String),
    /// Percent signs are not followed by two hexadecimal digits, or the result is not UTF-8.
    #[error("`{0}` is not encoded as URIs are: a percent sign is written %25")]
    Encoding(String),
    /// The export's name is too long or has a NUL.
    #[error("the name of an export has at most 4096 bytes and no NUL")]
    Name,
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Form)?;
        let unix = match scheme {
            "nbd" => false,
            "nbd+unix" => true,
            "nbds" | "nbds+unix" => return Err(UriError::Tls),
            _ => return Err(UriError::Form),
        };
        if let Some((_, fragment)) = rest.split_once('#') {
            return Err(UriError::Superfluous(format!("#{fragment}")));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if authority.contains('@') || unix && !authority.is_empty() {
            return Err(UriError::Superfluous(authority.to_owned()));
        }
        let export = decode(path)?;
        handshake::text(export.as_bytes()).map_err(|_| UriError::Name)?;
        let (mut socket, mut extensions) = (None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "socket" if unix && !value.is_empty() && socket.is_none() => socket = Some(decode(value)?),
                _ if name.starts_with("x-") => extensions.push((name.to_owned(), decode(value)?)),
                _ => return Err(UriError::Parameter(name.to_owned())),
            }
        }
        let address = match unix {
            true => Address::Unix(socket.ok_or(UriError::Socket)?.into()),
            false => tcp(authority)?,
        };
        Ok(Self { address, export, extensions })
    }
}

fn tcp(authority: &str) -> Result<Address, UriError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or(UriError::Form)?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some("")).ok_or(UriError::Form)?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() {
        return Err(UriError::Form);
    }
    let port = match port {
        "" => PORT,
        port => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| UriError::Port(port.to_owned()))?,
    };
    Ok(Address::Tcp { host: decode(host)?, port })
}

fn decode(text: &str) -> Result<String, UriError> {
    let wrong = || UriError::Encoding(text.to_owned());
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let value = digit().zip(digit()).map(|(high, low)| 16 * high + low);
                value.and_then(|value| u8::try_from(value).ok()).ok_or_else(wrong)?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// `bytes`, percent-encoded except for letters, digits, `-._~` and the characters `plain`.
pub fn encode(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// As it is parsed.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd://{open}{}{close}", encode(host.as_bytes(), b":"))?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                f.write_str("/")?;
            }
            Address::Unix(_) => f.write_str("nbd+unix:///")?,
        }
        let encoded = |text: &str| encode(text.as_bytes(), b"/:");
        f.write_str(&encoded(&self.export))?;
        let mut separator = "?";
        if let Address::Unix(path) = &self.address {
            write!(f, "?socket={}", encoded(&path.to_string_lossy()))?;
            separator = "&";
        }
        for (name, value) in &self.extensions {
            write!(f, "{separator}{name}={}", encoded(value))?;
            separator = "&";
        }
        Ok(())
    }
}
