//! Binary events of block devices as `blktrace` writes them, a file for each processor (`sda.blktrace.0`), and as
//! `blkparse -d` joins them. The layout is that of the kernel (include/uapi/linux/blktrace_api.h), versions 7 and 8, in either
//! byte order: a magic number with the version, sequence number, time, first sector (512 bytes), bytes, what happened,
//! process, device, processor, error, and the length of data that follow the event.
//!
//! As in the `blkparse` and `perf` formats, the events of one kind are read as requests: by default the first of queued, issued
//! and completed ones that occurs at the beginning. The device is the volume, the process the tenant, and a discard a trim.
//! Notes and commands without data are skipped. Gaps between the sequence numbers of a processor are lost events.
//!
//! If the file of processor 0 is opened, those of the others beside it are read, too, in order of time.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Bad, Place};
use crate::format::blkparse::Action;
use crate::input::Input;
use crate::records::BATCH;
use crate::rwbs::Rwbs;
use crate::skip::{Bounds, Skipped};
use crate::text::SECTOR_BYTES;
use crate::{Error, Note, Op, Request, Requests, Result};

/// The magic number without the version, which is the lowest byte.
const MAGIC: u32 = 0x6561_7400;
const MAGIC_BYTES: usize = 4;
/// The size of the sample that shows which events there are.
const SAMPLE_BYTES: usize = 64 << 10;
/// The ending of the names of blktrace's files, before the number of the processor.
const ENDING: &str = ".blktrace.";
/// The most files of one recording.
const FILES_MOST: usize = 1 << 12;

const WRITE: u64 = 1 << 1;
const FLUSH: u64 = 1 << 2;
const COMMAND: u64 = 1 << 9;
const NOTE: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
/// Changes of zones without data: reset, reset of all, finish, open and close.
const ZONES: u64 = 0b1_1111 << 17;

/// An event, without the data that follow it.
struct Event {
    sequence: u32,
    time_ns: u64,
    sector: u64,
    bytes: u32,
    /// The kind of event: 1 queued, 7 issued, 8 completed.
    kind: u16,
    categories: u64,
    process: u32,
    device: u32,
    processor: u32,
    /// Its length with the data that follow it.
    length: usize,
}

/// The byte order of a file that begins with the magic number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// That of content that begins with the magic number, in any version.
    fn of(content: &[u8]) -> Option<Order> {
        let magic = *content.first_chunk::<MAGIC_BYTES>()?;
        let orders = [(Order::Little, u32::from_le_bytes(magic)), (Order::Big, u32::from_be_bytes(magic))];
        orders.into_iter().find(|(_, magic)| magic & !0xff == MAGIC).map(|(order, _)| order)
    }

    fn number<const N: usize>(self, content: &[u8], at: usize) -> Option<u64> {
        let bytes = content.get(at..at.checked_add(N)?)?;
        let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self {
            Order::Little => bytes.iter().rev().fold(0, append),
            Order::Big => bytes.iter().fold(0, append),
        })
    }

    /// The first event of `content`; `None` if it is not complete.
    fn event(self, content: &[u8]) -> Result<Option<Event>, Bad> {
        const EXPECTED: &str = "an event of blktrace, version 7 or 8";
        let Some(magic) = self.number::<MAGIC_BYTES>(content, 0) else { return Ok(None) };
        let four = |at| self.number::<4>(content, at).and_then(|number| u32::try_from(number).ok());
        let two = |at| self.number::<2>(content, at).and_then(|number| u16::try_from(number).ok());
        let event = |head_bytes: usize, process, device, action: Option<u64>| {
            content.get(..head_bytes)?;
            let (action, kind_and_group) = (action?, u16::try_from(action? & 0xffff).ok()?);
            // An event within a control group has this bit.
            const GROUP: u16 = 1 << 8;
            Some(Event {
                sequence: four(4)?,
                time_ns: self.number::<8>(content, 8)?,
                sector: self.number::<8>(content, 16)?,
                bytes: four(24)?,
                kind: kind_and_group & !GROUP,
                categories: action >> 16,
                process: four(process)?,
                device: four(device)?,
                processor: four(device + 4)?,
                length: head_bytes + usize::from(two(device + 10)?),
            })
        };
        match magic {
            0x6561_7407 => Ok(event(48, 32, 36, self.number::<4>(content, 28))),
            0x6561_7408 => Ok(event(64, 28, 40, self.number::<8>(content, 32))),
            _ if magic & !0xff == u64::from(MAGIC) => {
                Err(Bad { found: format!("version {}", magic & 0xff), expected: EXPECTED })
            }
            _ => Err(Bad { found: format!("the number {magic:#x}"), expected: EXPECTED }),
        }
    }

    /// The magic number without the version, as it is in the file, and its place in an event.
    fn pattern(self) -> ([u8; 3], usize) {
        let [high, middle, low, _] = MAGIC.to_be_bytes();
        match self {
            Order::Little => ([low, middle, high], 1),
            Order::Big => ([high, middle, low], 0),
        }
    }
}

impl Event {
    /// The kind of request that this event is part of, if it is one of these events.
    fn action(&self) -> Option<Action> {
        if self.categories & (NOTE | COMMAND) != 0 {
            return None;
        }
        match self.kind {
            1 => Some(Action::Queue),
            7 => Some(Action::Issue),
            8 => Some(Action::Complete),
            _ => None,
        }
    }

    fn request(&self) -> Result<Option<Request>, Bad> {
        let has = |category: u64| self.categories & category != 0;
        let op = match () {
            () if has(ZONES) => None,
            () if has(DISCARD) => Some(Op::Trim),
            () if has(WRITE) => Some(Op::Write),
            () => Some(Op::Read),
        };
        let request =
            Request { time_ns: self.time_ns, volume: self.device, tenant: self.process, ..Request::default() };
        let text = format!("{} bytes at sector {}", self.bytes, self.sector);
        let kind = Rwbs { op, flushes: has(FLUSH) };
        kind.request(text.as_bytes(), request, (self.sector, SECTOR_BYTES), (self.bytes.into(), 1))
    }
}

/// Whether a sample from the beginning starts with an event, of any version.
pub(crate) fn is_like(sample: &[u8]) -> bool {
    Order::of(sample).is_some()
}

/// The requests of the file `input`, which is at its beginning, and of those of the other processors if it is that of the first.
pub(crate) fn reader(input: Input, action: Option<Action>, bounds: Bounds) -> Result<Box<dyn Requests + Send>> {
    let others = others(&input).map_err(|source| Error::Io { path: input.path().to_owned(), source })?;
    if others.is_empty() {
        return Ok(Box::new(Reader::new(input, action, bounds)?));
    }
    let unlimited = Bounds { limit: u64::MAX, ..bounds };
    let first = Reader::new(input, action, unlimited)?;
    let action = Some(action.unwrap_or(first.action));
    let mut files = vec![Merged { reader: first, ready: VecDeque::new(), has_ended: false }];
    for path in others {
        let open = |source| Error::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(open)?;
        let bytes = file.metadata().map_err(open)?.len();
        // A processor that did nothing has an empty file.
        if bytes > 0 {
            let reader = Reader::new(Input::new(file, &path, Some(bytes))?, action, unlimited)?;
            files.push(Merged { reader, ready: VecDeque::new(), has_ended: false });
        }
    }
    Ok(Box::new(Together { files, left: bounds.limit, found_any: false }))
}

/// The files of the other processors beside that of processor 0, in order.
fn others(input: &Input) -> std::io::Result<Vec<PathBuf>> {
    let path = input.path();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(device) = name.strip_suffix(&format!("{ENDING}0")).filter(|_| input.is_plain_file()) else {
        return Ok(Vec::new());
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let processor = |name: &OsString| {
        let number = name.to_str()?.strip_prefix(device)?.strip_prefix(ENDING)?.parse::<usize>().ok()?;
        (number > 0 && number < FILES_MOST).then_some(number)
    };
    let mut others = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        others.extend(processor(&name).map(|number| (number, path.with_file_name(name))));
    }
    others.sort_unstable();
    Ok(others.into_iter().map(|(_, path)| path).collect())
}

/// The events of one file.
struct Reader {
    input: Input,
    order: Order,
    action: Action,
    left: u64,
    skipped: Skipped,
    found_any: bool,
    /// The last sequence number of each processor, by device and processor.
    sequences: HashMap<(u32, u32), u32>,
    lost: u64,
    /// Whether events of other kinds describe the same requests.
    has_others: bool,
    /// Bytes of an event that is cut at the end.
    cut_bytes: u64,
}

impl Reader {
    fn new(mut input: Input, action: Option<Action>, bounds: Bounds) -> Result<Reader> {
        input.fill_to(SAMPLE_BYTES)?;
        let order = Order::of(input.data()).unwrap_or(Order::Little);
        let mut sample = input.data();
        let mut seen = Vec::new();
        while let Ok(Some(event)) = order.event(sample) {
            seen.extend(event.action());
            let Some(rest) = sample.get(event.length..) else { break };
            sample = rest;
        }
        let first = Action::ALL.into_iter().find(|action| seen.contains(action)).unwrap_or_default();
        Ok(Reader {
            input,
            order,
            action: action.unwrap_or(first),
            left: bounds.limit,
            skipped: Skipped::new(bounds),
            found_any: false,
            sequences: HashMap::new(),
            lost: 0,
            has_others: action.is_none() && seen.iter().any(|other| *other != first),
            cut_bytes: 0,
        })
    }

    /// Notes the gap between an event and the one before it.
    fn count_lost(&mut self, event: &Event) {
        if event.categories & NOTE != 0 {
            return;
        }
        let last = self.sequences.entry((event.device, event.processor)).or_insert(event.sequence);
        self.lost += u64::from(event.sequence.saturating_sub(*last).saturating_sub(1));
        *last = event.sequence.max(*last);
    }

    /// Drops bytes up to the next event after one that is damaged.
    fn resynchronize(&mut self) -> Result<()> {
        let (pattern, at) = self.order.pattern();
        self.input.consume(1);
        loop {
            let data = self.input.data();
            let found = memchr::memmem::find(data.get(at..).unwrap_or_default(), &pattern);
            let used = found.unwrap_or(data.len().saturating_sub(MAGIC_BYTES));
            self.input.consume(used);
            if found.is_some() || !self.input.fill()? {
                if found.is_none() {
                    self.input.consume(self.input.data().len());
                }
                return Ok(());
            }
        }
    }
}

impl Requests for Reader {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        let most = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
        while batch.len() < most {
            let data = self.input.data();
            let event = self.order.event(data).map(|event| event.filter(|event| event.length <= data.len()));
            let request = match event {
                Ok(Some(event)) => {
                    self.count_lost(&event);
                    self.input.consume(event.length);
                    if event.action() == Some(self.action) { event.request() } else { Ok(None) }
                }
                Ok(None) => {
                    if self.input.fill()? {
                        continue;
                    }
                    self.cut_bytes = self.input.data().len() as u64;
                    break;
                }
                Err(bad) => {
                    let place = Place::Byte(self.input.offset());
                    let has_requests = self.found_any || !batch.is_empty();
                    self.skipped.take(bad, place, self.input.path(), has_requests)?;
                    self.resynchronize()?;
                    continue;
                }
            };
            match request {
                Ok(request) => batch.extend(request),
                Err(bad) => {
                    let place = Place::Byte(self.input.offset());
                    let has_requests = self.found_any || !batch.is_empty();
                    self.skipped.take(bad, place, self.input.path(), has_requests)?;
                }
            }
        }
        self.found_any |= !batch.is_empty();
        self.left -= batch.len() as u64;
        if self.found_any { Ok(()) } else { Err(self.skipped.nothing_left(self.input.path())) }
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn notes(&self) -> Vec<Note> {
        let name = self.input.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let processor = name.split_once(ENDING).map(|(_, processor)| processor).filter(|processor| *processor != "0");
        let part = processor.map(|_| Note::OneProcessor);
        let events = self.has_others.then_some(Note::Events { read: self.action.name() });
        let lost = (self.lost > 0).then_some(Note::Lost { count: Some(self.lost) });
        let cut = (self.cut_bytes > 0).then_some(Note::CutBytes { bytes: self.cut_bytes });
        part.into_iter().chain(events).chain(lost).chain(cut).chain(self.skipped.note()).collect()
    }
}

/// The files of all processors, in order of time.
struct Together {
    files: Vec<Merged>,
    left: u64,
    found_any: bool,
}

struct Merged {
    reader: Reader,
    /// Requests that were read and come next in this file.
    ready: VecDeque<Request>,
    has_ended: bool,
}

impl Merged {
    /// The time of the next request; `None` at the end.
    fn next_ns(&mut self) -> Result<Option<u64>> {
        if self.ready.is_empty() && !self.has_ended {
            let mut batch = Vec::new();
            match self.reader.next_batch(&mut batch) {
                // A processor may have no requests.
                Err(Error::Empty { .. }) => {}
                read => read?,
            }
            self.has_ended = batch.is_empty();
            self.ready.extend(batch);
        }
        Ok(self.ready.front().map(|request| request.time_ns))
    }
}

impl Requests for Together {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        let most = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
        while batch.len() < most {
            let mut next: Option<(u64, usize)> = None;
            for (at, file) in self.files.iter_mut().enumerate() {
                if let Some(ns) = file.next_ns()?
                    && next.is_none_or(|(least, _)| ns < least)
                {
                    next = Some((ns, at));
                }
            }
            let request = next.and_then(|(_, at)| self.files.get_mut(at)?.ready.pop_front());
            match request {
                Some(request) => batch.push(request),
                None => break,
            }
        }
        self.found_any |= !batch.is_empty();
        self.left -= batch.len() as u64;
        let path = || self.files.first().map(|file| file.reader.input.path().to_owned()).unwrap_or_default();
        if self.found_any { Ok(()) } else { Err(Error::Empty { path: path() }) }
    }

    fn progress(&self) -> Option<f64> {
        let shares: Option<Vec<f64>> = self.files.iter().map(|file| file.reader.progress()).collect();
        shares.map(|shares| shares.iter().sum::<f64>() / shares.len().max(1) as f64)
    }

    fn notes(&self) -> Vec<Note> {
        let readers = || self.files.iter().map(|file| &file.reader);
        let lost: u64 = readers().map(|reader| reader.lost).sum();
        let cut: u64 = readers().map(|reader| reader.cut_bytes).sum();
        let others = readers().any(|reader| reader.has_others);
        let read = readers().next().map(|reader| reader.action.name()).unwrap_or_default();
        let files = Note::Processors { files: self.files.len() as u64 };
        let events = others.then_some(Note::Events { read });
        let lost = (lost > 0).then_some(Note::Lost { count: Some(lost) });
        let cut = (cut > 0).then_some(Note::CutBytes { bytes: cut });
        let skipped = readers().filter_map(|reader| reader.skipped.note());
        [files].into_iter().chain(events).chain(lost).chain(cut).chain(skipped).collect()
    }
}
