//! A recording of a disk: reads the buffers of all processors and merges them by time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use nigh_trace::{Op, rwbs::Rwbs};
use rustix::time::{ClockId, clock_gettime};

use crate::format::{Field, Layout};
use crate::instance::Instance;
use crate::page::Shape;
use crate::pairs::{Io, Pairs};
use crate::{Disk, Error, Kind, Result};

/// A disk that is being recorded.
pub struct Tracer {
    // The buffers are closed before the instance is removed.
    buffers: Vec<File>,
    shape: Shape,
    issue: Event,
    complete: Event,
    requeue: Option<Event>,
    page: Vec<u8>,
    seen: Vec<Seen>,
    pairs: Pairs,
    instance: Instance,
}

/// An event of the kernel, and where its fields are.
struct Event {
    id: u16,
    tid: Field,
    sector: Field,
    sectors: Field,
    kind: Field,
    /// Of an issue.
    name: Option<Field>,
    /// Of a completion.
    error: Option<Field>,
}

/// One event that happened.
struct Seen {
    time_ns: u64,
    what: What,
    op: Op,
    sector: u64,
    sectors: u32,
}

enum What {
    Issue { tid: u32, name: [u8; 16] },
    Complete { result: i32 },
    Requeue,
}

impl Tracer {
    /// Begins to record `disk`, with buffers of `buffer_kb` KiB for each processor.
    pub fn start(disk: &Disk, buffer_kb: u32) -> Result<Tracer> {
        let instance = Instance::create()?;
        let (issue, complete, requeue) = match disk.kind {
            Kind::Requests => ("block_rq_issue", "block_rq_complete", Some("block_rq_requeue")),
            Kind::Bios => ("block_bio_queue", "block_bio_complete", None),
        };
        let shape = Shape::new(&instance.read_shared("events/header_page")?)?;
        let issue = Event::open(&instance, issue, disk)?;
        let complete = Event::open(&instance, complete, disk)?;
        let requeue = requeue.map(|requeue| Event::open(&instance, requeue, disk)).transpose()?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kb.to_string())?;
        // Events that do not fit are counted, and earlier ones stay in order.
        instance.write("options/overwrite", "0")?;
        let mut buffers = Vec::new();
        for folder in processors(&instance)? {
            let path = format!("{folder}/trace_pipe_raw");
            let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let file = File::options().read(true).custom_flags(nonblocking).open(instance.path(&path));
            buffers.push(file.map_err(|source| Error::Io { path: instance.path(&path), source })?);
        }
        instance.write("tracing_on", "1")?;
        let page = vec![0; shape.bytes()];
        Ok(Tracer {
            buffers,
            shape,
            issue,
            complete,
            requeue,
            page,
            seen: Vec::new(),
            pairs: Pairs::default(),
            instance,
        })
    }

    /// Appends to `out` the requests that were completed and those before them, as far as that is known now. To be
    /// called several times a second.
    pub fn read(&mut self, out: &mut Vec<Io>) -> Result<()> {
        // Events before now are in the buffers; later ones may be in some of them and not yet in others.
        let now = now_ns();
        self.drain()?;
        self.seen.sort_by_key(|seen| seen.time_ns);
        let known = self.seen.partition_point(|seen| seen.time_ns <= now);
        self.pair(known);
        self.pairs.take(now, out);
        Ok(())
    }

    /// Events that the kernel dropped because a buffer was full. Each request has two.
    pub fn lost(&self) -> Result<u64> {
        let mut lost = 0;
        for folder in processors(&self.instance)? {
            let text = self.instance.read(&format!("{folder}/stats"))?;
            let counts = text.lines().filter_map(|line| {
                let (name, count) = line.split_once(':')?;
                ["overrun", "dropped events"].contains(&name).then(|| count.trim().parse::<u64>().ok())?
            });
            lost += counts.sum::<u64>();
        }
        Ok(lost)
    }

    /// Ends the recording: appends all other requests to `out`, and returns the number of lost events.
    pub fn finish(mut self, out: &mut Vec<Io>) -> Result<u64> {
        self.instance.write("tracing_on", "0")?;
        self.read(out)?;
        self.pair(self.seen.len());
        let lost = self.lost()?;
        self.pairs.finish(out);
        Ok(lost)
    }

    /// Reads all pages of all buffers.
    fn drain(&mut self) -> Result<()> {
        for buffer in &mut self.buffers {
            loop {
                let length = match buffer.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(source) => return Err(Error::Io { path: self.instance.path("trace_pipe_raw"), source }),
                };
                for (time_ns, record) in self.shape.events(self.page.get(..length).unwrap_or_default())? {
                    let events = [&self.issue, &self.complete].into_iter().chain(&self.requeue);
                    let id = record.first_chunk().map(|id| u16::from_ne_bytes(*id));
                    let Some(event) = events.into_iter().find(|event| Some(event.id) == id) else { continue };
                    self.seen.extend(event.seen(time_ns, record));
                }
            }
        }
        Ok(())
    }

    /// Pairs the first `count` events.
    fn pair(&mut self, count: usize) {
        for Seen { time_ns, what, op, sector, sectors } in self.seen.drain(..count) {
            match what {
                What::Issue { tid, name } => {
                    self.pairs.issue(Io { time_ns, op, sector, sectors, latency_ns: 0, result: 0, tid, name });
                }
                What::Complete { result } => self.pairs.complete(time_ns, op, sector, sectors, result),
                What::Requeue => self.pairs.requeue(op, sector),
            }
        }
    }
}

impl Event {
    /// Switches the event on for `disk`.
    fn open(instance: &Instance, event: &'static str, disk: &Disk) -> Result<Event> {
        let folder = format!("events/block/{event}");
        if !instance.path(&folder).is_dir() {
            return Err(Error::NoEvent { event });
        }
        let layout = Layout::parse(&instance.read(&format!("{folder}/format"))?);
        let field = |name, sizes: &[usize]| layout.field(event, name, sizes);
        instance.write(&format!("{folder}/filter"), &disk.filter())?;
        instance.write(&format!("{folder}/enable"), "1")?;
        Ok(Event {
            id: layout.id,
            tid: field("common_pid", &[4])?,
            sector: field("sector", &[8])?,
            sectors: field("nr_sector", &[4])?,
            kind: field("rwbs", &[])?,
            name: field("comm", &[16]).ok(),
            error: field("error", &[4]).ok(),
        })
    }

    /// The event of `record`; `None` for kinds of requests that access nothing.
    fn seen(&self, time_ns: u64, record: &[u8]) -> Option<Seen> {
        let sectors = u32::try_from(self.sectors.number(record)?).ok()?;
        let rwbs = Rwbs::new(self.kind.text(record)?);
        let op = match rwbs.op {
            Some(op) if sectors > 0 || self.error.is_some() => op,
            _ if rwbs.flushes => Op::Flush,
            _ => return None,
        };
        let what = match (self.name, self.error) {
            (Some(name), _) => {
                let mut whole = [0; 16];
                whole.copy_from_slice(name.of(record)?);
                What::Issue { tid: self.tid.number(record)? as u32, name: whole }
            }
            (None, Some(error)) => What::Complete { result: error.number(record)? as u32 as i32 },
            (None, None) => What::Requeue,
        };
        // A flush has no place; its completion reports sector 2^64 - 1.
        let sector = if op == Op::Flush { 0 } else { self.sector.number(record)? };
        Some(Seen { time_ns, what, op, sector, sectors })
    }
}

/// The folders of the processors' buffers.
fn processors(instance: &Instance) -> Result<Vec<String>> {
    let path = instance.path("per_cpu");
    let entries = fs::read_dir(&path).map_err(|source| Error::Io { path, source })?;
    let mut found: Vec<String> =
        entries.flatten().filter_map(|entry| Some(format!("per_cpu/{}", entry.file_name().to_str()?))).collect();
    found.sort();
    Ok(found)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
