//! Connections, limits and tenants of the NBD server.

mod early_replies;
mod hostile;
mod resources;
mod serving;
mod tenants;
mod timer;
