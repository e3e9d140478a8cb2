//! TLS over a client's socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_host::front::lock;
use rustix::net::sockopt::{self, Timeout};
use rustls::{ServerConfig, ServerConnection};

use crate::socket;

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Encrypted bytes that are received at a time: a record and its header.
const BUFFER: usize = 17 << 10;
/// Bytes that are encrypted at a time, about.
const BATCH: usize = 32 << 10;

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
                // The client is sent the reason; it may be gone.
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
        nigh_tls::names(lock(&self.session).peer_certificates())
    }

    /// As `Stream::read`.
    pub(crate) fn read(&self, socket: &OwnedFd, slices: &mut [IoSliceMut<'_>], wait: bool) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        let mut since = None;
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
            // However many parts a record has, nothing more is received once a read of the socket would be over.
            match since {
                None => since = Some(Instant::now()),
                Some(since) => {
                    let patience = sockopt::socket_timeout(socket, Timeout::Recv)?;
                    if wait && patience.is_some_and(|patience| since.elapsed() >= patience) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                }
            }
            if !incoming.receive(socket, wait)? {
                return Ok(0);
            }
        }
    }

    /// As `Stream::write`, but after `WouldBlock` the caller has to call again with the same bytes.
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

/// Sends the session's pending records.
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

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secure")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nigh_tls::TlsSettings;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::crypto::ring;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// A server's side of a session and its socket, and the client's, whose socket is not read from any more.
    fn session() -> (Secure, OwnedFd, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|name| folder.path().join(name));
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        let config = TlsSettings { certificate, key, client_ca: None }.configure().unwrap();
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

    /// A record that comes byte by byte is not waited for much longer than one that does not come.
    #[test]
    fn tls_18_parts_of_a_record_do_not_prolong_the_wait() {
        const PATIENCE: Duration = Duration::from_millis(200);
        let (secure, socket, mut client) = session();
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        let drip = std::thread::spawn(move || {
            // The beginning of a record of 16 KiB.
            client.write_all(&[0x17, 3, 3, 0x40, 0]).unwrap();
            (0..100).for_each(|_| {
                let _ = client.write_all(&[0]);
                std::thread::sleep(PATIENCE / 20);
            });
        });
        let begin = Instant::now();
        let error = secure.read(&socket, &mut [IoSliceMut::new(&mut [0; 16])], true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(begin.elapsed() < 3 * PATIENCE, "it waits for {:?}", begin.elapsed());
        drip.join().unwrap();
    }
}
