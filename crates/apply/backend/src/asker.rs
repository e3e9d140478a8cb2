//! Questions about a file, answered by a thread of its own: if the file does not respond, only those who asked wait. The
//! thread also notices that others changed the file.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::device::{Extent, Geometry};
use crate::open::OpenFile;
use crate::stamp::Stamp;

/// How long the size and the stamp are waited for.
const GLANCE: Duration = Duration::from_secs(1);
/// How long extents are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the file is looked at unasked.
const WATCH: Duration = Duration::from_secs(1);

type Question = Box<dyn FnOnce(&OpenFile) + Send>;

/// The thread, and the way to it. Dropping it waits for the thread.
pub(crate) struct Asker {
    /// `None` once it is being dropped.
    questions: Option<Sender<Question>>,
    /// An answer did not come in time: until it does, nothing else is asked.
    silent: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Nothing is asked of it here.
    file: Arc<OpenFile>,
}

impl Asker {
    pub(crate) fn new(file: Arc<OpenFile>) -> io::Result<Asker> {
        let (questions, queue) = channel::<Question>();
        let silent = Arc::new(AtomicBool::new(false));
        let (heard, asked) = (silent.clone(), file.clone());
        let answer = move || {
            let file = asked;
            let mut watched = Instant::now();
            loop {
                match queue.recv_timeout(WATCH.saturating_sub(watched.elapsed())) {
                    Ok(question) => {
                        question(&file);
                        heard.store(false, Ordering::Release);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                // However many questions there are.
                if watched.elapsed() >= WATCH {
                    file.watch();
                    watched = Instant::now();
                }
            }
        };
        let thread = Builder::new().name("nigh-ask".to_owned()).spawn(answer)?;
        Ok(Asker { questions: Some(questions), silent, thread: Some(thread), file })
    }

    fn send(&self, question: impl FnOnce(&OpenFile) + Send + 'static) {
        let questions = self.questions.as_ref().expect("it is not being dropped");
        questions.send(Box::new(question)).expect("the thread runs until it is dropped");
    }

    /// The answer, if it comes within `limit`.
    fn ask<R: Send + 'static>(
        &self,
        limit: Duration,
        question: impl FnOnce(&OpenFile) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not respond");
        if self.silent.load(Ordering::Acquire) {
            return Err(late());
        }
        let (sender, answer) = sync_channel(1);
        // Nobody waits any more if it is late.
        self.send(move |file| _ = sender.send(question(file)));
        match answer.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(_) => {
                self.silent.store(true, Ordering::Release);
                // It may have come in between, and nothing would clear the mark.
                answer
                    .try_recv()
                    .unwrap_or_else(|_| Err(late()))
                    .inspect(|_| self.silent.store(false, Ordering::Release))
            }
        }
    }

    /// Asks for the extent at `offset`; the answer comes by what is returned.
    pub(crate) fn look(&self, offset: u64) -> Receiver<io::Result<Extent>> {
        let (sender, answer) = sync_channel(1);
        // The device may be gone before that.
        self.send(move |file| _ = sender.send(file.extent(offset)));
        answer
    }
}

impl Geometry for Asker {
    fn size(&self) -> io::Result<u64> {
        self.ask(GLANCE, OpenFile::look_at_size)
    }

    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        self.ask(PATIENCE, move |file| file.extents(range, most))
    }

    fn trouble(&self) -> Option<String> {
        if self.silent.load(Ordering::Acquire) {
            return Some("it does not respond".to_owned());
        }
        self.file.is_deleted().then(|| "the file was deleted or replaced".to_owned())
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.ask(GLANCE, OpenFile::stamp)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has printed that.
            let _ = thread.join();
        }
    }
}
