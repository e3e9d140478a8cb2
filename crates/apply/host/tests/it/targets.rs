//! Disks over several targets: one range of bytes to those who use them, and separate devices below.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nigh_host::{BLOCK, DiskSettings, Fault, Host, HostError, Session, Settings, TARGETS_MAX};

const MIB: u64 = 1 << 20;
/// The first target ends within an extent, the last one within a block.
const SIZES: [u64; 3] = [MIB + 3 * BLOCK, 2 * BLOCK, MIB + 904];
const SIZE: u64 = SIZES[0] + SIZES[1] + SIZES[2];
/// Beginnings of the second and the third target.
const BORDERS: [u64; 2] = [SIZES[0], SIZES[0] + SIZES[1]];
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with the files of a disk, without contents.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        SIZES.iter().enumerate().for_each(|(at, size)| place.resize(at, *size));
        place
    }

    fn path(&self, at: usize) -> PathBuf {
        self.0.path().join(at.to_string())
    }

    fn resize(&self, at: usize, size: u64) {
        File::options().create(true).append(true).open(self.path(at)).unwrap().set_len(size).unwrap();
    }

    /// The disk of all files, with these words before the targets.
    fn disk(&self, before: [&str; 3]) -> DiskSettings {
        let target = |at: usize| format!("{}{}", before[at], self.path(at).display()).parse().unwrap();
        DiskSettings { next: vec![target(1), target(2)], ..DiskSettings::new("disk", target(0)) }
    }

    /// Contents of the files, one after the other.
    fn contents(&self) -> Vec<u8> {
        (0..3).flat_map(|at| std::fs::read(self.path(at)).unwrap()).collect()
    }
}

fn settings(disks: Vec<DiskSettings>) -> Settings {
    Settings::new(MIB, "lru".parse().unwrap(), disks)
}

/// A host with the disk of `place`.
fn start(place: &Place, before: [&str; 3]) -> (Host, Session) {
    let host = Host::start(settings(vec![place.disk(before)])).unwrap();
    let session = host.open("disk").unwrap();
    (host, session)
}

fn read(session: &Session, from: u64, to: u64) -> Result<Vec<u8>, HostError> {
    let mut bytes = vec![0xee; (to - from) as usize];
    session.read(from, &mut bytes).map(|()| bytes)
}

/// Around a border.
fn around(border: u64) -> (u64, u64) {
    (border - BLOCK - 100, border + BLOCK + 200)
}

#[test]
fn a_disk_is_its_targets_one_after_the_other() {
    let place = Place::new();
    let mut model = vec![0u8; SIZE as usize];
    let mut random = fastrand::Rng::with_seed(3);
    for (shards, memory) in [(1, MIB), (3, MIB), (2, 64 * BLOCK)] {
        let mut settings = settings(vec![place.disk([""; 3])]);
        (settings.shards, settings.memory) = (Some(shards), memory);
        let host = Host::start(settings).unwrap();
        let session = host.open("disk").unwrap();
        assert_eq!(host.disk("disk").unwrap().size(), SIZE);
        for step in 0..400 {
            // Mostly near a border.
            let near = [BORDERS[0], BORDERS[1], SIZE][random.usize(..3)];
            let from = if random.u8(..4) == 0 { random.u64(..SIZE) } else { near - random.u64(1..6 * BLOCK) };
            let to = (from + random.u64(1..12 * BLOCK)).min(SIZE);
            let range = from as usize..to as usize;
            match random.u8(..8) {
                0..3 => assert!(read(&session, from, to).unwrap() == model[range], "step {step}"),
                3..6 => {
                    model[range.clone()].fill(step as u8);
                    session.write(from, &model[range], random.bool()).unwrap();
                }
                6 => {
                    model[range].fill(0);
                    session.zero(from..to).unwrap();
                }
                _ => {
                    session.trim(from..to).unwrap();
                    // The contents after a trim are unspecified.
                    model[range].copy_from_slice(&read(&session, from, to).unwrap());
                }
            }
        }
        host.write_back(Some("disk")).unwrap();
        assert!(place.contents() == model);
        session.write(BORDERS[0] - 1, &[1, 2], false).unwrap();
        model[BORDERS[0] as usize - 1..][..2].copy_from_slice(&[1, 2]);
        host.shut_down().unwrap();
        assert!(place.contents() == model);
    }
}

#[test]
fn a_trim_across_a_border_leaves_no_block_behind() {
    let place = Place::new();
    let (host, session) = start(&place, [""; 3]);
    session.write(0, &vec![7; SIZE as usize], true).unwrap();
    session.trim(BORDERS[0] - 2 * BLOCK..BORDERS[1] + 2 * BLOCK).unwrap();
    let disk = host.disk("disk").unwrap();
    let hole = |range: std::ops::Range<u64>| {
        let extents = disk.extents(range.clone(), 100).unwrap();
        assert_eq!(extents[0].range.start, range.start);
        assert!(extents.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
        assert!(extents.last().unwrap().range.end >= range.end);
        extents.iter().all(|extent| extent.hole)
    };
    // A trimmed range may stay if the file system cannot release it.
    if hole(BORDERS[0] - BLOCK..BORDERS[0]) {
        assert!(hole(BORDERS[0] - 2 * BLOCK..BORDERS[1] + 2 * BLOCK));
        assert_eq!(disk.extents(0..SIZE, 100).unwrap().len(), 5, "data, holes in each file, and data");
        assert_eq!(disk.extents(0..SIZE, 2).unwrap().len(), 2);
    }
    assert!(!hole(0..SIZE));
    host.shut_down().unwrap();
}

#[test]
fn a_flush_reaches_every_device_with_something_new() {
    let place = Place::new();
    let (host, session) = start(&place, ["", "", "fault:flush=2:"]);
    let flushes = || host.disk_statistics(&host.disk("disk").unwrap()).device_flushes;
    session.flush().unwrap();
    let before = flushes();
    let (from, to) = around(BORDERS[0]);
    session.write(from, &vec![1; (to - from) as usize], false).unwrap();
    session.flush().unwrap();
    assert_eq!(flushes() - before, 2);
    // The third device fails, and the next flush tries it again.
    session.write(BORDERS[1] - 1, &[2, 3], false).unwrap();
    assert!(matches!(session.flush(), Err(HostError::Device(Fault(5)))));
    session.flush().unwrap();
    assert_eq!(place.contents()[BORDERS[1] as usize - 1..][..2], [2, 3]);
    host.shut_down().unwrap();
}

#[test]
fn a_device_that_fails_fails_what_touches_its_part() {
    let place = Place::new();
    let fails = |kind: &str| (1..=3).map(|at| format!("{kind}={at}")).collect::<Vec<_>>().join(",");
    let sick = format!("fault:{},{}:", fails("read"), fails("write"));
    let (host, session) = start(&place, ["", &sick, ""]);
    assert_eq!(read(&session, BORDERS[0] - BLOCK, BORDERS[0]).unwrap(), [0; BLOCK as usize]);
    assert!(matches!(read(&session, BORDERS[0], BORDERS[0] + 1), Err(HostError::Device(Fault(5)))));
    assert_eq!(read(&session, BORDERS[1], BORDERS[1] + BLOCK).unwrap(), [0; BLOCK as usize]);

    let begin = Instant::now();
    let all = BORDERS[0] - BLOCK..BORDERS[1] + BLOCK;
    session.write(all.start, &vec![4; (all.end - all.start) as usize], false).unwrap();
    assert!(host.write_back(None).is_err());
    let old = |range: std::ops::Range<u64>| place.contents()[range.start as usize..range.end as usize].contains(&0);
    while old(all.start..BORDERS[0]) || old(BORDERS[1]..all.end) {
        assert!(begin.elapsed() < PATIENCE, "a part waits for another");
    }
    assert!(old(BORDERS[0]..BORDERS[1]));
    // Nothing is lost of the other part either.
    while host.write_back(None).is_err() {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert!(!old(all));
    host.shut_down().unwrap();
}

#[test]
fn disks_over_several_targets_come_and_go() {
    let place = Place::new();
    let host = Host::start(settings(vec![DiskSettings::new("other", "memory:1M".parse().unwrap())])).unwrap();
    let other = host.open("other").unwrap();
    other.write(0, &[9; 4096], false).unwrap();
    for round in 1..20 {
        host.add(place.disk([""; 3])).unwrap();
        let more = DiskSettings { name: format!("more{round}"), ..DiskSettings::new("", "memory:8K".parse().unwrap()) };
        host.add(DiskSettings { next: vec!["memory:64K".parse().unwrap(); round % TARGETS_MAX], ..more }).unwrap();
        let session = host.open("disk").unwrap();
        for border in BORDERS {
            assert_eq!(read(&session, border - 1, border + 1).unwrap(), [round as u8 - 1; 2]);
            session.write(border - 1, &[round as u8; 2], false).unwrap();
        }
        host.remove("disk", false).unwrap();
        assert!(read(&session, 0, 1).is_err());
        assert_eq!(place.contents()[BORDERS[0] as usize], round as u8);
        if round % 2 == 0 {
            host.remove(&format!("more{round}"), round % 4 == 0).unwrap();
        }
        assert_eq!(read(&other, 0, 4096).unwrap(), [9; 4096]);
    }
    host.shut_down().unwrap();
}

#[test]
fn only_the_last_target_may_change_its_size() {
    let place = Place::new();
    let (host, session) = start(&place, [""; 3]);
    session.write(BORDERS[0] - 1, &[1, 2], false).unwrap();
    place.resize(2, SIZES[2] + MIB);
    host.look_at_size(&host.disk("disk").unwrap());
    let disk = host.disk("disk").unwrap();
    assert_eq!(disk.size(), SIZE + MIB);
    session.write(SIZE + MIB - 1, &[3], true).unwrap();
    place.resize(0, SIZES[0] + BLOCK);
    host.look_at_size(&host.disk("disk").unwrap());
    assert_eq!(disk.size(), SIZE + MIB);
    assert_eq!(read(&session, BORDERS[0] - 1, BORDERS[0] + 1).unwrap(), [1, 2]);
    place.resize(2, 0);
    host.look_at_size(&host.disk("disk").unwrap());
    assert_eq!(disk.size(), BORDERS[1], "an empty target has no part of the disk");
    assert!(read(&session, BORDERS[1], BORDERS[1] + 1).is_err());
    place.resize(2, BLOCK);
    host.look_at_size(&host.disk("disk").unwrap());
    assert_eq!(disk.size(), BORDERS[1] + BLOCK);
    host.shut_down().unwrap();
    assert_eq!(std::fs::read(place.path(0)).unwrap()[SIZES[0] as usize - 1..][..2], [1, 0]);
}

#[test]
fn what_cannot_be_a_disk_is_one_line() {
    let place = Place::new();
    let host = Host::start(settings(vec![place.disk([""; 3])])).unwrap();
    let refused = |target: &str, next: &[&str]| {
        let next = next.iter().map(|target| target.parse().unwrap()).collect();
        let wanted = DiskSettings { next, ..DiskSettings::new("new", target.parse().unwrap()) };
        let said = host.add(wanted).err().unwrap().to_string();
        assert!(!said.contains('\n'), "{said}");
        said
    };
    let file = |name: &str, size| {
        let path = place.0.path().join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (free, odd, empty) = (file("free", BLOCK), file("odd", 5000), file("empty", 0));
    let taken = place.path(1).to_str().unwrap().to_owned();
    assert!(refused("memory:4K", &[&taken]).contains("are both"));
    assert!(refused(&free, &[&free]).contains("two targets of disk"));
    let said = refused("memory:4K", &[&odd, "memory:4K"]);
    assert!(
        said.contains(&format!(
            "{odd} has 5000 bytes: for all targets but the last the size must be a multiple of 4096"
        )),
        "{said}"
    );
    assert!(refused(&odd, &["memory:4K"]).contains("5000 bytes"));
    assert!(refused("memory:4K", &[&empty]).contains(&format!("{empty} is empty")));
    assert!(refused("memory:4K", &["/nowhere"]).contains("/nowhere"));
    assert!(refused("memory:4K", &["memory:4K"; TARGETS_MAX]).contains("at most 15 targets"));
    assert!(refused("memory:4K", &["memory:60T", "memory:60T"]).contains("2^34 blocks"));
    let kept = host.set("disk", |disk| disk.next.truncate(1)).err().unwrap().to_string();
    assert_eq!(kept, "the targets of disk disk cannot change while it is open: remove it and add it again");
    host.set("disk", |disk| disk.iops = 1000).unwrap();
    // Nothing holds what was opened for one that was refused.
    let whole = DiskSettings { next: vec![odd.parse().unwrap()], ..DiskSettings::new("new", free.parse().unwrap()) };
    assert_eq!(host.add(whole).unwrap().size(), BLOCK + 5000);
    host.shut_down().unwrap();
}
