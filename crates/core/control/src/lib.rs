//! Hints of applications about their accesses, and their effects in the cache: which tenant loses a block (LRU-SP),
//! which block that is (by the tenant's own policies and lists), and which blocks are fetched ahead
//! (controlled-aggressive prefetching).
//!
//! Cao, Felten, Karlin, Li, Implementation and Performance of Integrated Application-Controlled File Caching,
//! Prefetching, and Disk Scheduling, ACM TOCS 14(4), 1996. Numbers of sections are that paper's.
//!
//! [`LruSp`] is a [`Policy`](nigh_policy::Policy), so a host holds it in place of one.

mod access_list;
mod allowance;
mod apply;
mod chains;
mod config;
mod directive;
mod levels;
mod local;
mod lru_sp;
mod pace;
mod placeholders;
mod pools;
mod prefetch;
mod saying;
pub mod sidecar;
mod tasks;
mod tenant;
mod utility;

pub use config::{Allocation, Config, Foresight, among_tenants};
pub use directive::{Chunk, Directive, Index, Limits, Order, Refusal};
pub use lru_sp::LruSp;
pub use saying::{Event, Saying, When};
pub use tenant::Statistics;
