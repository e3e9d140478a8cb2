//! Profiles: the figures of a device, as a TOML file.

use std::ops::RangeInclusive;

use nigh_text::{did_you_mean, nearest};
use toml::{Table, Value};

use crate::SECTOR_BYTES;
use crate::seek::SeekCurve;

/// The profiles that come with nigh: name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("ultrastar-18zx", include_str!("../profiles/ultrastar-18zx.toml")),
    ("hdd-10k", include_str!("../profiles/hdd-10k.toml")),
    ("rz56", include_str!("../profiles/rz56.toml")),
    ("rz26", include_str!("../profiles/rz26.toml")),
    ("wd400bb", include_str!("../profiles/wd400bb.toml")),
    ("hdd-7200", include_str!("../profiles/hdd-7200.toml")),
    ("ssd-sata", include_str!("../profiles/ssd-sata.toml")),
    ("ssd-nvme", include_str!("../profiles/ssd-nvme.toml")),
    ("net-volume", include_str!("../profiles/net-volume.toml")),
    ("object-store", include_str!("../profiles/object-store.toml")),
];

/// How large a device can be.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 60;

/// So many cylinders a disk has at most that is larger than its profile.
const CYLINDERS_MOST: u64 = 1 << 30;

/// Why a text is not a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No profile of that name comes with nigh.
    #[error("there is no profile '{name}'{}", did_you_mean(*.nearest))]
    NoSuch {
        /// What was asked for.
        name: String,
        /// The shipped name that is written similarly.
        nearest: Option<&'static str>,
    },
    /// It is no TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A figure is not there.
    #[error("'{key}' is missing: expected {expected}")]
    Missing {
        /// Its key.
        key: &'static str,
        /// What it is, and its limits.
        expected: String,
    },
    /// A figure cannot be so.
    #[error("'{key}' is {found}: expected {expected}")]
    Value {
        /// Its key.
        key: &'static str,
        /// What is there.
        found: String,
        /// What it is, and its limits.
        expected: String,
    },
    /// A key means nothing for this kind of device.
    #[error("'{key}' is no figure of this kind of device{}", did_you_mean(*.nearest))]
    Unknown {
        /// The key.
        key: String,
        /// The key that is written similarly.
        nearest: Option<&'static str>,
    },
}

/// A device's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    title: String,
    bytes: u64,
    model: Model,
}

/// What a profile describes. Figures are as in the file; their names end with their units.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A hard disk.
    Disk(DiskProfile),
    /// A flash drive.
    Flash(FlashProfile),
    /// A network volume.
    Volume(VolumeProfile),
    /// An object store.
    Store(StoreProfile),
}

/// A hard disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskProfile {
    /// Rotations a minute.
    pub rpm: f64,
    /// Surfaces with a head each.
    pub heads: u64,
    /// Cylinders, and sectors of each of their tracks; outermost first.
    pub zones: Vec<(u64, u64)>,
    /// Time of seeks.
    pub seek: SeekCurve,
    /// What a write needs more after a seek.
    pub seek_write_extra_ms: f64,
    /// From one head to another on the same cylinder.
    pub head_switch_ms: f64,
    /// What a command takes before the arm moves.
    pub overhead_ms: f64,
    /// What a read takes that the buffer has.
    pub hit_overhead_ms: f64,
    /// Rate to the host, in 10^6 bytes a second.
    pub interface_mb_per_s: f64,
    /// The drive's memory.
    pub buffer_kib: u64,
    /// Streams that it is divided between.
    pub buffer_segments: u64,
    /// Writes are acknowledged when they are in the buffer.
    pub write_cache: bool,
}

/// A flash drive.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashProfile {
    /// What is read or programmed at a time.
    pub page_bytes: u64,
    /// Pages that are read or programmed side by side.
    pub channels: u64,
    /// Requests that the drive takes on.
    pub depth: u64,
    /// What a command takes before and beside the medium.
    pub overhead_us: f64,
    /// To read a page.
    pub read_us: f64,
    /// To program a page.
    pub program_us: f64,
    /// Rate to the host, in 10^6 bytes a second.
    pub read_mb_per_s: f64,
    /// Rate from the host.
    pub write_mb_per_s: f64,
    /// Memory in which writes are acknowledged; 0: they are when they are programmed.
    pub write_buffer_kib: u64,
}

/// A network volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeProfile {
    /// Requests on their way at a time.
    pub depth: u64,
    /// Of a read, at least.
    pub read_us: f64,
    /// Of a write, flush or trim, at least.
    pub write_us: f64,
    /// Mean of what comes on top, exponentially distributed.
    pub jitter_us: f64,
    /// Operations a second.
    pub iops: f64,
    /// What counts as one operation at most.
    pub io_kib: u64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// How much of both may be saved up, as time.
    pub burst_ms: f64,
}

/// An object store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreProfile {
    /// Requests on their way at a time.
    pub connections: u64,
    /// Median until the first byte of a read.
    pub read_first_byte_ms: f64,
    /// Median until a write begins.
    pub write_first_byte_ms: f64,
    /// 99th percentile by median, of both.
    pub first_byte_p99_ratio: f64,
    /// 10^6 bytes a second, of one request.
    pub connection_mb_per_s: f64,
    /// The same of all together.
    pub total_mb_per_s: f64,
}

impl Profile {
    /// The names of the profiles that come with nigh.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of a profile that comes with nigh, with the sources of its figures.
    pub fn text(name: &str) -> Result<&'static str, ProfileError> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        let nearest = || nearest(name, Profile::names());
        found.map(|(_, text)| *text).ok_or_else(|| ProfileError::NoSuch { name: name.to_owned(), nearest: nearest() })
    }

    /// A profile that comes with nigh.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        Profile::parse(Profile::text(name)?)
    }

    /// A profile as a TOML file has it.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let table = text.parse::<Table>().map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            ProfileError::Syntax { line, message: error.message().to_owned() }
        })?;
        let mut figures = Figures { table, known: Vec::new() };
        let kind = figures.string("kind", "'disk', 'flash', 'volume' or 'store'")?;
        let title = figures.string("title", "what device it is")?;
        let bytes = figures.integer("bytes", BYTES, "its size")?;
        let model = match kind.as_str() {
            "disk" => Model::Disk(disk(&mut figures, bytes)?),
            "flash" => Model::Flash(flash(&mut figures)?),
            "volume" => Model::Volume(volume(&mut figures)?),
            "store" => Model::Store(store(&mut figures)?),
            _ => {
                let expected = "'disk', 'flash', 'volume' or 'store'".to_owned();
                return Err(ProfileError::Value { key: "kind", found: format!("'{kind}'"), expected });
            }
        };
        figures.end()?;
        Ok(Profile { title, bytes, model })
    }

    /// A larger device of the same kind, at least `bytes` long: this one's size as often as needed. Latencies and rates
    /// stay. A disk has that many times the cylinders, and the arm takes as long as before for the same share of its way.
    /// Nothing where such a device would be larger than devices can be.
    pub fn stretched(&self, bytes: u64) -> Option<Profile> {
        let times = bytes.div_ceil(self.bytes).max(1);
        let bytes = self.bytes.checked_mul(times).filter(|bytes| BYTES.contains(bytes))?;
        let mut model = self.model.clone();
        if let Model::Disk(disk) = &mut model {
            let before = cylinders_of(self.bytes, disk.heads, &disk.zones)?;
            for (cylinders, _) in &mut disk.zones {
                *cylinders = cylinders.checked_mul(times)?;
            }
            let after = cylinders_of(bytes, disk.heads, &disk.zones).filter(|&after| after <= CYLINDERS_MOST)?;
            disk.seek = disk.seek.stretched(before as u32, after as u32);
        }
        Some(Profile { title: self.title.clone(), bytes, model })
    }

    /// What device it is.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its figures.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

/// How many cylinders the first `bytes` of a disk take, if it has so many.
fn cylinders_of(bytes: u64, heads: u64, zones: &[(u64, u64)]) -> Option<u64> {
    let (mut cylinders, mut left) = (0, bytes.div_ceil(SECTOR_BYTES));
    for &(count, per_track) in zones {
        let used = left.div_ceil(heads * per_track).min(count);
        cylinders += used;
        left = left.saturating_sub(used * heads * per_track);
    }
    (left == 0).then_some(cylinders)
}

fn disk(figures: &mut Figures, bytes: u64) -> Result<DiskProfile, ProfileError> {
    let rpm = figures.number("rpm", 60.0..=100_000.0, "rotations a minute")?;
    let heads = figures.integer("heads", 1..=255, "a number of heads")?;
    let zones = figures.zones("zones")?;
    let Some(cylinders) = cylinders_of(bytes, heads, &zones) else {
        let expected = "no more than heads and zones hold".to_owned();
        return Err(ProfileError::Value { key: "bytes", found: bytes.to_string(), expected });
    };
    if !(3..=10_000_000).contains(&cylinders) {
        let found = format!("enough for all bytes in {cylinders} cylinders");
        return Err(ProfileError::Value { key: "zones", found, expected: "3 to 10000000 of them in use".to_owned() });
    }
    let time = 0.0..=1000.0;
    let next_ms = figures.number("seek_next_ms", 0.001..=1000.0, "the time to the next cylinder")?;
    let full_ms = figures.number("seek_full_ms", next_ms..=10_000.0, "the time across all cylinders")?;
    let average_ms = figures.number("seek_average_ms", next_ms..=full_ms, "the time between two random cylinders")?;
    let seek = SeekCurve::through(next_ms, average_ms, full_ms, cylinders as u32).map_err(|(least, most)| {
        let found = average_ms.to_string();
        let expected = format!(
            "{least:.3} to {most:.3}, between what a straight line from seek_next_ms to seek_full_ms and a root have"
        );
        ProfileError::Value { key: "seek_average_ms", found, expected }
    })?;
    Ok(DiskProfile {
        rpm,
        heads,
        zones,
        seek,
        seek_write_extra_ms: figures.number("seek_write_extra_ms", time.clone(), "what a write needs to settle")?,
        head_switch_ms: figures.number("head_switch_ms", time.clone(), "the time from one head to another")?,
        overhead_ms: figures.number("overhead_ms", time.clone(), "what a command takes before the arm moves")?,
        hit_overhead_ms: figures.number("hit_overhead_ms", time, "what a read takes that the buffer has")?,
        interface_mb_per_s: figures.number("interface_mb_per_s", 0.01..=1e6, "10^6 bytes a second to the host")?,
        buffer_kib: figures.integer("buffer_kib", 0..=1 << 22, "the drive's memory, 0 for none")?,
        buffer_segments: figures.integer("buffer_segments", 0..=1024, "streams that the memory is divided between")?,
        write_cache: figures.flag("write_cache", "true where the drive acknowledges writes in its memory")?,
    })
}

fn flash(figures: &mut Figures) -> Result<FlashProfile, ProfileError> {
    let us = 0.0..=1e6;
    let rate = 0.01..=1e6;
    Ok(FlashProfile {
        page_bytes: figures.integer("page_bytes", 512..=1 << 20, "what is read or programmed at a time")?,
        channels: figures.integer("channels", 1..=4096, "pages that are worked on side by side")?,
        depth: figures.integer("depth", 1..=65536, "requests that the drive takes on")?,
        overhead_us: figures.number("overhead_us", us.clone(), "what a command takes beside the medium")?,
        read_us: figures.number("read_us", us.clone(), "the time to read a page")?,
        program_us: figures.number("program_us", us, "the time to program a page")?,
        read_mb_per_s: figures.number("read_mb_per_s", rate.clone(), "10^6 bytes a second to the host")?,
        write_mb_per_s: figures.number("write_mb_per_s", rate, "10^6 bytes a second from the host")?,
        write_buffer_kib: figures.integer(
            "write_buffer_kib",
            0..=1 << 22,
            "memory in which writes are acknowledged",
        )?,
    })
}

fn volume(figures: &mut Figures) -> Result<VolumeProfile, ProfileError> {
    let us = 0.0..=1e7;
    Ok(VolumeProfile {
        depth: figures.integer("depth", 1..=65536, "requests on their way at a time")?,
        read_us: figures.number("read_us", us.clone(), "the least time of a read")?,
        write_us: figures.number("write_us", us.clone(), "the least time of a write")?,
        jitter_us: figures.number("jitter_us", us, "the mean of what comes on top")?,
        iops: figures.number("iops", 1.0..=1e9, "operations a second")?,
        io_kib: figures.integer("io_kib", 1..=1 << 20, "what counts as one operation at most")?,
        mb_per_s: figures.number("mb_per_s", 0.01..=1e6, "10^6 bytes a second")?,
        burst_ms: figures.number("burst_ms", 0.0..=1e7, "how much of both may be saved up")?,
    })
}

fn store(figures: &mut Figures) -> Result<StoreProfile, ProfileError> {
    let first = 0.0..=1e6;
    Ok(StoreProfile {
        connections: figures.integer("connections", 1..=65536, "requests on their way at a time")?,
        read_first_byte_ms: figures.number(
            "read_first_byte_ms",
            first.clone(),
            "the median until a read's first byte",
        )?,
        write_first_byte_ms: figures.number("write_first_byte_ms", first, "the median until a write begins")?,
        first_byte_p99_ratio: figures.number("first_byte_p99_ratio", 1.0..=1000.0, "99th percentile by median")?,
        connection_mb_per_s: figures.number("connection_mb_per_s", 0.01..=1e6, "10^6 bytes a second of a request")?,
        total_mb_per_s: figures.number("total_mb_per_s", 0.01..=1e6, "10^6 bytes a second of all requests")?,
    })
}

/// A table that is taken apart key by key, so that what is left is not known.
struct Figures {
    table: Table,
    known: Vec<&'static str>,
}

impl Figures {
    /// The value of `key`, if `read` can make something of it.
    fn take<T>(
        &mut self,
        key: &'static str,
        expected: String,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, ProfileError> {
        self.known.push(key);
        let Some(value) = self.table.remove(key) else { return Err(ProfileError::Missing { key, expected }) };
        read(&value).ok_or_else(|| ProfileError::Value { key, found: shown(&value), expected })
    }

    fn string(&mut self, key: &'static str, what: &str) -> Result<String, ProfileError> {
        self.take(key, what.to_owned(), |value| value.as_str().map(str::to_owned))
    }

    fn flag(&mut self, key: &'static str, what: &str) -> Result<bool, ProfileError> {
        self.take(key, format!("{what}, else false"), Value::as_bool)
    }

    fn number(&mut self, key: &'static str, range: RangeInclusive<f64>, what: &str) -> Result<f64, ProfileError> {
        let expected = format!("{what}, {} to {}", range.start(), range.end());
        self.take(key, expected, |value| {
            let number = value.as_float().or(value.as_integer().map(|whole| whole as f64))?;
            range.contains(&number).then_some(number)
        })
    }

    fn integer(&mut self, key: &'static str, range: RangeInclusive<u64>, what: &str) -> Result<u64, ProfileError> {
        let expected = format!("{what}, {} to {}", range.start(), range.end());
        self.take(key, expected, |value| {
            let number = u64::try_from(value.as_integer()?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    fn zones(&mut self, key: &'static str) -> Result<Vec<(u64, u64)>, ProfileError> {
        let expected = "[[cylinders, sectors of a track], ...], outermost first, 1 to 1000 zones".to_owned();
        self.take(key, expected, |value| {
            let zones = value.as_array().filter(|zones| (1..=1000).contains(&zones.len()))?;
            let count = |value: &Value| u64::try_from(value.as_integer()?).ok().filter(|n| (1..=1_000_000).contains(n));
            let zone = |value: &Value| match value.as_array()?.as_slice() {
                [cylinders, sectors] => Some((count(cylinders)?, count(sectors)?)),
                _ => None,
            };
            zones.iter().map(zone).collect()
        })
    }

    /// Everything was known.
    fn end(self) -> Result<(), ProfileError> {
        let Some(key) = self.table.keys().next().cloned() else { return Ok(()) };
        let nearest = nearest(&key, self.known.iter().copied());
        Err(ProfileError::Unknown { key, nearest })
    }
}

/// A value as an error shows it: one line, and short.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "another list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::String(text) => {
            let start: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
            format!("'{start}{}'", if start.len() < text.len() { "…" } else { "" })
        }
    }
}
