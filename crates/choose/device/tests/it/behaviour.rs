//! Consequences of how devices work, and errors about bad input.

use nigh_device::{BeyondEnd, Device, Kind, Model, Profile, Request, SequenceCost};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
const MS: u64 = 1_000_000;

fn read(offset_bytes: u64, bytes: u64) -> Request {
    Request { kind: Kind::Read, offset_bytes, bytes }
}

fn write(offset_bytes: u64, bytes: u64) -> Request {
    Request { kind: Kind::Write, offset_bytes, bytes }
}

fn flush() -> Request {
    Request { kind: Kind::Flush, offset_bytes: 0, bytes: 0 }
}

/// A shipped profile with one line changed.
fn changed(name: &str, key: &str, value: &str) -> String {
    let text = Profile::text(name).expect(name);
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{key} =")))
        .unwrap_or_else(|| panic!("{name} has no {key}"));
    let new = if value.is_empty() { String::new() } else { format!("{key} = {value}") };
    text.replacen(line, &new, 1)
}

fn device(text: &str) -> Device {
    Device::new(&Profile::parse(text).expect("a profile"), 3)
}

/// Time of one request that is alone.
fn alone(device: &mut Device, now: &mut u64, request: Request) -> u64 {
    let end = device.start(*now, request).expect("on the device");
    end - std::mem::replace(now, end)
}

/// Random reads of a disk take overhead, a seek over the distance of two random cylinders, and up to a rotation.
#[test]
fn random_reads_are_distributed_as_seek_and_rotation_are() {
    for name in ["hdd-10k", "rz56", "hdd-7200"] {
        let profile = Profile::named(name).expect(name);
        let Model::Disk(disk) = profile.model() else { panic!("{name} is a disk") };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let sectors: Vec<u64> = disk.zones.iter().map(|zone| zone.0 * zone.1 * disk.heads).collect();
        let cylinder = |byte: u64| {
            let (mut sector, mut first) = (byte / 512, 0);
            for (zone, &size) in disk.zones.iter().zip(&sectors) {
                if sector < size {
                    return first + sector / (zone.1 * disk.heads);
                }
                (sector, first) = (sector - size, first + zone.0);
            }
            unreachable!("beyond the disk")
        };
        let mut device = Device::new(&profile, 1);
        let (mut now, mut at) = (0, 0);
        let (mut model, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            let to = random.random_range(0..profile.bytes() / 512) * 512;
            model.push(alone(&mut device, &mut now, read(to, 512)) as f64 / 1e6);
            let seek = disk.seek.ms(cylinder(to).abs_diff(cylinder(at)) as u32);
            let sector = 1.0 / disk.zones[0].1 as f64;
            expected.push(disk.overhead_ms + seek + 60_000.0 / disk.rpm * (random.random::<f64>() + sector));
            at = to;
        }
        model.sort_by(f64::total_cmp);
        expected.sort_by(f64::total_cmp);
        for percent in [5, 25, 50, 75, 95] {
            let (model, expected) = (model[model.len() * percent / 100], expected[expected.len() * percent / 100]);
            assert!(
                (model / expected - 1.0).abs() < 0.02,
                "{name}: {percent} % below {model:.3} and not {expected:.3} ms"
            );
        }
    }
}

/// Its two figures, which are those of single blocks and of 128, are right for lengths between.
#[test]
fn a_sequence_costs_its_position_and_its_blocks() {
    for name in ["hdd-10k", "rz56", "hdd-7200", "ssd-sata"] {
        let profile = Profile::named(name).expect(name);
        let SequenceCost { position_ms, block_ms } = SequenceCost::of(&profile, BLOCK as u32);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        for blocks in [8, 64] {
            let mut disk = Device::new(&profile, 2);
            let (mut now, reads) = (0, 5000);
            for _ in 0..reads {
                let place = random.random_range(0..profile.bytes() / BLOCK - blocks) * BLOCK;
                alone(&mut disk, &mut now, read(place, blocks * BLOCK));
            }
            let (found, said) = (now as f64 / 1e6 / f64::from(reads), position_ms + blocks as f64 * block_ms);
            assert!((found / said - 1.0).abs() < 0.03, "{name}: {blocks} blocks take {found:.3} and not {said:.3} ms");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    for name in Profile::names() {
        let times = |seed| {
            let mut device = Device::new(&Profile::named(name).expect(name), seed);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut now = 0;
            let mut times = Vec::new();
            for _ in 0..500 {
                let kind = [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim][random.random_range(0..4)];
                let offset_bytes = random.random_range(0..device.bytes() / BLOCK - 64) * BLOCK;
                let request = Request { kind, offset_bytes, bytes: random.random_range(0..64) * BLOCK };
                times.push(alone(&mut device, &mut now, request));
            }
            (times, device.counters())
        };
        assert_eq!(times(1), times(1), "{name}");
        let seeded = !name.starts_with("ssd");
        assert_eq!(times(1).0 != times(2).0, seeded, "{name}");
    }
}

/// Whatever is asked, a request ends after it began and within what its parts take at most.
#[test]
fn no_request_takes_longer_than_its_parts() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    for round in 0..200 {
        let zones: Vec<(u64, u64)> =
            (0..random.random_range(1..4)).map(|_| (random.random_range(10..40), random.random_range(1..90))).collect();
        let heads = random.random_range(1..5);
        let bytes: u64 = zones.iter().map(|zone| zone.0 * zone.1).sum::<u64>() * heads * 512;
        if bytes < 1 << 20 {
            continue;
        }
        let shape = format!("{zones:?}").replace('(', "[").replace(')', "]");
        let mut text = changed("rz26", "zones", &shape);
        for (key, value) in [
            ("seek_average_ms", "9.7".to_owned()),
            ("heads", heads.to_string()),
            ("bytes", bytes.to_string()),
            ("buffer_kib", random.random_range(0..100).to_string()),
            ("buffer_segments", random.random_range(0..4).to_string()),
            ("write_cache", random.random::<bool>().to_string()),
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("{key} ="))).expect(key).to_owned();
            text = text.replacen(&line, &format!("{key} = {value}"), 1);
        }
        let mut disk = device(&text);
        let mut now = 0;
        // Writes that the drive's memory may hold back before a read or flush gets its turn.
        let mut owed = 0;
        for _ in 0..300 {
            let kind = [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim][random.random_range(0..4)];
            let offset_bytes = random.random_range(0..bytes);
            let length = random.random_range(0..(bytes - offset_bytes).min(1 << 18) + 1);
            let took = alone(&mut disk, &mut now, Request { kind, offset_bytes, bytes: length });
            let tracks = length / 512 + 2;
            let most = (22 + 12 * tracks) * MS;
            assert!(took <= most + owed, "round {round}: {kind:?} of {length} bytes took {took} ns\n{text}");
            owed = if matches!(kind, Kind::Write) { owed + most } else { owed.saturating_sub(took) };
            now += random.random_range(0..20) * MS * u64::from(random.random::<bool>());
        }
    }
}

#[test]
fn the_drive_reads_ahead() {
    let mut disk = device(&Profile::text("hdd-10k").expect("shipped"));
    let mut now = 0;
    alone(&mut disk, &mut now, read(1 << 30, BLOCK));
    // Within a track and its buffer: no seek, no rotation, the rate of the track or the interface.
    for n in 1..16 {
        let took = alone(&mut disk, &mut now, read((1 << 30) + n * BLOCK, BLOCK));
        assert!(took < MS, "block {n} took {took} ns");
    }
    // After a pause the segment is full: what it holds costs the interface only, and what it does not a turn.
    now += 100 * MS;
    let held = 561 / 8;
    for n in 16..16 + held {
        let took = alone(&mut disk, &mut now, read((1 << 30) + n * BLOCK, BLOCK));
        assert!(took < MS / 5, "block {n} took {took} ns");
    }
    let seeks = disk.counters().seeks;
    // Three streams have their segments: in turns, each finds what was read ahead for it.
    let streams = [1u64 << 30, 2 << 30, 3 << 30];
    for at in streams {
        alone(&mut disk, &mut now, read(at, BLOCK));
        now += 10 * MS;
    }
    for n in 1..32 {
        for at in streams {
            let took = alone(&mut disk, &mut now, read(at + n * BLOCK, BLOCK));
            assert!(took < MS / 5, "block {n} of the stream at {at} took {took} ns");
        }
    }
    assert!(disk.counters().seeks <= seeks + 3);
    // A write in the middle of a segment makes the drive forget it.
    alone(&mut disk, &mut now, write(streams[0] + 33 * BLOCK, BLOCK));
    assert!(alone(&mut disk, &mut now, read(streams[0] + 33 * BLOCK, BLOCK)) > MS);
}

#[test]
fn a_write_cache_acknowledges_early_and_a_flush_waits_for_it() {
    let mut plain = device(&Profile::text("wd400bb").expect("shipped"));
    let mut cached = device(&changed("wd400bb", "write_cache", "true"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let places: Vec<u64> = (0..100).map(|_| random.random_range(0..plain.bytes() / BLOCK) * BLOCK).collect();
    let (mut now, mut early) = (0, 0);
    for &place in &places {
        alone(&mut plain, &mut now, write(place, BLOCK));
        assert!(alone(&mut cached, &mut early, write(place, BLOCK)) < MS);
    }
    assert!(alone(&mut plain, &mut now, flush()) < MS);
    assert!(alone(&mut cached, &mut early, flush()) > 1000 * MS);
    assert!(early.abs_diff(now) < now / 20, "the medium takes as long: {early} and {now} ns");
    // More than the memory holds waits for room.
    let (mut slow, count) = (0, 3000);
    for _ in 0..count {
        slow = slow.max(alone(&mut cached, &mut early, write(random.random_range(0..1000) * BLOCK, BLOCK)));
    }
    assert!(slow > 2 * MS);
    // Neighbours written one after the other lose a turn each, unless the drive collects them.
    alone(&mut cached, &mut early, flush());
    let sequential = |disk: &mut Device, now: &mut u64| {
        let begin = *now;
        for n in 0..256 {
            alone(disk, now, write((1 << 30) + n * BLOCK, BLOCK));
        }
        alone(disk, now, flush());
        *now - begin
    };
    let (plain, cached) = (sequential(&mut plain, &mut now), sequential(&mut cached, &mut early));
    assert!(plain > 256 * 8 * MS && cached < 256 * MS, "{plain} and {cached} ns");
}

#[test]
fn a_volume_keeps_its_caps_and_an_object_store_its_link() {
    let mut volume = device(&Profile::text("net-volume").expect("shipped"));
    // 10 ms may be saved up: 30 operations go at once, the others at 3000 a second.
    let ends: Vec<u64> = (0..64).map(|n| volume.start(0, read(n * BLOCK, BLOCK)).expect("on it")).collect();
    assert!(ends[..30].iter().all(|&end| end < 3 * MS));
    assert!((10 * MS..14 * MS).contains(ends.last().expect("64 of them")), "{ends:?}");
    // 1 MiB is four operations, but above all 8 ms of the rate: three fit into what was saved up.
    let mut volume = device(&Profile::text("net-volume").expect("shipped"));
    let ends: Vec<u64> = (0..8).map(|n| volume.start(0, read(n << 20, 1 << 20)).expect("on it")).collect();
    assert!((44 * MS..50 * MS).contains(&ends[7]), "{ends:?}");

    // Ten connections have ten times the rate of one; sixty-four the link's.
    for (connections, mb_per_s) in [(1, 87.5), (10, 875.0), (64, 1250.0)] {
        let mut store = device(&changed("object-store", "first_byte_p99_ratio", "1"));
        let bytes: u64 = 256 << 20;
        let end = (0..connections).map(|n| store.start(0, read(n * bytes, bytes)).expect("on it")).max().expect("one");
        let rate = (connections * bytes) as f64 / (end - 100 * MS) as f64 * 1e3;
        assert!((rate / mb_per_s - 1.0).abs() < 0.25, "{connections} connections have {rate} MB/s");
    }
}

#[test]
fn counters_tell_time_and_work() {
    let mut flash = device(&Profile::text("ssd-nvme").expect("shipped"));
    let ends: Vec<u64> = (0..32).map(|n| flash.start(0, read(n << 20, BLOCK)).expect("on it")).collect();
    let last = *ends.iter().max().expect("32 of them");
    let later = flash.start(last + 50, write(0, 2 * BLOCK)).expect("on it");
    let counters = flash.counters();
    assert_eq!((counters.requests, counters.bytes, counters.seeks), (33, 34 * BLOCK, 0));
    assert_eq!(counters.busy_ns, last + later - (last + 50), "requests side by side count once, idleness never");
}

#[test]
fn a_request_beyond_the_end_is_refused() {
    let mut disk = device(&Profile::text("rz56").expect("shipped"));
    let bytes = disk.bytes();
    assert!(disk.start(0, read(bytes - 512, 512)).is_ok());
    for (offset_bytes, length) in [(bytes, 1), (bytes - 512, 513), (u64::MAX, u64::MAX)] {
        let end_bytes = offset_bytes.saturating_add(length);
        let refused = BeyondEnd { offset_bytes, end_bytes, device_bytes: bytes };
        assert_eq!(disk.start(0, read(offset_bytes, length)), Err(refused));
    }
    let refused = disk.start(0, write(bytes, 512)).expect_err("beyond");
    assert_eq!(
        refused.to_string(),
        "bytes 665177088 to 665177600 pass the end of the device, which has 665177088 bytes"
    );
    assert_eq!(disk.counters().requests, 1);
}

/// Profile, key, value in its place (none: the line goes), and the error.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("raid5-4x-hdd-7200", "raid", "\"6\"", "'raid' is '6': expected '0', '1' or '5'"),
    ("raid5-4x-hdd-7200", "members", "2", "'members' is 2: expected the number of members, 3 to 64"),
    (
        "raid5-4x-hdd-7200",
        "member",
        "\"hdd-72\"",
        "there is no profile 'hdd-72': 'nigh devices' lists them. Did you mean 'hdd-7200'?",
    ),
    (
        "raid5-4x-hdd-7200",
        "member",
        "\"raid0-2x-hdd-7200\"",
        "'member' is 'raid0-2x-hdd-7200': expected a device that is no array itself",
    ),
    ("hdd-10k", "rpm", "", "'rpm' is missing: expected rotations a minute, 60 to 100000"),
    ("hdd-10k", "rpm", "-7200", "'rpm' is -7200: expected rotations a minute, 60 to 100000"),
    ("hdd-10k", "rpm", "nan", "'rpm' is NaN: expected rotations a minute, 60 to 100000"),
    ("hdd-10k", "rpm", "\"fast\"", "'rpm' is 'fast': expected rotations a minute, 60 to 100000"),
    ("hdd-10k", "heads", "2.5", "'heads' is 2.5: expected the number of heads, 1 to 255"),
    ("hdd-10k", "heads", "1", "'bytes' is 9105018880: expected at most the capacity of heads and zones"),
    ("hdd-10k", "seek_average_ms", "12", "'seek_average_ms' is 12: expected 4.621 to 6.832: between"),
    ("hdd-10k", "seek_full_ms", "0.5", "'seek_full_ms' is 0.5: expected the time across all cylinders, 0.831 to 10000"),
    ("hdd-10k", "write_cache", "1", "'write_cache' is 1: expected true if"),
    ("hdd-10k", "kind", "\"dsk\"", "'kind' is 'dsk': expected 'disk', 'flash', 'volume', 'store' or 'array'"),
    (
        "hdd-10k",
        "kind",
        "\"flash\"",
        "'page_bytes' is missing: expected the unit of reading and programming, 512 to 1048576",
    ),
    ("rz56", "zones", "[[1, 61], [2]]", "'zones' is another list: expected [[cylinders, sectors of a track], ...]"),
    ("rz56", "zones", "[]", "'zones' is another list: expected [["),
    (
        "rz56",
        "zones",
        "[[1, 999_999], [1, 1]]",
        "'zones' is such that 'bytes' fits in 1 cylinders: expected 3 to 10000000 cylinders in use",
    ),
    (
        "rz56",
        "bytes",
        "9223372036854775807",
        "'bytes' is 9223372036854775807: expected its size, 1048576 to 1152921504606846976",
    ),
    ("rz56", "bytes", "92233720368547758070", "line 4:"),
    (
        "rz56",
        "overhead_ms",
        "1\noverhed = 2",
        "unknown figure 'overhed' for this kind of device. Did you mean 'overhead_ms'?",
    ),
    ("ssd-sata", "channels", "0", "'channels' is 0: expected the number of pages processed in parallel, 1 to 4096"),
    ("net-volume", "iops", "0", "'iops' is 0: expected operations a second, 1 to 1000000000"),
    (
        "object-store",
        "first_byte_p99_ratio",
        "0.5",
        "'first_byte_p99_ratio' is 0.5: expected the 99th percentile divided by the median, 1 to 1000",
    ),
    ("object-store", "connections", "= 3", "line"),
];

#[test]
fn a_larger_device_of_the_same_kind_has_the_same_figures() {
    for name in Profile::names() {
        let profile = Profile::named(name).unwrap();
        let end = 5 * profile.bytes() + 1;
        let larger = profile.stretched(end).unwrap();
        assert_eq!(larger.bytes(), 6 * profile.bytes(), "{name}");
        assert_eq!(profile.stretched(u64::MAX), None, "{name}");
        let mut device = Device::new(&larger, 1);
        assert!(device.start(0, read(end - 512, 512)).is_ok(), "{name}");
        if let (Model::Disk(small), Model::Disk(large)) = (profile.model(), larger.model()) {
            let count = |zones: &[(u64, u64)]| zones.iter().map(|zone| zone.0).sum::<u64>() as u32;
            let (few, many) = (count(&small.zones), count(&large.zones));
            assert_eq!(many, 6 * few);
            for (before, after) in [
                (small.seek.ms(1), large.seek.ms(1)),
                (small.seek.average_ms(few), large.seek.average_ms(many)),
                (small.seek.ms(few - 1), large.seek.ms(many - 1)),
            ] {
                assert!((after / before - 1.0).abs() < 0.01, "{name}: {before} ms, then {after} ms");
            }
        }
    }
}

#[test]
fn mistakes_in_a_profile_are_named() {
    for &(name, key, value, said) in MISTAKES {
        let error = Profile::parse(&changed(name, key, value)).expect_err(value).to_string();
        assert!(error.starts_with(said), "{name} with {key} = {value}:\n{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert_eq!(
        Profile::named("hdd-10").expect_err("none").to_string(),
        "there is no profile 'hdd-10': 'nigh devices' lists them. Did you mean 'hdd-10k'?"
    );
    let refused = |name: &str| Profile::named(name).expect_err(name).to_string();
    assert_eq!(refused("raid6-4x-hdd-7200"), "'raid' is '6': expected '0', '1' or '5'");
    assert_eq!(refused("raid1-1x-hdd-7200"), "'members' is 1: expected the number of members, 2 to 64");
    let nested = "raid0-2x-".repeat(100_000) + "hdd-7200";
    assert!(refused(&nested).ends_with("expected a device that is no array itself"));
    assert_eq!(
        refused("raid1-2x-hdd-72"),
        "there is no profile 'hdd-72': 'nigh devices' lists them. Did you mean 'hdd-7200'?"
    );
    let bytes = Profile::text("raid1-2x-hdd-7200").expect("an array").replace("raid =", "bytes = 4096\nraid =");
    let error = Profile::parse(&bytes).expect_err("its members have the size").to_string();
    assert_eq!(error, "unknown figure 'bytes' for this kind of device");
    assert_eq!(refused("raid5-hdd-7200"), "there is no profile 'raid5-hdd-7200': 'nigh devices' lists them");
}

#[test]
fn an_array_costs_what_its_members_do() {
    let device = |name: &str| Device::new(&Profile::named(name).expect("shipped members"), 1);
    let (mut one, mut stripe, mirror, mut parity) = (
        device("net-volume"),
        device("raid0-4x-net-volume"),
        device("raid1-2x-net-volume"),
        device("raid5-4x-net-volume"),
    );
    let chunk = 512 << 10;
    assert_eq!(stripe.bytes(), 4 * one.bytes());
    assert_eq!(mirror.bytes(), one.bytes());
    assert_eq!(parity.bytes(), 3 * one.bytes());
    let long = |device: &mut Device, bytes: u64| device.start(0, read(0, bytes)).expect("on it");
    // A read of a row takes as long as a chunk of one member, and a second row as much again.
    let chunk_ns = long(&mut one, chunk);
    assert!(long(&mut stripe, 4 * chunk) < 2 * chunk_ns);
    assert!(long(&mut parity, 3 * chunk) < 2 * chunk_ns);
    // A write that is a whole row needs no reads; one block needs them, so it takes a read longer.
    let mut slow = device("raid5-4x-net-volume");
    let whole_ns = slow.start(0, write(0, 3 * chunk)).expect("on it");
    let second = 1000 * MS;
    let small_ns = slow.start(second, write(9 * chunk, BLOCK)).expect("on it") - second;
    let mut volume = device("net-volume");
    let (read_ns, write_ns) = (450_000, 700_000);
    assert!(small_ns >= read_ns + write_ns, "{small_ns}");
    assert!(whole_ns < volume.start(0, write(0, chunk)).expect("on it") + 3 * MS, "{whole_ns}");
}
