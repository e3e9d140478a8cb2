//! Random memory of a guest: no panic, no chain that stays in progress, and each chain is used at most once. `fuzz/fuzz_targets/vhost.rs` does this with
//! what it learns.

use std::sync::Arc;

use nigh_service::{ExportSettings, Service, Settings};
use nigh_testkit::runs;
use nigh_testkit::virtio::raw_descriptor;
use nigh_testkit::virtio::vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use nigh_vhost::dry::Dry;

const MEMORY: usize = 64 << 10;
/// A second region, not behind the first one.
const BEYOND: u64 = 1 << 32;
const KINDS: [u32; 8] = [0, 1, 4, 8, 11, 13, 2, u32::MAX];

/// A number that is small, at a border, or anything.
fn number(borders: &[u64]) -> u64 {
    match fastrand::u8(0..4) {
        0 => fastrand::u64(0..64),
        1 => borders[fastrand::usize(0..borders.len())].wrapping_add(fastrand::u64(0..3)).wrapping_sub(1),
        2 => fastrand::u64(0..MEMORY as u64),
        _ => fastrand::u64(..) >> fastrand::u32(0..64),
    }
}

fn memory() -> Arc<GuestMemoryMmap<()>> {
    let regions = [(GuestAddress(0), MEMORY), (GuestAddress(BEYOND), 4096)];
    Arc::new(GuestMemoryMmap::from_ranges(&regions).unwrap())
}

/// A table of descriptors of which many make sense.
fn descriptors(memory: &GuestMemoryMmap<()>, table: u64, entries: u16) {
    for at in 0..entries {
        let borders = [MEMORY as u64, BEYOND, BEYOND + 4096, u64::MAX, 1 << 63];
        let address = if fastrand::u8(0..4) > 0 { 32768 + 64 * fastrand::u64(0..256) } else { number(&borders) };
        let length = match fastrand::u8(0..6) {
            0 => 1,
            1 | 2 => 16,
            3 => 512 * fastrand::u32(0..9),
            4 => fastrand::u32(0..64) * 16,
            _ => number(&[u32::MAX.into(), 1 << 31]) as u32,
        };
        let flags = if fastrand::u8(0..8) > 0 { fastrand::u16(0..4) } else { fastrand::u16(0..8) };
        let next = if fastrand::u8(0..4) > 0 { at + 1 } else { fastrand::u16(0..entries + 2) };
        let place = GuestAddress(table + 16 * u64::from(at));
        // A table in the data may be at the end.
        let _ = memory.write_slice(&raw_descriptor(address, length, flags, next), place);
    }
}

#[test]
fn random_queues_and_chains() {
    let export = ExportSettings::new("disk", "memory:1M".parse().unwrap());
    let service = Service::start(Settings::new(256 << 10, "lru".parse().unwrap(), vec![export])).unwrap();
    let export = service.export("disk").unwrap();
    let (mut used_in_all, mut broken) = (0u64, 0);
    for seed in 0..runs(3000, 300_000) {
        fastrand::seed(seed);
        let memory = memory();
        let entries = 1u16 << fastrand::u8(0..8);
        let available = 16 * u64::from(entries);
        let used = (available + 6 + 2 * u64::from(entries)).next_multiple_of(4);
        descriptors(&memory, 0, entries);
        for block in 0..256u64 {
            let at = GuestAddress(32768 + 64 * block);
            let mut header = [0; 16];
            header[..4].copy_from_slice(&KINDS[fastrand::usize(0..KINDS.len())].to_le_bytes());
            header[8..].copy_from_slice(&number(&[2048, 1 << 55, u64::MAX]).to_le_bytes());
            memory.write_slice(&header, at).unwrap();
            if block % 8 == 0 {
                descriptors(&memory, at.0 + 16, 3);
            }
        }
        let offered = if fastrand::u8(0..8) > 0 { fastrand::u16(0..=entries) } else { fastrand::u16(..) };
        let beyond = fastrand::u8(0..16) == 0;
        for at in 0..u64::from(entries) {
            let head = if beyond { fastrand::u16(..) } else { fastrand::u16(0..entries) };
            memory.write_obj(head, GuestAddress(available + 4 + 2 * at)).unwrap();
        }
        memory.write_obj(offered, GuestAddress(available + 2)).unwrap();
        let event_idx = fastrand::bool();
        let Some(mut dry) = Dry::new(&service, &export, &memory, entries, [0, available, used], event_idx) else {
            continue;
        };
        let mut turns = 0;
        while turns < 8 {
            match dry.turn() {
                Some(true) => turns += 1,
                Some(false) => break,
                None => {
                    broken += 1;
                    break;
                }
            }
        }
        used_in_all += dry.used();
        assert!(dry.used() <= 8 * 64, "seed {seed}");
    }
    println!("{used_in_all} chains became used, {broken} queues were broken");
    assert!(used_in_all > 1000 && broken > 10, "{used_in_all} chains, {broken} broken");
    service.shut_down().unwrap();
}
