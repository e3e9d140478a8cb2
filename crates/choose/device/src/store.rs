//! An object store: a latency to the first byte, then bytes at the rate of a connection, limited by the total rate.

use crate::profile::StoreProfile;
use crate::random::Random;
use crate::{Kind, Served, transfer_ns};

#[derive(Clone, Debug)]
pub(crate) struct Store {
    profile: StoreProfile,
    /// The time at which the link has transferred all requests so far.
    link: u64,
    random: Random,
}

impl Store {
    pub(crate) fn new(profile: &StoreProfile, random: Random) -> Store {
        Store { profile: profile.clone(), link: 0, random }
    }

    pub(crate) fn serve(&mut self, now: u64, kind: Kind, bytes: u64) -> Served {
        let profile = &self.profile;
        let (median_ms, bytes) = match kind {
            Kind::Read => (profile.read_first_byte_ms, bytes),
            Kind::Write => (profile.write_first_byte_ms, bytes),
            Kind::Trim => (profile.write_first_byte_ms, 0),
            // Acknowledged data is stored.
            Kind::Flush => return Served { at: now, seeks: 0 },
        };
        let first_ms = self.random.log_normal(median_ms, profile.first_byte_p99_ratio);
        let first = now + (first_ms * 1e6).round() as u64;
        // The link's time is assigned in the order of starts: a known completion time is not delayed by later requests,
        // and no request waits for the first byte of another.
        self.link = self.link.max(now) + transfer_ns(bytes, profile.total_mb_per_s * 1e6);
        let at = self.link.max(first + transfer_ns(bytes, profile.connection_mb_per_s * 1e6));
        Served { at, seeks: 0 }
    }
}
