//! Settings of a server that do not go together, or do nothing without another one.

use super::File;
use crate::args::{AllocateArg, ServeArgs};
use crate::together::{self, Refused};

/// Flags, and the file behind them.
pub(super) struct Given<'a> {
    pub(super) args: &'a ServeArgs,
    pub(super) file: &'a File,
}

impl Given<'_> {
    /// An error with the reason, if settings do not go together.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        together::check(|name| SETTINGS.iter().any(|(setting, given)| *setting == name && given(self)), REFUSED)
    }

    pub(super) fn allocate(&self) -> Option<AllocateArg> {
        self.args.allocate.or(self.file.allocate)
    }

    pub(super) fn levels(&self) -> &[String] {
        if self.args.level.is_empty() { &self.file.level } else { &self.args.level }
    }

    pub(super) fn listen(&self) -> &[String] {
        if self.args.listen.is_empty() { &self.file.listen } else { &self.args.listen }
    }

    pub(super) fn vhost_user(&self) -> &[String] {
        if self.args.vhost_user.is_empty() { &self.file.vhost_user } else { &self.args.vhost_user }
    }

    pub(super) fn ublk(&self) -> &[String] {
        if self.args.ublk.is_empty() { &self.file.ublk } else { &self.args.ublk }
    }
}

/// Whether a setting was given, or a mode holds.
type IsGiven = fn(&Given) -> bool;

/// The settings of flags and file, as the file calls them, and modes as a message names them.
const SETTINGS: &[(&str, IsGiven)] = &[
    ("allocate", |given| given.allocate().is_some()),
    ("prefetch", |given| given.args.prefetch.is_some() || given.file.prefetch.is_some()),
    ("shards", |given| given.args.shards.is_some() || given.file.shards.is_some()),
    ("socket-group", |given| given.args.socket_group.is_some() || given.file.socket_group.is_some()),
    ("socket-mode", |given| given.args.socket_mode.is_some() || given.file.socket_mode.is_some()),
    ("a cache without allocate", |given| given.allocate().is_none()),
    ("a server without a Unix socket to listen on", |given| {
        !given.listen().iter().any(|address| address.starts_with("unix:")) && given.vhost_user().is_empty()
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
