//! Flags of `nigh sim` that do not go together, and why.

use anyhow::bail;

use crate::args::SimArgs;

/// Whether a flag was given.
type Given = fn(&SimArgs) -> bool;

const FLAGS: &[(&str, Given)] = &[
    ("--collapse", |args| args.collapse),
    ("--contents", |args| args.contents.contents.is_some()),
    ("--csv", |args| args.output.csv),
    ("--device", |args| args.timed.device.is_some()),
    ("--internals", |args| args.internals.is_some()),
    ("--join", |args| args.join),
    ("--levels", |args| !args.levels.is_empty()),
    ("--patterns", |args| args.patterns.is_some()),
    ("--readahead", |args| args.timed.readahead_at_once().is_some()),
    ("--sample", |args| args.sample.is_some()),
    ("--shards", |args| args.shards != 1),
    ("--size", |args| !args.size.is_empty()),
    ("--warmup", |args| args.warmup != "0"),
];

/// The first flag does not go with any of the others.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("--levels", &["--size"], "it has the sizes of all levels"),
    ("--levels", &["--shards", "--patterns", "--contents"], "a scheme decides for whole levels, by references alone"),
    ("--levels", &["--sample"], "no study shows that a sample predicts several levels"),
    ("--levels", &["--internals", "--csv"], "the results of levels are a table, or JSON"),
    ("--levels", &["--device"], "with --device, --level PROFILE:SIZE is a level with a device of its own"),
    ("--shards", &["--sample"], "a part of a sampled cache would have too few blocks"),
    ("--shards", &["--warmup", "--internals"], "each part sees some of the references, and has internals of its own"),
    ("--shards", &["--device"], "a simulated cache is one shard: compare shards without --device"),
    ("--device", &["--collapse"], "a repeated request takes time, too"),
    ("--device", &["--sample"], "a device that gets a sample of the requests is never as busy as with all of them"),
    ("--device", &["--warmup", "--internals"], "a simulation reports whole runs"),
    ("--device", &["--patterns"], "a server does not know the patterns of a program in advance"),
    ("--readahead", &["--collapse", "--sample"], "runs of reads would have gaps"),
    (
        "--readahead",
        &["--warmup", "--internals", "--shards"],
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
    ("--contents", &["--internals", "--patterns"], "only the memory that contents need is replayed"),
];

/// An error with the reason, if flags were given that do not go together.
pub(crate) fn check(args: &SimArgs) -> anyhow::Result<()> {
    let is_given = |name: &str| FLAGS.iter().any(|(flag, given)| *flag == name && given(args));
    for (flag, others, why) in REFUSED.iter().filter(|(flag, ..)| is_given(flag)) {
        if let Some(other) = others.iter().find(|other| is_given(other)) {
            bail!("{flag} does not go with {other}: {why}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_flag_is_known() {
        let names = REFUSED.iter().flat_map(|(flag, others, _)| others.iter().chain([flag]));
        for name in names {
            assert!(FLAGS.iter().any(|(flag, _)| flag == name), "{name}");
        }
    }
}
