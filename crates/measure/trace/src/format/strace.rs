//! System calls on files in the output of `strace` (`strace -f -y -ttt -e trace=desc,process`; with any of the times of
//! `-t`, `-tt`, `-ttt` and `-r`, or none).
//!
//! A call that reads, writes, synchronizes or punches a hole in a file is a request with the number of bytes that the
//! call returned, and with the time in the call (`-T`) as its latency. Calls that fail or move no data are skipped. A file is a
//! volume, the process is the tenant. The position in a file follows from `open`, `lseek`, `dup`, `fork` and the previous
//! accesses; appended data is placed after the farthest access. For a file that was open before the trace began, the first
//! position is assumed to be 0, and a note counts these files. Descriptors that are known not to be files are left out, and a
//! note counts their reads and writes; they are known from `-y`, or because no call opened or positioned them. `sendfile` and
//! `copy_file_range` count as a read of their source. strace does not show accesses by `mmap`, AIO and `io_uring`.
//!
//! In the standard error of a program, notes of strace itself, such as `strace: Process 7 attached`, can be within a line: the
//! next line continues the call. There, the first process has a number only while there are others: it is the one without.

mod calls;
mod descriptors;

use std::collections::{HashMap, HashSet};

use crate::error::Bad;
use crate::text::{Lines, number, time_ns};
use crate::time::{DAY_S, clock_ns};
use crate::{Note, Request};
use calls::Call;
use descriptors::Descriptors;

const SECOND_NS: u64 = 1_000_000_000;

/// The most unfinished calls of different processes at a time.
const UNFINISHED_MOST: usize = 1 << 14;
/// The longest beginning of an unfinished call that is stored.
const UNFINISHED_BYTES_MOST: usize = 1 << 14;

#[derive(Default)]
pub(crate) struct Parser {
    descriptors: Descriptors,
    /// The beginnings of unfinished calls, by process.
    unfinished: HashMap<u32, Vec<u8>>,
    /// The beginning of a line that a note of strace interrupted.
    interrupted: Vec<u8>,
    /// Calls whose end is missing.
    endless: u64,
    /// Processes that notes of strace announced.
    attached: HashSet<u32>,
    /// Whether lines without a process occurred.
    has_unnumbered: bool,
    /// The process of the lines without one; known once it has a number, too.
    unnumbered: Option<u32>,
    clock: Clock,
}

/// The time of the last line.
#[derive(Default)]
struct Clock {
    now_ns: u64,
    kind: Option<Kind>,
}

/// The kind of times of the lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Times of the day.
    Clock,
    /// Since 1970.
    Epoch,
    /// Times since the previous line.
    Relative,
}

impl Clock {
    /// The time given by `word`.
    fn read(&mut self, word: &[u8]) -> Option<u64> {
        if let Some(of_day_ns) = clock_ns(word) {
            let day_ns = DAY_S * SECOND_NS;
            let mut ns = (self.now_ns / day_ns * day_ns).checked_add(of_day_ns)?;
            // After midnight. Lines of several processes can be slightly out of order.
            if ns + day_ns / 2 < self.now_ns {
                ns = ns.checked_add(day_ns)?;
            }
            self.kind.get_or_insert(Kind::Clock);
            self.now_ns = self.now_ns.max(ns);
            return Some(ns);
        }
        let ns = time_ns(word, SECOND_NS)?;
        // No correct clock shows a time before 1973.
        const EPOCH_LEAST_NS: u64 = 100_000_000 * SECOND_NS;
        let guess = if ns >= EPOCH_LEAST_NS { Kind::Epoch } else { Kind::Relative };
        match self.kind.get_or_insert(guess) {
            Kind::Relative => {
                self.now_ns = self.now_ns.checked_add(ns)?;
                Some(self.now_ns)
            }
            _ => Some(ns),
        }
    }
}

impl Lines for Parser {
    const SKIPS_HEADER: bool = false;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if is_note(line) {
            self.announce(line);
            return Ok(None);
        }
        if let Some(at) = note_within(line) {
            self.announce(line.get(at..).unwrap_or_default());
            let joined = self.joined(line.get(..at).unwrap_or_default());
            if joined.len() > UNFINISHED_BYTES_MOST {
                return Err(Bad::field(line, "a call shorter than 2^14 bytes"));
            }
            self.interrupted = joined;
            return Ok(None);
        }
        if self.interrupted.is_empty() {
            return self.whole_line(line);
        }
        let joined = self.joined(line);
        self.interrupted.clear();
        self.whole_line(joined.trim_ascii())
    }

    fn notes(&self) -> Vec<Note> {
        let endless = self.endless + u64::from(!self.interrupted.is_empty());
        let what = "calls whose end is missing, because a note of strace interrupted them,";
        let endless = (endless > 0).then_some(Note::LeftOut { count: endless, what });
        self.descriptors.notes().into_iter().chain(endless).collect()
    }
}

impl Parser {
    /// Notes the process that a note of strace announces.
    fn announce(&mut self, note: &[u8]) {
        const PROCESS: &[u8] = b"strace: Process ";
        let digits = memchr::memmem::find(note, PROCESS).and_then(|at| note.get(at + PROCESS.len()..));
        let id = digits.and_then(|digits| number(digits.strip_suffix(b" attached")?));
        if let Some(id) = id.and_then(|id| u32::try_from(id).ok())
            && self.attached.len() < UNFINISHED_MOST
        {
            self.attached.insert(id);
        }
    }

    /// The process of lines with this number: that of the lines without one, if no note announced the number.
    fn numbered(&mut self, id: u32) -> u32 {
        if self.unnumbered.is_none() && self.has_unnumbered && !self.attached.contains(&id) {
            self.unnumbered = Some(id);
        }
        if self.unnumbered == Some(id) { 0 } else { id }
    }

    /// A part of a line, after the part that a note interrupted. A line that begins anew shows that the rest of that one is
    /// missing.
    fn joined(&mut self, part: &[u8]) -> Vec<u8> {
        let is_new = self.interrupted.is_empty() || begins_call(part);
        if is_new && !self.interrupted.is_empty() {
            self.endless += 1;
            self.interrupted.clear();
        }
        let mut joined = std::mem::take(&mut self.interrupted);
        joined.extend_from_slice(part);
        joined
    }

    /// A line without notes in it.
    fn whole_line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let (process, time, body) = self.prefix(line)?;
        if body.starts_with(b"+++ ") {
            self.unfinished.remove(&process);
            self.descriptors.exit(process);
            return Ok(None);
        }
        if body.starts_with(b"--- ") || body.starts_with(b"strace: ") || body.is_empty() {
            return Ok(None);
        }
        let joined;
        let call = match body.strip_prefix(b"<... ") {
            Some(rest) => {
                const RESUMED: &[u8] = b" resumed>";
                let Some(at) = memchr::memmem::find(rest, RESUMED) else {
                    return Err(Bad::field(body, "the rest of a call that was not finished"));
                };
                // Calls that began before the trace are unknown.
                let Some(mut beginning) = self.unfinished.remove(&process) else { return Ok(None) };
                beginning.extend_from_slice(rest.get(at + RESUMED.len()..).unwrap_or_default());
                joined = beginning;
                &joined[..]
            }
            None => body,
        };
        if let Some(beginning) = call.strip_suffix(b"<unfinished ...>") {
            if self.unfinished.len() >= UNFINISHED_MOST {
                return Err(Bad::field(line, "fewer than 2^14 unfinished calls"));
            }
            let kept = beginning.get(..UNFINISHED_BYTES_MOST).unwrap_or(beginning);
            self.unfinished.insert(process, kept.to_owned());
            return Ok(None);
        }
        if !self.descriptors.knows(process) {
            let unfinished = self.unfinished.iter();
            let mut parents = unfinished.filter(|(_, beginning)| calls::makes_process(beginning));
            let parent = parents.next().map(|(parent, beginning)| (*parent, calls::shares_files(beginning)));
            self.descriptors.begin(process, parent)?;
        }
        let Some(call) = Call::parse(call)? else { return Ok(None) };
        let request = self.descriptors.apply(process, &call)?;
        Ok(request.map(|request| Request { time_ns: time, tenant: process, latency_ns: call.elapsed_ns, ..request }))
    }

    /// The process and the time at the beginning of a line, and the text after them.
    fn prefix<'a>(&mut self, line: &'a [u8]) -> Result<(u32, u64, &'a [u8]), Bad> {
        let word = |line: &'a [u8]| {
            let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
            let (word, rest) = line.split_at_checked(end).unwrap_or_default();
            (word, rest.trim_ascii_start())
        };
        let id = |digits: &[u8]| number(digits).and_then(|id| u32::try_from(id).ok());
        let (mut process, mut rest) = (0, line);
        if let Some(after) = line.strip_prefix(b"[pid") {
            let end = memchr::memchr(b']', after).and_then(|at| after.split_at_checked(at));
            let (digits, behind) = end.ok_or_else(|| Bad::field(line, "[pid and a process id]"))?;
            let digits = digits.trim_ascii();
            process = self.numbered(id(digits).ok_or_else(|| Bad::field(digits, "a process id"))?);
            rest = behind.get(1..).unwrap_or_default().trim_ascii_start();
        } else if let (digits, behind) = word(line)
            && let Some(id) = id(digits)
        {
            (process, rest) = (id, behind);
        } else {
            self.has_unnumbered = true;
        }
        let mut time = self.clock.now_ns;
        if rest.first().is_some_and(u8::is_ascii_digit) {
            let (stamp, behind) = word(rest);
            time = self.clock.read(stamp).ok_or_else(|| Bad::field(stamp, "a time or a system call"))?;
            rest = behind;
        }
        Ok((process, time, rest))
    }
}

const NOTE: &[u8] = b"strace: ";

/// Whether a line is a note of strace; the name of the program can have its folder.
fn is_note(line: &[u8]) -> bool {
    line.starts_with(NOTE) || (line.starts_with(b"/") && memchr::memmem::find(line, b"/strace: ").is_some())
}

/// The place of a note about a process that ends the line, outside of quotes and of the paths of descriptors.
fn note_within(line: &[u8]) -> Option<usize> {
    let at = memchr::memmem::rfind(line, NOTE)?;
    let text = line.get(at + NOTE.len()..)?;
    let is_note = (text.starts_with(b"Process ") && (text.ends_with(b" attached") || text.ends_with(b" detached")))
        || (text.starts_with(b"[ Process ") && text.ends_with(b" ]"));
    // The folder of the program is part of the note.
    let before = line.get(..at)?;
    let folder = before.iter().rev().take_while(|byte| !matches!(byte, b' ' | b',' | b'"' | b'(' | b'>')).count();
    let before = before.get(..before.len() - folder)?;
    (is_note && (folder == 0 || line.get(before.len()) == Some(&b'/'))).then_some(before.len())
}

/// Whether a line is the beginning of a call or of its rest: a process or a time, and the name of a call.
fn begins_call(line: &[u8]) -> bool {
    if line.starts_with(b"[pid") {
        return true;
    }
    let words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut words =
        words.skip_while(|word| word.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b':')));
    let is_stamped = line.first().is_some_and(u8::is_ascii_digit);
    is_stamped
        && words.next().is_some_and(|word| {
            let name =
                word.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(word.len());
            word == b"<..." || word == b"+++" || word == b"---" || (name > 0 && word.get(name) == Some(&b'('))
        })
}
