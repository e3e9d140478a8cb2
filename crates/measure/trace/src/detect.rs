//! Detection of the format of a trace, by its first bytes and then by its name.

use std::path::Path;

use crate::format::csv::guess::guess;
use crate::format::{
    alibaba, arc, biosnoop, blkparse, blktrace, bpftrace, csv, disksim, fio, fiu, lcs, lirs, mqsim, msr,
    oracle_general, pc, perf, raw, spc, strace, tencent, vscsi,
};
use crate::input::Input;
use crate::text::{Trial, try_out};
use crate::{Error, Format, Request, Result, Stream};

/// The first and last bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// The number of decompressed bytes that are examined.
const SAMPLE_BYTES: usize = 64 << 10;

/// The formats that skip lines of any other form.
const SKIPPING: [Format; 3] = [Format::Blkparse, Format::Perf, Format::Strace];

/// Whether `input`, whose position does not change, is a Parquet file.
pub(crate) fn is_parquet(input: &mut Input) -> Result<bool> {
    input.fill_to(PARQUET.len())?;
    Ok(input.data().starts_with(PARQUET))
}

/// The format of `input`, whose position does not change.
pub(crate) fn detect(input: &mut Input) -> Result<Format> {
    let whole = !input.fill_to(SAMPLE_BYTES)?;
    let sample = input.data();
    let empty = || Error::Empty { path: input.path().to_owned() };
    if sample.is_empty() {
        return Err(empty());
    }
    if blktrace::is_like(sample) {
        return Ok(Format::Blktrace);
    }
    let mut is_sure = true;
    let candidates = if sample.contains(&0) || sample.starts_with(PARQUET) {
        let widths = [(Format::RawU32, size_of::<u32>()), (Format::RawU64, size_of::<u64>())];
        let numbers = widths.into_iter().filter(|&(_, bytes)| raw::may_be(sample, whole, bytes));
        let numbers: Vec<Format> = numbers.map(|(format, _)| format).collect();
        if let Some(format) = named(input.path(), &numbers) {
            return Ok(format);
        }
        let candidates = binary_candidates(sample);
        // Many other files look like lists of numbers.
        is_sure = !candidates.is_empty();
        if is_sure { candidates } else { numbers }
    } else {
        let trials = text_trials(sample, whole);
        if whole && trials.iter().any(|(format, trial)| !SKIPPING.contains(format) && trial.is_blank()) {
            return Err(empty());
        }
        text_candidates(sample, &trials)
    };
    match *candidates {
        [] => with_extension(input.path()).ok_or_else(|| Error::Unrecognized { path: input.path().to_owned() }),
        [format] if is_sure => Ok(format),
        [first, ..] => named(input.path(), &candidates).ok_or_else(|| {
            let likelier = likelier(sample, &candidates).unwrap_or(first);
            Error::Ambiguous { path: input.path().to_owned(), candidates, likelier }
        }),
    }
}

/// The likelier of several formats that a sample matches.
fn likelier(sample: &[u8], candidates: &[Format]) -> Option<Format> {
    let numbers = if raw::is_wide(sample) { Format::RawU64 } else { Format::RawU32 };
    // Whole numbers that grow so slowly that they are hardly nanoseconds are milliseconds.
    [numbers, Format::DiskSim].into_iter().find(|format| candidates.contains(format))
}

fn binary_candidates(sample: &[u8]) -> Vec<Format> {
    if sample.starts_with(PARQUET) {
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

fn text_trials(sample: &[u8], whole: bool) -> Vec<(Format, Trial)> {
    let blkparse = |action| try_out(blkparse::Parser::new(action), sample, whole);
    let blkparse = blkparse::Action::ALL.map(blkparse).into_iter().max_by_key(|trial| trial.requests.len());
    let csv = csv::Parser::new(None, 1, sample);
    vec![
        (Format::Lirs, try_out(lirs::Parser::new(1), sample, whole)),
        (Format::Arc, arc_trial(sample, whole)),
        (Format::Msr, try_out(msr::Parser::default(), sample, whole)),
        (Format::Spc, try_out(spc::Parser, sample, whole)),
        (Format::Pc, try_out(pc::Parser::new(Stream::Pc8), sample, whole)),
        (Format::Csv, csv.map(|parser| try_out(parser, sample, whole)).unwrap_or_default()),
        (Format::Alibaba, try_out(alibaba::Parser, sample, whole)),
        (Format::Tencent, tencent_trial(sample, whole)),
        (Format::Blkparse, blkparse.unwrap_or_default()),
        (Format::Perf, try_out(perf::Parser::new(None, sample), sample, whole)),
        (Format::Biosnoop, try_out(biosnoop::Parser::default(), sample, whole)),
        (Format::Bpftrace, try_out(bpftrace::Parser::default(), sample, whole)),
        (Format::Strace, try_out(strace::Parser::default(), sample, whole)),
        (Format::Fio, try_out(fio::Parser::default(), sample, whole)),
        (Format::MqSim, try_out(mqsim::Parser, sample, whole)),
        (Format::Fiu, try_out(fiu::Parser, sample, whole)),
        (Format::DiskSim, try_out(disksim::Parser, sample, whole)),
    ]
}

/// Four numbers are not in ARC's format if the third is not 0; that is no error if the user gives the format.
fn arc_trial(sample: &[u8], whole: bool) -> Trial {
    let [strict, lax] = [true, false].map(|ignored_is_zero| try_out(arc::Parser { ignored_is_zero }, sample, whole));
    if strict.bad > lax.bad { Trial { requests: Vec::new(), ..strict } } else { strict }
}

/// Five numbers are not in Tencent's format if the first is no date.
fn tencent_trial(sample: &[u8], whole: bool) -> Trial {
    let trial = try_out(tencent::Parser, sample, whole);
    if tencent::is_like(&trial.requests) { trial } else { Trial { bad: trial.bad + 1, requests: Vec::new() } }
}

/// The formats that all lines have; if there are none, the formats that most lines have, so that parsing reports the
/// error in the others.
fn text_candidates(sample: &[u8], trials: &[(Format, Trial)]) -> Vec<Format> {
    let of = |is_like: &dyn Fn(&Trial) -> bool| {
        let liked = trials.iter().filter(|(_, trial)| is_like(trial));
        liked.map(|(format, _)| *format).collect::<Vec<_>>()
    };
    let mut candidates = of(&Trial::is_clean);
    if candidates.is_empty() && csv::names_request(sample.split(|&byte| byte == b'\n').next().unwrap_or_default()) {
        return vec![Format::Csv];
    }
    // Names in a header decide against formats of numbers in any order.
    let guessed = guess(csv::whole_lines(sample));
    let is_named = guessed.as_ref().is_some_and(|guess| guess.as_ref().is_ok_and(|guess| guess.is_named));
    let is_loose = |format: &Format| matches!(format, Format::Arc | Format::MqSim | Format::DiskSim);
    if is_named && !candidates.is_empty() && candidates.iter().all(is_loose) {
        return vec![Format::Csv];
    }
    if candidates.is_empty() {
        let best = trials.iter().map(|(_, trial)| trial).max_by_key(|trial| trial.requests.len());
        if guessed.is_some() && best.is_none_or(|best| best.requests.len() <= best.bad) {
            return vec![Format::Csv];
        }
        let most = trials.iter().map(|(_, trial)| trial.requests.len()).max().unwrap_or(0);
        candidates = of(&|trial| most > 0 && trial.requests.len() == most);
    }
    // A header that names fields decides the format: if it did not count, it would be an error in any other format.
    if candidates.contains(&Format::Csv) {
        return vec![Format::Csv];
    }
    // A date in the first of five numbers is Tencent's format.
    if candidates.contains(&Format::Tencent) {
        candidates.retain(|format| !matches!(format, Format::DiskSim | Format::MqSim));
    }
    // A device of two numbers and a digest are FIU's.
    if candidates.contains(&Format::Fiu) {
        candidates.retain(|&format| format != Format::Biosnoop);
    }
    // Whole numbers are nanoseconds in MQSim and could be milliseconds in DiskSim.
    let is_mqsim = |(format, trial): &(Format, Trial)| {
        *format == Format::MqSim && mean_gap_ns(&trial.requests) >= mqsim::GAP_NS_MIN
    };
    if candidates.contains(&Format::MqSim) && trials.iter().any(is_mqsim) {
        candidates.retain(|&format| format != Format::DiskSim);
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

/// The format whose extension `path` has, before the extension of a compression. Several formats have the extension
/// `csv`.
fn with_extension(path: &Path) -> Option<Format> {
    let extension = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
    let mut last = extension(path)?;
    if matches!(&last[..], "gz" | "zst" | "xz") {
        last = extension(Path::new(path.file_stem()?))?;
    }
    let is_last = |format: &Format| format.file_words().iter().any(|word| word.trim_start_matches('.') == last);
    Format::all().iter().copied().filter(|&format| format != Format::Csv).find(is_last)
}
