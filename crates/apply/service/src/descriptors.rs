//! File descriptors: the process is allowed as many as the settings need, or nothing begins.

use nigh_backend::Target;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::controllers::WAITING_MAX;
use crate::newcomers::CONNECTIONS_EXTRA;

/// Listeners, clients for control and statistics, the driver, recordings, certificates that are read again, and files that are open for a moment.
const OWN: usize = 112 + WAITING_MAX;
/// The socket of a connection, and what wakes it if its export has a rate.
const OF_CONNECTION: usize = 2;

/// The system allows fewer descriptors than needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{connections} connections and their exports need {needed} file descriptors, and the limit is {limit}: raise it \
     (ulimit -n {needed}, or LimitNOFILE={needed} for systemd), or allow fewer with --connections"
)]
pub struct TooFewDescriptors {
    /// `Settings::connections_max`.
    pub connections: usize,
    /// Descriptors that are needed.
    pub needed: u64,
    /// Descriptors that the process can have.
    pub limit: u64,
}

/// Raises the process's limit of descriptors for this many connections, for `targets`, and `more`.
pub fn allow_descriptors<'a>(
    connections: usize,
    more: usize,
    targets: impl Iterator<Item = &'a Target>,
) -> Result<(), TooFewDescriptors> {
    let of_connections = connections.saturating_add(CONNECTIONS_EXTRA).saturating_mul(OF_CONNECTION);
    // Commands may wait for each of them.
    let of_targets: usize = targets.map(|target| target.descriptors() + WAITING_MAX).sum();
    let needed = of_connections.saturating_add(of_targets + OWN + more) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Ok(()),
        Err(_) => Err(TooFewDescriptors { connections, needed, limit: maximum.or(current).unwrap_or(needed) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_system_has_are_refused() {
        let refused = allow_descriptors(usize::MAX, 0, std::iter::empty()).unwrap_err();
        assert!(refused.limit < refused.needed);
    }
}
