//! Output that is written whole or not at all.

use std::fmt::Display;
use std::io::{BufWriter, Write};

use anyhow::Context;
use nigh_output::Destination;

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

/// Writes a file, whole or not at all.
pub(crate) fn write(to: &Destination, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut file = BufWriter::new(to.draft()?);
    let written = write(&mut file).and_then(|()| file.flush()).map(|()| file);
    let file = written.with_context(|| to.path().display().to_string())?;
    let (draft, _) = file.into_parts();
    Ok(draft.commit()?)
}

/// Prints `text`, then writes the page if there is one: a page that cannot be written costs no table. With `reports`, a last
/// line names the page.
pub(crate) fn print_and_write(
    text: &[u8],
    page: Option<(&Destination, impl FnOnce(&mut dyn Write) -> std::io::Result<()>)>,
    reports: bool,
) -> anyhow::Result<()> {
    let printed = print(text);
    if let Some((to, page)) = page {
        write(to, page)?;
        if reports && printed.is_ok() {
            print(format!("wrote {}\n", to.path().display()).as_bytes())?;
        }
    }
    printed
}
