//! Which format a trace has, by its first bytes and then by its name.

use std::path::Path;

use crate::format::{arc, blkparse, csv, disksim, lcs, lirs, mqsim, msr, oracle_general, parquet, pc, spc, vscsi};
use crate::input::Input;
use crate::text::try_out;
use crate::{Error, Format, Request, Result};

/// Decompressed bytes that are looked at.
const SAMPLE_BYTES: usize = 64 << 10;

/// The format of `input`, which stays where it is.
pub(crate) fn detect(input: &mut Input) -> Result<Format> {
    let whole = !input.fill_to(SAMPLE_BYTES)?;
    let sample = input.data();
    if sample.is_empty() {
        return Err(Error::Empty { path: input.path().to_owned() });
    }
    let candidates = if sample.contains(&0) || sample.starts_with(parquet::MAGIC) {
        binary_candidates(sample)
    } else {
        text_candidates(sample, whole)
    };
    match *candidates {
        [] => Err(Error::Unrecognized { path: input.path().to_owned() }),
        [format] => Ok(format),
        _ => named(input.path(), &candidates)
            .ok_or_else(|| Error::Ambiguous { path: input.path().to_owned(), candidates }),
    }
}

fn binary_candidates(sample: &[u8]) -> Vec<Format> {
    if sample.starts_with(parquet::MAGIC) {
        return vec![Format::Parquet];
    }
    if lcs::is_like(sample) {
        return vec![Format::Lcs];
    }
    let mut candidates = Vec::new();
    if vscsi::is_like(sample) {
        candidates.push(Format::Vscsi);
    }
    if oracle_general::is_like(sample) {
        candidates.push(Format::OracleGeneral);
    }
    candidates
}

fn text_candidates(sample: &[u8], whole: bool) -> Vec<Format> {
    let mut candidates = Vec::new();
    let mut consider = |format, is_like| {
        if is_like {
            candidates.push(format);
        }
    };
    consider(Format::Lirs, try_out(lirs::Parser::new(1), sample, whole).is_some());
    consider(Format::Arc, try_out(arc::Parser { ignored_is_zero: true }, sample, whole).is_some());
    consider(Format::Msr, try_out(msr::Parser::default(), sample, whole).is_some());
    consider(Format::Spc, try_out(spc::Parser, sample, whole).is_some());
    consider(Format::Pc, try_out(pc::Parser::new(pc::Stream::Pc8), sample, whole).is_some());
    consider(Format::Csv, try_out(csv::Parser::new(None, 1), sample, whole).is_some());
    let is_blkparse = |&action: &_| try_out(blkparse::Parser::new(action), sample, whole).is_some();
    consider(Format::Blkparse, blkparse::Action::ALL.iter().any(is_blkparse));
    // Whole numbers are nanoseconds to MQSim and could be milliseconds to DiskSim.
    let nanoseconds = try_out(mqsim::Parser, sample, whole);
    consider(Format::MqSim, nanoseconds.is_some());
    if nanoseconds.is_none_or(|requests| mean_gap_ns(&requests) < mqsim::GAP_NS_MIN) {
        consider(Format::DiskSim, try_out(disksim::Parser, sample, whole).is_some());
    }
    candidates
}

fn mean_gap_ns(requests: &[Request]) -> u64 {
    match requests {
        [first, .., last] => last.time_ns.saturating_sub(first.time_ns) / (requests.len() as u64 - 1),
        _ => 0,
    }
}

/// The one candidate whose name or extension occurs in the file's name.
fn named(path: &Path, candidates: &[Format]) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let occurs = |format: &&Format| format.file_words().iter().any(|word| name.contains(word));
    let mut named = candidates.iter().filter(occurs);
    let format = named.next()?;
    named.next().is_none().then_some(*format)
}
