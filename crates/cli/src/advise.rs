//! `nigh advise`: runs a program with hints to the kernel's page cache, by what earlier runs read.

mod learned;
pub(crate) mod memory;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_advise::profile::{Code, Name, Profile, Reads, Run};
use nigh_advise::{ENTRY_BYTES, Table};
use nigh_output::Destination;
use nigh_record::{Board, Program, Session, Told, build_id, of_ended};

use crate::args::AdviseArgs;
use crate::output;
use crate::record::kept::Options;
use crate::record::program::{find, recorded};
use crate::size::human_bytes;
use crate::started::{Ended, Started};

pub(crate) use learned::profile;
pub(crate) use report::outlook;

/// How often the budget is set anew, in a run that is not recorded.
const GLANCE: Duration = Duration::from_millis(10);

/// The name of the folders of recordings begins so, and goes on with the process.
const RECORDING: &str = ".nigh-advise-";

/// One file of this many is recorded with `--learn`.
const LEARNED: u32 = 8;

pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<()> {
    let known = read(&args.profile)?;
    let Some((name, arguments)) = args.program.split_first() else {
        let profile = known.with_context(|| format!("{}: there is no such profile", args.profile.display()))?;
        return output::print(report::known(&profile).as_bytes());
    };
    let keep = args.keep.as_deref().map(|text| {
        nigh_text::bytes(text).with_context(|| format!("--keep {text}: expected bytes, such as 500M or 1G"))
    });
    let keep = keep.transpose()?;
    let program = find(name)?;
    let known = known.map(|profile| current(profile, &args.profile, &program)).transpose()?.flatten();
    // A file that is there is a profile.
    let to = Destination::new(&args.profile, true, &[])?;
    let (ended, is_done) = match known {
        None => first(&to, &program, arguments)?,
        Some(profile) => again(args, &to, keep, profile, &program, arguments)?,
    };
    match ended.code() {
        0 if is_done => Ok(()),
        0 => std::process::exit(2),
        code => std::process::exit(code),
    }
}

/// Reads a profile, if there is one.
fn read(path: &Path) -> anyhow::Result<Option<Profile>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(path.display().to_string()),
    };
    let profile = Profile::parse(&text)
        .with_context(|| format!("{}: not a profile of 'nigh patterns --profile' or 'nigh advise'", path.display()))?;
    Ok(Some(profile))
}

/// Writes a profile; a reader sees the old one or the new one.
pub(crate) fn write(to: &Destination, profile: &Profile) -> anyhow::Result<()> {
    output::write(to, |out| out.write_all(profile.to_toml().as_bytes()))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Folder of a run's recorded calls until the profile is written: beside it, because there may be many.
fn recording(profile: &Path) -> anyhow::Result<(tempfile::TempDir, Destination)> {
    for left in of_ended(folder(profile), RECORDING) {
        // It may be another user's.
        let _ = std::fs::remove_dir_all(left);
    }
    let prefix = format!("{RECORDING}{}-", std::process::id());
    let beside = tempfile::Builder::new().prefix(&prefix).tempdir_in(folder(profile));
    let beside = beside.with_context(|| format!("a recording beside {}", profile.display()))?;
    let file = Destination::new(&beside.path().join("run.parquet"), false, &[])?;
    Ok((beside, file))
}

/// The first run: it is recorded, and the profile is made of it. Returns whether there is one.
fn first(to: &Destination, program: &Program, arguments: &[OsString]) -> anyhow::Result<(Ended, bool)> {
    let path = to.path();
    let why = if path.exists() { "has no code of today's builds" } else { "is new" };
    output::tell(format_args!("nigh: {} {why}: this run is recorded, and gets no advice", path.display()));
    let (_folder, file) = recording(path)?;
    let session = Session::new().context("a folder to share with the program")?;
    let (ended, written) = recorded(program, arguments, &session, &file, &Options::CALLS, |_| {})?;
    session.end().context("the folder shared with the program")?;
    let Ok(Some(summary)) = written else { return Ok((ended, written.is_ok())) };
    if summary.bytes_read == 0 {
        output::tell(format_args!("nigh: {} read nothing: there is no profile of it", program.name()));
        return Ok((ended, true));
    }
    let made = || {
        // Later runs are compared with this one, by the bytes of its calls.
        ensure!(summary.lost <= summary.calls / 100, "too many calls were lost for a profile; run the program again");
        let profile = learned::learn(file.path(), None)?;
        write(to, &profile)?;
        Ok(profile)
    };
    match made() {
        Ok(profile) => output::tell(format_args!("nigh: {}", report::summary(&profile, path))),
        Err(error) => {
            output::tell(format_args!("nigh: {error:#}"));
            return Ok((ended, false));
        }
    }
    Ok((ended, true))
}

/// The profile without the code of other builds; `None` if nothing is left.
fn current(mut profile: Profile, file: &Path, program: &Program) -> anyhow::Result<Option<Profile>> {
    let path = std::path::absolute(&program.path)?;
    ensure!(
        path.as_os_str().to_str() == Some(&profile.program),
        "{} is the profile of {}, not of {}: choose another file for --profile",
        file.display(),
        profile.program,
        path.display()
    );
    let codes = profile.codes.len();
    let stale = profile.drop_stale(|path| build_id(Path::new(path))).len();
    if stale > 0 {
        output::tell(format_args!(
            "nigh: {stale} of {codes} pieces of code are in programs or libraries that were built anew, and get no advice; --learn \
             finds the new ones"
        ));
    }
    Ok((stale == 0 || !profile.codes.is_empty()).then_some(profile))
}

/// A run of a known program. Returns whether the profile could be written.
fn again(
    args: &AdviseArgs,
    to: &Destination,
    keep: Option<u64>,
    mut profile: Profile,
    program: &Program,
    arguments: &[OsString],
) -> anyhow::Result<(Ended, bool)> {
    let table = profile.table(learned::file);
    if !args.learn && !profile.gets_advice() {
        let why = report::why_not(&profile, &args.profile);
        output::tell(format_args!("nigh: {} runs without advice: {why}", program.name()));
        let mut command = std::process::Command::new(&program.path);
        let mut started = Started::new(command.args(arguments)).with_context(|| program.path.display().to_string())?;
        let ended = started.wait().context("waiting for the program")?;
        if args.report {
            output::tell_part(report::known(&profile));
        }
        return Ok((ended, true));
    }
    let session = Session::new().context("a folder to share with the program")?;
    let told = Told { frames: profile.frames, depth: profile.depth, recorded: if args.learn { LEARNED } else { 0 } };
    let board = session.advise(told, table.len() / ENTRY_BYTES, &table).context("what the program shares with nigh")?;
    let known: HashMap<u64, &Code> = profile.codes.iter().map(|code| (code.code, code)).collect();
    let watched = |process| {
        memory::set_budget(&board, process, keep);
        end_useless(&board, &table, &known);
    };
    watched(std::process::id());
    let (ended, fresh) = if args.learn {
        let (_folder, file) = recording(&args.profile)?;
        let (mut last, glance) = (std::time::Instant::now(), GLANCE);
        let each_round = |process| {
            if last.elapsed() >= glance {
                watched(process);
                last = std::time::Instant::now();
            }
        };
        let (ended, written) = recorded(program, arguments, &session, &file, &Options::CALLS, each_round)?;
        let fresh = matches!(written, Ok(Some(_))).then(|| learned::learn(file.path(), Some(&profile)));
        (ended, fresh)
    } else {
        let mut command = session.command(program)?;
        let mut missed = BTreeSet::new();
        let mut started = Started::new(command.args(arguments)).with_context(|| program.path.display().to_string())?;
        while !started.has_ended().context("waiting for the program")? {
            watched(started.process());
            missed.extend(session.forget_ended());
            std::thread::sleep(GLANCE);
        }
        let ended = started.wait().context("waiting for the program")?;
        missed.extend(session.forget_ended());
        missed
            .iter()
            .for_each(|name| output::tell(format_args!("nigh: {name} ran as another user, and got no advice")));
        (ended, None)
    };
    let tallies = tallies(&board, &table);
    // Programs in the background go on without advice: nobody sees any more whether it gains.
    board.set_budget(0, false);
    board.tallies().iter().for_each(|tally| tally.has_ended.store(1, Ordering::Relaxed));
    let cleared = session.end().context("the folder shared with the program");
    let by_code = tallies.iter().filter(|(_, tally)| tally.calls > 0);
    let reads = |did: &Did| Reads { asked_bytes: did.bytes, read_bytes: did.device_bytes };
    let by_code = by_code.map(|(&code, did)| (code, reads(did))).collect();
    let is_random =
        |code: u64| known.get(&code).is_some_and(|known| known.class == Name::Rand && profile.advises(known));
    let acted = |code: u64, did: &Did| did.dropped > 0 || did.fetched > 0 || (is_random(code) && did.device_bytes > 0);
    if !profile.gets_advice() {
        output::tell(format_args!("nigh: {} ran without advice", program.name()));
    } else if !tallies.iter().any(|(&code, did)| acted(code, did)) {
        // The page cache may have had the blocks before: that is no gain, and no loss either.
        let read = ended.device_bytes.map_or("an unknown amount".to_owned(), human_bytes);
        output::tell(format_args!(
            "nigh: devices read {read} for {}; advice dropped and fetched nothing, so this run does not show whether it gains",
            program.name()
        ));
    } else if let Some(read_bytes) = ended.device_bytes {
        let run = Run { read_bytes, by_code };
        let plain = profile.without_advice(&run).map(|plain| format!("; {} without advice", human_bytes(plain)));
        let plain = plain.unwrap_or_default();
        let off = profile.learn(&run);
        output::tell(format_args!("nigh: devices read {} for {}{plain}", human_bytes(read_bytes), program.name()));
        if !off.is_empty() {
            output::tell(format_args!(
                "nigh: {} of {} pieces of code gained nothing, and get no advice from now on",
                off.len(),
                tallies.len()
            ));
        }
    } else {
        output::tell(format_args!(
            "nigh: this kernel does not count what devices read for a program: whether advice gains is not known"
        ));
    }
    let learned = fresh.transpose().map(|fresh| fresh.into_iter().for_each(|fresh| profile.add(fresh)));
    let results = [cleared, learned, write(to, &profile)];
    // The program has ended as it has: its exit code is what counts.
    results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .for_each(|error| output::tell(format_args!("nigh: {error:#}")));
    if args.report {
        output::tell_part(report::run(&profile, &tallies));
    }
    Ok((ended, results.iter().all(Result::is_ok)))
}

/// Ends advice for code for which devices have read more than they would without.
fn end_useless(board: &Board, table: &[u8], known: &HashMap<u64, &Code>) {
    for (code, did) in tallies(board, table) {
        let known = known.get(&code);
        // The first reads of a page come from the device in any case.
        let most = known.and_then(|known| known.without_advice(did.bytes).max(known.read_bytes));
        if most.is_some_and(|most| did.device_bytes > most) {
            let entries = Table::mapped(table).codes().zip(board.tallies());
            // Seldom: once for each code.
            let entries = entries.filter(|(of, tally)| *of == code && tally.has_ended.load(Ordering::Relaxed) == 0);
            entries.for_each(|(_, tally)| tally.has_ended.store(1, Ordering::Relaxed));
        }
    }
}

/// Effects of advice for one piece of code.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    calls: u64,
    bytes: u64,
    device_bytes: u64,
    dropped: u64,
    fetched: u64,
}

fn tallies(board: &Board, table: &[u8]) -> BTreeMap<u64, Did> {
    let mut all = BTreeMap::<u64, Did>::new();
    for (code, tally) in Table::mapped(table).codes().zip(board.tallies()) {
        let did = all.entry(code).or_default();
        did.calls += tally.calls.load(Ordering::Relaxed);
        did.bytes += tally.bytes.load(Ordering::Relaxed);
        did.device_bytes += tally.device_bytes.load(Ordering::Relaxed);
        did.dropped += tally.dropped.load(Ordering::Relaxed);
        did.fetched += tally.fetched.load(Ordering::Relaxed);
    }
    all
}
