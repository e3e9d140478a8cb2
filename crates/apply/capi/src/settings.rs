//! Settings as TOML, with keys of the configuration file of `nigh serve`.
//!
//! The file of the server has a parser of its own (`crates/cli/src/serve/file.rs`), whose keys are flags, too: sockets, certificates, the sandbox. A test here compares the
//! keys of both and their defaults.

use std::time::Duration;

use ::nigh_host::{Allocation, DiskSettings, ReadAheadSpec, Settings, Spec, Target, WriteMode};
use serde::Deserialize;

use crate::error::Error;

const MEMORY: &str = "512M";
const POLICY: &str = "lirs";
/// The policy of tenants.
const TENANT_POLICY: &str = "lru";
/// How much larger than at the start the cache can become, by default.
const GROWTH: u64 = 2;
/// The least memory of a cache, and the least of a floor, ceiling or bandwidth.
const BYTES_LEAST: u64 = 4096;
/// The blocks that curves can sample of a cache, except none.
const CURVES: std::ops::RangeInclusive<u32> = 64..=1 << 16;
/// The longest `fail-after`.
const PATIENCE_MOST: f64 = 3600.0;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    memory: Option<String>,
    memory_max: Option<String>,
    policy: Option<String>,
    allocate: Option<Allocation>,
    write_mode: Option<Mode>,
    readahead: Option<String>,
    scheduler: Option<String>,
    depth: Option<u32>,
    fail_after: Option<String>,
    verify: Option<bool>,
    curves: Option<u32>,
    shards: Option<usize>,
    disk: Vec<Disk>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Disk {
    name: String,
    target: String,
    #[serde(default)]
    next: Vec<String>,
    read_only: Option<bool>,
    write_mode: Option<Mode>,
    iops: Option<u64>,
    bandwidth: Option<String>,
    tenant: Option<String>,
    floor: Option<String>,
    ceiling: Option<String>,
    policy: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Back,
    Through,
}

/// The error of the value of `key`.
fn wrong(key: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(libc::EINVAL, format!("{key}: {reason}"))
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(key: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| wrong(key, error))
}

fn bytes(key: &str, text: &str) -> Result<u64, Error> {
    match nigh_text::bytes(text) {
        Some(bytes) if (BYTES_LEAST..1 << 60).contains(&bytes) => Ok(bytes),
        _ => Err(wrong(key, format_args!("'{text}' is no amount of memory: expected at least 4K, such as 512M or 2G"))),
    }
}

/// Parses a table.
fn table<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| Error::new(libc::EINVAL, error.to_string()))
}

/// The settings of a host.
pub(crate) fn host(text: &str) -> Result<Settings, Error> {
    let file: File = table(text)?;
    let memory = bytes("memory", file.memory.as_deref().unwrap_or(MEMORY))?;
    let usual = if file.allocate.is_some() { TENANT_POLICY } else { POLICY };
    let policy: Spec = parse("policy", file.policy.as_deref().unwrap_or(usual))?;
    if file.allocate.is_some() && policy.is_unified() {
        return Err(wrong("policy", format_args!("{policy} decides for memory and levels, not for tenants")));
    }
    let disks = file.disk.into_iter().map(|disk| disk.read(file.write_mode)).collect::<Result<_, _>>()?;
    let mut settings = Settings::new(memory, policy, disks);
    settings.memory_max = match &file.memory_max {
        Some(most) => bytes("memory-max", most)?,
        None => memory.saturating_mul(GROWTH),
    };
    if settings.memory_max < memory {
        return Err(wrong("memory-max", "it is less than memory"));
    }
    settings.allocate = file.allocate;
    settings.readahead = match &file.readahead {
        Some(text) => ReadAheadSpec::served(text).map_err(|error| wrong("readahead", error))?,
        None => ReadAheadSpec::SERVED,
    };
    if let Some(text) = &file.scheduler {
        settings.scheduler = parse("scheduler", text)?;
    }
    settings.depth = file.depth.unwrap_or(Settings::DEPTH);
    if settings.depth == 0 {
        return Err(wrong("depth", "expected at least 1"));
    }
    if let Some(text) = &file.fail_after {
        let seconds = nigh_text::seconds(text).filter(|seconds| (0.0..=PATIENCE_MOST).contains(seconds));
        let seconds = seconds.ok_or_else(|| wrong("fail-after", "expected a time from 0s to 1h, such as 5s"))?;
        settings.patience = Duration::from_secs_f64(seconds);
    }
    settings.verify = file.verify.unwrap_or(true);
    settings.curves = file.curves;
    if file.curves.is_some_and(|blocks| blocks > 0 && !CURVES.contains(&blocks)) {
        return Err(wrong("curves", format_args!("expected 0, or {} to {}", CURVES.start(), CURVES.end())));
    }
    settings.shards = file.shards;
    if file.shards == Some(0) {
        return Err(wrong("shards", "expected at least 1"));
    }
    if file.shards.is_some() && file.allocate.is_some() {
        return Err(wrong("shards", "with allocate, the cache is one shard"));
    }
    Ok(settings)
}

/// The settings of a disk.
pub(crate) fn disk(text: &str) -> Result<DiskSettings, Error> {
    table::<Disk>(text)?.read(None)
}

impl Disk {
    fn read(self, mode: Option<Mode>) -> Result<DiskSettings, Error> {
        let key = |key: &str| format!("disk {}: {key}", self.name);
        let limit = |name: &str, text: &Option<String>| text.as_ref().map_or(Ok(0), |text| bytes(&key(name), text));
        if self.name.is_empty() {
            return Err(wrong("name", "a disk needs a name"));
        }
        let target: Target = parse(&key("target"), &self.target)?;
        let next = self.next.iter().map(|target| parse(&key("next"), target)).collect::<Result<_, _>>()?;
        let policy = self.policy.as_deref().filter(|policy| *policy != "none");
        let policy = policy.map(|policy| parse::<Spec>(&key("policy"), policy)).transpose()?;
        let mut settings = DiskSettings::new(self.name.clone(), target);
        settings.next = next;
        settings.read_only = self.read_only.unwrap_or(false);
        settings.write_mode = match self.write_mode.or(mode) {
            Some(Mode::Through) => WriteMode::Through,
            Some(Mode::Back) | None => WriteMode::Back,
        };
        settings.iops = self.iops.unwrap_or(0);
        settings.bandwidth = limit("bandwidth", &self.bandwidth)?;
        settings.floor = limit("floor", &self.floor)?;
        settings.ceiling = limit("ceiling", &self.ceiling)?;
        settings.policy = policy;
        settings.tenant = self.tenant;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys, with values other than the defaults.
    const ALL: &str = r#"
        memory = "8M"
        memory-max = "9M"
        policy = "arc"
        allocate = "static"
        write-mode = "through"
        readahead = "none"
        scheduler = "elevator"
        depth = 4
        fail-after = "1s"
        verify = false
        curves = 64
        [[disk]]
        name = "a"
        target = "memory:1M"
        next = ["memory:2M"]
        read-only = true
        write-mode = "back"
        iops = 5
        bandwidth = "1M"
        tenant = "t"
        floor = "4K"
        ceiling = "1M"
        policy = "lirs"
    "#;

    /// Each by the name that reports show.
    #[test]
    fn memory_is_allocated_as_asked() {
        for name in ["lru-sp", "global", "static", "utility"] {
            let settings = host(&format!("allocate = '{name}'")).unwrap();
            assert_eq!(settings.allocate.unwrap().to_string(), name);
        }
        assert!(host("allocate = 'dynamic'").is_err());
    }

    #[test]
    fn every_key_has_its_effect() {
        let read = host(ALL).unwrap();
        assert_eq!((read.memory, read.memory_max, read.depth), (8 << 20, 9 << 20, 4));
        assert_eq!((read.policy.to_string(), read.readahead.to_string()), ("arc".to_owned(), "none".to_owned()));
        assert_eq!((read.allocate, read.scheduler.to_string()), (Some(Allocation::Static), "elevator".to_owned()));
        assert_eq!((read.patience, read.verify, read.curves), (Duration::from_secs(1), false, Some(64)));
        let disk = &read.disks[0];
        assert_eq!((disk.name.as_str(), disk.next.len(), disk.read_only), ("a", 1, true));
        assert_eq!((disk.write_mode, disk.iops, disk.bandwidth), (WriteMode::Back, 5, 1 << 20));
        assert_eq!((disk.tenant(), disk.floor, disk.ceiling), ("t", 4096, 1 << 20));
        assert_eq!(disk.policy.as_ref().map(ToString::to_string), Some("lirs".to_owned()));
        assert_eq!(
            host("write-mode = 'through'\n[[disk]]\nname = 'b'\ntarget = 'memory:1M'").unwrap().disks[0].write_mode,
            WriteMode::Through
        );
        assert_eq!(host("shards = 3").unwrap().shards, Some(3));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("memory = ", "1"),
            ("listen = ['tcp:0.0.0.0:1']", "listen"),
            ("memory = '1K'", "memory"),
            ("memory-max = '1M'", "memory-max"),
            ("policy = 'no-such'", "policy"),
            ("allocate = 'global'\npolicy = 'ulc'", "policy"),
            ("depth = 0", "depth"),
            ("curves = 1", "curves"),
            ("shards = 0", "shards"),
            ("shards = 2\nallocate = 'lru-sp'", "shards"),
            ("fail-after = '2h'", "fail-after"),
            ("readahead = 'auto:into=policy'", "readahead"),
            ("scheduler = 'no-such'", "scheduler"),
            ("[[disk]]\nname = 'a'", "target"),
            ("[[disk]]\nname = ''\ntarget = 'x'", "name"),
            ("[[disk]]\nname = 'a'\ntarget = 'memory:1M'\nfloor = 'x'", "disk a: floor"),
            ("[[disk]]\nname = 'a'\ntarget = 'memory:'", "disk a: target"),
        ] {
            let error = host(text).expect_err(text);
            assert_eq!(error.code, libc::EINVAL, "{text}");
            assert!(format!("{error:?}").contains(expected), "{text}: {error:?}");
        }
        assert!(disk("name = 'a'\ntarget = 'memory:1M'").is_ok());
        assert!(disk("[[disk]]\nname = 'a'\ntarget = 'memory:1M'").is_err());
    }

    /// A key means here what it means to the server, whose documentation has them all.
    #[test]
    fn the_keys_are_those_of_the_server() {
        let page = include_str!("../../../../docs/config.md");
        let (cache, exports) = page.split_once("## `[[export]]`").unwrap();
        let row = |part: &str, key: &str| {
            let row = part.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
            row.unwrap_or_else(|| panic!("docs/config.md has no {key}")).to_owned()
        };
        let all: toml::Table = ALL.parse().unwrap();
        for key in all.keys().map(String::as_str).filter(|key| *key != "disk").chain(["shards"]) {
            row(cache, key);
        }
        for key in all["disk"][0].as_table().unwrap().keys() {
            row(exports, key);
        }
        let defaults = host("").unwrap();
        let allocated = host("allocate = 'lru-sp'").unwrap();
        let default = |key: &str| row(cache, key).rsplit('|').nth(1).unwrap().trim().to_owned();
        assert_eq!(default("memory"), format!("{}M", defaults.memory >> 20));
        assert_eq!((default("memory-max").as_str(), defaults.memory_max), ("twice `memory`", 2 * defaults.memory));
        assert_eq!(default("policy"), format!("{}; {} with `allocate`", defaults.policy, allocated.policy));
        assert_eq!(default("readahead"), defaults.readahead.to_string());
        assert_eq!(default("scheduler"), defaults.scheduler.to_string());
        assert_eq!(default("depth"), defaults.depth.to_string());
        assert_eq!(default("fail-after"), format!("{}s", defaults.patience.as_secs()));
        assert_eq!(default("verify"), defaults.verify.to_string());
    }
}
