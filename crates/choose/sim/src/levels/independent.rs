//! Levels that know nothing of each other: each sees what the one above it misses.

use std::ops::Range;

use nigh_policy::{Policy, Setup, Slot, Spec, SpecError, Visit};
use nigh_tier::Counts;

use super::run::{Caches, Duplicates};
use crate::References;
use crate::replay::Cache;

/// Of the references with these numbers, keeps those that miss. It owns the policy of a cache.
type Filter<'a> = Box<dyn FnMut(&mut Cache<'a>, &mut Vec<u32>) + 'a>;

/// A cache that passes on what it misses.
struct Level<'a> {
    cache: Cache<'a>,
    filter: Filter<'a>,
}

/// Makes the filter of a policy, whose loop is compiled for it.
struct Filtering<'a>(&'a References);

impl<'a> Visit for Filtering<'a> {
    type Out = Filter<'a>;

    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> Filter<'a> {
        let Filtering(references) = self;
        Box::new(move |cache, at| {
            at.retain(|&at| !cache.reference(&mut policy, Slot(references.ids[at as usize]), at as usize));
        })
    }
}

impl<'a> Level<'a> {
    fn new(references: &'a References, spec: &Spec, capacity: u32) -> Result<Level<'a>, SpecError> {
        let slots = references.distinct();
        let ghosts = nigh_policy::ghosts(spec, capacity)?.min(slots);
        let block_bytes = references.block_bytes;
        let setup = Setup { capacity, slots, block_bytes, ghosts, future: None, patterns: None };
        let filter = nigh_policy::visit(spec, &setup, Filtering(references))?;
        Ok(Level { cache: Cache::new(references, capacity), filter })
    }

    /// Keeps what misses of `at`. Returns the number of hits.
    fn pass(&mut self, at: &mut Vec<u32>) -> u64 {
        let before = at.len();
        (self.filter)(&mut self.cache, at);
        (before - at.len()) as u64
    }
}

/// A client and its own levels: all but the last one.
struct Client<'a> {
    levels: Vec<Level<'a>>,
    counts: Counts,
    /// The numbers of the references that are on their way through the levels.
    at: Vec<u32>,
}

/// The levels of each client, and the last one, which clients share.
pub(super) struct Independent<'a> {
    references: &'a References,
    clients: Vec<Client<'a>>,
    last: Level<'a>,
}

impl<'a> Independent<'a> {
    /// Levels of `capacities` blocks for each of the `clients`, each by the policy at its place in `specs`, or by the last one.
    pub(super) fn new(
        references: &'a References,
        clients: u16,
        specs: &[Spec],
        capacities: &[u32],
    ) -> Result<Independent<'a>, SpecError> {
        let spec = |level: usize| specs.get(level).unwrap_or(&specs[specs.len() - 1]);
        let (&shared, own) = capacities.split_last().expect("levels");
        let client = |_| {
            let levels = own.iter().enumerate().map(|(at, &capacity)| Level::new(references, spec(at), capacity));
            let levels = levels.collect::<Result<_, _>>()?;
            Ok(Client { levels, counts: Counts::default(), at: Vec::new() })
        };
        Ok(Independent {
            references,
            clients: (0..clients).map(client).collect::<Result<_, SpecError>>()?,
            last: Level::new(references, spec(own.len()), shared)?,
        })
    }

    /// The number of the client of the reference numbered `at`.
    fn client(&self, at: u32) -> usize {
        if self.clients.len() == 1 { 0 } else { self.references.streams.number(at as usize) as usize }
    }
}

impl Caches for Independent<'_> {
    fn replay(&mut self, range: Range<usize>) {
        for at in range.start as u32..range.end as u32 {
            let client = self.client(at);
            self.clients[client].at.push(at);
        }
        let mut misses = Vec::new();
        for Client { levels, counts, at } in &mut self.clients {
            counts.references += at.len() as u64;
            for (level, hits) in levels.iter_mut().zip(&mut counts.hits) {
                *hits += level.pass(at);
            }
            // At the last level, every reference hits unless it turns out to miss.
            counts.hits[levels.len()] += at.len() as u64;
            misses.append(at);
        }
        misses.sort_unstable();
        self.last.pass(&mut misses);
        for at in misses {
            let client = self.client(at);
            let Client { levels, counts, .. } = &mut self.clients[client];
            counts.hits[levels.len()] -= 1;
        }
    }

    fn restart(&mut self) {
        self.clients.iter_mut().for_each(|client| client.counts = Counts::default());
    }

    fn counts(&self) -> Vec<Counts> {
        self.clients.iter().map(|client| client.counts.clone()).collect()
    }

    fn duplicates(&self) -> Duplicates {
        let own = self.clients.iter().flat_map(|client| &client.levels);
        let caches: Vec<&[u64]> = own.chain([&self.last]).map(|level| level.cache.resident()).collect();
        let mut found = Duplicates::default();
        for word in 0..caches[0].len() {
            let (mut once, mut again) = (0, 0);
            for resident in caches.iter().map(|cache| cache[word]) {
                found.copies += u64::from((once & resident).count_ones());
                again |= once & resident;
                once |= resident;
            }
            found.blocks += u64::from(again.count_ones());
        }
        found
    }
}
