//! How many blocks programs may have pinned in a shard.
//!
//! A pinned block that the policy evicts keeps its frame until it is unpinned, and there are few frames beyond the capacity. So:
//!
//! 1. All pins of a shard together have at most half of its spare frames ([`Pins::new`]). The other half is left for requests.
//! 2. A disk can get as many as it then leaves to other disks, and a client as many as it then leaves to other clients of its disk.
//! 3. A client is granted [`GRANT`] blocks at a time, so most pins change only its own count. Grants that it no longer needs are returned.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

/// The pins of a client in a shard: the pinned blocks, and above them the granted ones in the upper half of the word.
#[derive(Default)]
pub(crate) struct Pinning(AtomicU64);

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Pins {
    /// No pins in a shard with `spare` frames beyond its capacity.
    pub(crate) fn new(spare: u32) -> Pins {
        Pins { most: spare / 2, granted: Mutex::default() }
    }

    /// The blocks that the only client of the only disk can pin.
    pub(crate) fn most_of_one(&self) -> u32 {
        self.most / 4
    }

    /// Grants as many blocks more as `client` needs for those that it has counted already. Returns whether there are so many.
    fn grant(&self, client: &Pinning, volume: Volume) -> bool {
        let mut granted = lock(&self.granted);
        let (pinned, own) = split(client.0.load(Ordering::Relaxed));
        let needed = pinned.saturating_sub(own);
        let disk = granted.disks.get(&volume).copied().unwrap_or(0);
        let fits = |more: u32| granted.all + disk + 2 * more <= self.most && disk + own + 2 * more <= self.most / 2;
        let Some(more) = [needed.max(GRANT), needed].into_iter().find(|&more| fits(more)) else { return false };
        granted.all += more;
        *granted.disks.entry(volume).or_default() += more;
        client.0.fetch_add(u64::from(more) * ONE, Ordering::Relaxed);
        true
    }

    /// Takes grants back that `client` does not need, except `keep` of them.
    fn take_back(&self, client: &Pinning, volume: Volume, keep: u32) {
        let mut granted = lock(&self.granted);
        let mut unused = 0;
        let less = |word: u64| {
            let (pinned, own) = split(word);
            unused = own.saturating_sub(pinned + keep);
            Some(word - u64::from(unused) * ONE)
        };
        let _ = client.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        granted.all -= unused;
        let disk = granted.disks.entry(volume).or_default();
        *disk -= unused;
        if *disk == 0 {
            granted.disks.remove(&volume);
        }
    }
}

impl Pinning {
    /// Counts `blocks` more pins of a client of `volume`, unless there are too many.
    #[inline]
    pub(crate) fn take(&self, blocks: u32, pins: &Pins, volume: Volume) -> bool {
        let (pinned, granted) = split(self.0.fetch_add(u64::from(blocks), Ordering::Relaxed));
        if pinned + blocks <= granted || pins.grant(self, volume) {
            return true;
        }
        self.give(blocks, pins, volume);
        false
    }

    /// Counts `blocks` pins less.
    #[inline]
    pub(crate) fn give(&self, blocks: u32, pins: &Pins, volume: Volume) {
        let (pinned, granted) = split(self.0.fetch_sub(u64::from(blocks), Ordering::Relaxed));
        if granted >= pinned - blocks + 3 * GRANT {
            pins.take_back(self, volume, GRANT);
        }
    }

    /// The client is gone. Blocks that it never unpinned keep their grants, because they keep their frames.
    pub(crate) fn end(&self, pins: &Pins, volume: Volume) {
        if self.0.load(Ordering::Relaxed) != 0 {
            pins.take_back(self, volume, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Volume = Volume(0);
    const B: Volume = Volume(1);

    fn fill(pins: &Pins, client: &Pinning, volume: Volume) -> u32 {
        (0..).take_while(|_| client.take(1, pins, volume)).count() as u32
    }

    #[test]
    fn others_find_room_beside_a_client_that_pins_all_it_can() {
        let pins = Pins::new(256);
        let [one, two, other] = [(); 3].map(|()| Pinning::default());
        assert_eq!(fill(&pins, &one, A), pins.most_of_one());
        assert!(fill(&pins, &two, A) >= 8);
        assert!(fill(&pins, &other, B) >= 16);
        let pinned = |client: &Pinning| split(client.0.load(Ordering::Relaxed)).0;
        let all = lock(&pins.granted).all;
        assert!(all <= 128 && all >= [&one, &two, &other].map(pinned).iter().sum());
        // All of it comes back.
        for (client, volume) in [(&one, A), (&two, A), (&other, B)] {
            (0..pinned(client)).for_each(|_| client.give(1, &pins, volume));
            client.end(&pins, volume);
        }
        assert_eq!(lock(&pins.granted).all, 0);
        assert!(lock(&pins.granted).disks.is_empty());
        assert_eq!(fill(&pins, &one, A), pins.most_of_one());
    }

    #[test]
    fn counts_hold_with_two_threads_on_one_client() {
        let pins = Pins::new(256);
        let client = Pinning::default();
        let pin = || {
            for at in 0..20_000_u32 {
                let blocks = at % 16 + 1;
                if client.take(blocks, &pins, A) {
                    let (pinned, granted) = split(client.0.load(Ordering::Relaxed));
                    assert!(pinned >= blocks && granted <= pins.most_of_one(), "{pinned} of {granted}");
                    client.give(blocks, &pins, A);
                }
            }
        };
        std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(pin)));
        client.end(&pins, A);
        assert_eq!(client.0.load(Ordering::Relaxed), 0);
        assert_eq!(lock(&pins.granted).all, 0);
    }

    #[test]
    fn blocks_that_are_never_unpinned_stay_counted() {
        let pins = Pins::new(256);
        let client = Pinning::default();
        assert!(client.take(5, &pins, A));
        client.end(&pins, A);
        assert_eq!(lock(&pins.granted).all, 5);
    }
}
