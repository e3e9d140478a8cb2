//! Block events in the output of `perf script` and of ftrace (`trace-cmd report`, `trace_pipe`): program, process id,
//! CPU in brackets, seconds, and the event with its fields, such as `block:block_rq_issue: 259,0 WS 4096 () 2048 + 8
//! [fio]`.
//!
//! The layouts of the fields are the kernel's (include/trace/events/block.h): device `major,minor`, kind of request
//! (RWBS), and after other fields `sector + sectors` (512 bytes). As in the `blkparse` format, the events of one kind
//! are read as requests: `block_bio_queue`, `block_rq_issue` or `block_rq_complete`; by default, the first of these
//! that occurs at the beginning of the listing. Other lines are skipped: other events, call stacks, remarks. Reports of lost
//! events are counted. The device
//! is the volume, numbered major × 2^20 + minor as in Linux; the process is the tenant.

use memchr::memmem;

use crate::error::Bad;
use crate::format::blkparse::{Action, volume_of};
use crate::input::Input;
use crate::loss::Losses;
use crate::rwbs::Rwbs;
use crate::skip::Bounds;
use crate::text::{Lines, SECTOR_BYTES, Text, number, time_ns};
use crate::{Note, Op, Request, Requests, Result};

const SECOND_NS: u64 = 1_000_000_000;
/// The size of the sample that shows which events there are.
const SAMPLE_BYTES: usize = 64 << 10;

pub(crate) struct Parser {
    action: Action,
    /// Whether events of other kinds describe the same requests.
    has_others: bool,
    losses: Losses,
}

/// The requests of `input`, which is at its beginning.
pub(crate) fn reader(mut input: Input, action: Option<Action>, bounds: Bounds) -> Result<Box<dyn Requests + Send>> {
    input.fill_to(SAMPLE_BYTES)?;
    let parser = Parser::new(action, input.data());
    Ok(Box::new(Text::new(input, parser, bounds)))
}

fn event(action: Action) -> &'static [u8] {
    match action {
        Action::Queue => b"block_bio_queue: ",
        Action::Issue => b"block_rq_issue: ",
        Action::Complete => b"block_rq_complete: ",
    }
}

impl Parser {
    /// A parser of the listing that begins with `sample`.
    pub(crate) fn new(action: Option<Action>, sample: &[u8]) -> Parser {
        let has = |action: &Action| memmem::find(sample, event(*action)).is_some();
        let first = Action::ALL.into_iter().find(has).unwrap_or_default();
        let has_others = action.is_none() && Action::ALL.into_iter().any(|other| other != first && has(&other));
        Parser { action: action.unwrap_or(first), has_others, losses: Losses::default() }
    }
}

impl Lines for Parser {
    const SKIPS_HEADER: bool = false;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let name = event(self.action);
        let Some((before, after)) = memmem::find(line, name).and_then(|at| line.split_at_checked(at)) else {
            // Lines of other events may have any words.
            let reports = [&b"CPU"[..], b"#", b"Processed ", b"Warning: "];
            if reports.iter().any(|text| line.starts_with(text)) || memmem::find(line, b"PERF_RECORD_LOST").is_some() {
                self.losses.take(line);
            }
            return Ok(None);
        };
        let payload = after.get(name.len()..).unwrap_or_default();
        let before = before.strip_suffix(b"block:").unwrap_or(before).trim_ascii_end();
        let (who, time) = before.strip_suffix(b":").and_then(last_word).unwrap_or((b"", before));
        let time_ns = time_ns(time, SECOND_NS).ok_or_else(|| Bad::field(time, "a time in seconds and a colon"))?;

        let mut words = payload.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let volume = device(words.next().unwrap_or_default())?;
        let kind = words.next().ok_or_else(|| Bad::end_of_line("a kind of request (RWBS)"))?;
        let kind = Rwbs::strict(kind).ok_or_else(|| Bad::field(kind, "a kind of request (RWBS)"))?;
        const PLACE: &str = "the first sector, + and a number of sectors";
        let (place, count) =
            memmem::find(payload, b" + ").and_then(|at| payload.split_at_checked(at)).unwrap_or_default();
        let sector = last_word(place).and_then(|(_, word)| number(word)).ok_or_else(|| Bad::field(payload, PLACE))?;
        let count = count.get(3..).unwrap_or_default();
        let count = count.split(|byte| *byte == b' ').next().and_then(number);
        let count = count.ok_or_else(|| Bad::field(payload, PLACE))?;
        let request = Request { time_ns, volume, tenant: process(who), ..Request::default() };
        if count == 0 {
            return Ok(kind.flushes.then_some(Request { op: Op::Flush, ..request }));
        }
        kind.request(line, request, (sector, SECTOR_BYTES), (count, SECTOR_BYTES))
    }

    fn notes(&self) -> Vec<Note> {
        let read = match self.action {
            Action::Queue => "block_bio_queue",
            Action::Issue => "block_rq_issue",
            Action::Complete => "block_rq_complete",
        };
        self.has_others.then_some(Note::Events { read }).into_iter().chain(self.losses.note()).collect()
    }
}

/// The text before the last word of a line, and that word.
fn last_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_end();
    let at = line.iter().rposition(|byte| matches!(byte, b' ' | b'\t'))? + 1;
    line.split_at_checked(at)
}

/// The volume of a device `major,minor`.
fn device(word: &[u8]) -> Result<u32, Bad> {
    let comma = memchr::memchr(b',', word).and_then(|at| Some((word.get(..at)?, word.get(at + 1..)?)));
    let (major, minor) = comma.ok_or_else(|| Bad::field(word, "a device as major,minor"))?;
    volume_of(major, minor).ok_or_else(|| Bad::field(word, "a device as major,minor"))
}

/// The process id in the text before the time, or 0: the number before the CPU in brackets, after which ftrace has
/// flags.
fn process(who: &[u8]) -> u32 {
    let cpu = |word: &&[u8]| word.starts_with(b"[") && word.ends_with(b"]") && word.len() > 2;
    let words = || who.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let before_cpu = words().rev().skip_while(|word| !cpu(word)).nth(1);
    let word = before_cpu.or_else(|| words().next_back()).unwrap_or_default();
    // perf can write `pid/tid`, ftrace writes `program-pid`.
    let word = word.split(|byte| *byte == b'/').next().unwrap_or_default();
    let digits = word.rsplit(|byte| *byte == b'-').next().unwrap_or_default();
    number(digits).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
}
