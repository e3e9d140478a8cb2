//! One trace against policies and sizes: what is to be computed, its key, and the computation.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use nigh_sim::replay::Watch;
use nigh_sim::rows::Plan;
use nigh_sim::sizes::in_blocks;
use nigh_sim::{Loader, Options, ReadError, References, TraceSummary};
use nigh_trace::{Opened, ReadOptions};
use serde::Serialize;
use twox_hash::XxHash3_128;

use crate::content::is_hash;
use crate::keys::Keys;
use crate::list::is_uri;
use crate::settings::{self, Texts};
use crate::{About, Content, Error, Settings, answer};

/// The version of the rows. It is raised when the same job gives other figures or columns than before: all keys change.
pub const RESULTS: u32 = 1;

/// One trace against policies and sizes.
#[derive(Clone, Debug)]
pub struct Job {
    /// The path or URI of the trace.
    pub trace: String,
    /// The trace in rows: the end of its path, as much of it as distinguishes it from the other traces of the sweep.
    pub name: String,
    /// The content that the trace must have, if it is known.
    pub content: Option<Content>,
    /// How it is read and replayed.
    pub settings: Settings,
}

/// A job as JSON.
#[derive(Serialize)]
struct Written<'a> {
    trace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(flatten)]
    settings: &'a Texts,
}

/// Input of the hash that is a job's key: all that its rows depend on. The place of the trace is not part of it.
#[derive(Serialize)]
struct Keyed<'a> {
    results: u32,
    name: &'a str,
    content: String,
    #[serde(flatten)]
    settings: &'a Texts,
}

/// The identity of a job's results: 128 bits in hexadecimal. The same job has the same key on every machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The key that [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Key> {
        is_hash(text).then(|| Key(text.to_owned()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Job {
    /// The job in JSON: the settings with `trace`, and perhaps `name` and `content`.
    pub fn parse(text: &str) -> Result<Job, Error> {
        let mut keys = Keys::json(text)?;
        keys.check(&["trace", "name", "content"].into_iter().chain(settings::keys()).collect::<Vec<_>>())?;
        let trace = keys.text("trace")?.ok_or_else(|| keys.missing("trace"))?;
        let name = keys.text("name")?.unwrap_or_else(|| trace.rsplit('/').next().unwrap_or(&trace).to_owned());
        let content = keys.text("content")?;
        let parse =
            |text: String| Content::parse(&text).ok_or_else(|| keys.wrong("content", text, "expected LENGTH-HASH"));
        let content = content.map(parse).transpose()?;
        Ok(Job { trace, name, content, settings: Settings::take(&mut keys)? })
    }

    /// The job in JSON.
    pub fn to_json(&self) -> String {
        let content = self.content.as_ref().map(ToString::to_string);
        let written = Written { trace: &self.trace, name: &self.name, content, settings: &self.settings.texts };
        serde_json::to_string(&written).expect("text and numbers are JSON")
    }

    /// Input of the key's hash, in JSON: the same for the same job.
    fn keyed(&self, content: &Content) -> String {
        let keyed =
            Keyed { results: RESULTS, name: &self.name, content: content.to_string(), settings: &self.settings.texts };
        serde_json::to_string(&keyed).expect("text and numbers are JSON")
    }

    /// The key with a trace of this content.
    pub fn key(&self, content: &Content) -> Key {
        Key(format!("{:032x}", XxHash3_128::oneshot(self.keyed(content).as_bytes())))
    }

    /// The content of the trace, which is a file.
    pub fn read_content(&self) -> Result<Content, Error> {
        if is_uri(&self.trace) {
            return Err(Error::Uri(self.trace.clone()));
        }
        let path = Path::new(&self.trace);
        Content::of_file(path).map_err(|source| Error::Io { path: path.to_owned(), source })
    }

    /// Reads the trace, which is a file, and replays it in `threads` threads.
    pub fn run(&self, threads: usize, progress: &AtomicU64, stop: &AtomicBool) -> Result<(Key, RecordBatch), Error> {
        let content = self.read_content()?;
        self.run_on(&content, threads, progress, stop, |options| Ok(nigh_trace::open(Path::new(&self.trace), options)?))
    }

    /// Replays a trace of this content, which `open` opens, in `threads` threads. Rows and key depend on the job and the content
    /// alone. `progress` counts requests read and references replayed.
    pub fn run_on(
        &self,
        content: &Content,
        threads: usize,
        progress: &AtomicU64,
        stop: &AtomicBool,
        open: impl FnOnce(&ReadOptions) -> Result<Opened, Error>,
    ) -> Result<(Key, RecordBatch), Error> {
        if self.content.as_ref().is_some_and(|expected| expected != content) {
            return Err(Error::OtherContent(self.trace.clone()));
        }
        let mut opened = open(&self.settings.read)?;
        let block_bytes = opened.block_bytes;
        if !block_bytes.is_power_of_two() {
            let problem = format!("its blocks have {block_bytes} bytes, which is no power of two: set the block size");
            return Err(self.impossible(problem));
        }
        let references = self.load(&mut opened, progress, stop)?;
        let distinct = references.distinct_in_trace();
        let sizes = in_blocks(&self.settings.sizes, distinct, block_bytes).map_err(|error| self.impossible(error))?;
        let warmup = self.settings.warmup.references(references.ids.len());
        let warmup = warmup.map_err(|error| self.impossible(format!("warmup {error}")))?;
        let specs = self.settings.specs.clone();
        let plan = Plan { specs, sizes, exact_lru: false, gauges: None, shards: 1, threads };
        let watch = Watch { warmup, progress: Some(progress), stop: Some(stop), gauges: 0 };
        let replayed = plan.replay(&references, watch).map_err(|error| self.impossible(error))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let mut notes: Vec<String> = opened.requests.notes().iter().map(ToString::to_string).collect();
        notes.extend(references.note_on_sample());
        let trace = TraceSummary::new(&self.name, &opened.format.to_string(), &references);
        let about = About { job: self.keyed(content), trace, notes };
        let key = self.key(content);
        let table = answer::of_job(&about, &key, &replayed.rows);
        Ok((key, table))
    }

    fn load(&self, opened: &mut Opened, progress: &AtomicU64, stop: &AtomicBool) -> Result<References, Error> {
        let Settings { ops, collapse, sample, .. } = self.settings;
        let requests_most = self.settings.read.limit.unwrap_or(u64::MAX);
        let options = Options { block_bytes: opened.block_bytes, ops, collapse, sample, requests_most };
        let mut loader = Loader::new(options);
        let read = loader.read(opened.requests.as_mut(), |requests, _| {
            progress.fetch_add(requests as u64, Ordering::Relaxed);
            !stop.load(Ordering::Relaxed)
        });
        read.map_err(|error| match error {
            ReadError::Trace(error) => Error::Trace(error),
            error => self.impossible(error),
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let references = loader.finish();
        if references.ids.is_empty() {
            let sampled = sample.is_some();
            let what = if sampled { "refers to a block of the sample" } else { "reads or writes what ops asks for" };
            return Err(Error::Nothing { name: self.name.clone(), requests: references.totals.requests, what });
        }
        Ok(references)
    }

    fn impossible(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Replay { name: self.name.clone(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        Job::parse(text).unwrap()
    }

    #[test]
    fn a_key_depends_on_settings_name_and_content_and_not_on_the_place() {
        let content = Content::of_parts(3, [b"abc"]);
        let here = job(r#"{"trace":"/a/x.csv","policies":["lru"],"sizes":["5%"]}"#);
        let key = here.key(&content);
        assert_eq!(key, job(r#"{"trace":"s3://b/x.csv","policies":["lru"],"sizes":["5%"]}"#).key(&content));
        assert_eq!(Key::parse(&key.to_string()), Some(key.clone()));
        for other in [
            r#"{"trace":"/a/y.csv","policies":["lru"],"sizes":["5%"]}"#,
            r#"{"trace":"/a/x.csv","policies":["lirs"],"sizes":["5%"]}"#,
            r#"{"trace":"/a/x.csv","policies":["lru"],"sizes":["6%"]}"#,
            r#"{"trace":"/a/x.csv","policies":["lru"],"sizes":["5%"],"warmup":"1%"}"#,
        ] {
            assert_ne!(job(other).key(&content), key, "{other}");
        }
        assert_ne!(here.key(&Content::of_parts(3, [b"abd"])), key);
    }

    /// A change here means that results of earlier versions are computed again: is that intended?
    #[test]
    fn keys_are_what_they_were() {
        let content = Content::of_parts(3, [b"abc"]);
        let job = job(r#"{"trace":"/a/x.csv","policies":["lru","lirs:hir=5%"],"sizes":["5%","64K..1M"],"sample":0.1}"#);
        assert_eq!(
            job.keyed(&content),
            r#"{"results":1,"name":"x.csv","content":"3-06b05ab6733a618578af5f94892f3950","policies":["lru","lirs:hir=5%"],"sizes":["5%","64K..1M"],"sample":0.1}"#
        );
        assert_eq!(job.key(&content).to_string(), "e29b8aec200f10878b3e4c8efdf83ae4");
    }

    #[test]
    fn json_there_and_back() {
        let content = Content::of_parts(3, [b"abc"]);
        let mut job = job(r#"{"trace":"/a/x.csv","name":"a/x.csv","policies":["min"],"sizes":["5%"],"ops":"reads"}"#);
        job.content = Some(content.clone());
        let back = Job::parse(&job.to_json()).unwrap();
        assert_eq!((back.name.as_str(), back.content.as_ref()), ("a/x.csv", Some(&content)));
        assert_eq!(back.key(&content), job.key(&content));
        assert!(Job::parse(r#"{"trac":"x"}"#).unwrap_err().to_string().contains("Did you mean 'trace'?"));
    }
}
