//! A network volume: a latency, and limits of operations and bytes a second.

use crate::bucket::Bucket;
use crate::profile::VolumeProfile;
use crate::random::Random;
use crate::{Kind, Served};

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    profile: VolumeProfile,
    operations: Bucket,
    bytes: Bucket,
    random: Random,
}

impl Volume {
    pub(crate) fn new(profile: &VolumeProfile, random: Random) -> Volume {
        Volume {
            profile: profile.clone(),
            operations: Bucket::new(profile.iops, profile.burst_ms),
            bytes: Bucket::new(profile.mb_per_s * 1e6, profile.burst_ms),
            random,
        }
    }

    pub(crate) fn serve(&mut self, now: u64, kind: Kind, bytes: u64) -> Served {
        let VolumeProfile { read_us, write_us, jitter_us, io_kib, .. } = self.profile;
        let (latency_us, bytes) = match kind {
            Kind::Read => (read_us, bytes),
            Kind::Write => (write_us, bytes),
            Kind::Flush | Kind::Trim => (write_us, 0),
        };
        let operations = bytes.div_ceil(io_kib * 1024).max(1);
        let admitted = self.operations.admit(now, operations).max(self.bytes.admit(now, bytes));
        let latency_ns = (latency_us + self.random.exponential(jitter_us)) * 1e3;
        Served { at: admitted + latency_ns.round() as u64, seeks: 0 }
    }
}
