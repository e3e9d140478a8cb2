//! Several cache levels managed as one: at which level a block belongs, and which block makes room there.
//!
//! [`Ulc`] is unified level-aware caching (S. Jiang, dissertation, 2004, chapter 5) for one client. [`UniLru`] is its rival,
//! the unified LRU of T. M. Wong and J. Wilkes ("My cache or yours?", USENIX 2002), also called DEMOTE. [`UlcClients`] and
//! [`UniLruClients`] are the same for several clients of one server. All are pure: they know slots, not blocks or bytes, and report
//! what has to move.

mod client;
mod clients;
mod counts;
mod levels;
mod server;
mod trial;
mod ulc;
mod uni_lru;

pub use client::{Reply, UlcClient, Update};
pub use clients::{Joint, UlcClients, UniLruClients};
pub use counts::Counts;
pub use levels::{LEVELS_MAX, Level, Move, Retrieve, Tier};
pub use server::{Answer, CLIENTS_MAX, Client, Server};
pub use trial::First;
pub use ulc::Ulc;
pub use uni_lru::UniLru;
