//! Connections, limits and tenants of the NBD server.

mod hostile;
mod resources;
mod serving;
mod tenants;
mod timer;
