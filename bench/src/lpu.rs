//! Figures 4 to 14 of LPU: I/O rates of caches that use what blocks contain, in virtual time, for virtual machines on one disk.
//!
//! Each machine issues a request when it has the reply to the one before. A read of a block that is not in the cache goes to the
//! disk; writes go there later, when more than an eighth of the cache is dirty. The caches are those of `nigh sim --contents`, which
//! order blocks as LRU does. For contents, a processor takes the times of `nigh_sim::contents::times`. A run ends when the first
//! machine has no more requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use clap::ValueEnum;
use nigh_content::generated::Machines;
use nigh_content::{BLOCK_BYTES, Scheme as Encoding};
use nigh_device::{Device, Kind, Profile, Request};
use nigh_policy::Slot;
use nigh_sim::References;
use nigh_sim::contents::replay::{Cache, Scheme};
use nigh_sim::contents::{Contents, Source};
use nigh_sim::threads::in_threads;
use nigh_trace::generate::{Common, Generator};

use crate::history::load;

const MIB: u64 = 1 << 20;
const PROFILE: &str = "hdd-7200";
/// Blocks of a machine.
const BLOCKS: usize = 60_000;
/// Requests of all machines, of which the first third fills the cache.
const REQUESTS: u64 = 600_000;
const SIZES: [u64; 5] = [64, 128, 256, 512, 1024];
/// One block of this many in the cache can be dirty.
const DIRTY: u32 = 8;
/// Requests of a transaction, and what the machine computes for each, in ns.
const TRANSACTION: u64 = 10;
const THINK_NS: u64 = 1_000_000;
/// LPU's own times (section 4.2.3), in ns: for an access to an associate block, and for a difference that is encoded.
const PUBLISHED_DECODE_NS: f64 = 60_000.0;
const PUBLISHED_ENCODE_NS: f64 = 400_000.0;
/// How often LPU's associate blocks are counted.
const CENSUS: u64 = 50_000;

/// The part that is measured.
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

/// A cache, and whether it takes LPU's published times.
const CACHES: [(Scheme, bool); 8] = [
    (Scheme::None, false),
    (Scheme::Dedup, false),
    (Scheme::Lpu, true),
    (Scheme::Lpu, false),
    (Scheme::Encoded(Encoding::Lz4), false),
    (Scheme::Encoded(Encoding::Zstd), false),
    (Scheme::Encoded(Encoding::Sketch), false),
    (Scheme::Encoded(Encoding::SketchZstd), false),
];

fn name((scheme, is_published): (Scheme, bool)) -> String {
    if is_published { format!("{scheme} (its times)") } else { scheme.to_string() }
}

/// Requests of machines, and what their blocks contain.
struct Work {
    references: References,
    contents: Contents,
    /// By machine, which of the references are its own.
    own: Vec<Vec<u32>>,
}

impl Work {
    /// `workloads` is a workload for each machine, which has `blocks` blocks.
    fn new(workloads: &[String], blocks: usize, requests: u64, writes: f64) -> anyhow::Result<Work> {
        let common = Common { requests, writes, ..Common::default() };
        let mut generator = Generator::parse(&workloads.join("+"), &common)?;
        let references = load(&mut *generator, BLOCK_BYTES as u32, None)?;
        let machines = Machines::new(1, workloads.len(), blocks);
        let contents = Contents::new(&references, Source::Generated(machines), 1, 2)?;
        let mut own = vec![Vec::new(); workloads.len()];
        for (at, &id) in (0..).zip(&references.ids) {
            own[references.blocks[id as usize].index as usize / blocks].push(at);
        }
        Ok(Work { references, contents, own })
    }
}

/// Results of a run, behind its first third.
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

fn simulate(work: &Work, (scheme, is_published): (Scheme, bool), capacity: u32, think_ns: u64) -> Rate {
    let Work { references, contents, own } = work;
    let mut cache = Cache::new(contents, scheme, references.distinct(), capacity);
    let mut disk = Disk { device: Device::new(&Profile::named(PROFILE).expect("a profile of nigh"), 1), free_ns: 0 };
    let mut dirty = Dirty::default();
    let mut next = vec![0; own.len()];
    let mut machines: BinaryHeap<Reverse<(u64, usize)>> = (0..own.len()).map(|machine| Reverse((0, machine))).collect();
    let (mut rate, mut begin_ns, mut end_ns, mut done, mut associates) = (Rate::default(), 0, 0, 0, 0.0);
    let mut encodes = 0;
    let warmup = references.ids.len() as u64 / 3;
    while let Some(Reverse((now_ns, machine))) = machines.pop() {
        // Until one of them is at its end, all machines run.
        let Some(&at) = own[machine].get(next[machine]) else { break };
        next[machine] += 1;
        let id = references.ids[at as usize];
        let block = references.blocks[id as usize].index;
        let write = references.writes.of(at as usize);
        let access = cache.access(at as usize, Slot(id), write);
        let mut processor_ns = access.processor_ns;
        if is_published
            && done % CENSUS == 0
            && let Some((counts, census)) = cache.lpu()
        {
            associates = f64::from(census.associates) / f64::from(census.cached.max(1));
            processor_ns += ((counts.encodes - encodes) as f64 * PUBLISHED_ENCODE_NS) as u64;
            encodes = counts.encodes;
        }
        if is_published && access.hit {
            processor_ns += (associates * PUBLISHED_DECODE_NS) as u64;
        }
        if done == warmup {
            begin_ns = now_ns;
        }
        let ready_ns = now_ns + processor_ns;
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
            rate.processor_s += processor_ns as f64 / 1e9;
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

/// A line for each cache, a column for each size or number of machines. `figures` are a rate, with this many digits, and
/// what is printed behind it and its ratio to the first line's.
fn print(head: &str, columns: &[String], rates: &[Vec<Rate>], digits: usize, figures: impl Fn(&Rate) -> (f64, String)) {
    println!("  {head:18}{}", columns.iter().map(|column| format!("{column:>24}")).collect::<String>());
    for (at, &cache) in CACHES.iter().enumerate() {
        print!("  {:19}", name(cache));
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

pub(crate) fn run(parts: &[Part]) -> anyhow::Result<()> {
    println!("disk {PROFILE}; rates also as multiples of the first line's; a third of the requests fill the cache");
    let sizes = SIZES.map(|size| format!("{size} MiB"));
    let zipf = format!("zipf:blocks={BLOCKS}:alpha=0.9");
    if parts.contains(&Part::Sizes) {
        for writes in [0.25, 0.5] {
            println!("\nfigures 4 to 9: five machines of {BLOCKS} blocks, {:.0} % writes", 100.0 * writes);
            print_rates(&sizes, &rates(&Work::new(&same(&zipf, 5), BLOCKS, REQUESTS, writes)?, &SIZES, 0));
        }
    }
    if parts.contains(&Part::Mixed) {
        println!("\nfigure 10: five machines, each with a workload of its own, 25 % writes");
        let mixed = [
            format!("zipf:blocks={BLOCKS}:alpha=0.9"),
            format!("zipf:blocks={BLOCKS}:alpha=0.7:writes=0.5"),
            format!("loop:blocks={}", BLOCKS / 2),
            format!("uniform:blocks={}", BLOCKS / 4),
            format!("zipf:blocks={BLOCKS}:alpha=1.1"),
        ];
        let mixed: Vec<String> = mixed
            .iter()
            .enumerate()
            .map(|(machine, workload)| format!("{workload}:region={}", machine * BLOCKS))
            .collect();
        println!("  {}", mixed.join("\n  "));
        print_rates(&sizes, &rates(&Work::new(&mixed, BLOCKS, REQUESTS, 0.25)?, &SIZES, 0));
    }
    if parts.contains(&Part::Applications) {
        for (figure, writes) in [(11, 0.25), (12, 0.5)] {
            println!(
                "\nfigure {figure}: five machines, {:.0} % writes; a transaction is {TRANSACTION} requests, before each of which a machine \
                 computes for {:.0} ms",
                100.0 * writes,
                THINK_NS as f64 / 1e6
            );
            let found = rates(&Work::new(&same(&zipf, 5), BLOCKS, REQUESTS, writes)?, &SIZES, THINK_NS);
            print("transactions/s, cpu", &sizes, &found, 1, |rate| {
                let computed = rate.processor_s + rate.requests as f64 * THINK_NS as f64 / 1e9;
                let share = 100.0 * computed / rate.seconds / 5.0;
                (rate.per_second() / TRANSACTION as f64, format!("{share:.1} %"))
            });
        }
    }
    if parts.contains(&Part::Blocks) {
        println!("\nfigure 13: LPU's blocks at the end, 256 MiB, five machines");
        println!("  {:>8}{:>12}{:>12}{:>13}{:>10}", "writes", "reference", "associate", "independent", "deltas");
        for writes in [0.25, 0.5] {
            let work = Work::new(&same(&zipf, 5), BLOCKS, REQUESTS, writes)?;
            let rate = simulate(&work, (Scheme::Lpu, false), (256 * MIB / BLOCK_BYTES as u64) as u32, 0);
            let (kinds, bytes) = rate.lpu.expect("LPU counts its blocks");
            let [reference, associate, independent] = kinds.map(|share| format!("{:.1} %", 100.0 * share));
            println!(
                "  {:>8}{reference:>12}{associate:>12}{independent:>13}{:>10}",
                format!("{:.0} %", 100.0 * writes),
                format!("{:.1} MiB", bytes as f64 / MIB as f64)
            );
        }
    }
    if parts.contains(&Part::Machines) {
        println!("\nfigure 14: machines of 25000 blocks, 64 MiB, 25 % writes");
        let machines = [1, 2, 5, 10];
        let mut found = Vec::new();
        for count in machines {
            let work = Work::new(&same("zipf:blocks=25000:alpha=0.9", count), 25_000, 120_000 * count as u64, 0.25)?;
            found.extend(rates(&work, &[64], 0));
        }
        print_rates(&machines.map(|count| count.to_string()), &found);
    }
    Ok(())
}
