//! Changes of files. The source is changed first, then the cache follows: it gets the bytes that were written, or forgets the blocks.
//!
//! **Invariant:** when a change is acknowledged, the source has it, and the cache has the same bytes or none. Changes of overlapping ranges
//! take turns, so both see them in the same order.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use fuser::CopyFileRangeFlags;
use nigh_host::{BLOCK, Session};
use nigh_service::front::Asked;
use nigh_trace::Op;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::file::{File, failed};
use crate::handle::Handle;
use crate::inodes::Inode;
use crate::shared::Shared;
use crate::source;

/// Most bytes that one call copies between files, the most that a reply can count.
const COPY_MOST: u64 = 1 << 30;

/// A write as the kernel asks for it.
pub(crate) struct Written<'a> {
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// It comes from a mapping, so the offset counts even for a file that is opened for appending.
    pub(crate) is_mapped: bool,
    /// The writer may not keep set-user-ID and set-group-ID bits.
    pub(crate) clears_rights: bool,
}

impl Shared {
    /// Writes, and returns how many bytes were written.
    pub(crate) fn write(&self, handle: &Handle, written: &Written<'_>) -> io::Result<u32> {
        let since = Instant::now();
        let &Written { offset, bytes, is_mapped, clears_rights } = written;
        let opened = handle.opened.as_ref().filter(|_| handle.can_write).ok_or(Errno::BADF)?;
        let append = handle.append.as_ref().filter(|_| !is_mapped);
        let file = &handle.file;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        // Without this, two writers that append could reach the source and the cache in different orders.
        let _held = if append.is_some() { file.ranges.hold_all() } else { file.ranges.hold(blocks(offset..end)) };
        let change = file.begin(&self.rules, &self.session, || source::stat(opened))?;
        let old = file.size();
        let result = match append {
            Some(append) => write_behind(append, bytes),
            None => write_at(opened, bytes, offset).map(|length| (offset, length)),
        };
        let (start, length) = match result {
            Ok(written) => written,
            Err(error) => {
                // Part of it may have been written.
                let lost = if append.is_some() { old..u64::MAX } else { offset..end };
                if file.forget(&self.session, lost).is_ok() {
                    change.end(|| source::stat(opened));
                }
                return Err(error);
            }
        };
        if append.is_some() && start != old {
            // Another program appended before.
            file.forget(&self.session, start.min(old)..u64::MAX).map_err(failed)?;
        }
        if clears_rights {
            clear_rights(opened)?;
        }
        let done = start..start + length as u64;
        let is_cached = match &handle.session {
            Some(session) => self.store(file, session, &done, &bytes[..length]),
            None => file.forget(&self.session, done.clone()).is_ok(),
        };
        file.grow(done.end);
        // Otherwise it is dropped, and the next open has the cache forget the file.
        if is_cached {
            change.end(|| source::stat(opened));
        }
        if let Some(place) = file.place(&self.volume, start) {
            let asked = Asked::new(Op::Write, place.disk, length as u64, since);
            self.recorder.record(&self.disk, handle.number, &asked, since.elapsed());
        }
        Ok(length as u32)
    }

    /// Gives the cache bytes that the source has. Returns false if the cache may have others.
    fn store(&self, file: &Arc<File>, session: &Session, range: &Range<u64>, bytes: &[u8]) -> bool {
        file.extend_reach(range.end);
        let mut at = range.start;
        while at < range.end {
            let Some(place) = file.place(&self.volume, at) else { break };
            let length = place.bytes.min(range.end - at);
            let from = (at - range.start) as usize;
            if session.write(place.disk, &bytes[from..from + length as usize], false).is_err() {
                break;
            }
            at += length;
        }
        at == range.end || file.forget(&self.session, at..range.end).is_ok()
    }

    /// Changes a file by `change`, after which the cache forgets `lost`. `stat` returns the attributes of the source.
    fn change<R>(
        &self,
        file: &File,
        opened: &OwnedFd,
        lost: Range<u64>,
        change: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let begun = file.begin(&self.rules, &self.session, || source::stat(opened))?;
        let result = change();
        if file.forget(&self.session, lost).is_ok() {
            begun.end(|| source::stat(opened));
        }
        result
    }

    /// Makes the file `size` bytes long.
    pub(crate) fn truncate(&self, inode: &Inode, handle: Option<&Handle>, size: u64, clears: bool) -> io::Result<()> {
        let file = self.files.get(inode.id);
        file.set_path(&inode.path);
        let opened = match handle.filter(|handle| handle.can_write).and_then(|handle| handle.opened.clone()) {
            Some(opened) => opened,
            None => Arc::new(source::reopen(&inode.path, OFlags::WRONLY)?),
        };
        let _held = file.ranges.hold_all();
        let before = file.begin(&self.rules, &self.session, || source::stat(&opened))?;
        let old = file.size();
        // Reads see the shorter file first, so that none gets zeros in place of what was cut off.
        file.set_size(size.min(old));
        let result = rustix::fs::ftruncate(&opened, size).map_err(io::Error::from);
        if result.is_ok() && clears {
            clear_rights(&opened)?;
        }
        // The last block, too: it has zeros from here on.
        let lost = size.min(old)..u64::MAX;
        let is_forgotten = if size < old { file.forget(&self.session, lost).is_ok() } else { true };
        file.set_size(if result.is_ok() { size } else { old });
        if is_forgotten {
            before.end(|| source::stat(&opened));
        }
        result
    }

    /// Changes attributes or names of a file by `change`, which leaves its contents.
    pub(crate) fn keeping<R>(&self, inode: &Inode, change: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.files.known(inode.id) {
            Some(file) => self.change(&file, &inode.path, 0..0, change),
            None => change(),
        }
    }

    /// Allocates space, punches holes, or makes ranges zeros.
    pub(crate) fn allocate(&self, handle: &Handle, offset: u64, length: u64, mode: u32) -> io::Result<()> {
        let opened = handle.opened.as_ref().filter(|_| handle.can_write).ok_or(Errno::BADF)?;
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        let file = &handle.file;
        let _held = file.ranges.hold_all();
        let end = offset.saturating_add(length);
        let lost = if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            offset..u64::MAX
        } else if flags.difference(FallocateFlags::KEEP_SIZE).is_empty() {
            0..0
        } else {
            offset..end
        };
        self.change(file, opened, lost, || Ok(rustix::fs::fallocate(opened, flags, offset, length)?))
    }

    /// Copies between files in the source.
    pub(crate) fn copy(
        &self,
        (from, from_offset): (&Handle, u64),
        (to, to_offset): (&Handle, u64),
        length: u64,
        flags: CopyFileRangeFlags,
    ) -> io::Result<u32> {
        if !flags.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let source = from.opened.as_ref().filter(|_| from.can_read).ok_or(Errno::BADF)?;
        let target = to.opened.as_ref().filter(|_| to.can_write && to.append.is_none()).ok_or(Errno::BADF)?;
        let length = length.min(COPY_MOST);
        let end = to_offset.checked_add(length).ok_or(Errno::FBIG)?;
        let _held = to.file.ranges.hold(blocks(to_offset..end));
        let copied = self.change(&to.file, target, to_offset..end, || {
            let (mut read, mut written) = (from_offset, to_offset);
            let copied =
                rustix::fs::copy_file_range(source, Some(&mut read), target, Some(&mut written), length as usize)?;
            Ok(copied as u64)
        })?;
        to.file.extend_reach(to_offset + copied);
        to.file.grow(to_offset + copied);
        Ok(copied as u32)
    }

    /// A program closes the file: errors of the source that it has not reported yet, as of NFS, are due now.
    pub(crate) fn close(&self, handle: &Handle) -> io::Result<()> {
        let Some(opened) = handle.opened.as_ref().filter(|_| handle.can_write) else { return Ok(()) };
        let copy = opened.try_clone()?;
        self.change(&handle.file, opened, 0..0, || Ok(nix::unistd::close(copy)?))
    }

    /// Makes what was written stable.
    pub(crate) fn sync(&self, handle: &Handle, only_data: bool) -> io::Result<()> {
        let Some(opened) = &handle.opened else { return Ok(()) };
        let sync = || match only_data {
            true => rustix::fs::fdatasync(opened),
            false => rustix::fs::fsync(opened),
        };
        // NFS sends what it has not written yet, which changes times.
        self.change(&handle.file, opened, 0..0, || Ok(sync()?))
    }
}

/// The blocks of a range of a file.
fn blocks(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK * BLOCK..range.end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// Writes `bytes` at `offset`, as far as there is room.
fn write_at(opened: &OwnedFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::pwrite(opened, &bytes[written..], offset + written as u64) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(_) if written > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// Appends `bytes`, and returns where, and how many were written.
fn write_behind(append: &OwnedFd, bytes: &[u8]) -> io::Result<(u64, usize)> {
    let length = rustix::io::write(append, bytes)?;
    // The position is behind what this descriptor wrote, whatever others appended since.
    let end = rustix::fs::seek(append, SeekFrom::Current(0))?;
    Ok((end.saturating_sub(length as u64), length))
}

/// Clears the bits that let a program run with the rights of the file's owner or group.
fn clear_rights(opened: impl AsFd) -> io::Result<()> {
    let mode = Mode::from_raw_mode(source::stat(opened.as_fd())?.st_mode & 0o7777);
    let mut lost = Mode::SUID;
    // Without execution by the group, this bit means something else.
    if mode.contains(Mode::XGRP) {
        lost |= Mode::SGID;
    }
    if mode.intersects(lost) {
        rustix::fs::fchmod(opened, mode.difference(lost))?;
    }
    Ok(())
}
