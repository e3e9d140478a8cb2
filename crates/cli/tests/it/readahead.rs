//! Read-ahead and scheduling of `nigh serve`, as a client and the device see them.

use crate::serving;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use nigh_nbd::client::Client;
use serde_json::Value;

use crate::serving::Folder;

const PAGE: u64 = 4096;
const PAGES: u64 = 4096;

struct Server {
    server: serving::Server,
    client: Client<UnixStream>,
}

fn page(at: u64) -> Vec<u8> {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).repeat(PAGE as usize / 8)
}

/// Serves 16 MiB in `folder` and connects.
fn serve(folder: &Folder, arguments: &[&str]) -> Server {
    let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
    let disk = format!("disk={}", folder.image("image", &bytes));
    let server = folder.serve(&[&[&disk, "--memory", "64M", "--metrics", "127.0.0.1:0"][..], arguments].concat());
    let client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap();
    Server { server, client }
}

impl Server {
    fn read(&mut self, at: u64) {
        let bytes = self.client.read(at * PAGE, PAGE as usize).unwrap();
        assert_eq!(bytes, page(at), "page {at}");
    }

    fn count(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(self.server.metrics()).unwrap();
        stream.write_all(b"GET /json HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        value["exports"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
    }
}

#[test]
fn sequential_reads_become_larger_for_the_device_and_random_ones_do_not() {
    let folder = Folder::new();
    let mut server = serve(&folder, &["--readahead", "linux", "--scheduler", "deadline"]);
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
    let folder = Folder::new();
    let config = folder.image("nigh.toml", b"readahead = 'extent:32K'\nscheduler = 'elevator'\ndepth = 1\n");
    let mut server = serve(&folder, &["--config", &config]);
    for at in [9, 300, 2000, 2007] {
        server.read(at);
    }
    assert_eq!((server.count("device_reads"), server.count("device_read_bytes")), (3, 3 * 8 * PAGE));
}

#[test]
fn slips_are_one_line() {
    let folder = Folder::new();
    let file = folder.image("bad.toml", b"scheduler = 'deadline:reed=1ms'\n");
    for (arguments, says) in [
        (["--readahead", "windows"], "no read-ahead 'windows'"),
        (["--readahead", "linux:max=7G"], "linux:max=128K"),
        (["--readahead", "linux:into=policy"], "for nigh sim"),
        (["--scheduler", "cfq"], "no scheduler 'cfq'"),
        (["--scheduler", "batch:0"], "batch:16"),
        (["--depth", "0"], "--depth"),
        (["--config", &file], "deadline:read=500ms"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        let output = command.args(["serve", "m=memory:1M", "--stdio"]).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(says), "{text}");
    }
}
