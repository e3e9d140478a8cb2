//! Traces that are written: what became of their requests.

use std::path::Path;

use nigh_output::Destination;
use nigh_trace::write::{Writer, Written};
use nigh_trace::{Field, Gaps, Requests};

use crate::output;
use crate::results::grouped;

/// Reports on standard error what became of the requests.
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

/// Has the file keep what its source is known to lack, or reports that its format cannot.
pub(crate) fn keep_gaps(writer: &mut Writer, requests: &dyn Requests, to: &Destination) {
    let gaps = Gaps::of(&requests.notes());
    if !writer.set_gaps(&gaps) && !gaps.is_empty() {
        let (file, format) = (to.path().display(), writer.format());
        output::tell(format_args!("nigh: note: {file}: the format {format} does not keep that requests are missing"));
    }
}
