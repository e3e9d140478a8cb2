//! Whatever a guest puts into its memory and its queue, each chain that it makes available is used once or the queue is broken, and the disk
//! has what was written to it.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use nigh_service::{ExportSettings, Service, Settings};
use nigh_vhost::dry::Dry;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Bytes of the guest's first region, of which an input is the beginning, and of its second one.
const FIRST: usize = 64 << 10;
const SECOND: usize = 4096;
/// The second region: not behind the first one.
const BEYOND: u64 = 1 << 32;

/// Less memory than the disk has, so that blocks are evicted.
fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let export = ExportSettings::new("disk", "memory:1M".parse().expect("a target"));
        let settings = Settings::new(256 << 10, "lru".parse().expect("a policy"), vec![export]);
        Service::start(settings).expect("a server")
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, image)) = data.split_first() else { return };
    let entries = 1u16 << (mode & 7);
    let available = 16 * u64::from(entries);
    let used = (available + 6 + 2 * u64::from(entries)).next_multiple_of(4);
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), FIRST), (GuestAddress(BEYOND), SECOND)]);
    let memory = Arc::new(memory.expect("memory"));
    let image = &image[..image.len().min(FIRST)];
    memory.write_slice(image, GuestAddress(0)).expect("it fits");
    let service = service();
    let export = service.export("disk").expect("it is there");
    let index = |at| -> u16 { memory.read_obj(GuestAddress(at)).expect("it is in memory") };
    let before = index(used + 2);
    let rings = [0, available, used];
    let Some(mut dry) = Dry::new(service, &export, &memory, entries, rings, mode & 8 != 0) else { return };
    let mut turns = 0;
    let end = loop {
        match dry.turn() {
            Some(true) if turns < 8 => turns += 1,
            end => break end,
        }
    };
    // The writes to its rings may have made more available.
    if end == Some(false) && turns == 1 && index(available + 2) <= entries {
        let offered = index(available + 2);
        assert!(index(used + 2).wrapping_sub(before) <= offered.max(entries), "a chain is used twice");
    }
});
