//! The thread of an object device: stages changes, and has requests to the store under way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use nigh_engine::{Action, Fault};
use nigh_objects::{Fetch, Manifest, Object, Upload};
use object_store::UpdateVersion;

use super::desk::Desk;
use super::owner::Owner;
use super::store::{DELETES, Failure, Store};
use crate::device::Job;

/// The most reads under way.
const READS: usize = 32;
/// The most uploads under way. Each takes the memory of a part.
const UPLOADS: usize = 8;
/// The most objects that are deleted at a time.
const DELETED: usize = 64;
/// The most objects that wait to be deleted. The next writer finds those beyond it.
const GARBAGE: usize = 1 << 16;
/// The pause of uploads that no flush waits for after one failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long deletions may take when the device is closed.
const ENDING: Duration = Duration::from_secs(5);
/// How often a read looks where its bytes are: objects may be replaced and deleted meanwhile.
const LOOKS: usize = 3;

/// The most requests to the store under way: those above, deletions, and one each for a manifest and leftovers.
pub(super) const REQUESTS: usize = READS + UPLOADS + DELETES + 2;

/// A request to the store is over.
enum Done {
    /// Whether the store was asked.
    Read(Job, Result<bool, Failure>),
    /// Whether the part is zeros, and needs no object.
    Uploaded(Upload, Result<bool, Failure>),
    Stored(Manifest, Result<UpdateVersion, Failure>),
    Deleted(Result<(), Failure>),
    /// The objects that earlier writers left, and whether there may be more.
    Listed(Result<(Vec<Object>, bool), Failure>),
}

/// Kinds of requests that a store may accept while it refuses others: credentials can be for reading alone.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Read, Kind::Write];

    fn name(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
        }
    }
}

type Task = Pin<Box<dyn Future<Output = Done>>>;

pub(super) struct Worker {
    desk: Arc<Desk>,
    store: Arc<Store>,
    /// The disk and where it is, for the log.
    name: String,
    target: String,
    /// Of the stored manifest; none if the disk is not written.
    version: Option<UpdateVersion>,
    tasks: FuturesUnordered<Task>,
    reads: VecDeque<Job>,
    reading: usize,
    /// Writes, zeroes and discards that wait for room.
    changes: VecDeque<Job>,
    /// Flushes, each with the mark of what it covers, in order.
    flushes: VecDeque<(u64, Job)>,
    uploads: usize,
    /// A manifest is being stored: for these flushes.
    storing: Option<Vec<Job>>,
    garbage: VecDeque<Object>,
    /// The objects that are being deleted.
    deleting: Vec<Object>,
    /// When uploads that no flush waits for may be tried again.
    resumes: Option<Instant>,
    /// Requests of these kinds fail at present: the log has the reason.
    failing: [bool; Kind::ALL.len()],
    /// The disk is only read, and was written since it was opened: the log notes that.
    is_outdated: bool,
}

impl Worker {
    pub(super) fn new(
        desk: Arc<Desk>,
        store: Arc<Store>,
        name: String,
        target: String,
        version: Option<UpdateVersion>,
    ) -> Worker {
        Worker {
            desk,
            store,
            name,
            target,
            version,
            tasks: FuturesUnordered::new(),
            reads: VecDeque::new(),
            reading: 0,
            changes: VecDeque::new(),
            flushes: VecDeque::new(),
            uploads: 0,
            storing: None,
            garbage: VecDeque::new(),
            deleting: Vec::new(),
            resumes: None,
            failing: Default::default(),
            is_outdated: false,
        }
    }

    /// Until the device is dropped.
    pub(super) async fn run(mut self) {
        if self.version.is_some() {
            self.list();
        }
        loop {
            let desk = self.desk.clone();
            let (jobs, is_closing) = desk.take();
            if is_closing {
                return self.end().await;
            }
            jobs.into_iter().for_each(|job| self.take(job));
            self.go_on();
            let pause =
                self.resumes.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = desk.wait() => {}
                Some(done) = self.tasks.next() => self.complete(done),
                () = tokio::time::sleep(pause) => self.resumes = None,
            }
        }
    }

    fn take(&mut self, job: Job) {
        if job.range().end > self.desk.bytes() {
            return self.desk.finish(job, Err(Fault(libc::EIO)));
        }
        match job.operation.action {
            Action::Read(_) => self.reads.push_back(job),
            _ if self.version.is_none() => self.desk.finish(job, Err(Fault(libc::EROFS))),
            _ if self.desk.is_taken_over() => self.desk.finish(job, Err(Fault(libc::EIO))),
            Action::Write(_) | Action::Discard | Action::Zeroes { .. } => self.changes.push_back(job),
            Action::Flush => {
                let mark = self.desk.disk().mark();
                self.flushes.push_back((mark, job));
            }
        }
    }

    /// Starts all work that can start now.
    fn go_on(&mut self) {
        while self.reading < READS
            && let Some(job) = self.reads.pop_front()
        {
            self.reading += 1;
            self.tasks.push(Box::pin(read(self.desk.clone(), self.store.clone(), job)));
        }
        if self.version.is_none() || self.desk.is_taken_over() {
            return;
        }
        self.stage();
        self.upload();
        self.store_manifest();
        if self.deleting.is_empty() && !self.garbage.is_empty() {
            let (store, objects) = (self.store.clone(), self.next_garbage());
            self.deleting = objects.clone();
            self.tasks.push(Box::pin(async move { Done::Deleted(store.delete(&objects).await) }));
        }
    }

    fn next_garbage(&mut self) -> Vec<Object> {
        let count = self.garbage.len().min(DELETED);
        self.garbage.drain(..count).collect()
    }

    fn stage(&mut self) {
        let desk = self.desk.clone();
        while !desk.disk().is_full()
            && let Some(job) = self.changes.pop_front()
        {
            let range = job.range();
            let mut disk = desk.disk();
            match &job.operation.action {
                Action::Write(frames) => {
                    let (mut at, mut left) = (range.start, job.bytes as usize);
                    for slice in frames.slices() {
                        let slice = &slice[..slice.len().min(left)];
                        disk.write(at, slice);
                        at += slice.len() as u64;
                        left -= slice.len();
                    }
                }
                Action::Discard => disk.zero(range, true),
                _ => disk.zero(range, false),
            }
            desk.finish(job, Ok(()));
        }
    }

    fn upload(&mut self) {
        let desk = self.desk.clone();
        let mut disk = desk.disk();
        while self.uploads < UPLOADS {
            let mark = match self.flushes.back() {
                Some((mark, _)) => *mark,
                None if disk.is_half_full() && self.resumes.is_none() => u64::MAX,
                None => return,
            };
            let upload = disk.upload(mark);
            // A flush may wait for parts that are on their way, and changes for room beside it.
            let upload = match upload {
                None if disk.is_full() => disk.upload(u64::MAX),
                upload => upload,
            };
            let Some(upload) = upload else {
                if disk.is_exhausted() {
                    drop(disk);
                    let reason = "it has written all objects that one opening can have: open it again".to_owned();
                    self.note_taken_over(&Failure::TakenOver(reason));
                    self.fail();
                }
                return;
            };
            self.uploads += 1;
            self.tasks.push(Box::pin(put(self.desk.clone(), self.store.clone(), upload)));
        }
    }

    fn store_manifest(&mut self) {
        if self.storing.is_some() {
            return;
        }
        let desk = self.desk.clone();
        let mut disk = desk.disk();
        let mut covered = Vec::new();
        while self.flushes.front().is_some_and(|(mark, _)| disk.is_uploaded(*mark)) {
            covered.extend(self.flushes.pop_front().map(|(_, job)| job));
        }
        if disk.is_stored() {
            return covered.into_iter().for_each(|job| desk.finish(job, Ok(())));
        }
        if covered.is_empty() && !(disk.wants_manifest() && self.resumes.is_none()) {
            return;
        }
        let (manifest, store) = (disk.manifest(), self.store.clone());
        let version = self.version.clone().expect("the disk is written");
        self.storing = Some(covered);
        self.tasks.push(Box::pin(async move {
            let stored = store.replace(version, &manifest).await;
            Done::Stored(manifest, stored)
        }));
    }

    /// Looks for what earlier writers left.
    fn list(&mut self) {
        let (store, manifest) = (self.store.clone(), self.desk.disk().stored().clone());
        self.tasks.push(Box::pin(async move { Done::Listed(store.leftovers(&manifest, GARBAGE).await) }));
    }

    fn complete(&mut self, done: Done) {
        match done {
            Done::Read(job, result) => {
                self.reading -= 1;
                if !matches!(result, Ok(false)) {
                    self.note(Kind::Read, &result);
                }
                self.desk.finish(job, result.map(drop).map_err(|_| Fault(libc::EIO)));
            }
            Done::Uploaded(upload, result) => {
                self.uploads -= 1;
                match result {
                    Ok(is_zero) => {
                        if !is_zero {
                            self.note(Kind::Write, &Ok(()));
                        }
                        self.desk.disk().uploaded(&upload, is_zero);
                    }
                    Err(failure) => {
                        self.note_taken_over(&failure);
                        let was_needed = self.desk.disk().upload_failed(&upload);
                        if was_needed {
                            self.note::<()>(Kind::Write, &Err(failure));
                            self.fail();
                        }
                    }
                }
            }
            Done::Stored(manifest, result) => {
                self.note(Kind::Write, &result);
                let flushes = self.storing.take().expect("a manifest was being stored");
                let fault = result.as_ref().map(drop).map_err(|_| Fault(libc::EIO));
                match result {
                    Ok(version) => {
                        self.version = Some(version);
                        let gone = self.desk.disk().store(manifest);
                        self.discard(gone);
                    }
                    Err(failure) => {
                        self.desk.disk().store_failed();
                        self.note_taken_over(&failure);
                        self.fail();
                    }
                }
                flushes.into_iter().for_each(|job| self.desk.finish(job, fault));
            }
            Done::Deleted(result) => {
                self.deleting.clear();
                if let Err(failure) = result {
                    let (disk, target, reason) = (&self.name, &self.target, failure.reason());
                    tracing::warn!(disk, target, reason, "objects are left that the next start deletes");
                }
            }
            Done::Listed(Ok((objects, is_more))) => {
                if !objects.is_empty() {
                    let (disk, target, count) = (&self.name, &self.target, objects.len());
                    tracing::info!(disk, target, count, is_more, "deleting objects that an earlier writer left");
                }
                self.discard(objects);
            }
            Done::Listed(Err(failure)) => {
                let (disk, target, reason) = (&self.name, &self.target, failure.reason());
                tracing::warn!(disk, target, reason, "cannot list objects that an earlier writer may have left");
            }
        }
    }

    fn discard(&mut self, objects: Vec<Object>) {
        let room = GARBAGE - self.garbage.len();
        self.garbage.extend(objects.into_iter().take(room));
    }

    /// If somebody else writes the disk now, it takes no writes any more.
    fn note_taken_over(&self, failure: &Failure) {
        if let Failure::TakenOver(reason) = failure
            && !self.desk.is_taken_over()
        {
            self.desk.take_over();
            let (disk, target) = (&self.name, &self.target);
            tracing::error!(disk, target, reason, "the disk is taken over: it takes no writes any more");
        }
    }

    /// Waiting requests fail, and uploads pause, except those of a later flush.
    fn fail(&mut self) {
        self.resumes = Some(Instant::now() + PAUSE);
        let flushes = self.flushes.drain(..).map(|(_, job)| job);
        flushes.chain(self.changes.drain(..)).for_each(|job| self.desk.finish(job, Err(Fault(libc::EIO))));
    }

    /// Logs the beginning and the end of failures of a kind of requests.
    fn note<T>(&mut self, kind: Kind, result: &Result<T, Failure>) {
        let (disk, target, requests) = (&self.name, &self.target, kind.name());
        let was_failing = self.failing[kind as usize];
        match result {
            // That is logged where it is found.
            Err(Failure::TakenOver(_)) => return,
            Err(Failure::Missing(reason)) if self.version.is_none() => {
                if !std::mem::replace(&mut self.is_outdated, true) {
                    let what = "the disk was written after it was opened for reading: reads of those parts fail until it is opened again";
                    tracing::error!(disk, target, reason, "{what}");
                }
                return;
            }
            Ok(_) if was_failing => tracing::info!(disk, target, requests, "the object store answers again"),
            Err(failure) if !was_failing => {
                tracing::error!(disk, target, requests, reason = failure.reason(), "the object store fails");
            }
            _ => {}
        }
        self.failing[kind as usize] = result.is_err();
        match result {
            Err(failure) => {
                self.desk.set_trouble(Some(format!("{requests} at the object store fail: {}", failure.reason())));
            }
            Ok(_) if !self.failing.contains(&true) => self.desk.set_trouble(None),
            Ok(_) => {}
        }
    }

    /// Deletes what is left to delete, if that does not take long. Everything else that is under way is dropped.
    async fn end(mut self) {
        self.tasks.clear();
        if self.version.is_some() && !self.desk.is_taken_over() {
            let closed = Owner::this(self.desk.disk().stored().writer).closed();
            if !matches!(tokio::time::timeout(ENDING, self.store.note_owner(&closed)).await, Ok(Ok(()))) {
                let (disk, target) = (&self.name, &self.target);
                tracing::info!(
                    disk,
                    target,
                    "cannot note that the disk is closed: a start on another machine waits for a minute"
                );
            }
        }
        self.garbage.extend(std::mem::take(&mut self.deleting));
        let delete = async {
            while !self.garbage.is_empty() {
                let objects = self.next_garbage();
                self.store.delete(&objects).await?;
            }
            Ok::<(), Failure>(())
        };
        if !matches!(tokio::time::timeout(ENDING, delete).await, Ok(Ok(()))) {
            tracing::info!(disk = self.name, target = self.target, "objects are left that the next start deletes");
        }
    }
}

/// Reads what is not staged from objects, one request for each of them.
async fn read(desk: Arc<Desk>, store: Arc<Store>, mut job: Job) -> Done {
    let mut bytes = vec![0; job.bytes as usize];
    let mut look = 1;
    let result = loop {
        let fetches = desk.disk().read(job.operation.offset, &mut bytes);
        let of_each = fetches.chunk_by(|one, next| one.object == next.object);
        match try_join_all(of_each.map(|fetches| fetch(&store, fetches))).await {
            Ok(found) => {
                for (Fetch { range, at, .. }, from) in found.into_iter().flatten() {
                    bytes[at..at + (range.end - range.start) as usize].copy_from_slice(&from);
                }
                break Ok(!fetches.is_empty());
            }
            Err(Failure::Missing(_)) if desk.is_written() && look < LOOKS => look += 1,
            Err(failure) => break Err(failure),
        }
    };
    if result.is_ok()
        && let Action::Read(frames) = &mut job.operation.action
    {
        let mut rest = &bytes[..];
        for slice in frames.slices_mut() {
            let (now, later) = rest.split_at(slice.len().min(rest.len()));
            slice[..now.len()].copy_from_slice(now);
            rest = later;
        }
    }
    Done::Read(job, result)
}

/// Bytes of one object, each range with its bytes.
async fn fetch(store: &Store, fetches: &[Fetch]) -> Result<Vec<(Fetch, Bytes)>, Failure> {
    let (Some(first), Some(last)) = (fetches.first(), fetches.last()) else { return Ok(Vec::new()) };
    let start = first.range.start;
    let bytes = store.get(first.object, start..last.range.end).await?;
    let cut = |fetch: &Fetch| bytes.slice((fetch.range.start - start) as usize..(fetch.range.end - start) as usize);
    Ok(fetches.iter().map(|fetch| (fetch.clone(), cut(fetch))).collect())
}

/// Makes an object of a part: the bytes that did not change, and over them those that did.
async fn put(desk: Arc<Desk>, store: Arc<Store>, upload: Upload) -> Done {
    let made = async {
        let mut bytes = match upload.base {
            Some(base) => Vec::from(store.get(base, 0..upload.bytes as u64).await?),
            None => vec![0; upload.bytes],
        };
        let is_zero = desk.disk().merge(&upload, &mut bytes);
        if !is_zero {
            store.put(upload.object, bytes.into()).await?;
        }
        Ok(is_zero)
    };
    let mut result = made.await;
    if let Err(Failure::Missing(_)) = &result {
        // A later writer deletes what it replaces.
        let own = desk.disk().stored().clone();
        if let Ok((found, _)) = store.load().await
            && !found.has_writer_of(&own)
        {
            result = Err(store.taken_over(&found, &own).await);
        }
    }
    Done::Uploaded(upload, result)
}
