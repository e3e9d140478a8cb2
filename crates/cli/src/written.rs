//! Traces that are written: what they may replace, and what became of their requests.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::ensure;
use nigh_trace::Field;
use nigh_trace::write::Written;

use crate::output;
use crate::results::grouped;

/// Refuses what cannot be written, to replace a file without `force`, and to replace the trace that is read at all. Pipes and
/// devices are no files.
pub(crate) fn spare(to: &Path, from: Option<&Path>, force: bool) -> anyhow::Result<()> {
    if to == Path::new("-") {
        return Ok(());
    }
    let Some(existing) = std::fs::metadata(to).ok().filter(std::fs::Metadata::is_file) else {
        return output::check(to);
    };
    let from = from.map(|from| if from == Path::new("-") { Path::new("/dev/stdin") } else { from });
    let source = from.and_then(|from| std::fs::metadata(from).ok());
    let is_same = source.is_some_and(|source| (source.dev(), source.ino()) == (existing.dev(), existing.ino()));
    ensure!(!is_same, "{}: this is the trace that is read; write to another file", to.display());
    ensure!(force, "{}: the file exists; add --force to replace it", to.display());
    output::check(to)
}

/// Says on standard error what became of the requests.
pub(crate) fn report(written: &Written, to: &Path) {
    let Written { requests, records, skipped, lost } = written;
    let (requests, records, skipped) = (*requests, *records, *skipped);
    let records = if records == requests { String::new() } else { format!(" as {} records", grouped(records)) };
    output::tell(format_args!("nigh: wrote {} requests{records} to {}", grouped(requests), to.display()));
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().copied().map(Field::name).collect();
        output::tell(format_args!("nigh: note: the format does not hold every {}", names.join(", ")));
    }
    if skipped > 0 {
        output::tell(format_args!(
            "nigh: note: {} trims, flushes and requests of no length were left out: the format does not know them",
            grouped(skipped)
        ));
    }
}
