//! The latency of a modelled device: its virtual time runs with the real clock, or faster.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nigh_device::{BeyondEnd, Device, Kind, Profile, ProfileError, Request};
use nigh_engine::Action;

use crate::device::Job;

/// Which device to behave like.
#[derive(Clone, Debug, PartialEq)]
pub struct Modelled {
    /// The name of a profile that comes with nigh, or the path of a file, which has a `/` in it or ends with `.toml`.
    pub profile: String,
    /// How many times as fast.
    pub speed: f64,
}

/// Why a profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl Modelled {
    /// Whether the profile is a file.
    pub(crate) fn is_file(&self) -> bool {
        self.profile.contains('/') || self.profile.ends_with(".toml")
    }

    pub(crate) fn load(&self) -> Result<Profile, LoadError> {
        match self.is_file() {
            true => Ok(Profile::parse(&std::fs::read_to_string(Path::new(&self.profile))?)?),
            false => Ok(Profile::named(&self.profile)?),
        }
    }
}

/// The modelled device's request for `job`.
pub(crate) fn request(job: &Job) -> Request {
    let kind = match job.operation.action {
        Action::Read(_) => Kind::Read,
        Action::Write(_) => Kind::Write,
        Action::Flush => Kind::Flush,
        // A drive that writes zeros does not receive them over its interface.
        Action::Discard | Action::Zeroes { .. } => Kind::Trim,
    };
    Request { kind, offset_bytes: job.operation.offset, bytes: job.bytes }
}

/// A modelled device and the clock that it follows.
pub(crate) struct Clocked {
    device: Device,
    /// When the requests that it works on are complete, in virtual time: at most as many as it does at once. With so
    /// many, the next one starts when the first of them ends.
    ends: BinaryHeap<Reverse<u64>>,
    /// Virtual time 0.
    origin: Instant,
    speed: f64,
}

impl Clocked {
    pub(crate) fn new(profile: &Profile, speed: f64) -> Clocked {
        Clocked { device: Device::new(profile, 1), ends: BinaryHeap::new(), origin: Instant::now(), speed }
    }

    /// When a request that comes at `now` is complete.
    pub(crate) fn due(&mut self, now: Instant, request: Request) -> Result<Instant, BeyondEnd> {
        let virtual_now = now.duration_since(self.origin).as_nanos() as f64 * self.speed;
        let end = self.end(virtual_now as u64, request)?;
        Ok(self.origin + Duration::from_nanos((end as f64 / self.speed) as u64))
    }

    /// When a request that comes at `now` is complete, both in virtual time.
    fn end(&mut self, now: u64, request: Request) -> Result<u64, BeyondEnd> {
        let full = self.ends.len() == self.device.parallel();
        let first = self.ends.peek().filter(|_| full).map(|&Reverse(end)| end);
        let end = self.device.start(first.map_or(now, |end| end.max(now)), request)?;
        if full {
            self.ends.pop();
        }
        self.ends.push(Reverse(end));
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: u64) -> Request {
        Request { kind: Kind::Read, offset_bytes: block * 4096, bytes: 4096 }
    }

    /// A request that arrives while the device works on as many as it can waits for the first of them to end.
    #[test]
    fn requests_beyond_what_the_device_does_at_once_wait() {
        for (name, count) in [("hdd-10k", 50), ("ssd-sata", 500), ("net-volume", 500)] {
            let profile = Profile::named(name).expect(name);
            let mut clocked = Clocked::new(&profile, 1.0);
            let mut plain = Device::new(&profile, 1);
            let mut outstanding: Vec<u64> = Vec::new();
            let mut waited = 0;
            for n in 0..count {
                let (now, request) = (n * 10_000, read(n * 7919 % 100_000));
                // The same, added one by one.
                let mut start = now;
                outstanding.retain(|&end| end > now);
                if outstanding.len() == plain.parallel() {
                    outstanding.sort_unstable();
                    start = outstanding.remove(0);
                    waited += 1;
                }
                let end = plain.start(start, request).expect("on the device");
                outstanding.push(end);
                assert_eq!(clocked.end(now, request), Ok(end), "{name}, request {n}");
            }
            assert!(waited > 40, "{name}: {waited} waited");
        }
    }

    #[test]
    fn virtual_time_runs_as_fast_as_it_is_told_to() {
        let profile = Profile::named("rz56").expect("shipped");
        let [mut plain, mut fast] = [1.0, 10.0].map(|speed| Clocked::new(&profile, speed));
        let flush = Request { kind: Kind::Flush, offset_bytes: 0, bytes: 0 };
        for clocked in [&mut plain, &mut fast] {
            let due = clocked.due(clocked.origin + Duration::from_millis(5), flush).expect("a flush has no place");
            let took = (due - clocked.origin).as_secs_f64() * 1e3 - 5.0;
            // A flush of this disk costs its overhead of 1.49 ms.
            assert!((took * clocked.speed - 1.49).abs() < 1e-3, "{took} ms");
        }
    }
}
