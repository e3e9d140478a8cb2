//! Jobs on files, done by the calling thread.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use nigh_engine::{Action, Fault};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::device::Job;
use crate::kernel;
use crate::open::OpenFile;

/// How many slices a system call takes.
pub(crate) const SLICES_MAX: usize = 1024;

/// Zeros to write, aligned for O_DIRECT.
#[repr(align(4096))]
pub(crate) struct Zeros(pub(crate) [u8; 1 << 16]);

pub(crate) static ZEROS: Zeros = Zeros([0; 1 << 16]);

fn fault(errno: Errno) -> Fault {
    Fault(errno.raw_os_error())
}

/// Does `job`.
pub(crate) fn perform(file: &OpenFile, job: &mut Job) -> Result<(), Fault> {
    let range = job.operation.offset..job.operation.offset + job.operation.length;
    match &mut job.operation.action {
        Action::Read(frames) => {
            let (direct, buffered) = ways(file, range.start, job.bytes);
            let (mut first, mut rest) = (Vec::new(), Vec::new());
            let (mut left, mut more) = (direct, buffered);
            for slice in frames.slices_mut() {
                let (one, other) = slice.split_at_mut(slice.len().min(left));
                left -= one.len();
                let (other, _) = other.split_at_mut(other.len().min(more));
                more -= other.len();
                first.extend((!one.is_empty()).then(|| IoSliceMut::new(one)));
                rest.extend((!other.is_empty()).then(|| IoSliceMut::new(other)));
            }
            if let Some(way) = &file.direct {
                read(&way.file, range.start, &mut first)?;
            }
            read(&file.buffered, range.start + direct as u64, &mut rest)
        }
        Action::Write(frames) => {
            let (direct, buffered) = ways(file, range.start, job.bytes);
            let (mut first, mut rest) = (Vec::new(), Vec::new());
            let (mut left, mut more) = (direct, buffered);
            for slice in frames.slices() {
                let (one, other) = slice.split_at(slice.len().min(left));
                left -= one.len();
                let (other, _) = other.split_at(other.len().min(more));
                more -= other.len();
                first.extend((!one.is_empty()).then(|| IoSlice::new(one)));
                rest.extend((!other.is_empty()).then(|| IoSlice::new(other)));
            }
            if let Some(way) = &file.direct {
                write(&way.file, range.start, &mut first)?;
            }
            write(&file.buffered, range.start + direct as u64, &mut rest)
        }
        Action::Flush => rustix::fs::fdatasync(&file.buffered).map_err(fault),
        Action::Discard => discard(file, range),
        Action::Zeroes { keep, fast } => zero(file, range, *keep, *fast),
    }
}

/// How many of `bytes` bytes at `offset` go directly, and how many through the page cache after them.
fn ways(file: &OpenFile, offset: u64, bytes: u64) -> (usize, usize) {
    let direct = file.direct_bytes(&(offset..offset + bytes));
    (direct as usize, (bytes - direct) as usize)
}

pub(crate) fn read(file: &File, mut offset: u64, mut slices: &mut [IoSliceMut<'_>]) -> Result<(), Fault> {
    while !slices.is_empty() {
        let most = slices.len().min(SLICES_MAX);
        match rustix::io::preadv(file, &mut slices[..most], offset) {
            // The file became shorter.
            Ok(0) => return Err(fault(Errno::IO)),
            Ok(bytes) => {
                IoSliceMut::advance_slices(&mut slices, bytes);
                offset += bytes as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fault(errno)),
        }
    }
    Ok(())
}

pub(crate) fn write(file: &File, mut offset: u64, mut slices: &mut [IoSlice<'_>]) -> Result<(), Fault> {
    while !slices.is_empty() {
        let most = slices.len().min(SLICES_MAX);
        match rustix::io::pwritev(file, &slices[..most], offset) {
            Ok(0) => return Err(fault(Errno::NOSPC)),
            Ok(bytes) => {
                IoSlice::advance_slices(&mut slices, bytes);
                offset += bytes as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fault(errno)),
        }
    }
    Ok(())
}

/// Discards `range`. It is advice: where the file cannot do it, nothing happens.
fn discard(file: &OpenFile, range: Range<u64>) -> Result<(), Fault> {
    let length = range.end - range.start;
    let result = match file.block_device {
        true => kernel::discard(&file.buffered, range.start, length),
        false => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file.buffered, mode, range.start, length)
        }
    };
    match result {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        result => result.map_err(fault),
    }
}

/// Makes `range` read as zeros: by what frees its space, unless `keep`, else by what does not write it, and else by
/// writing, unless `fast`.
fn zero(file: &OpenFile, range: Range<u64>, keep: bool, fast: bool) -> Result<(), Fault> {
    let length = range.end - range.start;
    let mut modes = Vec::new();
    if !keep {
        modes.push(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
    }
    // On a block device, this one may be a slow writing of zeros by the kernel.
    if !(file.block_device && fast) {
        modes.push(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE);
    }
    for mode in modes {
        match fallocate(&file.buffered, mode, range.start, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            result => return result.map_err(fault),
        }
    }
    if fast { Err(fault(Errno::OPNOTSUPP)) } else { write_zeros(file, range) }
}

fn write_zeros(file: &OpenFile, range: Range<u64>) -> Result<(), Fault> {
    let end = range.start + file.direct_bytes(&range);
    if let Some(way) = &file.direct {
        write_zeros_to(&way.file, range.start..end)?;
    }
    write_zeros_to(&file.buffered, end..range.end)
}

fn write_zeros_to(file: &File, range: Range<u64>) -> Result<(), Fault> {
    let mut at = range.start;
    while at < range.end {
        let mut left = (range.end - at).min(1 << 20) as usize;
        let length = left as u64;
        let mut slices = Vec::new();
        while left > 0 {
            let part = &ZEROS.0[..left.min(ZEROS.0.len())];
            left -= part.len();
            slices.push(IoSlice::new(part));
        }
        write(file, at, &mut slices)?;
        at += length;
    }
    Ok(())
}
