//! The prefetch allowance: useless blocks fetched for a tenant are bounded whatever it sends, and correct lists are
//! fetched as far ahead as without it.

use crate::host;
use std::collections::HashSet;

use crate::host::{FILE, Host, block, file_of, number};
use nigh_control::{Chunk, Config, Directive};
use nigh_policy::{Kind, Tenant};
use rand::RngExt;

const BATCH: u32 = 8;

fn chunk(number: u64) -> Chunk {
    Chunk { file: file_of(number), bytes: Some((number % FILE, 1)) }
}

fn list(numbers: impl IntoIterator<Item = u64>) -> Directive {
    Directive::Predict { accesses: numbers.into_iter().map(chunk).collect() }
}

/// A cache that one tenant has for itself, and what was fetched for it.
struct Run {
    host: Host,
    /// Fetched and not used since.
    ahead: HashSet<u64>,
    fetched: i64,
    used: i64,
    missed: i64,
}

impl Run {
    fn new(capacity: u32, window: u32) -> Run {
        let mut host = Host::new(capacity, capacity, Config { batch: BATCH, window, ..Config::default() });
        host.checked = false;
        Run { host, ahead: HashSet::new(), fetched: 0, used: 0, missed: 0 }
    }

    fn say(&mut self, directive: Directive) {
        self.host.apply(0, directive).expect("within the limits");
        self.fetch();
    }

    /// Batches until no further one is due.
    fn fetch(&mut self) {
        loop {
            let mut batch = 0;
            while let Some(ahead) = self.host.control.next_prefetch(Tenant(0), 0, &self.host.blocks, 0) {
                self.host.reference(0, ahead, Kind::Prefetch);
                self.ahead.insert(number(ahead));
                batch += 1;
            }
            self.fetched += batch;
            (0..batch).for_each(|_| self.host.control.prefetched(Tenant(0), 0, Some(0)));
            if batch == 0 {
                break;
            }
        }
    }

    fn read(&mut self, number: u64) {
        let was_ahead = self.ahead.remove(&number);
        match self.host.access(0, block(number)).hit {
            true => self.used += i64::from(was_ahead),
            false => {
                self.missed += 1;
                self.host.control.loaded(Tenant(0));
            }
        }
        self.fetch();
    }

    fn useless(&self) -> i64 {
        self.fetched - self.used
    }
}

/// Of a tenant whose lists are true, false or both, repeated, replaced, extended and removed at random.
#[test]
fn useless_blocks_are_bounded_in_every_period() {
    let most_in_any = |window: u32| {
        let mut most = i64::MIN;
        for seed in 0..60 {
            let mut random = host::random(seed);
            let mut run = Run::new([30, 100, 400][seed as usize % 3], window);
            run.host.checked = seed % 10 == 0;
            let (mut next, mut lies) = (0, 1_000_000);
            // Useless blocks beyond those used or missed, and the least of it so far.
            let mut least = 0;
            let mut honest = true;
            for _ in 0..80 {
                honest ^= random.random_range(0..8) == 0;
                let reads: Vec<u64> = (0..random.random_range(1..80))
                    .map(|_| match random.random_range(0..4) {
                        // Read before: in the cache, perhaps.
                        0 => random.random_range(0..=next),
                        _ => {
                            next += 1;
                            next
                        }
                    })
                    .collect();
                let truth = if honest { reads.len() } else { random.random_range(0..=reads.len()) };
                let mut told: Vec<u64> = reads[..truth].to_vec();
                for _ in 0..if honest { 0 } else { random.random_range(0..60) } {
                    lies += 1;
                    told.insert(random.random_range(0..=told.len()), lies);
                }
                match random.random_range(0..3) {
                    0 => {
                        for number in told {
                            run.host.extend(0, chunk(number)).expect("within the limits");
                            run.fetch();
                        }
                    }
                    1 if random.random_bool(0.2) => run.say(list([])),
                    _ => run.say(list(told)),
                }
                for number in reads {
                    let now = run.useless() - run.used - run.missed;
                    most = most.max(now - least);
                    least = least.min(now);
                    run.read(number);
                }
            }
        }
        most
    };
    for window in [1, 20, 80] {
        let (most, limit) = (most_in_any(window), i64::from(2 * BATCH + window));
        assert!((limit / 2..=limit).contains(&most), "{most} with a window of {window}");
    }
    // Without the allowance, these tenants exceed all of the limits.
    let unlimited = most_in_any(0);
    assert!(unlimited > i64::from(2 * BATCH + 80), "{unlimited}");
}

/// It replaces its list before that is dropped as wrong.
#[test]
fn a_tenant_that_replaces_its_lists_has_two_batches_fetched() {
    let useless = |window| {
        let mut run = Run::new(400, window);
        for round in 0..50 {
            run.say(list((0..100).map(|at| 10_000 + round * 100 + at)));
            (0..40).for_each(|at| run.read(at));
        }
        assert_eq!(run.used, 0);
        assert_eq!(run.host.control.statistics(Tenant(0)).lists_dropped, 0);
        run.fetched
    };
    assert_eq!(useless(Config::WINDOW), i64::from(2 * BATCH));
    assert!(useless(0) >= 50 * 100, "{}", useless(0));
}

/// Blocks that were used longer ago than the window do not count.
#[test]
fn a_good_history_does_not_allow_more_than_the_window() {
    for window in [50, 200] {
        let mut run = Run::new(2000, window);
        run.say(list(0..1000));
        (0..1000).for_each(|at| run.read(at));
        assert_eq!((run.fetched, run.used), (1000, 1000));
        for round in 0..20 {
            run.say(list((0..500).map(|at| 10_000 + round * 500 + at)));
        }
        assert_eq!(run.useless(), i64::from(2 * BATCH + window));
    }
}

/// After its allowance is gone: the first miss that a list predicted is enough to begin.
#[test]
fn a_tenant_that_becomes_correct_gets_ahead_again() {
    let mut run = Run::new(400, Config::WINDOW);
    for round in 0..10 {
        run.say(list((0..100).map(|at| 10_000 + round * 100 + at)));
        (0..40).for_each(|at| run.read(at));
    }
    let missed = run.missed;
    run.say(list(100..1100));
    (100..1100).for_each(|at| run.read(at));
    assert_eq!(run.missed - missed, 1);
    assert_eq!(run.used, 999);
}

/// Each list begins where the reads are, and reaches beyond the next list's beginning: what a replaced list had fetched is used.
#[test]
fn correct_lists_that_overlap_are_fetched_as_without_an_allowance() {
    let missed = |window| {
        let mut run = Run::new(400, window);
        for at in 0..4000 {
            if at % 40 == 0 {
                run.say(list(at..at + 200));
            }
            run.read(at);
        }
        (run.fetched, run.missed)
    };
    assert_eq!(missed(Config::WINDOW), missed(0));
}

/// Its next list has nothing to do with them.
#[test]
fn blocks_that_are_read_although_they_were_flushed_count_as_used() {
    let start = 2 * u64::from(BATCH);
    let mut run = Run::new(400, Config::WINDOW);
    run.say(list(0..100));
    assert_eq!(run.fetched, start as i64);
    run.say(list(900..901));
    (0..start).for_each(|at| run.read(at));
    assert_eq!(run.used, start as i64);
    run.say(list(1000..1100));
    assert_eq!(run.useless(), 2 * start as i64);
}

/// The list passes every second block before it is read.
#[test]
fn blocks_that_are_read_in_another_order_count_as_used() {
    let run = |window| {
        let mut run = Run::new(400, window);
        run.say(list(0..4000));
        (0..4000).for_each(|at| run.read(at ^ 1));
        (run.fetched, run.missed)
    };
    assert_eq!(run(Config::WINDOW), run(0));
}
