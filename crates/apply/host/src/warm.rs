//! The list of the blocks in memory, as a file. The start reads it; a file that is something else is refused, so that it is
//! not replaced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use rustix::fs::OFlags;

use crate::error::StartError;
use crate::settings::{BLOCK, WarmSettings};
use crate::sync::lock;

const FIRST_LINE: &str = "nigh warm 1";
const LAST_LINE: &str = "end";

/// The blocks of one disk, by number: ascending, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The size of the disk, in bytes.
    pub(crate) size: u64,
    pub(crate) runs: VecDeque<Range<u64>>,
}

impl Blocks {
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// Disks by name.
pub(crate) type List = BTreeMap<String, Blocks>;

/// The numbers of blocks of each disk, with its size in bytes; ascending.
pub(crate) type Numbers = BTreeMap<String, (u64, Vec<u64>)>;

/// Writes a list: `disk SIZE NAME`, then a line for each run of blocks, the gap before it and its length.
fn encode(list: &Numbers, out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "{FIRST_LINE}")?;
    // A name with a line break would be read as something else.
    for (name, (size, blocks)) in list.iter().filter(|(name, _)| !name.contains(char::is_control)) {
        writeln!(out, "disk {size} {name}")?;
        let mut at = 0;
        for run in blocks.chunk_by(|one, next| one + 1 == *next) {
            writeln!(out, "{} {}", run[0] - at, run.len())?;
            at = run[0] + run.len() as u64;
        }
    }
    writeln!(out, "{LAST_LINE}")
}

/// `None` if it is cut off or damaged.
fn decode(text: &str) -> Option<List> {
    let mut lines = text.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let (mut list, mut name) = (List::new(), None);
    for line in lines.by_ref() {
        if line == LAST_LINE {
            return Some(list);
        }
        let (first, rest) = line.split_once(' ')?;
        if first == "disk" {
            let (size, of) = rest.split_once(' ')?;
            let blocks = Blocks { size: size.parse().ok()?, runs: VecDeque::new() };
            if list.insert(of.to_owned(), blocks).is_some() {
                return None;
            }
            name = Some(of.to_owned());
            continue;
        }
        let blocks = list.get_mut(name.as_ref()?)?;
        let at = blocks.runs.back().map_or(0, |run| run.end);
        let start = at.checked_add(first.parse().ok()?)?;
        let end = start.checked_add(rest.parse().ok()?)?;
        if end <= start || end > blocks.size.div_ceil(BLOCK) {
            return None;
        }
        blocks.runs.push_back(start..end);
    }
    None
}

/// The file, and the blocks of the last run that are not loaded yet.
pub(crate) struct Warm {
    pub(crate) settings: WarmSettings,
    pub(crate) left: Mutex<List>,
    /// Held while the file is written.
    writing: Mutex<()>,
    pub(crate) thread: OnceLock<Thread>,
}

/// The list while it is written.
fn part(file: &Path) -> PathBuf {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

impl Warm {
    /// Reads the list of the last run, if there is one, of the disks with these names.
    pub(crate) fn open(settings: &WarmSettings, names: &BTreeSet<&str>) -> Result<Warm, StartError> {
        let path = &settings.file;
        let failed = |source| StartError::Warm { path: path.clone(), source };
        let is_other = |bytes: &[u8]| !bytes.is_empty() && !bytes.starts_with(FIRST_LINE.as_bytes());
        let part = part(path);
        if std::fs::read(&part).is_ok_and(|bytes| is_other(&bytes)) {
            return Err(StartError::NoWarm(part));
        }
        let mut list = match std::fs::read(path) {
            Ok(bytes) if is_other(&bytes) => return Err(StartError::NoWarm(path.clone())),
            Ok(bytes) if bytes.is_empty() => List::new(),
            Ok(bytes) => std::str::from_utf8(&bytes).ok().and_then(decode).unwrap_or_else(|| {
                tracing::warn!(list = %path.display(), "the list of blocks is damaged: memory starts empty");
                List::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => List::new(),
            Err(error) => return Err(failed(error)),
        };
        list.retain(|name, _| names.contains(name.as_str()));
        Ok(Warm {
            settings: settings.clone(),
            left: Mutex::new(list),
            writing: Mutex::default(),
            thread: OnceLock::new(),
        })
    }

    /// Replaces the file.
    pub(crate) fn write(&self, list: &Numbers) -> io::Result<()> {
        let _writing = lock(&self.writing);
        let part = part(&self.settings.file);
        // Which blocks are read is nobody else's business. Others may have put a link there since the start.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&part)?;
        let mut file = BufWriter::new(file);
        encode(list, &mut file)?;
        file.into_inner()?.sync_data()?;
        std::fs::rename(&part, &self.settings.file)
    }

    /// The thread that loads and keeps the list looks whether the host ends.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_5_a_list_is_read_as_it_was_written_or_not_at_all() {
        let disk = |name: &str, size: u64, blocks: &[u64]| (name.to_owned(), (size, blocks.to_vec()));
        let list = [disk("a disk", 1 << 20, &[0, 5, 6, 7, 8, 255]), disk("b", 5000, &[1]), disk("empty", 0, &[])];
        let mut text = Vec::new();
        encode(&list.clone().into(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let read = decode(&text).expect("a list");
        let numbers =
            |(name, blocks): (String, Blocks)| (name, (blocks.size, blocks.runs.into_iter().flatten().collect()));
        assert_eq!(read.into_iter().map(numbers).collect::<Numbers>(), list.into());
        for end in 0..text.len() - 1 {
            assert_eq!(decode(&text[..end]), None, "cut off at {end}");
        }
        for (from, to) in [("4 4", "4 x"), ("0 1", "0 0"), ("246 1", "247 1"), ("4 4", "18446744073709551615 4")] {
            assert_eq!(decode(&text.replacen(from, to, 1)), None, "{to}");
        }
        assert_eq!(decode("nigh warm 1\n1 1\nend\n"), None);
        assert_eq!(decode("nigh warm 2\nend\n"), None);
    }
}
