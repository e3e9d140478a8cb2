//! Writes a recording on a thread of its own: rings are read while groups of calls are compressed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use nigh_trace::format::parquet::{Call, Context, Recorder};
use nigh_trace::{Gaps, Result};

/// The most calls that wait to be written, of about 100 bytes each.
const WAITING_MOST: u64 = 1 << 21;

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
    calls: u64,
    limit: u64,
}

impl Writer {
    /// Writes into `recorder`, which is new, no more than `limit` calls.
    pub fn new(recorder: Recorder, limit: u64) -> Writer {
        let (entries, waiting) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let thread = {
            let progress = progress.clone();
            std::thread::spawn(move || write(recorder, &waiting, &progress))
        };
        let (programs, files, contexts, calls) = (HashMap::new(), 0, 0, 0);
        Writer { entries, thread, progress, programs, files, contexts, calls, limit }
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

    /// Appends calls up to the limit, and returns those that are written.
    pub(crate) fn push(&mut self, calls: &[Call]) -> usize {
        let room = usize::try_from(self.limit - self.calls).unwrap_or(usize::MAX).min(calls.len());
        let (calls, _) = calls.split_at(room);
        self.calls += room as u64;
        if room > 0 {
            self.send(Entry::Calls(calls.to_vec()));
        }
        room
    }

    /// Completes the file up to here, when what waits is written, with what it lacks.
    pub fn checkpoint(&mut self, gaps: Gaps) {
        self.send(Entry::Checkpoint(gaps));
    }

    /// Whether so many calls wait to be written that no more should be read.
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
    pub fn end(self) -> (Recorder, Result<()>) {
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
