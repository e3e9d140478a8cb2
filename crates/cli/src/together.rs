//! Flags that do not go together, and flags that do nothing in some mode, with the reason.

use std::path::Path;

use anyhow::bail;
use nigh_sim::timed::{Pacing, Think};

use crate::args::{PlanArgs, SimArgs};
use crate::asked;

/// A flag, or a mode as a message names it, and whether it was given.
type Flag<A> = (&'static str, fn(&A) -> bool);
/// The first flag does not go with any of the others, and why.
pub(crate) type Refused = (&'static str, &'static [&'static str], &'static str);

const SIM: &[Flag<SimArgs>] = &[
    ("--against", |args| args.against.is_some()),
    ("--arrivals", |args| args.generation.arrivals.is_some()),
    ("--collapse", |args| args.collapse),
    ("--columns", |args| args.input.columns.is_some()),
    ("--content none", |args| {
        !args.contents.content.is_empty() && args.contents.content.iter().all(|one| one == "none")
    }),
    ("--content-cpu", |args| args.contents.content_cpu.is_some()),
    ("--contents", |args| args.contents.contents.is_some()),
    ("--csv", |args| args.output.csv),
    ("--device", |args| args.timed.device.is_some()),
    ("--extents", |args| !args.timed.extents.is_empty()),
    ("--format", |args| args.input.format.is_some()),
    ("--generate", |args| args.generate.is_some()),
    ("--join", |args| args.join),
    ("--levels", |args| !args.levels.is_empty()),
    ("--pace of an open loop", |args| is_open(args.timed.pace.as_deref())),
    ("--patterns", |args| args.patterns.is_some()),
    ("--readahead", |args| args.timed.readahead_at_once().is_some()),
    ("--readahead none", |args| args.timed.readahead.as_deref() == Some("none") && args.timed.control.is_none()),
    ("--sample", |args| args.sample.is_some()),
    ("--shards", |args| args.shards != 1),
    ("--shared", |args| args.timed.shared),
    ("--size", |args| !args.size.is_empty()),
    ("--skip-bad", |args| args.input.skip_bad),
    ("--stream", |args| args.input.stream.is_some()),
    ("--think", |args| args.timed.think.is_some()),
    ("--think TIME", |args| matches!(args.timed.think.as_deref().map(str::parse), Some(Ok(Think::Fixed(_))))),
    ("--warmup", |args| args.warmup != "0"),
    ("a single trace", |args| args.trace.len() <= 1),
    ("a replay without --device", |args| args.timed.device.is_none()),
    ("policies that distinguish no streams", |args| !see_streams(&args.policy)),
];

const SIM_REFUSED: &[Refused] = &[
    ("--levels", &["--size"], "it has the sizes of all levels"),
    ("--levels", &["--shards", "--patterns", "--contents"], "a scheme decides for whole levels, by references alone"),
    ("--levels", &["--sample"], "no study shows that a sample predicts several levels"),
    ("--levels", &["--csv"], "the results of levels are a table, or JSON"),
    ("--levels", &["--device"], "with --device, --level PROFILE:SIZE is a level with a device of its own"),
    ("--shards", &["--sample"], "a part of a sampled cache would have too few blocks"),
    ("--shards", &["--warmup"], "each part sees some of the references"),
    ("--shards", &["--device"], "a simulated cache is one shard: compare shards without --device"),
    ("--device", &["--collapse"], "a repeated request takes time, too"),
    ("--device", &["--sample"], "a device that gets a sample of the requests is never as busy as with all of them"),
    ("--device", &["--patterns"], "a server does not know the patterns of a program in advance"),
    ("--readahead", &["--collapse", "--sample"], "runs of reads would have gaps"),
    (
        "--readahead",
        &["--warmup", "--shards"],
        "the engine of a server is replayed, as one shard, and reports whole runs",
    ),
    (
        "--readahead",
        &["--levels", "--contents", "--patterns"],
        "with --device, levels and contents go with it, and a server knows no patterns in advance",
    ),
    ("--patterns", &["--sample"], "a loop of which a sample is left is another loop"),
    ("--patterns", &["--join"], "patterns are those of one program"),
    ("--contents", &["--shards", "--sample"], "blocks of the whole cache are compared with each other"),
    ("--contents", &["--patterns"], "only the memory that contents need is replayed"),
    ("--content-cpu", &["--content none"], "nothing is encoded"),
    (
        "--generate",
        &["--columns", "--format", "--skip-bad", "--stream"],
        "a generated workload is not read from a file",
    ),
    ("--arrivals", &["a replay without --device"], "it has no times"),
    ("--arrivals", &["--think TIME"], "the time before each request is TIME, whatever the workload has"),
    ("--think", &["--pace of an open loop"], "only a closed loop waits for replies, and thinks after them"),
    ("--against", &["a single trace"], "it compares policies over several traces"),
    ("--against", &["--device", "--levels", "--contents", "--join"], "only replays of several traces are compared"),
    ("--join", &["a single trace"], "there is nothing to join it with"),
    ("--shared", &["a single trace"], "it shares its disks with no other"),
    ("--shared", &["--join"], "joined traces are one program"),
    ("--extents", &["--readahead none"], "only read-ahead and hints follow files"),
];

const STREAMS_REFUSED: &[Refused] =
    &[("--stream", &["--levels", "policies that distinguish no streams"], "streams would make no difference")];

const PLAN: &[Flag<PlanArgs>] = &[
    ("--pace of an open loop", |args| is_open(args.pace.as_deref())),
    ("--think", |args| args.think.is_some()),
    ("--readahead", |args| args.readahead.as_deref().is_some_and(|rule| rule != "none")),
    ("--sample", |args| args.sample.is_some()),
    ("--stream", |args| args.input.stream.is_some()),
    ("a trace on standard input", |args| args.trace.as_deref() == Some(Path::new("-"))),
    ("policies that distinguish no streams", |args| !see_streams(&args.policy)),
];

const PLAN_REFUSED: &[Refused] = &[
    ("--think", &["--pace of an open loop"], "only a closed loop waits for replies, and thinks after them"),
    ("--readahead", &["--sample"], "runs of reads would have gaps"),
    ("--readahead", &["a trace on standard input"], "the trace is read again for it, so it must be a file"),
    ("--stream", &["policies that distinguish no streams"], "streams would make no difference"),
];

/// An error with the reason, if flags of `nigh sim` were given that do not go together.
pub(crate) fn check_sim(args: &SimArgs) -> anyhow::Result<()> {
    check(is_given(SIM, args), SIM_REFUSED)
}

/// As `check_sim`, of `nigh plan`.
pub(crate) fn check_plan(args: &PlanArgs) -> anyhow::Result<()> {
    check(is_given(PLAN, args), PLAN_REFUSED)
}

/// As `check_sim`, once the traces are open: formats without streams have an error of their own.
pub(crate) fn check_streams(args: &SimArgs) -> anyhow::Result<()> {
    check(is_given(SIM, args), STREAMS_REFUSED)
}

/// Whether the flag of a name in `flags` was given.
fn is_given<A>(flags: &[Flag<A>], args: &A) -> impl Fn(&str) -> bool {
    move |name| flags.iter().any(|(flag, given)| *flag == name && given(args))
}

/// An error with the reason, if `refused` has a pair of which `is_given` knows both.
pub(crate) fn check(is_given: impl Fn(&str) -> bool, refused: &[Refused]) -> anyhow::Result<()> {
    for (flag, others, why) in refused.iter().filter(|(flag, ..)| is_given(flag)) {
        if let Some(other) = others.iter().find(|other| is_given(other)) {
            bail!("{flag} does not go with {other}: {why}");
        }
    }
    Ok(())
}

/// Whether a pace is that of an open loop. Malformed ones are reported later.
fn is_open(pace: Option<&str>) -> bool {
    matches!(pace.map(str::parse), Some(Ok(Pacing::Open { .. })))
}

/// Whether one of the policies named on a command line distinguishes streams. Malformed names are reported later.
fn see_streams(policies: &[String]) -> bool {
    asked::parse_policies_and_schemes(policies).map_or(true, |specs| specs.iter().any(|spec| spec.info().streams))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_flag_is_known() {
        let sim = SIM.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let plan = PLAN.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        for (known, refused) in [(&sim, SIM_REFUSED), (&sim, STREAMS_REFUSED), (&plan, PLAN_REFUSED)] {
            for name in refused.iter().flat_map(|(flag, others, _)| others.iter().chain([flag])) {
                assert!(known.contains(name), "{name}");
            }
        }
    }
}
