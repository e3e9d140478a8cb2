//! The extents of real files: FIEMAP, as reported by `filefrag` of e2fsprogs.

use std::io;
use std::process::{Command, Stdio};

use super::{Extent, FileSize, Layout, Overlap};

/// The most files in one run of `filefrag`.
const FILES: usize = 256;
/// The unit of its output.
const UNIT: u64 = 512;
/// Extents with one of these words have no place of their own on the disk.
const NOWHERE: [&str; 5] = ["unknown_loc", "delalloc", "inline", "not_aligned", "encoded"];

/// Why extents of real files cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum FiemapError {
    /// `filefrag` cannot be run.
    #[error("cannot run filefrag (e2fsprogs): {0}")]
    Run(#[from] io::Error),
    /// A file has no extents: it does not exist, is empty, or is on a file system that does not report them.
    #[error("{path}: filefrag reports no extents of this file")]
    Nowhere {
        /// The file.
        path: String,
    },
    /// Two files share extents.
    #[error(transparent)]
    Shared(#[from] Overlap),
}

/// The extents of `files` on this machine, by their paths. Empty files have none.
pub fn fiemap(files: &[FileSize]) -> Result<Layout, FiemapError> {
    let mut extents = Vec::new();
    for some in files.chunks(FILES) {
        let mut filefrag = Command::new("filefrag");
        filefrag.args(["-v", "-b512", "--"]).args(some.iter().map(|file| &file.path)).env("LC_ALL", "C");
        let output = filefrag.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        parse(&String::from_utf8_lossy(&output.stdout), some, &mut extents);
    }
    for file in files.iter().filter(|file| file.bytes > 0) {
        if !extents.iter().any(|extent: &Extent| extent.file == file.file) {
            return Err(FiemapError::Nowhere { path: file.path.clone() });
        }
    }
    Ok(Layout::new(extents)?)
}

fn parse(text: &str, files: &[FileSize], extents: &mut Vec<Extent>) {
    let mut current = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("File size of ") {
            // A path can contain any of the text that follows it here.
            let of = |file: &&FileSize| {
                let size = rest.strip_prefix(&file.path).and_then(|rest| rest.strip_prefix(" is "));
                let size = size.and_then(|rest| rest.split_once(" (")).map(|(size, _)| size);
                size.is_some_and(|size| size.parse::<u64>().is_ok())
            };
            current = files.iter().find(of).map(|file| file.file);
            continue;
        }
        if let (Some(file), Some(extent)) = (current, extent(line)) {
            extents.push(Extent { file, ..extent });
        }
    }
}

/// `  0:        0..      79:  183487304.. 183487383:     80:             last,eof`
fn extent(line: &str) -> Option<Extent> {
    let mut fields = line.split(':').map(str::trim);
    fields.next()?.parse::<u32>().ok()?;
    let start = |field: &str| field.split_once("..")?.0.trim().parse::<u64>().ok()?.checked_mul(UNIT);
    let (offset, disk) = (start(fields.next()?)?, start(fields.next()?)?);
    let length = fields.next()?.parse::<u64>().ok()?.checked_mul(UNIT).filter(|&length| length > 0)?;
    let nowhere = fields.any(|field| field.split(',').any(|flag| NOWHERE.contains(&flag.trim())));
    (!nowhere).then_some(Extent { file: 0, offset, disk, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_filefrag_says() {
        let text = "Filesystem type is: ef53\n\
                    File size of /a is b is 40828 (80 blocks of 512 bytes)\n \
                    ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
                    0:        0..      39:  183487304.. 183487343:     40:            \n   \
                    1:       40..      79:  200..       239:     40:  183487344: last,eof\n\
                    /a is b: 2 extents found\n\
                    File size of /a is 100 (1 block of 512 bytes)\n   \
                    0:        0..       7:          0..         7:      8:             last,not_aligned,inline,eof\n\
                    /a: 1 extent found\n";
        let file = |file, path: &str| FileSize { file, bytes: 1, path: path.to_owned() };
        let mut extents = Vec::new();
        parse(text, &[file(1, "/a"), file(2, "/a is b")], &mut extents);
        let whole = Extent { file: 2, offset: 0, disk: 183_487_304 * 512, length: 20_480 };
        assert_eq!(extents, [whole, Extent { offset: 20_480, disk: 102_400, ..whole }]);
    }
}
