//! A client: its configuration, and its side of a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};

use crate::files::{TlsError, authorities, identity};

/// Certificates of a client, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsSettings {
    /// Authorities of which the server needs a certificate.
    pub ca: PathBuf,
    /// The client's certificate, and those that lead to its authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl ClientTlsSettings {
    /// Reads the files.
    pub fn configure(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let ClientTlsSettings { ca, certificate, key } = self;
        let provider = Arc::new(ring::default_provider());
        let resolver: Arc<dyn ResolvesClientCert> =
            Arc::new(SingleCertAndKey::from(identity(&provider, certificate, key)?));
        let unfit = |source| TlsError::Certificate { certificate: certificate.clone(), key: key.clone(), source };
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(unfit)?.with_root_certificates(authorities(ca)?);
        Ok(Arc::new(config.with_client_cert_resolver(resolver)))
    }
}

/// A socket's bytes, encrypted if it has TLS. If the socket does not wait, neither do reads and writes.
#[derive(Debug)]
pub struct ClientStream {
    socket: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl ClientStream {
    /// A socket without TLS.
    pub fn plain(socket: TcpStream) -> ClientStream {
        ClientStream { socket, session: None }
    }

    /// Performs the handshake with a server for `host` on `socket`, which waits for no longer than its timeouts.
    pub fn secure(mut socket: TcpStream, host: &str, config: &Arc<ClientConfig>) -> io::Result<ClientStream> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(ErrorKind::InvalidInput, format!("{host}: {error}")))?;
        let mut session = ClientConnection::new(config.clone(), name).map_err(broken)?;
        while session.is_handshaking() {
            match session.complete_io(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "no answer"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ClientStream { socket, session: Some(Box::new(session)) })
    }

    /// The socket, for its settings.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether bytes that were written wait for the socket to take them: [`Write::flush`] tries again.
    pub fn is_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl Read for ClientStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let ClientStream { socket, session } = self;
        let Some(session) = session else { return socket.read(bytes) };
        loop {
            match session.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            session.read_tls(socket)?;
            session.process_new_packets().map_err(broken)?;
        }
    }
}

impl Write for ClientStream {
    /// Takes bytes as soon as those before them are sent; so little waits in memory.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let ClientStream { socket, session } = self;
        let Some(session) = session else { return socket.write(bytes) };
        let taken = session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let ClientStream { socket, session } = self;
        while let Some(session) = session.as_mut().filter(|session| session.wants_write()) {
            if session.write_tls(socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
