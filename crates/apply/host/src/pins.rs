//! How many blocks programs may have pinned in a shard.
//!
//! A pinned block that the policy evicts keeps its frame until it is unpinned, and there are few frames beyond the capacity. The rules are:
//!
//! 1. All pins of a shard together have at most half of its spare frames ([`Pins::new`]). The other half is left for requests.
//! 2. A disk can get as many as it then leaves to other disks, and a client as many as it then leaves to other clients of its disk.
//! 3. A client is granted [`GRANT`] blocks at a time, so most pins change only its own count. Grants that no pin needs are taken back when another client
//!    would be refused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use nigh_engine::Volume;

use crate::sync::lock;

/// Blocks that a client is granted at a time.
const GRANT: u32 = 8;
/// One granted block, in [`Pinning`].
const ONE: u64 = 1 << 32;

/// The pins of a shard.
pub(crate) struct Pins {
    most: u32,
    granted: Mutex<Granted>,
}

/// **Invariant:** `all` is the sum of `disks`, and each of these is the sum of its clients' grants.
#[derive(Default)]
struct Granted {
    all: u32,
    disks: HashMap<Volume, u32>,
    /// Those that were granted any.
    clients: Vec<Weak<Pinning>>,
}

/// The pins of a client in a shard.
pub(crate) struct Pinning {
    /// The pinned blocks, and above them the granted ones in the upper half.
    word: AtomicU64,
    is_listed: AtomicBool,
    pins: Arc<Pins>,
    volume: Volume,
}

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Pins {
    /// No pins in a shard with `spare` frames beyond its capacity.
    pub(crate) fn new(spare: u32) -> Pins {
        Pins { most: spare / 2, granted: Mutex::default() }
    }

    /// The blocks that a client can pin while no other one pins any.
    pub(crate) fn most_of_one(&self) -> u32 {
        self.most / 4
    }

    /// Grants as many blocks more as `client` needs for those that it has counted already. Returns whether there are enough.
    fn grant(&self, client: &Arc<Pinning>) -> bool {
        // Dropped after the lock: the last owner of a client locks it.
        let mut looked_at = Vec::new();
        let mut granted = lock(&self.granted);
        if !client.is_listed.swap(true, Ordering::Relaxed) {
            granted.clients.retain(|known| known.strong_count() > 0);
            granted.clients.push(Arc::downgrade(client));
        }
        if self.grant_left(&mut granted, client) {
            return true;
        }
        for other in std::mem::take(&mut granted.clients) {
            if let Some(idle) = other.upgrade() {
                granted.take_back(&idle, 0);
                granted.clients.push(other);
                looked_at.push(idle);
            }
        }
        self.grant_left(&mut granted, client)
    }

    /// As `grant`, of what is not granted to anybody.
    fn grant_left(&self, granted: &mut Granted, client: &Pinning) -> bool {
        let (pinned, own) = split(client.word.load(Ordering::Relaxed));
        let needed = pinned.saturating_sub(own);
        let disk = granted.disks.get(&client.volume).copied().unwrap_or(0);
        let fits = |more: u32| granted.all + disk + 2 * more <= self.most && disk + own + 2 * more <= self.most / 2;
        let Some(more) = [needed.max(GRANT), needed].into_iter().find(|&more| fits(more)) else { return false };
        granted.all += more;
        *granted.disks.entry(client.volume).or_default() += more;
        client.word.fetch_add(u64::from(more) * ONE, Ordering::Relaxed);
        true
    }
}

impl Granted {
    /// Takes grants back that `client` does not need, except `keep` of them.
    fn take_back(&mut self, client: &Pinning, keep: u32) {
        let mut unused = 0;
        let less = |word: u64| {
            let (pinned, own) = split(word);
            unused = own.saturating_sub(pinned + keep);
            Some(word - u64::from(unused) * ONE)
        };
        let _ = client.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.all -= unused;
        let disk = self.disks.entry(client.volume).or_default();
        *disk -= unused;
        if *disk == 0 {
            self.disks.remove(&client.volume);
        }
    }
}

impl Pinning {
    /// No pins of a client of `volume`.
    pub(crate) fn new(pins: &Arc<Pins>, volume: Volume) -> Arc<Pinning> {
        let (word, is_listed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Pinning { word, is_listed, pins: pins.clone(), volume })
    }

    /// Counts `blocks` more pins, unless there are too many.
    #[inline]
    pub(crate) fn take(self: &Arc<Self>, blocks: u32) -> bool {
        let (pinned, granted) = split(self.word.fetch_add(u64::from(blocks), Ordering::Relaxed));
        if pinned + blocks <= granted || self.pins.grant(self) {
            return true;
        }
        self.give(blocks);
        false
    }

    /// Counts `blocks` pins less.
    #[inline]
    pub(crate) fn give(&self, blocks: u32) {
        let (pinned, granted) = split(self.word.fetch_sub(u64::from(blocks), Ordering::Relaxed));
        if granted >= pinned - blocks + 3 * GRANT {
            lock(&self.pins.granted).take_back(self, GRANT);
        }
    }
}

/// Blocks that were never unpinned keep their grants, because they keep their frames.
impl Drop for Pinning {
    fn drop(&mut self) {
        if self.word.load(Ordering::Relaxed) != 0 {
            lock(&self.pins.granted).take_back(self, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Volume = Volume(0);
    const B: Volume = Volume(1);

    fn fill(client: &Arc<Pinning>) -> u32 {
        (0..).take_while(|_| client.take(1)).count() as u32
    }

    fn pinned(client: &Pinning) -> u32 {
        split(client.word.load(Ordering::Relaxed)).0
    }

    #[test]
    fn others_find_room_beside_a_client_that_pins_all_it_can() {
        let pins = Arc::new(Pins::new(256));
        let clients = [A, A, B].map(|volume| Pinning::new(&pins, volume));
        assert_eq!(fill(&clients[0]), pins.most_of_one());
        assert!(fill(&clients[1]) >= 8);
        assert!(fill(&clients[2]) >= 16);
        let all = lock(&pins.granted).all;
        assert!(all <= 128 && all >= clients.iter().map(|client| pinned(client)).sum());
        // All of it comes back.
        clients.iter().for_each(|client| client.give(pinned(client)));
        drop(clients);
        assert_eq!(lock(&pins.granted).all, 0);
        assert!(lock(&pins.granted).disks.is_empty());
        assert_eq!(fill(&Pinning::new(&pins, A)), pins.most_of_one());
    }

    #[test]
    fn clients_without_pins_keep_nothing_from_others() {
        let pins = Arc::new(Pins::new(256));
        let clients: Vec<_> = (0..100).map(|_| Pinning::new(&pins, A)).collect();
        for client in clients.iter().chain(&clients) {
            assert!(client.take(2));
            client.give(2);
        }
        assert_eq!(fill(&clients[0]), pins.most_of_one());
    }

    #[test]
    fn counts_hold_with_two_threads_on_one_client_and_others_beside() {
        let pins = Arc::new(Pins::new(256));
        let (client, others) = (Pinning::new(&pins, A), [A, B].map(|volume| Pinning::new(&pins, volume)));
        let pin = |client: &Arc<Pinning>| {
            for at in 0..20_000_u32 {
                let blocks = at % 16 + 1;
                if client.take(blocks) {
                    let (pinned, granted) = split(client.word.load(Ordering::Relaxed));
                    assert!(pinned >= blocks && granted <= pins.most_of_one(), "{pinned} of {granted}");
                    client.give(blocks);
                }
            }
        };
        std::thread::scope(|scope| {
            for client in [&client, &client, &others[0], &others[1]] {
                scope.spawn(|| pin(client));
            }
        });
        drop((client, others));
        assert_eq!(lock(&pins.granted).all, 0);
    }

    #[test]
    fn blocks_that_are_never_unpinned_stay_counted() {
        let pins = Arc::new(Pins::new(256));
        let client = Pinning::new(&pins, A);
        assert!(client.take(5));
        drop(client);
        assert_eq!(lock(&pins.granted).all, 5);
    }
}
