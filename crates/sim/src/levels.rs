//! Several cache levels over a whole trace: one scheme for all of them, or levels that know nothing of each other.

use std::fmt;
use std::str::FromStr;

use nigh_policy::{Policy, Setup, Slot, Spec, SpecError, Visit};
use nigh_tier::{Counts, LEVELS_MAX, Tier, Ulc, UniLru};

use crate::References;
use crate::replay::{Cache, STRETCH, Watch, cpu_s};

/// How levels work together.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// Unified level-aware caching, [`Ulc`].
    Ulc,
    /// One LRU stack over all levels, [`UniLru`].
    UniLru,
    /// Each level sees the misses of the one above and decides alone, by a policy of its own: the first level by the first policy, and
    /// so on. The last policy is that of all further levels. A block that misses is cached at every level it passes.
    Independent(Vec<Spec>),
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Ulc => f.write_str("ulc"),
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

    /// `ulc`, `unilru`, `indlru`, or `ind:POLICY/POLICY`, such as `ind:lru/mq`.
    fn from_str(text: &str) -> Result<Scheme, SpecError> {
        Ok(match text {
            "ulc" => Scheme::Ulc,
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
    let has_policies = !matches!(scheme, Scheme::Independent(specs) if specs.is_empty());
    let are_levels = (1..=LEVELS_MAX).contains(&capacities.len()) && !capacities.contains(&0);
    assert!(has_policies && are_levels && watch.warmup <= references.ids.len(), "levels hold blocks and have policies");
    let start = cpu_s();
    let slots = references.distinct();
    let counts = match scheme {
        Scheme::Ulc => unified(references, Ulc::new(slots, capacities), watch),
        Scheme::UniLru => unified(references, UniLru::new(slots, capacities), watch),
        Scheme::Independent(specs) => independent(references, specs, capacities, watch)?,
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

fn independent(references: &References, specs: &[Spec], capacities: &[u32], watch: Watch) -> Result<Counts, SpecError> {
    let warmup = watch.warmup;
    let distinct = references.distinct();
    let mut counts = Counts { references: (references.ids.len() - warmup) as u64, ..Counts::default() };
    let mut at: Vec<u32> = (0..references.ids.len() as u32).collect();
    for (level, &capacity) in capacities.iter().enumerate() {
        let spec = specs.get(level).unwrap_or(&specs[specs.len() - 1]);
        let ghosts = nigh_policy::ghosts(spec, capacity)?.min(distinct);
        let setup = Setup {
            capacity,
            slots: distinct,
            block_bytes: references.block_bytes,
            ghosts,
            future: None,
            patterns: None,
        };
        let counted = |at: &[u32]| at.len() - at.partition_point(|&at| (at as usize) < warmup);
        let (all, of_these) = (at.len(), counted(&at));
        at = nigh_policy::visit(spec, &setup, Filter { references, capacity, watch, at })?;
        counts.hits[level] = (of_these - counted(&at)) as u64;
        if !watch.did(all - at.len()) {
            break;
        }
    }
    watch.did(at.len());
    Ok(counts)
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
