//! System calls on files as `strace` prints them (`strace -f -y -ttt -e trace=desc,process`; any of the times of `-t`, `-tt`,
//! `-ttt` and `-r`, and none).
//!
//! What reads, writes, synchronizes or punches a hole in a file is a request, of the bytes that the call returned. Calls
//! that fail, or move no data, are skipped. A file is a volume, the process is the tenant. The position of a file follows
//! from `open`, `lseek`, `dup`, `fork` and the accesses before; appended data lie behind the farthest access. The position of a
//! file that was open before the trace began is taken as 0, and a note counts these; descriptors that are known to be no
//! files (by `-y`, or as nothing opened them and nothing positioned them) are left out, and a note counts their reads and writes.
//! Of `sendfile` and `copy_file_range` the read is taken. Accesses by `mmap`, AIO and `io_uring` are not seen by strace.

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

/// Calls of different processes that are unfinished at a time.
const UNFINISHED_MOST: usize = 1 << 14;
/// The longest beginning of an unfinished call that is kept.
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

/// What the times of lines are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of the day.
    Clock,
    /// Since 1970.
    Epoch,
    /// Since the line before.
    Relative,
}

impl Clock {
    /// The time that `word` means.
    fn read(&mut self, word: &[u8]) -> Option<u64> {
        if let Some(of_day_ns) = clock_ns(word) {
            let day_ns = DAY_S * SECOND_NS;
            let mut ns = (self.now_ns / day_ns * day_ns).checked_add(of_day_ns)?;
            // After midnight. Lines of several processes may be out of order by a little.
            if ns + day_ns / 2 < self.now_ns {
                ns = ns.checked_add(day_ns)?;
            }
            self.kind.get_or_insert(Kind::Clock);
            self.now_ns = self.now_ns.max(ns);
            return Some(ns);
        }
        let ns = time_ns(word, SECOND_NS)?;
        // No clock that is right shows a time before 1973.
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
                // What began before the trace did cannot be told.
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
    /// The process and the time at the beginning of a line, and what is behind them.
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
