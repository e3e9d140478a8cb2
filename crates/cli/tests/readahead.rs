//! Read-ahead and scheduling of `nigh serve`, as a client and the device see them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nigh_nbd::client::Client;
use serde_json::Value;

const PAGE: u64 = 4096;
const PAGES: u64 = 4096;

struct Server {
    process: Child,
    client: Option<Client<UnixStream>>,
    metrics: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.client.take());
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn page(at: u64) -> Vec<u8> {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).repeat(PAGE as usize / 8)
}

/// Serves 16 MiB in `folder` and connects.
fn serve(folder: &Path, arguments: &[&str]) -> Server {
    let image = folder.join("image");
    let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
    std::fs::write(&image, bytes).unwrap();
    let socket = folder.join("socket");
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut process = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["serve", &format!("disk={}", image.display()), "--memory", "64M", "--metrics", &metrics])
        .args(["--listen", &format!("unix:{}", socket.display())])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening")), "{arguments:?}");
    std::thread::spawn(move || lines.for_each(drop));
    let client = Client::connect(UnixStream::connect(&socket).unwrap(), "disk", &[]).unwrap();
    Server { process, client: Some(client), metrics }
}

impl Server {
    fn read(&mut self, at: u64) {
        let bytes = self.client.as_mut().unwrap().read(at * PAGE, PAGE as usize).unwrap();
        assert_eq!(bytes, page(at), "page {at}");
    }

    fn count(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.write_all(b"GET /json HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        value["exports"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
    }
}

#[test]
fn sequential_reads_become_larger_for_the_device_and_random_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = serve(folder.path(), &["--readahead", "linux", "--scheduler", "deadline"]);
    // Each page once, in no order.
    for at in 1..200 {
        server.read(PAGES / 2 + at * 977 % (PAGES / 2));
    }
    assert_eq!(server.count("prefetch_issued"), 0);
    assert_eq!((server.count("device_reads"), server.count("device_read_bytes")), (199, 199 * PAGE));
    for at in 0..PAGES / 4 {
        server.read(at);
    }
    let (reads, bytes) = (server.count("device_reads") - 199, server.count("device_read_bytes") - 199 * PAGE);
    assert!(bytes >= PAGES / 4 * PAGE, "{bytes} bytes");
    assert!(bytes / reads >= 16 * PAGE, "{bytes} bytes in {reads} reads");
    let (issued, used) = (server.count("prefetch_issued"), server.count("prefetch_used"));
    assert!(used <= issued && used > PAGES / 4 * 9 / 10, "{used} used of {issued}");
}

#[test]
fn settings_come_from_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nigh.toml");
    std::fs::write(&config, "readahead = 'extent:32K'\nscheduler = 'elevator'\ndepth = 1\n").unwrap();
    let mut server = serve(folder.path(), &["--config", config.to_str().unwrap()]);
    for at in [9, 300, 2000, 2007] {
        server.read(at);
    }
    assert_eq!((server.count("device_reads"), server.count("device_read_bytes")), (3, 3 * 8 * PAGE));
}

#[test]
fn slips_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "scheduler = 'deadline:reed=1ms'\n").unwrap();
    for (arguments, says) in [
        (["--readahead", "windows"], "no read-ahead 'windows'"),
        (["--readahead", "linux:max=7G"], "linux:max=128K"),
        (["--scheduler", "cfq"], "no scheduler 'cfq'"),
        (["--scheduler", "batch:0"], "batch:16"),
        (["--depth", "0"], "--depth"),
        (["--config", file.to_str().unwrap()], "deadline:read=500ms"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        let output = command.args(["serve", "m=memory:1M", "--stdio"]).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(says), "{text}");
    }
}
