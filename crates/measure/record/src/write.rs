//! Writes a recording on a thread of its own: rings are read while groups of calls are compressed.
//!
//! A call is known when it ends, and a recording has the order in which calls begin: each waits for those that may have begun before it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use nigh_trace::format::parquet::{Call, Context, Recorder};
use nigh_trace::{Gaps, Result};

use crate::now_ns;

/// The most calls that wait to be written, of about 100 bytes each.
const WAITING_MOST: u64 = 1 << 21;

/// How long calls wait at least, and twice that at most. Calls that take longer are written when they end.
const HOLD_NS: u64 = 100_000_000;

enum Entry {
    Program(String),
    File(String),
    Context(Context),
    Calls(Vec<Call>),
    Checkpoint(Gaps),
}

/// How far the thread is.
#[derive(Default)]
struct Progress {
    written: AtomicU64,
    bytes: AtomicU64,
}

/// A recording that is being written. Numbers of programs, files and contexts are those of [`Recorder`].
pub struct Writer {
    entries: Sender<Entry>,
    thread: JoinHandle<(Recorder, Result<()>)>,
    progress: Arc<Progress>,
    programs: HashMap<String, u32>,
    files: u32,
    contexts: u32,
    /// Calls that wait for earlier ones.
    held: Vec<Call>,
    /// When the recording began, and when calls were passed on last: what began before that is passed on the next time.
    begin_ns: u64,
    passed_ns: u64,
    calls: u64,
    limit: u64,
}

impl Writer {
    /// Writes into `recorder`, which is new, no more than `limit` calls. Their times count from `begin_ns` of the monotonic clock.
    pub fn new(recorder: Recorder, limit: u64, begin_ns: u64) -> Writer {
        let (entries, waiting) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let thread = {
            let progress = progress.clone();
            std::thread::spawn(move || write(recorder, &waiting, &progress))
        };
        let (programs, files, contexts, calls) = (HashMap::new(), 0, 0, 0);
        Writer {
            entries,
            thread,
            progress,
            programs,
            files,
            contexts,
            held: Vec::new(),
            begin_ns,
            passed_ns: begin_ns,
            calls,
            limit,
        }
    }

    /// The number of the program called `name`.
    pub(crate) fn program(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.programs.get(name) {
            return known;
        }
        let number = self.programs.len() as u32;
        self.programs.insert(name.to_owned(), number);
        self.send(Entry::Program(name.to_owned()));
        number
    }

    /// The number of one more file.
    pub(crate) fn file(&mut self, path: String) -> u32 {
        self.send(Entry::File(path));
        self.files += 1;
        self.files - 1
    }

    /// The number of one more issuing code.
    pub(crate) fn context(&mut self, context: Context) -> u32 {
        self.send(Entry::Context(context));
        self.contexts += 1;
        self.contexts - 1
    }

    /// Appends calls up to the limit, in any order, and returns how many it takes.
    pub(crate) fn push(&mut self, calls: &[Call]) -> usize {
        let room = usize::try_from(self.limit - self.calls).unwrap_or(usize::MAX).min(calls.len());
        let (calls, _) = calls.split_at(room);
        self.calls += room as u64;
        self.held.extend_from_slice(calls);
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.passed_ns) >= HOLD_NS {
            self.write_before(self.passed_ns - self.begin_ns);
            self.passed_ns = now_ns;
        }
        room
    }

    /// Writes the calls that began before this time of the recording.
    fn write_before(&mut self, time_ns: u64) {
        self.held.sort_by_key(|call| call.request.time_ns);
        let ready = self.held.partition_point(|call| call.request.time_ns < time_ns);
        if ready > 0 {
            let calls = self.held.drain(..ready).collect();
            self.send(Entry::Calls(calls));
        }
    }

    /// Completes the file up to here, when what waits is written, with what it lacks.
    pub fn checkpoint(&mut self, gaps: Gaps) {
        self.send(Entry::Checkpoint(gaps));
    }

    /// Whether too many calls wait to be written for more to be read.
    pub fn is_behind(&self) -> bool {
        self.calls - self.progress.written.load(Ordering::Relaxed) >= WAITING_MOST
    }

    /// Whether the limit is reached, or an error ended the writing.
    pub fn is_over(&self) -> bool {
        self.calls == self.limit || self.thread.is_finished()
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Writes what waits. Returns the recorder and the error that ended it, if there was one.
    pub fn end(mut self) -> (Recorder, Result<()>) {
        self.write_before(u64::MAX);
        drop(self.entries);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// After an error, entries are dropped: `end` returns it.
    fn send(&self, entry: Entry) {
        let _ = self.entries.send(entry);
    }
}

fn write(mut recorder: Recorder, entries: &Receiver<Entry>, progress: &Progress) -> (Recorder, Result<()>) {
    for entry in entries {
        let written = match entry {
            Entry::Program(name) => {
                recorder.program(&name);
                Ok(())
            }
            Entry::File(path) => {
                recorder.file(&path);
                Ok(())
            }
            Entry::Context(context) => {
                recorder.context(context);
                Ok(())
            }
            Entry::Calls(calls) => calls.into_iter().try_for_each(|call| recorder.push(call)),
            Entry::Checkpoint(gaps) => {
                recorder.set_gaps(gaps);
                recorder.checkpoint()
            }
        };
        if written.is_err() {
            return (recorder, written);
        }
        progress.written.store(recorder.calls(), Ordering::Relaxed);
        progress.bytes.store(recorder.bytes(), Ordering::Relaxed);
    }
    (recorder, Ok(()))
}

#[cfg(test)]
mod tests {
    use nigh_trace::format::parquet::Did;
    use nigh_trace::write::Destination;
    use nigh_trace::{Op, Request, Taken};

    use super::*;

    /// Calls of one thread are known before those of another one that began earlier.
    #[test]
    fn files_11_recordings_have_the_order_in_which_calls_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let recorder = Recorder::create(&Destination::new(&path, false, &[]).unwrap(), Taken::Above, 4096).unwrap();
        // They wait, however long this test takes.
        let mut writer = Writer::new(recorder, 5, now_ns() + 1_000_000_000_000);
        let (program, volume) = (writer.program("made"), writer.file("/made".to_owned()));
        let context = writer.context(Context::default());
        let call = |time_ns| {
            let request = Request { time_ns, length: 512, volume, ..Request::default() };
            let did = Did::Request(Op::Read);
            Call { request, did, program, context, tid: 1, asked: 512, result: 512, device_bytes: 0 }
        };
        assert_eq!(writer.push(&[call(5), call(9)]), 2);
        assert_eq!(writer.push(&[call(7), call(3)]), 2);
        assert_eq!(writer.push(&[call(4), call(1)]), 1, "up to the limit");
        let (recorder, written) = writer.end();
        written.unwrap();
        recorder.finish().unwrap();
        let mut requests = nigh_trace::open(&path, &Default::default()).unwrap().requests;
        let mut batch = Vec::new();
        requests.next_batch(&mut batch).unwrap();
        assert_eq!(batch.iter().map(|request| request.time_ns).collect::<Vec<_>>(), [3, 4, 5, 7, 9]);
    }
}
