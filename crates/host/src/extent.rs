//! Where files lie on a disk, as tenants name them.

/// A part of a file that lies on the disk in one piece. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct FileExtent {
    /// Which file; below 65,536.
    pub file: u32,
    /// Where it begins in the file; a multiple of 4096.
    pub offset: u64,
    /// Where it begins on the disk; a multiple of 4096.
    pub disk: u64,
    /// How long it is; not 0.
    pub length: u64,
}
