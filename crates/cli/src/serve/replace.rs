//! `nigh serve --replace`: a server takes the place of one that runs (docs/serve.md, "Restarts").

use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nigh_service::{Listen, Predecessor, Service, Sockets, Succession, Successor};
use nigh_ublk::Ublk;
use nigh_vhost::Vhost;
use nix::unistd::geteuid;

use super::{End, Plan, all_written, check, note_end};

/// How long the answer of a server that has disks open may take until it is sent.
const ANSWER: Duration = Duration::from_secs(1);
/// The interval between checks whether a server that waits for its successor is to end.
const GLANCE: Duration = Duration::from_millis(100);

/// The server at the control socket of `plan`, which goes on. An error if a server of `plan` at `addresses` could not take its place, as far as that can be known.
pub(super) fn prepare<'a>(
    plan: &Plan,
    addresses: impl Iterator<Item = &'a Listen> + Clone,
) -> anyhow::Result<Predecessor> {
    let control =
        plan.given.watch.control.as_ref().context("--replace needs --control PATH, as the running server has it")?;
    let predecessor = Predecessor::ask(control)?;
    let wanted: Vec<Listen> = addresses.clone().cloned().collect();
    predecessor.check(&plan.settings.exports, &wanted)?;
    check(plan)?;
    for address in addresses.filter(|address| !predecessor.is_at(address)) {
        address.check_free()?;
    }
    let metrics = plan.settings.metrics.as_ref().map(|metrics| Listen::Tcp(metrics.address.to_string()));
    if let Some(address) = metrics.filter(|address| !predecessor.is_at(address)) {
        address.check_free()?;
    }
    if let Some(user) = &plan.user {
        ensure!(geteuid().is_root() || user.is_own(), "--user {}: only root can become another user", user.text);
    }
    Ok(predecessor)
}

/// Has the running server end. Returns its sockets, and for how long it has accepted no clients.
pub(super) fn take(predecessor: &mut Predecessor) -> anyhow::Result<(Sockets, Duration)> {
    tracing::info!(process = predecessor.process(), "waiting for the running server to write everything and end");
    let departure = predecessor.end()?;
    for lost in &departure.unwritten {
        tracing::error!(
            process = predecessor.process(),
            "the server before this one could not write everything: {lost}"
        );
    }
    Ok((predecessor.take_sockets(), Duration::from_micros(departure.paused_us)))
}

/// Ends `server` for its successor, and waits until that serves. Returns false if the server goes on.
pub(super) fn hand_over(
    server: &Service,
    machines: &[Vhost],
    devices: &[Ublk],
    successor: &Successor,
    stopped: &Receiver<End>,
) -> anyhow::Result<bool> {
    tracing::info!("another server takes this one's place: writing everything back");
    devices.iter().for_each(|device| device.will_end(true));
    let handed = match server.hand_over(successor) {
        Ok(handed) => handed,
        Err(error) => {
            tracing::warn!("not replaced, and serving on: {error}");
            devices.iter().for_each(Ublk::goes_on);
            successor.answer(Err(&error));
            return Ok(false);
        }
    };
    note_end(machines, devices, &handed.unwritten);
    successor.answer(Ok(&handed));
    tracing::info!(
        "ended, after {:.3} s without clients; the other server opens the disks",
        handed.since.elapsed().as_secs_f64()
    );
    if !handed.unwritten.is_empty() {
        // Its disks are free for the other server when this process has ended, which that waits for.
        successor.wait(ANSWER);
    }
    all_written(&handed.unwritten)?;
    loop {
        match successor.wait(GLANCE) {
            Succession::Serves => break,
            Succession::Failed => {
                handed.close();
                bail!(
                    "the server that was to take this one's place ended before it served: nothing is served now; everything is written"
                );
            }
            // It has nothing left that the signal could end.
            Succession::Open if matches!(stopped.try_recv(), Ok(End::Asked)) => break,
            Succession::Open => {}
        }
    }
    Ok(true)
}
