//! Which server of a level has which places: weighted rendezvous hashing of extents.

use std::ops::Range;

use twox_hash::XxHash3_64;

/// Bytes of an extent, whose places are on one server.
const EXTENT: u64 = 4 << 20;

/// A server's number in the draw for extents, and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ticket {
    seed: u64,
    weight: f64,
}

impl Ticket {
    /// Of the server at `address`, which is to have places in proportion to `weight`.
    pub(super) fn new(address: &str, weight: u64) -> Ticket {
        Ticket { seed: XxHash3_64::oneshot(address.as_bytes()), weight: weight.max(1) as f64 }
    }

    /// The server with the highest score has the extent. A server is first with a probability in proportion to its weight, and no score depends on
    /// other servers: so one that comes or goes moves only extents of its own.
    fn score(self, extent: u64) -> f64 {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, &extent.to_le_bytes());
        // In (0, 1).
        let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        self.weight / -uniform.ln()
    }
}

/// The number of the extent that has the byte at `offset`.
pub(super) fn extent_at(offset: u64) -> u64 {
    offset / EXTENT
}

/// The extents of a level of `bytes`.
pub(super) fn extents(bytes: u64) -> Range<u64> {
    0..bytes.div_ceil(EXTENT)
}

/// The places of an extent, for blocks of this size.
pub(super) fn places(extent: u64, block_bytes: u64) -> Range<u64> {
    extent * (EXTENT / block_bytes)..(extent + 1) * (EXTENT / block_bytes)
}

/// The one of `tickets` that has `extent`.
pub(super) fn draw(extent: u64, tickets: impl Iterator<Item = (usize, Ticket)>) -> Option<usize> {
    let scores = tickets.map(|(at, ticket)| (at, ticket.score(extent)));
    scores.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(servers: &[(&'static str, u64)]) -> Vec<&'static str> {
        let tickets: Vec<Ticket> = servers.iter().map(|(address, weight)| Ticket::new(address, *weight)).collect();
        let owner = |extent| draw(extent, tickets.iter().copied().enumerate()).map(|at| servers[at].0);
        extents(40_000 * EXTENT).map(|extent| owner(extent).unwrap()).collect()
    }

    fn share(owners: &[&str], of: &str) -> f64 {
        owners.iter().filter(|owner| **owner == of).count() as f64 / owners.len() as f64
    }

    #[test]
    fn shares_follow_weights_and_only_what_must_moves() {
        let three = owners(&[("a:1", 1 << 30), ("b:1", 2 << 30), ("c:1", 5 << 30)]);
        for (server, expected) in [("a:1", 0.125), ("b:1", 0.25), ("c:1", 0.625)] {
            let share = share(&three, server);
            assert!((share - expected).abs() < 0.01, "{server} has {share}");
        }
        let two = owners(&[("c:1", 5 << 30), ("a:1", 1 << 30)]);
        let moved = three.iter().zip(&two).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(before, _)| *before == "b:1"), "more moves than the share of the one that left");
        assert_eq!(moved.count(), three.iter().filter(|owner| **owner == "b:1").count());
        let heavier = owners(&[("a:1", 2 << 30), ("b:1", 2 << 30), ("c:1", 5 << 30)]);
        let moved = three.iter().zip(&heavier).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(_, after)| *after == "a:1") && moved.count() < 4800);
    }

    #[test]
    fn without_servers_nobody_has_a_place() {
        assert_eq!(draw(3, std::iter::empty()), None);
        assert_eq!((extents(EXTENT + 1), extent_at(EXTENT), places(1, 4096)), (0..2, 1, 1024..2048));
    }
}
