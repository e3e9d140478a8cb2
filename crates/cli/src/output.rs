//! Output that is written whole or not at all.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

/// Writes to standard output.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("standard output")
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
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut temporary = tempfile::Builder::new().prefix(".nigh-").tempfile_in(folder).map_err(plain)?;
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

/// The error without the temporary file's name, which tells nobody anything.
fn plain(error: std::io::Error) -> std::io::Error {
    std::io::Error::from(error.kind())
}
