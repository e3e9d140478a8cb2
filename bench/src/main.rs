//! `cargo xtask bench NAME`: side by side in one run, printed as ratios.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

mod acfs;
mod addition;
mod auto;
mod changes;
mod content;
mod content_live;
mod control;
mod curves;
mod disk_record;
mod dulo;
mod engine;
mod growth;
mod guard;
mod history;
mod isolation;
mod levels;
mod live;
mod load;
mod lpu;
mod lru_sp;
mod measure;
mod memory;
mod metadata;
mod mount;
mod nbd;
mod neighbours;
mod pace;
mod page_cache;
mod patterns;
mod peers;
mod program_record;
mod readahead;
mod record;
mod replay;
mod rival;
mod shards;
mod soak;
mod timed;
mod times;
mod vhost;
mod workloads;
mod write_log;

use clap::{Parser, Subcommand};

use addition::Addition;

/// Benches that compare side by side in one run and print ratios.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The file systems and programs of ACFS in the timed simulation: elapsed times beside global LRU's
    Acfs(acfs::AcfsArgs),
    /// Memory and policy changed under `fio --verify`: what hits wait because of it
    Changes {
        /// Times that everything is changed
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// The codecs for blocks beside zstd and LZ4, and what the sketch finds beside an exhaustive search
    Content {
        /// Images of disks, such as those of `cargo xtask images` [default: the program nigh, without the search]
        images: Vec<std::path::PathBuf>,
        /// Blocks for which the exhaustive search is made
        #[arg(long, default_value_t = 2000)]
        targets: usize,
    },
    /// Disks of five machines that are alike, served with and without encoded blocks: device reads, time and processor time
    ContentLive {
        /// Schemes; the others are compared with the first one
        #[arg(long, value_delimiter = ',', default_value = "none,dedup,dedup+lz4,sketch,sketch+zstd")]
        content: Vec<String>,
    },
    /// Cost of encoded blocks (`--content`) for a hit, a miss and a write that have nothing to do with them
    ContentHits {
        /// Rounds; in each, the caches with and without encoded blocks take their turns
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// Tenants' hints, live: one that loops and sends correct hints, and one that sends wrong ones, each beside a neighbour without hints
    Control {
        /// Pairs of runs
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// The liar and its neighbour on one device instead, in simulated time
        #[arg(long, conflicts_with = "rounds")]
        shared_device: bool,
    },
    /// `nigh sim` against libCacheSim's `cachesim`, on 20 M references to 1 M blocks by Zipf's law
    Replay {
        /// Pairs of runs
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// References
        #[arg(long, default_value_t = 20_000_000)]
        references: u64,
    },
    /// Processor time a reference, from 10^4 to 10^7 blocks
    Growth {
        /// Policies
        #[arg(long, value_delimiter = ',', default_value = "lru,clock,arc,lirs,clock-pro")]
        policy: Vec<String>,
    },
    /// Programs that thrash, with and without `nigh guard`: root, cgroup v1, and a swap file on a throttled loop device
    Guard(guard::GuardArgs),
    /// Policies under rules of read-ahead: simulated time by that of the best policy, and by that under the first rule
    Readahead(readahead::ReadAheadArgs),
    /// Processor time of the timed simulation, from 10^5 to 10^7 requests
    Timed {
        /// Policies
        #[arg(long, value_delimiter = ',', default_value = "clock,lirs,dulo")]
        policy: Vec<String>,
    },
    /// Make the workloads of DULO's simulation, and print what they are like
    Workloads,
    /// DULO's figures 3 and 4 and tables 3 and 4: simulated time on workloads like the paper's
    Dulo {
        /// The parameter that is varied
        study: dulo::Study,
        /// Workloads (all of them)
        #[arg(long, value_delimiter = ',')]
        workload: Vec<String>,
        /// Seed of the workloads' random numbers
        #[arg(long, value_name = "N", default_value_t = workloads::SEED)]
        seed: u64,
    },
    /// The same requests to `nigh serve` on a disk that a model slows down, and in simulation: do the times agree?
    Live {
        /// Sources of the requests
        #[arg(long, value_delimiter = ',', default_value = "client,fio")]
        part: Vec<live::Part>,
        /// Rules of read-ahead
        #[arg(long, value_delimiter = ',', default_value = "linux,auto")]
        readahead: Vec<String>,
    },
    /// Requests that are sent at their times to `nigh serve` on a disk that a model slows down, and in simulation: do latencies agree?
    Pace {
        /// Shares of what the disk can serve
        #[arg(long, value_delimiter = ',', default_value = "0.3,0.6,0.9,1.1")]
        load: Vec<f64>,
    },
    /// Waits of a client of `nigh serve` because of others: beside 20 hostile clients and 8 sick devices (FUSE, root)
    Isolation {
        /// Rounds for each
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// How long the client is measured, alone and beside each
        #[arg(long, default_value_t = 0.1)]
        seconds: f64,
        /// Only those with this in their name
        #[arg(long)]
        only: Option<String>,
        /// Compare with nbdkit's cache filter and qemu-nbd
        #[arg(long)]
        peers: bool,
    },
    /// A server for hours beside neighbours that come and go, sick devices and changes: nothing grows, no byte is wrong (FUSE, root)
    Soak {
        /// How long
        #[arg(long, default_value_t = 1.0)]
        hours: f64,
        /// Seed of all that happens
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A level on flash below a small memory: live beside simulated, and the first minute after a restart, warm and cold. And what levels
    /// cost: hits while blocks are demoted, and the processor time of a level server. Levels of other hosts, recorded traces, and nbdkit
    Levels {
        /// The parts to measure
        #[arg(long, value_delimiter = ',', default_value = "flash,cost")]
        part: Vec<levels::Part>,
        /// Rounds of `cost`
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Length of a round of `cost`, in seconds
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// LPU's figures 4 to 14: I/O rates of caches that use what blocks contain, on generated machines and a modelled disk
    Lpu {
        /// Parts to measure
        #[arg(long, value_delimiter = ',', default_value = "sizes,mixed,applications,blocks,machines")]
        part: Vec<lpu::Part>,
    },
    /// LRU-SP against LRU: a hit and a miss of tenants without hints
    LruSp {
        /// Turns of each engine
        #[arg(long, default_value_t = 61)]
        turns: usize,
    },
    /// Reads of programs in a cgroup with little memory, and in simulation with the policy `linux`: root, cgroup v1, strace
    PageCache(page_cache::PageCacheArgs),
    /// AOIO beside LRU, Linux, UBM, PCC and AMP on recorded programs: hit ratios, device reads and time
    Patterns,
    /// Resident memory a distinct block and instance, for every policy
    Memory,
    /// Memory of an engine beside its blocks, for every policy
    Metadata {
        /// Size of the cache
        #[arg(long, default_value_t = 1_000_000)]
        blocks: u32,
        /// One policy only
        #[arg(long)]
        policy: Option<String>,
    },
    /// Hits that `auto` loses against the policies it chooses among, and against all, over the traces in ../shared/traces and generated loads
    Auto {
        /// Print each trace and size
        #[arg(long)]
        cells: bool,
        /// Another specification of it
        #[arg(long, default_value = "auto")]
        policy: String,
    },
    /// Hit ratios with less and more memory as a server estimates them from sampled blocks, beside those of simulations of all blocks
    Curves {
        /// Policies
        #[arg(long, value_delimiter = ',', default_value = "lirs,lru,s3-fifo,w-tinylfu,mq,arc")]
        policy: Vec<String>,
        /// Sampled blocks that a cache of the present size has at least
        #[arg(long, default_value_t = 8192)]
        blocks: u32,
        /// Samples of each trace
        #[arg(long, default_value_t = 4)]
        samples: u32,
        /// Print each size and policy
        #[arg(long)]
        cells: bool,
    },
    /// Hit ratios of every policy that remembers ghosts, by how many, over all traces in ../shared/traces and generated ones
    History {
        /// Print the hit ratios of every trace and size
        #[arg(long)]
        cells: bool,
        /// Size of the cache whose metadata is measured
        #[arg(long, default_value_t = 1_000_000)]
        blocks: u32,
    },
    /// `nigh serve` against nbdkit and qemu-nbd: latency, rate and processor time of hits, and hits beside misses
    Nbd {
        /// Rounds; in each all servers take their turns
        #[arg(long, default_value_t = 30)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 0.1)]
        seconds: f64,
        /// Another build of nigh, an earlier one for instance, that takes its turns beside this one
        #[arg(long, value_name = "PROGRAM")]
        before: Option<std::path::PathBuf>,
    },
    /// A disk by shared memory (vhost-user-blk) against NBD and qemu-storage-daemon, all on one processor: latency and rate of hits
    Vhost {
        /// Rounds; in each all servers take their turns
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 0.2)]
        seconds: f64,
    },
    /// Cost and losses of `nigh record --disk` with fast reads: root, fio and a loop device
    DiskRecord {
        /// Pairs of runs
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// How long each run is
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// Cost of `nigh record` for each read of a program, beside strace and perf: needs a C compiler
    ProgramRecord {
        /// Pairs of runs
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Cost of recording for a hit of `nigh serve`
    Record {
        /// Rounds; in each the server does not record, then does
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// `nigh mount`: hits beside a minimal FUSE file system, and a tree on a slow source beside rclone and bindfs. Needs root
    Mount {
        /// Parts to measure
        #[arg(long, value_delimiter = ',', default_value = "hits,tree")]
        part: Vec<mount::Part>,
        /// Rounds
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// The minimal FUSE file system of `mount`
    #[command(hide = true)]
    MinimalMount {
        source: std::path::PathBuf,
        at: std::path::PathBuf,
        #[arg(long, default_value_t = 0)]
        delay_us: u64,
        #[arg(long, default_value_t = 16)]
        threads: usize,
    },
    /// One shard against several: what a lock for all clients costs here, and would cost on more processors
    Shards {
        /// Rounds; in each all servers take their turns
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// Writes to a slow disk through, with a write log, and back: latency, and the writes of disk and log
    WriteLog {
        /// How long each measurement is
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// The delay of the disk, as of `delay:`
        #[arg(long, default_value = "5ms")]
        delay: String,
    },
    /// Cost of checksums of blocks in memory (`--verify`) for a hit, a miss and a write
    Verify {
        /// Rounds; in each, the caches with and without checksums take their turns
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How long each turn is
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().bench {
        Bench::Acfs(args) => acfs::bench(&args),
        Bench::Changes { rounds } => changes::run(rounds),
        Bench::Content { images, targets } => content::run(&images, targets),
        Bench::ContentLive { content } => content_live::run(&content),
        Bench::Control { rounds, shared_device } => control::run(rounds, shared_device),
        Bench::Replay { rounds, references } => replay::run(rounds, references),
        Bench::Growth { policy } => growth::run(&policy),
        Bench::Guard(args) => guard::run(&args),
        Bench::Soak { hours, seed } => soak::run(std::time::Duration::try_from_secs_f64(hours * 3600.0)?, seed),
        Bench::Readahead(args) => readahead::run_all(&args),
        Bench::Timed { policy } => timed::run(&policy),
        Bench::Workloads => workloads::run(),
        Bench::Dulo { study, workload, seed } => dulo::run(study, &workload, seed),
        Bench::Pace { load } => pace::run(&load),
        Bench::Live { part, readahead } => live::run(&part, &readahead),
        Bench::Auto { cells, policy } => auto::run(&policy.parse()?, cells),
        Bench::Curves { policy, blocks, samples, cells } => {
            let policies = policy.iter().map(|text| Ok(text.parse()?)).collect::<anyhow::Result<Vec<_>>>()?;
            curves::run(&policies, blocks, samples, cells)
        }
        Bench::History { cells, blocks } => history::run(cells, blocks),
        Bench::Isolation { rounds, seconds, only, peers } => {
            let run = if peers { isolation::run_with_peers } else { isolation::run };
            run(rounds, std::time::Duration::try_from_secs_f64(seconds)?, only.as_deref())
        }
        Bench::Levels { part, rounds, seconds } => {
            levels::run(&part, rounds, std::time::Duration::try_from_secs_f64(seconds)?)
        }
        Bench::Lpu { part } => lpu::run(&part),
        Bench::LruSp { turns } => lru_sp::bench(turns),
        Bench::PageCache(args) => page_cache::run(&args),
        Bench::Patterns => patterns::run(),
        Bench::Memory => memory::run(),
        Bench::Metadata { blocks, policy } => metadata::run(blocks, policy.as_deref()),
        Bench::DiskRecord { rounds, seconds } => disk_record::run(rounds, seconds),
        Bench::ProgramRecord { rounds } => program_record::run(rounds),
        Bench::Record { rounds, seconds } => record::run(rounds, std::time::Duration::try_from_secs_f64(seconds)?),
        Bench::Mount { part, rounds, seconds } => mount::run(&part, rounds, seconds),
        Bench::MinimalMount { source, at, delay_us, threads } => {
            mount::minimal::run(&source, &at, std::time::Duration::from_micros(delay_us), threads)
        }
        Bench::Shards { rounds, seconds } => shards::run(rounds, std::time::Duration::try_from_secs_f64(seconds)?),
        Bench::WriteLog { seconds, delay } => write_log::run(std::time::Duration::try_from_secs_f64(seconds)?, &delay),
        Bench::Verify { rounds, seconds } => {
            addition::run(Addition::Checksums, rounds, std::time::Duration::try_from_secs_f64(seconds)?)
        }
        Bench::ContentHits { rounds, seconds } => {
            addition::run(Addition::Content, rounds, std::time::Duration::try_from_secs_f64(seconds)?)
        }
        Bench::Vhost { rounds, seconds } => vhost::run(rounds, std::time::Duration::try_from_secs_f64(seconds)?),
        Bench::Nbd { rounds, seconds, before } => {
            nbd::run(rounds, std::time::Duration::try_from_secs_f64(seconds)?, before.as_deref())
        }
    }
}
