//! Models beside the published figures of their devices, and beside the estimates that their profiles are made for.

use nigh_device::{Device, Kind, Model, Profile, Request, SECTOR_BYTES};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;

/// The figure that is measured.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// Mean time of a request of 4 KiB at a random place, one at a time, in ms.
    Random(Kind),
    /// Mean time between the outermost and the innermost cylinders, without rotation, transfer and overhead, in ms.
    FullStroke(Kind),
    /// Mean time of writing one sector again and again, in ms: a rotation.
    Rewrite,
    /// Requests of 256 KiB one after the other from the beginning, two outstanding where the device takes them, in
    /// 10^6 bytes a second.
    Sequential(Kind),
    /// The same with 32 outstanding.
    SequentialDeep(Kind),
    /// Requests of 4 KiB at random places, this many outstanding, a second.
    PerSecond(Kind, usize),
    /// The time that this many of 100 random requests of 4 KiB take at most, in ms.
    Percentile(u32),
}

use Figure::{FullStroke, PerSecond, Percentile, Random, Rewrite, Sequential, SequentialDeep};
use Kind::{Read, Write};

/// Profile, figure, what its maker or a paper published or is estimated here, and by how much the model may differ. A
/// random request of a disk has the published seek and latency, the overhead of its profile and the transfer. Sequential
/// reads of a disk whose maker states the rate of a track have that, without the switch from track to track: rate * t /
/// (t + switch).
const CASES: &[(&str, Figure, f64, f64)] = &[
    // Average seek 6.5 ms, latency 3.0 ms.
    ("ultrastar-18zx", Random(Read), 6.5 + 3.0 + 0.25 + 0.12, 0.013),
    // DULO, section 4.1.1: latency 2.99 ms, full seek of reads and writes 12.2 and 13.2 ms.
    ("hdd-10k", Random(Read), 5.4 + 2.99 + 0.28 + 0.19, 0.013),
    ("hdd-10k", Random(Write), 6.4 + 2.99 + 0.28 + 0.19, 0.013),
    ("hdd-10k", FullStroke(Read), 12.2, 0.009),
    ("hdd-10k", FullStroke(Write), 13.2, 0.009),
    ("hdd-10k", Rewrite, 2.0 * 2.99, 0.001),
    ("hdd-10k", Sequential(Read), 21.75 * 5.98 / (5.98 + 0.8), 0.01),
    // ACFS, section 5: 16 ms, 8.3 ms, 1.875 MB/s; 10.5 ms, 5.54 ms, 3.3 MB/s.
    ("rz56", Random(Read), 16.0 + 8.3 + 1.49 + 2.18, 0.013),
    ("rz56", Rewrite, 2.0 * 8.3, 0.005),
    ("rz56", Sequential(Read), 1.875 * 16.67 / (16.67 + 2.1), 0.02),
    ("rz26", Random(Read), 10.5 + 5.54 + 1.49 + 1.24, 0.013),
    ("rz26", Rewrite, 2.0 * 5.54, 0.001),
    ("rz26", Sequential(Read), 3.3 * 11.08 / (11.08 + 0.9), 0.02),
    // Western Digital's specification: 8.9 and 10.9 ms, full stroke 21 ms, latency 4.2 ms.
    ("wd400bb", Random(Read), 8.9 + 4.17 + 0.3 + 0.12, 0.013),
    ("wd400bb", Random(Write), 10.9 + 4.17 + 0.3 + 0.12, 0.013),
    ("wd400bb", FullStroke(Read), 21.0, 0.009),
    ("wd400bb", Rewrite, 2.0 * 4.167, 0.001),
    // Western Digital's OEM specification of the HC310: 7.4 and 8.2 ms, latency 4.16 ms. 255 MB/s: the profile's estimate.
    ("hdd-7200", Random(Read), 7.4 + 4.16 + 0.1 + 0.02, 0.02),
    ("hdd-7200", Random(Write), 8.2 + 4.16 + 0.1 + 0.02, 0.02),
    ("hdd-7200", Sequential(Read), 255.0, 0.01),
    // Intel's product specification of the S4500: 110 and 52 us, 72 000 and 33 000 a second, 500 and 490 MB/s.
    ("ssd-sata", Random(Read), 0.110, 0.02),
    ("ssd-sata", Random(Write), 0.052, 0.02),
    ("ssd-sata", PerSecond(Read, 32), 72_000.0, 0.05),
    ("ssd-sata", PerSecond(Write, 32), 33_000.0, 0.05),
    ("ssd-sata", Sequential(Read), 500.0, 0.02),
    ("ssd-sata", Sequential(Write), 490.0, 0.02),
    // Lenovo's product guide of the P4500: 85 and 20 us, 490 000 and 38 000 a second, 3.2 and 1.05 GB/s.
    ("ssd-nvme", Random(Read), 0.085, 0.02),
    ("ssd-nvme", Random(Write), 0.020, 0.02),
    ("ssd-nvme", PerSecond(Read, 256), 490_000.0, 0.05),
    ("ssd-nvme", PerSecond(Write, 256), 38_000.0, 0.05),
    ("ssd-nvme", Sequential(Read), 3200.0, 0.05),
    ("ssd-nvme", Sequential(Write), 1050.0, 0.05),
    // Intel's announcement of the P5500: 1 000 000 and 130 000 a second, 7000 and 4300 MB/s. 80 us: the profile's
    // estimate.
    ("ssd-nvme-gen4", Random(Read), 0.080, 0.02),
    ("ssd-nvme-gen4", PerSecond(Read, 1024), 1_000_000.0, 0.05),
    ("ssd-nvme-gen4", PerSecond(Write, 256), 130_000.0, 0.05),
    ("ssd-nvme-gen4", SequentialDeep(Read), 7000.0, 0.05),
    ("ssd-nvme-gen4", Sequential(Write), 4300.0, 0.05),
    // Samsung's announcement of the PM1743: 2 500 000 and 250 000 a second, 13 000 and 6600 MB/s. 65 us: estimate.
    ("ssd-nvme-gen5", Random(Read), 0.065, 0.02),
    ("ssd-nvme-gen5", PerSecond(Read, 1024), 2_500_000.0, 0.05),
    ("ssd-nvme-gen5", PerSecond(Write, 256), 250_000.0, 0.05),
    ("ssd-nvme-gen5", SequentialDeep(Read), 13_000.0, 0.05),
    ("ssd-nvme-gen5", Sequential(Write), 6600.0, 0.05),
    // Micron's specifications of the 5210: 90 000 and 4500 a second, 540 and 360 MB/s. 150 us: estimate.
    ("ssd-sata-qlc", Random(Read), 0.150, 0.02),
    ("ssd-sata-qlc", PerSecond(Read, 32), 90_000.0, 0.05),
    ("ssd-sata-qlc", PerSecond(Write, 32), 4500.0, 0.05),
    ("ssd-sata-qlc", Sequential(Read), 540.0, 0.02),
    ("ssd-sata-qlc", Sequential(Write), 360.0, 0.02),
    // Documentation of the clouds: operations a second and rate of a volume.
    ("aws-gp3", PerSecond(Read, 64), 3000.0, 0.01),
    ("aws-gp3", Sequential(Read), 131.072, 0.01),
    ("aws-io2", PerSecond(Read, 256), 16_000.0, 0.01),
    ("azure-p30", PerSecond(Read, 64), 5000.0, 0.01),
    ("azure-p30", Sequential(Read), 200.0, 0.02),
    ("azure-premium-v2", PerSecond(Read, 64), 3000.0, 0.01),
    ("azure-premium-v2", Sequential(Read), 124.94, 0.02),
    ("gcp-pd-balanced", PerSecond(Read, 64), 6144.0, 0.01),
    ("gcp-pd-ssd", PerSecond(Read, 128), 15_000.0, 0.01),
    // Arrays of volumes of 3000 operations a second: a write in a row of parity is two reads and two writes, a mirror
    // writes twice.
    ("raid0-4x-net-volume", PerSecond(Read, 256), 12_000.0, 0.02),
    ("raid0-4x-net-volume", PerSecond(Write, 256), 12_000.0, 0.02),
    ("raid1-2x-net-volume", PerSecond(Read, 128), 6000.0, 0.02),
    ("raid1-2x-net-volume", PerSecond(Write, 128), 3000.0, 0.02),
    ("raid5-4x-net-volume", PerSecond(Read, 256), 12_000.0, 0.02),
    ("raid5-4x-net-volume", PerSecond(Write, 256), 3000.0, 0.03),
    ("raid5-5x-net-volume", PerSecond(Write, 320), 3750.0, 0.03),
    // The profile's estimates: 3000 a second, 125 MiB/s.
    ("net-volume", PerSecond(Read, 64), 3000.0, 0.01),
    ("net-volume", Sequential(Read), 131.072, 0.01),
    // The profile's estimates: 100 to 200 ms, 85 to 90 MB/s a request.
    ("object-store", Percentile(50), 100.0, 0.02),
    ("object-store", Percentile(99), 200.0, 0.03),
];

struct Driver {
    device: Device,
    random: Xoshiro256PlusPlus,
    now: u64,
}

impl Driver {
    fn new(profile: &Profile) -> Driver {
        Driver { device: Device::new(profile, 7), random: Xoshiro256PlusPlus::seed_from_u64(7), now: 0 }
    }

    /// Time of one request that is alone, in ns.
    fn alone(&mut self, kind: Kind, offset_bytes: u64, bytes: u64) -> u64 {
        let before = self.now;
        self.now = self.device.start(before, Request { kind, offset_bytes, bytes }).expect("on the device");
        self.now - before
    }

    fn random_block(&mut self) -> u64 {
        self.random.random_range(0..self.device.bytes() / BLOCK) * BLOCK
    }

    /// This many requests, up to `outstanding` at a time; how long they take together, in ns.
    fn together(
        &mut self,
        count: u64,
        outstanding: usize,
        kind: Kind,
        bytes: u64,
        at: impl Fn(&mut Driver, u64) -> u64,
    ) -> u64 {
        let mut ends = std::collections::BinaryHeap::new();
        let begin = self.now;
        for n in 0..count {
            if ends.len() == outstanding.min(self.device.parallel()) {
                let std::cmp::Reverse(end) = ends.pop().expect("one at least is outstanding");
                self.now = self.now.max(end);
            }
            let request = Request { kind, offset_bytes: at(self, n), bytes };
            ends.push(std::cmp::Reverse(self.device.start(self.now, request).expect("on the device")));
        }
        self.now = ends.into_iter().map(|std::cmp::Reverse(end)| end).max().expect("one request at least");
        self.now - begin
    }
}

fn measured(profile: &Profile, figure: Figure) -> f64 {
    let mut driver = Driver::new(profile);
    let ms = |ns: u64| ns as f64 / 1e6;
    match figure {
        Random(kind) => {
            let count = 20_000;
            let sum: u64 = (0..count)
                .map(|_| {
                    let at = driver.random_block();
                    driver.alone(kind, at, BLOCK)
                })
                .sum();
            ms(sum) / count as f64
        }
        FullStroke(kind) => {
            let Model::Disk(disk) = profile.model() else { panic!("not a disk") };
            // Whole tracks at each edge, so that all angles are as likely. Hits of the buffer took no seek.
            let (outer, inner) = (40 * disk.zones[0].1, 40 * disk.zones[disk.zones.len() - 1].1);
            let mut times = Vec::new();
            for n in 0..6000 {
                let sector = match n % 2 {
                    0 => driver.random.random_range(0..outer),
                    _ => profile.bytes() / SECTOR_BYTES - 1 - driver.random.random_range(0..inner),
                };
                let seeks = driver.device.counters().seeks;
                let time = driver.alone(kind, sector * SECTOR_BYTES, SECTOR_BYTES);
                times.extend((driver.device.counters().seeks > seeks).then(|| ms(time)));
            }
            assert!(times.len() > 3000);
            times.iter().sum::<f64>() / times.len() as f64 - disk.overhead_ms - 30_000.0 / disk.rpm
        }
        Rewrite => ms((0..101).map(|n| driver.alone(Write, 1 << 20, SECTOR_BYTES) * u64::from(n > 0)).sum()) / 100.0,
        Sequential(kind) | SequentialDeep(kind) => {
            let (count, bytes) = (1000, 256 << 10);
            let outstanding = if matches!(figure, Sequential(_)) { 2 } else { 32 };
            let ns = driver.together(count, outstanding, kind, bytes, |_, n| n * bytes);
            (count * bytes) as f64 / ns as f64 * 1e3
        }
        PerSecond(kind, outstanding) => {
            // The first half fills the drive's memory.
            let [_, ns] =
                [(); 2].map(|()| driver.together(100_000, outstanding, kind, BLOCK, |driver, _| driver.random_block()));
            100_000.0 / ns as f64 * 1e9
        }
        Percentile(percent) => {
            let mut times: Vec<u64> = (0..20_000)
                .map(|_| {
                    let at = driver.random_block();
                    driver.alone(Read, at, BLOCK)
                })
                .collect();
            times.sort_unstable();
            ms(times[times.len() * percent as usize / 100])
        }
    }
}

#[test]
fn models_have_the_figures_of_their_devices() {
    let mut wrong = String::new();
    for &(name, figure, expected, tolerance) in CASES {
        let profile = Profile::named(name).expect(name);
        let measured = measured(&profile, figure);
        let off = measured / expected - 1.0;
        println!(
            "{name:<16} {:<22} expected {expected:>10.3} model {measured:>10.3} {:>+6.2} %",
            format!("{figure:?}"),
            off * 100.0
        );
        if off.abs() > tolerance {
            wrong += &format!(
                "\n{name} {figure:?}: {measured:.4} and not {expected:.4}: {:.2} % off, more than {:.1} %",
                off * 100.0,
                tolerance * 100.0
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
