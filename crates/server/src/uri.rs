//! What clients call exports: URIs of the NBD project's form.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use crate::listen::Listen;

/// `export` as clients of `address` name it, over TCP with TLS if `tls`.
pub(crate) fn uri(address: &Listen, export: &str, tls: bool) -> String {
    let export = escape(export.as_bytes());
    match address {
        Listen::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("nbd+unix:///{export}?socket={}", escape(path.as_os_str().as_bytes()))
        }
        Listen::Tcp(address) => format!("nbd{}://{address}/{export}", if tls { "s" } else { "" }),
    }
}

fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_escaped_and_absolute() {
        let uri = |address: &str, export, tls| uri(&address.parse().unwrap(), export, tls);
        assert_eq!(uri("unix:/run/a b?.sock", "", false), "nbd+unix:///?socket=/run/a%20b%3F.sock");
        assert!(uri("unix:nigh.sock", "d", false).starts_with("nbd+unix:///d?socket=/"));
        assert_eq!(uri("tcp:[::1]:10809", "vm/1&ü", false), "nbd://[::1]:10809/vm/1%26%C3%BC");
        assert_eq!(uri("tcp:127.0.0.1:9", "d", true), "nbds://127.0.0.1:9/d");
    }
}
