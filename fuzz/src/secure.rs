//! Clients of a server that asks for certificates: what they are, their sockets, and bytes that are none of TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use nigh_service::TlsSettings;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The alternative name of one client, and the common name of another.
pub const ALICE: &str = "alice.example";
/// The common name of a client without alternative names.
pub const BOB: &str = "bob";

/// The certificate that a client shows.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// `ALICE` as alternative name, and `BOB` as common name, which does not count then.
    Alice,
    /// `BOB` as common name.
    Bob,
    /// Both as alternative names.
    Both,
    /// Those names by another authority.
    Stranger,
    /// Those names, expired.
    Expired,
    /// Those names, for servers.
    OfServer,
    Nothing,
}

const ALL: [Certificate; 7] = [
    Certificate::Alice,
    Certificate::Bob,
    Certificate::Both,
    Certificate::Stranger,
    Certificate::Expired,
    Certificate::OfServer,
    Certificate::Nothing,
];

impl Certificate {
    /// Whether a server lets a client in at all.
    pub fn is_valid(self) -> bool {
        matches!(self, Certificate::Alice | Certificate::Bob | Certificate::Both)
    }

    /// Whether it is valid and has this name, `ALICE` or `BOB`.
    pub fn has(self, name: &str) -> bool {
        match self {
            Certificate::Alice => name == ALICE,
            Certificate::Bob => name == BOB,
            certificate => certificate == Certificate::Both,
        }
    }

    fn params(self) -> CertificateParams {
        let alternatives: &[&str] = match self {
            Certificate::Alice => &[ALICE],
            Certificate::Bob => &[],
            _ => &[ALICE, BOB],
        };
        let alternatives: Vec<String> = alternatives.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).expect("names");
        params.distinguished_name.push(DnType::CommonName, BOB);
        let is_server = self == Certificate::OfServer;
        params.extended_key_usages.push(match is_server {
            true => ExtendedKeyUsagePurpose::ServerAuth,
            false => ExtendedKeyUsagePurpose::ClientAuth,
        });
        if self == Certificate::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        params
    }
}

/// Certificates of a server, and the settings of its clients.
pub struct Pki {
    folder: tempfile::TempDir,
    /// For TLS 1.2 and 1.3, in the order of `ALL`.
    clients: Vec<[Arc<ClientConfig>; 2]>,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

impl Pki {
    /// Makes all of them.
    #[expect(clippy::new_without_default, reason = "it makes keys and files")]
    pub fn new() -> Pki {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (ours, theirs) = (authority(), authority());
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("room for a file");
        let server = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        write("server.pem", server.signed_by(&key, &ours).expect("a certificate").pem());
        write("server.key", key.serialize_pem());
        write("ca.pem", ours.pem());
        let mut roots = RootCertStore::empty();
        roots.add(ours.der().clone()).expect("an authority");
        let client = |certificate: Certificate, version| {
            let config = ClientConfig::builder_with_provider(ring::default_provider().into());
            let config = config.with_protocol_versions(&[version]).expect("a version");
            let config = config.with_root_certificates(roots.clone());
            if certificate == Certificate::Nothing {
                return Arc::new(config.with_no_client_auth());
            }
            let by = if certificate == Certificate::Stranger { &theirs } else { &ours };
            let key = KeyPair::generate().expect("a key");
            let chain = vec![certificate.params().signed_by(&key, by).expect("a certificate").der().clone()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            Arc::new(config.with_client_auth_cert(chain, key).expect("a certificate and its key"))
        };
        let clients = ALL.iter().map(|&certificate| [&TLS12, &TLS13].map(|version| client(certificate, version)));
        let clients = clients.collect();
        Pki { folder, clients }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Those of the server.
    pub fn settings(&self) -> TlsSettings {
        let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.path(name));
        TlsSettings { certificate, key, client_ca: Some(ca) }
    }

    /// A folder for other files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client's side of a session, by TLS 1.2 if `is_old`.
    pub fn session(&self, certificate: Certificate, is_old: bool) -> ClientConnection {
        let at = ALL.iter().position(|other| *other == certificate).expect("it is in the list");
        let config = self.clients[at][usize::from(!is_old)].clone();
        ClientConnection::new(config, "localhost".try_into().expect("a name")).expect("a session")
    }
}

/// A client's socket, with or without TLS.
pub enum Wire {
    Plain(UnixStream),
    Secure(Box<StreamOwned<ClientConnection, UnixStream>>),
}

impl Wire {
    /// Connects over TCP; reads wait for this time.
    pub fn over_tcp(address: SocketAddr, patience: Duration) -> UnixStream {
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(patience)).expect("a timeout");
        // Calls of the system are the same for all sockets.
        UnixStream::from(OwnedFd::from(socket))
    }

    /// Performs the handshake. Success means little: with TLS 1.3, the server has not seen the certificate yet.
    pub fn secure(mut socket: UnixStream, mut session: ClientConnection) -> io::Result<Wire> {
        while session.is_handshaking() {
            match session.complete_io(&mut socket) {
                // libFuzzer's timer interrupts it.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => drop(done?),
            }
        }
        Ok(Wire::Secure(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket itself: what is written to it is not encrypted.
    pub fn socket(&mut self) -> &mut UnixStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Secure(stream) => &mut stream.sock,
        }
    }

    /// The session, if it has TLS.
    pub fn session(&mut self) -> Option<&mut ClientConnection> {
        match self {
            Wire::Plain(_) => None,
            Wire::Secure(stream) => Some(&mut stream.conn),
        }
    }

    /// Closes it without sending what was written, so that the other side gets a lost connection.
    pub fn lose(mut self) {
        // Unix sockets have no such thing.
        let _ = rustix::net::sockopt::set_socket_linger(self.socket(), Some(Duration::ZERO));
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.read(bytes),
            Wire::Secure(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.write(bytes),
            Wire::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(socket) => socket.flush(),
            Wire::Secure(stream) => stream.flush(),
        }
    }
}
