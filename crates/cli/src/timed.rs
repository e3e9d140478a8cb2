//! `nigh sim --device`: programs at a cache on a modelled device, under a virtual clock.

mod disks;
mod page;
mod results;

use std::path::Path;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, anyhow, bail, ensure};
use nigh_content::Scheme;
use nigh_control::{Config, Event, among_tenants, sidecar};
use nigh_device::Profile;
use nigh_engine::Scheduler;
use nigh_policy::{Spec, Tenant};
use nigh_service::ContentSettings;
use nigh_sim::rows::ghosts;
use nigh_sim::sizes::in_blocks;
use nigh_sim::timed::{
    Devices, Disk, Encoded, Level, Loaded, Pacing, Processors, ProgramError, Programs, Recorded, Setup, Subject, Think,
    TimedError, check, profile, sweep,
};
use nigh_sim::{Ops, References, TraceSummary};
use nigh_trace::layout;
use serde::Serialize;

use crate::args::{ContentsArgs, OutputArgs, Processor, SimArgs, TimedArgs};
use crate::contents::Made;
use crate::pages::Pages;
use crate::results::{Found, csv, json};
use crate::size::human_time;
use crate::source::{self, Opened, Source};
use crate::{asked, grid, output, progress, sim, together};
use results::{DeviceSummary, Issue, LevelSummary, OfLevel, Results, Row};

/// How long one policy took at one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timing {
    pub(crate) policy: String,
    pub(crate) size_blocks: u64,
    pub(crate) execution_s: f64,
    /// How long programs waited for replies.
    pub(crate) waited_s: f64,
    /// The mean latency of the requests.
    pub(crate) latency_mean_us: Option<f64>,
    /// The latency that 99 % of the requests do not exceed.
    pub(crate) latency_p99_us: Option<f64>,
    /// Whether all requests waited for the replies to those before, at their programs' own pace.
    pub(crate) is_closed: bool,
    /// Whether requests of an open loop came faster than they could be replied to.
    pub(crate) overloaded: bool,
    /// Use of its first level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<OfLevel>,
}

/// How long requests took: all together where they wait for each other, otherwise one on average.
pub(crate) fn wait(is_closed: bool, waited_s: f64, latency_mean_us: Option<f64>) -> String {
    if is_closed { format!("{waited_s:.3} s") } else { human_time(latency_mean_us) }
}

/// A device that takes no time.
const AT_ONCE: &str = "instant";

pub(crate) fn run(args: &SimArgs, device: &str) -> anyhow::Result<()> {
    together::check_streams(args)?;
    let to = args.page()?;
    let (results, references) = simulate(args, device)?;
    write(&args.output, &to, &results, &references)
}

/// Hit ratios with read-ahead, on a device that takes no time.
pub(crate) fn run_at_once(args: &SimArgs) -> anyhow::Result<()> {
    ensure!(
        args.is_one_trace(),
        "--readahead without --device takes one trace: with --device, several are programs at a time"
    );
    together::check_streams(args)?;
    let to = args.page()?;
    let (results, references) = simulate(args, AT_ONCE)?;
    let found = Found { results: results.untimed(), internals: Vec::new() };
    sim::write(&args.output, &to, &found, || crate::page::page(&found, &references))
}

/// The rows of `run_at_once`.
pub(crate) fn rows_at_once(args: &SimArgs) -> anyhow::Result<Vec<nigh_sim::Row>> {
    Ok(simulate(args, AT_ONCE)?.0.untimed().results)
}

/// The times alone.
pub(crate) fn timings(args: &SimArgs, device: &str) -> anyhow::Result<Vec<Timing>> {
    let timing = |row: Row| Timing {
        waited_s: row.waited_s(),
        level: row.of_level(),
        is_closed: row.is_closed(),
        policy: row.figures.policy,
        size_blocks: row.figures.size_blocks,
        execution_s: row.figures.execution_s,
        latency_mean_us: row.figures.latency_mean_us,
        latency_p99_us: row.figures.latency_p99_us,
        overloaded: row.figures.overloaded,
    };
    Ok(simulate(args, device)?.0.results.into_iter().map(timing).collect())
}

/// Checks the settings that need no trace.
pub(crate) fn check_settings(args: &TimedArgs, device: &str) -> anyhow::Result<()> {
    Settings::parse(args, device).map(drop)
}

/// How devices are used.
struct Settings {
    devices: Devices,
    readahead: nigh_prefetch::Spec,
    scheduler: Scheduler,
    think: Option<Think>,
    pacing: Option<Pacing>,
}

impl Settings {
    fn parse(args: &TimedArgs, device: &str) -> anyhow::Result<Settings> {
        Ok(Settings {
            devices: Devices::parse(device).with_context(|| format!("--device {device}"))?,
            readahead: args.readahead.as_deref().map_or(Ok(nigh_prefetch::Spec::SERVED), str::parse)?,
            scheduler: args.scheduler.parse()?,
            think: args.think.as_deref().map(str::parse).transpose().map_err(|error| anyhow!("--think {error}"))?,
            pacing: args.pace.as_deref().map(str::parse).transpose().map_err(|error| anyhow!("--pace {error}"))?,
        })
    }
}

fn simulate(args: &SimArgs, device: &str) -> anyhow::Result<(Results, References)> {
    // Everything on the command line is looked at before the traces are, which may take long.
    let timed = &args.timed;
    let tenants = timed.allocate.map(|allocate| Config {
        allocation: allocate.into(),
        batch: timed.prefetch.batch,
        adapt_batch: timed.prefetch.adapts,
        window: timed.prefetch.window,
        ..Config::default()
    });
    let is_one = (tenants.is_some() || args.contents.contents.is_some()) && asked::are_usual(&args.policy);
    let specs = if is_one { vec![asked::PLAIN_POLICY.parse()?] } else { policies(&args.policy, &timed.level)? };
    let events = timed.control.as_deref().map(events).transpose()?.unwrap_or_default();
    let sizes = asked::parse_sizes(&args.size)?.unwrap_or_else(asked::default_sizes);
    let Settings { devices: asked_devices, readahead, scheduler, think, mut pacing } = Settings::parse(timed, device)?;
    if pacing.is_none() && args.generation.arrivals.is_some() {
        // Its times were asked for.
        pacing = Some(Pacing::Open { speed: 1.0 });
    }
    let asked_levels = timed.level.iter().map(|text| level(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let levels: Vec<Level> = asked_levels.iter().map(|(_, profile, bytes)| Level { profile, bytes: *bytes }).collect();
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?.unwrap_or(u64::MAX);
    let layouts = timed.extents.iter().map(|path| layout::read_extents(path)).collect::<Result<Vec<_>, _>>()?;
    ensure!(
        layouts.len() <= 1 || layouts.len() == args.trace.len(),
        "--extents: {} lists for {} traces: expected one for all, or one for each",
        layouts.len(),
        args.trace.len()
    );
    ensure!(tenants.is_none() || layouts.len() <= 1, "--allocate: tenants name files by one --extents list for all");
    ensure!(
        layouts.is_empty() || args.is_one_trace() || timed.shared,
        "--extents: files are laid out on one disk, and each of several traces has disks of its own: add --shared"
    );
    let seed = args.generation.seed.unwrap_or(1);
    let warmup = sim::parse_warmup(&args.warmup)?;
    let ops = Ops::from(args.ops);
    let encodings = Encodings::parse(&args.contents)?;
    let made = args.contents.contents.as_deref().map(Made::read).transpose()?;

    let programs = |block_bytes| {
        let programs = Programs::new(pacing, think, ops, block_bytes, limit);
        if timed.shared { programs.sharing_disks() } else { programs }
    };
    let (loaded, summary) = load(source::sources(args)?, programs, &events)?;
    let speed = match pacing {
        Some(Pacing::Open { speed }) => speed,
        _ => 1.0,
    };
    let issue = Issue::new(&loaded.programs, timed.think.clone(), speed);
    let numbers = loaded.volumes.numbers();
    ensure!(
        layouts.is_empty() || numbers.len() <= 1,
        "--extents: the traces have {} volumes, and files are laid out on one disk",
        numbers.len()
    );
    let contents_seed = made.as_ref().map_or(0, |made| made.seed);
    let contents = made.map(|made| made.of(&loaded.references)).transpose()?;
    let devices = asked_devices.of(numbers, &loaded.programs).with_context(|| format!("--device {device}"))?;
    let disks: Vec<Disk> = devices.iter().map(|device| Disk { profile: &device.profile, layouts: &layouts }).collect();
    let done = AtomicU64::new(0);
    let mut setup = Setup {
        programs: &loaded.programs,
        block_bytes: loaded.references.block_bytes,
        disks: &disks,
        levels: &levels,
        encoded: None,
        seed,
        readahead: &readahead,
        scheduler,
        tenants: tenants.as_ref(),
        processors: Processors::Each,
        processor_ns_a_block: 0,
        warmup: 0,
        progress: Some(&done),
        stop: None,
    };
    let references = usize::try_from(setup.references()).context("more references than addresses")?;
    setup.warmup = sim::warmup_of(warmup, references)? as u64;
    let setups: Vec<(Option<&str>, Setup)> = match &contents {
        None => vec![(None, setup)],
        Some(source) => {
            let encoded =
                |scheme| Encoded { source, volumes: numbers, seed: contents_seed, scheme, cpu: encodings.cpu };
            let of = |&scheme: &Option<Scheme>| {
                let setup = Setup { encoded: scheme.map(encoded), ..setup.clone() };
                (Some(scheme.map_or("none", Scheme::name)), setup)
            };
            encodings.schemes.iter().map(of).collect()
        }
    };
    for (_, setup) in &setups {
        check(setup).map_err(|error| match error {
            TimedError::Level { .. } => anyhow!("--level: {error}"),
            TimedError::ContentBlocks { .. } => anyhow!("--contents: {error}: set --block-size"),
            error => anyhow!("device {device}: {error}"),
        })?;
    }
    let block_bytes = loaded.references.block_bytes;
    let distinct = loaded.references.distinct_in_trace();
    let blocks = in_blocks(&sizes, distinct, block_bytes)?;
    let mut jobs = Vec::new();
    for spec in &specs {
        for &size in &blocks {
            let capacity =
                u32::try_from(size).ok().with_context(|| format!("a cache of {size} blocks is too large"))?;
            jobs.push((spec.clone(), capacity));
        }
    }
    let steps: usize = loaded.programs.iter().map(|program| program.steps.len()).sum();
    let bar = progress::requests("simulating".to_owned(), (setups.len() * jobs.len() * steps) as u64);
    let threads = asked::threads(args.threads);
    let outcomes = progress::follow(bar, &done, || {
        setups.iter().map(|(_, setup)| sweep(setup, &jobs, threads)).collect::<Result<Vec<_>, _>>()
    })?;

    let names: Vec<&str> = loaded.programs.iter().map(|program| program.name.as_str()).collect();
    let mut rows = Vec::new();
    for (at, (spec, size)) in jobs.iter().enumerate() {
        for ((content, _), outcomes) in setups.iter().zip(&outcomes) {
            let policy = match timed.allocate {
                Some(allocate) => among_tenants(allocate.into(), spec),
                None => spec.to_string(),
            };
            let ghosts = ghosts(spec, u64::from(*size));
            let subject = Subject { policy, size_blocks: *size, block_bytes, ghosts };
            rows.push(Row::new(subject, *content, &names, &outcomes[at]));
        }
    }
    let results = Results::new(
        summary,
        DeviceSummary::of_all(&devices, device),
        devices.iter().map(DeviceSummary::of).collect(),
        asked_levels.iter().map(|(name, profile, bytes)| LevelSummary::new(name, profile, *bytes)).collect(),
        [readahead.to_string(), scheduler.to_string()],
        issue,
        seed,
        rows,
    );
    Ok((results, loaded.references))
}

/// The caches that use what blocks contain.
struct Encodings {
    /// None encodes nothing.
    schemes: Vec<Option<Scheme>>,
    cpu: f64,
}

impl Encodings {
    fn parse(args: &ContentsArgs) -> anyhow::Result<Encodings> {
        let schemes = asked::each_once(&args.content, "none,dedup+lz4,sketch", |name| match name {
            "none" => Ok(None),
            "lpu" | "lpu-dedup" => bail!("--content {name}: it is replayed without --device only"),
            name => Ok(Some(name.parse::<Scheme>().with_context(|| format!("--content {name}"))?)),
        })?;
        Ok(Encodings { schemes, cpu: args.content_cpu.as_ref().map_or(ContentSettings::CPU, |Processor(cpu)| *cpu) })
    }
}

/// The policies named on a command line; of the usual ones those that need no future.
fn policies(names: &[String], levels: &[String]) -> anyhow::Result<Vec<Spec>> {
    let parse = if levels.is_empty() { asked::parse_policies } else { asked::parse_policies_and_schemes };
    let mut specs = parse(names)?;
    if asked::are_usual(names) || names == ["all"] {
        specs.retain(|spec| !spec.info().offline);
    }
    match specs.iter().find(|spec| spec.info().offline) {
        Some(spec) => bail!(
            "{spec} needs to know the future, which depends on time and on what is fetched ahead: it runs without --device and --readahead only"
        ),
        None => Ok(specs),
    }
}

/// The name of a level's device, its profile, and how much of it is used.
fn level(text: &str) -> anyhow::Result<(String, Profile, u64)> {
    let (name, size) = text
        .rsplit_once(':')
        .and_then(|(name, size)| Some((name, nigh_text::bytes(size).filter(|&bytes| bytes > 0)?)))
        .filter(|(name, _)| !name.is_empty())
        .with_context(|| format!("--level {text}: expected a device profile and a size, such as ssd-nvme:64M"))?;
    Ok((name.to_owned(), profile(name).with_context(|| format!("--level {text}"))?, size))
}

/// The directives of a sidecar.
fn events(path: &Path) -> anyhow::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    sidecar::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Reads the traces; `programs` makes what they become, of blocks of this many bytes.
fn load(
    sources: Vec<Opened>,
    programs: impl FnOnce(u32) -> Programs,
    events: &[Event],
) -> anyhow::Result<(Loaded, TraceSummary)> {
    if let Some(event) = events.iter().find(|event| event.tenant.0 as usize >= sources.len()) {
        bail!("--control: tenant {} is none of the {} traces, numbered from 0", event.tenant.0, sources.len());
    }
    let block_bytes = sources.first().map_or(4096, |(source, _)| source.block_bytes);
    let mut programs = programs(block_bytes);
    let (mut names, mut formats) = (Vec::new(), Vec::new());
    for (number, (source, mut requests)) in (0..).zip(sources) {
        let says = events.iter().filter(|event| event.tenant == Tenant(number)).cloned().collect();
        let bar = progress::share("reading");
        let Source { name, format, block_bytes, .. } = &source;
        let recorded = Recorded { name, format, block_bytes: *block_bytes, requests: requests.as_mut(), says };
        programs.read(recorded, |_, share| progress::at(&bar, share)).map_err(|error| match error {
            ProgramError::Blocks { .. } => anyhow!("{error}: set --block-size"),
            ProgramError::Nothing { .. } => anyhow!("{error}: no request is what --ops asks for"),
            ProgramError::Times { .. } => anyhow!("{error}: leave out --pace, or give --pace closed"),
            error => error.into(),
        })?;
        bar.finish_and_clear();
        names.push(source.name);
        formats.push(source.format);
    }
    formats.dedup();
    let loaded = programs.finish();
    let source = Source { name: names.join(" + "), format: formats.join(", "), block_bytes, taken: None };
    let summary = source::summary(&source, &loaded.references);
    Ok((loaded, summary))
}

fn write(args: &OutputArgs, to: &Pages, results: &Results, references: &References) -> anyhow::Result<()> {
    if args.json || args.csv {
        results.notes.iter().for_each(|note| output::tell(format_args!("nigh: note: {note}")));
    }
    let text = if args.json {
        json(results)?
    } else if args.csv {
        csv(results.results.iter().map(|row| &row.figures))?
    } else {
        results.table(grid::terminal_width()).into_bytes()
    };
    to.write(&text, !args.json && !args.csv, || page::page(results, references))
}
