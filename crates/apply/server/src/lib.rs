//! NBD as a front of the service: negotiation, requests and replies.

#![doc = include_str!("../README.md")]

mod connection;
mod error;
mod input;
mod job;
mod link;
mod negotiate;
mod patience;
mod status;
mod uri;

use nigh_service::Listen;
use nigh_service::front::{Front, Guest};

use error::Ended;

/// NBD over sockets and pipes, for [`Service::listen`](nigh_service::Service::listen) and
/// [`Service::attach`](nigh_service::Service::attach).
///
/// ```
/// use std::os::unix::net::UnixStream;
///
/// use nigh_nbd::client::Client;
/// use nigh_server::NBD;
/// use nigh_service::{Allocation, Chunk, Directive, ExportSettings, Order, Service, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = ExportSettings::new("disk", "memory:16M".parse()?);
/// let mut settings = Settings::new(4 << 20, "lru".parse()?, vec![disk]);
/// settings.host.allocate = Some(Allocation::LruSp);
/// let server = Service::start(settings)?;
///
/// // It will be read from first to last, again and again: of what is there, the end is needed last.
/// server.hint("disk", &Directive::SetPolicy { priority: 0, policy: Order::Mru })?;
/// let all = Chunk { file: 0, bytes: None };
/// server.hint("disk", &Directive::Predict { accesses: vec![all; 3] })?;
///
/// let (ours, theirs) = UnixStream::pair()?;
/// server.attach(NBD, theirs.try_clone()?.into(), theirs.into(), || ());
/// let mut client = Client::connect(ours, "disk", &[])?;
/// for _ in 0..3 {
///     for block in 0..4096 {
///         client.read(block * 4096, 4096)?;
///     }
/// }
/// client.disconnect()?;
///
/// let disk = &server.statistics().exports[0].disk;
/// // LRU would have kept nothing until it is read again.
/// assert!(disk.misses + disk.prefetch_issued < 3 * 4096);
/// server.shut_down().map_err(|unwritten| unwritten[0].clone())?;
/// # Ok(())
/// # }
/// ```
pub const NBD: Nbd = Nbd;

/// The type of [`NBD`].
#[derive(Clone, Copy, Debug)]
pub struct Nbd;

impl Front for Nbd {
    fn uri(&self, address: &Listen, export: &str, tls: bool) -> Option<String> {
        Some(uri::uri(address, export, tls))
    }

    fn serve(&self, guest: &Guest<'_>) {
        serve(guest);
    }
}

fn serve(guest: &Guest<'_>) {
    let id = guest.id;
    match connection::serve(guest) {
        Ok(()) => tracing::debug!(id, "left"),
        Err(error @ Ended::Panic) => tracing::error!(id, %error, "the connection ended"),
        Err(error) => guest.note_failed(&error),
    }
}
