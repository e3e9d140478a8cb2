//! Output that is written whole or not at all.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};

/// Writes to standard output.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("standard output")
}

/// Writes a line to standard error. If it cannot be written, it is lost: no message may end the work that it is about.
pub(crate) fn tell(line: impl Display) {
    tell_part(format_args!("{line}\n"));
}

/// Writes text to standard error, as [`tell`] does, but ends no line.
pub(crate) fn tell_part(text: impl Display) {
    let text = text.to_string();
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a file by way of a temporary one beside it, so that no reader sees half of it. A link is followed; a pipe or a
/// device is written to as it is.
pub(crate) fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let whole = || -> std::io::Result<()> {
        let path = if path.exists() { path.canonicalize()? } else { path.to_owned() };
        if path.exists() && !path.is_file() {
            let mut file = std::io::BufWriter::new(std::fs::File::options().write(true).open(path)?);
            write(&mut file)?;
            return file.flush();
        }
        let mut temporary = temporary_beside(&path)?;
        let mut buffered = std::io::BufWriter::new(temporary.as_file_mut());
        write(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        // A temporary file is its owner's alone; what is written for people has the usual mode.
        temporary.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        temporary.persist(path).map_err(|error| plain(error.error))?;
        Ok(())
    };
    whole().with_context(|| path.display().to_string())
}

/// Checks, before long work, that [`write_file`] will be able to write `path`.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    ensure!(!path.is_dir(), "{}: this is a folder; name a file in it", name());
    if path.exists() {
        let path = path.canonicalize().with_context(name)?;
        return match path.is_file() {
            true => temporary_beside(&path).map(drop).with_context(name),
            // To open a pipe would wait for its reader.
            false => rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).with_context(name),
        };
    }
    let folder = folder_of(path);
    ensure!(folder.is_dir(), "{}: there is no folder {}; create it first", name(), folder.display());
    temporary_beside(path).map(drop).with_context(name)
}

/// Prints `text`, then writes the page if there is one: a page that cannot be written costs no table. With `reports`, a last
/// line names the page.
pub(crate) fn print_and_write(
    text: &[u8],
    page: Option<(&Path, impl FnOnce(&mut dyn Write) -> std::io::Result<()>)>,
    reports: bool,
) -> anyhow::Result<()> {
    let printed = print(text);
    if let Some((path, write)) = page {
        write_file(path, write)?;
        if reports && printed.is_ok() {
            print(format!("wrote {}\n", path.display()).as_bytes())?;
        }
    }
    printed
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".nigh-").tempfile_in(folder_of(path)).map_err(plain)
}

/// The error without the temporary file's name, which tells nobody anything.
fn plain(error: std::io::Error) -> std::io::Error {
    std::io::Error::from(error.kind())
}
