//! Limits of recordings of programs and disks, and the files that are kept after an error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_output::Destination;
use nigh_trace::Taken;
use nigh_trace::format::parquet::Recorder;

use super::seconds;
use crate::args::RecordArgs;
use crate::results::grouped;
use crate::{asked, output};

/// How often what was recorded is completed in the file.
pub(super) const CHECKPOINT: Duration = Duration::from_secs(10);

/// The default block size of a replay.
pub(super) const BLOCK_BYTES: u32 = 4096;

/// When a recording ends by itself.
pub(super) struct Limits {
    pub(super) time: Option<Duration>,
    pub(super) calls: u64,
    pub(super) bytes: u64,
}

impl Limits {
    const NONE: Limits = Limits { time: None, calls: u64::MAX, bytes: u64::MAX };
}

/// Options of a program's recording.
pub(crate) struct Options {
    pub(super) private: bool,
    /// Also page faults in mappings of files.
    pub(super) faults: bool,
    /// Calls are lost rather than that programs wait.
    pub(super) lossy: bool,
    pub(super) limits: Limits,
}

impl Options {
    /// All its calls, for a profile.
    pub(crate) const CALLS: Options = Options { private: false, faults: false, lossy: false, limits: Limits::NONE };
}

/// Reads the limits, and checks that the file can be written.
pub(super) fn limits(args: &RecordArgs) -> anyhow::Result<(Limits, Destination)> {
    let time = seconds(&args.recording)?.map(Duration::from_secs_f64);
    let calls = args.recording.limit.as_deref().map(asked::parse_limit).transpose()?.unwrap_or(u64::MAX);
    let bytes = args.max_size.as_deref().map(|text| {
        let bytes = nigh_text::bytes(text).filter(|&bytes| bytes > 0);
        bytes.with_context(|| format!("--max-size {text}: expected bytes, such as 500M or 1G"))
    });
    let bytes = bytes.transpose()?.unwrap_or(u64::MAX);
    let is_parquet = args.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"));
    let file = args.file.display();
    ensure!(is_parquet, "{file}: recordings of programs and disks are Parquet files: end the name in .parquet");
    let to = Destination::new(&args.file, args.recording.force, &[])?;
    Ok((Limits { time, calls, bytes }, to))
}

/// Begins a recording, and names those in its folder that did not end.
pub(super) fn begin(to: &Destination, taken: Taken) -> anyhow::Result<Recorder> {
    let recorder = Recorder::create(to, taken, BLOCK_BYTES)?;
    let file = to.path();
    if let Some(left) = recorder.set_aside() {
        let (file, left) = (file.display(), left.display());
        output::tell(format_args!("nigh: note: an earlier recording of {file} did not end: it is now in {left}"));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let parts = entries.map(|entry| folder.unwrap_or(Path::new("")).join(entry.file_name()));
    let is_part = |path: &PathBuf| path.to_str().is_some_and(|name| name.ends_with(".parquet.part"));
    for part in parts.filter(is_part).filter(|part| !nigh_output::is_growing(part)) {
        let part = part.display();
        output::tell(format_args!("nigh: note: a recording did not end: {part} has what was recorded"));
    }
    Ok(recorder)
}

/// Completes the recording in `file`. If that is not possible, its complete part is kept.
pub(super) fn completed(mut recorder: Recorder, file: &Path) -> anyhow::Result<()> {
    if let Err(error) = recorder.checkpoint() {
        return Err(salvaged(recorder, file, error));
    }
    Ok(recorder.finish()?)
}

/// Ends the recording in `file` after an error, and keeps its complete part.
pub(super) fn salvaged(recorder: Recorder, file: &Path, error: nigh_trace::Error) -> anyhow::Error {
    match recorder.salvage() {
        Ok(calls) => {
            let kept =
                format!("the recording ended early; {} has the first {} requests", file.display(), grouped(calls));
            anyhow::Error::from(error).context(kept)
        }
        Err(_) => error.into(),
    }
}
