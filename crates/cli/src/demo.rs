//! `nigh demo`: the main job on a generated mixed workload, start to finish: serve it through several policies, compare
//! the figures in service with those of a replay, and replay it with the other policies and sizes.

mod live;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_output::Destination;
use nigh_policy::Spec;
use nigh_report::{Report, Verdict};
use nigh_sim::replay::Watch;
use nigh_sim::{Job, Loader, Ops, Options, References, Run, sweep};
use nigh_trace::Request;
use nigh_trace::generate::{Common, Generator};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{DemoArgs, OutputArgs};
use crate::pages::Pages;
use crate::results::grouped;
use crate::sim::{self, Plan};
use crate::size::{human_bytes, human_time};
use crate::source::{self, Source};
use crate::{asked, output, page, progress};
use live::{Disks, Hits, Served};

/// Tenant 0 has a skewed table and a report that reads the same 6 MiB again and again; tenant 1 has skewed files and a
/// backup that reads them all once.
const WORKLOAD: &str = "zipf:blocks=6k:alpha=1.0:weight=4:tenant=0:region=0\
    +loop:blocks=1500:weight=4:tenant=0:region=20k\
    +zipf:blocks=6k:alpha=1.0:weight=2:tenant=1:region=0\
    +scan:blocks=10k:weight=1:tenant=1:region=10k";
const BLOCK_BYTES: u32 = 4096;
/// Memory of the cache.
const MEMORY: u64 = 8 << 20;
/// The page, unless another file is named.
const PAGE: &str = "nigh-demo.html";
const TITLE: &str = "nigh demo";
/// How the title appears in the page's data.
const TITLE_ON_PAGE: &str = "\"title\":\"nigh demo\"";
/// Policies that serve in turn; the others are compared with the first one.
const SERVED: &str = "lru,arc,lirs,clock-pro";

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let path = args.html.as_deref().unwrap_or(Path::new(PAGE));
    let is_own = args.html.is_none() && std::fs::read_to_string(path).is_ok_and(|page| page.contains(TITLE_ON_PAGE));
    let to = Destination::new(path, args.force || is_own, &[])?;
    let requests = nigh_text::count(&args.requests).filter(|&requests| requests > 0);
    let requests = requests.with_context(|| format!("--requests {}: expected a count, such as 30k", args.requests))?;
    let requests = generate(requests)?;
    let references = load(&requests)?;
    let specs = asked::parse_policies(&SERVED.split(',').map(str::to_owned).collect::<Vec<_>>())?;

    let served = serve(&requests, &specs)?;
    let jobs: Vec<Job> = specs
        .iter()
        .map(|spec| Job { spec: spec.clone(), capacity: (MEMORY / u64::from(BLOCK_BYTES)) as u32, gauges: 0 })
        .collect();
    let runs = sweep(&references, &jobs, asked::threads(args.threads), Watch::default())?;
    output::print(compared(&specs, &served, &runs).as_bytes())?;

    let source = Source {
        name: "the same requests".to_owned(),
        format: "generated".to_owned(),
        block_bytes: BLOCK_BYTES,
        taken: None,
    };
    let plan = Plan {
        specs: asked::parse_policies(&asked::POLICIES.split(',').map(str::to_owned).collect::<Vec<_>>())?,
        sizes: asked::default_sizes(),
        exact_lru: true,
        record_internals: true,
        shards: 1,
        warmup: 0,
        threads: asked::threads(args.threads),
    };
    let found = sim::execute(&plan, &references, source::summary(&source, &references))?;
    let output = OutputArgs { json: false, csv: false, html: None, svg: None, force: false };
    sim::write(&output, &Pages::only(to), &found, || Report {
        title: TITLE.to_owned(),
        verdict: verdict(&specs, &served),
        served: specs.iter().zip(&served).map(|(spec, served)| on_page(spec, served)).collect(),
        ..page::page(&found, &references)
    })?;
    let next = format!(
        "\nOpen {} in a browser. Next, a trace and a disk of your own:\n\n    \
         nigh sim TRACE --html report.html\n    \
         nigh serve --memory 512M --policy lirs root=/srv/vm/root.img --listen unix:/run/nigh.sock\n",
        path.display()
    );
    output::print(next.as_bytes())
}

/// The workload: the volume of a request is its tenant's disk.
fn generate(requests: u64) -> anyhow::Result<Vec<Request>> {
    let common = Common { requests, block_bytes: BLOCK_BYTES, seed: 1, ..Common::default() };
    let mut generator = Generator::parse(WORKLOAD, &common)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        generator.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok(all);
        }
        all.extend(batch.iter().map(|request| Request { volume: request.tenant, ..*request }));
    }
}

fn load(requests: &[Request]) -> anyhow::Result<References> {
    let options =
        Options { block_bytes: BLOCK_BYTES, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    loader.push(requests)?;
    Ok(loader.finish())
}

/// Serves the requests through each policy in turn, and prints what came of it. A signal ends it, and nothing is left.
fn serve(requests: &[Request], specs: &[Spec]) -> anyhow::Result<Vec<Served>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Once `stop` is set, the next signal ends the process.
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    let disks = Disks::create(&stop)?;
    let heading = format!(
        "two disks in {}, delayed ({})\n{} requests of two tenants over {} connections, through a cache of {}\n\n\
         {:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>13} {:>9} {:>7}\n",
        disks.folder().display(),
        live::SLOWNESS,
        grouped(requests.len() as u64),
        live::CLIENTS * live::TENANTS.len(),
        human_bytes(MEMORY),
        "policy",
        "hit ratio",
        live::TENANTS[0],
        live::TENANTS[1],
        "p50",
        "p99",
        "device reads",
        "elapsed",
        "of LRU"
    );
    output::print(heading.as_bytes())?;
    let mut all: Vec<Served> = Vec::new();
    for spec in specs {
        let done = AtomicU64::new(0);
        let bar = progress::requests(spec.to_string(), requests.len() as u64);
        let served = progress::follow(bar, &done, || live::serve(&disks, spec, MEMORY, requests, &done, &stop))?;
        let elapsed_of_first = all.first().map_or(served.elapsed, |first| first.elapsed);
        output::print(row(spec, &served, elapsed_of_first).as_bytes())?;
        all.push(served);
    }
    drop(disks);
    let stopped = stop.swap(true, Ordering::Relaxed);
    ensure!(!stopped, "interrupted");
    Ok(all)
}

fn row(spec: &Spec, served: &Served, elapsed_of_first: Duration) -> String {
    let [first, second] = served.hits;
    format!(
        "{:<10} {:>7.2} % {:>7.2} % {:>7.2} % {:>9} {:>9} {:>13} {:>7.2} s {:>7.2}\n",
        spec.to_string(),
        served.sum().percent(),
        first.percent(),
        second.percent(),
        latency(served.quantile(0.50)),
        latency(served.quantile(0.99)),
        grouped(served.device_reads),
        served.elapsed.as_secs_f64(),
        served.elapsed.as_secs_f64() / elapsed_of_first.as_secs_f64()
    )
}

fn latency(time: Duration) -> String {
    human_time(Some(time.as_micros() as f64))
}

/// Measurements in service, for the page.
fn on_page(spec: &Spec, served: &Served) -> nigh_report::Served {
    let us = |share| served.quantile(share).as_secs_f64() * 1e6;
    nigh_report::Served {
        policy: spec.to_string(),
        hit_ratio: served.sum().percent() / 100.0,
        p50_us: us(0.50),
        p99_us: us(0.99),
        device_reads: served.device_reads,
        elapsed_s: served.elapsed.as_secs_f64(),
    }
}

/// The fastest policy beside the first.
fn verdict(specs: &[Spec], served: &[Served]) -> Option<Verdict> {
    let (first, before) = specs.iter().zip(served).next()?;
    let (best, after) = specs.iter().zip(served).min_by_key(|(_, served)| served.elapsed)?;
    let [took, instead] = [after, before].map(|served| served.elapsed.as_secs_f64());
    let headline = format!(
        "{best} served the requests in {took:.2} s, {first} in {instead:.2} s: {:.0} % less.",
        100.0 * (1.0 - took / instead)
    );
    let [hits, hits_before] = [after, before].map(|served| served.sum().percent());
    let time = |served: &Served, share| latency(served.quantile(share));
    let latency = format!(
        "Half of the requests took at most {} instead of {}; 99 % took at most {} instead of {}.",
        time(after, 0.50),
        time(before, 0.50),
        time(after, 0.99),
        time(before, 0.99)
    );
    let facts = [
        ("latency", latency),
        (
            "hits",
            format!(
                "{hits:.2} % instead of {hits_before:.2} % of the requests, in a cache of {}.",
                human_bytes(MEMORY)
            ),
        ),
        ("device", format!("{} reads instead of {}.", grouped(after.device_reads), grouped(before.device_reads))),
    ];
    let facts = facts.map(|(about, sentence)| (about.to_owned(), sentence)).into();
    Some(Verdict { headline, facts, next: "nigh plan TRACE --have SIZE".to_owned() })
}

/// Measurements in service beside a replay of the same requests.
fn compared(specs: &[Spec], served: &[Served], runs: &[Run]) -> String {
    let mut text = format!(
        "\nEvery byte read was right. A replay runs the same policy code on the same requests, without a disk:\n\n\
         {:<10} {:>9} {:>9}   difference\n",
        "hit ratio", "served", "replayed"
    );
    let mut is_same = true;
    for ((spec, served), run) in specs.iter().zip(served).zip(runs) {
        let replayed = Hits { hits: run.counts.hits, requests: run.counts.references };
        let served = served.sum();
        is_same &= served.hits == replayed.hits;
        let _ = writeln!(
            text,
            "{:<10} {:>7.2} % {:>7.2} %   {:+} of {} hits",
            spec.to_string(),
            served.percent(),
            replayed.percent(),
            i128::from(served.hits) - i128::from(replayed.hits),
            grouped(replayed.hits)
        );
    }
    text.push_str(if is_same {
        "\n"
    } else {
        "\nWhere they differ, requests of several connections reached the cache in another order than that of the trace.\n\n"
    });
    text
}
