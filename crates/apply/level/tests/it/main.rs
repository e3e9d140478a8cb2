//! The protocol of levels on other hosts, and the state of their server.

mod codec;
mod store;
