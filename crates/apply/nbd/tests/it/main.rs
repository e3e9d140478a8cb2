//! NBD's codec and sessions, and clients that others wrote.

mod common;
mod interop;
mod messages;
mod replies;
mod sessions;
mod uri;
