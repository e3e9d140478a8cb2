//! Output that is written whole or not at all.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Writes to standard output.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("standard output")
}

/// Writes a file by way of a temporary one beside it, so that no reader sees half of it.
pub(crate) fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let whole = || -> std::io::Result<()> {
        let mut temporary = tempfile::Builder::new().prefix(".nigh-").tempfile_in(folder)?;
        let mut buffered = std::io::BufWriter::new(temporary.as_file_mut());
        write(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        // A temporary file is its owner's alone; what is written for people has the usual mode.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            temporary.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        temporary.persist(path)?;
        Ok(())
    };
    whole().with_context(|| path.display().to_string())
}
