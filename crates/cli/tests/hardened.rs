//! What a server does not let others do.

mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;

use serving::{Folder, nigh};

/// What it says when it does not start.
fn refusal(arguments: &[&str]) -> String {
    let output = nigh(&[], arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

/// Statistics that other machines can read need a token.
#[test]
fn metrics_14_are_not_open_to_the_network() {
    let folder = Folder::new();
    let listen = format!("unix:{}", folder.text("other"));
    let open = ["disk=memory:8M", "--listen", &listen, "--metrics", "0.0.0.0:0"];
    assert!(refusal(&open).contains("would be open to the network"));
    let token = folder.image("token", b"");
    assert!(refusal(&[&open[..], &["--metrics-token", &token]].concat()).contains("it is a line of 1 to"));
    folder.image("token", b"opensesame\n");
    let server = folder.serve(&["disk=memory:8M", "--metrics", "0.0.0.0:0", "--metrics-token", &token]);
    let address = server.metrics().replace("0.0.0.0", "127.0.0.1");
    let ask = |header: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for header in ["", "Authorization: Bearer opensesam\r\n", "Authorization: Basic opensesame\r\n"] {
        let text = ask(header);
        assert!(text.starts_with("HTTP/1.0 401 ") && !text.contains("nigh_"), "{text}");
    }
    assert!(ask("Authorization: Bearer opensesame\r\n").contains("nigh_memory_bytes"));
    server.end();
}
