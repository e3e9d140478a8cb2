//! What is said about a trace, and when: by its tenants and about them.

use nigh_policy::Tenant;

use crate::directive::Directive;

/// When something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the request with this number, from 0.
    Request(u64),
    /// At this time of the trace's clock, in nanoseconds.
    Time(u64),
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// By the tenant.
    Directive(Directive),
    /// About the tenant: the least blocks that it keeps and the most that it may have, 0 for no such bound.
    Bounds {
        /// The least.
        floor: u32,
        /// The most.
        ceiling: u32,
    },
}

/// One thing said at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub when: When,
    /// By whom, or about whom.
    pub tenant: Tenant,
    /// What.
    pub saying: Saying,
}
