//! What an operator is told: by the log, by `nigh ctl`, and by refusals.

use std::os::unix::net::UnixStream;

use nigh_nbd::client::Client;

use crate::serving::{Folder, Server};

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), export, &[]).unwrap()
}

#[test]
fn told_9_reads_that_a_device_fails_are_in_the_log() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:4M,next=fault:read=1,read=2,read=3:memory:4M", "--readahead", "none"]);
    let mut client = connect(&server, "disk");
    client.read(0, 4096).unwrap();
    for at in [0, 1, 2] {
        client.read((4 << 20) + at * 8192, 4096).unwrap_err();
    }
    let lines = server.logged("failed to read these bytes");
    let is_told = |line: &String| ["disk=\"disk\"", "from=4194304", "to=4198400"].iter().all(|word| line.contains(word));
    assert!(lines.len() == 1 && lines.iter().all(is_told), "{lines:#?}");
    assert_eq!(client.read(4 << 20, 4096).unwrap(), [0; 4096]);
    server.end();
}
