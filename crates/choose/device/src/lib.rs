//! Modelled devices in virtual time.

#![doc = include_str!("../README.md")]

mod array;
mod bucket;
mod disk;
mod fit;
mod flash;
mod layout;
mod measure;
mod profile;
mod random;
mod recorded;
mod seek;
mod sequence;
mod statistics;
mod store;
mod volume;
mod write_buffer;

pub use fit::{Fitted, fit, run_on};
pub use measure::{Batch, MeasureError, Measurements, Purpose, Timed, measure};
pub use profile::{
    ArrayProfile, DiskProfile, FlashProfile, Model, Profile, ProfileError, Raid, StoreProfile, VolumeProfile,
};
pub use recorded::{Recorded, RecordedError, fit_recorded};
pub use seek::SeekCurve;
pub use sequence::SequenceCost;

use array::Array;
use disk::Disk;
use flash::Flash;
use random::Random;
use store::Store;
use volume::Volume;

/// Bytes of a disk's sector.
pub const SECTOR_BYTES: u64 = 512;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Transfer to the host.
    Read,
    /// Transfer from the host.
    Write,
    /// Write everything acknowledged to the medium. Has no range.
    Flush,
    /// Forget a range.
    Trim,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub kind: Kind,
    /// Its start in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A request reaches beyond the end of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset_bytes} to {end_bytes} pass the end of the device, which has {device_bytes} bytes")]
pub struct BeyondEnd {
    /// Beginning of the request.
    pub offset_bytes: u64,
    /// Its end, unless it overflows.
    pub end_bytes: u64,
    /// The device's size.
    pub device_bytes: u64,
}

/// The counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time during which at least one request was at the device, in nanoseconds.
    pub busy_ns: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests for which an arm had to move to another cylinder.
    pub seeks: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.busy_ns += other.busy_ns;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.seeks += other.seeks;
    }
}

impl std::ops::Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            busy_ns: self.busy_ns - earlier.busy_ns,
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
            seeks: self.seeks - earlier.seeks,
        }
    }
}

/// The completion time of a request, and its seeks.
struct Served {
    at: u64,
    seeks: u64,
}

#[derive(Clone, Debug)]
enum State {
    Disk(Box<Disk>),
    Flash(Flash),
    Volume(Volume),
    Store(Store),
    Array(Box<Array>),
}

/// A device in virtual time. It has no clock: the host passes the time at which a request starts, and receives the time
/// of its completion.
#[derive(Clone, Debug)]
pub struct Device {
    state: State,
    bytes: u64,
    parallel: usize,
    counters: Counters,
    /// The latest completion so far.
    busy_until: u64,
}

impl Device {
    /// An idle device. The seed determines the rotation of a disk's platters at time 0 and the random part of
    /// latencies: with the same seed, the same requests at the same times complete at the same times.
    pub fn new(profile: &Profile, seed: u64) -> Device {
        let mut random = Random::new(seed);
        let (state, parallel) = match profile.model() {
            Model::Disk(disk) => (State::Disk(Box::new(Disk::new(disk, profile.bytes(), random.next()))), 1),
            Model::Flash(flash) => (State::Flash(Flash::new(flash)), flash.depth),
            Model::Volume(volume) => (State::Volume(Volume::new(volume, random)), volume.depth),
            Model::Store(store) => (State::Store(Store::new(store, random)), store.connections),
            Model::Array(array) => {
                let array = Array::new(array, &mut random);
                let parallel = array.parallel() as u64;
                (State::Array(Box::new(array)), parallel)
            }
        };
        let (bytes, parallel) = (profile.bytes(), parallel as usize);
        Device { state, bytes, parallel, counters: Counters::default(), busy_until: 0 }
    }

    /// Starts a request at `now_ns`, no earlier than the previous one, while fewer than [`Device::parallel`] are
    /// outstanding. Returns its completion time in nanoseconds; completions are not in the order of starts.
    pub fn start(&mut self, now_ns: u64, request: Request) -> Result<u64, BeyondEnd> {
        let Request { kind, offset_bytes, bytes } = request;
        let end_bytes = offset_bytes.saturating_add(bytes);
        if end_bytes > self.bytes {
            return Err(BeyondEnd { offset_bytes, end_bytes, device_bytes: self.bytes });
        }
        let served = match &mut self.state {
            State::Disk(disk) => disk.serve(now_ns, kind, offset_bytes, bytes),
            State::Flash(flash) => flash.serve(now_ns, kind, offset_bytes, bytes),
            State::Volume(volume) => volume.serve(now_ns, kind, bytes),
            State::Store(store) => store.serve(now_ns, kind, bytes),
            State::Array(array) => array.serve(now_ns, request),
        };
        self.counters.requests += 1;
        self.counters.seeks += served.seeks;
        if matches!(kind, Kind::Read | Kind::Write) {
            self.counters.bytes += bytes;
        }
        self.counters.busy_ns += served.at.saturating_sub(self.busy_until.max(now_ns));
        self.busy_until = self.busy_until.max(served.at);
        Ok(served.at)
    }

    /// The number of requests that the device serves in parallel, which is the limit of outstanding requests.
    pub fn parallel(&self) -> usize {
        self.parallel
    }

    /// The device's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// The time of `bytes` at a rate, in nanoseconds.
fn transfer_ns(bytes: u64, bytes_per_s: f64) -> u64 {
    (bytes as f64 / bytes_per_s * 1e9).round() as u64
}
