//! The workloads of ACFS's section 5.1: programs with the sizes and patterns stated there, and their directives.
//!
//! A program is a closed loop: the time between two of its requests is what it computes between them, as if reads took
//! none. Figures that the paper's text does not state are assumed here, and marked so:
//! * processor time (its figures 4 and 5 show it): the program's so much for each block, see each workload, and the system's
//!   so much for each I/O, [`Assumed`];
//! * the size of `cscope.out`: half of the sources; sizes of source files and articles: exponential around 12 KB and 3 KB;
//! * which of glimpse's 256 partitions a query finds: see [`glimpse`];
//! * Wisconsin tuples of 208 bytes with 40 more in a page of 8 KB: 33 a page; index entries of 20 bytes in pages two thirds
//!   full;
//! * Andrew's sources: 70 files of 3 KB, and compilations that read a third as much of headers again.
//! * where files are on their disks: [`Assumed`].
//!
//! Files are read by blocks of [`BLOCK_BYTES`]. A program that is run several times (a query of cscope or glimpse, a
//! simulation of dinero) is one tenant all the same, and predicts before each run what that will read.

mod programs;

use nigh_control::{Chunk, Directive, Event, Order, Saying, When};
use nigh_policy::Tenant;
use nigh_trace::{Op, Request};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

pub use programs::{Assumed, Placed};

/// Bytes in a block: "usually 8 KB" (2.1.2).
pub const BLOCK_BYTES: u32 = 8192;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Which of the two disks of 5.2 a file lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// 665 MB, average seek 16 ms, average rotational latency 8.3 ms, 1.875 MB/s.
    Rz56,
    /// 1.05 GB, average seek 10.5 ms, average rotational latency 5.54 ms, 3.3 MB/s.
    Rz26,
}

/// One program.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in 5.1.
    pub name: &'static str,
    /// The disk of its files.
    pub disk: Disk,
    /// Bytes of each file, by number; a trace's volume.
    pub files: Vec<u64>,
    /// Its requests, of a block or the rest of a file each.
    pub requests: Vec<Request>,
    /// Its directives, by position among its requests.
    pub events: Vec<Event>,
}

impl Workload {
    /// Its directives in a configuration of 5.2: about replacement if `caching`, predicted reads if `prefetching`.
    pub fn says(&self, caching: bool, prefetching: bool) -> Vec<Event> {
        let predicts = |event: &&Event| matches!(event.saying, Saying::Directive(Directive::Predict { .. }));
        self.events.iter().filter(|event| if predicts(event) { prefetching } else { caching }).cloned().collect()
    }

    /// The same program as tenant `tenant`, with files numbered from `first_file`, beside others.
    pub fn beside(mut self, tenant: u32, first_file: u32) -> Workload {
        for request in &mut self.requests {
            request.tenant = tenant;
            request.volume += first_file;
        }
        for event in &mut self.events {
            event.tenant = Tenant(tenant);
            match &mut event.saying {
                Saying::Directive(Directive::SetPriority { file, .. })
                | Saying::Directive(Directive::SetTemporaryPriority { file, .. }) => *file += first_file,
                Saying::Directive(Directive::Predict { accesses }) => {
                    accesses.iter_mut().for_each(|chunk| chunk.file += first_file);
                }
                Saying::Directive(Directive::SetPolicy { .. }) | Saying::Bounds { .. } => {}
            }
        }
        self
    }
}

/// A workload being made.
struct Maker {
    workload: Workload,
    random: Random,
    /// Processor time for each block.
    compute_ns: u64,
    time_ns: u64,
}

impl Maker {
    fn new(name: &'static str, disk: Disk, compute_ns: u64, seed: u64) -> Maker {
        let workload = Workload { name, disk, files: Vec::new(), requests: Vec::new(), events: Vec::new() };
        Maker { workload, random: Random::seed_from_u64(seed), compute_ns, time_ns: 0 }
    }

    fn file(&mut self, bytes: u64) -> u32 {
        self.workload.files.push(bytes);
        self.workload.files.len() as u32 - 1
    }

    /// Files of `mean` bytes, exponentially distributed, until they are `bytes` together.
    fn files(&mut self, bytes: u64, mean: u64) -> Vec<u32> {
        let (mut files, mut left) = (Vec::new(), bytes);
        while left > 0 {
            let share = -libm::log1p(-self.random.random::<f64>());
            let size = ((mean as f64 * share) as u64).clamp(1, left);
            files.push(self.file(size));
            left -= size;
        }
        files
    }

    fn request(&mut self, file: u32, block: u64, op: Op) {
        let offset = block * u64::from(BLOCK_BYTES);
        let left = self.workload.files[file as usize] - offset;
        self.workload.requests.push(Request {
            time_ns: self.time_ns,
            offset,
            length: left.min(BLOCK_BYTES.into()) as u32,
            volume: file,
            op,
            ..Request::default()
        });
        self.time_ns += self.compute_ns;
    }

    fn blocks(&self, file: u32) -> u64 {
        self.workload.files[file as usize].div_ceil(BLOCK_BYTES.into())
    }

    /// From beginning to end.
    fn whole(&mut self, file: u32, op: Op) {
        (0..self.blocks(file)).for_each(|block| self.request(file, block, op));
    }

    fn say(&mut self, directive: Directive) {
        let when = When::Request(self.workload.requests.len() as u64);
        self.workload.events.push(Event { when, tenant: Tenant(0), saying: Saying::Directive(directive) });
    }

    /// Reads files one after the other, and announces them.
    fn read_as_said(&mut self, files: &[u32]) {
        self.say(Directive::Predict { accesses: files.iter().map(|&file| Chunk { file, bytes: None }).collect() });
        files.iter().for_each(|&file| self.whole(file, Op::Read));
    }
}

fn mru(priority: i32) -> Directive {
    Directive::SetPolicy { priority, policy: Order::Mru }
}

/// cs1: a search for eight symbols in sources of 18 MB reads `cscope.out` as often, each time from beginning to end. MRU.
/// 3 ms a block.
pub fn cscope_symbols(seed: u64) -> Workload {
    let mut make = Maker::new("cs1", Disk::Rz56, 3 * MS, seed);
    let database = make.file(9 * MB);
    make.say(mru(0));
    (0..8).for_each(|_| make.read_as_said(&[database]));
    make.workload
}

fn cscope_text(name: &'static str, bytes: u64, seed: u64) -> Workload {
    let mut make = Maker::new(name, Disk::Rz56, 4 * MS, seed);
    let sources = make.files(bytes, 12 * KB);
    make.say(mru(0));
    (0..4).for_each(|_| make.read_as_said(&sources));
    make.workload
}

/// cs2: a text search for four patterns reads all sources of 18 MB four times, in the order of `cscope.files`. MRU. 4 ms a
/// block.
pub fn cscope_text_18(seed: u64) -> Workload {
    cscope_text("cs2", 18 * MB, seed)
}

/// cs3: the same in sources of 10 MB.
pub fn cscope_text_10(seed: u64) -> Workload {
    cscope_text("cs3", 10 * MB, seed)
}

/// din: a cache simulator reads the trace "cc" of 8 MB for lines of 32, 64 and 128 bytes and 1, 2 and 4 ways. MRU. 10 ms a
/// block.
pub fn dinero(seed: u64) -> Workload {
    let mut make = Maker::new("din", Disk::Rz56, 10 * MS, seed);
    let trace = make.file(8 * MB);
    make.say(mru(0));
    (0..9).for_each(|_| make.read_as_said(&[trace]));
    make.workload
}

/// gli: five queries in 40 MB of articles, each through 2 MB of indices and then through the partitions that these name.
/// Indices have priority 1, articles 0; MRU for both. 3 ms a block.
///
/// Of the 256 partitions of articles, "scheduling" finds 40 %, "scheduling and disk" a third of those, "cluster" 25 %,
/// "rendering and volume" 10 % and "DTM" 5 %.
pub fn glimpse(seed: u64) -> Workload {
    const PARTITIONS: usize = 256;
    let mut make = Maker::new("gli", Disk::Rz56, 3 * MS, seed);
    // The index of words, the table of partitions, the names of files.
    let indices = [make.file(3 * MB / 2), make.file(256 * KB), make.file(256 * KB)];
    let articles = make.files(40 * MB, 3 * KB);
    make.say(mru(0));
    make.say(mru(1));
    indices.iter().for_each(|&file| make.say(Directive::SetPriority { file, priority: 1 }));
    let mut some = |share: f64| -> Vec<bool> { (0..PARTITIONS).map(|_| make.random.random::<f64>() < share).collect() };
    let scheduling = some(0.4);
    let both = some(1.0 / 3.0).iter().zip(&scheduling).map(|(disk, scheduling)| *disk && *scheduling).collect();
    let queries = [scheduling, both, some(0.25), some(0.1), some(0.05)];
    for query in queries {
        indices.iter().for_each(|&file| make.whole(file, Op::Read));
        let partition = |at: usize| at * PARTITIONS / articles.len();
        let found: Vec<u32> = (0..articles.len()).filter(|&at| query[partition(at)]).map(|at| articles[at]).collect();
        for part in found.chunks(LIST_MOST) {
            make.read_as_said(part);
        }
    }
    make.workload
}

/// Entries of a list (4.3): a longer one is sent in parts.
const LIST_MOST: usize = 5000;
/// Tuples of the relation.
const TUPLES: u64 = 200_000;
const TUPLES_IN_BLOCK: u64 = 33;
/// Index entries in a leaf.
const ENTRIES: u64 = BLOCK_BYTES as u64 * 2 / 3 / 20;

fn postgres(name: &'static str, range: std::ops::Range<u64>, seed: u64) -> Workload {
    let mut make = Maker::new(name, Disk::Rz26, 2 * MS, seed);
    let relation = make.file(TUPLES.div_ceil(TUPLES_IN_BLOCK) * u64::from(BLOCK_BYTES));
    // A root and a level below it, and the leaves behind them.
    let leaves = TUPLES.div_ceil(ENTRIES);
    let inner = leaves.div_ceil(ENTRIES) + 1;
    let index = make.file((inner + leaves) * u64::from(BLOCK_BYTES));
    // The tuple with each value of unique1: a random permutation.
    let mut place: Vec<u64> = (0..TUPLES).collect();
    for at in (1..place.len()).rev() {
        place.swap(at, make.random.random_range(0..=at));
    }
    let tuple_blocks: Vec<u64> = range.clone().map(|value| place[value as usize] / TUPLES_IN_BLOCK).collect();
    let mut left = std::collections::BTreeMap::<u64, u32>::new();
    tuple_blocks.iter().for_each(|&block| *left.entry(block).or_default() += 1);

    make.request(index, 0, Op::Read);
    make.request(index, 1 + range.start / ENTRIES / ENTRIES, Op::Read);
    let chunk =
        |&block: &u64| Chunk { file: relation, bytes: Some((block * u64::from(BLOCK_BYTES), BLOCK_BYTES.into())) };
    make.say(Directive::Predict { accesses: tuple_blocks.iter().map(chunk).collect() });
    let mut leaf = None;
    for (value, &block) in range.zip(&tuple_blocks) {
        if leaf != Some(value / ENTRIES) {
            leaf = Some(value / ENTRIES);
            make.request(index, inner + value / ENTRIES, Op::Read);
        }
        make.request(relation, block, Op::Read);
        // "Which tuple blocks will be accessed more than once: these blocks are given higher priority."
        let again = left.get_mut(&block).expect("every block was counted");
        *again -= 1;
        if *again > 0 {
            make.say(Directive::SetTemporaryPriority { file: relation, first: block, last: block, priority: 1 });
        }
    }
    make.workload
}

/// psel1: a 1 % selection on unique1, by its index, of a relation of 200,000 tuples. 2 ms a block.
pub fn postgres_1(seed: u64) -> Workload {
    postgres("psel1", 0..2000, seed)
}

/// psel2: a 2 % selection, of values from 186,660 to 190,660.
pub fn postgres_2(seed: u64) -> Workload {
    postgres("psel2", 186_660..190_660, seed)
}

/// andrew: the oblivious program of 5.4, which copies sources, reads all of them twice, and compiles them. 2 ms a block.
pub fn andrew(seed: u64) -> Workload {
    let mut make = Maker::new("andrew", Disk::Rz26, 2 * MS, seed);
    let sources = make.files(200 * KB, 3 * KB);
    let headers = make.files(70 * KB, 3 * KB);
    let copies: Vec<u32> = sources.iter().map(|&file| make.file(make.workload.files[file as usize])).collect();
    for (&source, &copy) in sources.iter().zip(&copies) {
        make.whole(source, Op::Read);
        make.whole(copy, Op::Write);
    }
    (0..2).for_each(|_| copies.iter().for_each(|&copy| make.whole(copy, Op::Read)));
    make.compute_ns = 100 * MS;
    for &copy in &copies {
        make.whole(copy, Op::Read);
        for _ in 0..3 {
            let header = headers[make.random.random_range(0..headers.len())];
            make.whole(header, Op::Read);
        }
        let object = make.file(make.workload.files[copy as usize]);
        make.whole(object, Op::Write);
    }
    make.workload
}

type Make = fn(u64) -> Workload;

/// The programs of figures 4 and 5.
pub fn alone(seed: u64) -> [Workload; 7] {
    let makers = [cscope_symbols, cscope_text_18, cscope_text_10, dinero, glimpse, postgres_1, postgres_2];
    makers.map(|make| make(seed))
}

/// The pairs of figures 8 and 9: files and tenants are numbered through.
pub fn pairs(seed: u64) -> Vec<[Workload; 2]> {
    let makers: [[Make; 2]; 8] = [
        [cscope_symbols, cscope_text_10],
        [cscope_symbols, postgres_2],
        [cscope_text_10, glimpse],
        [cscope_text_10, postgres_1],
        [dinero, andrew],
        [cscope_text_18, andrew],
        [glimpse, andrew],
        [postgres_2, andrew],
    ];
    let pair = |[one, two]: [Make; 2]| {
        let one = one(seed);
        let files = one.files.len() as u32;
        [one, two(seed).beside(1, files)]
    };
    makers.into_iter().map(pair).collect()
}
