//! Connections that have chosen no export yet, or have not greeted the server of a level: how many there may be, and which one is
//! closed for another.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Connections beyond as many as allowed while others are being closed for them.
pub(crate) const CONNECTIONS_EXTRA: usize = 64;
/// A newcomer that is older is closed for another connection, if there are as many as allowed.
const DAWDLES: Duration = Duration::from_secs(5);
/// Below this, connections may all be newcomers.
const FEW: usize = 32;
/// How long a new connection waits for each newcomer that left, and for how many at most.
const FRUITLESS: Duration = Duration::from_millis(1);
const FRUITLESS_MOST: u32 = 10;

/// The client that connections are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A machine, or a network of 2^64 addresses.
    Machine(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl Peer {
    pub(crate) fn at(address: IpAddr) -> Peer {
        const NETWORK: u128 = !0 << 64;
        Peer::Machine(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        })
    }
}

/// A connection that has chosen no export yet, or has not greeted.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// Its other end.
    pub peer: Peer,
    /// When it connected.
    pub since: Instant,
}

/// Place of a new connection among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Beside the others.
    Free,
    /// That of this newcomer, which is closed.
    Of(u64),
    /// There is none: it is refused.
    None,
}

/// The place of a new connection beside `others`: their numbers, whether they are being closed, and which are newcomers. One that was
/// accepted from `peer` may take the place of a newcomer.
pub fn place(
    others: impl Iterator<Item = (u64, bool, Option<Newcomer>)> + Clone,
    peer: Option<Peer>,
    connections_max: usize,
    now: Instant,
) -> Place {
    let stay = others.clone().filter(|(_, is_closing, _)| !is_closing).count();
    let too_many = others.clone().count() >= connections_max.saturating_add(CONNECTIONS_EXTRA);
    let is_full = too_many || stay >= connections_max;
    let newcomers = others.filter_map(|(id, _, newcomer)| Some((id, newcomer?)));
    let displaced = match peer {
        None => None,
        Some(_) if too_many => None,
        Some(_) if is_full => dawdler(newcomers, now),
        Some(peer) => victim(newcomers, peer, connections_max),
    };
    match displaced {
        Some(id) => Place::Of(id),
        None if is_full => Place::None,
        None => Place::Free,
    }
}

/// Newcomers that left since the last pause.
#[derive(Default)]
pub struct Fruitless(AtomicU32);

impl Fruitless {
    /// Another one left.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How long the next connection waits, because others came and went without having become more than newcomers: who sends garbage
    /// again and again has the server do that only, otherwise.
    pub fn pause(&self) -> Duration {
        FRUITLESS * self.0.swap(0, Ordering::Relaxed).min(FRUITLESS_MOST)
    }
}

/// Most newcomers among this many connections.
fn limit(connections_max: usize) -> usize {
    (connections_max / 4).max(connections_max.min(FEW))
}

/// Which of `newcomers`, by number, is closed for another one of `peer`; none if there is room. A peer has at most half of
/// the places. Beyond all places, the peer with the most loses one, so that nobody else is kept out.
fn victim(newcomers: impl Iterator<Item = (u64, Newcomer)> + Clone, peer: Peer, connections_max: usize) -> Option<u64> {
    let most = limit(connections_max);
    let of = |peer| newcomers.clone().filter(move |(_, newcomer)| newcomer.peer == peer);
    let most_of_peer = if most <= FEW { most } else { most / 2 };
    if of(peer).count() >= most_of_peer {
        oldest(of(peer))
    } else if newcomers.clone().count() >= most {
        let largest = newcomers.clone().max_by_key(|(_, newcomer)| of(newcomer.peer).count());
        largest.and_then(|(_, newcomer)| oldest(of(newcomer.peer)))
    } else {
        None
    }
}

/// Which of `newcomers`, by number, is closed for a connection beyond those that may be: one that takes long to choose.
fn dawdler(newcomers: impl Iterator<Item = (u64, Newcomer)>, now: Instant) -> Option<u64> {
    oldest(newcomers.filter(|(_, newcomer)| now.saturating_duration_since(newcomer.since) >= DAWDLES))
}

fn oldest(newcomers: impl Iterator<Item = (u64, Newcomer)>) -> Option<u64> {
    newcomers.map(|(id, _)| id).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomers(peers: &[Peer]) -> Vec<(u64, Newcomer)> {
        let since = Instant::now();
        (0..).zip(peers).map(|(id, &peer)| (id, Newcomer { peer, since })).collect()
    }

    #[test]
    fn whoever_has_most_loses_a_place() {
        let (first, second, third) = (Peer::User(1), Peer::User(2), Peer::at([10, 0, 0, 1].into()));
        let closed = |peers: &[Peer], peer| victim(newcomers(peers).into_iter(), peer, 400);
        let mut peers = vec![second; 20];
        peers.extend([first; 49]);
        assert_eq!(closed(&peers, first), None);
        peers.push(first);
        assert_eq!(closed(&peers, first), Some(20));
        assert_eq!(closed(&peers, second), None);
        peers.extend([second; 20]);
        peers.extend([third; 10]);
        assert_eq!(closed(&peers, third), Some(20));
        assert_eq!(closed(&peers[..99], third), None);
    }

    #[test]
    fn few_connections_may_all_be_newcomers() {
        let peers = [Peer::User(1); 20];
        assert_eq!(victim(newcomers(&peers[..19]).into_iter(), Peer::User(1), 20), None);
        assert_eq!((limit(1), limit(100), limit(1024)), (1, 32, 256));
    }

    #[test]
    fn a_network_is_one_peer() {
        let at = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:0:0:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
    }

    #[test]
    fn only_those_who_take_long_are_closed_for_others() {
        let peers = newcomers(&[Peer::User(1); 3]);
        let now = Instant::now();
        assert_eq!(dawdler(peers.iter().copied(), now), None);
        assert_eq!(dawdler(peers.iter().copied(), now + DAWDLES), Some(0));
    }
}
