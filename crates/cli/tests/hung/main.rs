//! `nigh serve` on devices that do not respond: they delay only those who use them.

#[path = "../serving/mod.rs"]
mod serving;

mod device;
mod left;
mod others;
mod stop;

use std::os::unix::net::UnixStream;
use std::path::Path;

use nigh_nbd::client::Client;

const MIB: usize = 1 << 20;

fn connect(socket: &Path, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(socket).unwrap(), export, &[]).unwrap()
}
