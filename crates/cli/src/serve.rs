//! `nigh serve`: disks over NBD.

mod explained;
mod file;
mod files;
mod given;
mod level;
mod replace;
mod ublk;
mod vhost;

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use nigh_backend::Target;
use nigh_control::Refusal;
use nigh_policy::Spec;
use nigh_server::NBD;
use nigh_service::{
    Allocation, ContentSettings, ExportOptions, ExportSettings, ExportStatistics, HostSettings, HostStatistics,
    LevelSettings, Listen, MetricsSettings, RecordError, Recording, ReloadError, Service, Settings, Statistics,
    Successor, TlsSettings, Unwritten, WarmSettings, WriteMode, beginning, is_denied, warn_of_code,
};
use nigh_ublk::{Ublk, UblkSettings};
use nigh_vhost::{Vhost, VhostSettings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{
    Address, AllocateArg, BlockArgs, Content, Given, LongTime, Metrics, MetricsArg, Mode, Prefetch, PrefetchArg,
    Processor, ReadAhead, RecordArg, RecordingArgs, Scheduler, ServeArgs, Size, Time, WriteModeArg,
};
use crate::front::causes;
use crate::sandbox::{self, Account};
use crate::size::human_bytes;
use crate::{asked, log, output, record};

use file::File;
use level::Levels;

const MEMORY: u64 = 512 << 20;
const POLICY: &str = "lirs";
/// How much larger than at the start the cache can become, by default.
const GROWTH: u64 = 2;

/// All that was asked for.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// The same settings as a file has them, with all defaults; the exports are in `settings` alone.
    pub(crate) given: Given,
    listen: Vec<Listen>,
    vhost: Vec<VhostSettings>,
    ublk: Vec<UblkSettings>,
    user: Option<Account>,
    pub(crate) record: Option<Recording>,
    /// How long the start waits for the level on another host.
    level_wait: Duration,
}

/// The blocks that curves can sample of a cache.
const CURVES: RangeInclusive<u32> = 64..=1 << 16;
/// In place of a file: no list of the blocks in memory.
pub(crate) const NO_LIST: &str = "none";
/// The pause between two attempts to reach the level on another host.
const LEVEL_PAUSE: Duration = Duration::from_millis(500);

/// How long the start waits for block devices; those of disks that are open later begin later.
const DEVICE_START: Duration = Duration::from_secs(5);

/// For how long a thread keeps a processor that others want: a client that asks for little at a time does not wait for long
/// behind those that ask for much.
pub(crate) const TURN: Duration = Duration::from_micros(100);

/// Why a server ends.
pub(crate) enum End {
    /// By a signal, or because its only client left.
    Asked,
    /// Another server takes its place.
    Replaced(Successor),
}

/// Asks for a reload, and receives its result if there is a sender.
pub(crate) type Reload = Option<Sender<Result<(), ReloadError>>>;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let plan = plan(args)?;
    if args.check {
        output::print(explained::explain(&plan, args).as_bytes())?;
        let devices = if plan.ublk.is_empty() { Ok(()) } else { nigh_ublk::check() };
        devices.map_err(|error| anyhow!("--ublk: {error}"))?;
        return check(&plan);
    }
    if args.print_config {
        return output::print(file::printed(&plan)?.as_bytes());
    }
    let flusher = if plan.ublk.is_empty() { Ok(()) } else { nigh_ublk::become_io_flusher() };
    let devices = ublk::prepare(&plan.ublk, &plan.settings.exports, args.replace, args.accept_loss)?;
    let characters: Vec<PathBuf> = devices.iter().map(Ublk::character).collect();
    let needed = plan.settings.sandboxed.then(|| (plan.clone(), args.clone()));
    let files = |(plan, args)| sandbox::confine(move || files::files(&plan, &args, &characters));
    let confined = needed.map(files).transpose()?;
    // Here, so that its thread is in the sandbox, too.
    let _log = log::start(&args.log)?;
    sandbox::allow_core_dumps(plan.given.rights.core_dumps)?;
    if let Err(error) = flusher {
        tracing::warn!(%error, "the kernel may wait for this server's block devices in order to find memory for it");
    }
    if let Err(error) = nigh_backend::take_turns_of(TURN) {
        tracing::debug!(%error, "the kernel decides how long a thread keeps a processor");
    }
    let (stop, stopped) = channel();
    let (reload, reloads) = channel();
    watch_signals(stop.clone(), reload.clone())?;
    nigh_backend::map_large_allocations();
    if !wait_for_level(&plan, &stopped) {
        return Ok(());
    }
    let control = plan.given.watch.control.clone().map(Listen::Unix);
    let sockets: Vec<Listen> = plan.vhost.iter().map(|vhost| Listen::Unix(vhost.socket.clone())).collect();
    let addresses = plan.listen.iter().chain(&control).chain(&sockets);
    let mut predecessor = args.replace.then(|| replace::prepare(&plan, addresses.clone())).transpose()?;
    let mut settings = plan.settings.clone();
    match &predecessor {
        Some(predecessor) => settings.after_loss = predecessor.after_loss(),
        None => {
            for address in addresses {
                if address.check_free()? && is_removed_at_end(address, plan.user.as_ref()) {
                    settings.after_loss = Some(beginning());
                }
            }
        }
    }
    if args.accept_loss {
        settings.after_loss = None;
    }
    let taken = predecessor.as_mut().map(replace::take).transpose()?;
    let (inherited, paused) = taken.unwrap_or_default();
    let began = Instant::now();
    let server = Arc::new(Service::start_with(settings, inherited)?);
    if let Some(recording) = &plan.record {
        server.record(recording.clone()).map_err(without_force)?;
    }
    let gate = server.close_gate();
    if let Some(path) = &plan.given.watch.control {
        let reload = move || {
            let (done, result) = channel();
            // Either fails where the server ends already.
            let ending = |()| ReloadError { words: "the server is shutting down".to_owned(), is_denied: false };
            reload.send(Some(done)).map_err(|_| ending(()))?;
            result.recv().unwrap_or_else(|_| Err(ending(())))
        };
        match args.stdio {
            true => server.control(path, reload)?,
            false => {
                let stop = stop.clone();
                // Fails where the server ends already.
                server.control_and_hand_over(path, reload, move |successor| _ = stop.send(End::Replaced(successor)))?;
            }
        }
    }
    if let Some(address) = server.metrics() {
        tracing::info!("metrics on {address}");
    }
    for address in &plan.listen {
        let address = server.listen(NBD, address, plan.given.clients.insecure_tcp)?;
        tracing::info!("listening on {address}");
    }
    let passed = server.listen_on_passed(NBD, plan.given.clients.insecure_tcp)?;
    let machines: Vec<Vhost> = plan.vhost.iter().cloned().map(Vhost::new).collect();
    for (machine, socket) in machines.iter().zip(&sockets) {
        server.listen(machine.clone(), socket, false)?;
        tracing::info!("machines connect to {socket}");
    }
    server.close_inherited();
    if plan.listen.is_empty() && passed == 0 && !args.stdio && machines.is_empty() && devices.is_empty() {
        drop(gate);
        // There is nothing to lose.
        let _ = server.shut_down();
        bail!("nobody can connect: say --listen unix:PATH or tcp:HOST:PORT, --ublk NAME, or --stdio");
    }
    introduce(&server, &devices);
    if let Some(user) = &plan.user {
        user.assume()?;
        // The system has other ideas about processes whose user changed.
        sandbox::allow_core_dumps(plan.given.rights.core_dumps)?;
    }
    if let Some(confined) = confined {
        sandbox::filter()?;
        confined.report();
    }
    if let Some(predecessor) = predecessor {
        let process = predecessor.process();
        // Before anybody is served: until then, the end of the other server was in order.
        predecessor.succeed();
        let seconds = (paused + began.elapsed()).as_secs_f64();
        tracing::info!(process, "took the place of a server; clients waited {seconds:.3} s");
    }
    drop(gate);
    let connections = devices.iter().map(|device| device.connect(&server)).collect::<io::Result<Vec<_>>>()?;
    for device in &devices {
        if let Some(Err(reason)) = device.wait_for_start(DEVICE_START) {
            bail!("--ublk {}: {reason}", device.export());
        }
    }
    if args.stdio {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let (input, output) = (input.as_fd().try_clone_to_owned()?, output.as_fd().try_clone_to_owned()?);
        server.attach(NBD, input, output, move || {
            // Fails where the server ends already.
            let _ = stop.send(End::Asked);
        });
    }
    let (at, args) = (server.clone(), args.clone());
    // On a thread of its own: a device that does not respond delays reloads, but not the end.
    std::thread::Builder::new().name("reload".into()).spawn(move || reload_on_request(&at, &args, &reloads))?;
    // Fails if nobody can ask for the end any more.
    while let Ok(End::Replaced(successor)) = stopped.recv() {
        if replace::hand_over(&server, &machines, &devices, &successor, &stopped)? {
            return Ok(());
        }
    }
    tracing::info!("shutting down");
    devices.iter().for_each(|device| device.will_end(false));
    let unwritten = server.shut_down().err().unwrap_or_default();
    note_end(&machines, &devices, &unwritten);
    // The devices have ended, or wait for the next server.
    drop(connections);
    all_written(&unwritten)
}

/// Whether a server that ends in order, as `user` if there is one, removes its socket at `address`.
fn is_removed_at_end(address: &Listen, user: Option<&Account>) -> bool {
    match (address, user) {
        (Listen::Unix(path), Some(user)) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            user.can_change(folder)
        }
        _ => true,
    }
}

/// The guests of `machines`, and `devices`, can go on with the next server, except those with disks that are not written.
fn note_end(machines: &[Vhost], devices: &[Ublk], unwritten: &[Unwritten]) {
    let is_lost = |export: &str| unwritten.iter().any(|lost| lost.name == export);
    machines.iter().filter(|machine| !is_lost(machine.export())).for_each(Vhost::end);
    devices.iter().filter(|device| !is_lost(device.export())).for_each(Ublk::end);
}

/// An error if there is no export `name` for `flag`, or its clients need certificates, which `users` has not.
fn check_export(flag: &str, name: &str, exports: &[ExportSettings], users: &str) -> anyhow::Result<()> {
    let found = exports.iter().find(|export| export.disk.name == name);
    let found = found.with_context(|| format!("{flag} {name}: there is no export {name}"))?;
    ensure!(
        found.clients.is_empty(),
        "{flag} {name}: the export is for clients with certificates, which {users} has not"
    );
    Ok(())
}

/// The error that names what is not written.
fn all_written(unwritten: &[Unwritten]) -> anyhow::Result<()> {
    let lines: Vec<String> = unwritten.iter().map(ToString::to_string).collect();
    ensure!(lines.is_empty(), "{}", lines.join("; "));
    Ok(())
}

/// Waits until the level on other hosts can be used, or its time is over. Returns false if the server is to end.
pub(crate) fn wait_for_level(plan: &Plan, stopped: &Receiver<End>) -> bool {
    let Some(remote) = plan.settings.host.remote_level.as_ref().filter(|_| !plan.level_wait.is_zero()) else {
        return true;
    };
    let until = Instant::now() + plan.level_wait;
    let mut is_said = false;
    while let Err(error) = remote.probe() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        if !is_said {
            let (level, seconds) = (remote.name(), plan.level_wait.as_secs_f64());
            tracing::warn!(level, %error, "waiting for the level, for {seconds} s at most");
            is_said = true;
        }
        if stopped.recv_timeout(left.min(LEVEL_PAUSE)).is_ok() {
            return false;
        }
    }
    true
}

/// Logs what is served, from what memory, and how clients connect. `devices` are still to begin.
fn introduce(server: &Service, devices: &[Ublk]) {
    let Statistics { host, exports, .. } = server.statistics();
    let HostStatistics { memory_bytes, policy, readahead, .. } = host;
    tracing::info!("cache of {}, policy {policy}, read-ahead {readahead}", human_bytes(memory_bytes));
    if let Some(policy) = policy.rsplit('/').next().and_then(|policy| policy.parse::<Spec>().ok()) {
        warn_of_code(&policy);
    }
    for ExportStatistics { disk, options, uris, .. } in exports {
        options.policy.iter().flatten().for_each(warn_of_code);
        let options = options.unusual(&disk.name).to_string();
        let more = if options.is_empty() { options } else { format!(", {options}") };
        let is_device = devices.iter().any(|device| device.export() == disk.name);
        let at = match uris.is_empty() {
            false => uris.join(" and "),
            true if is_device => "a block device".to_owned(),
            true => "passed connections".to_owned(),
        };
        tracing::info!("serving {} ({} of {}{more}) at {at}", disk.name, human_bytes(disk.size), disk.target);
    }
}

pub(crate) fn watch_signals(stop: Sender<End>, reload: Sender<Reload>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch signals")?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let sent = if signal == SIGHUP { reload.send(None).is_ok() } else { stop.send(End::Asked).is_ok() };
            if !sent {
                return;
            }
        }
    })?;
    Ok(())
}

fn reload_on_request(server: &Service, args: &ServeArgs, reloads: &Receiver<Reload>) {
    for asked in reloads {
        let done = reload(server, args);
        match &done {
            Ok(()) => {
                tracing::info!("reloaded");
                introduce(server, &[]);
            }
            Err(error) => tracing::error!("not reloaded: {error}"),
        }
        if let Some(asked) = asked {
            // The requester may have left.
            let _ = asked.send(done);
        }
    }
}

/// Applies the settings that can change while running: memory, policy, read-ahead, exports and certificates.
fn reload(server: &Service, args: &ServeArgs) -> Result<(), ReloadError> {
    // That was for the start.
    let args = &ServeArgs { take_over: false, replace: false, ..args.clone() };
    let plan = plan(args).map_err(|error| ReloadError { words: causes(&*error), is_denied: is_denied(&*error) })?;
    server.reload(&plan.settings).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ReloadError { words: words.join("; "), is_denied: errors.iter().any(|error| is_denied(error)) }
    })
}

fn plan(args: &ServeArgs) -> anyhow::Result<Plan> {
    plan_for(args, Vec::new())
}

/// A service for `exports`, and those of `args`.
pub(crate) fn plan_for(args: &ServeArgs, mut exports: Vec<ExportSettings>) -> anyhow::Result<Plan> {
    let file = args.config.as_deref().map(File::read).transpose()?.unwrap_or_default();
    let folders = [&args.given, &file.given].map(|given| given.rights.sandbox_allow.as_slice()).concat();
    let mut given = args.given.clone().or(file.given);
    given.rights.sandbox_allow = folders;
    given::check(&given)?;
    let Given { cache, blocks, tenants, devices, clients, watch, rights } = &mut given;
    let memory = cache.memory.get_or_insert(Size(MEMORY)).0;
    let usual = if tenants.allocate.is_some() { asked::PLAIN_POLICY } else { POLICY };
    let policy = cache.policy.get_or_insert(usual.parse()?).0.clone();
    if tenants.allocate.is_some() && policy.is_unified() {
        return Err(Refusal::Unified { policy }.into());
    }
    let own = args.exports.iter().map(|text| export(text)).collect::<anyhow::Result<Vec<_>>>()?;
    // Each export has its own in the end.
    let write_mode = devices.write_mode.take().map(WriteMode::from);
    let common = ExportOptions { read_only: args.read_only.then_some(true), write_mode, ..ExportOptions::default() };
    for (mut export, options) in own.into_iter().chain(file.exports) {
        common.apply(&mut export);
        options.apply(&mut export);
        exports.push(export);
    }
    ensure!(!exports.is_empty(), "there is nothing to serve: say NAME=TARGET, such as root=/srv/root.img");
    let names: BTreeSet<&str> = exports.iter().map(|export| export.disk.name.as_str()).collect();
    ensure!(names.len() == exports.len(), "two exports have the same name");
    for text in &args.set {
        let (name, list) = text.split_once(':').with_context(|| format!("'{text}' is not NAME:OPTION,..."))?;
        let export = exports.iter_mut().find(|export| export.disk.name == name);
        let export = export.with_context(|| format!("--set {text}: there is no export {name}"))?;
        options(list)?.apply(export);
    }

    let takes_over = |export: &ExportSettings| export.disk.targets().any(Target::is_in_object_store);
    ensure!(
        !args.take_over || exports.iter().any(takes_over),
        "--take-over is for disks in object stores, and there are none"
    );
    exports.iter_mut().for_each(|export| export.disk.take_over = args.take_over);

    let memory_max = cache.memory_max.get_or_insert(Size(memory.saturating_mul(GROWTH))).0;
    ensure!(memory_max >= memory, "--memory-max is less than --memory");
    let mut settings = Settings::new(memory, policy, exports);
    settings.host.memory_max = memory_max;
    settings.host.content = content(blocks)?;
    let Levels { files, remote, wait: level_wait } = Levels::read(&cache.level, || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}/{}", settings.exports.first().map_or("", |export| &export.disk.name))
    })?;
    cache.level = level::texts(&files, remote.as_ref(), level_wait);
    (settings.host.levels, settings.host.remote_level) = (files, remote);
    if settings.host.policy.is_unified() {
        let policy = &settings.host.policy;
        let has_levels = !settings.host.levels.is_empty() || settings.host.remote_level.is_some();
        ensure!(
            has_levels,
            "policy {policy} decides at which level a block belongs: say --level, or choose another policy"
        );
        ensure!(
            settings.host.content.is_none(),
            "policy {policy} does not go with content: it decides for levels of fixed sizes, and how many encoded blocks fit depends on their contents"
        );
    }
    settings.host.allocate = tenants.allocate.map(Allocation::from);
    if tenants.allocate.is_some() {
        let PrefetchArg { batch, window, adapts } = tenants.prefetch.get_or_insert(Prefetch(PrefetchArg::default())).0;
        (settings.host.batch, settings.host.prefetch_window, settings.host.adapt_batch) = (batch, window, adapts);
    }
    settings.host.readahead = cache.readahead.get_or_insert(ReadAhead(nigh_prefetch::Spec::SERVED)).0.clone();
    settings.host.scheduler = devices.scheduler.get_or_insert(Scheduler(settings.host.scheduler)).0;
    settings.host.depth = *devices.depth.get_or_insert(HostSettings::DEPTH);
    ensure!(settings.host.depth > 0, "--depth is at least 1");
    settings.host.patience = devices.fail_after.get_or_insert(Time(settings.host.patience)).0;
    settings.stop_within = watch.stop_within.get_or_insert(LongTime(settings.stop_within)).0;
    settings.host.verify = *blocks.verify.get_or_insert(true);
    settings.host.curves = blocks.curves;
    ensure!(
        settings.host.curves.is_none_or(|blocks| blocks == 0 || CURVES.contains(&blocks)),
        "--curves is 0, or from {} to {}",
        CURVES.start(),
        CURVES.end()
    );
    settings.host.shards = blocks.shards;
    ensure!(settings.host.shards != Some(0), "--shards is at least 1");
    blocks.shards = settings.host.allocate.is_none().then(|| settings.host.shards());
    settings.connections_max = *clients.connections.get_or_insert(settings.connections_max);
    let insecure_tcp = clients.insecure_tcp;
    let metrics = watch.metrics.clone();
    settings.metrics = metrics.map(|Metrics(MetricsArg { address, token })| MetricsSettings {
        address,
        token,
        insecure: insecure_tcp,
    });
    watch.slow.take_if(|slow| slow.0.is_none());
    settings.slow = watch.slow.as_ref().and_then(|slow| slow.0);
    settings.sockets.mode = clients.socket_mode.as_ref().map(|Mode(mode)| *mode);
    settings.sockets.group.clone_from(&clients.socket_group);
    settings.tls = clients.tls.clone().map(TlsSettings::from);
    settings.sandboxed = rights.sandbox.0;
    let mut settings = settings.agreed()?;
    let listen = clients.listen.iter().map(|Address(address)| address.clone()).collect();
    let vhost = vhost::sockets(&clients.vhost_user, &settings.exports)?;
    clients.vhost_user = vhost.iter().map(vhost::text).collect();
    let ublk = ublk::devices(&clients.ublk, &settings.exports)?;
    clients.ublk = ublk.iter().map(ublk::text).collect();
    let of_devices = ublk.iter().map(UblkSettings::descriptors).sum::<usize>();
    settings.front_descriptors = vhost.iter().map(VhostSettings::descriptors).sum::<usize>() + of_devices;
    ensure!(
        settings.sandboxed || rights.sandbox_allow.is_empty(),
        "there is no sandbox: --sandbox-allow has no effect"
    );
    let user = rights.user.as_ref().map(|text| text.parse()).transpose()?;
    let warm = warm(blocks.warm.take(), watch.control.as_deref(), &settings.host.levels);
    blocks.warm = Some(warm.clone().unwrap_or_else(|| NO_LIST.into()));
    settings.host.warm = warm.map(WarmSettings::new);
    let record = args.record.clone().map(|RecordArg { file, sample }| {
        let recording = RecordingArgs { sample, export: vec![], time: None, limit: None, force: false };
        record::recording(&file, &recording, "--record FILE,sample=")
    });
    let record = record.transpose()?;
    Ok(Plan { settings, given, listen, vhost, ublk, user, record, level_wait })
}

impl From<WriteModeArg> for WriteMode {
    fn from(mode: WriteModeArg) -> WriteMode {
        match mode {
            WriteModeArg::Back => WriteMode::Back,
            WriteModeArg::Through => WriteMode::Through,
        }
    }
}

impl From<AllocateArg> for Allocation {
    fn from(allocate: AllocateArg) -> Allocation {
        match allocate {
            AllocateArg::LruSp => Allocation::LruSp,
            AllocateArg::Global => Allocation::Global,
            AllocateArg::Static => Allocation::Static,
            AllocateArg::Utility => Allocation::Utility,
        }
    }
}

/// `NAME=TARGET`, or `NAME=TARGET,OPTION,...`.
pub(crate) fn export(text: &str) -> anyhow::Result<(ExportSettings, ExportOptions)> {
    let (name, target) =
        text.split_once('=').with_context(|| format!("'{text}' is no export: it is written NAME=TARGET"))?;
    let (target, options) = ExportOptions::split_off(target).with_context(|| format!("export {name}"))?;
    let target = target.parse().with_context(|| format!("export {name}"))?;
    Ok((ExportSettings::new(name, target), options))
}

/// The settings of encoded blocks.
fn content(given: &mut BlockArgs) -> anyhow::Result<Option<ContentSettings>> {
    let Some(Content(Some(scheme))) = given.content else {
        ensure!(given.content_cpu.is_none(), "--content-cpu needs --content");
        given.content = None;
        return Ok(None);
    };
    let cpu = given.content_cpu.get_or_insert(Processor(ContentSettings::CPU)).0;
    Ok(Some(ContentSettings { scheme, cpu }))
}

fn options(list: &str) -> anyhow::Result<ExportOptions> {
    let mut options = ExportOptions::default();
    options.add_all(list)?;
    Ok(options)
}

/// The file of the list of blocks in memory: as it was asked for, or beside another file of the server.
fn warm(asked: Option<PathBuf>, control: Option<&Path>, levels: &[LevelSettings]) -> Option<PathBuf> {
    match asked {
        Some(path) if path == Path::new(NO_LIST) => None,
        Some(path) => Some(path),
        None => {
            let level = levels.iter().find_map(|level| level.target.path());
            let mut path = control.or(level)?.as_os_str().to_owned();
            path.push(".warm");
            Some(path.into())
        }
    }
}

/// The error of a recording, without a flag that a server does not have.
pub(crate) fn without_force(error: RecordError) -> anyhow::Error {
    match error {
        RecordError::Exists(file) => {
            anyhow!("--record {}: the file exists; move it, or name another one", file.display())
        }
        error => error.into(),
    }
}

/// The error if a server would not start, as far as that can be found beside one that runs.
fn check(plan: &Plan) -> anyhow::Result<()> {
    let mut problems: Vec<String> = plan.settings.problems().iter().map(|problem| causes(problem)).collect();
    let machines = plan.vhost.iter().map(|vhost| &vhost.socket);
    let sockets = plan.listen.iter().filter_map(|address| match address {
        Listen::Unix(path) => Some(path),
        Listen::Tcp(_) => None,
    });
    let files = plan.record.iter().map(|recording| &recording.file);
    for path in sockets.chain(machines).chain(&plan.given.watch.control).chain(files) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            problems.push(format!("{}: there is no folder {}", path.display(), folder.display()));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}
