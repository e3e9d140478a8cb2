//! Figures 4 to 14 of LPU: I/O rates of caches that use what blocks contain, in virtual time, for virtual machines on one disk.
//!
//! Each machine issues a request when it has the reply to the one before. A read of a block that is not in the cache goes to the
//! disk; writes go there later, when more than an eighth of the cache is dirty. The caches are those of `nigh sim --contents`, which
//! order blocks as LRU does. For contents, a processor takes the times of `nigh_sim::contents::times`. A run ends when the first
//! machine has no more requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use clap::ValueEnum;
use nigh_content::generated::{Kind as Disks, Machines};
use nigh_content::{BLOCK_BYTES, Scheme as Encoding};
use nigh_device::{Device, Kind, Profile, Request};
use nigh_policy::Slot;
use nigh_sim::References;
use nigh_sim::contents::replay::{Cache, Scheme};
use nigh_sim::contents::{Contents as BlockContents, Source};
use nigh_sim::threads::in_threads;
use nigh_trace::generate::{Common, Generator};

use crate::history::load;

const MIB: u64 = 1 << 20;
const PROFILE: &str = "hdd-7200";
/// Blocks of a machine.
const BLOCKS: usize = 60_000;
/// Requests of all machines, of which the first third fills the cache.
const REQUESTS: u64 = 300_000;
const SIZES: [u64; 3] = [64, 256, 1024];
/// The size of section 4.2.1's hit ratios and of figure 13, in MiB. LRU hits 37 and 49 % there in the paper, and so it does here.
const SIZE: u64 = 256;
/// References of a machine, by Zipf's law.
const ALPHA: f64 = 0.55;
/// One block of so many in the cache can be dirty.
const DIRTY: u32 = 8;
/// Requests of a transaction, and what the machine computes for each, in ns.
const TRANSACTION: u64 = 10;
const THINK_NS: u64 = 1_000_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Figures 4 to 9: five machines with the same workload, cache sizes, reads to writes of 3:1 and 1:1
    Sizes,
    /// Figure 10: five machines with different workloads
    Mixed,
    /// Figures 11 and 12: what applications do in a second, and how long a processor computes for it
    Applications,
    /// Figure 13: LPU's blocks by kind
    Blocks,
    /// Figure 14: one to ten machines
    Machines,
}

/// Contents of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contents {
    /// Installed packages
    Packages,
    /// Installed packages, and three of ten blocks with zeros
    Zeros,
    /// Nearly empty pages of a database
    Database,
}

impl Contents {
    /// The disks of so many machines.
    fn machines(self, machines: usize, blocks: usize) -> Machines {
        let (kind, zeros) = match self {
            Contents::Packages => (Disks::Packages, 0.0),
            Contents::Zeros => (Disks::Packages, 0.3),
            Contents::Database => (Disks::Database, 0.0),
        };
        Machines::of_kind(1, machines, blocks, kind, zeros)
    }
}

const CACHES: [Scheme; 6] = [
    Scheme::None,
    Scheme::Dedup,
    Scheme::Lpu,
    Scheme::LpuDedup,
    Scheme::Encoded(Encoding::Lz4),
    Scheme::Encoded(Encoding::Sketch),
];

/// Requests of machines, and what their blocks contain.
struct Work {
    references: References,
    contents: BlockContents,
    /// By machine, which of the references are its own.
    own: Vec<Vec<u32>>,
}

impl Work {
    /// `workloads` is a workload for each machine.
    fn new(kind: Contents, workloads: &[String], requests: u64, writes: f64) -> anyhow::Result<Work> {
        let common = Common { requests, writes, ..Common::default() };
        let mut generator = Generator::parse(&workloads.join("+"), &common)?;
        let references = load(&mut *generator, BLOCK_BYTES as u32, None)?;
        let machines = kind.machines(workloads.len(), BLOCKS);
        let contents = BlockContents::new(&references, Source::Generated(machines), 1, 2)?;
        let mut own = vec![Vec::new(); workloads.len()];
        for (at, &id) in (0..).zip(&references.ids) {
            own[references.blocks[id as usize].index as usize / BLOCKS].push(at);
        }
        Ok(Work { references, contents, own })
    }
}

/// What a run found, behind its first third.
#[derive(Clone, Copy, Default)]
struct Rate {
    requests: u64,
    hits: u64,
    seconds: f64,
    /// Processor time for contents.
    processor_s: f64,
    /// The shares of LPU's blocks that are reference, associate and independent blocks, and the bytes of differences.
    lpu: Option<([f64; 3], u64)>,
}

impl Rate {
    fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

/// The disk: a request after the other.
struct Disk {
    device: Device,
    free_ns: u64,
}

impl Disk {
    fn transfer(&mut self, kind: Kind, block: u64, now_ns: u64) -> u64 {
        let bytes = BLOCK_BYTES as u64;
        let request = Request { kind, offset_bytes: block * bytes, bytes };
        self.free_ns = self.device.start(now_ns.max(self.free_ns), request).expect("machines fit on the disk");
        self.free_ns
    }
}

/// Blocks that are to be written, the oldest first.
#[derive(Default)]
struct Dirty {
    queue: VecDeque<u32>,
    there: HashSet<u32>,
}

fn simulate(work: &Work, scheme: Scheme, capacity: u32, think_ns: u64) -> Rate {
    let Work { references, contents, own } = work;
    let mut cache = Cache::new(contents, scheme, references.distinct(), capacity);
    let mut disk = Disk { device: Device::new(&Profile::named(PROFILE).expect("a profile of nigh"), 1), free_ns: 0 };
    let mut dirty = Dirty::default();
    let mut next = vec![0; own.len()];
    let mut machines: BinaryHeap<Reverse<(u64, usize)>> = (0..own.len()).map(|machine| Reverse((0, machine))).collect();
    let (mut rate, mut begin_ns, mut end_ns, mut done) = (Rate::default(), 0, 0, 0);
    let warmup = references.ids.len() as u64 / 3;
    while let Some(Reverse((now_ns, machine))) = machines.pop() {
        // Until one of them is at its end, all machines run.
        let Some(&at) = own[machine].get(next[machine]) else { break };
        next[machine] += 1;
        let id = references.ids[at as usize];
        let block = references.blocks[id as usize].index;
        let write = references.writes.of(at as usize);
        let access = cache.access(at as usize, Slot(id), write);
        if done == warmup {
            begin_ns = now_ns;
        }
        let ready_ns = now_ns + access.processor_ns;
        let mut reply_ns = ready_ns;
        if !access.hit && !write {
            reply_ns = disk.transfer(Kind::Read, block, ready_ns);
        }
        if write && dirty.there.insert(id) {
            dirty.queue.push_back(id);
            if dirty.queue.len() > (capacity / DIRTY) as usize {
                let oldest = dirty.queue.pop_front().expect("one at least");
                dirty.there.remove(&oldest);
                disk.transfer(Kind::Write, references.blocks[oldest as usize].index, ready_ns);
            }
        }
        if done >= warmup {
            rate.requests += 1;
            rate.hits += u64::from(access.hit);
            rate.processor_s += access.processor_ns as f64 / 1e9;
        }
        done += 1;
        end_ns = end_ns.max(reply_ns);
        machines.push(Reverse((reply_ns + think_ns, machine)));
    }
    rate.seconds = (end_ns - begin_ns) as f64 / 1e9;
    rate.lpu = cache.lpu().map(|(_, census)| {
        let share = |blocks: u32| f64::from(blocks) / f64::from(census.cached.max(1));
        let kinds = [census.references, census.associates, census.independents].map(share);
        (kinds, u64::from(census.delta_blocks) * u64::from(nigh_content::lpu::DELTA_BLOCK_BYTES))
    });
    rate
}

/// Every cache at each size, in MiB: the caches' rates by size.
fn rates(work: &Work, sizes: &[u64], think_ns: u64) -> Vec<Vec<Rate>> {
    let jobs: Vec<_> = sizes.iter().flat_map(|&size| CACHES.map(|cache| (size, cache))).collect();
    let runs = in_threads(&jobs, 2, |&(size, cache)| {
        simulate(work, cache, (size * MIB / BLOCK_BYTES as u64) as u32, think_ns)
    });
    runs.chunks(CACHES.len()).map(<[Rate]>::to_vec).collect()
}

/// A line for each cache, a column for each size or number of machines. `figures` are a rate, with so many digits, and
/// what is printed behind it and its ratio to the first line's.
fn print(head: &str, columns: &[String], rates: &[Vec<Rate>], digits: usize, figures: impl Fn(&Rate) -> (f64, String)) {
    println!("  {head:18}{}", columns.iter().map(|column| format!("{column:>24}")).collect::<String>());
    for (at, &cache) in CACHES.iter().enumerate() {
        print!("  {:18}", cache.name());
        for rates in rates {
            let ((rate, more), (first, _)) = (figures(&rates[at]), figures(&rates[0]));
            print!("{rate:>9.digits$} {:>5.2} {more:>8}", rate / first);
        }
        println!();
    }
}

fn print_rates(columns: &[String], rates: &[Vec<Rate>]) {
    print("I/O a second (hits)", columns, rates, 0, |rate| {
        let hits = 100.0 * rate.hits as f64 / rate.requests as f64;
        (rate.per_second(), format!("({hits:.2})"))
    });
}

fn same(workload: &str, machines: usize) -> Vec<String> {
    vec![workload.to_owned(); machines]
}

/// Prints the parts with each of these contents.
pub(crate) fn run(parts: &[Part], contents: &[Contents]) -> anyhow::Result<()> {
    println!("disk {PROFILE}; rates also as multiples of the first line's; a third of the requests fill the cache");
    for &kind in contents {
        for &part in parts {
            run_part(part, kind)?;
        }
    }
    Ok(())
}

fn run_part(part: Part, kind: Contents) -> anyhow::Result<()> {
    let sizes = SIZES.map(|size| format!("{size} MiB"));
    let own = format!("zipf:blocks={BLOCKS}:alpha={ALPHA}");
    let five = |writes| Work::new(kind, &same(&own, 5), REQUESTS, writes);
    let contents = kind.to_possible_value().expect("it has a name");
    let contents = contents.get_name();
    match part {
        Part::Sizes => {
            for writes in [0.25, 0.5] {
                println!("\n{contents}, figures 4 to 9: five machines of {BLOCKS} blocks, {:.0} % writes", 100.0 * writes);
                print_rates(&sizes, &rates(&five(writes)?, &SIZES, 0));
            }
        }
        Part::Mixed => {
            println!("\n{contents}, figure 10: five machines, each with a workload of its own, 25 % writes");
            let mixed = [
                own.clone(),
                format!("zipf:blocks={BLOCKS}:alpha=0.4:writes=0.5"),
                format!("loop:blocks={}", BLOCKS / 2),
                format!("uniform:blocks={}", BLOCKS / 2),
                format!("zipf:blocks={BLOCKS}:alpha=0.9"),
            ];
            let mixed: Vec<String> = mixed
                .iter()
                .enumerate()
                .map(|(machine, workload)| format!("{workload}:region={}", machine * BLOCKS))
                .collect();
            println!("  {}", mixed.join("\n  "));
            print_rates(&sizes, &rates(&Work::new(kind, &mixed, REQUESTS, 0.25)?, &SIZES, 0));
        }
        Part::Applications => {
            for (figure, writes) in [(11, 0.25), (12, 0.5)] {
                println!(
                    "\n{contents}, figure {figure}: five machines, {:.0} % writes; a transaction is {TRANSACTION} requests, before each of \
                     which a machine computes for {:.0} ms",
                    100.0 * writes,
                    THINK_NS as f64 / 1e6
                );
                let found = rates(&five(writes)?, &[SIZE], THINK_NS);
                print("transactions/s, cpu", &[format!("{SIZE} MiB")], &found, 1, |rate| {
                    let computed = rate.processor_s + rate.requests as f64 * THINK_NS as f64 / 1e9;
                    let share = 100.0 * computed / rate.seconds / 5.0;
                    (rate.per_second() / TRANSACTION as f64, format!("{share:.1} %"))
                });
            }
        }
        Part::Blocks => {
            println!("\n{contents}, figure 13: LPU's blocks at the end, {SIZE} MiB, five machines");
            println!("  {:>8}{:>12}{:>12}{:>13}{:>10}", "writes", "reference", "associate", "independent", "deltas");
            for writes in [0.25, 0.5] {
                let rate = simulate(&five(writes)?, Scheme::Lpu, (SIZE * MIB / BLOCK_BYTES as u64) as u32, 0);
                let (kinds, bytes) = rate.lpu.expect("LPU counts its blocks");
                let [reference, associate, independent] = kinds.map(|share| format!("{:.1} %", 100.0 * share));
                println!(
                    "  {:>8}{reference:>12}{associate:>12}{independent:>13}{:>10}",
                    format!("{:.0} %", 100.0 * writes),
                    format!("{:.1} MiB", bytes as f64 / MIB as f64)
                );
            }
        }
        Part::Machines => {
            println!("\n{contents}, figure 14: machines of {BLOCKS} blocks, {SIZE} MiB, 25 % writes");
            let machines = [1, 2, 5, 10];
            let mut found = Vec::new();
            for count in machines {
                let work = Work::new(kind, &same(&own, count), REQUESTS / 5 * count as u64, 0.25)?;
                found.extend(rates(&work, &[SIZE], 0));
            }
            print_rates(&machines.map(|count| count.to_string()), &found);
        }
    }
    Ok(())
}
