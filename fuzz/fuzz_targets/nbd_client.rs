//! Whatever a server sends, the client returns.
#![no_main]

use std::io::{Cursor, Read, Result, Write};

use libfuzzer_sys::fuzz_target;
use nigh_nbd::Command;
use nigh_nbd::client::Handshake;

struct Script<'a>(Cursor<&'a [u8]>);

impl Read for Script<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        Ok(from.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, input)) = data.split_first() else { return };
    let Ok(mut handshake) = Handshake::begin(Script(Cursor::new(input))) else { return };
    if mode & 1 != 0 && handshake.list().is_err() {
        return;
    }
    let framed = if mode & 2 != 0 { handshake.extended_headers() } else { handshake.structured_replies() };
    if framed.is_err() || mode & 4 != 0 && handshake.set_contexts("disk", &["base:allocation"]).is_err() {
        return;
    }
    let Ok(mut client) = (if mode & 8 != 0 { handshake.export_name("disk") } else { handshake.go("disk") }) else {
        return;
    };
    client.submit_read(10, vec![0; 100]).unwrap();
    client.submit(Command::BlockStatus { one: false }, 0, 4096).unwrap();
    client.submit_write(0, b"data", true).unwrap();
    while client.receive().is_ok() {}
});
