//! Requests that a traced program makes by io_uring: they are in memory that it shares with the kernel.
//!
//! 1. `io_uring_setup` returns the descriptor of a ring, and where the fields of its memory are.
//! 2. `mmap` of that descriptor places the ring and its requests, unless the program provided the memory.
//! 3. `io_uring_register` gives files and rings numbers of their own.
//! 4. `io_uring_enter` passes requests to the kernel, which takes them in the order of the ring.

use std::collections::HashMap;

use nigh_ring::{Bytes, Kind, Submitted};

/// Bytes of `struct io_uring_params`.
pub const PARAMS_BYTES: usize = 120;

/// Bytes of a request (`struct io_uring_sqe`).
const REQUEST_BYTES: usize = 64;

/// A ring has at most this many requests.
const REQUESTS_MOST: u64 = 1 << 15;

/// Files that are registered with a ring, at most.
const FILES_MOST: u64 = 1 << 20;

/// Offsets of `mmap`: the ring, and its requests.
const AT_RING: u64 = 0;
const AT_REQUESTS: u64 = 0x1000_0000;

/// Flags of `io_uring_setup`.
mod setup {
    /// A thread of the kernel takes the requests.
    pub(super) const KERNEL_THREAD: u64 = 1 << 1;
    /// Requests have twice the length.
    pub(super) const LONG: u64 = 1 << 10;
    /// The program provided the memory.
    pub(super) const OWN_MEMORY: u64 = 1 << 14;
    /// The ring has a number instead of a descriptor.
    pub(super) const NUMBER_ONLY: u64 = 1 << 15;
    /// Requests are taken in the order of their memory.
    pub(super) const NO_ARRAY: u64 = 1 << 16;
}

/// The flag of `io_uring_enter` for a ring by its number.
const BY_NUMBER: u64 = 1 << 4;

/// The flag of `io_uring_register` for a ring by its number.
const REGISTER_BY_NUMBER: u64 = 1 << 31;

/// The flag of a request for a file by its number.
const FIXED_FILE: u64 = 1;

/// An offset: where the descriptor is.
const CURRENT: u64 = u64::MAX;

/// Memory of the traced program: fills the bytes from an address on; false if it cannot.
pub type Memory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// The file of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A file by its descriptor.
    Descriptor(u64),
    /// A registered file: its number in the recording, `None` if it is no regular file or device.
    File(Option<u32>),
    /// A number that was not seen to be registered.
    Unknown,
}

/// A request that was passed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A read, a write or a flush.
    Transfer {
        /// Its file.
        of: Of,
        /// The rest.
        request: Submitted,
    },
    /// A descriptor is closed.
    Close(u64),
    /// It cannot be recorded.
    NotSeen(Missing),
    /// Nothing that is recorded.
    Other,
    /// Its memory cannot be read.
    Unreadable,
}

/// Why requests of a program are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The ring began before the recording, or in another process.
    Unknown,
    /// A thread of the kernel takes them.
    KernelThread,
    /// Only the device knows what they mean.
    Commands,
    /// They move data between a file and a pipe.
    Splices,
    /// They change names of files.
    Names,
}

impl Missing {
    /// The words behind the name of a program.
    pub fn why(self) -> &'static str {
        match self {
            Missing::Unknown => "in part: it uses an io_uring that began before the recording, or in another process",
            Missing::KernelThread => "in part: the kernel takes its requests by io_uring at times of its own (SQPOLL)",
            Missing::Commands => "in part: its commands to a device by io_uring are not seen",
            Missing::Splices => "in part: what it splices by io_uring is not seen",
            Missing::Names => "files that it renames or deletes by io_uring keep their names in the recording",
        }
    }
}

struct Ring {
    flags: u64,
    /// Offsets of these fields in the ring's memory.
    head: u64,
    tail: u64,
    mask: u64,
    array: u64,
    /// Addresses of the ring and of its requests.
    ring: Option<u64>,
    requests: Option<u64>,
    /// The numbers of registered files in the recording.
    files: Vec<Option<u32>>,
}

/// The rings of all traced programs.
#[derive(Default)]
pub struct Rings {
    /// By process and descriptor.
    known: HashMap<(i32, u64), Ring>,
    /// The descriptors of those with numbers, by thread.
    numbered: HashMap<(i32, u64), u64>,
}

/// Numbers that `io_uring_register` gives to files, or takes from them.
pub struct Numbered {
    first: u64,
    /// Whether there are no others.
    all: bool,
    /// The descriptors that get them, in order; negative for none.
    pub descriptors: Vec<i32>,
}

fn field(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes.iter().skip(at).take(length)).for_each(|(to, byte)| *to = *byte);
    u64::from_le_bytes(word)
}

fn word(memory: Memory<'_>, at: u64) -> Option<u64> {
    let mut bytes = [0; 4];
    memory(at, &mut bytes).then(|| field(&bytes, 0, 4))
}

impl Rings {
    /// `io_uring_setup` of a thread returned `result`, with these parameters as the kernel completed them.
    pub fn begin(
        &mut self,
        thread: i32,
        process: i32,
        result: u64,
        params: &[u8; PARAMS_BYTES],
    ) -> Result<(), Missing> {
        let flags = field(params, 8, 4);
        let mut descriptor = result;
        if flags & setup::NUMBER_ONLY != 0 {
            // No descriptor is so high.
            descriptor = (thread as u64) << 32 | result;
            self.numbered.insert((thread, result), descriptor);
        }
        let own = |at: usize| (flags & setup::OWN_MEMORY != 0).then(|| field(params, at, 8));
        let ring = Ring {
            flags,
            head: field(params, 40, 4),
            tail: field(params, 44, 4),
            mask: field(params, 48, 4),
            array: field(params, 64, 4),
            requests: own(72),
            ring: own(112),
            files: Vec::new(),
        };
        self.known.insert((process, descriptor), ring);
        if flags & setup::KERNEL_THREAD != 0 { Err(Missing::KernelThread) } else { Ok(()) }
    }

    /// `process` has mapped a descriptor at `address`.
    pub fn map(&mut self, process: i32, descriptor: u64, offset: u64, address: u64) {
        let Some(ring) = self.known.get_mut(&(process, descriptor)) else { return };
        match offset {
            AT_RING => ring.ring = Some(address),
            AT_REQUESTS => ring.requests = Some(address),
            _ => {}
        }
    }

    /// A descriptor was closed.
    pub fn close(&mut self, process: i32, descriptor: u64) {
        self.known.remove(&(process, descriptor));
    }

    /// A thread, or the process of this number, has ended or is another program now.
    pub fn end(&mut self, thread: i32) {
        self.known.retain(|(of, _), _| *of != thread);
        self.numbered.retain(|(of, _), _| *of != thread);
    }

    fn descriptor(&self, thread: i32, given: u64, by_number: bool) -> Option<u64> {
        // Descriptors have 32 bits.
        let given = given & u64::from(u32::MAX);
        if by_number { self.numbered.get(&(thread, given)).copied() } else { Some(given) }
    }

    /// `io_uring_register` succeeded with these arguments. Returns the ring and its files that have new numbers.
    pub fn register(
        &mut self,
        thread: i32,
        arguments: &[u64; 6],
        result: u64,
        memory: Memory<'_>,
    ) -> Option<(u64, Numbered)> {
        const FILES: u64 = 2;
        const NO_FILES: u64 = 3;
        const FILES_UPDATE: u64 = 6;
        const FILES_2: u64 = 13;
        const FILES_UPDATE_2: u64 = 14;
        const RINGS: u64 = 20;
        const NO_RINGS: u64 = 21;
        const UPDATE_BYTES: u64 = 16;
        let [given, code, at, count, ..] = *arguments;
        let ring = self.descriptor(thread, given, code & REGISTER_BY_NUMBER != 0)?;
        let mut about = [0; 32];
        let code = code & !REGISTER_BY_NUMBER & u64::from(u32::MAX);
        let read = |about: &mut [u8], bytes: usize| about.get_mut(..bytes).is_some_and(|about| memory(at, about));
        let (first, all, list, count) = match code {
            FILES => (0, true, at, count),
            NO_FILES => (0, true, at, 0),
            FILES_UPDATE if read(&mut about, 16) => (field(&about, 0, 4), false, field(&about, 8, 8), result),
            FILES_2 if read(&mut about, 32) => (0, true, field(&about, 16, 8), field(&about, 0, 4)),
            FILES_UPDATE_2 if read(&mut about, 32) => (field(&about, 0, 4), false, field(&about, 8, 8), result),
            RINGS | NO_RINGS => {
                for entry in 0..result.min(REQUESTS_MOST) {
                    let mut update = [0; UPDATE_BYTES as usize];
                    if memory(at.wrapping_add(entry * UPDATE_BYTES), &mut update) {
                        let key = (thread, field(&update, 0, 4));
                        match code {
                            RINGS => drop(self.numbered.insert(key, field(&update, 8, 8))),
                            _ => drop(self.numbered.remove(&key)),
                        }
                    }
                }
                return None;
            }
            _ => return None,
        };
        let count = count.min(FILES_MOST);
        // A table without a list is empty at first.
        let descriptor = |entry: u64| match list {
            0 => Some(-1),
            list => word(memory, list.wrapping_add(4 * entry)).map(|found| found as u32 as i32),
        };
        Some((ring, Numbered { first, all, descriptors: (0..count).map_while(descriptor).collect() }))
    }

    /// The numbered files of a ring are these in the recording.
    pub fn number(&mut self, process: i32, ring: u64, numbered: &Numbered, files: Vec<Option<u32>>) {
        let Some(ring) = self.known.get_mut(&(process, ring)) else { return };
        if numbered.all {
            ring.files.clear();
        }
        let end = (numbered.first.min(FILES_MOST)) as usize + files.len();
        if ring.files.len() < end {
            ring.files.resize(end, None);
        }
        for (to, file) in ring.files.iter_mut().skip(numbered.first as usize).zip(files) {
            *to = file;
        }
    }

    /// The requests that `io_uring_enter` with these arguments is about to pass, in order. `position` is that of a descriptor.
    pub fn entered(
        &self,
        thread: i32,
        process: i32,
        arguments: &[u64; 6],
        memory: Memory<'_>,
        position: &dyn Fn(u64) -> u64,
    ) -> Result<Vec<Passed>, Missing> {
        let [given, count, _, flags, ..] = *arguments;
        let count = (count & u64::from(u32::MAX)).min(REQUESTS_MOST);
        if count == 0 {
            return Ok(Vec::new());
        }
        let descriptor = self.descriptor(thread, given, flags & BY_NUMBER != 0).ok_or(Missing::Unknown)?;
        let ring = self.known.get(&(process, descriptor)).ok_or(Missing::Unknown)?;
        if ring.flags & setup::KERNEL_THREAD != 0 {
            return Err(Missing::KernelThread);
        }
        let (Some(at), Some(requests)) = (ring.ring, ring.requests) else { return Err(Missing::Unknown) };
        let of_ring = |offset: u64| word(memory, at.wrapping_add(offset)).ok_or(Missing::Unknown);
        let (head, tail, mask) = (of_ring(ring.head)?, of_ring(ring.tail)?, of_ring(ring.mask)?);
        let there = u64::from((tail as u32).wrapping_sub(head as u32));
        let bytes = REQUEST_BYTES as u64 * if ring.flags & setup::LONG != 0 { 2 } else { 1 };
        let passed = |number: u64| {
            let place = head.wrapping_add(number) & mask;
            let index = match ring.flags & setup::NO_ARRAY {
                0 => word(memory, at.wrapping_add(ring.array + 4 * place)),
                _ => Some(place),
            };
            let mut request = [0; REQUEST_BYTES];
            match index {
                Some(index) if memory(requests.wrapping_add((index & mask) * bytes), &mut request) => {
                    ring.parse(&request, position)
                }
                _ => Passed::Unreadable,
            }
        };
        Ok((0..count.min(there)).map(passed).collect())
    }
}

impl Ring {
    /// The codes are those of linux/io_uring.h.
    fn parse(&self, request: &[u8; REQUEST_BYTES], position: &dyn Fn(u64) -> u64) -> Passed {
        let (code, flags) = (field(request, 0, 1), field(request, 1, 1));
        let (given, offset) = (field(request, 4, 4), field(request, 8, 8));
        let (at, length) = (field(request, 16, 8), field(request, 24, 4));
        let vector = Bytes::OfVector { at, parts: length };
        let (kind, bytes) = match code {
            1 | 60 => (Kind::Read, vector),
            2 | 61 => (Kind::Write, vector),
            3 | 8 => (Kind::Sync, Bytes::Of(0)),
            4 | 22 => (Kind::Read, Bytes::Of(length)),
            5 | 23 => (Kind::Write, Bytes::Of(length)),
            19 => return Passed::Close(given),
            30 => return Passed::NotSeen(Missing::Splices),
            35 | 36 => return Passed::NotSeen(Missing::Names),
            46 | 64 => return Passed::NotSeen(Missing::Commands),
            _ => return Passed::Other,
        };
        let of = match flags & FIXED_FILE {
            0 => Of::Descriptor(given),
            _ => self.files.get(given as usize).map_or(Of::Unknown, |&file| Of::File(file)),
        };
        let offset = match (kind, offset, of) {
            (Kind::Sync, ..) => 0,
            (_, CURRENT, Of::Descriptor(descriptor)) => position(descriptor),
            (_, CURRENT, _) => return Passed::Unreadable,
            (_, offset, _) => offset,
        };
        Passed::Transfer { of, request: Submitted { kind, descriptor: given as u32, offset, bytes } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u64 = 0x1000;
    const REQUESTS: u64 = 0x2000;
    const TABLE: u64 = 0x3000;

    /// Memory of a program: bytes by address, zeros between them.
    #[derive(Default)]
    struct Made(HashMap<u64, u8>);

    impl Made {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            self.0.extend((at..).zip(bytes.iter().copied()));
        }

        fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
            (at..).zip(bytes).for_each(|(at, byte)| *byte = self.0.get(&at).copied().unwrap_or(0));
            at != 0
        }

        /// A request number `at` in memory, of `bytes` bytes: code, flags, file and offset.
        fn request(&mut self, at: u64, bytes: u64, code: u8, flags: u8, file: u32, offset: u64) {
            let at = REQUESTS + at * bytes;
            self.put(at, &[code, flags]);
            self.put(at + 4, &file.to_le_bytes());
            self.put(at + 8, &offset.to_le_bytes());
            self.put(at + 24, &512_u32.to_le_bytes());
        }
    }

    /// Parameters of a ring with these flags: head, tail, mask and array at 0, 4, 8 and 16 of its memory.
    fn params(flags: u64) -> [u8; PARAMS_BYTES] {
        let mut params = [0; PARAMS_BYTES];
        params[8..12].copy_from_slice(&(flags as u32).to_le_bytes());
        (params[44], params[48], params[64]) = (4, 8, 16);
        params[72..80].copy_from_slice(&REQUESTS.to_le_bytes());
        params[112..120].copy_from_slice(&RING.to_le_bytes());
        params
    }

    fn read(of: Of, offset: u64, descriptor: u32) -> Passed {
        Passed::Transfer { of, request: Submitted { kind: Kind::Read, descriptor, offset, bytes: Bytes::Of(512) } }
    }

    fn enter(rings: &Rings, made: &Made, ring: u64, count: u64, flags: u64) -> Result<Vec<Passed>, Missing> {
        rings.entered(7, 5, &[ring, count, 0, flags, 0, 0], &|at, bytes| made.read(at, bytes), &|_| 99)
    }

    #[test]
    fn requests_are_taken_in_the_order_of_the_ring_and_around_its_end() {
        let (mut rings, mut made) = (Rings::default(), Made::default());
        rings.begin(7, 5, 3, &params(0)).unwrap();
        made.put(RING, &[6, 0, 0, 0, 9, 0, 0, 0, 7]);
        for place in 0..8 {
            made.put(RING + 16 + 4 * place, &[7 - place as u8]);
            made.request(place, 64, 22, 0, 4, place * 512);
        }
        assert_eq!(enter(&rings, &made, 3, 8, 0), Err(Missing::Unknown), "it is not mapped");
        rings.map(5, 3, AT_RING, RING);
        rings.map(5, 3, AT_REQUESTS, REQUESTS);
        let of = Of::Descriptor(4);
        let all = [read(of, 512, 4), read(of, 0, 4), read(of, 7 * 512, 4)];
        assert_eq!(enter(&rings, &made, 3, 8, 0).unwrap(), all, "three are there");
        assert_eq!(enter(&rings, &made, 3, 2, 0).unwrap(), all[..2]);
        assert_eq!(enter(&rings, &made, 3, 0, 0).unwrap(), []);
        rings.close(5, 3);
        assert_eq!(enter(&rings, &made, 3, 1, 0), Err(Missing::Unknown));
    }

    #[test]
    fn long_requests_in_own_memory_and_without_an_array() {
        let (mut rings, mut made) = (Rings::default(), Made::default());
        rings.begin(7, 5, 0, &params(setup::LONG | setup::OWN_MEMORY | setup::NO_ARRAY | setup::NUMBER_ONLY)).unwrap();
        made.put(RING, &[0, 0, 0, 0, 4, 0, 0, 0, 7]);
        made.request(0, 128, 4, 0, 4, 1024);
        made.request(1, 128, 22, 0, 4, u64::MAX);
        made.request(2, 128, 46, 0, 4, 0);
        made.request(3, 128, 19, 0, 4, 0);
        let of = Of::Descriptor(4);
        let all = [read(of, 1024, 4), read(of, 99, 4), Passed::NotSeen(Missing::Commands), Passed::Close(4)];
        assert_eq!(enter(&rings, &made, 0, 4, BY_NUMBER).unwrap(), all);
        assert_eq!(enter(&rings, &made, 0, 4, 0), Err(Missing::Unknown), "it has no descriptor");
        rings.end(7);
        assert_eq!(enter(&rings, &made, 0, 4, BY_NUMBER), Err(Missing::Unknown));
    }

    #[test]
    fn registered_files_are_those_of_the_time_of_their_registration() {
        let (mut rings, mut made) = (Rings::default(), Made::default());
        rings.begin(7, 5, 3, &params(setup::OWN_MEMORY | setup::NO_ARRAY)).unwrap();
        made.put(RING, &[0, 0, 0, 0, 3, 0, 0, 0, 7]);
        (0..3).for_each(|at| made.request(at, 64, 22, 1, at as u32, 512));
        made.put(TABLE, &[11, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        let memory = |made: &Made, arguments: &[u64; 6], result: u64, rings: &mut Rings| {
            let (ring, numbered) = rings.register(7, arguments, result, &|at, bytes| made.read(at, bytes)).unwrap();
            assert_eq!(ring, 3);
            numbered
        };
        let numbered = memory(&made, &[3, 2, TABLE, 2, 0, 0], 0, &mut rings);
        assert_eq!(numbered.descriptors, [11, -1]);
        rings.number(5, 3, &numbered, vec![Some(70), None]);
        let of = [Of::File(Some(70)), Of::File(None), Of::Unknown];
        assert_eq!(
            enter(&rings, &made, 3, 3, 0).unwrap(),
            [0, 1, 2].map(|at| read(of[at as usize], 512, at)),
            "the third has no file"
        );
        // The second one becomes another file, by an update that is in memory.
        made.put(TABLE + 16, &[1, 0, 0, 0, 0, 0, 0, 0]);
        made.put(TABLE + 24, &(TABLE + 32).to_le_bytes());
        made.put(TABLE + 32, &[12]);
        let numbered = memory(&made, &[3, 6, TABLE + 16, 1, 0, 0], 1, &mut rings);
        assert_eq!(numbered.descriptors, [12]);
        rings.number(5, 3, &numbered, vec![Some(71)]);
        assert_eq!(enter(&rings, &made, 3, 2, 0).unwrap()[1], read(Of::File(Some(71)), 512, 1));
        let numbered = memory(&made, &[3, 3, 0, 0, 0, 0], 0, &mut rings);
        rings.number(5, 3, &numbered, Vec::new());
        assert_eq!(enter(&rings, &made, 3, 1, 0).unwrap(), [read(Of::Unknown, 512, 0)]);
    }

    #[test]
    fn a_kernel_thread_is_named() {
        assert_eq!(Rings::default().begin(7, 5, 3, &params(setup::KERNEL_THREAD)), Err(Missing::KernelThread));
    }
}
