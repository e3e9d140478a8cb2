//! A queue that is processed on the caller's thread, without a frontend and eventfds: for tests and fuzzing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nigh_service::Service;
use nigh_service::front::Export;
use vm_memory::{GuestAddress, GuestMemoryMmap};

use crate::mail::Mail;
use crate::ring::{Call, Place, Ring};
use crate::worker::{Common, Worker};

/// A queue of an export.
pub struct Dry {
    worker: Worker,
}

impl Dry {
    /// The queue of `entries` entries at the addresses of its descriptors, available and used ring; `None` if there is none.
    pub fn new(
        service: &Service,
        export: &Arc<Export>,
        memory: &Arc<GuestMemoryMmap<()>>,
        entries: u16,
        rings: [u64; 3],
        event_idx: bool,
    ) -> Option<Dry> {
        let [descriptors, available, used] = rings.map(GuestAddress);
        let place = Place { entries, descriptors, available, used, base: 0, event_idx };
        let ring = Ring::new(place, memory, &Call::default()).ok()?;
        let common = Common {
            cache: service.host().cache().clone(),
            export: export.clone(),
            id: 0,
            recorder: Arc::default(),
            stream: None,
            writeback: AtomicBool::new(true),
            failed: AtomicBool::new(false),
            poll: Duration::ZERO,
        };
        let mail = Arc::new(Mail::new(entries.into()).ok()?);
        Some(Dry { worker: Worker::new(&Arc::new(common), &mail, ring, None, None) })
    }

    /// Takes what is available, up to a batch, and waits until all of it is over. Returns whether there was anything; `None` if the queue is
    /// broken, and then nothing is in progress either.
    pub fn turn(&mut self) -> Option<bool> {
        let found = self.worker.turn();
        while self.worker.in_progress() > 0 {
            if !matches!(self.worker.turn(), Ok(true)) {
                std::thread::yield_now();
            }
        }
        found.ok()
    }

    /// Chains that became used.
    pub fn used(&self) -> u64 {
        self.worker.used()
    }

    /// Interrupts of the guest that were due.
    pub fn interrupts(&self) -> u64 {
        self.worker.interrupts()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use nigh_service::{ExportSettings, Settings};
    use nigh_testkit::virtio::raw_descriptor;
    use vm_memory::Bytes;

    use super::*;

    const ENTRIES: u16 = 256;
    const AVAILABLE: u64 = 16 * ENTRIES as u64;
    const USED: u64 = 8192;
    /// Headers, each with its status 16 bytes on.
    const HEADERS: u64 = 16384;
    const DATA: u64 = 65536;
    const BLOCK: u64 = 4096;

    /// A driver of a queue that reads blocks.
    struct Driver {
        memory: Arc<GuestMemoryMmap<()>>,
        dry: Dry,
        available: u16,
    }

    impl Driver {
        /// Reads blocks of the first 512, `count` at a time.
        fn read(&mut self, count: u16, from: u64) {
            for number in 0..count {
                let mut header = [0; 16];
                header[8..].copy_from_slice(&((from + u64::from(number)) % 512 * 8).to_le_bytes());
                self.memory.write_slice(&header, GuestAddress(HEADERS + 32 * u64::from(number))).unwrap();
                let at = AVAILABLE + 4 + 2 * u64::from(self.available % ENTRIES);
                self.memory.write_obj(3 * number, GuestAddress(at)).unwrap();
                self.available = self.available.wrapping_add(1);
            }
            // It wants to know of the last one only, as drivers do that wait for many.
            let event = GuestAddress(AVAILABLE + 4 + 2 * u64::from(ENTRIES));
            self.memory.write_obj(self.available.wrapping_sub(1), event).unwrap();
            self.memory.store(self.available, GuestAddress(AVAILABLE + 2), Ordering::Release).unwrap();
            while self.dry.turn().unwrap() {}
            let used: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
            assert_eq!(used, self.available);
        }
    }

    fn driver(service: &Service) -> Driver {
        let export = service.export("disk").unwrap();
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap());
        for number in 0..64u16 {
            let header = HEADERS + 32 * u64::from(number);
            let data = DATA + BLOCK * u64::from(number);
            let chain = [(header, 16, 1), (data, BLOCK as u32, 3), (header + 16, 1, 2)];
            for (at, (address, length, flags)) in (3 * number..).zip(chain) {
                let raw = raw_descriptor(address, length, flags, at + 1);
                memory.write_slice(&raw, GuestAddress(16 * u64::from(at))).unwrap();
            }
        }
        let dry = Dry::new(service, &export, &memory, ENTRIES, [0, AVAILABLE, USED], true).unwrap();
        Driver { memory, dry, available: 0 }
    }

    fn service() -> Service {
        let export = ExportSettings::new("disk", "memory:2M".parse().unwrap());
        Service::start(Settings::new(16 << 20, "lirs".parse().unwrap(), vec![export])).unwrap()
    }

    #[test]
    fn hits_allocate_nothing() {
        let service = service();
        let mut driver = driver(&service);
        for at in 0..4096 {
            driver.read(1, at);
        }
        let counted = allocation_counter::measure(|| {
            for at in 0..1000 {
                driver.read(if at % 2 == 0 { 1 } else { 16 }, at * 7);
            }
        });
        assert_eq!(counted.count_total, 0);
        service.shut_down().unwrap();
    }

    #[test]
    fn sixty_four_at_a_time_are_an_interrupt() {
        let service = service();
        let mut driver = driver(&service);
        for at in 0..64 {
            driver.read(64, at * 8);
        }
        let before = driver.dry.interrupts();
        for at in 0..100 {
            driver.read(64, at * 8);
        }
        assert_eq!(driver.dry.interrupts() - before, 100);
        service.shut_down().unwrap();
    }
}
