//! Generators: requests that follow a model instead of a recording. The same seed gives the same requests on any
//! machine.

// A description is checked when it is parsed; the code below uses its own numbers.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod clustered;
mod plain;
mod spec;
mod zipf;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::{Op, Request, Requests};
pub use spec::SpecError;

/// The most blocks of one component; every number up to it is exact in floating point.
const BLOCKS_MOST: u64 = 1 << 48;

/// Requests in a batch.
const BATCH: u64 = 4096;

/// The description of a generator in `nigh trace generate`.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorInfo {
    /// Its name: lower case, words joined by hyphens.
    pub name: &'static str,
    /// Its references, in one line.
    pub summary: &'static str,
    /// Its own parameters; see [`component_params`] for the common ones.
    pub params: &'static [Param],
    make: fn(&spec::Part, &mut Random) -> Result<Made, SpecError>,
}

/// One parameter of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name before the `=`.
    pub key: &'static str,
    /// The default, as a user would write it, or in words.
    pub default: &'static str,
    /// Meaning, unit and range, in one line.
    pub doc: &'static str,
}

/// A component built from its parameters.
struct Made {
    /// It refers to blocks `0..blocks`.
    blocks: u64,
    references: Box<dyn References + Send>,
}

/// A reference string over blocks counted from 0.
trait References {
    /// The next block, `None` at the end of the string.
    fn next(&mut self, random: &mut Random) -> Option<u64>;
}

const BLOCKS: Param = Param { key: "blocks", default: "100k", doc: "number of blocks it refers to" };
const ALPHA: Param = Param { key: "alpha", default: "1.0", doc: "exponent of Zipf's law, 0 (uniform) to 10" };
const SCATTER: Param =
    Param { key: "scatter", default: "yes", doc: "yes: popular blocks are anywhere; no: they come first" };

const REGISTRY: &[GeneratorInfo] = &[
    GeneratorInfo {
        name: "zipf",
        summary: "independent references; the popularity of blocks follows Zipf's law",
        params: &[BLOCKS, ALPHA, SCATTER],
        make: zipf::make,
    },
    GeneratorInfo {
        name: "uniform",
        summary: "independent references; all blocks are equally likely",
        params: &[BLOCKS],
        make: plain::uniform,
    },
    GeneratorInfo {
        name: "loop",
        summary: "the blocks from first to last, repeatedly",
        params: &[BLOCKS],
        make: plain::cyclic,
    },
    GeneratorInfo {
        name: "scan",
        summary: "the blocks from first to last, once",
        params: &[BLOCKS],
        make: plain::scan,
    },
    GeneratorInfo {
        name: "zigzag",
        summary: "the blocks from first to last and from last to first in turn",
        params: &[BLOCKS],
        make: plain::zigzag,
    },
    GeneratorInfo {
        name: "two-pools",
        summary: "a random index block and a random record block in turn (S. Jiang, dissertation, 2004, \
                  2.1.1 example 3: 2-pools has 100,000 requests)",
        params: &[
            Param { key: "index", default: "100", doc: "number of index blocks" },
            Param { key: "records", default: "10000", doc: "number of record blocks" },
        ],
        make: plain::two_pools,
    },
    GeneratorInfo {
        name: "clustered",
        summary: "temporally clustered: the LRU stack distances of references follow a distribution",
        params: &[
            BLOCKS,
            Param { key: "distances", default: "geometric", doc: "geometric or zipf, both limited to `blocks`" },
            Param { key: "mean", default: "1000", doc: "mean of the geometric distribution in blocks, at least 1" },
            ALPHA,
            SCATTER,
        ],
        make: clustered::make,
    },
];

const COMPONENT_PARAMS: &[Param] = &[
    Param { key: "weight", default: "1", doc: "its share of the requests of a mix, relative to the other generators" },
    Param { key: "tenant", default: "its position from 0", doc: "the tenant that issues the requests" },
    Param { key: "region", default: "after the previous one", doc: "number of its first block" },
    Param { key: "writes", default: "as for all", doc: "share of its requests that write, 0 to 1" },
];

/// All generators.
pub fn generators() -> &'static [GeneratorInfo] {
    REGISTRY
}

/// The parameters that every component has.
pub fn component_params() -> &'static [Param] {
    COMPONENT_PARAMS
}

/// The distribution of the time between two requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Always the mean.
    #[default]
    Constant,
    /// Exponential, so that requests form a Poisson process.
    Exponential,
}

/// Settings common to all components.
#[derive(Clone, Debug)]
pub struct Common {
    /// The number of requests, unless every component ends before.
    pub requests: u64,
    /// Bytes in a block; every request is for one block. At least 1.
    pub block_bytes: u32,
    /// The same seed gives the same requests.
    pub seed: u64,
    /// Share of requests that write, from 0 to 1, for components that do not set their own.
    pub writes: f64,
    /// Mean time between two requests in nanoseconds; 0 for a trace without time.
    pub gap_ns: u64,
    /// The distribution around that mean.
    pub arrivals: Arrivals,
}

impl Default for Common {
    fn default() -> Common {
        let arrivals = Arrivals::default();
        Common { requests: 100_000, block_bytes: 4096, seed: 0, writes: 0.0, gap_ns: 100_000, arrivals }
    }
}

/// One generator of a mix, and the fields of its requests.
struct Component {
    references: Box<dyn References + Send>,
    random: Random,
    weight: u64,
    writes: f64,
    /// Its first block.
    region: u64,
    tenant: u32,
    /// Its position in the description, from 0: the identity of the code that would issue its requests.
    stream: u64,
}

struct Phase {
    /// The components that have not ended.
    components: Vec<Component>,
    weights: u64,
    requests: u64,
}

/// Requests described by a text such as `zipf:blocks=1M:alpha=0.9` or `loop:blocks=2k:weight=3+uniform@50k,scan@10k`.
///
/// Places, operations, arrival times and turns are drawn from separate streams of the seed: a change of the share of
/// writes changes no offset.
pub struct Generator {
    phases: Vec<Phase>,
    /// The phase of the next request, and its remaining requests.
    phase: usize,
    phase_left: u64,
    turns: Random,
    ops: Random,
    gaps: Random,
    common: Common,
    made: u64,
    /// The time of the next request; `None` past 2^64 ns.
    clock_ns: Option<u64>,
}

impl Generator {
    /// The generator that `spec` describes: components joined by `+` are interleaved; mixes joined by `,` follow one
    /// another, each for the number of requests after its `@`.
    pub fn parse(spec: &str, common: &Common) -> crate::Result<Box<dyn Requests + Send>> {
        Ok(Box::new(Generator::new(spec, common)?))
    }

    fn new(spec: &str, common: &Common) -> Result<Generator, SpecError> {
        let bad = |option, expected| SpecError::BadCommon { option, expected };
        if !(0.0..=1.0).contains(&common.writes) {
            return Err(bad("writes", "a share from 0 to 1"));
        }
        if common.block_bytes == 0 {
            return Err(bad("block size", "at least 1 byte"));
        }
        let mut source = Random::seed_from_u64(common.seed);
        let mut stream = || {
            source.jump();
            source.clone()
        };
        let (turns, ops, gaps) = (stream(), stream(), stream());
        let mixes = spec::parse(spec)?;
        let equal_share = common.requests.div_ceil(mixes.len() as u64);
        let mut phases = Vec::new();
        let (mut position, mut end) = (0u32, 0);
        for mix in mixes {
            let mut components = Vec::new();
            for part in &mix.parts {
                let mut random = stream();
                let made = (part.info.make)(part, &mut random)?;
                let region = part.optional_count("region", 0, u64::MAX)?.unwrap_or(end);
                end = region
                    .checked_add(made.blocks)
                    .filter(|end| end.checked_mul(u64::from(common.block_bytes)).is_some())
                    .ok_or(SpecError::TooLarge { generator: part.info.name })?;
                components.push(Component {
                    references: made.references,
                    random,
                    weight: part.optional_count("weight", 1, 1_000_000)?.unwrap_or(1),
                    writes: part.optional_share("writes")?.unwrap_or(common.writes),
                    region,
                    tenant: part
                        .optional_count("tenant", 0, u64::from(u32::MAX))?
                        .map_or(position, |tenant| tenant as u32),
                    stream: u64::from(position),
                });
                position += 1;
            }
            let weights = components.iter().map(|component| component.weight).sum();
            phases.push(Phase { components, weights, requests: mix.requests.unwrap_or(equal_share) });
        }
        let phase_left = phases[0].requests;
        let common = common.clone();
        Ok(Generator { phases, phase: 0, phase_left, turns, ops, gaps, common, made: 0, clock_ns: Some(0) })
    }

    /// The request of the component whose turn it is, at time 0; `None` when all have ended.
    fn next(&mut self) -> Option<Request> {
        loop {
            let phase = &mut self.phases[self.phase];
            if self.phase_left == 0 || phase.components.is_empty() {
                if self.phases.iter().all(|phase| phase.components.is_empty()) {
                    return None;
                }
                self.phase = (self.phase + 1) % self.phases.len();
                self.phase_left = self.phases[self.phase].requests;
                continue;
            }
            let turn = match &phase.components[..] {
                [_] => 0,
                components => {
                    let mut ticket = self.turns.random_range(0..phase.weights);
                    let winner = components.iter().position(|component| {
                        let wins = ticket < component.weight;
                        ticket = ticket.saturating_sub(component.weight);
                        wins
                    });
                    winner.expect("a ticket is less than the sum of the weights")
                }
            };
            let component = &mut phase.components[turn];
            let Some(block) = component.references.next(&mut component.random) else {
                phase.weights -= component.weight;
                phase.components.remove(turn);
                continue;
            };
            self.phase_left -= 1;
            let writes = component.writes > 0.0 && self.ops.random::<f64>() < component.writes;
            return Some(Request {
                time_ns: 0,
                offset: (component.region + block) * u64::from(self.common.block_bytes),
                length: self.common.block_bytes,
                volume: 0,
                tenant: component.tenant,
                op: if writes { Op::Write } else { Op::Read },
                stream: component.stream,
                latency_ns: 0,
                content: 0,
            });
        }
    }

    fn advance_clock(&mut self) {
        let gap_ns = match self.common.arrivals {
            Arrivals::Constant => Some(self.common.gap_ns),
            Arrivals::Exponential => {
                let means = -libm::log1p(-self.gaps.random::<f64>());
                let gap_ns = libm::round(means * self.common.gap_ns as f64);
                (gap_ns < u64::MAX as f64).then_some(gap_ns as u64)
            }
        };
        self.clock_ns = self.clock_ns.zip(gap_ns).and_then(|(clock_ns, gap_ns)| clock_ns.checked_add(gap_ns));
    }
}

impl Requests for Generator {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> crate::Result<()> {
        batch.clear();
        for _ in 0..BATCH.min(self.common.requests - self.made) {
            let Some(request) = self.next() else { break };
            let time_ns = self.clock_ns.ok_or(SpecError::ClockOverflow)?;
            batch.push(Request { time_ns, ..request });
            self.advance_clock();
        }
        self.made += batch.len() as u64;
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        Some(if self.common.requests == 0 { 1.0 } else { self.made as f64 / self.common.requests as f64 })
    }
}
