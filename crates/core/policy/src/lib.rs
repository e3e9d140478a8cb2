//! Cache replacement policies as pure state machines: no I/O, clock, threads, hashing, or allocation per access.
//!
//! A [`Policy`] decides which resident block leaves. Its host decides everything else; see [`contract`]. [`registry`]
//! lists every policy; [`build`] and [`visit`] create one from a [`Spec`] such as `lirs:hir=1%`.

pub mod amp;
pub mod aoio;
pub mod arc;
pub mod auto;
pub mod car;
mod chosen;
pub mod clock;
pub mod clock_pro;
mod codes;
pub mod contract;
pub mod curve;
mod directory;
pub mod dulo;
pub mod eelru;
pub mod fbr;
mod fenwick;
pub mod fifo;
pub mod gclock;
pub mod heap;
pub mod hyperbolic;
pub mod lecar;
pub mod lfu;
pub mod lfu_da;
pub mod linux;
pub mod lirs;
pub mod list;
pub mod lrfu;
pub mod lru;
pub mod lru_k;
mod marginal;
pub mod mq;
pub mod opt;
pub mod pcc;
mod pool;
mod prefetch;
mod promises;
pub mod random;
pub mod recency;
mod registry;
pub mod s3_fifo;
mod sample;
mod shadow;
pub mod sieve;
pub mod slru;
pub mod spec;
mod split_mix;
mod succession;
pub mod two_q;
pub mod ubm;
mod ulc;
mod values;
mod visit;
pub mod w_tinylfu;

pub use chosen::{Candidate, Chosen};
pub use contract::{Access, Block, Kind, Policy, Room, Slot, Stream, Tenant};
pub use prefetch::prefetch;
pub use promises::Promises;
pub use registry::{build, build_to_grow, ghosts, parse_list, registry, unified, visit};
pub use sample::Share;
pub use spec::{Info, Param, Params, Portion, Setup, Spec, SpecError};
pub use succession::Succession;
pub use values::Values;
pub use visit::Visit;
