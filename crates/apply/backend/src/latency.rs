//! The latency of a device by its share of a few times: fixed, arm and channel.

use std::time::{Duration, Instant};

use nigh_engine::Action;

use crate::device::Job;

/// How slow a device is. Seek, rotation and transfer of one operation follow those of the operation before, in the
/// order of submission; `fixed` and `jitter` are spent by each operation for itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Of each operation.
    pub fixed: Duration,
    /// Up to so much more, at random.
    pub jitter: Duration,
    /// Time to move the arm, to the next place and across the whole device; between them it grows with the square root
    /// of the distance. A read or write that begins where the one before ended has neither seek nor rotation.
    pub seek: Option<(Duration, Duration)>,
    /// Mean time until the place comes by: half a turn.
    pub rotation: Duration,
    /// Transfer of reads and writes, in bytes per second.
    pub rate: Option<u64>,
}

/// Gives each job its time.
pub(crate) struct Paced {
    latency: Latency,
    /// Size of the device, for the distance.
    size: u64,
    /// When arm and channel are free.
    free_at: Instant,
    /// Place of the arm, in bytes.
    arm: u64,
    random: fastrand::Rng,
}

impl Paced {
    pub(crate) fn new(latency: Latency, size: u64) -> Paced {
        let random = fastrand::Rng::with_seed(1);
        Paced { latency, size: size.max(1), free_at: Instant::now(), arm: 0, random }
    }

    /// When `job`, which comes at `now`, has spent its latency.
    pub(crate) fn due(&mut self, now: Instant, job: &Job) -> Instant {
        self.free_at = self.free_at.max(now) + self.busy(job);
        self.free_at + self.latency.fixed + self.up_to(self.latency.jitter)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }

    /// How long `job` has arm and channel for itself.
    fn busy(&mut self, job: &Job) -> Duration {
        if !matches!(job.operation.action, Action::Read(_) | Action::Write(_)) {
            return Duration::ZERO;
        }
        let range = job.range();
        let distance = range.start.abs_diff(self.arm);
        self.arm = range.end;
        let mut busy =
            self.latency.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(job.bytes as f64 / rate as f64));
        if distance > 0 {
            if let Some((least, most)) = self.latency.seek {
                busy +=
                    least + most.saturating_sub(least).mul_f64((distance as f64 / self.size as f64).sqrt().min(1.0));
            }
            busy += self.up_to(2 * self.latency.rotation);
        }
        busy
    }
}
