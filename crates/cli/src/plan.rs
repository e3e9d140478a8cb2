//! `nigh plan`: whether more memory or another policy is worth it, answered from a trace or by a running server.

mod ahead;
mod level;
mod live;
mod price;
mod search;
mod timed;
mod told;
mod verdict;
mod words;

use std::path::Path;

use anyhow::{Context, bail, ensure};
use nigh_output::Destination;
use nigh_sim::plan::Advice;
use nigh_sim::{Loader, Options, Sizes};
use nigh_trace::format::parquet::ParquetReader;
use nigh_trace::{Gaps, Taken};

use crate::advise::memory;
use crate::args::PlanArgs;
use crate::results::{grouped, json};
use crate::{asked, grid, output, page, sim, source};
use price::Price;
use search::Search;
use verdict::Verdict;

/// The present memory unless it is given, in shares of the distinct blocks.
const HAVE: &str = "10%";
/// The present policy of programs that are recorded above the page cache.
const OF_THE_KERNEL: &str = "linux";
/// The policy of PostgreSQL's buffers.
const OF_POSTGRESQL: &str = "gclock";
/// The addition unless it is given: one part of the present memory in this many.
const ADD_PART: u64 = 4;
/// Of longer traces a sample is replayed, unless `--sample` is given or something was asked for that needs the whole trace.
const REFERENCES_MOST: usize = 4 << 20;
/// The target unless it is given, as a share of what the whole trace in memory would hit.
const TARGET_SHARE: f64 = 0.9;

/// The question, in blocks.
#[derive(Clone, Copy, Debug)]
struct Question {
    have: u64,
    add: u64,
    /// A hit ratio; without one, [`TARGET_SHARE`].
    target: Option<f64>,
}

impl Question {
    fn grown(self) -> u64 {
        self.have.saturating_add(self.add)
    }
}

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    if let Some(control) = &args.control {
        return live::run(args, control);
    }
    // Everything on the command line is looked at before the trace is, which may take long.
    let read = [args.trace()].into_iter().chain(args.device.as_deref().map(Path::new));
    let to = args.html.as_deref().map(|to| Destination::new(to, args.force, &read.collect::<Vec<_>>())).transpose()?;
    let mut specs = asked::parse_policies(&args.policy)?;
    let sample = args.sample.as_deref().map(|text| asked::parse_sample("--sample", text)).transpose()?;
    let mut left_out = if sample.is_some() { sim::leave_out_spatial(&mut specs, &args.policy)? } else { None };
    let present = specs.first().context("--policy: expected the present policy, and others to compare with it")?;
    ensure!(!present.info().offline, "--policy: the first is the present policy, but {present} must know the future");
    let sizes = [("--have", &args.have), ("--add", &args.add)];
    let [have, add] = sizes.map(|(flag, text)| text.as_deref().map(|text| one_size(flag, text)).transpose());
    let (have, add) = (have?, add?);
    let target = args.target.as_deref().map(parse_target).transpose()?;
    let price = args.cost.as_deref().map(|text| Price::parse("--cost", text)).transpose()?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    let asked = args.level.as_deref().map(|text| level::Asked::parse(text, args.level_cost.as_deref())).transpose()?;
    let timing = args.device.as_deref().map(|device| timed::settings(args, device)).transpose()?;
    ensure!(
        timing.is_none() || args.trace() != Path::new("-"),
        "--device: the trace is read twice, so it must be a file"
    );

    // The trace is read again for it.
    let readahead = ahead::rule(args)?.filter(|_| args.trace() != Path::new("-"));

    let (source, mut requests) = source::open(args.trace(), &args.input)?;
    ensure!(
        source.taken != Some(Taken::Above)
            || args.device.is_some()
            || args.readahead.as_deref().is_none_or(|rule| rule == "none"),
        "--readahead does not go with a recording of a program: the kernel reads ahead for it, by a rule of its own"
    );
    let needs_whole =
        sample.is_some() || args.device.is_some() || args.readahead.as_deref().is_some_and(|rule| rule != "none");
    let samples = !needs_whole && sim::leave_out_spatial(&mut specs.clone(), &args.policy).is_ok();
    let loader = Loader::new(Options {
        block_bytes: source.block_bytes,
        ops: args.ops.into(),
        collapse: false,
        sample,
        requests_most: limit.unwrap_or(u64::MAX),
    })
    .sampling_above(if samples { REFERENCES_MOST } else { usize::MAX });
    let references = source::load(loader, requests.as_mut())?;
    ensure!(references.ids.len() > 1, "{}: there is nothing to replay", source.name);
    let was_sampled = samples && references.sample.is_some();
    if was_sampled {
        left_out = sim::leave_out_spatial(&mut specs, &args.policy)?;
    }
    let gaps = Gaps::of(&requests.notes());
    let is_recorded = source.taken == Some(Taken::Above);
    if is_recorded && asked::are_usual(&args.policy) {
        specs.insert(0, OF_THE_KERNEL.parse()?);
    }
    let is_of_database = source.taken == Some(Taken::Database);
    if is_of_database && asked::are_usual(&args.policy) {
        // It has no other policy.
        specs = [OF_POSTGRESQL, "opt"].map(str::parse).into_iter().collect::<Result<_, _>>()?;
    }
    let distinct = references.distinct_in_trace();
    let blocks = |size: Sizes| anyhow::Ok(size.blocks(distinct, source.block_bytes)?[0]);
    let machine = if is_recorded && have.is_none() { memory::room() } else { None };
    let of_machine = machine.map(|bytes| (bytes / u64::from(source.block_bytes)).max(1));
    let have = match of_machine {
        Some(have) => have,
        None => blocks(have.unwrap_or_else(|| HAVE.parse().expect("the default is a size")))?,
    };
    let add = add.map(blocks).transpose()?.unwrap_or((have / ADD_PART).max(1));
    let question = Question { have, add, target };

    let threads = asked::threads(args.threads);
    let mut search = Search::new(&references, source::summary(&source, &references), threads);
    let answers = search.answers(&specs, question)?;
    let timed = timing.as_ref().map(|settings| timed::simulate(settings, &answers)).transpose()?;
    let [mut found, all] = search.into_found(&answers)?;
    found.results.notes.extend(left_out);
    if was_sampled {
        found.results.notes.push(format!(
            "the trace has {} references, so a sample of its blocks was replayed, and read-ahead was not compared; --sample 1 replays \
             all of it",
            grouped(references.totals.references)
        ));
    }
    let mut verdict = Verdict::new(&answers, timed, price, &found.results.trace, gaps);
    // The kernel reads ahead for programs that were recorded above its page cache, by a rule of its own.
    let is_served = !is_recorded && !is_of_database && verdict.advice != Advice::Record;
    if let Some(rule) = readahead.filter(|_| is_served && !was_sampled) {
        let policies: Vec<String> = answers.policies().map(ToString::to_string).collect();
        verdict.ahead = Some(ahead::compare(args, &rule, &policies, verdict.advised_blocks())?);
    }
    if let Some((asked, settings)) = asked.as_ref().zip(timing.as_ref()) {
        let policy = verdict.advised_policy().to_string();
        verdict.levels =
            Some(level::simulate(settings, asked, question, &verdict.trace, verdict.price.as_ref(), &policy)?);
    }
    let best_by_size = std::mem::take(&mut found.results.best_by_size);
    let told =
        words::tell(&verdict, args, source.taken, is_profiled(args.trace()), of_machine.is_some(), &best_by_size);
    let text = match args.json {
        true => json(&verdict.document(&told, &found.results))?,
        false => {
            let levels = verdict.levels.as_ref().map_or_else(String::new, |levels| format!("{}\n", levels.table()));
            format!("{told}\n{levels}{}", found.results.table(grid::terminal_width())).into_bytes()
        }
    };
    let page = to.as_ref().map(|to| {
        (to, |out: &mut dyn std::io::Write| {
            nigh_report::Report { verdict: Some(told.box_of_page()), ..page::page(&all, &references) }.write_html(out)
        })
    });
    output::print_and_write(&text, page, !args.json)
}

/// Whether a profile for `nigh advise` can be made of the trace.
fn is_profiled(trace: &Path) -> bool {
    let about = ParquetReader::open(trace, None, None).ok().and_then(|reader| reader.about());
    about.is_some_and(|about| !about.modules.is_empty())
}

fn one_size(flag: &str, text: &str) -> anyhow::Result<Sizes> {
    let size: Sizes = text.parse().with_context(|| flag.to_owned())?;
    ensure!(size.is_one(), "{flag} {text}: expected one size, not a range");
    Ok(size)
}

fn parse_target(text: &str) -> anyhow::Result<f64> {
    match nigh_text::share(text) {
        Some(share) if share > 0.0 => Ok(share),
        _ => bail!("--target {text}: expected a hit ratio above 0 and up to 1, such as 80% or 0.8"),
    }
}
