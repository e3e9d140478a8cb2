//! Events beside a trace, with their times: hints of tenants, and changes of their bounds.

use nigh_policy::Tenant;

use crate::directive::Directive;

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the request with this number, from 0.
    Request(u64),
    /// At this time of the trace's clock, in nanoseconds.
    Time(u64),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// A hint of the tenant.
    Directive(Directive),
    /// New bounds of the tenant: its floor and its ceiling, 0 for none.
    Bounds {
        /// The floor.
        floor: u32,
        /// The ceiling.
        ceiling: u32,
    },
}

/// An event with its time and tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time.
    pub when: When,
    /// The tenant.
    pub tenant: Tenant,
    /// The event.
    pub saying: Saying,
}
