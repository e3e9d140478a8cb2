//! Changes of a server while it runs: its exports, their settings, and certificates.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_backend::Target;
use nigh_host::front::{Disk, lock};
use nigh_host::{DiskSettings, FileExtent};
use nigh_policy::Spec;
use nigh_tls::TlsSettings;

use crate::clients::{Client, Common};
use crate::descriptors::allow_descriptors;
use crate::error::{ChangeError, ExportError};
use crate::export::Export;
use crate::settings::{ExportSettings, Settings};

/// Longest name of an export, in bytes: as in NBD.
const NAME_MAX: usize = 4096;
/// How long the clients of an export that is removed have to take their replies.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long a reload waits for exports that are removed, and for those that are opened.
const RELOADING: Duration = Duration::from_secs(5);

/// Warns of a policy that distinguishes the code that reads, which a server does not see.
pub fn warn_of_code(policy: &Spec) {
    if policy.info().streams {
        tracing::warn!(
            "policy {policy} distinguishes the code that reads, which a server does not see: each connection counts as one code, so it may hit much less than in 'nigh sim'"
        );
    }
}

impl Common {
    /// Changes memory and policy.
    pub(crate) fn change(&self, memory: Option<u64>, policy: Option<&Spec>) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        let before = self.host.settings().policy;
        self.host.change(memory, policy)?;
        policy.filter(|policy| **policy != before).into_iter().for_each(warn_of_code);
        Ok(())
    }

    /// Serves another export.
    pub(crate) fn add(&self, settings: ExportSettings) -> Result<(), ChangeError> {
        self.check_new(&settings)?;
        // Its targets may not respond, so the server is not locked: nobody else opens an export of this name.
        let disk = self.host.add(settings.disk.clone()).inspect_err(|_| _ = self.opening.take(&settings.disk.name))?;
        self.serve_opened(disk)
    }

    /// Serves an export that was being opened, unless it was removed meanwhile.
    pub(crate) fn serve_opened(&self, disk: Arc<Disk>) -> Result<(), ChangeError> {
        match self.opening.take(disk.name()) {
            Some(settings) => {
                self.add_export(Export::new(disk, settings));
                Ok(())
            }
            None => {
                let name = disk.name().to_owned();
                drop(disk);
                self.host.remove(&name, true)?;
                Err(ChangeError::NoExport(name))
            }
        }
    }

    fn check_new(&self, settings: &ExportSettings) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        check(std::slice::from_ref(settings), lock(&self.tls).0.as_ref())?;
        let name = &settings.disk.name;
        if self.find(name).is_ok() {
            return Err(ExportError::Duplicate(name.clone()).into());
        }
        if self.opening.find(name).is_some() {
            return Err(ChangeError::Opening(name.clone()));
        }
        let mut present: Vec<ExportSettings> = self.exports().iter().map(|export| export.settings()).collect();
        present.extend(self.opening.all());
        let levels = self.host.settings().levels;
        let of_exports = present.iter().chain([settings]).flat_map(|export| export.disk.opened());
        let of_levels = levels.iter().map(|level| &level.target);
        allow_descriptors(self.connections_max, self.front_descriptors, of_exports.chain(of_levels))?;
        self.opening.add(settings.clone());
        Ok(())
    }

    /// Removes an export: its clients are let go, and its dirty blocks written, or dropped if `discard`.
    pub(crate) fn remove(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        let export = {
            let _one = self.administrate()?;
            if self.opening.take(name).is_some() {
                // It is closed when it is open.
                return Ok(());
            }
            let export = self.find(name)?;
            if export.is_leaving() {
                return Err(ChangeError::Leaving(name.to_owned()));
            }
            export.set_leaving(true);
            export
        };
        // Its device may not respond, so the server is not locked: nobody else changes an export that is leaving.
        // No request waits for its turn.
        export.disk.lift_rates();
        self.disconnect(|client| client.has(&export), FAREWELL);
        match self.host.remove(name, discard) {
            Ok(()) => self.remove_export(&export),
            Err(error) => {
                export.set_leaving(false);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Changes the settings of an export while its clients work.
    pub(crate) fn set(&self, name: &str, change: impl FnOnce(&mut ExportSettings)) -> Result<(), ChangeError> {
        let export = {
            let _one = self.administrate()?;
            let mut settings = self.find(name)?.settings();
            change(&mut settings);
            self.set_one(settings)?
        };
        self.let_go(&export);
        Ok(())
    }

    /// Those who lost it by `set_one` are to be let go.
    fn set_one(&self, settings: ExportSettings) -> Result<Arc<Export>, ChangeError> {
        check_clients(&settings, lock(&self.tls).0.as_ref())?;
        let export = self.find(&settings.disk.name)?;
        let (wanted, before) = (settings.disk.clone(), export.settings().disk.policy);
        self.host.set(&wanted.name, |disk: &mut DiskSettings| *disk = wanted.clone())?;
        wanted.policy.iter().filter(|_| wanted.policy != before).for_each(warn_of_code);
        export.set(settings);
        Ok(export)
    }

    /// Clients of `export` that may not use it any more are disconnected, and nothing more is done for them. They may wait for
    /// a device, so the server is not locked.
    fn let_go(&self, export: &Arc<Export>) {
        let withdrawn = |client: &Client| client.has(export) && !export.is_for(&client.names);
        self.cut_off(withdrawn);
        self.disconnect(withdrawn, FAREWELL);
    }

    /// Writes back what is dirty, of one export or of all, and flushes the devices.
    pub(crate) fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        if let Some(name) = name {
            self.find(name)?;
        }
        Ok(self.host.write_back(name)?)
    }

    /// As `Host::drain`.
    pub(crate) fn drain(&self, name: &str) -> Result<(), ChangeError> {
        self.find(name)?;
        Ok(self.host.drain(name)?)
    }

    /// As `Host::freeze`.
    pub(crate) fn freeze(&self, name: &str, limit: Duration) -> Result<(), ChangeError> {
        if matches!(self.find(name)?.settings().disk.target, Target::Custom(_)) {
            return Err(ChangeError::PastTheCache(name.to_owned()));
        }
        Ok(self.host.freeze(name, limit)?)
    }

    /// As `Host::thaw`.
    pub(crate) fn thaw(&self, name: &str) -> Result<(), ChangeError> {
        self.find(name)?;
        Ok(self.host.thaw(name)?)
    }

    /// As `Host::hint_all`.
    pub(crate) fn hint_all(&self, name: &str, files: &[FileExtent], sidecar: &str) -> Result<(), ChangeError> {
        self.find(name)?;
        Ok(self.host.hint_all(name, files, sidecar)?)
    }

    /// As `Host::hints`.
    pub(crate) fn hints(&self, name: &str) -> Result<String, ChangeError> {
        self.find(name)?;
        Ok(self.host.hints(name)?)
    }

    /// Makes memory, policy, read-ahead, exports and the limit of slow requests those of `wanted`, and reads the certificates again.
    pub(crate) fn reload(self: &Arc<Self>, wanted: &Settings) -> Result<(), Vec<ChangeError>> {
        let only = |error: ChangeError| vec![error];
        let wanted = &wanted.agreed().map_err(|error| only(nigh_host::ChangeError::from(error).into()))?;
        let now = self.host.settings();
        if wanted.tls.is_some() != lock(&self.tls).0.is_some() {
            return Err(only(ChangeError::TlsOnOff));
        }
        let fixed = |host: &nigh_host::Settings| (host.allocate, host.batch, host.adapt_batch, host.prefetch_window);
        if fixed(&wanted.host) != fixed(&now) {
            return Err(only(nigh_host::ChangeError::Tenants.into()));
        }
        let levels = |host: &nigh_host::Settings| {
            (host.levels.clone(), host.content, host.remote_level.clone().map(|level| (level.client, level.tls)))
        };
        if levels(&wanted.host) != levels(&now) {
            return Err(only(nigh_host::ChangeError::Levels.into()));
        }
        let unknown = wanted.exports.iter().filter_map(|export| check_clients(export, wanted.tls.as_ref()).err());
        let unknown: Vec<_> = unknown.map(ChangeError::from).collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let tls = wanted.tls.as_ref().map(TlsSettings::configure).transpose().map_err(|error| only(error.into()))?;
        self.change(Some(wanted.host.memory), Some(&wanted.host.policy)).map_err(only)?;
        self.host.cache().readahead().set(&wanted.host.readahead);
        self.recorder.slow.set(wanted.slow);
        if let Some(remote) = &wanted.host.remote_level {
            self.host.change_level_servers(&remote.servers).map_err(|error| only(error.into()))?;
        }
        *lock(&self.tls) = (wanted.tls.clone(), tls);
        self.reconcile(&wanted.exports)
    }

    /// Makes the exports those of `wanted`: adds, changes and removes. Failures are collected, and the rest done.
    fn reconcile(self: &Arc<Self>, wanted: &[ExportSettings]) -> Result<(), Vec<ChangeError>> {
        let mut errors = Vec::new();
        let changes = self.exports().into_iter().map(|export| {
            let now = export.settings();
            let same = |settings: &&ExportSettings| {
                is_same(settings, &now) && (settings.disk.read_only || export.disk.is_writable())
            };
            (wanted.iter().find(same), now)
        });
        let mut changes: Vec<_> = changes.collect();
        // Floors become lower before others become higher, since there is room for so much.
        let rises = |(wanted, now): &(Option<&ExportSettings>, ExportSettings)| {
            wanted.is_some_and(|at| at.disk.floor > now.disk.floor)
        };
        changes.sort_by_key(rises);
        let (mut tasks, until) = (Tasks::new(self), Instant::now() + RELOADING);
        for (_, now) in changes.iter().filter(|(wanted, _)| wanted.is_none()) {
            tasks.begin(&now.disk.name, "being removed", |common, name| common.remove(name, false));
        }
        for now in self.opening.all().iter().filter(|now| !wanted.iter().any(|settings| is_same(settings, now))) {
            errors.extend(self.remove(&now.disk.name, false).err());
        }
        let mut set = |settings: &ExportSettings| {
            let set = self.administrate().and_then(|_one| self.set_one(settings.clone()));
            errors.extend(set.map(|export| self.let_go(&export)).err());
        };
        let rising = changes.partition_point(|change| !rises(change));
        for (at, (wanted, now)) in changes.iter().enumerate() {
            if at == rising {
                tasks.wait(until);
            }
            if let Some(settings) = wanted.filter(|settings| *settings != now) {
                set(settings);
            }
        }
        tasks.wait(until);
        let until = Instant::now() + RELOADING;
        for settings in wanted {
            match self.find(&settings.disk.name) {
                Ok(export) if export.is_leaving() => errors.push(ChangeError::Leaving(settings.disk.name.clone())),
                Ok(_) => {}
                Err(_) if self.opening.find(&settings.disk.name).is_some() => {}
                Err(_) => {
                    let settings = settings.clone();
                    let name = settings.disk.name.clone();
                    tasks.begin(&name, "being opened", move |common, _| common.add(settings));
                    tasks.wait(until);
                }
            }
        }
        errors.extend(tasks.errors);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// Whether an export of settings `now` can have those of `wanted` without being opened again.
fn is_same(wanted: &ExportSettings, now: &ExportSettings) -> bool {
    let (wanted, now) = (&wanted.disk, &now.disk);
    wanted.name == now.name
        && wanted.targets().eq(now.targets())
        && wanted.tenant() == now.tenant()
        && wanted.share == now.share
}

/// Changes of exports on threads of their own. Those whose device does not respond are waited for only for a while.
struct Tasks<'a> {
    common: &'a Arc<Common>,
    running: Vec<Task>,
    errors: Vec<ChangeError>,
}

/// A change of an export.
struct Task {
    export: String,
    /// The state that the export is in meanwhile.
    what: &'static str,
    result: Receiver<Result<(), ChangeError>>,
}

impl Tasks<'_> {
    fn new(common: &Arc<Common>) -> Tasks<'_> {
        Tasks { common, running: Vec::new(), errors: Vec::new() }
    }

    /// Begins to change the export of this name, which is then in the state `what`.
    fn begin(
        &mut self,
        name: &str,
        what: &'static str,
        run: impl FnOnce(&Common, &str) -> Result<(), ChangeError> + Send + 'static,
    ) {
        let (common, export) = (self.common.clone(), name.to_owned());
        let (done, result) = channel();
        let run = move || {
            // Nobody waits any more if it took long.
            if let Err(SendError(result)) = done.send(run(&common, &export)) {
                match result {
                    Ok(()) => tracing::info!(export, "it is no longer {what}"),
                    Err(error) => tracing::error!(export, %error, "it is no longer {what}"),
                }
            }
        };
        match Builder::new().name("change".into()).spawn(run) {
            Ok(_) => self.running.push(Task { export: name.to_owned(), what, result }),
            Err(error) => self.errors.push(ChangeError::Thread(error)),
        }
    }

    /// Waits for all of them, but no longer than `until`.
    fn wait(&mut self, until: Instant) {
        for Task { export, what, result } in self.running.drain(..) {
            match result.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(result) => self.errors.extend(result.err()),
                Err(_) => tracing::warn!(
                    export,
                    "it is still {what}: its device does not respond, or its clients do not leave"
                ),
            }
        }
    }
}

/// Whether exports can be served so, as far as that is known before they are opened.
pub(crate) fn check(exports: &[ExportSettings], tls: Option<&TlsSettings>) -> Result<(), ExportError> {
    exports.iter().try_for_each(|export| check_clients(export, tls))?;
    if let Some(odd) = exports.iter().find(|export| export.disk.name.contains(char::is_control)) {
        return Err(ExportError::Controls(odd.disk.name.clone()));
    }
    let mut names = HashSet::new();
    for name in exports.iter().map(|export| &export.disk.name) {
        if name.len() > NAME_MAX || name.contains('\0') {
            return Err(ExportError::Name(name.clone()));
        }
        if !names.insert(name) {
            return Err(ExportError::Duplicate(name.clone()));
        }
    }
    Ok(())
}

/// Whether clients can be distinguished, if that matters for an export.
fn check_clients(settings: &ExportSettings, tls: Option<&TlsSettings>) -> Result<(), ExportError> {
    match settings.clients.is_empty() || tls.is_some_and(|tls| tls.client_ca.is_some()) {
        true => Ok(()),
        false => Err(ExportError::NoClientCa(settings.disk.name.clone())),
    }
}
