//! The target of an export, as a user writes it.
//!
//! ```text
//! TARGET = PATH | raw:PATH | unlocked:TARGET | nbd://HOST[:PORT]/EXPORT | nbd+unix:///EXPORT?socket=PATH | s3://BUCKET/PREFIX | memory:SIZE | delay:DELAY[,DELAY…]:TARGET | fault:KIND=K[,KIND=K…]:TARGET
//! DELAY  = TIME | RATE/s | jitter=TIME | seek=TIME..TIME | rotation=TIME | disk=PROFILE[,speed=N]
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nigh_device::{Profile, ProfileError};
use nigh_nbd::uri::UriError;
use nigh_text::nearest;

use crate::custom::Custom;
use crate::delay::{Delayed, Pace};
use crate::device::Device;
use crate::error::{OpenError, OpenErrorKind, TargetError};
use crate::fault::{FaultKind, Faulty, Planned};
use crate::file::FileDevice;
use crate::latency::{Latency, Paced};
use crate::magic::refuse_formats;
use crate::memory::Memory;
use crate::modelled::{Clocked, LoadError, Modelled};
use crate::objects::{FORM, ObjectTarget};
use crate::open::{OpenFile, Options};
use crate::remote::NbdExport;
use crate::units::{rate, show_size, show_time, size, time};
use crate::writelog::{WriteLogSettings, open as open_logged, refuse_without_log};

const KINDS: [&str; 5] = ["raw", "unlocked", "memory", "delay", "fault"];
/// Schemes of URIs of NBD servers, those that are not supported included.
const SCHEMES: [&str; 4] = ["nbd", "nbd+unix", "nbds", "nbds+unix"];
const DELAY_FORM: &str = "delay:5ms:TARGET, delay:5ms,100M/s:TARGET, delay:seek=0.5ms..12ms,rotation=3ms:TARGET or delay:disk=hdd-10k:TARGET";
const DELAY_OPTIONS: [&str; 5] = ["jitter", "seek", "rotation", "disk", "speed"];
const DELAY_TAKES: &str =
    "a time, a rate, jitter=TIME, seek=TIME..TIME and rotation=TIME, or disk=PROFILE and speed=FACTOR";
const FAULT_FORM: &str = "fault:KIND=K:TARGET, such as fault:read=3,flush=1:TARGET";
const FAULT_TAKES: &str = "read, write, flush, discard, zeroes, short-read, short-write and torn-write, each =K";

/// The most targets that one wraps: each is opened and asked by the one around it.
const WRAPPED_MAX: usize = 8;

/// The target of an export.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A regular file or block device with the bytes of a disk. An image of another format is refused.
    File(PathBuf),
    /// The same, served as it is whatever its bytes look like.
    Raw(PathBuf),
    /// Another target, whose file others may have open and change.
    Unlocked(Box<Target>),
    /// Memory of this many bytes, zeros at first.
    Memory(u64),
    /// An export of an NBD server.
    Nbd(NbdExport),
    /// A disk in an object store.
    Objects(ObjectTarget),
    /// A device of the program's own, which no text names.
    Custom(Custom),
    /// Another target, as slow as that.
    Delay(Latency, Box<Target>),
    /// Another target, as slow as a modelled device.
    Model(Modelled, Box<Target>),
    /// Another target, of which chosen operations go wrong.
    Fault(Vec<Planned>, Box<Target>),
}

impl Target {
    /// The target that it wraps.
    fn inner(&self) -> Option<&Target> {
        match self {
            Target::Unlocked(inner) | Target::Delay(_, inner) | Target::Model(_, inner) | Target::Fault(_, inner) => {
                Some(inner)
            }
            _ => None,
        }
    }

    /// Most file descriptors that it takes while it is open.
    pub fn descriptors(&self) -> usize {
        match self {
            // Twice the file, the ring, the threads' signal, and one while it is opened.
            Target::File(_) | Target::Raw(_) => 5,
            Target::Nbd(export) => export.descriptors(),
            Target::Objects(disk) => disk.descriptors(),
            Target::Custom(_) => 1,
            _ => self.inner().map_or(0, Target::descriptors),
        }
    }

    /// Opens it.
    pub fn open(&self, options: &Options) -> Result<Box<dyn Device>, OpenError> {
        Ok(match self {
            Target::File(path) => {
                refuse_formats(path)?;
                refuse_stale(path, options)?;
                Box::new(FileDevice::open(path, options)?)
            }
            Target::Raw(path) => {
                refuse_stale(path, options)?;
                Box::new(FileDevice::open(path, options)?)
            }
            Target::Unlocked(inner) => inner.open(&Options { unlocked: true, ..options.clone() })?,
            Target::Memory(size) => Box::new(Memory::new(*size)),
            Target::Nbd(export) => Box::new(export.open(options)?),
            Target::Objects(disk) => disk.open(options)?,
            Target::Custom(custom) => custom.open().map_err(|source| self.failed("open", source))?,
            Target::Delay(latency, inner) => {
                let inner = inner.open(options)?;
                let paced = Paced::new(latency.clone(), self.size(inner.as_ref())?);
                Box::new(Delayed::new(Pace::Latency(paced), inner))
            }
            Target::Model(modelled, inner) => {
                let profile = load(modelled)?;
                let device = inner.open(options)?;
                fits(modelled, &profile, inner, self.size(device.as_ref())?)?;
                Box::new(Delayed::new(Pace::Model(Box::new(Clocked::new(&profile, modelled.speed))), device))
            }
            Target::Fault(plan, inner) => Box::new(Faulty::new(plan.clone(), inner.open(options)?)),
        })
    }

    /// Opens it with a write log.
    pub fn open_logged(&self, log: &WriteLogSettings, options: &Options) -> Result<Box<dyn Device>, OpenError> {
        open_logged(self, log, options)
    }

    /// The error that opening it would have, as far as that is found without taking it from anybody: locks are not looked at, and
    /// nothing is written. Returns its size in bytes.
    pub fn check(&self, options: &Options) -> Result<u64, OpenError> {
        match self {
            Target::File(path) => {
                refuse_formats(path)?;
                refuse_stale(path, options)?;
                OpenFile::check(path, options.read_only)
            }
            Target::Raw(path) => {
                refuse_stale(path, options)?;
                OpenFile::check(path, options.read_only)
            }
            Target::Memory(size) => Ok(*size),
            Target::Nbd(export) => export.check(options),
            Target::Objects(disk) => disk.check(),
            Target::Custom(custom) => custom.size().map_err(|source| self.failed("get the size of", source)),
            Target::Unlocked(inner) | Target::Delay(_, inner) | Target::Fault(_, inner) => inner.check(options),
            Target::Model(modelled, inner) => {
                let profile = load(modelled)?;
                let size = inner.check(options)?;
                fits(modelled, &profile, inner, size)?;
                Ok(size)
            }
        }
    }

    /// The file or block device that its bytes are in; `None` if they are elsewhere.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Target::File(path) | Target::Raw(path) => Some(path),
            _ => self.inner()?.path(),
        }
    }

    /// Whether it is a disk in an object store.
    pub fn is_in_object_store(&self) -> bool {
        self.objects().is_some()
    }

    /// The error if another process has its file locked, by name: for programs that cannot inspect other processes when they
    /// open the target.
    pub fn check_locks(&self, read_only: bool) -> Result<(), OpenError> {
        match self {
            Target::File(path) | Target::Raw(path) => OpenFile::check_locks(path, read_only),
            Target::Unlocked(_) => Ok(()),
            _ => self.inner().map_or(Ok(()), |inner| inner.check_locks(read_only)),
        }
    }

    /// The profiles of devices that are read from files when it is opened.
    pub fn profiles(&self) -> Vec<&Path> {
        let own = match self {
            Target::Model(modelled, _) if modelled.is_file() => Some(Path::new(&modelled.profile)),
            _ => None,
        };
        own.into_iter().chain(self.inner().map(Target::profiles).unwrap_or_default()).collect()
    }

    /// The disk in an object store that it is, or wraps.
    pub fn objects(&self) -> Option<&ObjectTarget> {
        match self {
            Target::Objects(disk) => Some(disk),
            _ => self.inner()?.objects(),
        }
    }

    /// Bytes of the device that this target wraps.
    fn size(&self, inner: &dyn Device) -> Result<u64, OpenError> {
        inner.geometry().size().map_err(|source| self.failed("get the size of", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError { kind: OpenErrorKind::System, action, path: self.to_string().into(), source }
    }
}

/// The error if the file has a write log that is not opened with it.
fn refuse_stale(path: &Path, options: &Options) -> Result<(), OpenError> {
    if options.has_log { Ok(()) } else { refuse_without_log(path) }
}

fn load(modelled: &Modelled) -> Result<Profile, OpenError> {
    modelled.load().map_err(|error| {
        let (kind, source) = match error {
            LoadError::Read(source) if source.kind() == io::ErrorKind::NotFound => (OpenErrorKind::NotFound, source),
            LoadError::Read(source) => (OpenErrorKind::System, source),
            LoadError::Profile(error) => (OpenErrorKind::Unsuitable, io::Error::new(io::ErrorKind::InvalidData, error)),
        };
        OpenError { kind, action: "use the profile", path: (&modelled.profile).into(), source }
    })
}

/// The error if a target of `size` bytes is larger than the modelled device.
fn fits(modelled: &Modelled, profile: &Profile, inner: &Target, size: u64) -> Result<(), OpenError> {
    let most = profile.bytes();
    if size <= most {
        return Ok(());
    }
    let text = format!("it has {size} bytes, and the device of '{}' {most}", modelled.profile);
    let source = io::Error::new(io::ErrorKind::FileTooLarge, text);
    Err(OpenError { kind: OpenErrorKind::Unsuitable, action: "delay", path: inner.to_string().into(), source })
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        Target::parse(text, WRAPPED_MAX)
    }
}

impl Target {
    /// One that wraps `wrapped` others at most.
    fn parse(text: &str, wrapped: usize) -> Result<Target, TargetError> {
        let parse_inner = |text: &str| {
            let left = wrapped.checked_sub(1).ok_or(TargetError::Nested { most: WRAPPED_MAX })?;
            Ok::<_, TargetError>(Box::new(Target::parse(text, left)?))
        };
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme)) {
            return Ok(Target::Nbd(NbdExport::parse(text)?));
        }
        if let Some(disk) = ObjectTarget::parse(text) {
            return Ok(Target::Objects(disk?));
        }
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| is_word(kind)) else {
            return Ok(Target::File(text.into()));
        };
        let split_inner = |kind, form| {
            let split = rest.split_once(':').filter(|(_, inner)| !inner.is_empty());
            split.ok_or(TargetError::Form { kind, form })
        };
        match kind {
            "s3" | "gs" | "az" => Err(TargetError::Form { kind: "s3", form: FORM }),
            "nbd" => Err(TargetError::Uri { text: text.to_owned(), error: UriError::Form }),
            "raw" if rest.is_empty() => Err(TargetError::Form { kind: "raw", form: "raw:PATH" }),
            "raw" => Ok(Target::Raw(rest.into())),
            "unlocked" if rest.is_empty() => Err(TargetError::Form { kind: "unlocked", form: "unlocked:PATH" }),
            "unlocked" => Ok(Target::Unlocked(parse_inner(rest)?)),
            "memory" => Ok(Target::Memory(size(rest)?)),
            "delay" => {
                let (options, inner) = split_inner("delay", DELAY_FORM)?;
                let inner = parse_inner(inner)?;
                match options.split(',').any(|option| option.starts_with("disk=")) {
                    true => Ok(Target::Model(modelled(options)?, inner)),
                    false => Ok(Target::Delay(latency(options)?, inner)),
                }
            }
            "fault" => {
                let (options, inner) = split_inner("fault", FAULT_FORM)?;
                let plan = options.split(',').map(planned).collect::<Result<_, _>>()?;
                Ok(Target::Fault(plan, parse_inner(inner)?))
            }
            _ => Err(TargetError::Kind { word: kind.to_owned(), nearest: nearest(kind, KINDS) }),
        }
    }
}

fn latency(options: &str) -> Result<Latency, TargetError> {
    let mut latency = Latency::default();
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("jitter", value)) => latency.jitter = time(value)?,
            Some(("rotation", value)) => latency.rotation = time(value)?,
            Some(("seek", value)) => {
                let what = "two times, such as `0.5ms..12ms`";
                let wrong = || TargetError::Value { text: value.to_owned(), what };
                let (least, most) = value.split_once("..").ok_or_else(wrong)?;
                let (least, most) = (time(least)?, time(most)?);
                if least > most {
                    return Err(wrong());
                }
                latency.seek = Some((least, most));
            }
            Some(("speed", _)) => {
                let what = "an option without disk=PROFILE";
                return Err(TargetError::Value { text: option.to_owned(), what });
            }
            Some((word, _)) => {
                let nearest = nearest(word, DELAY_OPTIONS);
                return Err(TargetError::Option { kind: "delay", word: word.to_owned(), nearest, takes: DELAY_TAKES });
            }
            None if option.contains('/') => latency.rate = Some(rate(option)?),
            None => latency.fixed = time(option)?,
        }
    }
    Ok(latency)
}

fn modelled(options: &str) -> Result<Modelled, TargetError> {
    let mut modelled = Modelled { profile: String::new(), speed: 1.0 };
    let wrong = |text: &str, what| TargetError::Value { text: text.to_owned(), what };
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("disk", profile)) => modelled.profile = profile.to_owned(),
            Some(("speed", speed)) => {
                let factor = speed.parse().ok().filter(|speed| (0.001..=1000.0).contains(speed));
                modelled.speed = factor.ok_or_else(|| wrong(speed, "a factor from 0.001 to 1000, such as speed=10"))?;
            }
            _ => return Err(wrong(option, "an option beside disk=PROFILE, which takes only speed=FACTOR")),
        }
    }
    if !modelled.is_file() {
        Profile::text(&modelled.profile).map_err(|error| match error {
            ProfileError::NoSuch { name, nearest } => TargetError::Profile { name, nearest },
            _ => wrong(&modelled.profile, "an array of 2 or 3 to 64 devices, such as raid5-4x-hdd-7200"),
        })?;
    }
    Ok(modelled)
}

fn planned(option: &str) -> Result<Planned, TargetError> {
    let (word, count) = option.split_once('=').ok_or(TargetError::Form { kind: "fault", form: FAULT_FORM })?;
    let Some((_, kind)) = FaultKind::ALL.into_iter().find(|(name, _)| *name == word) else {
        let nearest = nearest(word, FaultKind::ALL.map(|(name, _)| name));
        return Err(TargetError::Option { kind: "fault", word: word.to_owned(), nearest, takes: FAULT_TAKES });
    };
    let at = count.parse().ok().filter(|&at| at > 0);
    let at = at.ok_or_else(|| TargetError::Value { text: count.to_owned(), what: "a count from 1" })?;
    Ok(Planned { kind, at })
}

/// As it is parsed.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File(path) => match path.display().to_string() {
                path if matches!(path.parse(), Ok(Target::File(_))) => f.write_str(&path),
                path => write!(f, "./{path}"),
            },
            Target::Raw(path) => write!(f, "raw:{}", path.display()),
            Target::Unlocked(inner) => write!(f, "unlocked:{inner}"),
            Target::Memory(size) => write!(f, "memory:{}", show_size(*size)),
            Target::Custom(custom) => write!(f, "custom:{}", custom.name()),
            Target::Nbd(export) => export.fmt(f),
            Target::Objects(disk) => disk.fmt(f),
            Target::Delay(latency, inner) => {
                let Latency { fixed, jitter, seek, rotation, rate } = latency;
                let mut parts = Vec::new();
                parts.extend((*fixed > Duration::ZERO || *latency == Latency::default()).then(|| show_time(*fixed)));
                parts.extend((*jitter > Duration::ZERO).then(|| format!("jitter={}", show_time(*jitter))));
                parts.extend(seek.map(|(least, most)| format!("seek={}..{}", show_time(least), show_time(most))));
                parts.extend((*rotation > Duration::ZERO).then(|| format!("rotation={}", show_time(*rotation))));
                parts.extend(rate.map(|rate| format!("{}/s", show_size(rate))));
                write!(f, "delay:{}:{inner}", parts.join(","))
            }
            Target::Model(Modelled { profile, speed }, inner) => {
                let speed = if *speed == 1.0 { String::new() } else { format!(",speed={speed}") };
                write!(f, "delay:disk={profile}{speed}:{inner}")
            }
            Target::Fault(plan, inner) => {
                let name = |fault: &Planned| FaultKind::ALL.into_iter().find(|(_, kind)| *kind == fault.kind);
                let parts: Vec<String> = plan
                    .iter()
                    .map(|fault| format!("{}={}", name(fault).expect("every kind has a name").0, fault.at))
                    .collect();
                write!(f, "fault:{}:{inner}", parts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        text.parse::<Target>().expect_err(text).to_string()
    }

    #[test]
    fn nested_3_targets_wrap_eight_others_at_most() {
        for wrapper in ["delay:1ms:", "fault:read=3:", "unlocked:"] {
            assert!((wrapper.repeat(WRAPPED_MAX) + "disk.img").parse::<Target>().is_ok());
            for times in [WRAPPED_MAX + 1, 2000, 200_000] {
                assert_eq!(wrong(&(wrapper.repeat(times) + "disk.img")), "a target wraps 8 others at most");
            }
        }
    }

    #[test]
    fn targets_are_shown_as_they_are_parsed() {
        for text in [
            "disk.img",
            "/srv/vm/a:b.img",
            "./memory:1G",
            "unlocked:a.img",
            "delay:5ms:unlocked:raw:a.img",
            "raw:disk.qcow2",
            "memory:1G",
            "delay:5ms:memory:64M",
            "delay:5ms,jitter=1ms,100M/s:/dev/sdb",
            "delay:seek=500us..12ms,rotation=3ms,100M/s:fault:read=3,torn-write=1:disk.img",
            "fault:flush=2:delay:0us:./x",
            "delay:disk=hdd-10k:disk.img",
            "nbd://example.com/disk",
            "delay:5ms:nbd://[::1]:1000/a%20b?x-connections=1",
            "nbd+unix:///?socket=/run/qemu.sock&x-reconnect=5s",
            "s3://bucket/disks/vm-1",
            "gs://bucket/a?timeout=5s",
            "delay:5ms:az://container/a?timeout=90s&staging=64M",
            "delay:disk=./slow.toml,speed=2.5:delay:disk=rz56:memory:1G",
        ] {
            let target: Target = text.parse().expect(text);
            assert_eq!(target.to_string(), text);
        }
        assert_eq!(
            "delay:seek=0.5ms..12ms:a".parse(),
            Ok(Target::Delay(
                Latency { seek: Some((Duration::from_micros(500), Duration::from_millis(12))), ..Latency::default() },
                Box::new(Target::File("a".into()))
            ))
        );
    }

    #[test]
    fn slips_are_explained() {
        assert_eq!(wrong(""), "a target is missing");
        assert_eq!(
            wrong("memroy:1G"),
            "`memroy` is no kind of target; a file of that name is written `./memroy:…`. Did you mean 'memory'?"
        );
        assert_eq!(wrong("rbd:x"), "`rbd` is no kind of target; a file of that name is written `./rbd:…`");
        assert!(wrong("nbd:localhost:10809").contains("is written `nbd://HOST[:PORT]/EXPORT`"));
        assert!(wrong("nbds://localhost/").contains("TLS to an NBD server is not supported"));
        assert!(wrong("nbd://a/?x-reconnect=0s").starts_with("`0s` is not a time from 1s to 3600s"));
        assert!(wrong("nbd://a/?x-connections=17").starts_with("`17` is not a number of connections"));
        assert!(wrong("nbd://a/?x-retry=1").starts_with("`nbd:` has no option `x-retry`"));
        let form =
            "`s3:` lacks a part: it is written `s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX`";
        assert_eq!(wrong("s3:bucket/disk"), form);
        assert_eq!(wrong("s3://bucket"), form);
        assert_eq!(wrong("s3://bucket/"), form);
        assert_eq!(wrong("gs:///disk"), form.replace("`s3:`", "`gs:`"));
        assert_eq!(wrong("s3://buc ket/a"), "`buc ket` is not the name of a bucket or a container");
        assert!(wrong("s3://bucket/a/../b").starts_with("`a/../b` is not a prefix of names"));
        assert!(wrong("s3://bucket/a//b").starts_with("`a//b` is not a prefix of names"));
        assert!(
            wrong("s3://bucket/a?timout=5s")
                .ends_with("it takes timeout=TIME and staging=SIZE. Did you mean 'timeout'?")
        );
        assert!(wrong("s3://bucket/a?timeout=10ms").starts_with("`10ms` is not a time from 1s to 3600s"));
        assert!(wrong("s3://bucket/a?staging=1M").starts_with("`1M` is not a size from 16M to 64G"));
        assert_eq!(wrong("memory:big"), "`big` is not a size, such as `1G` or `512M`");
        assert_eq!(wrong("delay:5ms"), format!("`delay:` lacks a part: it is written `{DELAY_FORM}`"));
        assert_eq!(wrong("unlocked:"), "`unlocked:` lacks a part: it is written `unlocked:PATH`");
        assert_eq!(wrong("raw:"), "`raw:` lacks a part: it is written `raw:PATH`");
        assert_eq!(wrong("delay:5:x"), "`5` is not a time, such as `5ms` or `80us`");
        assert_eq!(wrong("delay:100M/m:x"), "`100M/m` is not a rate, such as `100M/s`");
        assert_eq!(wrong("delay:seek=5ms..1ms:x"), "`5ms..1ms` is not two times, such as `0.5ms..12ms`");
        assert!(wrong("delay:rotate=3ms:x").ends_with(". Did you mean 'rotation'?"));
        assert!(wrong("fault:torn=1:x").starts_with("`fault:` has no option `torn`; it takes read, write,"));
        assert!(wrong("fault:raed=1:x").contains("Did you mean 'read'?"));
        assert_eq!(wrong("fault:read=0:x"), "`0` is not a count from 1");
        assert!(wrong("fault:read:x").contains("fault:read=3,flush=1:TARGET"));
        assert_eq!(
            wrong("delay:disk=hdd-10:x"),
            "there is no profile `hdd-10`; `nigh devices` lists them, and a file's path has a `/` or ends with `.toml`. Did \
             you mean 'hdd-10k'?"
        );
        assert!(wrong("delay:disk=rz56,speed=0:x").starts_with("`0` is not a factor from 0.001 to 1000"));
        assert!(wrong("delay:disk=rz56,5ms:x").starts_with("`5ms` is not an option beside disk=PROFILE"));
        assert_eq!(wrong("delay:5ms,speed=2:x"), "`speed=2` is not an option without disk=PROFILE");
        assert!(wrong("delay:1ms:memroy:1G").starts_with("`memroy` is no kind"));
    }
}
