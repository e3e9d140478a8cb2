//! The extents of files on a disk, as tenants name them.

/// A contiguous part of a file on the disk. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileExtent {
    /// The file; below 65,536.
    pub file: u32,
    /// Its start in the file; a multiple of 4096.
    pub offset: u64,
    /// Its start on the disk; a multiple of 4096.
    pub disk: u64,
    /// Its length; not 0.
    pub length: u64,
}
