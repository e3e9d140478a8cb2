//! File descriptors: clients cannot use them up, and a server begins only with enough of them.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use crate::command::refusal;
use crate::serving::Folder;
use nigh_nbd::client::Client;

const MIB: u64 = 1 << 20;

/// More silent connections than there were descriptors at first. A trim needs threads, and its bytes are where no other
/// request is.
#[test]
fn descriptors_1_silent_connections_do_not_end_the_server() {
    const SILENT: usize = 300;
    let folder = Folder::new();
    let image = folder.image("image", &vec![1; 4 << 20]);
    let limited = ["sh", "-c", "ulimit -Sn 128 && exec \"$0\" \"$@\""];
    let server = folder.serve_under(&limited, &[&format!("disk={image}"), "--connections", "200"]);
    let connect = || {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let mut first = Client::connect(connect(), "disk", &[]).unwrap();
    let silent: Vec<UnixStream> = (0..SILENT).map(|_| connect()).collect();
    // Until all of them were accepted, or refused, or no more can be.
    let unanswered =
        |stream: &mut &UnixStream| stream.read(&mut [0; 18]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    let _ = silent.iter().find(|stream| unanswered(&mut &**stream));
    first.write(0, &[2; 4096]).unwrap();
    first.trim(MIB, MIB).expect("the server goes on");
    let mut other = Client::connect(connect(), "disk", &[]).expect("others are let in");
    assert_eq!(other.read(0, 4096).unwrap(), [2; 4096]);
    assert_eq!(other.read(MIB, 4096).unwrap(), [0; 4096]);
    drop((first, other, silent));
    server.end();
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[..4096] == [2; 4096] && bytes[4096..MIB as usize].iter().all(|&byte| byte == 1));
}

#[test]
fn descriptors_1_a_server_without_enough_of_them_does_not_start() {
    let folder = Folder::new();
    let listen = format!("unix:{}", folder.text("socket"));
    let script =
        format!("ulimit -n 300 && exec timeout 20 \"$0\" serve disk=memory:1M --listen {listen} --connections 400");
    let said = refusal(&Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_nigh")]).output().unwrap());
    assert!(said.contains("the limit is 300") && said.contains("--connections"), "{said}");
    assert!(!folder.path("socket").exists());
}
