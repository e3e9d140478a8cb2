//! The order in which operations go to a device, as users configure it.

use std::fmt;
use std::str::FromStr;

/// The order in which operations go to a device. In any order, reads that a request waits for go before prefetches.
/// Flushes, discards and zeroes, which wait for nothing in the queue, go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served.
    FirstCome,
    /// The longest waiting operations, up to a limit, sorted by position; then the next such batch (Cao, Felten,
    /// Karlin, Li, Implementation and Performance of Integrated Application-Controlled File Caching, Prefetching, and
    /// Disk Scheduling, ACM TOCS 1996). There, a batch has prefetches of one program only, and the disk's own queue is
    /// first come, first served (4.3).
    Batches {
        /// The most operations of a batch, at least 1.
        most: u32,
    },
    /// Upwards by position from the end of the last one; from the lowest if there is none above (C-LOOK).
    Elevator,
    /// By position from the end of the last one, upwards or downwards; the direction changes if there is none ahead
    /// (LOOK).
    Look,
    /// Linux's deadline scheduler.
    Deadline(Deadline),
}

/// The rules of Linux's deadline scheduler (`block/mq-deadline.c`): batches of one direction go upwards by position,
/// reads before writes. A batch begins with the operation that has waited longest if it is late, or if none is above
/// the previous batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// A read is late after it has waited this long (`read_expire`).
    pub read_us: u64,
    /// A write is late after it has waited this long (`write_expire`).
    pub write_us: u64,
    /// The most operations of a batch, at least 1 (`fifo_batch`).
    pub batch: u32,
    /// While writes wait, this many batches of reads go before one of them (`writes_starved`).
    pub reads_per_write: u32,
}

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline { read_us: 500_000, write_us: 5_000_000, batch: 16, reads_per_write: 2 }
    }
}

/// The size of `batch` without a number: that of the paper's implementation.
const BATCH: u32 = 16;
/// Larger batches are presumably typing errors.
const BATCH_MOST: u32 = 1 << 16;

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::Batches { most: BATCH }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduler::FirstCome => f.write_str("first-come"),
            Scheduler::Batches { most } => write!(f, "batch:{most}"),
            Scheduler::Elevator => f.write_str("elevator"),
            Scheduler::Look => f.write_str("look"),
            Scheduler::Deadline(rules) if *rules == Deadline::default() => f.write_str("deadline"),
            Scheduler::Deadline(Deadline { read_us, write_us, batch, reads_per_write }) => {
                write!(f, "deadline:read={read_us}us:write={write_us}us:batch={batch}:starved={reads_per_write}")
            }
        }
    }
}

/// The names before parameters.
const NAMES: [&str; 5] = ["first-come", "batch", "elevator", "look", "deadline"];

/// Why a scheduler specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerError {
    /// There is no such scheduler.
    #[error(
        "there is no scheduler '{name}': expected first-come, batch:16, elevator, look or deadline{near}",
        name = .0,
        near = nigh_text::did_you_mean(nigh_text::nearest(.0, NAMES))
    )]
    Unknown(String),
    /// Its parameters are invalid.
    #[error("scheduler '{text}': expected {expected}")]
    Parameters {
        /// The text given.
        text: String,
        /// The form expected.
        expected: &'static str,
    },
}

impl FromStr for Scheduler {
    type Err = SchedulerError;

    fn from_str(text: &str) -> Result<Scheduler, SchedulerError> {
        let text = text.trim();
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let wrong = |expected| SchedulerError::Parameters { text: text.to_owned(), expected };
        let plain = |scheduler| match rest {
            None => Ok(scheduler),
            Some(_) => Err(wrong("no parameters")),
        };
        match name {
            "first-come" => plain(Scheduler::FirstCome),
            "elevator" => plain(Scheduler::Elevator),
            "look" => plain(Scheduler::Look),
            "batch" => {
                let most = rest.map_or(Some(BATCH), batch);
                Ok(Scheduler::Batches { most: most.ok_or_else(|| wrong("batch:16, a number from 1 to 65536"))? })
            }
            "deadline" => {
                let rules = rest.map_or(Some(Deadline::default()), deadline);
                let expected = "deadline:read=500ms:write=5s:batch=16:starved=2, each setting at most once";
                Ok(Scheduler::Deadline(rules.ok_or_else(|| wrong(expected))?))
            }
            _ => Err(SchedulerError::Unknown(name.to_owned())),
        }
    }
}

fn batch(text: &str) -> Option<u32> {
    text.parse().ok().filter(|most| (1..=BATCH_MOST).contains(most))
}

fn deadline(text: &str) -> Option<Deadline> {
    let mut rules = Deadline::default();
    let mut seen = Vec::new();
    for part in text.split(':') {
        let (key, value) = part.split_once('=')?;
        if seen.contains(&key) {
            return None;
        }
        seen.push(key);
        match key {
            "read" => rules.read_us = time_us(value)?,
            "write" => rules.write_us = time_us(value)?,
            "batch" => rules.batch = batch(value)?,
            "starved" => rules.reads_per_write = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(rules)
}

/// A time such as `500ms`, in µs.
fn time_us(text: &str) -> Option<u64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(split);
    let scale = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_written() {
        for text in ["first-come", "batch:16", "batch:1", "elevator", "look", "deadline"] {
            assert_eq!(text.parse::<Scheduler>().unwrap().to_string(), text);
        }
        assert_eq!("batch".parse(), Ok(Scheduler::default()));
        let rules = Deadline { read_us: 50_000, batch: 4, ..Deadline::default() };
        assert_eq!("deadline:read=50ms:batch=4".parse(), Ok(Scheduler::Deadline(rules)));
        let scheduler = Scheduler::Deadline(rules);
        assert_eq!(scheduler.to_string().parse(), Ok(scheduler));
    }

    #[test]
    fn slips_are_named() {
        for text in ["", "cfq", "batch:0", "batch:x", "batch:65537", "look:3", "deadline:", "deadline:read=5"] {
            assert!(text.parse::<Scheduler>().is_err(), "{text}");
        }
        for text in ["deadline:read=1ms:read=2ms", "deadline:reed=1ms", "deadline:write=99999999999999999s"] {
            let error = text.parse::<Scheduler>().unwrap_err().to_string();
            assert!(error.contains("deadline:read=500ms") && !error.contains('\n'), "{error}");
        }
    }
}
