#![doc = include_str!("../README.md")]

mod changes;
mod disk;
mod fields;
mod manifest;
mod name;

pub use disk::{Disk, Fetch, Limits, Upload};
pub use manifest::{Manifest, ManifestError};
pub use name::Object;

/// Bytes of a part of a disk, which is one object. The last part of a disk may be shorter.
pub const PART: u64 = 4 << 20;
/// The size of a disk is a multiple of this, in bytes.
pub const UNIT: u64 = 4096;
/// The largest disk, in bytes.
pub const SIZE_MAX: u64 = 16 << 40;
/// The longest manifest, in bytes: that of the largest disk with the least regular numbers.
pub const MANIFEST_MAX: usize = manifest::HEAD + (SIZE_MAX / PART) as usize * manifest::ENTRY_MAX + manifest::SUM;
