//! The command line: one table for flags, help, man page and completions.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A buffer cache that measures what programs read, chooses the policy that would help, and applies it.
#[derive(Debug, Parser)]
#[command(name = "nigh", version, max_term_width = 120, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what nigh does, start to finish: serve slow disks through several policies, and replay what they were asked
    Demo(DemoArgs),
    /// Replay a trace against replacement policies and cache sizes
    Sim(Box<SimArgs>),
    /// Look at, convert and generate traces
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Serve disks over NBD through a cache in memory
    #[command(after_long_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Protect working sets against thrashing, on this machine's own kernel
    #[command(after_long_help = GUARD_HELP)]
    Guard(GuardArgs),
    /// List the replacement policies, their parameters and their papers
    Policies(PoliciesArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff) of nigh or of one of its commands
    Man {
        /// The command, such as 'sim' or 'trace convert'; nigh itself if omitted
        command: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Write the page here
    #[arg(long, value_name = "FILE", default_value = "nigh-demo.html")]
    pub(crate) html: PathBuf,
    /// Requests that each policy serves, such as 30k
    #[arg(long, value_name = "COUNT", default_value = "30k")]
    pub(crate) requests: String,
    /// Threads that replay [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

const SERVE_HELP: &str = "\
Targets:
  PATH                     a regular file or block device
  memory:SIZE              memory, zeros at first; lost at the end
  delay:TIME:TARGET        another target, so much slower (also delay:seek=0.5ms..12ms,rotation=3ms,100M/s:TARGET)
  fault:read=3:TARGET      another target of which chosen operations fail

SIGTERM and SIGINT write everything back and end the server; SIGHUP reads --config again and changes memory and policy.";

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The disks: a name for clients, and what is served under it
    #[arg(value_name = "NAME=TARGET")]
    pub(crate) exports: Vec<String>,
    /// Listen here: unix:PATH or tcp:HOST:PORT; sockets of LISTEN_FDS are used, too
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,
    /// Serve one client on standard input and output, and end with it
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Memory for blocks, such as 512M [default: 512M]
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// How much memory SIGHUP can ask for [default: twice --memory]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_max: Option<String>,
    /// Which block leaves ('nigh policies' lists the policies) [default: lirs]
    #[arg(short, long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// When writes reach the devices [default: back]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) write_mode: Option<WriteModeArg>,
    /// Refuse writes to the disks
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Parts of the cache, each with its lock [default: four a processor]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<usize>,
    /// Clients at a time [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<usize>,
    /// Serve statistics over HTTP here: /metrics for Prometheus, /json
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Let others than this machine connect over TCP, without encryption
    #[arg(long)]
    pub(crate) insecure_tcp: bool,
    /// Read settings from this file (TOML); flags go before it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Explain what would be served, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// What is told on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WriteModeArg {
    /// Acknowledged in memory; on the device at a flush, or within seconds
    Back,
    /// Acknowledged when the device has it
    Through,
}

const GUARD_HELP: &str = "\
When groups that share a limit fault each other out of memory, one of them is protected for some seconds, until its working set is
there; then the next. Nothing is ever killed. What is changed is written down first, and restored at the end; after a crash, by the
next start or by 'nigh guard restore'. SIGTERM and SIGINT end the service.";

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GuardCommand>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// When to act: default, or dissertation (its literal conditions)
    #[arg(long, value_name = "PROFILE", default_value = "default")]
    pub(crate) profile: String,
    /// How to protect [default: the first that works]
    #[arg(long, value_enum, value_name = "MECHANISM")]
    pub(crate) mechanism: Option<MechanismArg>,
    /// Do not fetch the protected group's pages from swap
    #[arg(long)]
    pub(crate) no_prefetch: bool,
    /// Let the others stand still for so many seconds at the start of a protection, at most 3
    #[arg(long, value_name = "SECONDS")]
    pub(crate) freeze: Option<f64>,
    /// Protect only these groups and what is below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,
    /// Neither protect nor hinder these groups and what is below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) deny: Vec<String>,
    /// Look at and change only what is below this group, such as one that was delegated to you
    #[arg(long, value_name = "GROUP")]
    pub(crate) below: Option<String>,
    /// Serve statistics over HTTP here: /metrics for Prometheus, /json
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Keep the journal and the socket for 'status' here [default: /run/nigh-guard, a user's in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state: Option<PathBuf>,
    /// Where cgroups are mounted
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup", global = true)]
    pub(crate) cgroupfs: PathBuf,
    /// Where processes are mounted
    #[arg(long, value_name = "FOLDER", default_value = "/proc", global = true)]
    pub(crate) procfs: PathBuf,
    /// What is told on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardCommand {
    /// Run a command in a group of its own, so that it can be protected
    Run(GuardRunArgs),
    /// Say what the running guard does
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Restore what a guard that was killed has left changed
    Restore,
}

#[derive(Debug, Args)]
pub(crate) struct GuardRunArgs {
    /// The group's name [default: the command's, and a number]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Make the group below this one, without systemd [default: a scope of systemd; where it does not run, nigh]
    #[arg(long, value_name = "GROUP")]
    pub(crate) within: Option<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MechanismArg {
    /// memory.low of the group and those above it (cgroup v2)
    Low,
    /// memory.swappiness 0 of the group (cgroup v1)
    Swappiness,
    /// memory.high of the others (cgroup v2)
    Squeeze,
}

#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    /// Say more of these policies: their parameters and defaults
    #[arg(value_name = "POLICY")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a trace is read.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputArgs {
    /// The trace's format, where its content does not tell ('nigh trace formats' lists them)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// The columns of a CSV file, by position from 0 or by name: offset=3,length=4,op=2,time=0,time-unit=us
    ///
    /// Columns: offset (needed), length, op, time, tenant, stream, volume. Units: time-unit=s|ms|us|ns,
    /// offset-unit and length-unit=bytes|sectors|blocks. Words for operations besides the usual: read=R,write=W. The
    /// separator, where it is not told by the first line: separator=comma|tab|space|semicolon|bar.
    #[arg(long, value_name = "NAME=COLUMN,...")]
    pub(crate) columns: Option<String>,
    /// Which program counter column of a 'pc' trace is its stream: pc5, pc8, pc16, ra0 or file
    #[arg(long, value_name = "COLUMN")]
    pub(crate) stream: Option<String>,
    /// Which events of a 'blkparse' listing are the requests: queue, issue or complete
    #[arg(long, value_name = "EVENT")]
    pub(crate) action: Option<String>,
    /// In the formats that record objects, take the recorded sizes as lengths instead of one block an object
    #[arg(long)]
    pub(crate) recorded_sizes: bool,
    /// Bytes in a block, a power of two, such as 4096 or 64K [default: what the format says, else 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_size: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The trace: a file, or '-' for standard input; .gz, .zst and .xz are decompressed
    #[arg(value_name = "TRACE", required_unless_present = "generate")]
    pub(crate) trace: Option<PathBuf>,
    /// Replay a generated workload instead of a file, such as 'zipf:blocks=1M' ('nigh trace generate --help')
    #[arg(long, value_name = "SPEC", conflicts_with = "trace")]
    pub(crate) generate: Option<String>,
    #[command(flatten)]
    pub(crate) generation: GenerateArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Policies to replay, such as lru,lirs:hir=1%,clock-pro; 'all' is every one ('nigh policies' lists them)
    #[arg(short, long, value_name = "POLICY,...", value_delimiter = ',', default_value = crate::sim::POLICIES)]
    pub(crate) policy: Vec<String>,
    /// Cache sizes: shares of the distinct blocks (1%,5%), bytes (64M), blocks (100b), or ranges of these
    /// (64M..4G doubles, 100b..1000b/100b steps). Without sizes, LRU's curve is exact for every size
    #[arg(short, long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) size: Vec<String>,
    /// Which requests count
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) ops: OpsArg,
    /// Drop references that repeat the one before them of the same tenant
    #[arg(long)]
    pub(crate) collapse: bool,
    /// Replay only this share of the blocks, chosen by hash, such as 0.1 or 10% (SHARDS)
    #[arg(long, value_name = "RATE")]
    pub(crate) sample: Option<String>,
    /// References that warm the cache and are not counted: a number such as 5k, or a share such as 10%
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(crate) warmup: String,
    /// Read at most this many requests, such as 100k
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<String>,
    /// Threads that replay [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The size whose replays record the policies' internals for the page [default: the middle one]
    #[arg(long, value_name = "SIZE", requires = "html")]
    pub(crate) internals: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object (its schema is in docs/json.md)
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print a row for each policy and size as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write a page with curves, the time-space map and the policies' internals
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
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

#[derive(Clone, Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Requests to generate, such as 100k or 20M [default: 1M]
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests: Option<String>,
    /// Seed of the generated workload: the same seed gives the same requests on any machine [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Share of the generated requests that write, such as 0.3 or 30% [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(crate) writes: Option<String>,
    /// Mean time between two generated requests, in microseconds [default: 100]
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) gap: Option<f64>,
    /// Let generated requests arrive at random (a Poisson process) instead of evenly
    #[arg(long)]
    pub(crate) poisson: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarize a trace: what was asked for, how much, how often again
    Info {
        /// The trace: a file, or '-' for standard input
        trace: PathBuf,
        #[command(flatten)]
        input: InputArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the first requests of a trace as CSV
    Head {
        /// The trace: a file, or '-' for standard input
        trace: PathBuf,
        /// Requests to print
        #[arg(short = 'n', long, default_value_t = 10)]
        count: u64,
        #[command(flatten)]
        input: InputArgs,
    },
    /// Convert a trace to another format
    Convert {
        /// The trace: a file, or '-' for standard input
        from: PathBuf,
        /// The file to write, or '-' for standard output; its name tells format and compression
        to: PathBuf,
        #[command(flatten)]
        input: InputArgs,
        /// The format to write, where the file's name does not tell
        #[arg(long, value_name = "FORMAT")]
        to_format: Option<String>,
    },
    /// Generate a workload
    #[command(after_long_help = crate::trace::generators_help())]
    Generate {
        /// What to generate, such as 'zipf:blocks=1M:alpha=0.9' (see below)
        spec: String,
        /// The file to write, or '-' for standard output; its name tells format and compression
        to: PathBuf,
        #[command(flatten)]
        generation: GenerateArgs,
        /// Bytes in a block, a power of two, such as 4096 or 64K
        #[arg(long, value_name = "BYTES", default_value = "4096")]
        block_size: String,
        /// The format to write, where the file's name does not tell
        #[arg(long, value_name = "FORMAT")]
        to_format: Option<String>,
    },
    /// List the trace formats
    Formats,
}
