//! TLS over a client's socket, and whom its certificate names.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_host::front::lock;
use rustix::net::sockopt::{self, Timeout};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection};
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Any, Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::settings::TlsSettings;
use crate::socket;

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Encrypted bytes that are received at a time: a record and its header.
const BUFFER: usize = 17 << 10;
/// Bytes that are encrypted at a time, about.
const BATCH: usize = 32 << 10;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has no PEM of the kind that it should have.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What the system says, if that is it.
        source: Option<io::Error>,
    },
    /// The certificate and the key do not go together, or cannot be used.
    #[error("{certificate} and {key}: {source}")]
    Certificate {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// Reads what `settings` name.
pub(crate) fn configure(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let TlsSettings { certificate, key, client_ca } = settings;
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, "private key", error))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = match client_ca {
        None => Arc::new(NoClientAuth),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let wrong = |error: String| TlsError::File { path: path.clone(), reason: error, source: None };
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| wrong(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
            verifier.build().map_err(|error| wrong(error.to_string()))?
        }
    };
    let unfit = |source| TlsError::Certificate { certificate: certificate.clone(), key: key.clone(), source };
    let private = provider.key_provider.load_private_key(private).map_err(|error| unfit_key(key, &error))?;
    let certified = CertifiedKey::new(chain, private);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(error) => return Err(unfit(error)),
    }
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unfit)?;
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
    // NBD's clients do not come back with tickets.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => {
            Err(TlsError::File { path: path.to_owned(), reason: "has no certificate in PEM form".into(), source: None })
        }
        read => read.map_err(|error| unusable(path, "certificate", error)),
    }
}

fn unusable(path: &Path, what: &str, error: rustls::pki_types::pem::Error) -> TlsError {
    use rustls::pki_types::pem::Error;
    let reason = match error {
        Error::Io(error) => {
            let (path, reason) = (path.to_owned(), error.to_string());
            return TlsError::File { path, reason, source: Some(error) };
        }
        Error::NoItemsFound => format!("has no {what} in PEM form"),
        other => other.to_string(),
    };
    TlsError::File { path: path.to_owned(), reason, source: None }
}

fn unfit_key(path: &Path, error: &rustls::Error) -> TlsError {
    let reason = match error {
        rustls::Error::General(reason) => reason.clone(),
        other => other.to_string(),
    };
    let reason = format!("the private key cannot be used: {reason} (RSA keys need 2048 to 4096 bits)");
    TlsError::File { path: path.to_owned(), reason, source: None }
}

/// A socket's bytes, encrypted. One thread reads, one at a time writes; neither waits for the socket with the session's
/// lock held.
pub(crate) struct Secure {
    session: Mutex<ServerConnection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// Encrypted bytes that were received and not yet decrypted.
struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Encrypted bytes that are on their way.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// How many of them are sent.
    sent: usize,
    /// How many bytes they were before.
    plain: usize,
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Secure {
    /// Performs the handshake on `socket`, whose timeouts it changes.
    pub(crate) fn accept(config: &Arc<ServerConfig>, socket: &OwnedFd) -> io::Result<Secure> {
        let deadline = Instant::now() + HANDSHAKE;
        let mut session = ServerConnection::new(config.clone()).map_err(broken)?;
        session.set_buffer_limit(Some(BATCH));
        let mut incoming = Incoming { buffer: vec![0; BUFFER].into(), start: 0, end: 0 };
        while session.is_handshaking() {
            flush_by(&mut session, socket, deadline)?;
            if !session.is_handshaking() {
                break;
            }
            set_timeout(socket, Timeout::Recv, deadline)?;
            // rustls may have left some of what came.
            if incoming.start == incoming.end && !incoming.receive(socket, true)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = incoming.decrypt(&mut session) {
                // The client is told why; it may be gone.
                let _ = flush_by(&mut session, socket, deadline);
                return Err(error);
            }
        }
        flush_by(&mut session, socket, deadline)?;
        let session = Mutex::new(session);
        Ok(Secure { session, incoming: Mutex::new(incoming), outgoing: Mutex::default() })
    }

    /// The names in the client's certificate: its alternative names, or if it has none, common names. None without a certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        let session = lock(&self.session);
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        certificate.and_then(|der| Certificate::from_der(der).ok()).map_or_else(Vec::new, |found| names(&found))
    }

    /// As `Stream::read`.
    pub(crate) fn read(&self, socket: &OwnedFd, slices: &mut [IoSliceMut<'_>], wait: bool) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            let mut session = lock(&self.session);
            let mut bytes = 0;
            for slice in slices.iter_mut() {
                let mut done = 0;
                while done < slice.len() {
                    match session.reader().read(&mut slice[done..]) {
                        Ok(0) => return Ok(bytes + done),
                        Ok(read) => done += read,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                bytes += done;
                if done < slice.len() {
                    break;
                }
            }
            if bytes > 0 {
                return Ok(bytes);
            }
            if incoming.start < incoming.end {
                incoming.decrypt(&mut session)?;
                continue;
            }
            drop(session);
            if !incoming.receive(socket, wait)? {
                return Ok(0);
            }
        }
    }

    /// As `Stream::write`, but whoever was told `WouldBlock` has to come again with the same bytes.
    pub(crate) fn write(&self, socket: &OwnedFd, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        let Outgoing { bytes, sent, plain } = &mut *outgoing;
        if bytes.is_empty() {
            let mut session = lock(&self.session);
            *plain = session.writer().write_vectored(slices)?;
            while session.wants_write() {
                session.write_tls(bytes)?;
            }
        }
        while *sent < bytes.len() {
            *sent += socket::send(socket, &[IoSlice::new(&bytes[*sent..])], wait)?;
        }
        bytes.clear();
        *sent = 0;
        Ok(*plain)
    }

    /// Tells the client that nothing more comes, if its socket takes that at once.
    pub(crate) fn say_goodbye(&self, socket: &OwnedFd) {
        lock(&self.session).send_close_notify();
        let _ = self.write(socket, &[], false);
    }
}

impl Incoming {
    /// Receives more; returns false at the end. Without `wait`, `WouldBlock` if there is nothing.
    fn receive(&mut self, socket: &OwnedFd, wait: bool) -> io::Result<bool> {
        let slices = &mut [IoSliceMut::new(&mut self.buffer)];
        let read = if wait { socket::receive(socket, slices) } else { socket::receive_now(socket, slices) }?;
        (self.start, self.end) = (0, read);
        Ok(read > 0)
    }

    /// Has the session decrypt what it takes.
    fn decrypt(&mut self, session: &mut ServerConnection) -> io::Result<()> {
        let mut rest = &self.buffer[self.start..self.end];
        session.read_tls(&mut rest)?;
        self.start = self.end - rest.len();
        session.process_new_packets().map_err(broken)?;
        Ok(())
    }
}

fn set_timeout(socket: &OwnedFd, which: Timeout, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(sockopt::set_socket_timeout(socket, which, Some(left.max(Duration::from_millis(1))))?)
}

/// Sends what the session has to say.
fn flush_by(session: &mut ServerConnection, socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes)?;
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        set_timeout(socket, Timeout::Send, deadline)?;
        let sent = socket::send(socket, &[IoSlice::new(rest)], true)?;
        rest = &rest[sent..];
    }
    Ok(())
}

fn names(certificate: &Certificate) -> Vec<String> {
    let alternatives = match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(alternatives)))) => alternatives,
        Ok(None) => Vec::new(),
        // It may have names that are not understood.
        Err(_) => return Vec::new(),
    };
    let name = |name: &GeneralName| match name {
        GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => {
            Some(name.to_string())
        }
        _ => None,
    };
    let names: Vec<String> = alternatives.iter().filter_map(name).collect();
    if !names.is_empty() {
        // The common name is then a text for people (RFC 6125, 6.4.4).
        return names;
    }
    let subject = &certificate.tbs_certificate.subject;
    let attributes = subject.0.iter().flat_map(|names| names.0.iter());
    attributes.filter(|attribute| attribute.oid == CN).filter_map(|attribute| text(&attribute.value)).collect()
}

/// The text of an attribute.
fn text(value: &Any) -> Option<String> {
    Some(match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str().to_owned(),
        _ => return None,
    })
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secure")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::{ClientConfig, ClientConnection};

    use super::*;

    /// A server's side of a session and its socket, and the client's, whose socket is not read from any more.
    fn session() -> (Secure, OwnedFd, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|name| folder.path().join(name));
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        let config = configure(&TlsSettings { certificate, key, client_ca: None }).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(ring::default_provider().into());
        let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let client = Arc::new(client.with_no_client_auth());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(theirs);
        let secure = std::thread::scope(|scope| {
            let ours = &mut ours;
            scope.spawn(move || {
                let mut session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
                while session.is_handshaking() {
                    session.complete_io(ours).unwrap();
                }
            });
            Secure::accept(&config, &socket).unwrap()
        });
        (secure, socket, ours)
    }

    #[test]
    fn little_is_to_be_taken_before_it_counts() {
        let (secure, socket, mut client) = session();
        sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
        let data = vec![7; 256 << 10];
        let mut taken = 0;
        let written = loop {
            match secure.write(&socket, &[IoSlice::new(&data)], false) {
                Ok(written) => break written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    taken += client.read(&mut [0; 1024]).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        };
        // A client is left that takes nothing for a while; what it takes shows when a write is over.
        assert!(written <= BATCH && taken <= BATCH, "{taken} encrypted bytes were taken of {written}");
    }
}
