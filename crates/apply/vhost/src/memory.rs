//! The guest's memory, as the frontend describes it: regions of files that are mapped here, too.
//!
//! **Invariant:** an access to mapped memory never faults. A region is mapped if its file is as long as the region, and cannot become
//! shorter: it has the seal F_SEAL_SHRINK, and its pages are not of hugetlbfs, where they can run out. With `unsealed`, the owner of the file can
//! end this process by making it shorter.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::SealFlags;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap, MmapRegion, mmap::MmapRegionError,
};

/// The memory of a guest.
pub(crate) type Memory = GuestMemoryMmap<()>;

/// Regions at a time, as many as QEMU asks for at most.
pub(crate) const REGIONS_MAX: usize = 509;

/// As in `statfs`.
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why a region cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(
        "its file can become shorter: it has no seal F_SEAL_SHRINK (for QEMU, use memory-backend-memfd with share=on)"
    )]
    Unsealed,
    #[error("its file is of hugetlbfs, whose pages can run out")]
    Huge,
    #[error("its file is shorter than the region")]
    Short,
    #[error("it overlaps with another one")]
    Overlap,
    #[error("there are more than {REGIONS_MAX}")]
    TooMany,
    #[error("together they would have more than {0} bytes")]
    TooLarge(u64),
    #[error("there is no such region")]
    Unknown,
    #[error("its addresses overflow")]
    Address,
    #[error("its file cannot be examined: {0}")]
    File(#[from] io::Error),
    #[error("it cannot be mapped: {0}")]
    Map(#[from] MmapRegionError),
}

impl From<rustix::io::Errno> for MemoryError {
    fn from(errno: rustix::io::Errno) -> MemoryError {
        MemoryError::File(errno.into())
    }
}

/// A region as the frontend describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The guest's address.
    pub(crate) guest: u64,
    pub(crate) bytes: u64,
    /// The frontend's address.
    pub(crate) user: u64,
    /// Its offset in its file.
    pub(crate) offset: u64,
}

/// A region that is mapped.
#[derive(Clone)]
struct Region {
    place: Place,
    mapped: Arc<GuestRegionMmap>,
}

/// The regions of a guest.
#[derive(Clone)]
pub(crate) struct Table {
    /// Whether files that can become shorter are mapped.
    unsealed: bool,
    /// Bytes of all regions.
    most: u64,
    regions: Vec<Region>,
}

impl Table {
    /// No regions yet, and at most `most` bytes; with `unsealed`, of any file.
    pub(crate) fn new(unsealed: bool, most: u64) -> Table {
        Table { unsealed, most, regions: Vec::new() }
    }

    /// Makes `regions` those of the guest.
    pub(crate) fn replace(&mut self, regions: Vec<(Place, File)>) -> Result<(), MemoryError> {
        let mut new = Table { regions: Vec::new(), ..*self };
        regions.into_iter().try_for_each(|(place, file)| new.add(place, file))?;
        *self = new;
        Ok(())
    }

    /// Adds a region.
    pub(crate) fn add(&mut self, place: Place, file: File) -> Result<(), MemoryError> {
        let has: u64 = self.regions.iter().map(|region| region.place.bytes).sum();
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        if place.bytes > self.most - has {
            return Err(MemoryError::TooLarge(self.most));
        }
        for start in [place.guest, place.user, place.offset] {
            start.checked_add(place.bytes).ok_or(MemoryError::Address)?;
        }
        let overlaps = |other: &Region| {
            place.guest < other.place.guest + other.place.bytes && other.place.guest < place.guest + place.bytes
        };
        if self.regions.iter().any(overlaps) {
            return Err(MemoryError::Overlap);
        }
        self.check(&place, &file)?;
        let bytes = usize::try_from(place.bytes).map_err(|_| MemoryError::Address)?;
        let mapped = MmapRegion::from_file(FileOffset::new(file, place.offset), bytes)?;
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(place.guest)).ok_or(MemoryError::Address)?;
        self.regions.push(Region { place, mapped: Arc::new(mapped) });
        Ok(())
    }

    /// Whether accesses to the region will not fault.
    fn check(&self, place: &Place, file: &File) -> Result<(), MemoryError> {
        if !self.unsealed {
            // Files that cannot have seals have no such call.
            let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| MemoryError::Unsealed)?;
            if !seals.contains(SealFlags::SHRINK) {
                return Err(MemoryError::Unsealed);
            }
            if rustix::fs::fstatfs(file)?.f_type as i64 == HUGETLBFS {
                return Err(MemoryError::Huge);
            }
        }
        // After its seals: then it stays as long.
        if file.metadata()?.len() < place.offset + place.bytes {
            return Err(MemoryError::Short);
        }
        Ok(())
    }

    /// Removes a region.
    pub(crate) fn remove(&mut self, place: &Place) -> Result<(), MemoryError> {
        let is_it = |region: &Region| {
            let Place { guest, bytes, user, .. } = region.place;
            (guest, bytes, user) == (place.guest, place.bytes, place.user)
        };
        let at = self.regions.iter().position(is_it).ok_or(MemoryError::Unknown)?;
        self.regions.remove(at);
        Ok(())
    }

    /// The memory; none without regions.
    pub(crate) fn memory(&self) -> Option<Arc<Memory>> {
        let mut mapped: Vec<_> = self.regions.iter().map(|region| region.mapped.clone()).collect();
        mapped.sort_by_key(|region| region.start_addr());
        Memory::from_arc_regions(mapped).ok().map(Arc::new)
    }

    /// The guest's address of one of the frontend's.
    pub(crate) fn guest(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|Region { place, .. }| {
            let within = user.checked_sub(place.user).filter(|within| *within < place.bytes)?;
            Some(GuestAddress(place.guest + within))
        })
    }
}
