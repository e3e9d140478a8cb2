//! The files that a server opens, for its sandbox.

use std::path::PathBuf;

use anyhow::Context;
use nigh_service::{Listen, Settings};

use super::Plan;
use crate::args::ServeArgs;
use crate::sandbox::{Rules, change, read, socket};

/// The files and sockets that `plan` needs, and `characters`, the character devices of its block devices. It can wait for targets.
pub(super) fn files(plan: &Plan, args: &ServeArgs, characters: &[PathBuf]) -> anyhow::Result<Rules> {
    // Those of a server whose place it takes are locked by that.
    let disks = plan.settings.exports.iter().filter(|_| !args.replace);
    for disk in disks.map(|export| &export.disk) {
        // Afterwards, it cannot be known which process has locked it.
        let locked = disk.targets().try_for_each(|target| target.check_locks(disk.read_only));
        locked.with_context(|| format!("disk {}", disk.name))?;
    }
    let mut rules = Rules::new();
    let Plan { settings, given, listen, vhost, record, .. } = plan;
    let Settings { host, exports, metrics, tls, .. } = settings;
    exports.iter().flat_map(|export| export.disk.opened()).for_each(|target| rules.target(target));
    host.levels.iter().for_each(|level| rules.target(&level.target));
    host.warm.iter().for_each(|warm| rules.beside(&warm.file, change()));
    for address in listen {
        if let Listen::Unix(path) = address {
            rules.beside(path, socket());
        }
    }
    // A file beside each marks that the server ended as it should.
    vhost.iter().for_each(|vhost| rules.beside(&vhost.socket, socket() | change()));
    characters.iter().for_each(|path| rules.device(path));
    given.watch.control.iter().for_each(|path| rules.beside(path, socket()));
    record.iter().for_each(|recording| rules.beside(&recording.file, change()));
    args.config.iter().for_each(|path| rules.beside(path, read()));
    tls.iter().for_each(|tls| rules.certificates(tls));
    let level_tls = host.remote_level.iter().filter_map(|level| level.tls.as_ref());
    level_tls.for_each(|tls| rules.client_certificates(tls));
    metrics.iter().filter_map(|metrics| metrics.token.as_ref()).for_each(|path| rules.beside(path, read()));
    given.rights.sandbox_allow.iter().for_each(|folder| rules.allow(folder));
    Ok(rules)
}
