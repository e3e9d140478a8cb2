//! `nigh trace cached`: what the page cache holds of files now, beside what a recording reads of them.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nigh_record::{Cached, Pages, Way, page_bytes};
use nigh_trace::format::parquet::ParquetReader;
use nigh_trace::{Op, Requests};
use serde::Serialize;

use crate::output;
use crate::results::{counted, json};
use crate::size::human_bytes;
use crate::table::Table;

/// The version of the JSON that [`Found`] becomes.
const SCHEMA: u32 = 1;

/// Results of all files.
#[derive(Serialize)]
struct Found {
    schema: u32,
    page_bytes: u64,
    /// Whether the kernel reports dirty and evicted pages.
    has_evicted: bool,
    total: Figures,
    files_total: usize,
    /// Those with the most cached pages first, and of these those of which most was evicted.
    files: Vec<File>,
    /// Files of which nothing is known, with the reason.
    failed: Vec<Failed>,
}

#[derive(Serialize)]
struct File {
    file: String,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Failed {
    file: String,
    reason: String,
}

/// In bytes of whole pages, but for the length.
#[derive(Clone, Copy, Default, Serialize)]
struct Figures {
    bytes: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    evicted_bytes: u64,
    recently_evicted_bytes: u64,
    /// Beside a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<Read>,
}

/// Pages that the recording reads, in bytes.
#[derive(Clone, Copy, Default, Serialize)]
struct Read {
    /// Each page once.
    distinct_bytes: u64,
    /// Of these, those in the page cache: reads of them need no disk.
    cached_bytes: u64,
    /// Of the distinct ones, those that were recently evicted: with a little more memory, they would be cached.
    recently_evicted_bytes: u64,
    /// Of the distinct ones, those that the recording reads more than once.
    again_bytes: u64,
    /// Of these, those in the page cache.
    again_cached_bytes: u64,
}

impl Figures {
    fn new(bytes: u64, pages: Pages, page: u64) -> Figures {
        Figures {
            bytes,
            cached_bytes: pages.cached * page,
            dirty_bytes: pages.dirty * page,
            evicted_bytes: pages.evicted * page,
            recently_evicted_bytes: pages.recently_evicted * page,
            recording: None,
        }
    }

    fn add(&mut self, other: &Figures) {
        self.bytes += other.bytes;
        self.cached_bytes += other.cached_bytes;
        self.dirty_bytes += other.dirty_bytes;
        self.evicted_bytes += other.evicted_bytes;
        self.recently_evicted_bytes += other.recently_evicted_bytes;
        if let Some(read) = &other.recording {
            let own = self.recording.get_or_insert_default();
            own.distinct_bytes += read.distinct_bytes;
            own.cached_bytes += read.cached_bytes;
            own.recently_evicted_bytes += read.recently_evicted_bytes;
            own.again_bytes += read.again_bytes;
            own.again_cached_bytes += read.again_cached_bytes;
        }
    }
}

/// Pages that a recording reads of a file, with how often; calls for parts of a page one after the other count once.
type Reads = HashMap<u64, u32>;

pub(super) fn run(files: &[PathBuf], with: Option<&Path>, top: u64, is_json: bool) -> anyhow::Result<()> {
    let page = page_bytes();
    let reads = with.map(|path| read_by(path, page)).transpose()?;
    let mut paths = Vec::new();
    for path in files {
        below(path, &mut paths)?;
    }
    if let (true, Some(reads)) = (files.is_empty(), &reads) {
        paths.extend(reads.keys().cloned());
        paths.sort_unstable();
    }
    paths.dedup();
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let mut has_evicted = true;
    for path in &paths {
        let own = reads.as_ref().map(|reads| reads.get(path).or_else(|| reads.get(&fs::canonicalize(path).ok()?)));
        match figures(path, own, page) {
            Ok((figures, way)) => {
                has_evicted &= way == Way::Cachestat;
                found.push(File { file: path.display().to_string(), figures });
            }
            Err(error) => failed.push(Failed { file: path.display().to_string(), reason: error.to_string() }),
        }
    }
    if let (true, [Failed { file, reason }, ..]) = (found.is_empty(), &failed[..]) {
        bail!("{file}: {reason}");
    }
    ensure!(!found.is_empty(), "there are no files");
    let mut total = Figures::default();
    found.iter().for_each(|file| total.add(&file.figures));
    let order = |file: &File| (file.figures.cached_bytes, file.figures.evicted_bytes);
    found.sort_by(|one, other| order(other).cmp(&order(one)).then(one.file.cmp(&other.file)));
    let files_total = found.len();
    found.truncate(usize::try_from(top)?);
    let found = Found { schema: SCHEMA, page_bytes: page, has_evicted, total, files_total, files: found, failed };
    output::print(&if is_json { json(&found)? } else { found.describe().into_bytes() })
}

/// `path`, or the regular files below it; links are not followed.
fn below(path: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    if !fs::metadata(path).with_context(named)?.is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry.with_context(|| folder.display().to_string())?;
            match entry.file_type().with_context(|| entry.path().display().to_string())? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
        files.sort_unstable();
        into.extend(files);
    }
    Ok(())
}

/// The pages that the recording at `path` reads, by file.
fn read_by(path: &Path, page: u64) -> anyhow::Result<HashMap<PathBuf, Reads>> {
    let named = || format!("--with {}", path.display());
    let reader = ParquetReader::open(path, None, None).with_context(named)?;
    let no_names = || format!("{}: it names no files: expected a recording of nigh record", named());
    let mut requests = reader.by_program().with_context(named)?.with_context(no_names)?;
    // The last page of each process in each file: programs read a page in parts.
    let mut last: HashMap<(u32, u32), u64> = HashMap::new();
    let mut volumes: HashMap<u32, Reads> = HashMap::new();
    let mut batch = Vec::new();
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        for request in batch.iter().filter(|request| request.op == Op::Read && request.length > 0) {
            let end = request.offset.saturating_add(u64::from(request.length));
            let reads = volumes.entry(request.volume).or_default();
            let before = last.insert((request.tenant, request.volume), (end - 1) / page);
            for number in request.offset / page..=(end - 1) / page {
                if before != Some(number) {
                    *reads.entry(number).or_default() += 1;
                } else {
                    reads.entry(number).or_insert(1);
                }
            }
        }
    }
    let files = requests.files();
    let reads: HashMap<PathBuf, Reads> =
        volumes.into_iter().filter_map(|(volume, reads)| Some((files.get(&volume)?.into(), reads))).collect();
    ensure!(!reads.is_empty(), no_names());
    Ok(reads)
}

/// The pages of one file; with a recording, beside its `reads`, if it has any of this file.
fn figures(path: &Path, reads: Option<Option<&Reads>>, page: u64) -> std::io::Result<(Figures, Way)> {
    let cached = Cached::open(path)?;
    let all = cached.pages(0..cached.bytes().next_multiple_of(page))?;
    let mut figures = Figures::new(cached.bytes(), all, page);
    if let Some(reads) = reads {
        let mut read = Read::default();
        if let Some(reads) = reads {
            let mut numbers: Vec<u64> = reads.keys().copied().collect();
            numbers.sort_unstable();
            read.distinct_bytes = numbers.len() as u64 * page;
            read.again_bytes = reads.values().filter(|times| **times > 1).count() as u64 * page;
            let found = cached.each(&numbers, &mut |number, pages| {
                if pages.cached > 0 && reads.get(&number).is_some_and(|times| *times > 1) {
                    read.again_cached_bytes += page;
                }
            })?;
            read.cached_bytes = found.cached * page;
            read.recently_evicted_bytes = found.recently_evicted * page;
        }
        figures.recording = Some(read);
    }
    Ok((figures, cached.way()))
}

impl Found {
    fn describe(&self) -> String {
        let mut text = String::new();
        let Figures { bytes, cached_bytes, dirty_bytes, evicted_bytes, recently_evicted_bytes, recording } = self.total;
        let share = |part: u64, of: u64| format!("{:.0} %", 100.0 * part as f64 / of.max(1) as f64);
        let _ = write!(
            text,
            "{} of {} ({}) in {} are in the page cache",
            human_bytes(cached_bytes),
            human_bytes(bytes),
            share(cached_bytes.min(bytes), bytes),
            counted(self.files_total as u64, "file")
        );
        if self.has_evicted {
            let _ = write!(
                text,
                ", {} of them dirty; {} were evicted, {} recently",
                human_bytes(dirty_bytes),
                human_bytes(evicted_bytes),
                human_bytes(recently_evicted_bytes)
            );
        }
        text.push_str(".\n");
        if let Some(read) = recording {
            let _ = writeln!(
                text,
                "The recording reads {} of these files, of which {} ({}) are cached and {} were recently evicted; it reads {} more than once, of \
                 which {} are cached.",
                human_bytes(read.distinct_bytes),
                human_bytes(read.cached_bytes),
                share(read.cached_bytes, read.distinct_bytes),
                human_bytes(read.recently_evicted_bytes),
                human_bytes(read.again_bytes),
                human_bytes(read.again_cached_bytes)
            );
        }
        text.push('\n');
        let evicted = |bytes: u64| if self.has_evicted { human_bytes(bytes) } else { "-".to_owned() };
        match recording {
            None => {
                let mut table = Table::new(&["SIZE", "CACHED", "DIRTY", "EVICTED", "RECENTLY", "FILE"]);
                for File { file, figures } in &self.files {
                    table.row([
                        human_bytes(figures.bytes),
                        human_bytes(figures.cached_bytes),
                        evicted(figures.dirty_bytes),
                        evicted(figures.evicted_bytes),
                        evicted(figures.recently_evicted_bytes),
                        file.clone(),
                    ]);
                }
                let _ = write!(text, "{table}");
            }
            Some(_) => {
                let mut table = Table::new(&[
                    "SIZE", "CACHED", "RECENTLY", "READ", "CACHED", "RECENTLY", "AGAIN", "CACHED", "FILE",
                ]);
                for File { file, figures } in &self.files {
                    let read = figures.recording.unwrap_or_default();
                    table.row([
                        human_bytes(figures.bytes),
                        human_bytes(figures.cached_bytes),
                        evicted(figures.recently_evicted_bytes),
                        human_bytes(read.distinct_bytes),
                        human_bytes(read.cached_bytes),
                        evicted(read.recently_evicted_bytes),
                        human_bytes(read.again_bytes),
                        human_bytes(read.again_cached_bytes),
                        file.clone(),
                    ]);
                }
                let _ = write!(text, "{table}");
            }
        }
        let more = self.files_total - self.files.len();
        if more > 0 {
            let _ = writeln!(text, "and {}; -n lists more", counted(more as u64, "other file"));
        }
        if !self.has_evicted {
            text.push_str("note: this kernel, or a file system, has no cachestat (Linux 6.5): what is dirty or was evicted is not known\n");
        }
        for Failed { file, reason } in &self.failed {
            let _ = writeln!(text, "note: {}: {reason}", nigh_text::printable(file));
        }
        text
    }
}
