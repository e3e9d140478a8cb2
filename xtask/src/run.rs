//! Running other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The root of the tree.
pub(crate) fn root() -> PathBuf {
    // As it is run, not as it was built: the folder of builds may have been copied from another tree.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().expect("xtask lies in the root").to_owned()
}

/// The folder of builds.
pub(crate) fn builds() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from)
}

/// How the names of variables begin that cargo sets for the program that it runs.
const OF_XTASK: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// `cargo` with `args`, in the root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = in_root(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(args);
    command
}

/// A program that runs cargo, in the root.
pub(crate) fn in_root(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    // They are about xtask. Build scripts that ask for them, such as that of ring, would run again, and what depends on them would be
    // built again.
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.to_str().is_some_and(|name| OF_XTASK.iter().any(|own| name.starts_with(own)))) {
        command.env_remove(name);
    }
    command
}

/// Runs `command` and fails where it does.
pub(crate) fn check(command: &mut Command) -> anyhow::Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let status = command.status().with_context(|| format!("starting {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// The number in front of `what` in a line of counts, such as `2 failed, 40 passed`.
pub(crate) fn count(counts: &str, what: &str) -> u32 {
    let before = counts.split(what).next().unwrap_or_default();
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
