//! Flags of `nigh trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{GenerateArgs, InputArgs, parse_count};

#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    /// The trace, each of whose volumes is a file: a path, or '-' for standard input
    pub(crate) from: PathBuf,
    /// The trace to write, or '-' for standard output; its name determines format and compression
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The files' sizes and paths (CSV: file_id,size,path); without it, a file ends where its last request ends
    #[arg(long, value_name = "FILE")]
    pub(crate) files: Option<PathBuf>,
    /// Take the places from this list instead (CSV: file,offset,disk,length)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "order", "fragmentation", "at"])]
    pub(crate) places: Option<PathBuf>,
    /// In which order files lie on the disk
    #[arg(long, value_enum, default_value = "first-use")]
    pub(crate) order: OrderArg,
    /// The share of block boundaries inside files at which the file is cut, such as 5%; the pieces after cuts lie
    /// all over the disk
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub(crate) fragmentation: String,
    /// Seed of the random cuts and of the places of the pieces
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Beginning of the first file, such as 2G; use it to place several programs' files on one disk
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) at: String,
    /// Use the places of the files on this machine's disk (FIEMAP), found by their paths in --files
    #[arg(long, requires = "files", conflicts_with_all = ["order", "fragmentation", "at"])]
    pub(crate) fiemap: bool,
    /// Write the places here (CSV: file,offset,disk,length), for 'nigh sim --extents'
    #[arg(long, value_name = "FILE")]
    pub(crate) extents: Option<PathBuf>,
    /// The format to write, if the file's name does not determine it
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to_format: Option<String>,
    /// Replace files if they exist
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// In the order of first use
    FirstUse,
    /// By path: the files of a folder lie together
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarize a trace: its requests, their sizes, and how often blocks are used again; for recordings, also which programs
    /// read which files, and how often
    Info {
        /// The trace: a file, or '-' for standard input
        trace: PathBuf,
        #[command(flatten)]
        input: InputArgs,
        /// Of a recording, how many programs and files to list, those with the most reads first
        #[arg(short = 'n', long, value_name = "COUNT", default_value = "10", value_parser = parse_count)]
        top: u64,
        /// Also show how often blocks are referenced, and how many other blocks are referenced in between
        #[arg(long)]
        histograms: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what the page cache holds of files now and has recently evicted, and how much of that a recording reads
    ///
    /// The kernel reports this of files that you own or may write, since Linux 6.5 (cachestat); an older one, of such files, only what is
    /// cached (mincore).
    Cached {
        /// Files, or folders with all files below them [default: the files of --with]
        #[arg(required_unless_present = "with")]
        files: Vec<PathBuf>,
        /// A recording that names its files (nigh record): count the pages that it reads, and reads again, and where they are now
        #[arg(long, value_name = "TRACE")]
        with: Option<PathBuf>,
        /// How many files to list, those with the most cached pages first
        #[arg(short = 'n', long, value_name = "COUNT", default_value = "10", value_parser = parse_count)]
        top: u64,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the first requests of a trace as CSV
    Head {
        /// The trace: a file, or '-' for standard input
        trace: PathBuf,
        /// Requests to print
        #[arg(short = 'n', long, default_value = "10", value_parser = parse_count)]
        count: u64,
        #[command(flatten)]
        input: InputArgs,
    },
    /// Convert a trace to another format
    Convert {
        /// The trace: a file, or '-' for standard input
        from: PathBuf,
        /// The file to write, or '-' for standard output; its name determines format and compression
        to: PathBuf,
        #[command(flatten)]
        input: InputArgs,
        /// The format to write, if the file's name does not determine it
        #[arg(long, value_name = "FORMAT")]
        to_format: Option<String>,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// Generate a workload
    #[command(after_long_help = crate::generators::generators_help())]
    Generate {
        /// Workload to generate, such as 'zipf:blocks=1M:alpha=0.9' (see below)
        spec: String,
        /// The file to write, or '-' for standard output; its name determines format and compression
        to: PathBuf,
        #[command(flatten)]
        generation: GenerateArgs,
        /// Bytes in a block, a power of two, such as 4096 or 64K
        #[arg(long, value_name = "BYTES", default_value = "4096")]
        block_size: String,
        /// The format to write, if the file's name does not determine it
        #[arg(long, value_name = "FORMAT")]
        to_format: Option<String>,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// Place the files of a trace on a disk, and write the trace of that disk
    Layout(Box<LayoutArgs>),
    /// List the trace formats
    Formats,
}
