//! Pins: blocks that a program reads in the cache, and copies that it changes.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::{null, null_mut};

use ::nigh_host::{BLOCK, Pinned, PinnedMut};

use crate::args::{flags, owned, place, range, reference};
use crate::disk::nigh_disk;
use crate::error::{Error, entry};
use crate::{NIGH_DURABLE, NIGH_NEW, NIGH_NOWAIT};

const SEVERAL: Error = Error::invalid(c"a pin lies within one block of 4096 bytes");
const ABSENT: Error = Error::fixed(libc::EAGAIN, c"the block is not in the cache");

/// Bytes in the cache.
#[repr(C)]
pub struct nigh_pinned {
    /// The first byte.
    pub data: *const c_void,
    /// Number of bytes.
    pub length: usize,
    /// A [`Held`], or null once it is released.
    pub opaque: *mut c_void,
}

/// A copy of blocks that is to be changed.
#[repr(C)]
pub struct nigh_pinned_mut {
    /// The first byte.
    pub data: *mut c_void,
    /// Number of bytes.
    pub length: usize,
    /// A [`Held`], or null once it is released.
    pub opaque: *mut c_void,
}

/// A pin or a change that the program has.
struct Held<T> {
    held: T,
    /// Forks at its beginning: in a child, dropping it could wait for a lock.
    forks: u32,
}

impl nigh_pinned {
    /// No pin.
    pub(crate) const NONE: nigh_pinned = nigh_pinned { data: null(), length: 0, opaque: null_mut() };

    /// Gives `held`, which lies within one block, to the program.
    #[inline]
    pub(crate) fn give(held: Pinned, forks: u32) -> nigh_pinned {
        let held = Box::new(Held { held, forks });
        let (data, length) = (held.held.as_ptr().cast(), held.held.len());
        nigh_pinned { data, length, opaque: Box::into_raw(held).cast() }
    }
}

impl nigh_pinned_mut {
    /// No change.
    const NONE: nigh_pinned_mut = nigh_pinned_mut { data: null_mut(), length: 0, opaque: null_mut() };
}

/// The range of a pin, which lies within one block.
pub(crate) fn within_block(offset: u64, length: usize) -> Result<Range<u64>, Error> {
    let range = range(offset, length as u64)?;
    if range.start / BLOCK == (range.end - 1) / BLOCK { Ok(range) } else { Err(SEVERAL) }
}

/// Takes a pin or a change back from the program.
///
/// # Safety
/// `opaque` is null, or came from a box of a `Held<T>` and was not taken back.
#[inline]
unsafe fn take<T>(opaque: &mut *mut c_void) -> Result<Box<Held<T>>, Error> {
    let held: *mut Held<T> = opaque.cast();
    // SAFETY: the caller's.
    if unsafe { reference(held) }.map_err(|_| RELEASED)?.forks != nigh_backend::forks() {
        return Err(Error::FORKED);
    }
    *opaque = null_mut();
    // SAFETY: the caller's.
    unsafe { owned(held) }
}

const RELEASED: Error = Error::invalid(c"it is no pin, or was released");

/// Pins a range within a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_pin(
    disk: *mut nigh_disk,
    offset: u64,
    length: usize,
    flag: u32,
    pinned: *mut nigh_pinned,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a place for a pin.
        let (disk, pinned) = unsafe { (reference(disk)?, place(pinned)?) };
        *pinned = nigh_pinned::NONE;
        flags(flag, NIGH_NOWAIT)?;
        let range = within_block(offset, length)?;
        let held = match flag & NIGH_NOWAIT {
            0 => disk.session.pin(range)?,
            _ => match disk.session.try_pin(range)? {
                Some(held) => held,
                None => return Err(ABSENT),
            },
        };
        *pinned = nigh_pinned::give(held, disk.forks);
        Ok(0)
    })
}

/// Releases a pin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_unpin(pinned: *mut nigh_pinned) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a pin of the library.
        let pinned = unsafe { place(pinned) }?;
        // SAFETY: `give` made it, and a pin that was released is cleared.
        drop(unsafe { take::<Pinned>(&mut pinned.opaque) }?);
        *pinned = nigh_pinned::NONE;
        Ok(0)
    })
}

/// A copy of whole blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_pin_mut(
    disk: *mut nigh_disk,
    offset: u64,
    length: usize,
    flag: u32,
    pinned: *mut nigh_pinned_mut,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a place for a change.
        let (disk, pinned) = unsafe { (reference(disk)?, place(pinned)?) };
        *pinned = nigh_pinned_mut::NONE;
        flags(flag, NIGH_NEW)?;
        disk.check()?;
        let range = range(offset, length as u64)?;
        let mut held = match flag & NIGH_NEW {
            0 => disk.session.pin_mut(range)?,
            _ => disk.session.pin_new(range)?,
        };
        // On the heap: they stay where they are when `held` moves.
        let (data, length) = (held.as_mut_ptr().cast(), held.len());
        let opaque = Box::into_raw(Box::new(Held { held, forks: disk.forks })).cast();
        *pinned = nigh_pinned_mut { data, length, opaque };
        Ok(0)
    })
}

/// Takes a change back and clears its place.
///
/// # Safety
/// `pinned` is null or a change of the library.
unsafe fn take_change(pinned: *mut nigh_pinned_mut) -> Result<PinnedMut, Error> {
    // SAFETY: the caller's.
    let pinned = unsafe { place(pinned) }?;
    // SAFETY: nigh_pin_mut made it, and a change that is over is cleared.
    let change = unsafe { take(&mut pinned.opaque) }?.held;
    *pinned = nigh_pinned_mut::NONE;
    Ok(change)
}

/// Writes a change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_commit(pinned: *mut nigh_pinned_mut, flag: u32) -> c_int {
    entry(|| {
        flags(flag, NIGH_DURABLE)?;
        // SAFETY: nigh.h: a change of the library.
        unsafe { take_change(pinned) }?.commit(flag & NIGH_DURABLE != 0)?;
        Ok(0)
    })
}

/// Drops a change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_abort(pinned: *mut nigh_pinned_mut) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a change of the library.
        unsafe { take_change(pinned) }?.abort();
        Ok(0)
    })
}
