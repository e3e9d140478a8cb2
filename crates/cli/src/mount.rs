//! `nigh mount`: files behind the cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use glob::Pattern;
use nigh_mount::{Ended, MountSettings, Prepared};
use nigh_service::{ExportSettings, HostStatistics, Listen, ReloadError, Service};

use crate::args::{Given, MountArgs, On, ServeArgs};
use crate::serve::{self, NO_LIST, Plan};
use crate::size::human_bytes;
use crate::{log, sandbox};

/// The interval between looks whether somebody else unmounted it.
const GLANCE: Duration = Duration::from_millis(200);
/// The longest time for which the source is trusted.
const FRESH_MOST: f64 = 86_400.0;

pub(crate) fn run(args: &MountArgs) -> anyhow::Result<()> {
    let settings = settings(args)?;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.source));
    let own = own_files(args);
    let own: Vec<&Path> = own.iter().map(PathBuf::as_path).collect();
    let _log = log::start(&args.log)?;
    let (source, is_read_only) = (settings.source.clone(), settings.read_only);
    let prepared = Prepared::new(settings, &own)?;
    let plan = serve::plan_for(&served(args), vec![ExportSettings::new(name.clone(), prepared.target())])?;
    sandbox::allow_core_dumps(false)?;
    if let Err(error) = nigh_backend::take_turns_of(serve::TURN) {
        tracing::debug!(%error, "the kernel decides how long a thread keeps a processor");
    }
    let (stop, stopped) = channel();
    let (reload, _reloads) = channel();
    serve::watch_signals(stop, reload)?;
    nigh_backend::map_large_allocations();
    if !serve::wait_for_level(&plan, &stopped) {
        return Ok(());
    }
    let service = start(&plan)?;
    let mount = prepared.mount(&service, &name)?;
    let HostStatistics { memory_bytes, policy, readahead, .. } = service.host().host_statistics();
    tracing::info!("cache of {}, policy {policy}, read-ahead {readahead}", human_bytes(memory_bytes));
    let how = if is_read_only { ", read-only" } else { "" };
    tracing::info!("mounted {} at {}{how}", source.display(), mount.at().display());
    // Nobody stops it if the thread for signals has ended.
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(GLANCE) {
        if mount.is_over() {
            tracing::info!("unmounted by somebody else");
            break;
        }
    }
    tracing::info!("unmounting {}", mount.at().display());
    if mount.end() == Ended::Detached {
        let until = Instant::now() + plan.settings.stop_within;
        tracing::warn!(
            "{} is busy: it is detached, and programs have {} s to close their files",
            mount.at().display(),
            plan.settings.stop_within.as_secs_f64()
        );
        while !mount.is_over() && Instant::now() < until {
            std::thread::sleep(GLANCE);
        }
        if !mount.is_over() {
            tracing::warn!("programs still had files open, which they cannot use any more");
        }
    }
    service.shut_down().map_err(|unwritten| {
        let lines: Vec<String> = unwritten.iter().map(ToString::to_string).collect();
        anyhow!(lines.join("; "))
    })
}

/// The service without its mount.
fn start(plan: &Plan) -> anyhow::Result<Arc<Service>> {
    plan.given.watch.control.clone().map(Listen::Unix).map(|control| control.check_free()).transpose()?;
    let service = Arc::new(Service::start(plan.settings.clone())?);
    if let Some(recording) = &plan.record {
        service.record(recording.clone()).map_err(serve::without_force)?;
    }
    if let Some(path) = &plan.given.watch.control {
        let nothing = || ReloadError { words: "a mount has no file of settings".to_owned(), is_denied: false };
        service.control(path, move || Err(nothing()))?;
    }
    if let Some(address) = service.metrics() {
        tracing::info!("metrics on {address}");
    }
    Ok(service)
}

fn settings(args: &MountArgs) -> anyhow::Result<MountSettings> {
    let pattern = |text: &String| {
        Pattern::new(text)
            .with_context(|| format!("--no-cache {text}: expected a pattern such as '*.log' or 'logs/**'"))
    };
    let fresh = nigh_text::seconds(&args.fresh).filter(|seconds| (0.0..=FRESH_MOST).contains(seconds));
    let fresh =
        fresh.with_context(|| format!("--fresh is a time from 0s to 24h, such as 60s, not '{}'", args.fresh))?;
    ensure!(!args.source.as_os_str().is_empty() && !args.at.as_os_str().is_empty(), "a folder has a name");
    Ok(MountSettings {
        read_only: args.read_only,
        allow_other: args.allow_other,
        uncached: args.no_cache.iter().map(pattern).collect::<anyhow::Result<_>>()?,
        fresh: Duration::from_secs_f64(fresh),
        loops: args.threads.into(),
        ..MountSettings::new(&args.source, &args.at)
    })
}

/// The last part of a path, as a name of an export.
fn name_of(source: &Path) -> String {
    let path = source.canonicalize().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() { "files".to_owned() } else { name }
}

/// Files that the server itself uses.
fn own_files(args: &MountArgs) -> Vec<PathBuf> {
    let of_level = |text: &String| {
        let (path, _size) = text.strip_prefix("file:")?.rsplit_once(':')?;
        Some(PathBuf::from(path))
    };
    let recorded = args.record.iter().map(|record| record.file.clone());
    args.cache.level.iter().filter_map(of_level).chain(args.watch.control.clone()).chain(recorded).collect()
}

/// The same as flags of `nigh serve`.
fn served(args: &MountArgs) -> ServeArgs {
    let mut given = Given { cache: args.cache.clone(), watch: args.watch.clone(), ..Given::default() };
    // Blocks of files have other places after each start.
    given.blocks.warm = Some(NO_LIST.into());
    given.devices.depth = Some(nigh_mount::READERS);
    // The files of the source are not known beforehand.
    given.rights.sandbox = On(false);
    ServeArgs { given, record: args.record.clone(), ..ServeArgs::default() }
}
