//! The assignment of references to streams.

use std::collections::VecDeque;
use std::ops::Range;

use crate::runs::{Run, Runs};
use crate::window::Window;
use crate::{Limits, Reference};

/// A stream with a window.
#[derive(Clone, Copy, Debug)]
struct Stream {
    file: u64,
    window: Window,
    /// The end of its last reference.
    end: u64,
    /// The time of that, in references.
    used: u64,
    /// With `auto`, its run.
    run: Option<Run>,
}

impl Stream {
    /// Number of blocks that were fetched for it and that it has not reached.
    fn waiting(&self) -> u64 {
        self.window.end().saturating_sub(self.end)
    }
}

/// The streams that are remembered.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    /// The ends of the last references that belong to no stream, with their files and runs.
    ends: VecDeque<(u64, u64, Option<Run>)>,
    most: usize,
    references: u64,
    /// The stream that was referenced last.
    last: usize,
    /// With `auto`, the statistics that decide on windows.
    runs: Option<Runs>,
}

/// The number of ends that are remembered.
const ENDS: usize = 32;

/// No window is shortened below this: the first window of a read of one block.
const WINDOW_LEAST: u64 = 4;

/// The relation of a reference to the streams.
enum Found {
    /// It is in this stream's window, directly after the window, or directly after the stream's last reference.
    Stream(usize),
    /// It continues a reference that belongs to no stream, with this run and this end.
    Sequel(Option<Run>, u64),
    /// Neither.
    Stray,
}

impl Streams {
    pub(crate) fn new(most: usize) -> Streams {
        Streams { streams: Vec::new(), ends: VecDeque::with_capacity(ENDS), most, references: 0, last: 0, runs: None }
    }

    /// As `new`; [`Streams::linux`] decides by statistics of earlier runs.
    pub(crate) fn adaptive(most: usize) -> Streams {
        Streams { runs: Some(Runs::new()), ..Streams::new(most) }
    }

    /// Tagged one-block look-ahead.
    pub(crate) fn one_block(&mut self, file: u64, blocks: &Range<u64>, missed: bool) -> Option<Range<u64>> {
        self.references += 1;
        let holds = |stream: &Stream| stream.file == file && blocks.contains(&stream.window.start);
        let found = self.streams.iter().position(holds);
        if found.is_none() && !missed {
            return None;
        }
        let stream =
            Stream { file, window: Window::one(blocks.end), end: blocks.end, used: self.references, run: None };
        match found {
            Some(at) => self.streams[at] = stream,
            None => self.remember(stream),
        }
        Some(blocks.end..blocks.end + 1)
    }

    /// "If block K and block K + 1 of a file have been referenced, prefetch block K + 2" (ACFS, 1), for consecutive
    /// references to that file.
    pub(crate) fn sequential(&mut self, file: u64, blocks: &Range<u64>) -> Option<Range<u64>> {
        self.references += 1;
        let found = self.streams.iter().position(|stream| stream.file == file);
        let follows = found.is_some_and(|at| self.streams[at].end == blocks.start);
        let stream =
            Stream { file, window: Window::one(blocks.end), end: blocks.end, used: self.references, run: None };
        match found {
            Some(at) => self.streams[at] = stream,
            None => self.remember(stream),
        }
        (follows || blocks.end - blocks.start > 1).then(|| blocks.end..blocks.end + 1)
    }

    /// Linux's read-ahead. `limits` is called as for [`crate::Prefetcher::reference`], and its `longest` holds for every window; `before` counts the
    /// cached blocks before the reference.
    pub(crate) fn linux(
        &mut self,
        reference: &Reference,
        limits: impl FnOnce() -> Limits,
        before: impl FnOnce(u64) -> u64,
    ) -> Option<Range<u64>> {
        let Reference { file, ref blocks, missed, .. } = *reference;
        self.references += 1;
        let found = self.find(file, blocks);
        let at_marker = matches!(found, Found::Stream(at) if blocks.contains(&self.streams[at].window.marker()));
        let run = self.run(&found, blocks);
        // Other references begin no window.
        let (most, request_blocks) = if missed || at_marker {
            let remaining = match (&self.runs, &run) {
                (Some(runs), Some(run)) => runs.remaining(run, blocks.end).saturating_add(blocks.end - blocks.start),
                _ => u64::MAX,
            };
            let Limits { room, longest, request_blocks } = limits();
            (longest.min(self.fitting(room, &found)).min(remaining), request_blocks)
        } else {
            (0, None)
        };
        // With statistics, cached blocks before a miss are no evidence.
        let traces = missed && self.runs.is_none();
        if let Found::Stream(at) = found {
            self.last = at;
            let stream = &mut self.streams[at];
            let window = &mut stream.window;
            let old_end = window.end();
            let sequential = is_sequel(blocks.start, stream.end);
            let from = if blocks.contains(&window.marker()) || (missed && blocks.contains(&old_end)) {
                let at = if blocks.contains(&window.marker()) { window.marker() } else { old_end };
                window.advance(at, most);
                window.reach(blocks.end, most);
                old_end.max(blocks.end)
            } else if missed && (sequential || blocks.end - blocks.start > most) {
                // The blocks of the window have left the cache.
                *window = Window::begin(blocks, most);
                blocks.end
            } else if sequential {
                window.end()
            } else if let Some(context) = traces.then(|| context(blocks, most, before)).flatten() {
                *window = context;
                blocks.end
            } else {
                // A random reference that happens to be in the window.
                return None;
            };
            stream.end = blocks.end;
            stream.used = self.references;
            return ahead(from, &stream.window);
        }
        let begins = match (&self.runs, &run) {
            (Some(runs), Some(run)) => {
                let ahead = || Window::begin(blocks, most).end().saturating_sub(blocks.end);
                missed && runs.begins_window(run, ahead(), request_blocks)
            }
            _ => {
                missed && (blocks.start == 0 || blocks.end - blocks.start > most || matches!(found, Found::Sequel(..)))
            }
        };
        let window = if begins {
            Some(Window::begin(blocks, most))
        } else {
            traces.then(|| context(blocks, most, before)).flatten()
        };
        let Some(window) = window else {
            if self.ends.len() == ENDS {
                self.ends.pop_back();
            }
            self.ends.push_front((file, blocks.end, run));
            return None;
        };
        self.remember(Stream { file, window, end: blocks.end, used: self.references, run });
        ahead(blocks.end, &window)
    }

    /// The longest window for the stream that was `found`, so that windows fit in `room` blocks: half of an equal part for each active stream, because it
    /// has two windows, the one that is read and the next one. With `auto`, it is half of the room that the other active streams leave, if that is
    /// more. A stream is active if fewer than `room` references have followed its last one.
    fn fitting(&self, room: u64, found: &Found) -> u64 {
        let own = if let Found::Stream(at) = *found { Some(at) } else { None };
        let (mut active, mut waiting) = (0, 0);
        for (at, stream) in self.streams.iter().enumerate() {
            if self.references - stream.used < room {
                active += 1;
                waiting += if own == Some(at) { 0 } else { stream.waiting() };
            }
        }
        let part = room / active.max(1);
        let left = if self.runs.is_some() { room.saturating_sub(waiting) } else { 0 };
        (part.max(left) / 2).max(WINDOW_LEAST)
    }

    /// With `auto`, adds `blocks` to the statistics and returns their run.
    fn run(&mut self, found: &Found, blocks: &Range<u64>) -> Option<Run> {
        let runs = self.runs.as_mut()?;
        let (mut run, end) = match *found {
            Found::Stream(at) => (self.streams[at].run?, self.streams[at].end),
            Found::Sequel(run, end) => (run?, end),
            Found::Stray => return Some(runs.start(blocks)),
        };
        runs.extend(&mut run, end, blocks);
        if let Found::Stream(at) = *found {
            self.streams[at].run = Some(run);
        }
        Some(run)
    }

    fn find(&mut self, file: u64, blocks: &Range<u64>) -> Found {
        let continues = |stream: &Stream| {
            stream.file == file
                && ((stream.window.start..=stream.window.end()).contains(&blocks.start)
                    || is_sequel(blocks.start, stream.end))
        };
        if self.streams.get(self.last).is_some_and(continues) {
            return Found::Stream(self.last);
        }
        if let Some(at) = self.streams.iter().position(continues) {
            return Found::Stream(at);
        }
        let position = self.ends.iter().position(|&(of, end, _)| of == file && is_sequel(blocks.start, end));
        match position.and_then(|at| self.ends.remove(at)) {
            Some((_, end, run)) => Found::Sequel(run, end),
            None => Found::Stray,
        }
    }

    fn remember(&mut self, stream: Stream) {
        if self.streams.len() < self.most {
            self.last = self.streams.len();
            self.streams.push(stream);
            return;
        }
        let oldest = (0..self.streams.len()).min_by_key(|&at| self.streams[at].used).expect("at least one stream");
        self.streams[oldest] = stream;
        self.last = oldest;
    }
}

/// The window of a miss that continues no stream: the cached blocks `before` it are the traces of one
/// (`page_cache_sync_ra`).
fn context(blocks: &Range<u64>, most: u64, before: impl FnOnce(u64) -> u64) -> Option<Window> {
    let cached = before(most.min(blocks.start));
    // "Standalone, small random read" otherwise.
    (cached > blocks.end - blocks.start).then(|| Window::after(cached, blocks, most))
}

/// Whether a request that begins at `start` continues one that ended at `end`: directly after it, or in its last block.
fn is_sequel(start: u64, end: u64) -> bool {
    start == end || start + 1 == end
}

fn ahead(from: u64, window: &Window) -> Option<Range<u64>> {
    (from < window.end()).then(|| from..window.end())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    impl Streams {
        /// With room for all windows.
        fn read(
            &mut self,
            file: u64,
            blocks: &Range<u64>,
            missed: bool,
            most: u64,
            before: impl FnOnce(u64) -> u64,
        ) -> Option<Range<u64>> {
            self.linux(
                &Reference { file, blocks: blocks.clone(), missed, end: u64::MAX },
                || limits(most, u64::MAX),
                before,
            )
        }
    }

    fn limits(longest: u64, room: u64) -> Limits {
        Limits { room, longest, request_blocks: None }
    }

    /// The blocks fetched for a reader of `requests`, as (demanded, fetched ahead) of each request.
    fn read(streams: &mut Streams, file: u64, requests: &[Range<u64>], most: u64) -> Vec<Option<Range<u64>>> {
        let mut cached: HashSet<u64> = HashSet::new();
        let mut fetched = Vec::new();
        for blocks in requests {
            let missed = blocks.clone().any(|block| !cached.contains(&block));
            cached.extend(blocks.clone());
            let ahead = streams.read(file, blocks, missed, most, |_| 0);
            cached.extend(ahead.clone().into_iter().flatten());
            fetched.push(ahead);
        }
        fetched
    }

    fn pages(range: Range<u64>) -> Vec<Range<u64>> {
        range.map(|page| page..page + 1).collect()
    }

    #[test]
    fn a_file_read_page_by_page_gets_doubling_windows() {
        let fetched = read(&mut Streams::new(4), 1, &pages(0..60), 32);
        let ahead: Vec<(usize, Range<u64>)> =
            fetched.into_iter().enumerate().filter_map(|(page, ahead)| Some((page, ahead?))).collect();
        // 4 pages of which 3 ahead; at the marker, page 1, 8 more; then at the first page of each window the next.
        assert_eq!(ahead, [(0, 1..4), (1, 4..12), (4, 12..28), (12, 28..60), (28, 60..92)]);
    }

    #[test]
    fn requests_of_many_pages_are_always_ahead() {
        let requests: Vec<_> = (0..20).map(|at| at * 8..(at + 1) * 8).collect();
        let fetched = read(&mut Streams::new(4), 1, &requests, 32);
        assert_eq!(fetched[0], Some(8..16));
        assert_eq!(fetched[1], Some(16..48));
        let later: Vec<_> = fetched[2..].iter().flatten().cloned().collect();
        assert!(later.iter().all(|ahead| ahead.end - ahead.start == 32), "{later:?}");
        assert_eq!(later.first().map(|ahead| ahead.start), Some(48));
    }

    #[test]
    fn a_request_longer_than_the_most_is_followed() {
        let fetched = read(&mut Streams::new(4), 1, &[1000..1100, 1100..1200], 32);
        let (first, second) = (fetched[0].clone().unwrap(), fetched[1].clone().unwrap());
        assert!(first.start == 1100 && first.end > 1100 && first.end <= 1164, "{first:?}");
        assert!(second.start == 1200 && second.end <= 1264, "{second:?}");
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let requests: Vec<_> = (1..500u64).map(|at| at * 7919 % 10_007 + 1).map(|page| page..page + 1).collect();
        let fetched = read(&mut Streams::new(4), 1, &requests, 32);
        assert_eq!(fetched.iter().flatten().count(), 0);
    }

    #[test]
    fn a_random_read_between_resets_nothing_and_a_new_place_starts_anew() {
        let mut streams = Streams::new(4);
        read(&mut streams, 1, &pages(100..102), 32);
        assert_eq!(streams.read(1, &(5000..5001), true, 32, |_| 0), None);
        // The window of pages 101 to 104 has its marker at 102.
        assert_eq!(streams.read(1, &(102..103), false, 32, |_| 0), Some(105..113));
        assert_eq!(streams.read(1, &(7000..7001), true, 32, |_| 0), None);
        assert_eq!(streams.read(1, &(7001..7002), true, 32, |_| 0), Some(7002..7005));
    }

    #[test]
    fn interleaved_streams_of_one_file_are_told_apart() {
        let mut streams = Streams::new(4);
        let requests: Vec<_> = (0..40).flat_map(|at| [100 + at..101 + at, 9000 + at..9001 + at]).collect();
        let fetched = read(&mut streams, 1, &requests, 32);
        let of = |first: usize| fetched.iter().skip(first).step_by(2).flatten().cloned().collect::<Vec<_>>();
        let moved: Vec<_> = of(0).iter().map(|ahead| ahead.start + 8900..ahead.end + 8900).collect();
        assert_eq!(of(1), moved);
        assert!(moved.len() > 3);
    }

    /// With `auto`, the last window of runs of 16 blocks is no longer than they are.
    #[test]
    fn little_is_fetched_behind_the_end_of_usual_runs() {
        let mut streams = Streams::adaptive(32);
        let mut run = |first: u64| {
            let mut end = first;
            for block in first..first + 16 {
                let ahead = streams.read(1, &(block..block + 1), block >= end, 32, |_| unreachable!("no traces"));
                end = end.max(ahead.map_or(block + 1, |ahead| ahead.end));
            }
            end - first
        };
        (1..50).for_each(|at| _ = run(at * 1000));
        let end = run(1_000_000);
        assert!((16..32).contains(&end), "{end}");
    }

    /// Both halves of random blocks.
    #[test]
    fn a_block_that_is_read_twice_is_no_run() {
        let mut streams = Streams::adaptive(32);
        let blocks = (1..500u64).map(|at| at * 7919 % 10_007);
        let reads = blocks.flat_map(|block| [(block, true), (block, false)]);
        let fetched = reads.filter_map(|(block, missed)| streams.read(1, &(block..block + 1), missed, 32, |_| 0));
        assert!(fetched.count() < 3);
    }

    /// All active streams have room for two windows each.
    #[test]
    fn windows_fit() {
        let mut streams = Streams::new(8);
        let mut longest = |count: u64, room: u64| {
            let mut longest = 0;
            for at in 0..200u64 {
                for stream in 0..count {
                    let block = (stream + 1) * 10_000 + at;
                    let reference = Reference { file: count, blocks: block..block + 1, missed: at < 2, end: u64::MAX };
                    let ahead = streams.linux(&reference, || limits(32, room), |_| 0);
                    longest = longest.max(ahead.map_or(0, |ahead| ahead.end - ahead.start));
                }
            }
            longest
        };
        assert_eq!([longest(1, 1000), longest(1, 40), longest(3, 60), longest(4, 8)], [32, 20, 10, WINDOW_LEAST]);
    }

    /// With `auto`, a long run gets the room that short ones do not use; with `linux`, all parts are equal.
    #[test]
    fn a_stream_gets_the_room_that_others_leave() {
        let longest = |mut streams: Streams| {
            let mut read = |block: u64, missed: bool| {
                let reference = Reference { file: 1, blocks: block..block + 1, missed, end: u64::MAX };
                streams.linux(&reference, || limits(32, 64), |_| 0).map_or(0, |ahead| ahead.end - ahead.start)
            };
            let mut longest = 0;
            for at in 0..600 {
                if at % 8 == 0 {
                    // A run of four blocks, with a window that ends with it.
                    (0..4).for_each(|block| _ = read(1_000_000 + 1000 * at + block, block < 2));
                }
                let ahead = read(at, at < 2);
                longest = longest.max(if at < 300 { 0 } else { ahead });
            }
            longest
        };
        let [auto, linux] = [Streams::adaptive(32), Streams::new(32)].map(longest);
        assert!(auto >= 24 && linux <= 8, "{auto}, {linux}");
    }

    #[test]
    fn files_are_told_apart() {
        let mut streams = Streams::new(4);
        assert_eq!(streams.read(1, &(10..11), true, 32, |_| 0), None);
        assert_eq!(streams.read(2, &(11..12), true, 32, |_| 0), None);
        assert_eq!(streams.read(1, &(11..12), true, 32, |_| 0), Some(12..15));
    }

    #[test]
    fn what_was_evicted_begins_a_new_window() {
        let mut streams = Streams::new(4);
        read(&mut streams, 1, &pages(0..30), 32);
        // Page 30 was fetched but has left the cache.
        assert_eq!(streams.read(1, &(30..31), true, 32, |_| 0), Some(31..34));
    }

    #[test]
    fn so_many_streams_are_remembered_and_random_reads_displace_none() {
        let mut streams = Streams::new(3);
        for file in 0..3 {
            assert!(streams.read(file, &(0..1), true, 32, |_| 0).is_some());
        }
        for page in 1..1000 {
            assert_eq!(streams.read(9, &(page * 10..page * 10 + 1), true, 32, |_| 0), None);
        }
        assert!((0..3).all(|file| streams.read(file, &(1..2), false, 32, |_| 0).is_some()));
        assert!(streams.read(7, &(0..1), true, 32, |_| 0).is_some());
        assert_eq!((streams.streams.len(), streams.ends.len()), (3, ENDS));
        // The least recently used one was forgotten.
        assert_eq!(streams.read(0, &(4..5), false, 32, |_| 0), None);
        assert!(streams.read(1, &(4..5), false, 32, |_| 0).is_some());
    }

    /// Cached blocks directly before a random miss are the traces of a stream, if there are more of them than the miss has.
    #[test]
    fn cached_blocks_before_a_miss_begin_a_window() {
        let mut streams = Streams::new(4);
        let mut miss =
            |start: u64, cached: u64| streams.read(1, &(start..start + 2), true, 32, |most| cached.min(most));
        assert_eq!(miss(100, 2), None, "a small random read");
        assert_eq!(miss(200, 3), Some(202..205));
        assert_eq!(miss(300, 1000), Some(302..332), "at most the maximum");
        assert_eq!(miss(10, 10), Some(12..32), "cached from the beginning: twice as long");
        assert_eq!(streams.read(1, &(204..205), false, 32, |_| 0), Some(205..215), "the last block is the marker");
        let hit = streams.read(1, &(500..501), false, 32, |_| unreachable!("only misses look at the cache"));
        assert_eq!(hit, None);
    }
}
