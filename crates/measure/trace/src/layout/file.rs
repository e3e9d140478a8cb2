//! Lists of files and of extents, as CSV; plain or compressed.

use std::io::{self, Write};
use std::path::Path;

use super::{Extent, FileSize, Layout};
use crate::error::{Bad, Place};
use crate::input::Input;
use crate::{Error, Result};

/// The first line of a list of extents.
const HEADER: &str = "file,offset,disk,length";
/// The first line of a list of files.
const FILES_HEADER: &str = "file_id,size,path";

/// Passes each line of a list, without its header, to `take`, which returns whether it is well-formed.
fn lines(path: &Path, header: &str, expected: &'static str, mut take: impl FnMut(&str) -> Option<()>) -> Result<()> {
    let file = std::fs::File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut input = Input::new(file, path, None)?;
    let mut text = Vec::new();
    while input.fill()? {
        text.extend_from_slice(input.data());
        input.consume(input.data().len());
    }
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || (number == 1 && line == header.as_bytes()) {
            continue;
        }
        let taken = std::str::from_utf8(line).ok().and_then(&mut take);
        taken.ok_or_else(|| Bad::field(line, expected).at(path.to_owned(), Place::Line(number)))?;
    }
    Ok(())
}

/// Reads a list of extents: `file,offset,disk,length`, the last three in bytes, a line each.
pub fn read_extents(path: &Path) -> Result<Layout> {
    let mut extents = Vec::new();
    lines(path, HEADER, "file,offset,disk,length: whole numbers, in bytes, length above 0", |line| {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
        let [file, offset, disk, length] = [fields.next()??, fields.next()??, fields.next()??, fields.next()??];
        let ends = offset.checked_add(length).and(disk.checked_add(length)).is_some();
        if fields.next().is_some() || length == 0 || !ends {
            return None;
        }
        extents.push(Extent { file: u32::try_from(file).ok()?, offset, disk, length });
        Some(())
    })?;
    Layout::new(extents).map_err(|overlap| Error::Overlap { path: path.to_owned(), overlap })
}

/// Writes a list of extents, in the order of the disk.
pub fn write_extents(layout: &Layout, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for Extent { file, offset, disk, length } in layout.extents() {
        writeln!(out, "{file},{offset},{disk},{length}")?;
    }
    out.flush()
}

/// Reads a list of files: `file_id,size,path`, a line each. The path can contain commas.
pub fn read_files(path: &Path) -> Result<Vec<FileSize>> {
    let mut files = Vec::new();
    lines(path, FILES_HEADER, "file_id,size,path: two whole numbers and a path", |line| {
        let mut fields = line.splitn(3, ',');
        let file = fields.next()?.trim().parse().ok()?;
        let bytes = fields.next()?.trim().parse().ok()?;
        files.push(FileSize { file, bytes, path: fields.next()?.to_owned() });
        Some(())
    })?;
    Ok(files)
}
