//! Encoded blocks: what they save, and that they are always right.

use std::time::{Duration, Instant};

use nigh_host::{
    Allocation, BLOCK, ContentSettings, ContentStatistics, DiskSettings, Host, LevelSettings, Scheme, Settings,
};

const MIB: u64 = 1 << 20;

/// A host with disks of these names and sizes in blocks, `memory` bytes, and encoded blocks.
fn start(memory: u64, scheme: Scheme, disks: &[(&str, u64)], share: bool) -> Host {
    start_with(memory, ContentSettings { scheme, cpu: 1.0 }, disks, share)
}

fn start_with(memory: u64, content: ContentSettings, disks: &[(&str, u64)], share: bool) -> Host {
    let settings = |&(name, blocks): &(&str, u64)| {
        let target = format!("memory:{}", blocks * BLOCK).parse().unwrap();
        DiskSettings { share: share.then(|| "all".to_owned()), ..DiskSettings::new(name, target) }
    };
    let mut settings = Settings::new(memory, "lru".parse().unwrap(), disks.iter().map(settings).collect());
    settings.content = Some(content);
    Host::start(settings).unwrap()
}

fn content(host: &Host) -> ContentStatistics {
    host.statistics().0.content.unwrap()
}

/// A block of text that differs from those of other numbers, and from later versions of it.
fn text(number: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    let words: Vec<String> = (0..64).map(|_| format!("{:016x}{:08x} ", random.u64(..), random.u32(..))).collect();
    let mut block: Vec<u8> = (0..200).flat_map(|_| words[random.usize(..64)].bytes()).take(BLOCK as usize).collect();
    block[..16].copy_from_slice(&[number.to_le_bytes(), version.to_le_bytes()].concat());
    block
}

fn noise(number: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK as usize];
    fastrand::Rng::with_seed(number).fill(&mut block);
    block
}

fn fill(host: &Host, disk: &str, blocks: u64, of: impl Fn(u64) -> Vec<u8>) {
    let session = host.open(disk).unwrap();
    (0..blocks).for_each(|block| session.write(block * BLOCK, &of(block), false).unwrap());
    session.flush().unwrap();
}

/// Reads all blocks in order, compares them, and returns how many the device was asked for.
fn read_all(host: &Host, disk: &str, blocks: u64, of: impl Fn(u64) -> Vec<u8>) -> u64 {
    read_in_order(host, disk, 0..blocks, of)
}

fn read_in_order(host: &Host, disk: &str, order: impl Iterator<Item = u64>, of: impl Fn(u64) -> Vec<u8>) -> u64 {
    let bytes = || host.disk_statistics(&host.disk(disk).unwrap()).device_read_bytes;
    let (before, session) = (bytes(), host.open(disk).unwrap());
    let mut found = vec![0; BLOCK as usize];
    for (at, block) in order.enumerate() {
        session.read(block * BLOCK, &mut found).unwrap();
        assert!(found == of(block), "block {block} of {disk} is wrong");
        // Evicted blocks are encoded in the background.
        if at % 64 == 0 {
            settle(host);
        }
    }
    (bytes() - before) / BLOCK
}

/// Waits until nothing is being encoded.
fn settle(host: &Host) {
    let begin = Instant::now();
    let mut last = content(host).encoded;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let now = content(host).encoded;
        if now == last || begin.elapsed() > Duration::from_secs(10) {
            return;
        }
        last = now;
    }
}

#[test]
fn blocks_that_compress_need_fewer_reads() {
    // 24 MiB of text that a cache of 16 MiB does not hold, twice over.
    let blocks = 24 * MIB / BLOCK;
    for scheme in [Scheme::Lz4, Scheme::Zstd, Scheme::Sketch, Scheme::SketchZstd] {
        let host = start(16 * MIB, scheme, &[("disk", blocks)], false);
        fill(&host, "disk", blocks, |block| text(block, 0));
        for _ in 0..3 {
            read_all(&host, "disk", blocks, |block| text(block, 0));
        }
        let reads = read_all(&host, "disk", blocks, |block| text(block, 0));
        let content = content(&host);
        assert!(reads < blocks / 4, "{scheme}: {reads} of {blocks}, {content:?}");
        assert!(content.decoded > blocks / 4 && content.saved_bytes > 4 * MIB, "{scheme}: {content:?}");
        let used = host.statistics().0.resident_bytes + content.used_bytes;
        assert!(used <= 16 * MIB, "{scheme}: {used} bytes");
        host.shut_down().unwrap();
    }
}

#[test]
fn equal_blocks_are_shared_within_a_group_only() {
    let blocks = 8 * MIB / BLOCK;
    let contents = |share| {
        let disks = [("one", blocks), ("two", blocks), ("three", blocks)];
        let host = start(16 * MIB, Scheme::Lz4, &disks, share);
        for (disk, _) in disks {
            fill(&host, disk, blocks, |block| text(block, 0));
        }
        for _ in 0..4 {
            disks.iter().for_each(|(disk, _)| _ = read_all(&host, disk, blocks, |block| text(block, 0)));
        }
        let ContentStatistics { blocks: encoded, contents, .. } = content(&host);
        let share = contents as f64 / encoded as f64;

        // The others do not depend on a disk that leaves.
        host.remove("one", false).unwrap();
        for disk in ["two", "three"] {
            read_all(&host, disk, blocks, |block| text(block, 0));
        }
        host.shut_down().unwrap();
        share
    };
    let (shared, alone) = (contents(true), contents(false));
    assert!(shared < 0.7, "{shared} contents a block");
    assert_eq!(alone, 1.0);
}

#[test]
fn noise_gives_the_memory_back() {
    let blocks = 24 * MIB / BLOCK;
    let host = start(16 * MIB, Scheme::Sketch, &[("disk", blocks)], false);
    fill(&host, "disk", blocks, |block| text(block, 0));
    (0..3).for_each(|_| _ = read_all(&host, "disk", blocks, |block| text(block, 0)));
    let before = content(&host);
    assert!(before.bytes > 8 * MIB && before.one_of == 1, "{before:?}");
    fill(&host, "disk", blocks, noise);
    (0..6).for_each(|_| _ = read_all(&host, "disk", blocks, noise));
    let after = content(&host);
    assert!(after.bytes <= MIB && after.one_of > 1, "{after:?}");
    // It is tried again.
    fill(&host, "disk", blocks, |block| text(block, 1));
    (0..6).for_each(|_| _ = read_all(&host, "disk", blocks, |block| text(block, 1)));
    let again = content(&host);
    assert!(again.bytes > 4 * MIB && again.one_of == 1, "{again:?}");
    host.shut_down().unwrap();
}

#[test]
fn what_changes_is_read_as_it_is() {
    let blocks = 12 * MIB / BLOCK;
    let disks: Vec<String> = (0..4).map(|disk| format!("disk{disk}")).collect();
    let named: Vec<(&str, u64)> = disks.iter().map(|name| (name.as_str(), blocks)).collect();
    let host = start(16 * MIB, Scheme::Sketch, &named, true);
    std::thread::scope(|scope| {
        for (disk, name) in disks.iter().enumerate() {
            let host = &host;
            scope.spawn(move || {
                let session = host.open(name).unwrap();
                let mut random = fastrand::Rng::with_seed(disk as u64);
                let mut versions = vec![None; blocks as usize];
                let mut found = vec![0; BLOCK as usize];
                let hot = blocks / 2;
                for step in 0..30_000u64 {
                    let block = if random.bool() { random.u64(..hot) } else { random.u64(..blocks) };
                    let at = block * BLOCK;
                    match random.u32(..100) {
                        0..10 => {
                            session.write(at, &text(block, step % 7), false).unwrap();
                            versions[block as usize] = Some(step % 7);
                        }
                        10 => {
                            session.zero(at..at + BLOCK).unwrap();
                            versions[block as usize] = None;
                        }
                        _ => {
                            session.read(at, &mut found).unwrap();
                            let expected = versions[block as usize]
                                .map_or_else(|| vec![0; BLOCK as usize], |version| text(block, version));
                            assert!(found == expected, "step {step}: block {block} of {name}");
                        }
                    }
                }
            });
        }
        // The memory changes meanwhile.
        for memory in [12, 6, 16, 8, 16] {
            std::thread::sleep(Duration::from_millis(300));
            host.change(Some(memory * MIB), None).unwrap();
        }
    });
    let content = content(&host);
    assert!(content.decoded > 1000 && content.damaged == 0, "{content:?}");
    host.shut_down().unwrap();
}

/// Encoded blocks above a level in a file, which is warm after a restart, and below frames that tenants share.
#[test]
fn other_levels_are_below_it_and_tenants_above() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let blocks = 12 * MIB / BLOCK;
    let image: Vec<u8> =
        (0..blocks).flat_map(|block| if block % 2 == 0 { text(block, 0) } else { noise(block) }).collect();
    std::fs::write(path("disk"), &image).unwrap();
    let expected = |block: u64| image[(block * BLOCK) as usize..][..BLOCK as usize].to_vec();
    for (run, allocate) in [None, None, Some(Allocation::LruSp)].into_iter().enumerate() {
        let disk = DiskSettings::new("disk", path("disk").parse().unwrap());
        let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), vec![disk]);
        settings.content = Some(ContentSettings { scheme: Scheme::Sketch, cpu: 1.0 });
        settings.shards = Some(1);
        settings.allocate = allocate;
        let target = format!("raw:{}", path("level")).parse().unwrap();
        settings.levels = vec![LevelSettings { target, bytes: 16 * MIB }];
        let host = Host::start(settings).unwrap();
        let warm = host.host_statistics().levels[0].warm_blocks;
        assert_eq!(warm > blocks / 2, run > 0, "{warm} of {blocks} in run {run}");
        let mut order: Vec<u64> = (0..blocks).collect();
        let mut reads = 0;
        for round in 0..4 {
            fastrand::Rng::with_seed(round).shuffle(&mut order);
            reads = read_in_order(&host, "disk", order.iter().copied(), expected);
        }
        let (host_statistics, disks) = host.statistics();
        let (level, content) = (&host_statistics.levels[0], host_statistics.content.as_ref().unwrap());
        assert!(reads < blocks / 10, "{reads} of {blocks} in run {run}");
        assert!(disks[0].decoded > 500 && disks[0].level_hits > 500, "{:?} in run {run}", disks[0]);
        assert_eq!((disks[0].decoded, disks[0].level_hits), (content.decoded, level.hits));
        host.shut_down().unwrap();
    }
}

#[test]
fn little_memory_is_enough() {
    for (memory, shards) in [(1, 1), (2, 1), (17, 1), (64, 4), (100, 7)] {
        let disk = DiskSettings::new("disk", "memory:8M".parse().unwrap());
        let mut settings = Settings::new(memory * BLOCK, "lru".parse().unwrap(), vec![disk]);
        settings.content = Some(ContentSettings { scheme: Scheme::Sketch, cpu: 1.0 });
        settings.memory_max = 4 * MIB;
        settings.shards = Some(shards);
        let host = Host::start(settings).unwrap();
        let blocks = 8 * MIB / BLOCK;
        fill(&host, "disk", blocks, |block| text(block, 0));
        read_all(&host, "disk", blocks, |block| text(block, 0));
        host.change(Some(4 * MIB), None).unwrap();
        (0..2).for_each(|_| _ = read_all(&host, "disk", blocks, |block| text(block, 0)));
        assert!(content(&host).bytes > MIB, "{memory} blocks in {shards} shards, then 4 MiB: {:?}", content(&host));
        host.change(Some(memory * BLOCK), None).unwrap();
        read_all(&host, "disk", blocks, |block| text(block, 0));
        host.shut_down().unwrap();
    }
}

/// Blocks that wait to be encoded when their disk is removed do not become those of the disk that gets its number.
#[test]
fn a_disk_that_follows_another_one_shares_nothing_with_it() {
    let blocks = 4 * MIB / BLOCK;
    let host = start_with(2 * MIB, ContentSettings { scheme: Scheme::Lz4, cpu: 0.01 }, &[("before", blocks)], false);
    fill(&host, "before", blocks, |block| text(block, 0));
    host.remove("before", false).unwrap();
    host.add(DiskSettings::new("after", format!("memory:{}", blocks * BLOCK).parse().unwrap())).unwrap();
    let left = content(&host).encoded;
    fill(&host, "after", blocks, |block| text(block, 0));
    let begin = Instant::now();
    while content(&host).encoded < left + 400 && begin.elapsed() < Duration::from_secs(20) {
        let (session, mut found) = (host.open("after").unwrap(), vec![0; BLOCK as usize]);
        (0..blocks).for_each(|block| session.read(block * BLOCK, &mut found).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    let ContentStatistics { encoded, blocks, contents, orphans, .. } = content(&host);
    assert!(encoded >= left + 400 && blocks > 0, "{encoded} encoded, {left} before");
    assert_eq!(contents, blocks + orphans, "some are shared");
    host.shut_down().unwrap();
}
