//! The command line: one table for flags, help, man page and completions.

mod content;
mod contents;
mod devices;
mod level;
mod mount;
mod prefetch;
mod programs;
mod serving;
mod setting;
mod settings;
mod tls;
mod trace;
mod values;
mod watch;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use nigh_sim::Ops;

use crate::completion;
use crate::guard::{self, GuardArgs};
use crate::object::{self, ObjectArgs};
use crate::pages::Pages;
use crate::sweep::SweepArgs;

use content::CONTENT_HELP;
pub(crate) use content::ContentArgs;
pub(crate) use contents::ContentsArgs;
pub(crate) use devices::{DevicesArgs, DevicesCommand, FitArgs};
pub(crate) use level::LevelArgs;
use mount::MOUNT_HELP;
pub(crate) use mount::MountArgs;
pub(crate) use prefetch::PrefetchArg;
use programs::ADVISE_HELP;
pub(crate) use programs::AdviseArgs;
pub(crate) use programs::{PatternsArgs, RecordArgs};
pub(crate) use setting::On;
#[cfg(test)]
pub(crate) use setting::Reloaded;
pub(crate) use settings::{BlockArgs, CacheArgs, Given, RightsArgs, WatchArgs};
pub(crate) use tls::TlsArg;
pub(crate) use trace::{LayoutArgs, OrderArg, TraceCommand};
pub(crate) use values::{
    Address, Content, LongTime, Metrics, Mode, Prefetch, Processor, ReadAhead, Scheduler, Size, Time,
};
pub(crate) use watch::{MetricsArg, RecordArg};

/// A buffer cache that measures what programs read, chooses the policy that would help, and applies it.
#[derive(Debug, Parser)]
#[command(name = "nigh", version, max_term_width = 120, arg_required_else_help = true, after_long_help = QUANTITIES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const QUANTITIES: &str = "\
Sizes are bytes: 64K, 512M or 16GiB (powers of 1024), 16GB (powers of 1000), 4096, 1e6. Counts: 20M (powers of 1000), 3Mi (powers of \
1024), 1e6. Shares: 5% or 0.05.";

// Only the command that is asked for is built: a service needs memory for no other.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Show what nigh does, start to finish: serve slow disks through several policies, and replay the same requests
    Demo(DemoArgs),
    /// Replay a trace against replacement policies and cache sizes
    Sim(Box<SimArgs>),
    /// Replay many traces, in threads or on a cluster, and keep the results
    Sweep(SweepArgs),
    /// Judge from a trace whether more memory or another policy is worth it
    Plan(Box<PlanArgs>),
    /// Inspect, convert and generate traces
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Show which code of a recorded program reads sequentially, in loops, in short loops or at random
    Patterns(PatternsArgs),
    /// Show which blocks of images or disks are equal, similar or compressible, and what a cache would gain from that
    #[command(after_long_help = CONTENT_HELP)]
    Content(ContentArgs),
    /// Serve disks over NBD through a cache in memory
    #[command(after_long_help = serving::help())]
    Serve(Box<ServeArgs>),
    /// Mount a folder on a slow or remote file system at another place, with a cache in memory for its files
    #[command(after_long_help = MOUNT_HELP)]
    Mount(Box<MountArgs>),
    /// Lend memory of this host to 'nigh serve' on other hosts, as a level below their memory
    Level(LevelArgs),
    /// Query and change a running 'nigh serve' through its --control socket
    Ctl(CtlArgs),
    /// Record what a program reads and writes, or the requests to a disk or a running 'nigh serve', as a trace
    #[command(after_help = "docs/measure.md has recipes for programs, databases, disks and virtual machines")]
    Record(Box<RecordArgs>),
    /// Run a program with hints to the kernel's page cache, by what an earlier run read
    #[command(after_long_help = ADVISE_HELP)]
    Advise(AdviseArgs),
    /// Watch a running 'nigh serve' through its --control socket
    Top(TopArgs),
    /// Protect programs against thrashing, one working set at a time
    #[command(after_long_help = guard::HELP)]
    Guard(GuardArgs),
    /// List the replacement policies, their parameters and their papers
    Policies(PoliciesArgs),
    /// List the modelled devices, or print the profile of one
    Devices(DevicesArgs),
    /// Make disks in object stores, and show what they are
    #[command(after_long_help = object::HELP)]
    Object(ObjectArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff) of nigh or of one of its commands
    Man {
        /// The command, such as 'sim' or 'trace convert'; nigh itself if omitted
        command: Vec<String>,
        /// Write the pages of all commands into this folder instead
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        all: Option<PathBuf>,
        /// Replace pages that exist
        #[arg(long, requires = "all")]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Write the page here [default: nigh-demo.html, where it replaces an earlier page of 'nigh demo']
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Requests that each policy serves, such as 30k
    #[arg(long, value_name = "COUNT", default_value = "30k")]
    pub(crate) requests: String,
    /// Threads that replay [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// The disks: a name for clients, what is served under it, and options
    #[arg(value_name = "NAME=TARGET[,OPTION...]")]
    pub(crate) exports: Vec<String>,
    /// Options of one disk, such as root:read-only,iops=500 (see below)
    #[arg(long, value_name = "NAME:OPTION,...")]
    pub(crate) set: Vec<String>,
    /// Reject writes to all disks
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Serve one client on standard input and output, and end when it disconnects
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Record all requests as a trace, from start to shutdown ('nigh record' records for a given time)
    ///
    /// With sample=RATE, such as 1%, only that share of the blocks, chosen by hash as in 'nigh sim --sample'.
    #[arg(long, value_name = "FILE[,sample=RATE]")]
    pub(crate) record: Option<RecordArg>,
    /// Take disks in object stores from another server that wrote them within the last minute, whose writes then fail
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Serve clients that may rely on writes that a killed server lost: otherwise, disks that are written back are served only to clients that began after this
    /// server
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Take the place of the server at --control: its sockets stay open, it writes everything back and ends, and clients that connect again wait meanwhile
    #[arg(long, conflicts_with_all = ["stdio", "record", "check", "print_config"])]
    pub(crate) replace: bool,
    /// Read settings from this file (TOML); flags override it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what would be served, check that targets, certificates and folders exist, and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the combined settings of flags and --config as a file for --config, and end
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,
    /// Least severe messages on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WriteModeArg {
    /// Writes are acknowledged in memory, and reach the device at a flush or within seconds
    Back,
    /// Writes are acknowledged when they are on the device
    Through,
}

// Which server. No doc comment: clap would head the help of `ctl` and `top` with it.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The --control socket of the server
    #[arg(long, value_name = "PATH", env = "NIGH_CONTROL", global = true)]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    #[command(flatten)]
    pub(crate) server: ControlArgs,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Report the server's statistics and its present state
    Status {
        /// Print one JSON object (its schema is in docs/json.md)
        #[arg(long)]
        json: bool,
    },
    /// Change memory, policy, read-ahead, an export, or the limit for slow requests
    Set {
        #[command(subcommand)]
        what: SetCommand,
    },
    /// List, add or remove exports
    Export {
        #[command(subcommand)]
        what: ExportCommand,
    },
    /// Give hints about the future accesses of an export's clients (with 'nigh serve --allocate'), or print the hints in effect
    Hint {
        /// The export
        #[arg(add = completion::exports())]
        export: String,
        /// A file of hints (docs/control.md), or '-' for standard input; with neither this nor --extents, print the hints
        #[arg(value_name = "FILE")]
        directives: Option<PathBuf>,
        /// Places of files on the disk ('nigh trace layout --extents' writes them): the files that hints name. Without it, the
        /// disk is file 0, unless files were named before. Naming files drops the hints for those named before
        #[arg(long, value_name = "FILE")]
        extents: Option<PathBuf>,
    },
    /// Write back the dirty blocks of one export or of all, and flush the devices
    Flush {
        /// The export
        #[arg(add = completion::exports())]
        name: Option<String>,
    },
    /// Record requests as a trace in the background, or stop the recording ('nigh record' waits for its end)
    Record {
        /// The trace to write, as for 'nigh record'
        #[arg(required_unless_present = "stop")]
        file: Option<PathBuf>,
        #[command(flatten)]
        recording: RecordingArgs,
        /// Stop the recording
        #[arg(long, conflicts_with_all = ["file", "export", "sample", "time", "limit", "force"])]
        stop: bool,
    },
    /// Read the server's --config and certificates again, like SIGHUP
    Reload,
    /// Serve clients that may rely on writes that the server before lost when it was killed
    AcceptLoss,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// Memory for blocks, such as 512M
    Memory { size: String },
    /// Policy that chooses the block to evict ('nigh policies' lists them)
    Policy {
        #[arg(add = completion::live_policies())]
        policy: String,
    },
    /// Read-ahead for sequential reads, including those of connected clients: none, auto, one-block, linux:max=128K or
    /// extent:64K
    Readahead { readahead: String },
    /// Time beyond which requests are logged as slow, such as 100ms, or none
    Slow { time: String },
    /// Options of an export ('nigh serve --help' lists them)
    Export {
        /// The export
        #[arg(add = completion::exports())]
        name: String,
        /// Options such as read-only, read-only=no, iops=500 or iops=none
        #[arg(required = true)]
        options: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// List the exports: size, clients, options, target, and the URI by which clients connect
    List {
        /// Print one JSON object (its schema is in docs/json.md)
        #[arg(long)]
        json: bool,
    },
    /// Serve another disk
    Add {
        /// A name for clients, and what is served under it
        #[arg(value_name = "NAME=TARGET")]
        export: String,
        /// Options such as read-only or iops=500 ('nigh serve --help' lists them)
        options: Vec<String>,
        /// Take a disk in an object store from another writer that seems to live
        #[arg(long)]
        take_over: bool,
    },
    /// Write everything in an export's write log to its target, and wait for that
    Drain {
        /// The export
        #[arg(add = completion::exports())]
        name: String,
    },
    /// Have writes of an export wait, so that its target can be copied: returns when the target has everything that was written before
    Freeze {
        /// The export
        #[arg(add = completion::exports())]
        name: String,
        /// The longest time that writes wait, from 1s to 10m
        #[arg(long = "for", value_name = "TIME", default_value = "10s")]
        time: String,
        /// Run this program while writes wait, such as cp --reflink disk.img copy.img, and thaw the export
        #[arg(last = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
    /// Have the writes of a frozen export go on; an error if they already do
    Thaw {
        /// The export
        #[arg(add = completion::exports())]
        name: String,
    },
    /// Disconnect an export's clients, write back its dirty blocks, and stop serving it
    Remove {
        /// The export
        #[arg(add = completion::exports())]
        name: String,
        /// Drop dirty blocks instead of writing them, for example if the device has failed permanently
        #[arg(long)]
        discard: bool,
    },
}

// Settings of a recording; no doc comment, as above.
#[derive(Debug, Args)]
pub(crate) struct RecordingArgs {
    /// Record this export only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Vec<String>,
    /// Record only this share of the blocks, chosen by hash as in 'nigh sim --sample', such as 1%
    #[arg(long, value_name = "RATE")]
    pub(crate) sample: Option<String>,
    /// Stop after this time, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Stop after this many requests, such as 10M
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<String>,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) server: ControlArgs,
    /// Seconds between two updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1")]
    pub(crate) interval: f64,
    /// Sort the exports by this column
    #[arg(short, long, value_enum, default_value = "requests")]
    pub(crate) sort: SortArg,
    /// Print one table, of one interval, and end; the default if the output is not a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON object, of one interval, and end (its schema is in docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortArg {
    /// Name
    Name,
    /// Requests per second
    Requests,
    /// Bytes per second
    Bytes,
    /// Hit ratio, the lowest first
    Hits,
    /// 99th percentile of the latency
    Latency,
    /// Bytes not yet written to the device
    Dirty,
}

#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    /// Print more about these policies: their parameters and defaults
    #[arg(value_name = "POLICY", add = completion::policies())]
    pub(crate) names: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

// How a trace is read; no doc comment, as above.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct InputArgs {
    /// The trace's format, if it cannot be detected ('nigh trace formats' lists the formats)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// The columns of a CSV or Parquet file, by position from 0 or by name: offset=3,length=4,op=2,time=0,time-unit=us
    ///
    /// Without this flag, the columns of a CSV file are guessed from its header and values, as are those of a Parquet file without a column offset, and
    /// the guess is reported as the flag that confirms it.
    ///
    /// Columns: offset (required), length, op, time, tenant, stream, volume, latency, content (a number or a digest). Units: time-unit and
    /// latency-unit=s|ms|us|ns|100ns, offset-unit and length-unit=bytes|kib|sectors|blocks. offset-unit=keys: offsets are names of objects, and each
    /// object has a place of its own. Units that are not given are detected from the header or the values and reported; if that fails, the file is rejected. Times may be ISO 8601 dates. Names of operations beyond the usual ones, those of caches
    /// (get, set, del) and blktrace's (RA, WS): read=lookup|scan,write=fill, and likewise trim and flush. The separator, if the first line does not show it:
    /// separator=comma|tab|space|semicolon|bar.
    ///
    /// For binary records, record is their length in bytes, and each column is the byte at which it begins and its type:
    /// record=24,time=0:u64,offset=8:u64,length=16:u32,op=20:u8,read=0,write=1. Types: u8, u16, u32, u64, with be appended for
    /// big-endian; f32 and f64 for times. header=BYTES skips the bytes before the first record.
    #[arg(long, value_name = "NAME=COLUMN,...")]
    pub(crate) columns: Option<String>,
    /// Which identity of the issuing code is the stream, in recordings of programs: pc5, pc8 or pc16 (over 5, 8 or 16
    /// return addresses), ra0 (the innermost one) or file
    #[arg(long, value_name = "COLUMN")]
    pub(crate) stream: Option<String>,
    /// Which events are the requests: a setting of a trace.
    #[arg(skip)]
    pub(crate) action: Option<String>,
    /// Whether objects are as long as recorded: a setting of a trace.
    #[arg(skip)]
    pub(crate) recorded_sizes: bool,
    /// Leave out lines and records that do not match the format, and report how many and which, instead of failing
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Bytes in a block, a power of two, such as 4096 or 64K [default: as the format defines, else 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_size: Option<String>,
    /// Read at most this many requests, such as 100k; what follows them is not read
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SimArgs {
    /// The trace: a file, or '-' for standard input; .gz, .zst and .xz are decompressed. Several are replayed one by one and
    /// compared; with --device, they are programs that run at the same time, each on disks of its own unless --shared. Settings after a file's name hold for it alone:
    /// FILE,format=raw-u32 (also stream, action, block-size, limit, recorded-sizes, skip-bad, and columns, which must come last)
    #[arg(value_name = "TRACE", required_unless_present = "generate")]
    pub(crate) trace: Vec<PathBuf>,
    /// Replay several traces as one, one after the other
    #[arg(long, conflicts_with = "generate")]
    pub(crate) join: bool,
    /// Replay a generated workload instead of a file, such as 'zipf:blocks=1M' ('nigh trace generate --help')
    #[arg(long, value_name = "SPEC", conflicts_with = "trace")]
    pub(crate) generate: Option<String>,
    #[command(flatten)]
    pub(crate) generation: GenerateArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Policies to replay, such as lru,lirs:hir=1%,clock-pro; 'all' for all policies ('nigh policies' lists them)
    #[arg(short, long, value_name = "POLICY,...", value_delimiter = ',', default_value = crate::asked::POLICIES, add = completion::policies())]
    pub(crate) policy: Vec<String>,
    /// Cache sizes: shares of the distinct blocks (1%,5%), bytes (64M), blocks (100b), or ranges of these
    /// (64M..4G doubles, 100b..1000b/100b steps). Without sizes, LRU's curve is exact for every size
    #[arg(short, long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) size: Vec<String>,
    /// Sizes of several cache levels, the nearest first, such as 64M,256M,1G. --policy then names schemes: ulc, unilru, indlru,
    /// or the policies of levels that are independent of each other (ind:lru/mq)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) levels: Vec<String>,
    /// The time of a hit at each level and of a miss, such as 0,1ms,1.2ms,11.2ms: the mean access time is reported. A demotion
    /// takes the difference between its two levels
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', requires = "levels")]
    pub(crate) costs: Vec<String>,
    /// Several clients of one server: each trace, or each tenant of a single one, has levels of its own, and they share the last one
    #[arg(long, requires = "levels", conflicts_with = "join")]
    pub(crate) clients: bool,
    #[command(flatten)]
    pub(crate) contents: ContentsArgs,
    /// Which requests count
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) ops: OpsArg,
    /// Drop references to the same block as the previous reference of the same tenant
    #[arg(long)]
    pub(crate) collapse: bool,
    /// Replay only this share of the blocks, chosen by hash, such as 0.1 or 10% (SHARDS)
    #[arg(long, value_name = "RATE")]
    pub(crate) sample: Option<String>,
    /// Split the cache into this many parts, as 'nigh serve --shards' does; each has an equal share of the size and evicts on its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) shards: u32,
    /// With several traces, the policy with which the others are compared, by their misses [default: lru, or else fifo, if
    /// --policy has it]
    #[arg(long, value_name = "POLICY")]
    pub(crate) against: Option<String>,
    /// References that warm the cache and are not counted: a number such as 5k, or a share such as 10%. With --device, clocks
    /// start after them, too
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(crate) warmup: String,
    /// Give the policy aoio what 'nigh patterns' finds in this trace: the one that is replayed, or another run of the
    /// program. It is used at the sizes at which aoio loses no hits by it in this trace
    #[arg(long, value_name = "TRACE")]
    pub(crate) patterns: Option<PathBuf>,
    /// Of --patterns, this share of the references from the first, such as 50%
    #[arg(long, value_name = "SHARE", requires = "patterns", default_value = "100%")]
    pub(crate) patterns_part: String,
    /// Threads that replay [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) timed: TimedArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

// How time passes. No doc comment: clap would head the help of `sim` with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct TimedArgs {
    /// Simulate time, with the cache on this modelled device: a profile's name, such as hdd-7200, or its TOML file
    ///
    /// Each volume of a trace has a device of its own. Devices can be chosen by the volume's number:
    /// 0=hdd-7200,1=ssd-sata; a profile without a number is for all other volumes. If a trace reaches beyond the end of a
    /// device, a larger one of the same kind is modelled, and a note reports it.
    #[arg(long, value_name = "[VOLUME=]PROFILE,...", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// A level of this size, on another modelled device, for clean blocks that were evicted from memory: ssd-nvme:64M. A second level
    /// is below the first. With --policy ulc, memory and levels are managed as one
    #[arg(long, value_name = "PROFILE:SIZE", requires = "device")]
    pub(crate) level: Vec<String>,
    /// Read-ahead: none, auto, one-block, one-block:sequential, linux:max=128K or extent:64K. With `:into=policy`, blocks enter the policy when they
    /// are fetched. Without --device, loads take no time [default: auto with --device, as 'nigh serve'; otherwise none]
    #[arg(long, value_name = "READAHEAD")]
    pub(crate) readahead: Option<String>,
    /// In which order requests go to the device: first-come, batch:16, elevator, look or deadline
    #[arg(long, value_name = "SCHEDULER", default_value = "deadline", requires = "device")]
    pub(crate) scheduler: String,
    /// How long a program computes before each request: a time such as 0.1ms, or a share of the time that passed in the
    /// trace since the previous request, such as 50%
    ///
    /// Its requests then wait for the replies to those before (--pace closed) [default: 100%]
    #[arg(long, value_name = "TIME", requires = "device")]
    pub(crate) think: Option<String>,
    /// When requests are issued: recorded (at the times in the trace, in an open loop), 2x (twice as fast) or closed (each when the
    /// program has the reply to the one before) [default: recorded where the trace has times and is not a program's; else closed]
    #[arg(long, value_name = "PACE", requires = "device")]
    pub(crate) pace: Option<String>,
    /// Places of files on the disk ('nigh trace layout --extents' writes them); read-ahead then follows files instead of the disk. For
    /// several traces, a list for each, in their order
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', requires = "device")]
    pub(crate) extents: Vec<PathBuf>,
    /// Equal volumes of several traces are one disk. Otherwise, each trace has disks of its own, as those of different machines: the
    /// volumes of the first one keep their numbers, and each volume of the others gets the lowest number that is free
    #[arg(long, requires = "device")]
    pub(crate) shared: bool,
    /// How the programs share the cache, each trace a tenant: lru-sp (no tenant loses by what others choose), global (one LRU
    /// list), static (equal parts) or utility (by measured gain). --policy is then that of each tenant [default: lru]
    #[arg(long, value_name = "ALLOCATION", requires = "device")]
    pub(crate) allocate: Option<AllocateArg>,
    /// The programs' hints about their accesses: a file of directives (docs/control.md); tenants are the traces, counted
    /// from 0
    #[arg(long, value_name = "FILE", requires = "allocate")]
    pub(crate) control: Option<PathBuf>,
    /// How predicted blocks are prefetched: batch=BLOCKS, the most at a time; window=BLOCKS, how many of a tenant may wait to be used beyond its
    /// first two batches (0: any number); adapt, to choose between single blocks and batches, for each device, by their time. To be used
    /// with batch=64
    #[arg(long, value_name = "batch=N,window=N,adapt", default_value_t, requires = "control")]
    pub(crate) prefetch: PrefetchArg,
}

impl TimedArgs {
    /// The rule of read-ahead, if it is on without a device. The text is parsed later.
    pub(crate) fn readahead_at_once(&self) -> Option<&str> {
        self.readahead.as_deref().filter(|rule| *rule != "none" && self.device.is_none())
    }
}

/// The flags of `nigh plan` that a running server leaves no use for.
const PLAN_OF_TRACES: [&str; 18] = [
    "trace",
    "InputArgs",
    "have",
    "add",
    "target",
    "policy",
    "ops",
    "sample",
    "device",
    "level",
    "level_cost",
    "readahead",
    "scheduler",
    "think",
    "pace",
    "threads",
    "html",
    "force",
];

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The trace: a file, or '-' for standard input; .gz, .zst and .xz are decompressed
    #[arg(value_name = "TRACE", required_unless_present = "control")]
    pub(crate) trace: Option<PathBuf>,
    /// Instead of a trace, ask the running server with this --control socket
    #[arg(long, value_name = "PATH", conflicts_with_all = PLAN_OF_TRACES)]
    pub(crate) control: Option<PathBuf>,
    /// The memory that the cache has: bytes (64G), blocks (1000b) or a share of the trace's distinct blocks [default: 10%; for a
    /// recorded program, what the page cache of this machine can take]
    #[arg(long, value_name = "SIZE")]
    pub(crate) have: Option<String>,
    /// The memory that could be added [default: a quarter of --have]
    #[arg(long, value_name = "SIZE")]
    pub(crate) add: Option<String>,
    /// The hit ratio to reach, such as 80% [default: 90% of the hit ratio with all of the trace in memory]
    #[arg(long, value_name = "RATIO")]
    pub(crate) target: Option<String>,
    /// The price of memory, such as 3/GiB, in any currency
    #[arg(long, value_name = "AMOUNT/UNIT")]
    pub(crate) cost: Option<String>,
    /// The present policy, then those to compare with it ('nigh policies' lists them). For a recorded program, the present policy is
    /// linux, unless policies are named
    #[arg(short, long, value_name = "POLICY,...", value_delimiter = ',', default_value = crate::asked::POLICIES, add = completion::policies())]
    pub(crate) policy: Vec<String>,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Which requests count
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) ops: OpsArg,
    /// Replay only this share of the blocks, chosen by hash, such as 0.1 or 10% (SHARDS), for large traces
    #[arg(long, value_name = "RATE", conflicts_with = "device")]
    pub(crate) sample: Option<String>,
    /// Simulate time, too, with the cache on this modelled device, such as hdd-7200 ('nigh devices' lists them)
    #[arg(long, value_name = "PROFILE", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Compare levels of these sizes below the memory, on a modelled device, with no level: time, p99, bytes written to the
    /// level, and cost. Sizes are lists and ranges, as 64G..1T
    #[arg(long, value_name = "PROFILE:SIZE", requires = "device")]
    pub(crate) level: Option<String>,
    /// The price of the level, such as 0.1/GiB, in the currency of --cost
    #[arg(long, value_name = "AMOUNT/UNIT", requires = "level", requires = "cost")]
    pub(crate) level_cost: Option<String>,
    /// Read-ahead to compare with 'none', and to simulate with --device, as in 'nigh sim' [default: auto]
    #[arg(long, value_name = "READAHEAD")]
    pub(crate) readahead: Option<String>,
    /// With --device, the order in which requests go to it, as in 'nigh sim' [default: deadline]
    #[arg(long, value_name = "SCHEDULER", requires = "device")]
    pub(crate) scheduler: Option<String>,
    /// With --device, how long the program computes before each request, as in 'nigh sim' [default: 100%]
    #[arg(long, value_name = "TIME", requires = "device")]
    pub(crate) think: Option<String>,
    /// With --device, when requests are issued: recorded, closed or a rate such as 2x, as in 'nigh sim'
    #[arg(long, value_name = "PACE", requires = "device")]
    pub(crate) pace: Option<String>,
    /// Threads that replay [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print one JSON object (its schema is in docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page that opens with the verdict
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    pub(crate) force: bool,
}

impl PlanArgs {
    /// The trace.
    ///
    /// # Panics
    /// If the question is about a server.
    pub(crate) fn trace(&self) -> &Path {
        self.trace.as_deref().expect("there is a trace or a server")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AllocateArg {
    /// LRU chooses the tenant; its policy and its hints choose which of its blocks to evict
    LruSp,
    /// LRU over all tenants; their hints about replacement are ignored
    Global,
    /// Each tenant gets an equal part
    Static,
    /// Each tenant gets a part, and memory goes where it saves most misses: at least half an equal part, and at most two, unless floor
    /// and ceiling are set
    Utility,
}

impl SimArgs {
    /// The place of the page.
    /// The page and its charts, as far as they are asked for.
    pub(crate) fn page(&self) -> anyhow::Result<Pages> {
        let profiles = self.timed.device.iter().flat_map(|devices| devices.split(','));
        // A profile may be that of one volume: 0=mine.toml.
        let profiles = profiles.map(|profile| Path::new(profile.rsplit('=').next().unwrap_or(profile)));
        let files = [&self.contents.contents, &self.patterns, &self.timed.control].into_iter().flatten();
        let files = files.chain(&self.trace).chain(&self.timed.extents).map(PathBuf::as_path);
        let read: Vec<&Path> = files.chain(profiles).collect();
        Pages::new(self.output.html.as_deref(), self.output.svg.as_deref(), self.output.force, &read)
    }

    /// Whether one trace is replayed: a single one, or several joined.
    pub(crate) fn is_one_trace(&self) -> bool {
        self.trace.len() <= 1 || self.join
    }
}

#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("pages").args(["html", "svg"]).multiple(true))]
pub(crate) struct OutputArgs {
    /// Print one JSON object (its schema is in docs/json.md)
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print a row for each policy and size as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write a page with curves, the time-space map and the policies' internals; with --levels, with what levels do over time; of
    /// several traces, with a chart for each
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write each chart of that page as an SVG file into this new or empty folder; needs Chromium or Chrome, which draws them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) svg: Option<PathBuf>,
    /// Replace the page if it exists, and charts of the same names
    #[arg(long, requires = "pages")]
    pub(crate) force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpsArg {
    /// Reads and writes
    All,
    /// Reads only
    Reads,
    /// Writes only
    Writes,
}

impl From<OpsArg> for Ops {
    fn from(ops: OpsArg) -> Ops {
        match ops {
            OpsArg::All => Ops::All,
            OpsArg::Reads => Ops::Reads,
            OpsArg::Writes => Ops::Writes,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Requests to generate, such as 100k or 20M [default: 1M]
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests: Option<String>,
    /// Seed of the generated workload, and of a modelled device: the same seed gives the same requests on any machine
    /// [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Share of the generated requests that write, such as 0.3 or 30% [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(crate) writes: Option<String>,
    /// Time between two generated requests, or with 'poisson:' before it the mean of random times (a Poisson process) [default: 100us]
    #[arg(long, value_name = "[poisson:]TIME")]
    pub(crate) arrivals: Option<String>,
}

/// A count such as `10` or `20k`.
fn parse_count(text: &str) -> Result<u64, &'static str> {
    nigh_text::count(text).ok_or("expected a count such as 10 or 20k")
}
