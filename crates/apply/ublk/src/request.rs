//! A request as the kernel describes it.

use std::ops::Range;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;
/// Sectors of a discard or of zeroes at most.
pub(crate) const RANGE_SECTORS: u32 = 65_536;

/// Bits of `op_flags` that are the operation.
const OPERATION: u32 = 0xff;
const FUA: u32 = 1 << 13;
/// Zeroes keep their space.
const NO_UNMAP: u32 = 1 << 15;

/// A descriptor of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) op_flags: u32,
    pub(crate) sectors: u32,
    /// The first sector.
    pub(crate) start: u64,
}

/// An operation, and its bytes of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(Range<u64>),
    Write {
        range: Range<u64>,
        /// It is over when it is stable.
        fua: bool,
    },
    Flush,
    Discard(Range<u64>),
    Zeroes {
        range: Range<u64>,
        /// The space of the range is not given up.
        keep: bool,
        fua: bool,
    },
    /// The server does not know it, or it ends beyond what numbers can express.
    Unsupported,
}

impl Descriptor {
    /// Its operation.
    pub(crate) fn operation(self) -> Operation {
        let bytes = u64::from(self.sectors) * SECTOR;
        let start = self.start.checked_mul(SECTOR);
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let fua = self.op_flags & FUA != 0;
        match (self.op_flags & OPERATION, range) {
            (0, Some(range)) => Operation::Read(range),
            (1, Some(range)) => Operation::Write { range, fua },
            (2, _) => Operation::Flush,
            (3, Some(range)) => Operation::Discard(range),
            (5, Some(range)) => Operation::Zeroes { range, keep: self.op_flags & NO_UNMAP != 0, fua },
            _ => Operation::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(op_flags: u32, start: u64, sectors: u32) -> Operation {
        Descriptor { op_flags, sectors, start }.operation()
    }

    #[test]
    fn descriptors_are_operations() {
        assert_eq!(operation(0, 8, 8), Operation::Read(4096..8192));
        assert_eq!(operation(1, 0, 1), Operation::Write { range: 0..512, fua: false });
        // With hints of the kernel, which do not matter: metadata, swap.
        assert_eq!(operation(1 | FUA | 1 << 11 | 1 << 16, 1, 2), Operation::Write { range: 512..1536, fua: true });
        assert_eq!(operation(2, u64::MAX, 0), Operation::Flush);
        assert_eq!(operation(3, 0, 65_536), Operation::Discard(0..32 << 20));
        assert_eq!(operation(5, 0, 8), Operation::Zeroes { range: 0..4096, keep: false, fua: false });
        assert_eq!(operation(5 | NO_UNMAP | FUA, 0, 8), Operation::Zeroes { range: 0..4096, keep: true, fua: true });
    }

    #[test]
    fn others_are_not_supported() {
        // Zones, and ranges beyond the largest number.
        for (op, start) in [(4, 0), (10, 0), (255, 0), (0, u64::MAX), (1, u64::MAX / 512), (3, u64::MAX / 512)] {
            assert_eq!(operation(op, start, 8), Operation::Unsupported, "{op} at {start}");
        }
    }
}
