//! The formats, one file each.

use std::fmt;
use std::str::FromStr;

use crate::error::unknown_name;
use crate::input::Input;
use crate::records::Binary;
use crate::skip::Bounds;
use crate::text::Text;
use crate::{BLOCK_BYTES_DEFAULT, Error, Opened, ReadOptions, Requests, Result, Stream, Taken};

pub(crate) mod alibaba;
pub(crate) mod arc;
pub(crate) mod biosnoop;
pub mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod bpftrace;
pub(crate) mod csv;
pub(crate) mod described;
pub(crate) mod disksim;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod lcs;
pub(crate) mod lirs;
pub(crate) mod mqsim;
pub(crate) mod msr;
pub(crate) mod objects;
pub(crate) mod oracle_general;
pub mod parquet;
pub(crate) mod pc;
pub(crate) mod perf;
pub(crate) mod raw;
pub(crate) mod spc;
pub(crate) mod strace;
pub(crate) mod tencent;
pub(crate) mod vscsi;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Text, one block number a line.
    Lirs,
    /// Text of the ARC paper's traces.
    Arc,
    /// Binary VMware SCSI traces, versions 1 and 2.
    Vscsi,
    /// CSV of the MSR Cambridge traces.
    Msr,
    /// CSV of the Storage Performance Council, as in the UMass repository.
    Spc,
    /// DiskSim's text.
    DiskSim,
    /// The text of MQSim and SSDsim.
    MqSim,
    /// Binary oracleGeneral of libCacheSim.
    OracleGeneral,
    /// Binary lcs of libCacheSim.
    Lcs,
    /// CSV of the Alibaba block traces.
    Alibaba,
    /// CSV of Tencent's block traces.
    Tencent,
    /// The text of FIU's traces with digests of contents.
    Fiu,
    /// The output of `blkparse`.
    Blkparse,
    /// Binary events of `blktrace`.
    Blktrace,
    /// Block events in the output of `perf script` and ftrace.
    Perf,
    /// The output of `biosnoop`.
    Biosnoop,
    /// Block requests in the output of bpftrace programs.
    Bpftrace,
    /// The output of `strace` for calls on files.
    Strace,
    /// fio's log of requests, versions 2 and 3.
    Fio,
    /// Block numbers of 32 bits.
    RawU32,
    /// Block numbers of 64 bits.
    RawU64,
    /// Binary records whose columns the user describes.
    Records,
    /// CSV of accesses with the program counters that issued them.
    Pc,
    /// CSV whose columns the user describes.
    Csv,
    /// nigh's own form, in Apache Parquet.
    Parquet,
}

use Format::{
    Alibaba, Arc, Biosnoop, Blkparse, Blktrace, Bpftrace, Csv, DiskSim, Fio, Fiu, Lcs, Lirs, MqSim, Msr, OracleGeneral,
    Parquet, Pc, Perf, RawU32, RawU64, Records, Spc, Strace, Tencent, Vscsi,
};

const ALL: [Format; 25] = [
    Lirs,
    Arc,
    Vscsi,
    Msr,
    Spc,
    DiskSim,
    MqSim,
    OracleGeneral,
    Lcs,
    Alibaba,
    Tencent,
    Fiu,
    Blkparse,
    Blktrace,
    Perf,
    Biosnoop,
    Bpftrace,
    Strace,
    Fio,
    RawU32,
    RawU64,
    Pc,
    Csv,
    Records,
    Parquet,
];

impl Format {
    /// Every format.
    pub fn all() -> &'static [Format] {
        &ALL
    }

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Lirs => "lirs",
            Arc => "arc",
            Vscsi => "vscsi",
            Msr => "msr",
            Spc => "spc",
            DiskSim => "disksim",
            MqSim => "mqsim",
            OracleGeneral => "oracle-general",
            Lcs => "lcs",
            Alibaba => "alibaba",
            Tencent => "tencent",
            Fiu => "fiu",
            Blkparse => "blkparse",
            Blktrace => "blktrace",
            Perf => "perf",
            Biosnoop => "biosnoop",
            Bpftrace => "bpftrace",
            Strace => "strace",
            Fio => "fio",
            RawU32 => "raw-u32",
            RawU64 => "raw-u64",
            Records => "records",
            Pc => "pc",
            Csv => "csv",
            Parquet => "parquet",
        }
    }

    /// Its contents, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Lirs => "text, one block number a line (LIRS authors)",
            Arc => "text: first block, blocks, ignored, request number; blocks of 512 bytes (ARC paper, .lis)",
            Vscsi => "binary SCSI commands of a VM, versions 1 and 2 (VMware, CloudPhysics)",
            Msr => "CSV: filetime, host, disk, Read or Write, offset, size, response time (MSR Cambridge)",
            Spc => "CSV: ASU, sector, bytes, R or W, seconds (SPC, UMass)",
            DiskSim => "text: milliseconds, device, sector, sectors, flags (DiskSim)",
            MqSim => "text: nanoseconds, device, sector, sectors, 0 for write or 1 for read (MQSim, SSDsim)",
            OracleGeneral => "binary records of 24 bytes: seconds, object, size, next access (libCacheSim)",
            Lcs => "binary with a header, versions 1 to 8 (libCacheSim)",
            Alibaba => "CSV: disk, R or W, offset, length, microseconds (Alibaba block traces)",
            Tencent => "CSV: seconds, sector, sectors, 0 for read or 1 for write, volume (Tencent block traces)",
            Fiu => {
                "text: nanoseconds, process id and name, sector, sectors, W or R, device, digest of the contents (FIU, IODedup)"
            }
            Blkparse => "text that blkparse prints by default",
            Blktrace => "binary events by blktrace, DEVICE.blktrace.0 with those of the other processors",
            Perf => "text: block events by perf script, trace-cmd or ftrace",
            Biosnoop => "text that biosnoop prints (bcc, libbpf-tools)",
            Bpftrace => {
                "text or JSON of a bpftrace program that prints names and values: nsecs=… rwbs=… sector=… nr_sector=…"
            }
            Strace => "text: calls on files by strace; best with -f -y -ttt",
            Fio => "text: fio's iolog, versions 2 and 3 (--write_iolog)",
            RawU32 => "binary: block numbers of 32 bits, little-endian",
            RawU64 => "binary: block numbers of 64 bits, little-endian",
            Records => "binary records of equal length with columns described by the user",
            Pc => "CSV of reads and writes with hashes of the issuing call stack",
            Csv => "CSV with columns described by the user, or named as the fields of a request",
            Parquet => "nigh's own form, in Apache Parquet",
        }
    }

    /// Its block size, if that is part of the format.
    pub(crate) fn block_bytes(self) -> Option<u32> {
        (self == Arc).then_some(arc::BLOCK_BYTES)
    }

    /// The level at which its traces are recorded, if that is part of the format.
    fn taken(self) -> Option<Taken> {
        match self {
            Blkparse | Blktrace | Perf | Biosnoop => Some(Taken::Below),
            Strace => Some(Taken::Above),
            _ => None,
        }
    }

    /// Words that occur in the names of its files.
    pub(crate) fn file_words(self) -> &'static [&'static str] {
        match self {
            Lirs => &["lirs"],
            Arc => &["arc", ".lis"],
            Vscsi => &["vscsi"],
            Msr => &["msr"],
            Spc => &["spc"],
            DiskSim => &["disksim", ".dis"],
            MqSim => &["mqsim", "ssdsim", "dtrs"],
            OracleGeneral => &["oraclegeneral", "oracle-general"],
            Lcs => &["lcs"],
            Alibaba => &["alibaba"],
            Tencent => &["tencent"],
            Fiu => &["fiu", "iodedup"],
            Blkparse => &["blkparse", "blktrace"],
            Blktrace => &["blktrace"],
            Perf => &["perf"],
            Biosnoop => &["biosnoop"],
            Bpftrace => &["bpftrace"],
            Strace => &["strace"],
            Fio => &["fio", "iolog"],
            RawU32 => &["u32"],
            RawU64 => &["u64"],
            Records => &["records"],
            Pc => &["pc"],
            Csv => &["csv"],
            Parquet => &["parquet"],
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    /// By name, in any case, with or without hyphens.
    fn from_str(given: &str) -> Result<Format> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let found = ALL.into_iter().find(|format| plain(format.name()) == plain(given));
        found.ok_or_else(|| unknown_name("trace format", given, &ALL.map(Format::name)))
    }
}

/// The trace in `input`, which is at its beginning.
pub(crate) fn open(format: Format, mut input: Input, options: &ReadOptions) -> Result<Opened> {
    let taken = if format == Bpftrace { Some(bpftrace::taken(&mut input)?) } else { format.taken() };
    let of_trace = format.block_bytes().or((taken == Some(Taken::Database)).then_some(bpftrace::DATABASE_PAGE_BYTES));
    let block_bytes = options.block_bytes.or(of_trace).unwrap_or(BLOCK_BYTES_DEFAULT);
    let limit = options.limit.unwrap_or(u64::MAX);
    let bounds = Bounds { limit, skips_bad: options.skip_bad };
    let columns = options.columns.as_ref();
    let requests: Box<dyn Requests + Send> = match format {
        Lirs => Box::new(Text::new(input, lirs::Parser::new(block_bytes), bounds)),
        Arc => Box::new(Text::new(input, arc::Parser { ignored_is_zero: false }, bounds)),
        Vscsi => vscsi::reader(input, bounds)?,
        Msr => Box::new(Text::new(input, msr::Parser::default(), bounds)),
        Spc => Box::new(Text::new(input, spc::Parser, bounds)),
        DiskSim => Box::new(Text::new(input, disksim::Parser, bounds)),
        MqSim => Box::new(Text::new(input, mqsim::Parser, bounds)),
        Fiu => Box::new(Text::new(input, fiu::Parser, bounds)),
        OracleGeneral => {
            let lengths = objects::Objects::new(block_bytes, options.recorded_sizes);
            Box::new(Binary::new(input, oracle_general::Decoder { objects: lengths }, bounds))
        }
        Lcs => lcs::reader(input, objects::Objects::new(block_bytes, options.recorded_sizes), bounds)?,
        Alibaba => Box::new(Text::new(input, alibaba::Parser, bounds)),
        Tencent => Box::new(Text::new(input, tencent::Parser, bounds)),
        Blkparse => blkparse::reader(input, options.action, bounds)?,
        Blktrace => blktrace::reader(input, options.action, bounds)?,
        Perf => perf::reader(input, options.action, bounds)?,
        Biosnoop => Box::new(Text::new(input, biosnoop::Parser::default(), bounds)),
        Bpftrace => Box::new(Text::new(input, bpftrace::Parser::default(), bounds)),
        Strace => Box::new(Text::new(input, strace::Parser::default(), bounds)),
        Fio => Box::new(Text::new(input, fio::Parser::default(), bounds)),
        RawU32 => Box::new(Binary::new(input, raw::Decoder32 { block_bytes }, bounds)),
        RawU64 => Box::new(Binary::new(input, raw::Decoder64 { block_bytes }, bounds)),
        Pc => Box::new(Text::new(input, pc::Parser::new(options.stream.unwrap_or(Stream::Pc8)), bounds)),
        Csv => csv::reader(input, columns, block_bytes, bounds)?,
        Records => {
            let Some((columns, frame)) = columns.and_then(|columns| Some((columns, columns.record?))) else {
                return Err(Error::NotDescribed { path: input.path().to_owned() });
            };
            described::reader(input, columns, frame, block_bytes, bounds)?
        }
        Parquet => return parquet::open(input, options),
    };
    Ok(Opened { format, block_bytes, taken, requests })
}
