//! `nigh serve`: disks over NBD.

mod explained;
mod files;
mod given;
mod level;
mod printed;
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
    LevelSettings, Listen, MetricsSettings, RecordError, Recording, ReloadError, Scheme, Service, Settings, Statistics,
    Successor, TlsSettings, Unwritten, WarmSettings, WriteMode, beginning, is_denied, slow_limit, warn_of_code,
};
use nigh_ublk::{Ublk, UblkSettings};
use nigh_vhost::{Vhost, VhostSettings};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{AllocateArg, MetricsArg, PrefetchArg, RecordArg, RecordingArgs, ServeArgs, TlsArg, WriteModeArg};
use crate::front::causes;
use crate::sandbox::{self, Account};
use crate::size::human_bytes;
use crate::{asked, log, output, record};

use given::Given;
use level::Levels;

const MEMORY: &str = "512M";
const POLICY: &str = "lirs";
/// How much larger than at the start the cache can become, by default.
const GROWTH: u64 = 2;

/// The settings in a file of `--config`. Flags on the command line override them.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    memory: Option<String>,
    memory_max: Option<String>,
    policy: Option<String>,
    allocate: Option<AllocateArg>,
    prefetch: Option<PrefetchArg>,
    write_mode: Option<WriteModeArg>,
    readahead: Option<String>,
    scheduler: Option<String>,
    depth: Option<u32>,
    fail_after: Option<String>,
    stop_within: Option<String>,
    verify: Option<bool>,
    curves: Option<u32>,
    shards: Option<usize>,
    connections: Option<usize>,
    content: Option<String>,
    content_cpu: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    level: Vec<String>,
    warm: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    listen: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vhost_user: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ublk: Vec<String>,
    socket_mode: Option<String>,
    socket_group: Option<String>,
    insecure_tcp: Option<bool>,
    core_dumps: Option<bool>,
    sandbox: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sandbox_allow: Vec<PathBuf>,
    user: Option<String>,
    metrics: Option<MetricsArg>,
    slow: Option<String>,
    control: Option<PathBuf>,
    tls: Option<TlsArg>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    export: Vec<FileExport>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileExport {
    name: String,
    target: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    write_log: Option<String>,
    read_only: Option<bool>,
    write_mode: Option<WriteModeArg>,
    clients: Option<Vec<String>>,
    connections: Option<u64>,
    requests: Option<u64>,
    iops: Option<u64>,
    bandwidth: Option<String>,
    tenant: Option<String>,
    floor: Option<String>,
    ceiling: Option<String>,
    policy: Option<String>,
    share: Option<String>,
}

/// All that was asked for.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    listen: Vec<Listen>,
    vhost: Vec<VhostSettings>,
    ublk: Vec<UblkSettings>,
    insecure_tcp: bool,
    core_dumps: bool,
    /// Folders with files that a sandboxed server may need.
    sandbox_allow: Vec<PathBuf>,
    user: Option<Account>,
    pub(crate) control: Option<PathBuf>,
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
        return output::print(printed::config(&plan)?.as_bytes());
    }
    let flusher = if plan.ublk.is_empty() { Ok(()) } else { nigh_ublk::become_io_flusher() };
    let devices = ublk::prepare(&plan.ublk, &plan.settings.exports, args.replace, args.accept_loss)?;
    let characters: Vec<PathBuf> = devices.iter().map(Ublk::character).collect();
    let needed = plan.settings.sandboxed.then(|| (plan.clone(), args.clone()));
    let files = |(plan, args)| sandbox::confine(move || files::files(&plan, &args, &characters));
    let confined = needed.map(files).transpose()?;
    // Here, so that its thread is in the sandbox, too.
    let _log = log::start(&args.log)?;
    sandbox::allow_core_dumps(plan.core_dumps)?;
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
    let control = plan.control.clone().map(Listen::Unix);
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
    if let Some(path) = &plan.control {
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
        let address = server.listen(NBD, address, plan.insecure_tcp)?;
        tracing::info!("listening on {address}");
    }
    let passed = server.listen_on_passed(NBD, plan.insecure_tcp)?;
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
        sandbox::allow_core_dumps(plan.core_dumps)?;
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
    let file = args.config.as_deref().map(asked::read_toml::<File>).transpose()?.unwrap_or_default();
    let given = Given { args, file: &file };
    given.check()?;
    let (allocate, levels, listen) = (given.allocate(), given.levels().to_vec(), given.listen().to_vec());
    let machines = given.vhost_user().to_vec();
    let devices = given.ublk().to_vec();
    let memory = bytes(args.memory.as_deref().or(file.memory.as_deref()).unwrap_or(MEMORY))?;
    let usual = if allocate.is_some() { asked::PLAIN_POLICY } else { POLICY };
    let policy: Spec = args.policy.as_deref().or(file.policy.as_deref()).unwrap_or(usual).parse()?;
    if allocate.is_some() && policy.is_unified() {
        return Err(Refusal::Unified { policy }.into());
    }
    let own = args.exports.iter().map(|text| export(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let write_mode = args.write_mode.or(file.write_mode).map(WriteMode::from);
    let common = ExportOptions { read_only: args.read_only.then_some(true), write_mode, ..ExportOptions::default() };
    for (mut export, options) in own {
        common.apply(&mut export);
        options.apply(&mut export);
        exports.push(export);
    }
    for described in file.export {
        let (mut export, options) = described.read()?;
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

    let memory_max = args.memory_max.as_deref().or(file.memory_max.as_deref()).map(bytes).transpose()?;
    let memory_max = memory_max.unwrap_or(memory.saturating_mul(GROWTH));
    ensure!(memory_max >= memory, "--memory-max is less than --memory");
    let mut settings = Settings::new(memory, policy, exports);
    settings.host.memory_max = memory_max;
    settings.host.content = content(
        args.content.content.as_deref().or(file.content.as_deref()),
        args.content.content_cpu.as_deref().or(file.content_cpu.as_deref()),
    )?;
    let Levels { files, remote, wait: level_wait } = Levels::read(&levels, || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}/{}", settings.exports.first().map_or("", |export| &export.disk.name))
    })?;
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
    settings.host.allocate = allocate.map(Allocation::from);
    let PrefetchArg { batch, window, adapts } = args.prefetch.or(file.prefetch).unwrap_or_default();
    (settings.host.batch, settings.host.prefetch_window, settings.host.adapt_batch) = (batch, window, adapts);
    let readahead = args.readahead.as_ref().or(file.readahead.as_ref());
    settings.host.readahead =
        readahead.map_or(Ok(nigh_prefetch::Spec::SERVED), |text| nigh_prefetch::Spec::served(text))?;
    if let Some(text) = args.scheduler.as_ref().or(file.scheduler.as_ref()) {
        settings.host.scheduler = text.parse()?;
    }
    settings.host.depth = args.depth.or(file.depth).unwrap_or(HostSettings::DEPTH);
    ensure!(settings.host.depth > 0, "--depth is at least 1");
    if let Some(text) = args.fail_after.as_ref().or(file.fail_after.as_ref()) {
        settings.host.patience = time(text, 0, "--fail-after")?;
    }
    if let Some(text) = args.stop_within.as_ref().or(file.stop_within.as_ref()) {
        settings.stop_within = time(text, 1, "--stop-within")?;
    }
    settings.host.verify = args.verify.or(file.verify).unwrap_or(true);
    settings.host.curves = args.curves.or(file.curves);
    ensure!(
        settings.host.curves.is_none_or(|blocks| blocks == 0 || CURVES.contains(&blocks)),
        "--curves is 0, or from {} to {}",
        CURVES.start(),
        CURVES.end()
    );
    settings.host.shards = args.shards.or(file.shards);
    ensure!(settings.host.shards != Some(0), "--shards is at least 1");
    settings.connections_max = args.connections.or(file.connections).unwrap_or(settings.connections_max);
    let insecure_tcp = args.insecure_tcp || file.insecure_tcp.unwrap_or(false);
    let metrics = args.watch.metrics.clone().or(file.metrics);
    settings.metrics =
        metrics.map(|MetricsArg { address, token }| MetricsSettings { address, token, insecure: insecure_tcp });
    let slow = args.watch.slow.as_ref().or(file.slow.as_ref());
    settings.slow = slow.map(|text| slow_limit(text)).transpose()?.flatten();
    let socket_mode = args.socket_mode.as_ref().or(file.socket_mode.as_ref());
    settings.sockets.mode = socket_mode.map(|text| mode(text)).transpose()?;
    settings.sockets.group = args.socket_group.clone().or(file.socket_group);
    settings.tls = args.tls.clone().or(file.tls).map(TlsSettings::from);
    settings.sandboxed = !args.hardening.no_sandbox && file.sandbox.unwrap_or(true);
    let mut settings = settings.agreed()?;
    let listen = listen.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let vhost = vhost::sockets(&machines, &settings.exports)?;
    let ublk = ublk::devices(&devices, &settings.exports)?;
    let of_devices = ublk.iter().map(UblkSettings::descriptors).sum::<usize>();
    settings.front_descriptors = vhost.iter().map(VhostSettings::descriptors).sum::<usize>() + of_devices;
    let core_dumps = args.hardening.core_dumps || file.core_dumps.unwrap_or(false);
    let sandbox_allow = [args.hardening.sandbox_allow.clone(), file.sandbox_allow].concat();
    ensure!(settings.sandboxed || sandbox_allow.is_empty(), "there is no sandbox: --sandbox-allow has no effect");
    let user = args.hardening.user.as_ref().or(file.user.as_ref()).map(|text| text.parse()).transpose()?;
    let control = args.control.clone().or(file.control);
    settings.host.warm =
        warm(args.warm.clone().or(file.warm), control.as_deref(), &settings.host.levels).map(WarmSettings::new);
    let record = args.record.clone().map(|RecordArg { file, sample }| {
        let recording = RecordingArgs { sample, export: vec![], time: None, limit: None, force: false };
        record::recording(&file, &recording, "--record FILE,sample=")
    });
    let record = record.transpose()?;
    Ok(Plan {
        settings,
        listen,
        vhost,
        ublk,
        insecure_tcp,
        core_dumps,
        sandbox_allow,
        user,
        control,
        record,
        level_wait,
    })
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

impl FileExport {
    fn read(self) -> anyhow::Result<(ExportSettings, ExportOptions)> {
        let FileExport {
            name,
            target,
            next,
            write_log,
            read_only,
            write_mode,
            clients,
            connections,
            requests,
            iops,
            bandwidth,
            tenant,
            floor,
            ceiling,
            policy,
            share,
        } = self;
        let nobody = clients.as_ref().is_some_and(Vec::is_empty);
        ensure!(!nobody, "export {name}: clients is an empty list: name clients, or leave it out to admit all");
        let target = target.parse().with_context(|| format!("export {name}"))?;
        let mut options = ExportOptions::default();
        for target in next {
            options.add(&format!("next={target}")).with_context(|| format!("export {name}"))?;
        }
        let named = [
            ("write-log", write_log),
            ("bandwidth", bandwidth),
            ("tenant", tenant),
            ("floor", floor),
            ("ceiling", ceiling),
            ("policy", policy),
            ("share", share),
        ];
        for (option, value) in named {
            if let Some(value) = value {
                options.add(&format!("{option}={value}")).with_context(|| format!("export {name}"))?;
            }
        }
        let write_mode = write_mode.map(WriteMode::from);
        let options = ExportOptions { read_only, write_mode, clients, connections, requests, iops, ..options };
        Ok((ExportSettings::new(name, target), options))
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

/// The settings of `--content` and `--content-cpu`.
fn content(scheme: Option<&str>, cpu: Option<&str>) -> anyhow::Result<Option<ContentSettings>> {
    let Some(scheme) = scheme.filter(|scheme| *scheme != "none") else {
        ensure!(cpu.is_none(), "--content-cpu needs --content");
        return Ok(None);
    };
    Ok(Some(ContentSettings { scheme: scheme.parse::<Scheme>()?, cpu: asked::parse_content_cpu(cpu)? }))
}

fn options(list: &str) -> anyhow::Result<ExportOptions> {
    let mut options = ExportOptions::default();
    options.add_all(list)?;
    Ok(options)
}

/// Permissions in octal.
fn mode(text: &str) -> anyhow::Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.with_context(|| format!("'{text}' is no mode of a socket: expected octal digits from 0 to 0777, such as 0660"))
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

/// A time such as 5s, from `least` seconds to an hour.
fn time(text: &str, least: u64, what: &str) -> anyhow::Result<Duration> {
    let seconds = nigh_text::seconds(text).filter(|seconds| (least as f64..=3600.0).contains(seconds));
    let seconds = seconds.with_context(|| format!("{what} is a time from {least}s to 1h, such as 5s, not '{text}'"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// A size such as 512M, in bytes.
pub(crate) fn bytes(text: &str) -> anyhow::Result<u64> {
    match nigh_text::bytes(text) {
        Some(bytes) if (4096..1 << 60).contains(&bytes) => Ok(bytes),
        _ => bail!("'{text}' is no amount of memory: expected at least 4K, such as 512M or 2G"),
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
    for path in sockets.chain(machines).chain(&plan.control).chain(files) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            problems.push(format!("{}: there is no folder {}", path.display(), folder.display()));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}
