//! Profiles from recordings.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, ensure};
use nigh_advise::profile::{Code, FILES_MOST, InFile, Module, Name, Profile};
use nigh_pattern::{Class, Pattern, Thresholds};
use nigh_trace::Stream;
use nigh_trace::format::parquet::{About, ParquetReader};

use crate::args::InputArgs;
use crate::patterns::{Studied, place, study};

/// The profile of the recording at `path`; its code is identified as in `like`.
pub(super) fn learn(path: &Path, like: Option<&Profile>) -> anyhow::Result<Profile> {
    let stream = like.and_then(stream).map(|stream| stream.name().to_owned());
    let studied = match like {
        // No name: 5 return addresses with the depth.
        Some(_) => crate::patterns::study_as(path, &InputArgs { stream, ..InputArgs::default() })?,
        None => study(path, &InputArgs::default())?,
    };
    profile(path, &studied)
}

/// The column with the identity of `profile`; `None` for the column `stream`.
fn stream(profile: &Profile) -> Option<Stream> {
    match (profile.frames, profile.depth) {
        (_, true) => None,
        (1, _) => Some(Stream::Ra0),
        (8, _) => Some(Stream::Pc8),
        (16, _) => Some(Stream::Pc16),
        _ => Some(Stream::Pc5),
    }
}

/// How many return addresses identify the code, and whether the depth of the stack does.
fn identity(input: &InputArgs) -> anyhow::Result<(u32, bool)> {
    let stream: Option<Stream> = input.stream.as_deref().map(str::parse).transpose()?;
    Ok(match stream {
        None => (5, true),
        Some(Stream::Pc5) => (5, false),
        Some(Stream::Pc8) => (8, false),
        Some(Stream::Pc16) => (16, false),
        Some(Stream::Ra0) => (1, false),
        Some(Stream::File) => anyhow::bail!("--stream file: a profile is of code, not of files"),
    })
}

/// The profile of the program that was recorded at `trace`, from `studied`.
pub(crate) fn profile(trace: &Path, studied: &Studied) -> anyhow::Result<Profile> {
    let (frames, depth) = identity(&studied.input)?;
    let column = studied.input.stream.as_deref().map(str::parse).transpose()?;
    let recording = "a profile is made of a complete recording of a program, by 'nigh record -- PROGRAM'";
    let names = ParquetReader::open(trace, None, column).context(recording)?.names()?;
    let names = names.with_context(|| format!("{}: {recording}", trace.display()))?;
    let about = names.about.as_ref().with_context(|| format!("{}: {recording}", trace.display()))?;
    ensure!(
        !about.modules.is_empty(),
        "{}: it does not say which programs and libraries the code is in: record it without --private",
        trace.display()
    );
    let thresholds = Thresholds::default();
    let table = studied.classifier.table();
    let runs = runs(studied);
    let mut files: HashMap<u64, Vec<InFile>> = HashMap::new();
    for (code, file, pattern) in table.files() {
        let own = files.entry(code).or_default();
        if own.len() < FILES_MOST
            && let Some(path) = names.files.get(&file)
        {
            own.push(InFile { path: path.clone(), class: name(pattern.class), run_bytes: None });
        }
    }
    let mut codes = Vec::new();
    for seen in studied.classifier.codes() {
        // Code that read little is random by default: nothing is known of it.
        let Some(known) = names.codes.get(&seen.code).filter(|_| seen.references >= u64::from(thresholds.least)) else {
            continue;
        };
        let class = name(Pattern::of(&seen.counts, &thresholds).class);
        let mut files = files.remove(&seen.code).unwrap_or_default();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let run_bytes = runs.get(&seen.code).copied();
        codes.push(Code {
            code: seen.code,
            place: place(&known.program, &known.stack).unwrap_or_default(),
            class,
            run_bytes: if class == Name::Short { run_bytes } else { None },
            modules: modules(about, &known.stack, frames),
            asked_bytes: Some(known.read_bytes),
            read_bytes: Some(known.device_bytes),
            advised: true,
            files,
        });
    }
    let module = |(path, build_id): &(String, String)| Module { path: path.clone(), build_id: build_id.clone() };
    Ok(Profile {
        program: about.program.clone(),
        frames,
        depth,
        read_bytes: Some(about.device_bytes),
        runs_without_gain: 0,
        modules: about.modules.iter().map(module).collect(),
        codes,
    })
}

/// The number of the file at `path`, if it is there.
pub(super) fn file(path: &str) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    Some(nigh_advise::file(found.dev(), found.ino()))
}

fn name(class: Class) -> Name {
    match class {
        Class::Seq => Name::Seq,
        Class::Loop => Name::Loop,
        Class::Short => Name::Short,
        Class::Rand => Name::Rand,
    }
}

/// The most bytes between the first and the last reference of each piece of code to a file.
fn runs(studied: &Studied) -> HashMap<u64, u64> {
    let references = &studied.references;
    let mut ends: HashMap<(u64, u32), (u64, u64)> = HashMap::new();
    for (at, &id) in references.ids.iter().enumerate() {
        let block = references.blocks[id as usize];
        let (first, last) =
            ends.entry((references.streams.of(at).0, block.volume)).or_insert((block.index, block.index));
        *first = block.index.min(*first);
        *last = block.index.max(*last);
    }
    let mut runs = HashMap::new();
    for ((code, _), (first, last)) in ends {
        let run = runs.entry(code).or_insert(0);
        *run = (*run).max((last - first + 1) * u64::from(references.block_bytes));
    }
    runs
}

/// The modules of the first `frames` return addresses of `stack`.
fn modules(about: &About, stack: &str, frames: u32) -> Vec<usize> {
    let frames = stack.split(';').take(frames as usize);
    let names: HashSet<&str> = frames.filter_map(|frame| Some(frame.rsplit_once('+')?.0)).collect();
    let own = |path: &str| {
        Path::new(path).file_name().is_some_and(|name| name.to_str().is_some_and(|name| names.contains(name)))
    };
    (0..about.modules.len()).filter(|&at| own(&about.modules[at].0)).collect()
}
