//! Levels below the memory: what they hold is of use, also after a restart, and never stale.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nigh_host::{
    Allocation, BLOCK, DiskError, DiskSettings, Host, LevelError, LevelSettings, LevelStatistics, Settings, StartError,
};

const MEMORY: u64 = 512 << 10;
const DISK: usize = 3 << 20;
const LEVEL: u64 = 9 << 20;
const PAUSE: Duration = Duration::from_millis(1);

/// A folder with disks and a level.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        ["one", "two"]
            .iter()
            .zip(1..)
            .for_each(|(name, byte)| std::fs::write(place.path(name), contents(byte)).unwrap());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn disk(&self, name: &str) -> DiskSettings {
        DiskSettings::new(name, self.path(name).to_str().unwrap().parse().unwrap())
    }

    fn level(&self, before: &str) -> LevelSettings {
        let target = format!("{before}raw:{}", self.path("level").display());
        LevelSettings { target: target.parse().unwrap(), bytes: LEVEL }
    }

    fn settings(&self, disks: &[&str]) -> Settings {
        let disks = disks.iter().map(|name| self.disk(name)).collect();
        let mut settings = Settings::new(MEMORY, "lru".parse().unwrap(), disks);
        settings.levels = vec![self.level("")];
        settings.shards = Some(1);
        settings
    }

    /// Has the level hold both disks.
    fn fill(&self) {
        let host = Host::start(self.settings(&["one", "two"])).unwrap();
        for (name, byte) in [("one", 1), ("two", 2)] {
            check(&host, name, byte);
        }
        end(host);
    }

    /// How many blocks the level of `settings` begins with. The disks have these bytes.
    fn warm(&self, settings: Settings, disks: &[(&str, u8)]) -> u64 {
        let host = Host::start(settings).unwrap();
        let warm = level(&host).warm_blocks;
        disks.iter().for_each(|&(name, byte)| check(&host, name, byte));
        end(host);
        warm
    }
}

fn contents(byte: u8) -> Vec<u8> {
    (0..DISK).map(|at| (at / BLOCK as usize) as u8 ^ byte).collect()
}

/// The level as it is now.
fn level(host: &Host) -> LevelStatistics {
    host.host_statistics().levels.remove(0)
}

/// Ends a host, with its hold on the files.
fn end(host: Host) {
    host.shut_down().unwrap();
}

/// Reads a disk twice.
fn check(host: &Host, name: &str, byte: u8) {
    let session = host.open(name).unwrap();
    let expected = contents(byte);
    for turn in 0..2 {
        for (at, expected) in expected.chunks(64 << 10).enumerate() {
            let mut bytes = vec![0; expected.len()];
            session.read(at as u64 * (64 << 10), &mut bytes).unwrap();
            assert!(bytes == expected, "{name}, turn {turn}, part {at}");
            // Blocks that are read too fast are not stored.
            std::thread::sleep(PAUSE);
        }
    }
}

fn write(host: &Host, name: &str, byte: u8) {
    let session = host.open(name).unwrap();
    contents(byte).chunks(64 << 10).enumerate().for_each(|(at, bytes)| {
        session.write(at as u64 * (64 << 10), bytes, false).unwrap();
    });
}

fn change(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

const BLOCKS: u64 = DISK as u64 / BLOCK;
const IN_MEMORY: u64 = MEMORY / BLOCK;
/// Blocks on their way to a level, at most.
const UNDER_WAY: u64 = 256;

#[test]
fn what_left_memory_is_loaded_from_the_level() {
    let place = Place::new();
    let host = Host::start(place.settings(&["one"])).unwrap();
    check(&host, "one", 1);
    let of = level(&host);
    let dropped = of.drops;
    // On their way to the level they are still found in memory.
    assert!(of.hits + dropped >= BLOCKS - 2 * IN_MEMORY - UNDER_WAY, "{of:?}");
    assert!(of.stored + dropped >= BLOCKS - IN_MEMORY - UNDER_WAY, "{of:?}");
    let disk = &host.statistics().1[0];
    assert_eq!(disk.level_hits, of.hits);
    assert!(disk.device_read_bytes <= (BLOCKS + 2 * IN_MEMORY + dropped) * BLOCK);
    write(&host, "one", 9);
    check(&host, "one", 9);
    assert!(level(&host).invalidations + dropped >= BLOCKS - IN_MEMORY - UNDER_WAY);
    end(host);
    assert!(std::fs::read(place.path("one")).unwrap() == contents(9));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(place.path("level")).unwrap());
    assert_eq!(mode & 0o777, 0o600, "it has the contents of disks");
}

#[test]
fn warm_5_memory_is_in_the_level_after_an_orderly_end() {
    for (policy, shards) in [("lru", 1), ("lirs", 2), ("arc", 1)] {
        let place = Place::new();
        let settings = || {
            let mut settings = place.settings(&["one"]);
            settings.policy = policy.parse().unwrap();
            settings.shards = Some(shards);
            settings
        };
        let read = |host: &Host| {
            let session = host.open("one").unwrap();
            let mut bytes = vec![0; IN_MEMORY as usize / 2 * BLOCK as usize];
            session.read(0, &mut bytes).unwrap();
            assert!(bytes[..] == contents(1)[..bytes.len()]);
        };
        let host = Host::start(settings()).unwrap();
        read(&host);
        // Dirty blocks, too: they are clean at the end.
        host.open("one").unwrap().write(0, &contents(1)[..4096], false).unwrap();
        assert_eq!(level(&host).stored, 0);
        end(host);
        let host = Host::start(settings()).unwrap();
        assert_eq!(level(&host).warm_blocks, IN_MEMORY / 2, "{policy}");
        read(&host);
        assert_eq!(level(&host).hits, IN_MEMORY / 2, "{policy}");
        assert_eq!(host.statistics().1[0].device_read_bytes, 0, "{policy}");
        end(host);
    }
}

/// The rest of the time is for its index.
#[test]
fn warm_5_a_slow_level_is_filled_for_half_of_the_time() {
    let place = Place::new();
    let settings = |before| {
        let mut settings = place.settings(&["one"]);
        settings.memory = 2 * DISK as u64;
        settings.levels = vec![place.level(before)];
        settings
    };
    let host = Host::start(settings("delay:1s:")).unwrap();
    let mut bytes = vec![0; DISK];
    host.open("one").unwrap().read(0, &mut bytes).unwrap();
    host.shut_down_within(Duration::from_secs(4)).map_err(drop).unwrap();
    drop(host);
    let warm = place.warm(settings(""), &[("one", 1)]);
    assert!((1..BLOCKS).contains(&warm), "{warm} of {BLOCKS}");
}

#[test]
fn a_level_is_warm_after_a_restart_as_far_as_disks_are_what_they_were() {
    let place = Place::new();
    let both = [("one", 1), ("two", 2)];
    place.fill();
    let is_warm = |names: &[&str], disks: usize| {
        let of: Vec<(&str, u8)> = both.into_iter().filter(|(name, _)| names.contains(name)).collect();
        let warm = place.warm(place.settings(names), &of);
        // Blocks that were in memory at the end need not be there, nor those that were read while the level had too much to do.
        let most = disks as u64 * BLOCKS;
        assert!((most - BLOCKS / 2..=most).contains(&warm), "{warm} blocks of {disks} disks");
    };
    is_warm(&["one", "two"], 2);
    // With other numbers.
    is_warm(&["two", "one"], 2);
    change(&place.path("two"));
    is_warm(&["one", "two"], 1);
    // Absent blocks are not kept.
    is_warm(&["one"], 1);
    is_warm(&["one", "two"], 1);
    // Another file with the name of the one that is open is not what the level has.
    let host = Host::start(place.settings(&["one", "two"])).unwrap();
    std::fs::rename(place.path("one"), place.path("old")).unwrap();
    std::fs::write(place.path("one"), contents(7)).unwrap();
    check(&host, "one", 1);
    end(host);
    let warm = place.warm(place.settings(&["one", "two"]), &[("one", 7), ("two", 2)]);
    assert!((1..=BLOCKS).contains(&warm), "{warm}");
}

/// A level that does not answer: one read waits for it, for a short time, and all others come from the disk at once.
#[test]
fn levels_18_one_that_hangs_delays_a_read_once() {
    for policy in ["lru", "ulc"] {
        let place = Place::new();
        let mut settings = place.settings(&["one"]);
        settings.policy = policy.parse().unwrap();
        let host = Host::start(settings.clone()).unwrap();
        check(&host, "one", 1);
        end(host);
        settings.levels = vec![place.level("delay:30s:")];
        let host = Host::start(settings).unwrap();
        assert!(level(&host).warm_blocks > BLOCKS / 2, "{:?}", level(&host));
        let begin = Instant::now();
        check(&host, "one", 1);
        let took = begin.elapsed();
        let of = level(&host);
        assert!((1..15).contains(&took.as_secs()), "{policy}: two turns take {took:?}; {of:?}");
        assert_eq!((of.late, of.hits, of.faults), (1, 0, 0), "{policy}");
        write(&host, "one", 9);
        check(&host, "one", 9);
        let unwritten = host.shut_down_within(Duration::from_secs(4));
        assert!(unwritten.is_ok(), "{unwritten:?}");
        assert!(begin.elapsed() < Duration::from_secs(25), "its end waits for the level");
        assert!(std::fs::read(place.path("one")).unwrap() == contents(9));
    }
}

#[test]
fn a_disk_over_two_targets_is_warm_if_both_are_what_they_were() {
    let place = Place::new();
    let border = (1 << 20) + 3 * BLOCK as usize;
    std::fs::write(place.path("first"), &contents(5)[..border]).unwrap();
    std::fs::write(place.path("rest"), &contents(5)[border..]).unwrap();
    let mut settings = place.settings(&["first"]);
    settings.disks[0].next = vec![place.disk("rest").target];
    let warm = || place.warm(settings.clone(), &[("first", 5)]);
    assert_eq!(warm(), 0);
    assert!((BLOCKS / 2..=BLOCKS).contains(&warm()));
    change(&place.path("rest"));
    assert_eq!(warm(), 0);
    assert!(warm() > 0);
    change(&place.path("first"));
    assert_eq!(warm(), 0);
    // With a longer first target, the blocks of the other are elsewhere.
    let host = Host::start(settings.clone()).unwrap();
    check(&host, "first", 5);
    let file = std::fs::OpenOptions::new().write(true).open(place.path("first")).unwrap();
    file.set_len((border + 4096) as u64).unwrap();
    host.look_at_size(&host.disk("first").unwrap());
    check(&host, "first", 5);
    end(host);
    let host = Host::start(settings.clone()).unwrap();
    assert_eq!(level(&host).warm_blocks, 0);
    end(host);
    // Neither of them is a level.
    settings.levels[0].target = format!("raw:{}", place.path("rest").display()).parse().unwrap();
    assert!(matches!(Host::start(settings).err(), Some(StartError::Level(LevelError::Disk { .. }))));
}

#[test]
fn a_level_begins_empty_where_it_is_set_up_differently() {
    let place = Place::new();
    let of = |shards, bytes| {
        let mut settings = place.settings(&["one", "two"]);
        settings.shards = Some(shards);
        settings.levels[0].bytes = bytes;
        place.warm(settings, &[("one", 1), ("two", 2)])
    };
    assert_eq!(of(2, LEVEL), 0);
    assert!(of(2, LEVEL) > 0);
    assert_eq!(of(3, LEVEL), 0);
    assert!(of(3, LEVEL) > 0);
    assert_eq!(of(3, LEVEL + (1 << 20)), 0);
}

#[test]
fn a_start_that_fails_costs_no_warm_level() {
    let place = Place::new();
    place.fill();
    let failed = Host::start(place.settings(&["one", "none"]));
    assert!(matches!(failed.err(), Some(StartError::Disk(DiskError::Open { .. }))));
    assert!(place.warm(place.settings(&["one", "two"]), &[("one", 1), ("two", 2)]) > 0);
}

#[test]
fn disks_come_and_go() {
    let place = Place::new();
    let host = Host::start(place.settings(&["one"])).unwrap();
    check(&host, "one", 1);
    for round in 0..3 {
        host.add(place.disk("two")).unwrap();
        check(&host, "two", 2 + round);
        write(&host, "two", 3 + round);
        check(&host, "two", 3 + round);
        host.remove("two", false).unwrap();
    }
    host.remove("one", true).unwrap();
    // It has the number of the one before.
    host.add(place.disk("two")).unwrap();
    check(&host, "two", 5);
    // A disk that becomes longer.
    let file = std::fs::OpenOptions::new().write(true).open(place.path("two")).unwrap();
    file.set_len(DISK as u64 + BLOCK).unwrap();
    host.look_at_size(&host.disk("two").unwrap());
    assert_eq!(host.disk("two").unwrap().size(), DISK as u64 + BLOCK);
    check(&host, "two", 5);
    end(host);
    assert!(place.warm(place.settings(&["two"]), &[("two", 5)]) > BLOCKS / 2);
}

#[test]
fn memory_and_policy_change_above_a_level() {
    let place = Place::new();
    let mut settings = place.settings(&["one"]);
    settings.memory_max = 2 * MEMORY;
    let host = Host::start(settings).unwrap();
    for (memory, policy) in [(2 * MEMORY, "arc"), (MEMORY / 2, "lirs"), (MEMORY, "lru")] {
        host.change(Some(memory), Some(&policy.parse().unwrap())).unwrap();
        let before = level(&host).hits;
        check(&host, "one", 1);
        assert!(level(&host).hits > before, "{policy}");
    }
    end(host);
}

/// A policy that decides for two levels: blocks go from one to the next, and are there after a restart.
#[test]
fn a_policy_directs_two_levels() {
    let place = Place::new();
    let settings = || {
        let level = |name: &str, bytes| LevelSettings {
            target: format!("raw:{}", place.path(name).display()).parse().unwrap(),
            bytes,
        };
        let mut settings = place.settings(&["one", "two"]);
        settings.policy = "ulc".parse().unwrap();
        settings.levels = vec![level("near", 3 << 20), level("far", 9 << 20)];
        settings
    };
    let host = Host::start(settings()).unwrap();
    let session = host.open("one").unwrap();
    let expected = contents(1);
    // Blocks that are used often, among others that are used once in a while.
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..6000 {
        let block =
            random.usize(..DISK / BLOCK as usize) * random.usize(..DISK / BLOCK as usize) / (DISK / BLOCK as usize);
        let mut bytes = vec![0; BLOCK as usize];
        session.read((block as u64) * BLOCK, &mut bytes).unwrap();
        assert!(bytes == expected[block * BLOCK as usize..][..BLOCK as usize], "block {block}");
    }
    drop(session);
    check(&host, "two", 2);
    write(&host, "one", 7);
    check(&host, "one", 7);
    let levels = host.host_statistics().levels;
    assert!(levels[0].hits > 500 && levels[1].hits > 0 && levels[1].carried > 0, "{levels:?}");
    assert_eq!(levels[0].carried, 0);
    assert!(host.change(None, Some(&"lru".parse().unwrap())).is_err(), "levels were set up for the policy");
    host.change(Some(MEMORY / 2), None).unwrap();
    check(&host, "two", 2);
    end(host);
    let host = Host::start(settings()).unwrap();
    assert!(host.host_statistics().levels.iter().all(|level| level.warm_blocks > 100));
    check(&host, "one", 7);
    check(&host, "two", 2);
    end(host);
}

#[test]
fn read_only_disks_and_tenants_have_levels() {
    let place = Place::new();
    let mut settings = place.settings(&["one", "two"]);
    settings.disks[0].read_only = true;
    settings.allocate = Some(Allocation::LruSp);
    for round in 0..2 {
        let host = Host::start(settings.clone()).unwrap();
        check(&host, "one", 1);
        check(&host, "two", 2);
        let of = level(&host);
        assert!(of.hits + of.drops + UNDER_WAY > BLOCKS && (of.warm_blocks > 0) == (round > 0), "{of:?}");
        end(host);
    }
}

#[test]
fn a_level_that_fails_is_switched_off() {
    let place = Place::new();
    let faults: Vec<String> = (1..=16).map(|at| format!("write={at}")).collect();
    let mut settings = place.settings(&["one"]);
    settings.shards = Some(2);
    settings.levels = vec![place.level(&format!("fault:{}:", faults.join(",")))];
    let host = Host::start(settings).unwrap();
    write(&host, "one", 4);
    (0..3).for_each(|_| check(&host, "one", 4));
    let of = level(&host);
    assert!(of.off && of.faults >= 8 && (of.stored, of.stores) == (0, 0), "{of:?}");
    end(host);
    assert_eq!(place.warm(place.settings(&["one"]), &[("one", 4)]), 0);
}

#[test]
fn what_cannot_be_a_level_is_refused() {
    let place = Place::new();
    let refused = |settings: Settings| match Host::start(settings).err() {
        Some(StartError::Level(error)) => error,
        other => panic!("{other:?}"),
    };
    let with = |names: &[&str]| {
        let level = |name: &&str| LevelSettings {
            target: format!("raw:{}", place.path(name).display()).parse().unwrap(),
            bytes: LEVEL,
        };
        Settings { levels: names.iter().map(level).collect(), ..place.settings(&["one"]) }
    };
    assert!(matches!(refused(with(&["one"])), LevelError::Disk { name, .. } if name == "one"));
    assert!(matches!(refused(with(&["two"])), LevelError::File(nigh_backend::LevelError::Foreign(_))));
    assert!(matches!(refused(with(&["new", "new"])), LevelError::Twice(_)));
    assert!(matches!(refused(with(&["a", "b", "c"])), LevelError::Many));
    let mut memory = with(&["new"]);
    memory.levels[0].target = "memory:16M".parse().unwrap();
    assert!(matches!(refused(memory), LevelError::Memory));
    let mut large = with(&["new"]);
    large.levels[0].bytes = 1 << 55;
    assert!(matches!(refused(large), LevelError::Index { .. }));
    let host = Host::start(with(&["a", "b"])).unwrap();
    assert!(host.add(place.disk("a")).err().unwrap().to_string().contains("is a level of this cache"));
    check(&host, "one", 1);
    assert!(matches!(refused(with(&["b"])), LevelError::File(nigh_backend::LevelError::Taken(_))));
    end(host);
    assert!(std::fs::read(place.path("two")).unwrap() == contents(2));
}
