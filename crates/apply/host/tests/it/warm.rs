//! Blocks that were in memory are loaded again after a start: after an orderly end, and from the list that a killed host left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nigh_host::{Allocation, BLOCK, DiskSettings, Host, Settings, StartError, WarmSettings};

const DISK: u64 = 8 << 20;
const MEMORY: u64 = 2 << 20;
/// Blocks that a run reads: neighbours, and some alone.
const READ: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["one", "two"] {
            let file = std::fs::File::create(place.path(name)).unwrap();
            file.set_len(DISK).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn disk(&self, name: &str, before: &str) -> DiskSettings {
        let target = format!("{before}raw:{}", self.path(name).display());
        DiskSettings::new(name, target.parse().unwrap())
    }

    fn settings(&self, policy: &str, disks: &[(&str, &str)]) -> Settings {
        let disks = disks.iter().map(|(name, before)| self.disk(name, before)).collect();
        let mut settings = Settings::new(MEMORY, policy.parse().unwrap(), disks);
        settings.warm = Some(WarmSettings { every: Duration::from_millis(20), ..WarmSettings::new(self.path("list")) });
        settings
    }
}

/// The blocks of a disk that were read.
fn blocks() -> impl Iterator<Item = u64> {
    (0..READ / 2).chain((0..READ / 2).map(|at| 1000 + 3 * at))
}

fn read(host: &Host, name: &str) {
    let session = host.open(name).unwrap();
    for block in blocks() {
        session.read(block * BLOCK, &mut [0; BLOCK as usize]).unwrap();
    }
}

/// How many of these blocks are answered from memory.
fn hits(host: &Host, name: &str) -> u64 {
    let of = || host.disk_statistics(&host.disk(name).unwrap()).hits;
    let before = of();
    read(host, name);
    of() - before
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The blocks in memory, without those that are being loaded.
fn resident(host: &Host) -> u64 {
    let statistics = host.host_statistics();
    statistics.resident_bytes / BLOCK - statistics.loading
}

/// A host that reads these disks and ends in order.
fn read_once(settings: Settings, disks: &[&str]) {
    let host = Host::start(settings).unwrap();
    disks.iter().for_each(|disk| read(&host, disk));
    host.shut_down().map_err(drop).unwrap();
}

/// A host with these settings has what was read of these disks, without a read of a client.
fn is_warm(settings: Settings, disks: &[&str]) {
    let policy = settings.policy.clone();
    let host = Host::start(settings).unwrap();
    let all = disks.len() as u64 * READ;
    until("all is loaded", || resident(&host) == all);
    assert_eq!(disks.iter().map(|disk| hits(&host, disk)).sum::<u64>(), all, "{policy}");
}

#[test]
fn warm_5_an_orderly_end_keeps_what_is_in_memory() {
    for policy in ["lru", "lirs", "clock-pro", "arc"] {
        let place = Place::new();
        let settings = || place.settings(policy, &[("one", ""), ("two", "")]);
        read_once(settings(), &["one", "two"]);
        is_warm(settings(), &["one", "two"]);
    }
}

#[test]
fn warm_5_a_killed_host_leaves_a_list() {
    let place = Place::new();
    let settings = || place.settings("lirs", &[("one", "")]);
    let host = Host::start(settings()).unwrap();
    read(&host, "one");
    // A run for the neighbours, and one for each of the others.
    let lines = 1 + 1 + 1 + READ / 2 + 1;
    let list = || std::fs::read_to_string(place.path("list")).unwrap_or_default();
    until("the list is kept", || list().lines().count() as u64 == lines);
    let left = list();
    host.shut_down().map_err(drop).unwrap();
    std::fs::write(place.path("list"), left).unwrap();
    is_warm(settings(), &["one"]);
}

#[test]
fn warm_5_tenants_are_warm_too() {
    let place = Place::new();
    let settings = || {
        let mut settings = place.settings("lru", &[("one", ""), ("two", "")]);
        settings.allocate = Some(Allocation::LruSp);
        settings
    };
    read_once(settings(), &["one"]);
    is_warm(settings(), &["one"]);
}

/// Loading replaces nothing: with less memory, the rest is left out.
#[test]
fn warm_5_only_free_memory_is_used() {
    let place = Place::new();
    read_once(place.settings("lru", &[("one", "")]), &["one"]);
    let mut settings = place.settings("lru", &[("one", "")]);
    settings.memory = 100 * BLOCK;
    settings.shards = Some(1);
    let host = Host::start(settings).unwrap();
    until("memory is full", || resident(&host) == 100);
    let statistics = host.disk_statistics(&host.disk("one").unwrap());
    assert_eq!(statistics.prefetch_issued, 100);
}

/// A disk that does not respond delays no other one, and what it had stays in the list.
#[test]
fn warm_5_a_slow_disk_delays_no_other() {
    let place = Place::new();
    read_once(place.settings("lru", &[("one", ""), ("two", "")]), &["one", "two"]);
    let host = Host::start(place.settings("lru", &[("one", "delay:500ms:"), ("two", "")])).unwrap();
    let loaded = |name| host.disk_statistics(&host.disk(name).unwrap()).prefetch_issued;
    until("the other one is loaded", || loaded("two") == READ);
    assert!(loaded("one") < READ, "it would take seconds");
    let list = || std::fs::read_to_string(place.path("list")).unwrap();
    assert!(list().contains(" one\n") && list().contains(" two\n"), "{}", list());
    host.shut_down().map_err(drop).unwrap();
    is_warm(place.settings("lru", &[("one", ""), ("two", "")]), &["one", "two"]);
}

#[test]
fn warm_5_another_disk_or_file_is_not_taken_for_it() {
    let place = Place::new();
    read_once(place.settings("lru", &[("one", "")]), &["one"]);
    // Of another size.
    std::fs::File::options().write(true).open(place.path("one")).unwrap().set_len(DISK / 2).unwrap();
    let host = Host::start(place.settings("lru", &[("one", "")])).unwrap();
    host.open("one").unwrap().read(5 * BLOCK, &mut [0; 1]).unwrap();
    let list = format!("nigh warm 1\ndisk {} one\n5 1\nend\n", DISK / 2);
    until("the list is replaced", || std::fs::read_to_string(place.path("list")).unwrap() == list);
    assert_eq!(resident(&host), 1);
    drop(host);
    // Not a list.
    std::fs::write(place.path("list"), "precious").unwrap();
    let error = Host::start(place.settings("lru", &[("one", "")])).map(drop).unwrap_err();
    assert!(matches!(error, StartError::NoWarm(_)), "{error}");
    assert_eq!(std::fs::read_to_string(place.path("list")).unwrap(), "precious");
    // Damaged: memory starts empty.
    std::fs::write(place.path("list"), "nigh warm 1\ndisk 4194304 one\n0 5\n").unwrap();
    let host = Host::start(place.settings("lru", &[("one", "")])).unwrap();
    host.open("one").unwrap().read(5 * BLOCK, &mut [0; 1]).unwrap();
    until("the list is replaced", || std::fs::read_to_string(place.path("list")).unwrap() == list);
    assert_eq!(resident(&host), 1);
}
