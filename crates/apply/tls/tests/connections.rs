//! A client and a server with certificates of one authority, over sockets that wait and that do not.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nigh_tls::{ClientStream, ClientTlsSettings, TlsSettings, names};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection};

struct Pki {
    folder: tempfile::TempDir,
    authority: Issuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Pki {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Pki { folder, authority: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a certificate with alternative names and a common name, and returns it and its key.
    fn issue(&self, alternatives: &[&str], common: &str) -> (PathBuf, PathBuf) {
        let mut params =
            CertificateParams::new(alternatives.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        let pair = KeyPair::generate().unwrap();
        let (certificate, key) = (self.path(&format!("{common}.pem")), self.path(&format!("{common}.key")));
        std::fs::write(&certificate, params.signed_by(&pair, &self.authority).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        (certificate, key)
    }

    fn server(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.issue(&["localhost"], "server");
        TlsSettings { certificate, key, client_ca: Some(self.path("ca.pem")) }.configure().unwrap()
    }

    fn client(&self, alternatives: &[&str], common: &str) -> ClientTlsSettings {
        let (certificate, key) = self.issue(alternatives, common);
        ClientTlsSettings { ca: self.path("ca.pem"), certificate, key }
    }
}

/// Accepts one client on a port of this machine.
fn accept<T: Send + 'static>(
    config: Arc<ServerConfig>,
    serve: impl FnOnce(ServerConnection, TcpStream) -> T + Send + 'static,
) -> (TcpStream, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut session = ServerConnection::new(config).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).unwrap();
        }
        serve(session, socket)
    });
    (client, thread)
}

#[test]
fn the_server_knows_the_client_by_its_certificate() {
    let pki = Pki::new();
    for (alternatives, common, expected) in
        [(&["alice.example", "a.example"][..], "alice", &["alice.example", "a.example"][..]), (&[], "bob", &["bob"])]
    {
        let client = pki.client(alternatives, common);
        let (socket, server) = accept(pki.server(), |session, _| names(session.peer_certificates()));
        ClientStream::secure(socket, "localhost", &client.configure().unwrap()).unwrap();
        assert_eq!(server.join().unwrap(), expected);
    }
    let (socket, _server) = accept(pki.server(), |_, _| ());
    let config = pki.client(&[], "carol").configure().unwrap();
    let error = ClientStream::secure(socket, "elsewhere", &config).unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    let wrong = ClientTlsSettings { ca: pki.path("server.key"), ..pki.client(&[], "dave") };
    assert!(wrong.configure().unwrap_err().to_string().contains("has no certificate in PEM form"));
}

/// Both sides write at once, more than the sockets take: a client that cannot write reads on.
#[test]
fn a_socket_that_does_not_wait() {
    const BYTES: usize = 8 << 20;
    let pki = Pki::new();
    let (has_waited, begin) = std::sync::mpsc::channel();
    let (socket, server) = accept(pki.server(), move |session, socket| {
        let mut stream = rustls::StreamOwned::new(session, socket);
        // The client has nothing to read at first.
        begin.recv().unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
        let mut received = vec![0; BYTES];
        stream.read_exact(&mut received).unwrap();
        received
    });
    let config = pki.client(&[], "client").configure().unwrap();
    let mut stream = ClientStream::secure(socket, "localhost", &config).unwrap();
    stream.socket().set_nonblocking(true).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (mut written, mut received, mut waited) = (0, Vec::<u8>::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    let begin = Instant::now();
    while written < BYTES || stream.is_unsent() || received.len() < BYTES {
        assert!(begin.elapsed() < Duration::from_secs(60), "{written} written, {} received", received.len());
        let wrote = if written < BYTES { stream.write(&sent[written..]) } else { stream.flush().map(|()| 0) };
        match wrote {
            Ok(bytes) => written += bytes,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        // Once the server has everything, too, it leaves without a word.
        if received.len() == BYTES {
            continue;
        }
        match stream.read(&mut buffer) {
            Ok(bytes) => received.extend(&buffer[..bytes]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                waited += 1;
                let _ = has_waited.send(());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert!(received == vec![7; BYTES] && server.join().unwrap() == sent);
    assert!(waited > 0);
}
