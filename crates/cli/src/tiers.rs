//! `nigh sim --levels`: schemes for several cache levels, side by side.

mod page;
mod results;

use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use nigh_sim::References;
use nigh_sim::levels::{self, Run, Scheme, replay, replay_clients};
use nigh_sim::replay::Watch;
use nigh_sim::threads::in_threads;
use nigh_tier::LEVELS_MAX;

use crate::args::SimArgs;
use crate::results::json;
use crate::{asked, clients, progress, sim, source, together};
use results::Found;

/// Intervals of the trace in which is counted what schemes do.
const INTERVALS: usize = 150;
/// Schemes unless --policy names others.
const SCHEMES: &[&str] = &["ulc", "unilru", "indlru", "ind:lru/mq", "ind:lirs"];

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    // Everything on the command line is looked at before the trace is, which may take long.
    let to = args.page()?;
    let schemes = schemes(&args.policy, args.clients)?;
    let sizes = args.levels.iter().map(|text| text.parse::<nigh_sim::Sizes>()).collect::<Result<Vec<_>, _>>()?;
    ensure!(sizes.len() <= LEVELS_MAX, "--levels: {} levels; at most {LEVELS_MAX} are simulated", sizes.len());
    ensure!(sizes.iter().all(|size| size.is_one()), "--levels: expected one size for each level, not a range");
    let costs = args.costs.iter().map(|text| time_ms(text)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        costs.is_empty() || costs.len() == sizes.len() + 1,
        "--costs: expected {} times, one for a hit at each level and one for a miss, but found {}",
        sizes.len() + 1,
        costs.len()
    );
    let warmup = sim::parse_warmup(&args.warmup)?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    ensure!(
        args.is_one_trace() || args.clients,
        "--levels takes one trace; --join makes one of several, and with --clients each is a client"
    );
    ensure!(
        !args.clients || sizes.len() > 1,
        "--clients: expected at least two levels, of which clients share the last one"
    );
    ensure!(costs.is_sorted(), "--costs: a lower level is faster than the one above it; expected ascending times");

    let mut opened = source::sources(args)?;
    together::check_streams(args)?;
    let (source, mut requests, names) = if args.clients {
        clients::clients(opened)?
    } else {
        let (source, requests) = opened.pop().context("no trace was given")?;
        (source, requests, Vec::new())
    };
    let (references, trace) = source::load_whole(args, &source, requests.as_mut(), limit)?;
    let warmup = sim::warmup_of(warmup, references.ids.len())?;
    let mut levels = Vec::new();
    for size in sizes {
        let blocks = size.blocks(references.distinct_in_trace(), references.block_bytes)?[0];
        levels.push(u32::try_from(blocks).ok().with_context(|| format!("--levels: {blocks} blocks are too many"))?);
    }
    let clients = args.clients.then(|| client_names(&references, &names)).transpose()?;
    let runs = replay_all(&references, &schemes, &levels, clients.is_some(), warmup, asked::threads(args.threads))?;
    let found = Found::new(trace, &references, &levels, &costs, clients, &schemes, &runs);
    let text = if args.output.json { json(&found)? } else { found.table().into_bytes() };
    to.write(&text, !args.output.json, || page::page(&found, &references))
}

/// The clients, and their names: those of their traces, or the numbers of tenants.
fn client_names(references: &References, traces: &[String]) -> anyhow::Result<Vec<(u64, String)>> {
    levels::clients(references)?;
    let name = |&stream: &u64| (stream, traces.get(stream as usize).cloned().unwrap_or_else(|| stream.to_string()));
    Ok(references.streams.all().iter().map(name).collect())
}

/// The schemes named on a command line, or the usual ones; for several clients or one.
fn schemes(names: &[String], clients: bool) -> anyhow::Result<Vec<Scheme>> {
    if asked::are_usual(names) {
        return Ok(SCHEMES.iter().map(|name| name.parse().expect("the usual schemes are schemes")).collect());
    }
    let mut schemes: Vec<Scheme> = Vec::new();
    for name in names {
        let scheme = name.parse::<Scheme>().with_context(|| format!("--policy {name}, with --levels"))?;
        scheme.check()?;
        if clients {
            scheme.check_clients().with_context(|| "--clients")?;
        }
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
    Ok(schemes)
}

/// A time such as 1.2ms, in milliseconds.
fn time_ms(text: &str) -> anyhow::Result<f64> {
    let seconds = if text == "0" { Some(0.0) } else { nigh_text::seconds(text) };
    let ms = seconds.map(|seconds| seconds * 1e3);
    ms.with_context(|| format!("--costs {text}: expected a time with its unit (ns, us, ms or s), such as 1.2ms"))
}

fn replay_all(
    references: &References,
    schemes: &[Scheme],
    levels: &[u32],
    clients: bool,
    warmup: usize,
    threads: usize,
) -> anyhow::Result<Vec<Run>> {
    let done = AtomicU64::new(0);
    let bar = progress::references(schemes.len() as u64 * references.ids.len() as u64);
    let watch = Watch { warmup, gauges: INTERVALS, progress: Some(&done), ..Watch::default() };
    let replay = |scheme: &Scheme| {
        if clients {
            return replay_clients(references, scheme, levels, watch);
        }
        Ok(replay(references, scheme, levels, watch)?)
    };
    let runs = progress::follow(bar, &done, || in_threads(schemes, threads, replay));
    Ok(runs.into_iter().collect::<Result<_, _>>()?)
}
