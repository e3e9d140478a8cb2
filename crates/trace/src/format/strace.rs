//! System calls on files in the output of `strace` (`strace -f -y -ttt -e trace=desc,process`; with any of the times of
//! `-t`, `-tt`, `-ttt` and `-r`, or none).
//!
//! A call that reads, writes, synchronizes or punches a hole in a file is a request with the number of bytes that the
//! call returned. Calls that fail or move no data are skipped. A file is a volume, the process is the tenant. The
//! position in a file follows from `open`, `lseek`, `dup`, `fork` and the previous accesses; appended data is placed
//! after the farthest access. For a file that was open before the trace began, the first position is assumed to be 0,
//! and a note counts these files. Descriptors that are known not to be files are left out, and a note counts their
//! reads and writes; they are known from `-y`, or because no call opened or positioned them. `sendfile` and
//! `copy_file_range` count as a read of their source. strace does not show accesses by `mmap`, AIO and `io_uring`.

mod calls;
mod descriptors;

use std::collections::HashMap;

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
        Ok(request.map(|request| Request { time_ns: time, tenant: process, ..request }))
    }

    fn notes(&self) -> Vec<Note> {
        self.descriptors.notes()
    }
}

impl Parser {
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
            process = id(digits).ok_or_else(|| Bad::field(digits, "a process id"))?;
            rest = behind.get(1..).unwrap_or_default().trim_ascii_start();
        } else if let (digits, behind) = word(line)
            && let Some(id) = id(digits)
        {
            (process, rest) = (id, behind);
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
