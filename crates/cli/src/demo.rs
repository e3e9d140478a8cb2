//! `nigh demo`: the main job on a generated mixed workload, start to finish.

use nigh_sim::{Loader, Ops, Options};
use nigh_trace::generate::{Common, Generator};

use crate::args::{DemoArgs, OutputArgs};
use crate::sim::{self, Plan, Source};

/// A skewed table, a report that reads the same 12 MiB again and again, and a backup that reads everything once.
const WORKLOAD: &str = "zipf:blocks=60k:alpha=0.9:weight=6+loop:blocks=3k:weight=3+scan:blocks=100k:weight=1";
const REQUESTS: u64 = 1_000_000;
const BLOCK_BYTES: u32 = 4096;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let common = Common { requests: REQUESTS, block_bytes: BLOCK_BYTES, seed: 1, ..Common::default() };
    let mut requests = Generator::parse(WORKLOAD, &common)?;
    let options =
        Options { block_bytes: BLOCK_BYTES, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
    let references = sim::load(Loader::new(options), requests.as_mut())?;
    let source = Source { name: WORKLOAD.to_owned(), format: "generated".to_owned(), block_bytes: BLOCK_BYTES };
    let plan = Plan {
        specs: sim::parse_policies(&sim::POLICIES.split(',').map(str::to_owned).collect::<Vec<_>>())?,
        sizes: sim::default_sizes(),
        exact_lru: true,
        internals: None,
        record_internals: true,
        warmup: 0,
        threads: sim::threads(args.threads),
    };
    let found = sim::execute(&plan, &references, sim::summary(&source, &references))?;
    sim::write(&OutputArgs { json: false, csv: false, html: Some(args.html.clone()) }, &found, &references)?;
    println!("open {} in a browser; for a trace of your own: nigh sim TRACE --html report.html", args.html.display());
    Ok(())
}
