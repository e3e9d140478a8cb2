//! Settings of a server that do not go together, or do nothing without another one.

use nigh_service::Listen;

use crate::args::{Address, Given};
use crate::together::{self, Refused};

/// An error with the reason, if settings do not go together.
pub(super) fn check(given: &Given) -> anyhow::Result<()> {
    together::check(|name| SETTINGS.iter().any(|(setting, is_given)| *setting == name && is_given(given)), REFUSED)
}

/// Whether a setting was given, or a mode holds.
type IsGiven = fn(&Given) -> bool;

/// The settings of flags and file, as the file calls them, and modes as a message names them.
const SETTINGS: &[(&str, IsGiven)] = &[
    ("allocate", |given| given.tenants.allocate.is_some()),
    ("prefetch", |given| given.tenants.prefetch.is_some()),
    ("shards", |given| given.blocks.shards.is_some()),
    ("socket-group", |given| given.clients.socket_group.is_some()),
    ("socket-mode", |given| given.clients.socket_mode.is_some()),
    ("a cache without allocate", |given| given.tenants.allocate.is_none()),
    ("a server without a Unix socket to listen on", |given| {
        let is_unix = |address: &Address| matches!(address.0, Listen::Unix(_));
        !given.clients.listen.iter().any(is_unix) && given.clients.vhost_user.is_empty()
    }),
];

const REFUSED: &[Refused] = &[
    (
        "shards",
        &["allocate"],
        "a shard would see only part of what a tenant predicts, and decide for part of the tenants' blocks",
    ),
    ("prefetch", &["a cache without allocate"], "only tenants predict blocks"),
    ("socket-group", &["a server without a Unix socket to listen on"], "it is of those sockets alone"),
    ("socket-mode", &["a server without a Unix socket to listen on"], "it is of those sockets alone"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_setting_is_known() {
        for name in REFUSED.iter().flat_map(|(flag, others, _)| others.iter().chain([flag])) {
            assert!(SETTINGS.iter().any(|(setting, _)| setting == name), "{name}");
        }
    }
}
