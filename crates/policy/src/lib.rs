//! Cache replacement policies as pure state machines: no I/O, clock, threads, hashing, or allocation per access.
//!
//! A [`Policy`] decides which resident block leaves. Its host decides everything else; see [`contract`].
//! [`registry`] lists every policy; [`build`] and [`visit`] make one from a [`Spec`] such as `lirs:hir=1%`.

pub mod arc;
pub mod car;
pub mod clock_pro;
pub mod contract;
pub mod lirs;
pub mod list;
pub mod lru;
pub mod recency;
mod registry;
pub mod spec;

pub use contract::{Access, Block, Kind, Policy, Slot, Stream, Tenant};
pub use registry::{Visit, build, registry, visit};
pub use spec::{Info, Param, Params, Setup, Spec, SpecError};
