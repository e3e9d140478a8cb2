//! The formats, one file each.

use std::fmt;
use std::str::FromStr;

use crate::error::unknown_name;
use crate::input::Input;
use crate::records::Binary;
use crate::text::Text;
use crate::{BLOCK_BYTES_DEFAULT, Error, Opened, ReadOptions, Requests, Result};

pub(crate) mod arc;
pub mod blkparse;
pub mod csv;
pub(crate) mod disksim;
pub(crate) mod lcs;
pub(crate) mod lirs;
pub(crate) mod mqsim;
pub(crate) mod msr;
pub(crate) mod objects;
pub(crate) mod oracle_general;
pub mod parquet;
pub mod pc;
pub(crate) mod spc;
pub(crate) mod vscsi;

use parquet::ParquetReader;

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
    /// What `blkparse` prints.
    Blkparse,
    /// CSV of accesses with the program counters that issued them.
    Pc,
    /// CSV whose columns the user describes.
    Csv,
    /// nigh's own form, in Apache Parquet.
    Parquet,
}

use Format::{Arc, Blkparse, Csv, DiskSim, Lcs, Lirs, MqSim, Msr, OracleGeneral, Parquet, Pc, Spc, Vscsi};

const ALL: [Format; 13] = [Lirs, Arc, Vscsi, Msr, Spc, DiskSim, MqSim, OracleGeneral, Lcs, Blkparse, Pc, Csv, Parquet];

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
            Blkparse => "blkparse",
            Pc => "pc",
            Csv => "csv",
            Parquet => "parquet",
        }
    }

    /// What it holds, in a line.
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
            Blkparse => "text that blkparse prints by default",
            Pc => "CSV of reads and writes with hashes of the issuing call stack",
            Csv => "CSV with columns described by the user, or named as the fields of a request",
            Parquet => "nigh's own form, in Apache Parquet",
        }
    }

    /// The size of the blocks it counts in, where that is part of the format.
    pub(crate) fn block_bytes(self) -> Option<u32> {
        (self == Arc).then_some(arc::BLOCK_BYTES)
    }

    /// What the names of its files contain.
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
            Blkparse => &["blkparse", "blktrace"],
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

    /// By name, in any case, with or without its hyphens.
    fn from_str(given: &str) -> Result<Format> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let found = ALL.into_iter().find(|format| plain(format.name()) == plain(given));
        found.ok_or_else(|| unknown_name("trace format", given, &ALL.map(Format::name)))
    }
}

/// The trace in `input`, which is at its beginning.
pub(crate) fn open(format: Format, mut input: Input, options: &ReadOptions) -> Result<Opened> {
    let block_bytes = options.block_bytes.or(format.block_bytes()).unwrap_or(BLOCK_BYTES_DEFAULT);
    let requests: Box<dyn Requests + Send> = match format {
        Lirs => Box::new(Text::new(input, lirs::Parser::new(block_bytes))),
        Arc => Box::new(Text::new(input, arc::Parser { ignored_is_zero: false })),
        Vscsi => vscsi::reader(input)?,
        Msr => Box::new(Text::new(input, msr::Parser::default())),
        Spc => Box::new(Text::new(input, spc::Parser)),
        DiskSim => Box::new(Text::new(input, disksim::Parser)),
        MqSim => Box::new(Text::new(input, mqsim::Parser)),
        OracleGeneral => {
            let lengths = objects::Objects::new(block_bytes, options.recorded_sizes);
            Box::new(Binary::new(input, oracle_general::Decoder { objects: lengths }))
        }
        Lcs => lcs::reader(input, objects::Objects::new(block_bytes, options.recorded_sizes))?,
        Blkparse => Box::new(Text::new(input, blkparse::Parser::new(options.action))),
        Pc => Box::new(Text::new(input, pc::Parser::new(options.stream))),
        Csv => Box::new(Text::new(input, csv::Parser::new(options.columns.clone(), block_bytes))),
        Parquet => {
            let reader = if input.is_plain_file() {
                ParquetReader::open(input.path(), options.block_bytes)?
            } else {
                ParquetReader::from_file(input.spool()?, input.path(), options.block_bytes)?
            };
            return Ok(Opened { format, block_bytes: reader.block_bytes(), requests: Box::new(reader) });
        }
    };
    Ok(Opened { format, block_bytes, requests })
}
