//! `nigh sim --contents`: caches that use what blocks contain, side by side.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use nigh_content::BLOCK_BYTES;
use nigh_content::generated::{Kind, Machines};
use nigh_policy::Spec;
use nigh_sim::contents::replay::{Run, Scheme, replay};
use nigh_sim::contents::{Contents, Image, Recorded, Source};
use nigh_sim::replay::Watch;
use nigh_sim::rows::{ratio, rounded};
use nigh_sim::sizes::in_blocks;
use nigh_sim::threads::in_threads;
use nigh_sim::{References, TraceSummary};
use serde::{Deserialize, Serialize};

use crate::args::SimArgs;
use crate::results::{grouped, heading, json};
use crate::size::human_bytes;
use crate::{asked, output, progress, sim, source, together};

/// The version of the JSON.
const SCHEMA: u32 = 1;

pub(crate) fn run(args: &SimArgs, path: &Path) -> anyhow::Result<()> {
    // Everything on the command line is looked at before the trace is, which may take long.
    let policies = if asked::are_usual(&args.policy) {
        vec![asked::PLAIN_POLICY.parse()?]
    } else {
        asked::parse_policies(&args.policy)?
    };
    ensure!(!args.page()?.is_any() && !args.output.csv, "--contents: --html, --svg and --csv need --device");
    let schemes = schemes(&args.contents.content, &policies)?;
    let sizes = asked::parse_sizes(&args.size)?.unwrap_or_else(asked::few_sizes);
    let warmup = sim::parse_warmup(&args.warmup)?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    ensure!(args.is_one_trace(), "--contents takes one trace; --join makes one of several");
    let made = Made::read(path)?;

    let (source, mut requests) = source::sources(args)?.pop().context("no trace was given")?;
    together::check_streams(args)?;
    ensure!(
        source.block_bytes as usize == BLOCK_BYTES,
        "--contents: contents are of blocks of {BLOCK_BYTES} bytes, and those of {} have {}: set --block-size",
        source.name,
        source.block_bytes
    );
    let (references, trace) = source::load_whole(args, &source, requests.as_mut(), limit)?;
    let threads = asked::threads(args.threads);
    let plan = Plan {
        schemes,
        policies,
        sizes: in_blocks(&sizes, references.distinct_in_trace(), references.block_bytes)?,
        warmup: sim::warmup_of(warmup, references.ids.len())?,
        threads,
    };
    let seed = made.seed;
    let source = made.of(&references)?;
    let contents = Contents::new(&references, source, seed, threads).with_context(|| path.display().to_string())?;
    let found = Found {
        schema: SCHEMA,
        trace,
        distinct_contents: contents.distinct(),
        results: plan.replay(&references, &contents)?,
    };
    output::print(&if args.output.json { json(&found)? } else { found.table().into_bytes() })
}

/// The schemes named on a command line, or those that are usually of interest.
fn schemes(names: &[String], policies: &[Spec]) -> anyhow::Result<Vec<Scheme>> {
    let schemes = asked::each_once(names, "none,dedup,lpu,lpu-dedup,dedup+lz4,sketch", |name| {
        name.parse::<Scheme>().with_context(|| format!("--content {name}"))
    })?;
    for scheme in &schemes {
        let works = policies.iter().any(|policy| scheme.takes(policy));
        ensure!(works, "--content {scheme} orders blocks as LRU does: it needs --policy lru");
    }
    Ok(schemes)
}

/// Contents of blocks.
pub(crate) struct Made {
    /// None if the trace has it.
    source: Option<Source>,
    /// From which the contents of writes are made up.
    pub(crate) seed: u64,
}

impl Made {
    /// As in the file of --contents.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Made> {
        let described = asked::read_toml::<Described>(path)?;
        Ok(Made { seed: described.seed, source: described.source(path)? })
    }

    /// For these references.
    pub(crate) fn of(self, references: &References) -> anyhow::Result<Source> {
        let recorded = || {
            let recorded = Recorded::new(references, self.seed);
            recorded.context("recorded: the trace does not say what was read and written (column 'content')")
        };
        self.source.map_or_else(|| Ok(Source::Recorded(recorded()?)), Ok)
    }
}

/// The file of --contents.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    /// From which generated disks and the contents of writes are made up.
    #[serde(default = "one")]
    seed: u64,
    generated: Option<Generated>,
    #[serde(default)]
    recorded: bool,
    #[serde(default)]
    image: Vec<DescribedImage>,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generated {
    machines: usize,
    /// Blocks of each machine.
    blocks: usize,
    #[serde(default)]
    kind: GeneratedKind,
    /// The share of the blocks that has zeros.
    #[serde(default)]
    zeros: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GeneratedKind {
    #[default]
    Packages,
    Database,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedImage {
    path: PathBuf,
    /// The volume of the trace.
    #[serde(default)]
    volume: u32,
    /// Its beginning on the volume.
    offset: Option<String>,
}

/// Most machines, and most blocks of all generated machines together: a table has four bytes for each.
const MACHINES_MOST: usize = 1000;
const BLOCKS_MOST: usize = 1 << 28;

impl Described {
    /// None if the trace has it.
    fn source(self, path: &Path) -> anyhow::Result<Option<Source>> {
        let name = path.display();
        const EXPECTED: &str = "expected one of [generated], [[image]] and recorded = true";
        let given = [self.generated.is_some(), !self.image.is_empty(), self.recorded];
        ensure!(given.into_iter().filter(|&is_given| is_given).count() == 1, "{name}: {EXPECTED}");
        match self.generated {
            Some(Generated { machines, blocks, kind, zeros }) => {
                ensure!((1..=MACHINES_MOST).contains(&machines), "{name}: machines: expected 1 to {MACHINES_MOST}");
                let all = machines.checked_mul(blocks).filter(|all| (1..=BLOCKS_MOST).contains(all));
                ensure!(all.is_some(), "{name}: expected 1 to {BLOCKS_MOST} blocks of all machines together");
                ensure!((0.0..=1.0).contains(&zeros), "{name}: zeros: expected a share from 0 to 1");
                let kind = match kind {
                    GeneratedKind::Packages => Kind::Packages,
                    GeneratedKind::Database => Kind::Database,
                };
                Ok(Some(Source::Generated(Machines::of_kind(self.seed, machines, blocks, kind, zeros))))
            }
            None if self.recorded => Ok(None),
            // Relative paths begin at the folder of the file that has them.
            None => {
                let folder = path.parent().unwrap_or(Path::new(""));
                let images = self.image.into_iter().map(|image| image.open(folder));
                Ok(Some(Source::Images(images.collect::<anyhow::Result<_>>().with_context(|| name.to_string())?)))
            }
        }
    }
}

impl DescribedImage {
    fn open(self, folder: &Path) -> anyhow::Result<Image> {
        let path = folder.join(&self.path);
        let mut file = File::open(&path).with_context(|| path.display().to_string())?;
        // The length of a block device is where it ends, not what its file has.
        let bytes =
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).with_context(|| path.display().to_string())?;
        let offset = match self.offset.as_deref() {
            None => 0,
            Some(text) => nigh_text::bytes(text)
                .filter(|offset| offset % BLOCK_BYTES as u64 == 0)
                .with_context(|| format!("offset {text}: expected a multiple of {BLOCK_BYTES} bytes"))?,
        };
        let (first, blocks) = (offset / BLOCK_BYTES as u64, bytes / BLOCK_BYTES as u64);
        Ok(Image { volume: self.volume, first, blocks, file })
    }
}

/// The replays.
struct Plan {
    schemes: Vec<Scheme>,
    policies: Vec<Spec>,
    sizes: Vec<u64>,
    warmup: usize,
    threads: usize,
}

impl Plan {
    fn replay(&self, references: &References, contents: &Contents) -> anyhow::Result<Vec<Row>> {
        let mut jobs = Vec::new();
        for &size in &self.sizes {
            let capacity = u32::try_from(size).ok().with_context(|| format!("--size: {size} blocks are too many"))?;
            for policy in &self.policies {
                jobs.extend(
                    self.schemes.iter().filter(|scheme| scheme.takes(policy)).map(|&scheme| (scheme, policy, capacity)),
                );
            }
        }
        let done = AtomicU64::new(0);
        let bar = progress::references(jobs.len() as u64 * references.ids.len() as u64);
        let watch = Watch { warmup: self.warmup, progress: Some(&done), ..Watch::default() };
        let runs = progress::follow(bar, &done, || {
            in_threads(&jobs, self.threads, |&(scheme, policy, capacity)| {
                replay(references, contents, scheme, policy, capacity, watch)
            })
        });
        let rows = jobs.iter().zip(runs);
        rows.map(|(&(scheme, policy, capacity), run)| Ok(Row::new(scheme, policy, capacity, &run?))).collect()
    }
}

#[derive(Serialize)]
struct Found {
    schema: u32,
    trace: TraceSummary,
    /// Contents that the references have, those of writes included.
    distinct_contents: usize,
    results: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    content: &'static str,
    policy: String,
    size_blocks: u32,
    size_bytes: u64,
    references: u64,
    hits: u64,
    hit_ratio: f64,
    writes: u64,
    write_hits: u64,
    read_hit_ratio: Option<f64>,
    write_hit_ratio: Option<f64>,
    /// Blocks that can be read from the cache at the end, for each block of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lpu: Option<LpuRow>,
    cpu_s: f64,
}

/// Counts of LPU in the whole run, and its contents at the end.
#[derive(Serialize)]
struct LpuRow {
    reference_blocks: u32,
    associate_blocks: u32,
    independent_blocks: u32,
    delta_bytes: u64,
    scans: u64,
    encodes: u64,
    false_positives: u64,
    disconnected: u64,
    virtual_replaced: u64,
    data_replaced: u64,
    delta_replaced: u64,
    dissolved: u64,
}

impl Row {
    fn new(scheme: Scheme, policy: &Spec, capacity: u32, run: &Run) -> Row {
        let &Run { references, hits, writes, write_hits, factor, cpu_s, .. } = run;
        let share = |part, whole| ratio(part, whole).map(rounded);
        let lpu = run.lpu.map(|(counts, census)| LpuRow {
            reference_blocks: census.references,
            associate_blocks: census.associates,
            independent_blocks: census.independents,
            delta_bytes: u64::from(census.delta_blocks) * u64::from(nigh_content::lpu::DELTA_BLOCK_BYTES),
            scans: counts.scans,
            encodes: counts.encodes,
            false_positives: counts.false_positives,
            disconnected: counts.disconnected,
            virtual_replaced: counts.virtual_replaced,
            data_replaced: counts.data_replaced,
            delta_replaced: counts.delta_replaced,
            dissolved: counts.dissolved,
        });
        Row {
            content: scheme.name(),
            policy: policy.to_string(),
            size_blocks: capacity,
            size_bytes: u64::from(capacity) * BLOCK_BYTES as u64,
            references,
            hits,
            hit_ratio: share(hits, references).unwrap_or(0.0),
            writes,
            write_hits,
            read_hit_ratio: share(hits - write_hits, references - writes),
            write_hit_ratio: share(write_hits, writes),
            factor: factor.map(rounded),
            lpu,
            cpu_s,
        }
    }
}

impl Found {
    fn table(&self) -> String {
        let mut text = format!("{}\n", heading(&self.trace));
        let _ = writeln!(text, "{} distinct contents; hits in %\n", grouped(self.distinct_contents as u64));
        let head = [
            "size",
            "policy",
            "content",
            "hits",
            "reads",
            "writes",
            "blocks per block",
            "reference",
            "associate",
            "independent",
            "deltas",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        for row in &self.results {
            let percent = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", 100.0 * ratio));
            let lpu =
                |field: fn(&LpuRow) -> u32| row.lpu.as_ref().map_or("-".to_owned(), |lpu| grouped(field(lpu).into()));
            lines.push([
                human_bytes(row.size_bytes),
                row.policy.clone(),
                row.content.to_owned(),
                percent(Some(row.hit_ratio)),
                percent(row.read_hit_ratio),
                percent(row.write_hit_ratio),
                row.factor.map_or("-".to_owned(), |factor| format!("{factor:.2}")),
                lpu(|lpu| lpu.reference_blocks),
                lpu(|lpu| lpu.associate_blocks),
                lpu(|lpu| lpu.independent_blocks),
                row.lpu.as_ref().map_or("-".to_owned(), |lpu| human_bytes(lpu.delta_bytes)),
            ]);
        }
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for line in &lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
        }
        text
    }
}
