//! TLS against clients that others wrote, and against those that mean no good.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_nbd::client::{Client, Error, Handshake};
use nigh_nbd::wire::{OPTION_MAGIC, option};
use nigh_testkit::tools::{half_empty, installed, run};
use rcgen::{CertificateParams, DnType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{MIB, Server, empty_image, nigh, refusal, text};
use crate::serving::pki::Pki;

impl Pki {
    /// A server on a port of its own.
    fn serve(&self, arguments: &[&str]) -> (Server, u16) {
        let (certificate, key, ca) = (self.path("server.pem"), self.path("server.key"), self.path("ca.pem"));
        let tls = format!("certificate={},key={},client-ca={}", text(&certificate), text(&key), text(&ca));
        let mut all = vec!["--listen", "tcp:localhost:0", "--tls", &tls];
        all.extend(arguments);
        let server = Server::start(&all);
        let port = server.port();
        (server, port)
    }
}

fn uri(port: u16, export: &str, certificates: &Path) -> String {
    format!("nbds://localhost:{port}/{export}?tls-certificates={}", certificates.display())
}

fn fails(tool: &str, arguments: &[&str]) {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{tool} {arguments:?} succeeds");
}

#[test]
fn clients_of_others_work_over_tls_and_see_what_they_may() {
    let test = "clients_of_others_work_over_tls_and_see_what_they_may";
    if !(installed(test, "nbdinfo") && installed(test, "nbdcopy")) {
        return;
    }
    let pki = Pki::new();
    let (alice, bob) = (pki.client("alice", &["alice.example"], true), pki.client("bob", &[], true));
    let eve = pki.client("eve", &[], false);
    let nobody = pki.nobody();
    let source = pki.path("source");
    std::fs::write(&source, half_empty(16 << 20)).unwrap();
    let image = empty_image(pki.folder.path(), "image", 16 * MIB);
    let disk = format!("disk={}", image.display());
    let set = ["--set", "hers:client=alice.example", "--set", "his:client=bob,client=alice"];
    let (server, port) = pki.serve(&[&[&disk, "hers=memory:1M", "his=memory:2M"][..], &set].concat());

    let list = |folder: &Path| {
        let list = run("nbdinfo", &["--list", "--json", &uri(port, "", folder)]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["TLS"], true);
        let names = list["exports"].as_array().unwrap().iter().map(|export| export["export-name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(list(&alice), ["disk", "hers"]);
    assert_eq!(list(&bob), ["disk", "his"]);
    run("nbdinfo", &["--size", &uri(port, "his", &bob)]);
    // Her common name does not count beside an alternative name.
    fails("nbdinfo", &["--size", &uri(port, "his", &alice)]);
    fails("nbdinfo", &["--size", &uri(port, "hers", &bob)]);

    run("nbdcopy", &["--flush", text(&source), &uri(port, "disk", &alice)]);
    run("cmp", &[text(&source), text(&image)]);
    run("nbdcopy", &[&uri(port, "disk", &bob), text(&pki.path("copy"))]);
    run("cmp", &[text(&source), text(&pki.path("copy"))]);
    if installed(test, "qemu-img") {
        // QEMU's name for the folder of a client is the same.
        let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", alice.display());
        let disk = format!("driver=nbd,host=localhost,port={port},export=disk,tls-creds=tls");
        let compared = run(
            "qemu-img",
            &["compare", "--object", &object, "--image-opts", &disk, &{
                format!("driver=raw,file.driver=file,file.filename={}", source.display())
            }],
        );
        assert!(compared.contains("Images are identical."), "{compared}");
    }

    for folder in [&eve, &nobody] {
        fails("nbdinfo", &["--list", &uri(port, "", folder)]);
    }
    fails("nbdinfo", &["--list", &format!("nbd://localhost:{port}/")]);
    assert_eq!(list(&alice), ["disk", "hers"]);
    server.end();
}

/// A client's side of a session with the certificate in `folder`.
fn session(pki: &Pki, folder: &Path) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pki.path("ca.pem")).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(folder.join("client-cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("client-key.pem")).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// Before a client of this project chooses, over TLS.
fn greet(pki: &Pki, port: u16, folder: &Path) -> Handshake<StreamOwned<ClientConnection, TcpStream>> {
    let handshake = Handshake::begin(TcpStream::connect(("127.0.0.1", port)).unwrap()).unwrap();
    let mut secure = handshake.start_tls(|socket| Ok(StreamOwned::new(session(pki, folder), socket))).unwrap();
    assert!(secure.structured_replies().unwrap());
    secure
}

/// A client of this project over TLS.
fn connect(pki: &Pki, port: u16, export: &str, folder: &Path) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    greet(pki, port, folder).go(export).unwrap()
}

#[test]
fn many_requests_in_flight_over_tls() {
    let pki = Pki::new();
    let alice = pki.client("alice", &[], true);
    let (server, port) = pki.serve(&["disk=delay:1ms:memory:64M"]);
    let mut client = connect(&pki, port, "disk", &alice);
    let data: Vec<u8> = (0..24 * MIB).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    client.write(1000, &data).unwrap();
    assert!(client.read(1000, data.len()).unwrap() == data);
    for round in 0..20u64 {
        // Hits and misses of all sizes, whose replies are longer together than the socket's buffers.
        let mut expected = std::collections::HashMap::new();
        for at in 0..40u64 {
            let (offset, length) = ((round * 7919 + at * 104_729) % (20 * MIB), 1 + (at * 31_337) % 300_000);
            let cookie = client.submit_read(offset + 1000, vec![0; length as usize]).unwrap();
            expected.insert(cookie, (offset as usize, length as usize));
        }
        while client.in_flight() > 0 {
            let done = client.receive().unwrap();
            let (offset, length) = expected.remove(&done.cookie).unwrap();
            done.result.unwrap();
            assert!(done.buffer[..] == data[offset..offset + length], "{length} bytes at {offset} differ");
        }
    }
    client.disconnect().unwrap();
    server.end();
}

/// A client that sends the end of its handshake together with its first message.
struct Together(ClientConnection, TcpStream, usize);

impl Together {
    fn new(mut session: ClientConnection, mut socket: TcpStream) -> std::io::Result<Together> {
        session.write_tls(&mut socket)?;
        while session.is_handshaking() {
            session.read_tls(&mut socket)?;
            session.process_new_packets().map_err(std::io::Error::other)?;
        }
        Ok(Together(session, socket, 0))
    }
}

impl Read for Together {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.0.read_tls(&mut self.1)?;
            self.0.process_new_packets().map_err(std::io::Error::other)?;
        }
    }
}

impl Write for Together {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.writer().write_all(bytes)?;
        let mut encrypted = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut encrypted)?;
        }
        self.2 = self.2.max(encrypted.len());
        self.1.write_all(&encrypted)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_long_certificate_and_what_follows_it_arrive_whole() {
    let pki = Pki::new();
    let names: Vec<String> = (0..300).map(|at| format!("name-{at}.example")).collect();
    let alice = pki.client("alice", &names.iter().map(String::as_str).collect::<Vec<_>>(), true);
    let (server, port) = pki.serve(&["disk=memory:1M", "--set", "disk:client=name-299.example"]);
    let handshake = Handshake::begin(TcpStream::connect(("127.0.0.1", port)).unwrap()).unwrap();
    let mut secure = handshake.start_tls(|socket| Together::new(session(&pki, &alice), socket)).unwrap();
    assert!(secure.structured_replies().unwrap());
    let mut client = secure.go("disk").unwrap();
    client.write(0, b"whole").unwrap();
    assert_eq!(client.read(0, 5).unwrap(), b"whole");
    let Together(.., longest) = client.disconnect().unwrap();
    assert!(longest > 4096, "{longest} bytes are not more than rustls takes at a time");
    server.end();
}

#[test]
fn clients_lose_what_is_not_theirs_any_more() {
    let pki = Pki::new();
    let (alice, bob) = (pki.client("alice", &[], true), pki.client("bob", &[], true));
    let control = pki.path("control");
    let set = ["--control", text(&control), "--set", "disk:client=alice,client=bob"];
    let (server, port) = pki.serve(&[&["disk=memory:8M", "other=memory:1M"][..], &set].concat());
    let ctl = |clients: &str| {
        let set = ["ctl", "--control", text(&control), "set", "export", "disk", clients];
        assert!(nigh(&set).output().unwrap().status.success());
    };
    let (mut hers, mut his) = (connect(&pki, port, "disk", &alice), connect(&pki, port, "disk", &bob));
    let mut elsewhere = connect(&pki, port, "other", &alice);
    hers.write(0, b"alice").unwrap();
    // One that has seen it and not chosen yet.
    let mut early = greet(&pki, port, &alice);
    assert_eq!(early.list().unwrap().len(), 2);
    ctl("client=bob");
    assert!(hers.read(0, 5).is_err(), "she still reads");
    match early.go("disk") {
        Err(Error::Refused { message, .. }) => assert!(message.contains("other clients"), "{message}"),
        _ => panic!("she is let in"),
    }
    assert!(greet(&pki, port, &alice).list().unwrap().iter().all(|(name, _)| name == "other"));
    assert_eq!(his.read(0, 5).unwrap(), b"alice");
    elsewhere.read(0, 5).unwrap();
    ctl("client=any");
    assert_eq!(connect(&pki, port, "disk", &alice).read(0, 5).unwrap(), b"alice");
    assert_eq!(his.read(0, 5).unwrap(), b"alice");
    server.end();
}

#[test]
fn a_reload_does_not_forget_by_whom_clients_are_known() {
    let pki = Pki::new();
    let alice = pki.client("alice", &[], true);
    let paths = ["server.pem", "server.key", "ca.pem", "control", "nigh.toml"].map(|name| pki.path(name));
    let [certificate, key, ca, control, config] = paths.each_ref().map(|path| text(path));
    let write = |policy: &str, ca: &str| {
        let tls = format!("[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n{ca}\n");
        let export = "[[export]]\nname = 'disk'\ntarget = 'memory:1M'\nclients = ['alice']\n";
        std::fs::write(config, format!("policy = '{policy}'\n{tls}{export}")).unwrap();
    };
    let ca = format!("client-ca = '{ca}'");
    write("lru", &ca);
    let server = Server::start(&["--listen", "tcp:localhost:0", "--config", config, "--control", control]);
    let port = server.port();
    let reload = || nigh(&["ctl", "--control", control, "reload"]).output().unwrap();
    write("lirs", "");
    assert!(refusal(&reload()).contains("authority for client certificates"));
    let status = nigh(&["ctl", "--control", control, "status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["policy"], "lru", "a part of it was done");
    connect(&pki, port, "disk", &alice).read(0, 1).unwrap();
    write("lirs", &ca);
    assert!(reload().status.success());
    connect(&pki, port, "disk", &alice).read(0, 1).unwrap();
    server.end();
}

/// Starts TLS, and sends `first` where the ClientHello should be.
fn intrude(port: u16, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    let header = [&OPTION_MAGIC.to_be_bytes()[..], &option::STARTTLS.to_be_bytes(), &0u32.to_be_bytes()].concat();
    stream.write_all(&header).unwrap();
    stream.read_exact(&mut [0; 20]).unwrap();
    stream.write_all(first).unwrap();
    stream
}

/// Bytes that are still received until the server hangs up.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => rest,
    }
}

#[test]
fn garbage_and_silence_instead_of_a_handshake_end_their_connection_only() {
    let pki = Pki::new();
    let alice = pki.client("alice", &[], true);
    let (server, port) = pki.serve(&["disk=memory:8M"]);
    let mut client = connect(&pki, port, "disk", &alice);
    let begin = Instant::now();
    let silent = intrude(port, b"");
    // A record that never ends, byte by byte, and so never leaves the server without news for long.
    let mut slow = intrude(port, &[22, 3, 1, 64, 0, 1, 0, 63]);
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 5000], &[255; 20_000], &[22, 3, 1, 255, 255, 0, 0, 0]] {
        let said = rest(intrude(port, garbage));
        // An alert at most.
        assert!(said.len() < 32 && said.first().is_none_or(|kind| *kind == 21), "{said:?}");
        client.write(0, garbage).unwrap();
        assert_eq!(client.read(0, garbage.len()).unwrap(), garbage);
    }
    slow.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    loop {
        match slow.read(&mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            // A read with a timeout is not begun again after a signal, also not after one that stops and continues the process.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if slow.write_all(&[0]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "a handshake has no limit");
    }
    assert!(rest(silent).is_empty());
    assert!(begin.elapsed() >= Duration::from_secs(9), "there was no time for a handshake");
    client.read(0, 4096).unwrap();
    client.disconnect().unwrap();
    server.end();
}

#[test]
fn what_cannot_be_encrypted_is_one_line() {
    let pki = Pki::new();
    let paths = ["ca.pem", "server.pem", "server.key", "stranger.pem"].map(|name| pki.path(name));
    let [ca, certificate, key, _] = paths.each_ref().map(|path| text(path));
    let serve = |more: &[&str]| {
        let listen = ["serve", "disk=memory:1M", "--listen", "tcp:127.0.0.1:0"];
        refusal(&nigh(&listen).args(more).output().unwrap())
    };
    let tls = |certificate: &str, key: &str| serve(&["--tls", &format!("certificate={certificate},key={key}")]);
    for part in [&format!("certificate={certificate}"), &format!("key={key}"), &format!("client-ca={ca}")] {
        assert!(serve(&["--tls", part]).contains("it needs certificate=FILE and key=FILE"));
    }
    assert!(serve(&["--tls", "certificate=a,key=b,key=c"]).contains("'key=c': it is given twice"));
    assert!(serve(&["--tls", "cert=a,key=b"]).contains("'cert=a': expected certificate=FILE"));
    assert!(tls("/nowhere.pem", key).contains("/nowhere.pem: No such file"));
    assert!(tls(key, key).contains("no certificate"));
    assert!(tls(certificate, ca).contains("no private key"));
    let mut other = CertificateParams::new([]).unwrap();
    other.distinguished_name.push(DnType::CommonName, "other");
    pki.write(other, &pki.authority, &pki.path("other.pem"), &pki.path("other.key"));
    let said = tls(certificate, text(&pki.path("other.key")));
    assert!(said.contains("server.pem"), "{said}");
    assert!(serve(&["--set", "disk:client=alice"]).contains("authority"));
    assert!(serve(&["--set", "disk:iops=fast"]).contains("a number or none"));
    assert!(serve(&["--set", "disc:iops=5"]).contains("no export disc"));
}
