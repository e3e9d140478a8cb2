//! Making a log, and opening it after an end of any kind.
//!
//! 1. Of the two superblocks, the valid one with the larger number counts.
//! 2. From its tail on, each group is accepted whose header has the next number, the chain of the header before it, and data with its checksum.
//!    The first place without one is the head. Whatever is after it was never acknowledged.
//! 3. The last group may have been read from a cache of the system and not be stable, because a sync failed. It is written again, and so is the
//!    superblock, before anything else. All earlier groups are stable: a commit begins after the one before it was flushed.
//! 4. A superblock with a new session follows, alone. No group of this session can then equal one that was dropped, and none of an earlier session
//!    continues it, even if the device loses what it called stable.

use std::collections::VecDeque;
use std::fmt;

use crate::format::{
    BLOCK, Block, Header, Id, Mark, RING_BLOCKS_MIN, RING_OFFSET, Sum, Superblock, ring_blocks, sum_in,
};
use crate::log::{Group, Log, Settings};

/// Bytes to be written to the log's device before it is used, and their place in bytes.
pub type Rewrite = (u64, Vec<u8>);

/// A log that is open once `phases` are done: each is written in any order and then flushed.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Log,
    /// The blocks to be written first.
    pub phases: [Vec<Rewrite>; 2],
    /// Groups that are not home.
    pub groups: u64,
}

/// Why a log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError<E: fmt::Debug + fmt::Display> {
    /// Its device cannot be read.
    #[error("{0}")]
    Read(E),
    /// There is no valid superblock.
    #[error("it is no write log, or both of its superblocks are damaged")]
    NoLog,
    /// Its device has another size.
    #[error("it was made with {made} blocks, and has {now} now")]
    Size {
        /// Blocks of its ring.
        made: u64,
        /// Blocks that its device has room for.
        now: u64,
    },
    /// It belongs to a disk of another size, and has changes that are not there.
    #[error("it holds changes of a disk of {of} bytes, and this one has {now}")]
    Disk {
        /// Bytes of its disk.
        of: u64,
        /// Bytes of this disk.
        now: u64,
    },
    /// It belongs to another disk, and has changes that are not there.
    #[error("it holds changes of another disk")]
    OtherDisk,
    /// The disk belongs to another log.
    #[error("it is not the log of this disk")]
    OtherLog,
}

/// The log that a disk belongs to, as far as the disk itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The disk cannot say: its size has to be enough.
    Unknown,
    /// It belongs to no log yet: an empty one gets this identity.
    Nobody(Id),
    /// It belongs to this log, whether that has changes or not.
    Log(Id),
}

/// The first bytes of a new, empty log on a device of `bytes`, for a disk of `disk_bytes`: to be written at its start and flushed. `None` if
/// the device is too small.
pub fn format(id: Id, bytes: u64, disk_bytes: u64) -> Option<Vec<u8>> {
    let ring_blocks = ring_blocks(bytes);
    let tail = Mark { position: 0, sequence: 1, chain: 0, epoch: 1 };
    let superblock = Superblock { id, disk_bytes, ring_blocks, number: 0, session: 0, tail };
    let other = Superblock { number: 1, ..superblock.clone() };
    (ring_blocks >= RING_BLOCKS_MIN).then(|| [&superblock.encode()[..], &other.encode()[..]].concat())
}

/// The end of the last byte that groups change.
fn end_of(groups: &VecDeque<Group>) -> u64 {
    let entries = groups.iter().flat_map(|group| &group.entries);
    entries.map(|entry| entry.offset + entry.length).max().unwrap_or(0)
}

/// Opens a log on a device of `bytes`, which `read` reads: so many bytes at a place. The disk has `disk_bytes`. A log without changes goes with
/// every disk that belongs to no other log.
pub fn open<E: fmt::Debug + fmt::Display>(
    settings: Settings,
    bytes: u64,
    disk_bytes: u64,
    owner: Owner,
    now_us: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Opened, OpenError<E>> {
    let mut block: Block = [0; BLOCK as usize];
    let mut found: Option<Superblock> = None;
    for place in [0, BLOCK] {
        read(place, &mut block).map_err(OpenError::Read)?;
        let superblock = Superblock::decode(&block).filter(|superblock| superblock.place() == place);
        if let Some(superblock) = superblock
            && found.as_ref().is_none_or(|other| other.number < superblock.number)
        {
            found = Some(superblock);
        }
    }
    let superblock = found.ok_or(OpenError::NoLog)?;
    let ring = superblock.ring_blocks;
    if ring > ring_blocks(bytes) {
        return Err(OpenError::Size { made: ring, now: ring_blocks(bytes) });
    }
    let place = |position: u64| RING_OFFSET + position % ring * BLOCK;
    let (mut groups, mut head) = (VecDeque::new(), superblock.tail);
    let mut last = Vec::new();
    loop {
        // A group that did not fit before the end of the ring is at its start.
        let starts = [head.position, head.position.next_multiple_of(ring)];
        let mut next = None;
        for &position in &starts[..if starts[0] == starts[1] { 1 } else { 2 }] {
            read(place(position), &mut block).map_err(OpenError::Read)?;
            let Some(header) = Header::decode(&block) else { continue };
            let is_next = header.id == superblock.id
                && (header.sequence, header.chain, header.position) == (head.sequence, head.chain, position)
                && header.epoch >= head.epoch;
            let blocks = 1 + header.data_blocks();
            if !is_next || position % ring + blocks > ring || position + blocks - superblock.tail.position > ring {
                continue;
            }
            let mut data = vec![0; (header.data_blocks() * BLOCK) as usize];
            if !data.is_empty() {
                read(place(position + 1), &mut data).map_err(OpenError::Read)?;
            }
            let mut sum = Sum::default();
            sum.add(&data);
            if sum.value() == header.sum {
                next = Some((header, [&block[..], &data].concat()));
                break;
            }
        }
        let Some((header, whole)) = next else { break };
        let Header { sequence, position, epoch, entries, .. } = header;
        let end = position + whole.len() as u64 / BLOCK;
        last = vec![(place(position), whole)];
        groups.push_back(Group {
            mark: Mark { epoch, ..head },
            position,
            epoch,
            entries: entries.into(),
            at_us: now_us,
        });
        head = Mark { position: end, sequence: sequence + 1, chain: sum_in(&block), epoch };
    }
    // Later groups are of another epoch: nothing that was flushed is mixed with them.
    head.epoch += 1;
    match owner {
        Owner::Log(id) if id != superblock.id => return Err(OpenError::OtherLog),
        Owner::Nobody(_) if !groups.is_empty() => return Err(OpenError::OtherDisk),
        // A disk that is known by more than its size may have grown.
        Owner::Log(_) if end_of(&groups) <= disk_bytes => {}
        _ if !groups.is_empty() && superblock.disk_bytes != disk_bytes => {
            return Err(OpenError::Disk { of: superblock.disk_bytes, now: disk_bytes });
        }
        _ => {}
    }
    let mut first = vec![(superblock.place(), superblock.encode().to_vec())];
    first.extend(last);
    let (number, session) = (superblock.number + 1, superblock.session + 1);
    let id = if let Owner::Nobody(id) = owner { id } else { superblock.id };
    let tail = if groups.is_empty() { head } else { superblock.tail };
    let next = Superblock { id, disk_bytes, number, session, tail, ..superblock };
    let phases = [first, vec![(next.place(), next.encode().to_vec())]];
    let count = groups.len() as u64;
    Ok(Opened { log: Log::new(settings, next, head, groups), phases, groups: count })
}
