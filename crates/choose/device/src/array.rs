//! Arrays: data spread over equal members, with copies or parity.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::profile::{ArrayProfile, Raid};
use crate::random::Random;
use crate::{Device, Kind, Request, Served};

#[derive(Clone, Debug)]
pub(crate) struct Array {
    raid: Raid,
    chunk_bytes: u64,
    members: Vec<Member>,
}

/// A member, and its queue: the array may have more requests for one member than that serves in parallel.
#[derive(Clone, Debug)]
struct Member {
    device: Device,
    /// The completions of its requests in progress, as many as it serves in parallel at most.
    ends: BinaryHeap<Reverse<u64>>,
    /// The start of its latest request. Requests of a member start in their order.
    started: u64,
    /// The place after its latest read.
    read_to: u64,
}

/// A contiguous part of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    member: usize,
    offset: u64,
    bytes: u64,
}

impl Array {
    pub(crate) fn new(profile: &ArrayProfile, random: &mut Random) -> Array {
        let members = (0..profile.members)
            .map(|_| Member {
                device: Device::new(&profile.member, random.next()),
                ends: BinaryHeap::new(),
                started: 0,
                read_to: 0,
            })
            .collect();
        Array { raid: profile.raid, chunk_bytes: profile.chunk_kib * 1024, members }
    }

    /// The number of requests that all members serve in parallel.
    pub(crate) fn parallel(&self) -> usize {
        self.members.iter().map(|member| member.device.parallel()).sum()
    }

    pub(crate) fn serve(&mut self, now: u64, request: Request) -> Served {
        let Request { kind, offset_bytes: offset, bytes } = request;
        let seeks = self.seeks();
        let at = match (kind, self.raid) {
            (Kind::Read, Raid::Mirrored) => {
                let member = self.reader(now, offset);
                self.start(now, kind, &[Piece { member, offset, bytes }])
            }
            (Kind::Flush, _) | (_, Raid::Mirrored) => {
                let all: Vec<Piece> = (0..self.members.len()).map(|member| Piece { member, offset, bytes }).collect();
                self.start(now, kind, &all)
            }
            (Kind::Write, Raid::Parity) => self.write_with_parity(now, offset, bytes),
            _ => self.start(now, kind, &self.pieces(offset, bytes)),
        };
        Served { at, seeks: self.seeks() - seeks }
    }

    fn seeks(&self) -> u64 {
        self.members.iter().map(|member| member.device.counters().seeks).sum()
    }

    /// The member of a mirror that reads: the one whose latest read ended here, if it is idle, or the one that is free
    /// first.
    fn reader(&self, now: u64, offset: u64) -> usize {
        let key = |member: &Member| (member.free_at(now), member.read_to != offset);
        let free = self.members.iter().enumerate().min_by_key(|(_, member)| key(member));
        free.expect("an array has two members or more").0
    }

    /// Starts a request for each piece, `now` or when its member can. Returns the time at which all are complete.
    fn start(&mut self, now: u64, kind: Kind, pieces: &[Piece]) -> u64 {
        self.start_after(now, now, kind, pieces)
    }

    /// The same of requests that wait for others, which are complete at `ready`. Their members have them from `now` on,
    /// since a member gets requests in the order of time; only their completion is later.
    fn start_after(&mut self, now: u64, ready: u64, kind: Kind, pieces: &[Piece]) -> u64 {
        let done = pieces.iter().map(|piece| {
            let (start, end) = self.members[piece.member].start(now, kind, *piece);
            end + ready.saturating_sub(start)
        });
        done.max().unwrap_or(ready)
    }

    /// The member that has data chunk `chunk` of each row, counted from 0, in row `row`; with as many as there are data
    /// chunks, that of the parity. Parity goes from the last member to the first, and data follows it, as the default
    /// layout of Linux (left-symmetric) has it.
    fn member_of(&self, row: u64, chunk: u64) -> usize {
        let members = self.members.len() as u64;
        let member = match self.raid {
            Raid::Parity => {
                let parity = members - 1 - row % members;
                (parity + 1 + chunk) % members
            }
            Raid::Striped | Raid::Mirrored => chunk,
        };
        member as usize
    }

    fn data_members(&self) -> u64 {
        self.raid.data_members(self.members.len() as u64)
    }

    /// The parts of members that hold the data of a range.
    fn pieces(&self, offset: u64, bytes: u64) -> Vec<Piece> {
        let mut pieces = Pieces::default();
        for (row, chunk, from, to) in self.chunks(offset, bytes) {
            pieces.push(self.piece(row, chunk, from, to));
        }
        pieces.0
    }

    /// Bytes `from` to `to` of a chunk.
    fn piece(&self, row: u64, chunk: u64, from: u64, to: u64) -> Piece {
        Piece { member: self.member_of(row, chunk), offset: row * self.chunk_bytes + from, bytes: to - from }
    }

    /// The chunks of a range: row, number in the row, and the first byte and the end in the chunk.
    fn chunks(&self, offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64, u64, u64)> + use<> {
        let (chunk_bytes, data) = (self.chunk_bytes, self.data_members());
        let end = offset + bytes;
        (offset / chunk_bytes..end.div_ceil(chunk_bytes)).map(move |chunk| {
            let begin = chunk * chunk_bytes;
            (chunk / data, chunk % data, offset.max(begin) - begin, end.min(begin + chunk_bytes) - begin)
        })
    }

    /// A write of data and parity. If it leaves a part of a row as it is, the parity needs reads first: of what is
    /// overwritten and the old parity, or of the rest of the row, if these are no more reads.
    fn write_with_parity(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        let data = self.data_members();
        let mut whole = Pieces::default();
        let mut partial: Vec<(Pieces, Pieces)> = Vec::new();
        let touched: Vec<_> = self.chunks(offset, bytes).collect();
        for row in touched.chunk_by(|one, next| one.0 == next.0) {
            let number = row[0].0;
            let mut bounds: Vec<u64> = row.iter().flat_map(|&(_, _, from, to)| [from, to]).collect();
            bounds.sort_unstable();
            bounds.dedup();
            let (mut reads, mut writes) = (Pieces::default(), Pieces::default());
            for bound in bounds.windows(2) {
                let (from, to) = (bound[0], bound[1]);
                let covers = |chunk: u64| row.iter().any(|part| part.1 == chunk && part.2 <= from && to <= part.3);
                let (written, rest): (Vec<u64>, Vec<u64>) = (0..data).partition(|&chunk| covers(chunk));
                if written.is_empty() {
                    continue;
                }
                let piece = |chunk: u64| self.piece(number, chunk, from, to);
                let target = if rest.is_empty() { &mut whole } else { &mut writes };
                written.iter().for_each(|&chunk| target.push(piece(chunk)));
                target.push(piece(data));
                if rest.len() <= written.len() + 1 {
                    rest.iter().for_each(|&chunk| reads.push(piece(chunk)));
                } else {
                    written.iter().for_each(|&chunk| reads.push(piece(chunk)));
                    reads.push(piece(data));
                }
            }
            if !writes.0.is_empty() {
                partial.push((reads, writes));
            }
        }
        let mut done = self.start(now, Kind::Write, &whole.0);
        for (reads, writes) in partial {
            let read = self.start(now, Kind::Read, &reads.0);
            done = done.max(self.start_after(now, read, Kind::Write, &writes.0));
        }
        done
    }
}

/// Parts of members, each contiguous: what continues the last piece of its member is added to it.
#[derive(Debug, Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn push(&mut self, piece: Piece) {
        match self.0.iter_mut().rev().find(|last| last.member == piece.member) {
            Some(last) if last.offset + last.bytes == piece.offset => last.bytes += piece.bytes,
            _ => self.0.push(piece),
        }
    }
}

impl Member {
    /// The time, from `now` on, at which a request that comes now starts.
    fn free_at(&self, now: u64) -> u64 {
        let full = self.ends.len() == self.device.parallel();
        let first = self.ends.peek().filter(|_| full).map_or(0, |Reverse(end)| *end);
        now.max(self.started).max(first)
    }

    /// The times at which the request starts and is complete.
    fn start(&mut self, now: u64, kind: Kind, piece: Piece) -> (u64, u64) {
        let at = self.free_at(now);
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= at) {
            self.ends.pop();
        }
        let request = Request { kind, offset_bytes: piece.offset, bytes: piece.bytes };
        let end = self.device.start(at, request).expect("a piece lies on its member");
        self.started = at;
        self.ends.push(Reverse(end));
        if kind == Kind::Read {
            self.read_to = piece.offset + piece.bytes;
        }
        (at, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn array(name: &str) -> Array {
        let profile = Profile::named(name).expect("a shipped member");
        let crate::Model::Array(array) = profile.model() else { panic!("{name} is an array") };
        Array::new(array, &mut Random::new(1))
    }

    const CHUNK: u64 = 512 << 10;

    #[test]
    fn chunks_lie_as_linux_lays_them() {
        let striped = array("raid0-3x-instant");
        let at = |array: &Array, chunk: u64| {
            let pieces = array.pieces(chunk * CHUNK + 7, 5);
            assert_eq!(pieces.len(), 1);
            (pieces[0].member, pieces[0].offset - 7)
        };
        assert_eq!((0..4).map(|chunk| at(&striped, chunk)).collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 0), (0, CHUNK)]);
        // Left-symmetric: the parity of rows 0 to 3 is on members 3, 2, 1 and 0.
        let parity = array("raid5-4x-instant");
        let members: Vec<usize> = (0..12).map(|chunk| at(&parity, chunk).0).collect();
        assert_eq!(members, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!((0..4).map(|row| parity.member_of(row, 3)).collect::<Vec<_>>(), [3, 2, 1, 0]);
    }

    #[test]
    fn a_long_read_is_one_piece_of_each_member() {
        let striped = array("raid0-3x-instant");
        let pieces = striped.pieces(0, 9 * CHUNK);
        assert_eq!(pieces, (0..3).map(|member| Piece { member, offset: 0, bytes: 3 * CHUNK }).collect::<Vec<_>>());
    }
}
