//! `nigh patterns`: which code reads sequentially, in loops, in short loops or at random; and the tables that `nigh sim
//! --patterns` gives to policies.

mod symbols;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use nigh_output::Destination;
use nigh_pattern::{Class, Classifier, Limits, Pattern, Table, Thresholds};
use nigh_policy::Spec;
use nigh_sim::replay::{Watch, replay};
use nigh_sim::{Loader, Ops, Options, Patterns, References, rows};
use nigh_trace::{Requests, Stream};
use serde::Serialize;
use symbols::Resolver;

use crate::args::{InputArgs, PatternsArgs, SimArgs};
use crate::results::grouped;
use crate::source::Source;
use crate::{output, source, table};

/// The identities that are tried where none is asked for. The first, in the column `stream`, is 5 return addresses with the
/// depth of the stack.
const IDENTITIES: [(Option<Stream>, &str); 4] = [
    (None, "5 return addresses and the depth of the stack"),
    (Some(Stream::Pc5), "5 return addresses (--stream pc5)"),
    (Some(Stream::Pc8), "8 return addresses (--stream pc8)"),
    (Some(Stream::Pc16), "16 return addresses (--stream pc16)"),
];

/// Another identity than the first has to gain this share of the references.
const GAIN_LEAST: f64 = 0.005;

/// Return addresses that are shown of a piece of code.
const FRAMES_SHOWN: usize = 3;

/// Results of `nigh patterns`.
#[derive(Serialize)]
struct Found {
    schema: u32,
    name: String,
    /// How the code is identified, and, where that was chosen, each identity that was tried with the hit ratio that it gives.
    identity: String,
    tried: Vec<Tried>,
    references: u64,
    /// The share of the references by code of each class.
    shares: Vec<Share>,
    codes: Vec<Row>,
}

#[derive(Serialize)]
struct Tried {
    identity: &'static str,
    /// Of `aoio` on the second half of the trace, with what the first half shows, in half of the distinct blocks.
    hit_ratio: f64,
}

#[derive(Serialize)]
struct Share {
    class: &'static str,
    share: f64,
}

#[derive(Serialize)]
struct Row {
    code: String,
    class: &'static str,
    references: u64,
    share: f64,
    pages: u64,
    files: u32,
    /// The mean length of its sequences, in pages.
    run: f64,
    /// The mean number of references, by any code, until a page is referenced again.
    period: Option<f64>,
    /// The share of its pages that are referenced again.
    reuse: f64,
    program: String,
    stack: String,
    /// The stack with names of functions in place of addresses, as far as they are known.
    symbols: String,
    /// Files in which it has another class.
    exceptions: Vec<Exception>,
}

#[derive(Serialize)]
struct Exception {
    file: String,
    class: &'static str,
}

/// A trace whose code is identified in one of several ways.
struct Identified {
    /// The options that lead to it.
    input: InputArgs,
    identity: String,
    tried: Vec<Tried>,
    references: References,
}

pub(crate) fn run(args: &PatternsArgs) -> anyhow::Result<()> {
    let to = args.profile.as_deref().map(|to| Destination::new(to, args.force, &[&args.trace])).transpose()?;
    let Identified { input, identity, tried, references } = identified(&args.trace, &args.input)?;
    let classifier = classify(&references, references.ids.len());
    if let Some(to) = &to {
        return write_profile(to, args, &Studied { input, references, classifier });
    }
    let names = parquet::names(&args.trace, &input)?;
    let found = found(&args.trace, identity, tried, &classifier, &names);
    if args.json {
        return output::print(format!("{}\n", serde_json::to_string(&found)?).as_bytes());
    }
    let top = usize::try_from(args.top)?;
    output::print(describe(&found, top, &args.trace).as_bytes())
}

/// Patterns in a trace of the code that issued it.
pub(crate) struct Studied {
    /// The options that lead to the references; the stream is the identity of the code.
    pub(crate) input: InputArgs,
    pub(crate) references: References,
    pub(crate) classifier: Classifier,
}

/// Studies a recording, with the identity that predicts best if `input` has none.
pub(crate) fn study(trace: &Path, input: &InputArgs) -> anyhow::Result<Studied> {
    let Identified { input, references, .. } = identified(trace, input)?;
    let classifier = classify(&references, references.ids.len());
    Ok(Studied { input, references, classifier })
}

/// As `study`, with the identity of `input`, or that in the column `stream`.
pub(crate) fn study_as(trace: &Path, input: &InputArgs) -> anyhow::Result<Studied> {
    let (source, mut requests) = source::unreported(trace, input)?;
    let references = references(&source, requests.as_mut())?;
    let classifier = classify(&references, references.ids.len());
    Ok(Studied { input: input.clone(), references, classifier })
}

fn write_profile(to: &Destination, args: &PatternsArgs, studied: &Studied) -> anyhow::Result<()> {
    let profile = crate::advise::profile(&args.trace, studied)?;
    crate::advise::write(to, &profile)?;
    let path = to.path();
    let (count, outlook) = (grouped(profile.codes.len() as u64), crate::advise::outlook(&profile, path));
    output::tell(format_args!("nigh: {}: {count} pieces of code; {outlook}", path.display()));
    output::print(format!("next:\n  nigh advise --profile {} -- {} ...\n", path.display(), profile.program).as_bytes())
}

/// Chooses the identity that predicts best, if none is asked for.
fn identified(trace: &Path, asked: &InputArgs) -> anyhow::Result<Identified> {
    let (source, mut requests) = source::open(trace, asked)?;
    let identities = match &source.format[..] {
        _ if parquet::is_recording(trace)? => &IDENTITIES[..],
        "pc" => &IDENTITIES[1..],
        _ => &[],
    };
    let first = references(&source, requests.as_mut())?;
    // Its notes are printed by now. It is opened again without them.
    drop(requests);
    let mut tried = Vec::new();
    let mut input = asked.clone();
    let mut identity = "the trace's streams".to_owned();
    let mut best = None;
    if let Some(stream) = &input.stream {
        identity = format!("--stream {stream}");
    } else {
        for &(stream, name) in identities {
            let other = InputArgs { stream: stream.map(|stream| stream.name().to_owned()), ..asked.clone() };
            let (source, mut requests) = source::unreported(trace, &other)?;
            let mut references = references(&source, requests.as_mut())?;
            let hit_ratio = hit_ratio(&mut references)?;
            let needed = tried.iter().map(|tried: &Tried| tried.hit_ratio + GAIN_LEAST).fold(0.0, f64::max);
            tried.push(Tried { identity: name, hit_ratio });
            if best.is_none() || hit_ratio >= needed {
                (identity, input) = (name.to_owned(), other);
                best = Some(references);
            }
        }
    }
    Ok(Identified { input, identity, tried, references: best.unwrap_or(first) })
}

/// The reads of a trace. Reads of the same page in a row count once, as calls for parts of a page are one reference to it.
fn references(source: &Source, requests: &mut (dyn Requests + Send)) -> anyhow::Result<References> {
    let block_bytes = source.block_bytes;
    let options = Options { block_bytes, ops: Ops::Reads, collapse: true, sample: None, requests_most: u64::MAX };
    let references = source::load(Loader::new(options), requests)?;
    ensure!(!references.ids.is_empty(), "{}: none of its requests reads", source.name);
    Ok(references)
}

/// The classes in the first `count` references.
fn classify(references: &References, count: usize) -> Classifier {
    let mut classifier = Classifier::new(Limits::default(), Thresholds::default());
    for (at, &id) in references.ids.iter().enumerate().take(count) {
        let block = references.blocks[id as usize];
        classifier.reference(references.streams.of(at).0, block.volume, block.index);
    }
    classifier
}

/// How well an identity of the code predicts: `aoio` on the second half, with what the first half shows.
fn hit_ratio(references: &mut References) -> anyhow::Result<f64> {
    let half = references.ids.len() / 2;
    let table = classify(references, half).table().into();
    references.patterns = Some(Patterns { table, without: Vec::new() });
    let aoio: Spec = "aoio".parse()?;
    let capacity = (references.distinct() / 2).max(1);
    let counts = replay(references, &aoio, capacity, None, Watch { warmup: half, ..Watch::default() })?.counts;
    Ok(counts.hits as f64 / counts.references.max(1) as f64)
}

/// The patterns that `--patterns` asks for, and notes on where they are not used. They are used by the policies and at the
/// sizes with which they do not lose hits in the run that they are from: what code does at first can be another thing than
/// what it does on the whole. Of that run, the first `warmup` references do not count if it is the one that is replayed.
pub(crate) fn patterns(
    path: &Path,
    args: &SimArgs,
    plan: &rows::Plan,
    warmup: usize,
    replayed: &References,
) -> anyhow::Result<(Patterns, Vec<String>)> {
    let (table, mut from) = table(path, args, replayed)?;
    let (mut patterns, mut notes) = (Patterns { table: table.into(), without: Vec::new() }, Vec::new());
    if from.ids.is_empty() {
        return Ok((patterns, notes));
    }
    let specs: Vec<Spec> = plan.specs.iter().filter(|spec| spec.name() == "aoio").cloned().collect();
    let plan = rows::Plan { specs, exact_lru: false, gauges: None, ..plan.clone() };
    let warmup = if from.ids.len() == replayed.ids.len() { warmup } else { 0 };
    let watch = Watch { warmup, ..Watch::default() };
    let plain = plan.replay(&from, watch)?.rows;
    from.patterns = Some(patterns.clone());
    let trained = plan.replay(&from, watch)?.rows;
    let at = plan.specs.iter().flat_map(|spec| plan.sizes.iter().map(move |&size| (spec, size)));
    for ((spec, size), (plain, trained)) in at.zip(plain.iter().zip(&trained)) {
        if trained.hits >= plain.hits {
            continue;
        }
        notes.push(format!(
            "{spec} in {size} blocks does without --patterns: the run that they are from has {:.2} % hits with them, and {:.2} % \
             without",
            100.0 * trained.hit_ratio,
            100.0 * plain.hit_ratio
        ));
        let blocks = u32::try_from(size).unwrap_or(u32::MAX).min(replayed.distinct());
        patterns.without.push((spec.clone(), (blocks / plan.shards).max(1)));
    }
    Ok((patterns, notes))
}

/// The table that `--patterns` asks for, and the references that it is from. Files are numbered anew in each trace: another
/// trace has nothing on single files.
fn table(path: &Path, args: &SimArgs, replayed: &References) -> anyhow::Result<(Table, References)> {
    let is_used = args.policy.iter().any(|policy| matches!(policy.split(':').next(), Some("aoio" | "all")));
    ensure!(is_used, "--patterns: only the policy aoio uses them; add it to --policy");
    let part = nigh_text::share(&args.patterns_part).filter(|part| (0.0..=1.0).contains(part));
    let part = part.with_context(|| format!("--patterns-part {}: expected a share such as 50%", args.patterns_part))?;
    let upto = |references: &References| (references.ids.len() as f64 * part) as usize;
    let is_same = match &args.trace[..] {
        [one] => one == path || (one.canonicalize().ok().is_some_and(|one| path.canonicalize().ok() == Some(one))),
        _ => false,
    };
    if is_same {
        let from = replayed.first(upto(replayed));
        return Ok((classify(&from, from.ids.len()).table(), from));
    }
    let (source, mut requests) = source::open(path, &args.input)?;
    let options = Options {
        block_bytes: source.block_bytes,
        ops: args.ops.into(),
        collapse: args.collapse,
        sample: None,
        requests_most: u64::MAX,
    };
    let references = source::load(Loader::new(options), requests.as_mut())?;
    let from = references.first(upto(&references));
    let mut table = Table::default();
    for (code, &pattern) in classify(&from, from.ids.len()).table().codes() {
        table.set(code, pattern);
    }
    let mut known: HashSet<u64> = table.codes().map(|(code, _)| code).collect();
    known.remove(&0);
    let is_any = (0..replayed.ids.len()).any(|at| known.contains(&replayed.streams.of(at).0));
    ensure!(
        is_any,
        "--patterns {}: none of its code is in the trace: it is of another program, or of another build, or its streams are \
         other ones (--stream)",
        source.name
    );
    Ok((table, from))
}

fn found(path: &Path, identity: String, tried: Vec<Tried>, classifier: &Classifier, names: &parquet::Names) -> Found {
    let thresholds = Thresholds::default();
    let table = classifier.table();
    let total = classifier.references().max(1) as f64;
    let mut resolver = Resolver::new(names.modules());
    let rows = classifier.codes().into_iter().map(|code| {
        let (program, stack) = names.code(code.code);
        let differing = table.files().filter(|&(of, ..)| of == code.code);
        let mut exceptions: Vec<Exception> = differing
            .map(|(_, file, pattern)| Exception { file: names.file(file), class: pattern.class.name() })
            .collect();
        exceptions.sort_by(|one, other| one.file.cmp(&other.file));
        Row {
            code: format!("{:016x}", code.code),
            class: Pattern::of(&code.counts, &thresholds).class.name(),
            references: code.references,
            share: code.references as f64 / total,
            pages: code.pages,
            files: code.files,
            run: code.counts.run(),
            period: code.counts.period(),
            reuse: code.read_again(),
            program,
            symbols: resolver.stack(&stack),
            stack,
            exceptions,
        }
    });
    let codes: Vec<Row> = rows.collect();
    let shares = Class::ALL.map(|class| {
        let of = codes.iter().filter(|row| row.class == class.name()).map(|row| row.share);
        Share { class: class.name(), share: of.fold(0.0, |sum, share| sum + share) }
    });
    Found {
        schema: 1,
        name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        identity,
        tried,
        references: classifier.references(),
        shares: shares.into(),
        codes,
    }
}

fn describe(found: &Found, top: usize, path: &Path) -> String {
    let mut text = format!("{}: {} references to pages\n", found.name, grouped(found.references));
    let _ = writeln!(text, "code is identified by {}", found.identity);
    for Tried { identity, hit_ratio } in &found.tried {
        let _ = writeln!(
            text,
            "  {:5.2} % hits of aoio in the second half, trained on the first: {identity}",
            hit_ratio * 100.0
        );
    }
    let head = ["class", "references", "share", "pages", "files", "run", "period", "read again", "code"];
    let mut rows = table::Table::new(&head);
    let shown = shown(&found.codes);
    for row in shown.iter().take(top) {
        rows.row([
            row.class.to_owned(),
            grouped(row.references),
            format!("{:.1} %", row.share * 100.0),
            grouped(row.pages),
            grouped(row.files.into()),
            format!("{:.0}", row.run),
            row.period.map_or("never".to_owned(), |period| grouped(period as u64)),
            format!("{:.0} %", row.reuse * 100.0),
            if row.codes > 1 { format!("{} ({} call paths)", row.place, row.codes) } else { row.place.clone() },
        ]);
    }
    let _ = write!(text, "{rows}");
    if shown.len() > top {
        let _ = writeln!(text, "and {} more (--top)", grouped((shown.len() - top) as u64));
    }
    let doing = |class: &str| match class {
        "seq" => "reads in sequence, and not again",
        "rand" => "reads without a pattern",
        "short" => "reads short parts again and again",
        _ => "reads long parts again and again",
    };
    let mut shares: Vec<&Share> = found.shares.iter().filter(|share| share.share >= 0.001).collect();
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    for Share { class, share } in shares {
        let _ = writeln!(text, "{:5.1} % by code that {} ({class})", share * 100.0, doing(class));
    }
    let path = path.display();
    let _ =
        writeln!(text, "next:\n  nigh sim {path} --policy lru,lirs,aoio,opt --ops reads --collapse --patterns {path}");
    text
}

/// A line of the table: pieces of code of one class that are shown as the same functions.
struct Shown {
    place: String,
    class: &'static str,
    /// Pieces of code.
    codes: u64,
    references: u64,
    share: f64,
    /// Pages of each, added.
    pages: u64,
    /// The most of one.
    files: u32,
    /// Means, weighted by references.
    run: f64,
    reuse: f64,
    /// The period of the one with most references.
    period: Option<f64>,
}

/// Lines for pieces of code, which are sorted by their references.
fn shown(codes: &[Row]) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let mut lines: HashMap<(&str, String), usize> = HashMap::new();
    for row in codes {
        let place = place(&row.program, &row.symbols).unwrap_or_else(|| row.code.clone());
        let line = *lines.entry((row.class, place.clone())).or_insert(shown.len());
        let Some(line) = shown.get_mut(line) else {
            let &Row { class, references, share, pages, files, run, reuse, period, .. } = row;
            shown.push(Shown { place, class, codes: 1, references, share, pages, files, run, reuse, period });
            continue;
        };
        let all = (line.references + row.references).max(1) as f64;
        let mean =
            |of_line: f64, of_row: f64| (of_line * line.references as f64 + of_row * row.references as f64) / all;
        (line.run, line.reuse) = (mean(line.run, row.run), mean(line.reuse, row.reuse));
        line.codes += 1;
        line.references += row.references;
        line.share += row.share;
        line.pages += row.pages;
        line.files = line.files.max(row.files);
    }
    shown.sort_by_key(|line| std::cmp::Reverse(line.references));
    shown
}

/// Place of a piece of code for people: the program, and the return addresses or functions outside of the C library.
pub(crate) fn place(program: &str, stack: &str) -> Option<String> {
    let own = stack.split(';').filter(|frame| !frame.is_empty() && !frame.starts_with("libc.so"));
    // The program's name is there once.
    let short = |frame| match str::strip_prefix(frame, program) {
        Some(offset) if offset.starts_with('+') => offset,
        Some(rest) => rest.strip_prefix(':').unwrap_or(frame),
        None => frame,
    };
    let frames: Vec<&str> = own.map(short).take(FRAMES_SHOWN).collect();
    Some(match &frames[..] {
        [] if program.is_empty() => return None,
        [] => program.to_owned(),
        [first, ..] if first.starts_with('+') => format!("{program}{}", frames.join(" < ")),
        _ => format!("{program}: {}", frames.join(" < ")),
    })
}

/// Data that only recordings have.
mod parquet {
    use std::path::Path;

    use nigh_trace::Stream;
    use nigh_trace::format::parquet::ParquetReader;

    use crate::args::InputArgs;

    /// The names of code and files.
    #[derive(Default)]
    pub(super) struct Names(Option<nigh_trace::format::parquet::Names>);

    impl Names {
        pub(super) fn code(&self, code: u64) -> (String, String) {
            let known = self.0.as_ref().and_then(|names| names.codes.get(&code)).cloned().unwrap_or_default();
            (known.program, known.stack)
        }

        /// Paths and build ids of the programs and libraries of the code.
        pub(super) fn modules(&self) -> &[(String, String)] {
            self.0.as_ref().and_then(|names| names.about.as_ref()).map_or(&[], |about| &about.modules)
        }

        pub(super) fn file(&self, volume: u32) -> String {
            let known = self.0.as_ref().and_then(|names| names.files.get(&volume)).cloned();
            known.unwrap_or_else(|| volume.to_string())
        }
    }

    /// Whether it has all identities.
    pub(super) fn is_recording(path: &Path) -> anyhow::Result<bool> {
        let opened = ParquetReader::open(path, None, Some(Stream::Pc16)).ok();
        Ok(opened.map(ParquetReader::names).transpose()?.flatten().is_some())
    }

    pub(super) fn names(path: &Path, input: &InputArgs) -> anyhow::Result<Names> {
        let stream = input.stream.as_deref().map(str::parse).transpose()?;
        // Files of other formats have no names; errors in this one were reported when it was read.
        let opened = ParquetReader::open(path, None, stream).ok();
        Ok(Names(opened.map(ParquetReader::names).transpose()?.flatten()))
    }
}
