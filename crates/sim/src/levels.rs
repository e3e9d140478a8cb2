//! Several cache levels over a whole trace: one scheme for all of them, or levels that know nothing of each other.

use std::fmt;
use std::str::FromStr;

use nigh_policy::{Policy, Setup, Slot, Spec, SpecError, Visit};
use nigh_tier::{CLIENTS_MAX, Counts, Joint, LEVELS_MAX, Tier, Ulc, UlcClients, UniLru, UniLruClients};

use crate::References;
use crate::replay::{Cache, STRETCH, Watch, cpu_s};

/// How levels work together.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// Unified level-aware caching, [`Ulc`], with its parameters, which do not concern several clients: their stacks have any length, and
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

/// What a scheme did.
#[derive(Clone, Debug)]
pub struct Run {
    /// Hits and demotions, without the warm-up.
    pub counts: Counts,
    /// Processor time of the replay alone, in seconds.
    pub cpu_s: f64,
}

/// What a scheme did for several clients.
#[derive(Clone, Debug)]
pub struct ClientsRun {
    /// Hits and demotions of each client, without the warm-up.
    pub clients: Vec<Counts>,
    /// Processor time of the replay alone, in seconds.
    pub cpu_s: f64,
}

/// The clients of one server: the streams of the references, or one.
#[derive(Clone, Copy)]
struct Clients<'a> {
    references: &'a References,
    count: usize,
}

impl Clients<'_> {
    fn of(self, at: u32) -> usize {
        if self.count == 1 { 0 } else { self.references.streams.number(at as usize) as usize }
    }

    /// How many of the references numbered `at` are those of each client, after the warm-up.
    fn counted(self, at: &[u32], warmup: usize) -> Vec<u64> {
        let mut counts = vec![0; self.count];
        let first = at.partition_point(|&at| (at as usize) < warmup);
        at[first..].iter().for_each(|&at| counts[self.of(at)] += 1);
        counts
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

/// As [`replay`], for a client for each stream of `references`: each has levels of its own, except the last one, which they share.
///
/// # Errors
/// If a policy cannot run at a level's size.
///
/// # Panics
/// As [`replay`], with only one level, or if there are too many [`clients`].
pub fn replay_clients(
    references: &References,
    scheme: &Scheme,
    capacities: &[u32],
    watch: Watch,
) -> Result<ClientsRun, SpecError> {
    check(references, scheme, capacities, watch);
    let (&shared, own) = capacities.split_last().expect("levels");
    assert!(!own.is_empty(), "a client has a level of its own");
    let start = cpu_s();
    let count = clients(references).expect("a server has so many clients");
    let slots = references.distinct();
    let clients = match scheme {
        Scheme::Ulc(_) => joint(references, UlcClients::new(slots, count, own, shared), count, watch),
        Scheme::UniLru => joint(references, UniLruClients::new(slots, count, own, shared), count, watch),
        Scheme::Independent(specs) => {
            independent(Clients { references, count: count.into() }, specs, capacities, watch)?
        }
    };
    Ok(ClientsRun { clients, cpu_s: cpu_s() - start })
}

fn joint(references: &References, mut scheme: impl Joint, clients: u16, watch: Watch) -> Vec<Counts> {
    let length = references.ids.len();
    let mut at = 0;
    while at < length {
        let end = (at + STRETCH).min(if at < watch.warmup { watch.warmup } else { length });
        for at in at..end {
            scheme.reference(references.streams.number(at) as u16, Slot(references.ids[at]));
        }
        if !watch.did(end - at) {
            break;
        }
        at = end;
        if at == watch.warmup {
            scheme.restart();
        }
    }
    (0..clients).map(|client| scheme.counts(client).clone()).collect()
}

fn check(references: &References, scheme: &Scheme, capacities: &[u32], watch: Watch) {
    let has_policies = !matches!(scheme, Scheme::Independent(specs) if specs.is_empty());
    let are_levels = (1..=LEVELS_MAX).contains(&capacities.len()) && !capacities.contains(&0);
    assert!(has_policies && are_levels && watch.warmup <= references.ids.len(), "levels hold blocks and have policies");
}

/// Replays `references` through levels of `capacities` blocks, the first one first. `watch.gauges`
/// is not looked at.
///
/// # Errors
/// If a policy cannot run at a level's size.
///
/// # Panics
/// Without levels, with more than [`LEVELS_MAX`], if one holds no block, without policies for independent levels, or if the
/// warm-up exceeds the number of references.
pub fn replay(references: &References, scheme: &Scheme, capacities: &[u32], watch: Watch) -> Result<Run, SpecError> {
    check(references, scheme, capacities, watch);
    let start = cpu_s();
    let slots = references.distinct();
    let counts = match scheme {
        Scheme::Ulc(spec) => unified(references, Ulc::with(spec, slots, capacities)?, watch),
        Scheme::UniLru => unified(references, UniLru::new(slots, capacities), watch),
        Scheme::Independent(specs) => {
            let mut counts = independent(Clients { references, count: 1 }, specs, capacities, watch)?;
            counts.pop().expect("one client")
        }
    };
    Ok(Run { counts, cpu_s: cpu_s() - start })
}

fn unified(references: &References, mut tier: impl Tier, watch: Watch) -> Counts {
    let (before, counted) = references.ids.split_at(watch.warmup);
    run(&mut tier, before, watch);
    tier.restart();
    run(&mut tier, counted, watch);
    tier.counts().clone()
}

fn run(tier: &mut impl Tier, ids: &[u32], watch: Watch) {
    let mut moves = Vec::new();
    for ids in ids.chunks(STRETCH) {
        for &id in ids {
            tier.reference(Slot(id), &mut moves);
            // A slot belongs to its block for ever here, and there are no bytes to move.
            moves.clear();
        }
        if !watch.did(ids.len()) {
            break;
        }
    }
}

/// The levels one after the other: those of each client see its misses, and the last one those of all clients.
fn independent(
    clients: Clients<'_>,
    specs: &[Spec],
    capacities: &[u32],
    watch: Watch,
) -> Result<Vec<Counts>, SpecError> {
    let Clients { references, count } = clients;
    let all: Vec<u32> = (0..references.ids.len() as u32).collect();
    let mut counts: Vec<Counts> = clients
        .counted(&all, watch.warmup)
        .into_iter()
        .map(|references| Counts { references, ..Counts::default() })
        .collect();
    let mut of_clients = vec![Vec::new(); count];
    if count == 1 {
        of_clients[0] = all;
    } else {
        all.into_iter().for_each(|at| of_clients[clients.of(at)].push(at));
    }
    let last = capacities.len() - 1;
    for (level, &capacity) in capacities.iter().enumerate() {
        let spec = specs.get(level).unwrap_or(&specs[specs.len() - 1]);
        if level == last && count > 1 {
            let mut at = of_clients.concat();
            at.sort_unstable();
            of_clients = vec![at];
        }
        for at in &mut of_clients {
            let before = (at.len(), clients.counted(at, watch.warmup));
            *at = level_of(references, spec, capacity, watch, std::mem::take(at))?;
            let after = clients.counted(at, watch.warmup);
            for (counts, (before, after)) in counts.iter_mut().zip(before.1.iter().zip(after)) {
                counts.hits[level] += before - after;
            }
            if !watch.did(before.0 - at.len()) {
                return Ok(counts);
            }
        }
    }
    watch.did(of_clients.iter().map(Vec::len).sum());
    Ok(counts)
}

/// The references, of those numbered `at`, that a level misses.
fn level_of(
    references: &References,
    spec: &Spec,
    capacity: u32,
    watch: Watch,
    at: Vec<u32>,
) -> Result<Vec<u32>, SpecError> {
    let slots = references.distinct();
    let ghosts = nigh_policy::ghosts(spec, capacity)?.min(slots);
    let block_bytes = references.block_bytes;
    let setup = Setup { capacity, slots, block_bytes, ghosts, future: None, patterns: None };
    nigh_policy::visit(spec, &setup, Filter { references, capacity, watch, at })
}

/// A level that passes on what it misses.
struct Filter<'a> {
    references: &'a References,
    capacity: u32,
    watch: Watch<'a>,
    /// The references that reach it, by their numbers.
    at: Vec<u32>,
}

impl Visit for Filter<'_> {
    type Out = Vec<u32>;

    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> Vec<u32> {
        let Filter { references, capacity, watch, mut at } = self;
        let mut cache = Cache::new(references, capacity);
        let mut goes_on = true;
        at.retain(|&at| {
            if (at as usize).is_multiple_of(STRETCH) {
                goes_on = watch.did(0);
            }
            if !goes_on {
                return false;
            }
            let slot = Slot(references.ids[at as usize]);
            !cache.reference(&mut policy, slot, at as usize)
        });
        at
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
