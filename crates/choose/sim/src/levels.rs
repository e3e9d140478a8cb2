//! Several cache levels over a whole trace: one scheme for all of them, or levels that know nothing of each other.

mod independent;
mod run;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use nigh_policy::{Slot, Spec, SpecError};
use nigh_tier::{CLIENTS_MAX, Counts, Joint, LEVELS_MAX, Move, Tier, Ulc, UlcClients, UniLru, UniLruClients};

use crate::References;
use crate::replay::{Watch, cpu_s};
use independent::Independent;
use run::{Caches, run};

pub use run::{Duplicates, Interval, Run};

/// How levels work together.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// Unified level-aware caching, [`Ulc`], with its parameters. With several clients it has none: their stacks have any length, and
    /// unknown blocks begin at no level.
    Ulc(Spec),
    /// One LRU stack over all levels, [`UniLru`].
    UniLru,
    /// Each level sees the misses of the one above and decides alone, by a policy of its own: the first level by the first policy, and
    /// so on. The last policy is that of all further levels. A block that misses is cached at every level it passes.
    Independent(Vec<Spec>),
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Ulc(spec) => spec.fmt(f),
            Scheme::UniLru => f.write_str("unilru"),
            Scheme::Independent(specs) => {
                let specs: Vec<String> = specs.iter().map(ToString::to_string).collect();
                write!(f, "ind:{}", specs.join("/"))
            }
        }
    }
}

impl FromStr for Scheme {
    type Err = SpecError;

    /// `ulc` with or without parameters, `unilru`, `indlru`, or `ind:POLICY/POLICY`, such as `ind:lru/mq`.
    fn from_str(text: &str) -> Result<Scheme, SpecError> {
        if let Some(spec) = text.parse::<Spec>().ok().filter(Spec::is_unified) {
            return Ok(Scheme::Ulc(spec));
        }
        Ok(match text {
            "unilru" => Scheme::UniLru,
            "indlru" => Scheme::Independent(vec!["lru".parse()?]),
            _ => {
                let policies = text.strip_prefix("ind:").unwrap_or(text);
                Scheme::Independent(policies.split('/').map(str::parse).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// A policy needs to know the future, which a lower level's references depend on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0} needs to know the future, which a lower level's references depend on")]
pub struct Offline(Spec);

impl Scheme {
    /// Whether it can manage levels.
    pub fn check(&self) -> Result<(), Offline> {
        let Scheme::Independent(specs) = self else { return Ok(()) };
        specs.iter().find(|spec| spec.info().offline).map_or(Ok(()), |spec| Err(Offline(spec.clone())))
    }
}

/// Why a scheme cannot manage levels of several clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    /// Its parameters are for a single client.
    #[error("{0}: parameters of ulc are for a single client; with several clients, give ulc without parameters")]
    Parameters(Spec),
    /// A policy cannot run at a level's size.
    #[error(transparent)]
    Policy(#[from] SpecError),
}

impl Scheme {
    /// Whether it can manage levels of several clients, as far as its parameters go.
    pub fn check_clients(&self) -> Result<(), ClientsError> {
        let Scheme::Ulc(spec) = self else { return Ok(()) };
        let plain: Spec = spec.name().parse()?;
        // With this many blocks, different values of `ghosts` are different numbers.
        let blocks = 1 << 30;
        let is_plain = spec.first()? == plain.first()?
            && nigh_policy::ghosts(spec, blocks)? == nigh_policy::ghosts(&plain, blocks)?;
        if is_plain { Ok(()) } else { Err(ClientsError::Parameters(spec.clone())) }
    }
}

/// More streams than a server has clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} clients; a server has at most {CLIENTS_MAX}")]
pub struct TooManyClients(usize);

/// The number of clients that the streams of `references` are.
pub fn clients(references: &References) -> Result<u16, TooManyClients> {
    let count = references.streams.all().len().max(1);
    u16::try_from(count).ok().filter(|&count| count <= CLIENTS_MAX).ok_or(TooManyClients(count))
}

fn check(references: &References, scheme: &Scheme, capacities: &[u32], watch: Watch) {
    let has_policies = !matches!(scheme, Scheme::Independent(specs) if specs.is_empty());
    let are_levels = (1..=LEVELS_MAX).contains(&capacities.len()) && !capacities.contains(&0);
    assert!(has_policies && are_levels && watch.warmup <= references.ids.len(), "levels hold blocks and have policies");
}

/// Replays `references` through levels of `capacities` blocks, the first one first. Hits and demotions are also
/// counted in each of `watch.gauges` intervals.
///
/// # Errors
/// If a policy cannot run at a level's size.
///
/// # Panics
/// Without levels, with more than [`LEVELS_MAX`], if one holds no block, without policies for independent levels, or if the
/// warm-up exceeds the number of references.
pub fn replay(references: &References, scheme: &Scheme, capacities: &[u32], watch: Watch) -> Result<Run, SpecError> {
    check(references, scheme, capacities, watch);
    let (start_s, slots, length) = (cpu_s(), references.distinct(), references.ids.len());
    Ok(match scheme {
        Scheme::Ulc(spec) => {
            let tier = Ulc::with(spec, slots, capacities)?;
            run(length, Unified { references, tier, moves: Vec::new() }, watch, start_s)
        }
        Scheme::UniLru => {
            let tier = UniLru::new(slots, capacities);
            run(length, Unified { references, tier, moves: Vec::new() }, watch, start_s)
        }
        Scheme::Independent(specs) => run(length, Independent::new(references, 1, specs, capacities)?, watch, start_s),
    })
}

/// As [`replay`], for a client for each stream of `references`: each has levels of its own, except the last one, which they share.
///
/// # Errors
/// If a policy cannot run at a level's size, or the scheme's parameters are for a single client.
///
/// # Panics
/// As [`replay`], with only one level, or if there are too many [`clients`].
pub fn replay_clients(
    references: &References,
    scheme: &Scheme,
    capacities: &[u32],
    watch: Watch,
) -> Result<Run, ClientsError> {
    check(references, scheme, capacities, watch);
    scheme.check_clients()?;
    let (&shared, own) = capacities.split_last().expect("levels");
    assert!(!own.is_empty(), "a client has a level of its own");
    let (start_s, slots, length) = (cpu_s(), references.distinct(), references.ids.len());
    let clients = clients(references).expect("a server has so many clients");
    Ok(match scheme {
        Scheme::Ulc(_) => {
            let scheme = UlcClients::new(slots, clients, own, shared);
            run(length, Shared { references, clients, scheme }, watch, start_s)
        }
        Scheme::UniLru => {
            let scheme = UniLruClients::new(slots, clients, own, shared);
            run(length, Shared { references, clients, scheme }, watch, start_s)
        }
        Scheme::Independent(specs) => {
            run(length, Independent::new(references, clients, specs, capacities)?, watch, start_s)
        }
    })
}

/// A scheme that decides for all levels of one client.
struct Unified<'a, T> {
    references: &'a References,
    tier: T,
    moves: Vec<Move>,
}

impl<T: Tier> Caches for Unified<'_, T> {
    fn replay(&mut self, range: Range<usize>) {
        for &id in &self.references.ids[range] {
            self.tier.reference(Slot(id), &mut self.moves);
            // A slot belongs to its block for ever here, and there are no bytes to move.
            self.moves.clear();
        }
    }

    fn restart(&mut self) {
        self.tier.restart();
    }

    fn counts(&self) -> Vec<Counts> {
        vec![self.tier.counts().clone()]
    }

    /// None: a block is at one level.
    fn duplicates(&self) -> Duplicates {
        Duplicates::default()
    }
}

/// A scheme for several clients.
struct Shared<'a, J> {
    references: &'a References,
    clients: u16,
    scheme: J,
}

impl<J: Joint> Caches for Shared<'_, J> {
    fn replay(&mut self, range: Range<usize>) {
        for at in range {
            let client = self.references.streams.number(at) as u16;
            self.scheme.reference(client, Slot(self.references.ids[at]));
        }
    }

    fn restart(&mut self) {
        self.scheme.restart();
    }

    fn counts(&self) -> Vec<Counts> {
        (0..self.clients).map(|client| self.scheme.counts(client).clone()).collect()
    }

    fn duplicates(&self) -> Duplicates {
        let mut found = Duplicates::default();
        for slot in 0..self.references.distinct() {
            let further = self.scheme.copies(Slot(slot)).saturating_sub(1) as u64;
            found.blocks += u64::from(further > 0);
            found.copies += further;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use nigh_trace::Request;

    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{Loader, Ops, Options};

    fn references(blocks: impl Iterator<Item = u64>) -> References {
        let options =
            Options { block_bytes: 8192, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        let requests: Vec<Request> =
            blocks.map(|block| Request { offset: block * 8192, length: 8192, ..Request::default() }).collect();
        loader.push(&requests).unwrap();
        loader.finish()
    }

    /// Uniform references to 65,536 blocks: the dissertation's *random*.
    fn random(length: usize) -> References {
        let mut state = 1u64;
        references((0..length).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 48
        }))
    }

    fn shares(run: &Run) -> [f64; 3] {
        let [one, two, three, ..] = run.counts.hits.map(|hits| 100.0 * hits as f64 / run.counts.references as f64);
        [one, two, three]
    }

    /// Figure 5.9: 19.5, 1.7 and 0.3 % for indLRU.
    #[test]
    fn independent_levels_hold_the_same_blocks() {
        let references = random(1_000_000);
        let run = replay(
            &references,
            &"indlru".parse().unwrap(),
            &[12_800; 3],
            Watch { warmup: 100_000, ..Watch::default() },
        )
        .unwrap();
        let found = shares(&run);
        for (found, published) in found.iter().zip([19.5, 1.7, 0.3]) {
            assert!((found - published).abs() < 0.25, "{found} instead of {published}");
        }
        assert_eq!(run.counts.demotions, [0; LEVELS_MAX]);
        assert!((run.counts.mean_time(&[0.0, 1.0, 1.2, 11.2]) - 8.81).abs() < 0.03);
    }

    /// The first of several independent levels is a cache as any other, and so is a single level of any scheme.
    #[test]
    fn the_first_level_is_a_replay() {
        let references = random(200_000);
        for (scheme, spec) in
            [("ind:lirs/mq", "lirs"), ("ind:clock-pro", "clock-pro"), ("unilru", "lru"), ("indlru", "lru")]
        {
            let alone = crate::replay(
                &references,
                &spec.parse().unwrap(),
                5000,
                None,
                Watch { warmup: 999, ..Watch::default() },
            );
            let levels = if scheme == "unilru" { &[5000][..] } else { &[5000, 9000] };
            let progress = AtomicU64::new(0);
            let watch = Watch { warmup: 999, progress: Some(&progress), ..Watch::default() };
            let run = replay(&references, &scheme.parse().unwrap(), levels, watch).unwrap();
            assert_eq!(run.counts.hits[0], alone.unwrap().counts.hits, "{scheme}");
            assert_eq!((run.counts.references, progress.into_inner()), (199_001, 200_000));
        }
    }

    /// References of three clients, which share some of their blocks.
    fn of_clients(length: u64) -> References {
        let options =
            Options { block_bytes: 8192, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        let request = |at: u64| {
            let block = at * at % 89 + at % 3 * 30;
            Request { tenant: (at % 3) as u32, offset: block * 8192, length: 8192, ..Request::default() }
        };
        loader.push(&(0..length).map(request).collect::<Vec<_>>()).unwrap();
        loader.finish()
    }

    #[test]
    fn intervals_sum_to_the_totals() {
        let references = of_clients(70_003);
        for (warmup, gauges) in [(0, 150), (66_000, 7), (70_000, 150), (70_003, 5), (13, 0)] {
            let watch = Watch { warmup, gauges, ..Watch::default() };
            for scheme in ["ulc", "unilru", "ind:lru/mq"] {
                let scheme: Scheme = scheme.parse().unwrap();
                for run in [
                    replay(&references, &scheme, &[10, 30], watch).unwrap(),
                    replay_clients(&references, &scheme, &[10, 30], watch).unwrap(),
                ] {
                    let counted = 70_003 - warmup;
                    assert_eq!(run.intervals.len(), gauges.min(counted), "{scheme}");
                    let mut all = Counts::default();
                    let mut ends = warmup as u64;
                    for Interval { end, counts, duplicates } in &run.intervals {
                        all += counts;
                        ends += counts.references;
                        assert_eq!((*end, duplicates.is_some()), (ends, run.clients.len() == 1));
                    }
                    if !run.intervals.is_empty() {
                        assert_eq!((all, ends), (run.counts.clone(), 70_003), "{scheme}");
                    }
                    let mut all = Counts::default();
                    run.clients.iter().for_each(|counts| all += counts);
                    assert_eq!((run.counts.references, &all), (counted as u64, &run.counts), "{scheme}");
                }
            }
        }
    }

    /// Caches of LRU, the latest block last.
    fn reference(lru: &mut Vec<u32>, capacity: usize, id: u32) -> bool {
        let at = lru.iter().position(|&other| other == id);
        let victim = at.or((lru.len() == capacity).then_some(0));
        victim.map(|at| lru.remove(at));
        lru.push(id);
        at.is_some()
    }

    #[test]
    fn duplicates_are_counted_block_by_block() {
        let references = of_clients(3000);
        let duplicates = |caches: &[Vec<u32>]| {
            let copies = |id| caches.iter().filter(|cache| cache.contains(&id)).count() as u64;
            let further = (0..references.distinct()).map(|id| copies(id).saturating_sub(1));
            Duplicates { blocks: further.clone().filter(|&further| further > 0).count() as u64, copies: further.sum() }
        };
        let watch = Watch { gauges: 10, ..Watch::default() };
        let scheme: Scheme = "indlru".parse().unwrap();
        let run = replay(&references, &scheme, &[8, 20, 50], watch).unwrap();
        let mut caches = vec![Vec::new(); 3];
        let mut expected = Vec::new();
        for (at, &id) in (1..).zip(&references.ids) {
            let _ = [8, 20, 50].into_iter().zip(&mut caches).any(|(capacity, cache)| reference(cache, capacity, id));
            if at % 300 == 0 {
                expected.push(Some(duplicates(&caches)));
            }
        }
        assert_eq!(run.intervals.iter().map(|interval| interval.duplicates).collect::<Vec<_>>(), expected);
        assert_eq!(Some(run.duplicates), expected[9]);
        assert!(run.duplicates.copies > run.duplicates.blocks, "some block is at three levels: {:?}", run.duplicates);

        let run = replay_clients(&references, &scheme, &[8, 40], watch).unwrap();
        let mut caches = vec![Vec::new(); 4];
        for (at, &id) in references.ids.iter().enumerate() {
            if !reference(&mut caches[at % 3], 8, id) {
                reference(&mut caches[3], 40, id);
            }
        }
        assert_eq!(run.duplicates, duplicates(&caches));

        // Levels that are managed as one hold a block once, unless several clients do.
        for scheme in ["ulc", "unilru"] {
            let scheme: Scheme = scheme.parse().unwrap();
            let run = replay(&references, &scheme, &[8, 20, 50], watch).unwrap();
            assert_eq!(run.duplicates, Duplicates::default());
            assert!(run.intervals.iter().all(|interval| interval.duplicates == Some(Duplicates::default())));
            let run = replay_clients(&references, &scheme, &[8, 40], watch).unwrap();
            assert!((1..=24).contains(&run.duplicates.blocks), "{scheme}: {:?}", run.duplicates);
        }
    }

    /// The stacks of several clients have no parameters.
    #[test]
    fn parameters_are_for_a_single_client() {
        let references = of_clients(300);
        let watch = Watch::default();
        for (text, is_for_clients) in [
            ("ulc", true),
            ("ulc:ghosts=1", true),
            ("ulc:first=adapt", true),
            ("ulc:ghosts=100%", true),
            ("ulc:ghosts=2", false),
            ("ulc:first=out", false),
            ("ind:lirs:hir=2%", true),
        ] {
            let scheme: Scheme = text.parse().unwrap();
            assert!(replay(&references, &scheme, &[10, 30], watch).is_ok(), "{text}");
            let found = replay_clients(&references, &scheme, &[10, 30], watch);
            let is_refused = matches!(&found, Err(ClientsError::Parameters(spec)) if spec.to_string() == text);
            assert_eq!((found.is_ok(), is_refused), (is_for_clients, !is_for_clients), "{text}");
        }
    }

    #[test]
    fn schemes_are_written_as_they_are_read() {
        for (text, written) in [
            ("ulc", "ulc"),
            ("ulc:ghosts=0.5", "ulc:ghosts=0.5"),
            ("unilru", "unilru"),
            ("indlru", "ind:lru"),
            ("ind:lru/mq", "ind:lru/mq"),
            ("lirs", "ind:lirs"),
        ] {
            assert_eq!(text.parse::<Scheme>().unwrap().to_string(), written);
        }
        assert!("ind:lru/mqq".parse::<Scheme>().unwrap_err().to_string().contains("mqq"));
    }
}
