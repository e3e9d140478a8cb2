//! Values that shells complete beside commands and flags: policies, devices, and the exports of a running server.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::Context;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use nigh_device::Profile;
use nigh_policy::{Info, registry, unified};
use nigh_service::ControlClient;

/// The variable by which a shell's script asks this program for completions.
pub(crate) const VARIABLE: &str = "NIGH_COMPLETE";
/// How long a server may take to list its exports.
const PATIENCE: Duration = Duration::from_secs(1);

/// The script that has `shell` ask this program.
pub(crate) fn script(shell: Shell) -> anyhow::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).context("this shell has no completions")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "nigh", "nigh", "nigh", &mut script)?;
    Ok(script)
}

fn listed(wanted: impl Fn(&Info) -> bool) -> Vec<CompletionCandidate> {
    let wanted = registry().iter().chain(unified()).filter(|info| wanted(info));
    wanted.map(|info| CompletionCandidate::new(info.name).help(Some(info.summary.into()))).collect()
}

/// Policies for replays.
pub(crate) fn policies() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed(|_| true))
}

/// Policies for a running cache.
pub(crate) fn live_policies() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed(|info| !info.offline))
}

/// Modelled devices.
pub(crate) fn devices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| Profile::names().map(CompletionCandidate::new).collect())
}

/// The exports of the server that `--control` or `NIGH_CONTROL` names; none if it does not answer.
pub(crate) fn exports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        control().map(names).unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The control socket, as the command line that is completed has it.
fn control() -> Option<PathBuf> {
    let words: Vec<_> = std::env::args_os().collect();
    let own = words.iter().enumerate().find_map(|(at, word)| match word.to_str() {
        Some("--control") => words.get(at + 1).map(PathBuf::from),
        Some(word) => word.strip_prefix("--control=").map(PathBuf::from),
        None => None,
    });
    own.or_else(|| std::env::var_os("NIGH_CONTROL").map(PathBuf::from))
}

fn names(control: PathBuf) -> Vec<String> {
    let (told, names) = channel();
    std::thread::spawn(move || {
        let status = ControlClient::connect(&control).ok().and_then(|mut client| client.status().ok());
        let exports = status.into_iter().flat_map(|status| status.exports);
        // Fails where nobody waits any more.
        let _ = told.send(exports.map(|export| export.disk.name).collect());
    });
    names.recv_timeout(PATIENCE).unwrap_or_default()
}
