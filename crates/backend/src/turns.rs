//! Turns on processors: a thread that computes little gets one before those that compute much.
//!
//! The kernel takes a processor from a thread at once for one that wakes up, has not had its share, and has shorter turns
//! (PREEMPT_SHORT, from Linux 6.12 on). Otherwise that one waits until the turn is over, and the kernel notices this only when the
//! next thread wakes up, or at its next tick. So each thread begins with short turns, and those that are found to compute much
//! have longer ones as long as they do. Nobody's share of the processors changes.

use std::collections::HashMap;
use std::io;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::kernel::{THIS_THREAD, processor_time, take_turns};

/// Turns of threads that compute little: the shortest that the kernel has.
const SHORT: Duration = Duration::from_micros(100);
/// Those of the others.
const LONG: Duration = Duration::from_micros(200);
/// The share of a processor from which on a thread computes much.
const MUCH: f64 = 0.2;
/// Between two looks at all threads: at least so long, and so many times as long as a look takes.
const PAUSE: Duration = Duration::from_millis(20);
const RARELY: u32 = 200;
/// While the whole process does not compute as much as that, only this is looked at, so often.
const REST: Duration = Duration::from_millis(200);

/// From now on, threads that this thread starts, and those that they start, take turns by how much they compute. To be called
/// once in a process. Nothing changes for threads with a policy for real time, batches or idle times, nor with kernels before
/// 6.12, nor where the kernel rejects it.
pub fn take_turns_by_need() {
    let started = take_turns(THIS_THREAD, SHORT).and_then(|()| Builder::new().name("turns".into()).spawn(watch));
    if let Err(error) = started {
        tracing::debug!(%error, "the kernel decides how long a thread keeps a processor");
    }
}

/// A thread, when it was last looked at.
struct Seen {
    computed: Duration,
    has_long_turns: bool,
}

/// Ends where the kernel does not tell processor times.
fn watch() {
    let mut threads: HashMap<i32, Seen> = HashMap::new();
    let (mut at, Ok(mut computed)) = (Instant::now(), processor_time(None)) else { return };
    let mut pause = REST;
    loop {
        std::thread::sleep(pause);
        let (now, Ok(all)) = (Instant::now(), processor_time(None)) else { return };
        let much = (now - at).mul_f64(MUCH);
        if all - computed < much && !threads.values().any(|thread| thread.has_long_turns) {
            threads.clear();
            pause = REST;
        } else {
            let Ok(seen) = look(&threads, much) else { return };
            threads = seen;
            pause = PAUSE.max(now.elapsed() * RARELY);
        }
        (at, computed) = (now, all);
    }
}

/// Has each thread of this process take long turns if it has computed so much since it was seen last, and short ones otherwise.
fn look(before: &HashMap<i32, Seen>, much: Duration) -> io::Result<HashMap<i32, Seen>> {
    let mut threads = HashMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let Some(thread) = task?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile.
        let Ok(computed) = processor_time(Some(thread)) else { continue };
        let known = before.get(&thread);
        let had_long_turns = known.is_some_and(|seen| seen.has_long_turns);
        let has_long_turns = known.is_some_and(|seen| computed.saturating_sub(seen.computed) >= much);
        if has_long_turns != had_long_turns && take_turns(thread, if has_long_turns { LONG } else { SHORT }).is_err() {
            continue;
        }
        threads.insert(thread, Seen { computed, has_long_turns });
    }
    Ok(threads)
}
