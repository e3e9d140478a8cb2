//! One file per format.

pub mod parquet;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Text, one block number a line.
    Lirs,
    /// Binary VMware SCSI traces, versions 1 and 2.
    Vscsi,
    /// Binary oracleGeneral of libCacheSim.
    OracleGeneral,
    /// CSV whose columns the user describes.
    Csv,
    /// nigh's own form, in Apache Parquet.
    Parquet,
    /// Other.
    Msr,
}
impl Format {
    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Format::Lirs => "lirs",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oracle-general",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Msr => "msr",
        }
    }
}
impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(self.name())
    }
}
impl std::str::FromStr for Format {
    type Err = crate::Error;

    fn from_str(given: &str) -> crate::Result<Format> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let found = [Format::Lirs, Format::Vscsi, Format::OracleGeneral, Format::Csv, Format::Parquet, Format::Msr]
            .into_iter()
            .find(|format| plain(format.name()) == plain(given));
        found.ok_or_else(|| crate::Error::OutputFormat { path: "".into() })
    }
}
