//! Recording what clients ask: connections fill a buffer, and a thread writes it to a trace.
//!
//! A request is recorded when its reply has been written. No client waits for the file: when the buffer is full, requests
//! are lost and counted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_host::BLOCK;
use nigh_host::front::{Disk, lock};
use nigh_output::Destination;
use nigh_policy::{Block, Share};
use nigh_trace::write::{WriteOptions, Writer};
use nigh_trace::{Gaps, Op, Request, Taken};
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::denied::is_denied;
use crate::slow::Slow;

/// Requests in the buffer at most: 12 MiB. Twice as many can have been taken from it and not be written yet.
const BUFFER: usize = 1 << 18;
/// How often the buffer is written.
const TICK: Duration = Duration::from_millis(100);
/// Requests are recorded when they end and written in the order in which they came, as far as they took no longer than this.
const HOLD: Duration = Duration::from_secs(1);
/// How often what was recorded is completed in the file.
const CHECKPOINT: Duration = Duration::from_secs(10);
/// How long the end of a recording is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The requests to record, and the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The trace to write; its name determines the format, such as `.parquet` or `.csv.zst`.
    pub file: PathBuf,
    /// Replace the file if it exists.
    #[serde(default)]
    pub force: bool,
    /// The exports to record; all of them if empty.
    #[serde(default)]
    pub exports: Vec<String>,
    /// Only this share of the blocks, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<f64>,
    /// Stop after this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Stop after this many requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A recording, running or over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingStatus {
    /// The trace.
    pub file: PathBuf,
    /// Whether requests are still recorded. The file has its name when this is false.
    pub running: bool,
    /// Requests in the trace so far; of a sample, runs of sampled blocks.
    pub requests: u64,
    /// Requests that found the buffer full and are not in the trace.
    pub lost: u64,
    /// Since the start, until the end.
    pub seconds: f64,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RecordingEnd>,
    /// Why there is no file, or no more of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordingEnd {
    /// Somebody stopped it.
    Stopped,
    /// Its time was over.
    Time,
    /// It reached its limit of requests.
    Limit,
    /// The server shut down.
    Shutdown,
    /// Its file could not be written.
    Failed,
}

impl RecordingEnd {
    /// In words, after "ended".
    pub fn words(self) -> &'static str {
        match self {
            RecordingEnd::Stopped => "because it was stopped",
            RecordingEnd::Time => "because its time was over",
            RecordingEnd::Limit => "because it reached its limit of requests",
            RecordingEnd::Shutdown => "because the server shut down",
            RecordingEnd::Failed => "because its file could not be written",
        }
    }
}

/// Why a recording cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is one already.
    #[error("{} is being recorded; stop that first (nigh ctl record --stop)", .0.display())]
    Busy(PathBuf),
    /// A file would be replaced.
    #[error("{}: the file exists; add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// The server cannot find the place where the client meant the file to be.
    #[error("{}: expected an absolute path", .0.display())]
    Relative(PathBuf),
    /// The path has characters that change a terminal instead of being shown.
    #[error("{0:?}: the path of a recording has no control characters")]
    Controls(PathBuf),
    /// There is no export of this name.
    #[error("there is no export {0}")]
    NoExport(String),
    /// The share is none.
    #[error("a sample of {0}: expected a rate above 0 and up to 1, such as 0.01 or 1%")]
    Sample(f64),
    /// The trace cannot be written.
    #[error("{words}")]
    Trace {
        /// Why.
        words: String,
        /// Whether the system denied access to the file.
        is_denied: bool,
    },
    /// The server ends.
    #[error("the server is shutting down")]
    Closed,
    /// The system gives no thread.
    #[error("no thread to record: {0}")]
    Thread(#[from] std::io::Error),
    /// Nothing is recorded.
    #[error("nothing is being recorded")]
    Idle,
}

/// The recording of all connections.
#[derive(Default)]
pub struct Recorder {
    /// Whether there is anything to do for a request.
    on: AtomicBool,
    pub(crate) slow: Slow,
    state: Mutex<State>,
    /// The buffer fills, the recording is to stop, or it has.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    run: Option<Run>,
    /// The recording that ended last.
    last: Option<RecordingStatus>,
    /// The server ends: there will be no other.
    closed: bool,
}

struct Run {
    recording: Recording,
    share: Option<Share>,
    /// Numbers of the disks; all of them if empty.
    volumes: HashSet<u32>,
    begun: Instant,
    buffer: Vec<Request>,
    written: u64,
    lost: u64,
    /// It is to end: it was stopped, or the server shuts down.
    stop: Option<RecordingEnd>,
}

impl Run {
    fn status(&self) -> RecordingStatus {
        RecordingStatus {
            file: self.recording.file.clone(),
            running: true,
            requests: self.written + self.buffer.len() as u64,
            lost: self.lost,
            seconds: self.begun.elapsed().as_secs_f64(),
            ended: None,
            error: None,
        }
    }

    /// Why it is over, if it is.
    fn over(&self) -> Option<RecordingEnd> {
        let Recording { seconds, limit, .. } = self.recording;
        if limit.is_some_and(|limit| self.written >= limit) {
            return Some(RecordingEnd::Limit);
        }
        let is_late = seconds.is_some_and(|seconds| self.begun.elapsed().as_secs_f64() >= seconds);
        self.stop.or_else(|| is_late.then_some(RecordingEnd::Time))
    }
}

impl Recorder {
    /// Begins to record the requests to the disks numbered `volumes`, or to all if that is empty. The recording replaces none of the files
    /// `served`.
    pub(crate) fn start(
        self: &Arc<Self>,
        recording: Recording,
        volumes: HashSet<u32>,
        served: &[&Path],
    ) -> Result<(), RecordError> {
        let busy = |state: &State| match &state.run {
            Some(run) => Err(RecordError::Busy(run.recording.file.clone())),
            None if state.closed => Err(RecordError::Closed),
            None => Ok(()),
        };
        busy(&lock(&self.state))?;
        let share = recording.sample.map(|rate| Share::new(rate).ok_or(RecordError::Sample(rate))).transpose()?;
        let file = &recording.file;
        if !file.is_absolute() {
            return Err(RecordError::Relative(file.clone()));
        }
        if file.to_string_lossy().contains(char::is_control) {
            return Err(RecordError::Controls(file.clone()));
        }
        let options = WriteOptions { format: None, block_bytes: BLOCK as u32, taken: Some(Taken::Server) };
        let to = Destination::new(file, recording.force, served).map_err(nigh_trace::Error::from);
        let begun = to.and_then(|to| Writer::record(&to, &options));
        let (writer, left) = begun.map_err(|error| match error {
            nigh_trace::Error::Output(nigh_output::Error::Exists(file)) => RecordError::Exists(file),
            error => RecordError::Trace { words: in_full(&error), is_denied: is_denied(&error) },
        })?;
        if let Some(left) = left {
            tracing::warn!(file = %file.display(), left = %left.display(), "an earlier recording did not end, and is kept");
        }
        // The file may be slow to open; nobody waits for that.
        let mut state = lock(&self.state);
        busy(&state)?;
        let ours = self.clone();
        Builder::new().name("recorder".into()).spawn(move || ours.write(writer))?;
        tracing::info!(file = %file.display(), "recording");
        let (begun, buffer) = (Instant::now(), Vec::new());
        state.run = Some(Run { recording, share, volumes, begun, buffer, written: 0, lost: 0, stop: None });
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the recording and returns what became of it, when the file is complete.
    pub(crate) fn stop(&self) -> Result<RecordingStatus, RecordError> {
        self.stop_within(PATIENCE, RecordingEnd::Stopped)
    }

    fn stop_within(&self, limit: Duration, why: RecordingEnd) -> Result<RecordingStatus, RecordError> {
        let mut state = lock(&self.state);
        state.run.as_mut().ok_or(RecordError::Idle)?.stop.get_or_insert(why);
        self.changed.notify_all();
        let begun = Instant::now();
        while let Some(run) = &state.run {
            let Some(left) = limit.checked_sub(begun.elapsed()) else { return Ok(run.status()) };
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.last.clone().ok_or(RecordError::Idle)
    }

    /// Ends the recording, if there is one, for good. Waits for the file for up to `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        lock(&self.state).closed = true;
        // Its thread reports how it went; without a recording there is nothing to stop.
        let _ = self.stop_within(limit, RecordingEnd::Shutdown);
    }

    /// The recording there is, or the last one.
    pub(crate) fn status(&self) -> Option<RecordingStatus> {
        let state = lock(&self.state);
        state.run.as_ref().map(Run::status).or_else(|| state.last.clone())
    }

    /// A reply was written to the connection of number `client`: records its request, and logs it if it was slow.
    #[inline]
    pub fn record(&self, disk: &Disk, client: u64, asked: &Asked, latency: Duration) {
        if self.on.load(Ordering::Relaxed) {
            self.push(disk, client, asked, latency);
        }
        if self.slow.is_slow(latency) {
            self.slow.note(disk, client, asked, latency);
        }
    }

    /// Whether slow requests are logged, so that it matters when replies are ready.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.slow.is_on()
    }

    fn push(&self, disk: &Disk, client: u64, asked: &Asked, latency: Duration) {
        let Asked { op, offset, length, since, .. } = *asked;
        let mut state = lock(&self.state);
        let Some(run) = &mut state.run else { return };
        let volume = disk.volume().0;
        if !run.volumes.is_empty() && !run.volumes.contains(&volume) {
            return;
        }
        let request = Request {
            time_ns: since.saturating_duration_since(run.begun).as_nanos() as u64,
            offset,
            // Only a trim is longer.
            length: length.try_into().unwrap_or(u32::MAX - (BLOCK as u32 - 1)),
            volume,
            tenant: disk.tenant().0,
            op,
            stream: client,
            latency_ns: latency.as_nanos() as u64,
            content: 0,
        };
        let mut add = |request| match run.buffer.len() < BUFFER {
            true => run.buffer.push(request),
            false => run.lost += 1,
        };
        match run.share {
            Some(share) if matches!(op, Op::Read | Op::Write) => sampled(request, share).for_each(add),
            _ => add(request),
        }
        if run.buffer.len() == BUFFER / 2 {
            self.changed.notify_all();
        }
    }

    /// Writes until the recording ends.
    fn write(&self, mut writer: Writer) {
        let mut pending: Vec<Request> = Vec::new();
        let mut checkpoint = Instant::now();
        let (ended, error) = loop {
            let (over, now_ns) = self.collect(&mut pending);
            pending.sort_by_key(|request| request.time_ns);
            let ripe_ns = now_ns.saturating_sub(HOLD.as_nanos() as u64);
            let held = pending.len().saturating_sub(BUFFER);
            let ripe = if over.is_some() {
                pending.len()
            } else {
                pending.partition_point(|request| request.time_ns < ripe_ns).max(held)
            };
            if let Err(error) = writer.push(&pending[..ripe]) {
                break (RecordingEnd::Failed, Some(error));
            }
            pending.drain(..ripe);
            if checkpoint.elapsed() >= CHECKPOINT {
                checkpoint = Instant::now();
                self.keep_lost(&mut writer);
                if let Err(error) = writer.checkpoint() {
                    break (RecordingEnd::Failed, Some(error));
                }
            }
            if let Some(over) = over {
                self.keep_lost(&mut writer);
                break match writer.finish() {
                    Ok(_) => (over, None),
                    Err(error) => (RecordingEnd::Failed, Some(error)),
                };
            }
        };
        let mut state = lock(&self.state);
        self.on.store(false, Ordering::Release);
        let run = state.run.take().expect("only its thread ends it");
        let status = RecordingStatus {
            running: false,
            requests: run.written,
            ended: Some(ended),
            error: error.map(|error| {
                let file = run.recording.file.display();
                format!("{}; {file}.part has what was written before", in_full(&error))
            }),
            ..run.status()
        };
        let RecordingStatus { file, requests, lost, error, .. } = &status;
        match error {
            Some(error) => tracing::error!("the recording ended: {error}"),
            None => tracing::info!(file = %file.display(), requests, lost, "the recording ended {}", ended.words()),
        }
        state.last = Some(status);
        self.changed.notify_all();
    }

    /// Has the file keep how many requests were lost, in formats that can.
    fn keep_lost(&self, writer: &mut Writer) {
        let lost = lock(&self.state).run.as_ref().map_or(0, |run| run.lost);
        writer.set_gaps(&Gaps { lost: Some(lost), ..Gaps::default() });
    }

    /// Waits for requests and takes them; why they are the last, if they are, and the time of the recording in nanoseconds.
    fn collect(&self, pending: &mut Vec<Request>) -> (Option<RecordingEnd>, u64) {
        let mut state = lock(&self.state);
        let begun = Instant::now();
        loop {
            let run = state.run.as_mut().expect("only its thread ends it");
            let left = TICK.checked_sub(begun.elapsed());
            if run.over().is_some() || run.buffer.len() >= BUFFER / 2 || left.is_none() {
                if let Some(limit) = run.recording.limit {
                    run.buffer.truncate(usize::try_from(limit - run.written).unwrap_or(usize::MAX));
                }
                run.written += run.buffer.len() as u64;
                pending.append(&mut run.buffer);
                let over = run.over();
                if over.is_some() {
                    self.on.store(false, Ordering::Release);
                }
                return (over, run.begun.elapsed().as_nanos() as u64);
            }
            let left = left.unwrap_or_default();
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An error and what caused it.
fn in_full(error: &nigh_trace::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The parts of `request` that are in the sample: runs of blocks.
fn sampled(request: Request, share: Share) -> impl Iterator<Item = Request> {
    let end = request.offset + u64::from(request.length);
    let mut next = request.offset / BLOCK;
    std::iter::from_fn(move || {
        let takes = |index: u64| share.takes(Block { volume: request.volume, index });
        let last = end.div_ceil(BLOCK);
        let first = (next..last).find(|&index| takes(index))?;
        let behind = (first..last).find(|&index| !takes(index)).unwrap_or(last);
        next = behind;
        let (offset, end) = ((first * BLOCK).max(request.offset), (behind * BLOCK).min(end));
        Some(Request { offset, length: (end - offset) as u32, ..request })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_all_of_a_block_or_none() {
        let share = Share::new(0.3).unwrap();
        let (mut inside, mut outside) = (0, 0);
        for at in 0..400 {
            let request = Request { offset: at * 3000, length: 50_000, volume: 2, ..Request::default() };
            let parts: Vec<Request> = sampled(request, share).collect();
            let end = request.offset + 50_000;
            for index in request.offset / BLOCK..end.div_ceil(BLOCK) {
                let (from, to) = ((index * BLOCK).max(request.offset), ((index + 1) * BLOCK).min(end));
                let within = |part: &&Request| part.offset <= from && to <= part.offset + u64::from(part.length);
                let count = parts.iter().filter(within).count();
                let taken = share.takes(Block { volume: 2, index });
                assert_eq!(count, usize::from(taken), "block {index} of request {at}");
                if taken { inside += 1 } else { outside += 1 }
            }
            assert!(parts.windows(2).all(|pair| pair[0].offset + u64::from(pair[0].length) < pair[1].offset));
        }
        assert!(inside > 1000 && outside > 2500, "{inside} and {outside}");
    }
}
