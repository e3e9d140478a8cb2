//! Profiles: the figures of a device, as a TOML file.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use nigh_text::{did_you_mean, nearest};
use toml::{Table, Value};

use crate::SECTOR_BYTES;
use crate::seek::SeekCurve;

/// The shipped profiles of devices that are in use today: name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("hdd-7200", include_str!("../profiles/hdd-7200.toml")),
    ("ssd-sata-qlc", include_str!("../profiles/ssd-sata-qlc.toml")),
    ("ssd-sata", include_str!("../profiles/ssd-sata.toml")),
    ("ssd-nvme", include_str!("../profiles/ssd-nvme.toml")),
    ("ssd-nvme-gen4", include_str!("../profiles/ssd-nvme-gen4.toml")),
    ("ssd-nvme-gen5", include_str!("../profiles/ssd-nvme-gen5.toml")),
    ("net-memory", include_str!("../profiles/net-memory.toml")),
    ("net-volume", include_str!("../profiles/net-volume.toml")),
    ("aws-gp3", include_str!("../profiles/aws-gp3.toml")),
    ("aws-io2", include_str!("../profiles/aws-io2.toml")),
    ("azure-p30", include_str!("../profiles/azure-p30.toml")),
    ("azure-premium-v2", include_str!("../profiles/azure-premium-v2.toml")),
    ("gcp-pd-balanced", include_str!("../profiles/gcp-pd-balanced.toml")),
    ("gcp-pd-ssd", include_str!("../profiles/gcp-pd-ssd.toml")),
    ("object-store", include_str!("../profiles/object-store.toml")),
];

/// The disks of the papers, of 1990 to 2000.
const OLD: &[(&str, &str)] = &[
    ("ultrastar-18zx", include_str!("../profiles/ultrastar-18zx.toml")),
    ("hdd-10k", include_str!("../profiles/hdd-10k.toml")),
    ("rz56", include_str!("../profiles/rz56.toml")),
    ("rz26", include_str!("../profiles/rz26.toml")),
    ("wd400bb", include_str!("../profiles/wd400bb.toml")),
];

/// A device that takes no time, for replays without a device. It is not among the listed names.
const INSTANT: (&str, &str) = ("instant", include_str!("../profiles/instant.toml"));

/// The kinds of devices.
const KINDS: &str = "'disk', 'flash', 'volume', 'store' or 'array'";

/// The limits of a device's size.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 60;

/// The most cylinders of a disk that is enlarged beyond its profile.
const CYLINDERS_MOST: u64 = 1 << 30;
/// The fewest cylinders that a profile may have in use.
pub(crate) const CYLINDERS_LEAST: u64 = 3;
/// The most cylinders in use of a profile that is read.
pub(crate) const CYLINDERS_READ: u64 = 10_000_000;

/// Why a text is not a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No shipped profile has this name.
    #[error("there is no profile '{name}': 'nigh devices' lists them{}", did_you_mean(*.nearest))]
    NoSuch {
        /// The name given.
        name: String,
        /// The shipped name that is written similarly.
        nearest: Option<&'static str>,
    },
    /// It is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// A figure is missing.
    #[error("'{key}' is missing: expected {expected}")]
    Missing {
        /// Its key.
        key: &'static str,
        /// Its meaning and limits.
        expected: String,
    },
    /// A figure has an invalid value.
    #[error("'{key}' is {found}: expected {expected}")]
    Value {
        /// Its key.
        key: &'static str,
        /// The value found.
        found: String,
        /// Its meaning and limits.
        expected: String,
    },
    /// This kind of device has no such figure.
    #[error("unknown figure '{key}' for this kind of device{}", did_you_mean(*.nearest))]
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

/// The model described by a profile. Figures are as in the file; their names end with their units.
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
    /// An array of equal devices.
    Array(ArrayProfile),
}

/// An array of equal devices (RAID).
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayProfile {
    /// How data is spread over the members.
    pub raid: Raid,
    /// Number of members.
    pub members: u64,
    /// The length of data that lies on one member before the next one follows. RAID 1 has no chunks.
    pub chunk_kib: u64,
    /// The profile of each member.
    pub member: Box<Profile>,
}

/// How an array spreads data over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raid {
    /// Chunks in turns, without redundancy.
    Striped,
    /// All of it on each member.
    Mirrored,
    /// Chunks in turns, and a chunk of parity in each row, on each member in turn.
    Parity,
}

impl Raid {
    /// The level's number and the fewest members.
    const LEVELS: [(&str, u64, Raid); 3] = [("0", 2, Raid::Striped), ("1", 2, Raid::Mirrored), ("5", 3, Raid::Parity)];
    /// The most members of an array.
    const MEMBERS_MOST: u64 = 64;
    /// The length of a chunk where none is given: the default of Linux (mdadm).
    const CHUNK_KIB: u64 = 512;

    /// The number of members that hold data rather than copies and parity.
    pub(crate) fn data_members(self, members: u64) -> u64 {
        match self {
            Raid::Striped => members,
            Raid::Mirrored => 1,
            Raid::Parity => members - 1,
        }
    }

    /// The usual number of this level: 0, 1 or 5.
    pub fn number(self) -> &'static str {
        Raid::LEVELS.iter().find(|level| level.2 == self).map_or("", |level| level.0)
    }
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
    /// Additional settle time of a write after a seek.
    pub seek_write_extra_ms: f64,
    /// Time of a switch between heads on the same cylinder.
    pub head_switch_ms: f64,
    /// Time of a command before the arm moves.
    pub overhead_ms: f64,
    /// Time of a read that the buffer answers.
    pub hit_overhead_ms: f64,
    /// Rate to the host, in 10^6 bytes a second.
    pub interface_mb_per_s: f64,
    /// The drive's memory.
    pub buffer_kib: u64,
    /// Number of streams that share it.
    pub buffer_segments: u64,
    /// Writes are acknowledged once they are in the buffer.
    pub write_cache: bool,
}

/// A flash drive.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashProfile {
    /// The unit of reading and programming.
    pub page_bytes: u64,
    /// Pages that are read or programmed in parallel.
    pub channels: u64,
    /// The most requests that the drive accepts at a time.
    pub depth: u64,
    /// Time of a command without that of the medium.
    pub overhead_us: f64,
    /// Time to read a page.
    pub read_us: f64,
    /// Time to program a page.
    pub program_us: f64,
    /// Rate to the host, in 10^6 bytes a second.
    pub read_mb_per_s: f64,
    /// Rate from the host.
    pub write_mb_per_s: f64,
    /// Memory in which writes are acknowledged; 0: they are acknowledged when they are programmed.
    pub write_buffer_kib: u64,
}

/// A network volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeProfile {
    /// Outstanding requests.
    pub depth: u64,
    /// Least time of a read.
    pub read_us: f64,
    /// Least time of a write, flush or trim.
    pub write_us: f64,
    /// Mean of the additional time, which is exponentially distributed.
    pub jitter_us: f64,
    /// Operations a second.
    pub iops: f64,
    /// The largest request that counts as one operation.
    pub io_kib: u64,
    /// Rate, in 10^6 bytes a second.
    pub mb_per_s: f64,
    /// The time for which unused operations and bytes accumulate.
    pub burst_ms: f64,
}

/// An object store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreProfile {
    /// Outstanding requests.
    pub connections: u64,
    /// Median time to the first byte of a read.
    pub read_first_byte_ms: f64,
    /// Median time until a write begins.
    pub write_first_byte_ms: f64,
    /// The 99th percentile divided by the median, of both.
    pub first_byte_p99_ratio: f64,
    /// Rate of one request, in 10^6 bytes a second.
    pub connection_mb_per_s: f64,
    /// Rate of all requests together.
    pub total_mb_per_s: f64,
}

impl Profile {
    /// The names of the shipped profiles: of today's devices, then the old ones.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Profile::names_of_today().chain(OLD.iter().map(|(name, _)| *name))
    }

    /// The names of the shipped profiles of devices that are in use today.
    pub fn names_of_today() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of a shipped profile, with the sources of its figures, or of an array of such devices:
    /// `raid5-4x-hdd-7200`.
    pub fn text(name: &str) -> Result<Cow<'static, str>, ProfileError> {
        if let Some((_, text)) = SHIPPED.iter().chain(OLD).chain([&INSTANT]).find(|(known, _)| *known == name) {
            return Ok(Cow::Borrowed(text));
        }
        if let Some(array) = array_named(name) {
            return array.map(Cow::Owned);
        }
        Err(ProfileError::NoSuch { name: name.to_owned(), nearest: nearest(name, Profile::names()) })
    }

    /// A shipped profile.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        Profile::parse(&Profile::text(name)?)
    }

    /// Parses a profile in TOML.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let table = text.parse::<Table>().map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            ProfileError::Syntax { line, message: error.message().to_owned() }
        })?;
        let mut figures = Figures { table, known: Vec::new() };
        let kind = figures.string("kind", KINDS)?;
        let title = figures.string("title", "the name of the device")?;
        let (bytes, model) = if kind == "array" {
            let array = array(&mut figures)?;
            (array_bytes(&array, &array.member)?, Model::Array(array))
        } else {
            let bytes = figures.integer("bytes", BYTES, "its size")?;
            let model = match kind.as_str() {
                "disk" => Model::Disk(disk(&mut figures, bytes)?),
                "flash" => Model::Flash(flash(&mut figures)?),
                "volume" => Model::Volume(volume(&mut figures)?),
                "store" => Model::Store(store(&mut figures)?),
                _ => {
                    let found = format!("'{kind}'");
                    return Err(ProfileError::Value { key: "kind", found, expected: KINDS.to_owned() });
                }
            };
            (bytes, model)
        };
        figures.end()?;
        Ok(Profile { title, bytes, model })
    }

    /// A larger device of the same kind, at least `bytes` long: a multiple of this one's size. Latencies and rates
    /// stay. A disk has that multiple of the cylinders, and a seek over the same share of them takes the same time.
    /// `None` if the result would exceed the largest size of a device.
    pub fn stretched(&self, bytes: u64) -> Option<Profile> {
        if let Model::Array(array) = &self.model {
            let member = Box::new(array.member.stretched(bytes.div_ceil(array.raid.data_members(array.members)))?);
            let bytes = array_bytes(array, &member).ok()?;
            return Some(Profile {
                title: self.title.clone(),
                bytes,
                model: Model::Array(ArrayProfile { member, ..array.clone() }),
            });
        }
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

    /// The title of the device.
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

/// The number of cylinders that hold the first `bytes` of a disk, if it has that many.
pub(crate) fn cylinders_of(bytes: u64, heads: u64, zones: &[(u64, u64)]) -> Option<u64> {
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
    let heads = figures.integer("heads", 1..=255, "the number of heads")?;
    let zones = figures.zones("zones")?;
    let Some(cylinders) = cylinders_of(bytes, heads, &zones) else {
        let expected = "at most the capacity of heads and zones".to_owned();
        return Err(ProfileError::Value { key: "bytes", found: bytes.to_string(), expected });
    };
    if !(CYLINDERS_LEAST..=CYLINDERS_READ).contains(&cylinders) {
        let found = format!("such that 'bytes' fits in {cylinders} cylinders");
        return Err(ProfileError::Value {
            key: "zones",
            found,
            expected: format!("{CYLINDERS_LEAST} to {CYLINDERS_READ} cylinders in use"),
        });
    }
    let time = 0.0..=1000.0;
    let next_ms = figures.number("seek_next_ms", 0.001..=1000.0, "the time to the next cylinder")?;
    let full_ms = figures.number("seek_full_ms", next_ms..=10_000.0, "the time across all cylinders")?;
    let average_ms = figures.number("seek_average_ms", next_ms..=full_ms, "the time between two random cylinders")?;
    let seek = SeekCurve::through(next_ms, average_ms, full_ms, cylinders as u32).map_err(|(least, most)| {
        let found = average_ms.to_string();
        let expected = format!(
            "{least:.3} to {most:.3}: between a linear curve and a square-root curve from seek_next_ms to seek_full_ms"
        );
        ProfileError::Value { key: "seek_average_ms", found, expected }
    })?;
    Ok(DiskProfile {
        rpm,
        heads,
        zones,
        seek,
        seek_write_extra_ms: figures.number(
            "seek_write_extra_ms",
            time.clone(),
            "the additional settle time of a write",
        )?,
        head_switch_ms: figures.number("head_switch_ms", time.clone(), "the time of a head switch")?,
        overhead_ms: figures.number("overhead_ms", time.clone(), "the time of a command before the arm moves")?,
        hit_overhead_ms: figures.number("hit_overhead_ms", time, "the time of a read that the buffer answers")?,
        interface_mb_per_s: figures.number(
            "interface_mb_per_s",
            0.01..=1e6,
            "the rate to the host in 10^6 bytes a second",
        )?,
        buffer_kib: figures.integer("buffer_kib", 0..=1 << 22, "the drive's memory, 0 if it has none")?,
        buffer_segments: figures.integer("buffer_segments", 0..=1024, "the number of streams that share the memory")?,
        write_cache: figures
            .flag("write_cache", "true if the drive acknowledges writes that are only in its memory")?,
    })
}

fn flash(figures: &mut Figures) -> Result<FlashProfile, ProfileError> {
    let us = 0.0..=1e6;
    let rate = 0.01..=1e6;
    Ok(FlashProfile {
        page_bytes: figures.integer("page_bytes", 512..=1 << 20, "the unit of reading and programming")?,
        channels: figures.integer("channels", 1..=4096, "the number of pages processed in parallel")?,
        depth: figures.integer("depth", 1..=65536, "the number of requests that the drive accepts at a time")?,
        overhead_us: figures.number("overhead_us", us.clone(), "the time of a command without that of the medium")?,
        read_us: figures.number("read_us", us.clone(), "the time to read a page")?,
        program_us: figures.number("program_us", us, "the time to program a page")?,
        read_mb_per_s: figures.number("read_mb_per_s", rate.clone(), "the rate to the host in 10^6 bytes a second")?,
        write_mb_per_s: figures.number("write_mb_per_s", rate, "the rate from the host in 10^6 bytes a second")?,
        write_buffer_kib: figures.integer(
            "write_buffer_kib",
            0..=1 << 22,
            "the memory in which writes are acknowledged",
        )?,
    })
}

fn volume(figures: &mut Figures) -> Result<VolumeProfile, ProfileError> {
    let us = 0.0..=1e7;
    Ok(VolumeProfile {
        depth: figures.integer("depth", 1..=65536, "the number of outstanding requests")?,
        read_us: figures.number("read_us", us.clone(), "the least time of a read")?,
        write_us: figures.number("write_us", us.clone(), "the least time of a write")?,
        jitter_us: figures.number("jitter_us", us, "the mean of the time beyond the least")?,
        iops: figures.number("iops", 1.0..=1e9, "operations a second")?,
        io_kib: figures.integer("io_kib", 1..=1 << 20, "the largest request that counts as one operation")?,
        mb_per_s: figures.number("mb_per_s", 0.01..=1e6, "10^6 bytes a second")?,
        burst_ms: figures.number("burst_ms", 0.0..=1e7, "the time for which unused operations and bytes accumulate")?,
    })
}

fn store(figures: &mut Figures) -> Result<StoreProfile, ProfileError> {
    let first = 0.0..=1e6;
    Ok(StoreProfile {
        connections: figures.integer("connections", 1..=65536, "the number of outstanding requests")?,
        read_first_byte_ms: figures.number(
            "read_first_byte_ms",
            first.clone(),
            "the median time to the first byte of a read",
        )?,
        write_first_byte_ms: figures.number("write_first_byte_ms", first, "the median time until a write begins")?,
        first_byte_p99_ratio: figures.number(
            "first_byte_p99_ratio",
            1.0..=1000.0,
            "the 99th percentile divided by the median",
        )?,
        connection_mb_per_s: figures.number(
            "connection_mb_per_s",
            0.01..=1e6,
            "the rate of one request in 10^6 bytes a second",
        )?,
        total_mb_per_s: figures.number(
            "total_mb_per_s",
            0.01..=1e6,
            "the rate of all requests in 10^6 bytes a second",
        )?,
    })
}

fn array(figures: &mut Figures) -> Result<ArrayProfile, ProfileError> {
    let number = figures.string("raid", "'0', '1' or '5'")?;
    let Some(&(_, least, raid)) = Raid::LEVELS.iter().find(|level| level.0 == number) else {
        let expected = "'0', '1' or '5'".to_owned();
        return Err(ProfileError::Value { key: "raid", found: format!("'{number}'"), expected });
    };
    let members = figures.integer("members", least..=Raid::MEMBERS_MOST, "the number of members")?;
    let chunk_kib = figures.integer("chunk_kib", 4..=1 << 20, "the length of a chunk")?;
    let name = figures.string("member", "the name of a device that comes with nigh")?;
    let member = Box::new(member_named(&name)?);
    Ok(ArrayProfile { raid, members, chunk_kib, member })
}

/// The profile of a member: a shipped one. Names of arrays within arrays are not followed, however long they are.
fn member_named(name: &str) -> Result<Profile, ProfileError> {
    if split_array(name).is_some() {
        let expected = "a device that is no array itself".to_owned();
        return Err(ProfileError::Value { key: "member", found: format!("'{name}'"), expected });
    }
    Profile::named(name)
}

/// Level, members, and the name of the members' profile in `raid5-4x-hdd-7200`.
fn split_array(name: &str) -> Option<(&str, u64, &str)> {
    let (number, rest) = name.strip_prefix("raid")?.split_once('-')?;
    let (members, member) = rest.split_once("x-")?;
    Some((number, members.parse().ok()?, member))
}

/// The size of an array whose members are as `member`: whole chunks of each.
fn array_bytes(array: &ArrayProfile, member: &Profile) -> Result<u64, ProfileError> {
    let chunk = array.chunk_kib * 1024;
    let each = if array.raid == Raid::Mirrored { member.bytes } else { member.bytes / chunk * chunk };
    let bytes = each.checked_mul(array.raid.data_members(array.members)).filter(|bytes| BYTES.contains(bytes));
    bytes.ok_or_else(|| {
        let expected = format!("an array of {} to {} bytes", BYTES.start(), BYTES.end());
        ProfileError::Value { key: "members", found: array.members.to_string(), expected }
    })
}

/// The profile named as `raid5-4x-hdd-7200`. `None` if the name has another form.
fn array_named(name: &str) -> Option<Result<String, ProfileError>> {
    let (number, members, member) = split_array(name)?;
    let title = match member_named(member) {
        Ok(profile) => profile.title,
        Err(error) => return Some(Err(error)),
    };
    let text = format!(
        "kind = \"array\"\ntitle = \"RAID {number} of {members}: {title}\"\nraid = \"{number}\"\nmembers = {members}\n\
         # The default of Linux (mdadm).\nchunk_kib = {}\nmember = \"{member}\"\n",
        Raid::CHUNK_KIB
    );
    Some(Profile::parse(&text).map(|_| text))
}

/// A table from which keys are taken one by one; the keys left at the end are unknown.
struct Figures {
    table: Table,
    known: Vec<&'static str>,
}

impl Figures {
    /// The value of `key`, if `read` accepts it.
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
        self.take(key, format!("{what}, otherwise false"), Value::as_bool)
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

    /// Checks that no unknown keys are left.
    fn end(self) -> Result<(), ProfileError> {
        let Some(key) = self.table.keys().next().cloned() else { return Ok(()) };
        let nearest = nearest(&key, self.known.iter().copied());
        Err(ProfileError::Unknown { key, nearest })
    }
}

/// The display of a value in an error: one short line.
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
