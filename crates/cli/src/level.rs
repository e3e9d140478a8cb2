//! `nigh level`: memory of this host, and a file, as a level of servers on other hosts.

use anyhow::{Context, ensure};
use nigh_lend::{Lender, LenderFileSettings, LenderSettings};
use nigh_level::Limits;
use nigh_service::{LenderClient, LenderStatistics, Listen, MetricsSettings, TlsSettings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{LevelArgs, MetricsArg, On, RightsArgs};
use crate::log;
use crate::sandbox::{self, Account, Rules, change, read, socket};
use crate::size::human_bytes;

const BLOCK: u64 = 4096;
/// Bytes that the store takes for a block besides its contents, at most.
const INDEX: u64 = 88;
/// The largest file: its blocks are numbered in 32 bits.
const FILE_MOST: u64 = 15 << 40;
/// The most namespaces of a client: `nigh serve` has one, so with TLS as many servers may have the same certificate.
const NAMESPACES: u32 = 16;

pub(crate) fn run(args: &LevelArgs) -> anyhow::Result<()> {
    let form = || format!("--listen {}: it is written tcp:HOST:PORT, such as tcp:127.0.0.1:10810", args.listen);
    let address = args.listen.parse().ok().filter(|address| matches!(address, Listen::Tcp(_))).with_context(form)?;
    let settings = settings(args)?;
    let memory = human_bytes(u64::from(settings.limits.memory_blocks) * BLOCK);
    let file =
        settings.file.as_ref().map(|file| format!(", and {} in {}", human_bytes(file.bytes), file.path.display()));
    let RightsArgs { core_dumps, user, sandbox: On(sandbox), .. } = &args.rights;
    let user = user.as_ref().map(|text| text.parse::<Account>()).transpose()?;
    let needed = sandbox.then(|| (settings.clone(), args.clone()));
    let confined = needed.map(|(settings, args)| sandbox::confine(move || Ok(files(&settings, &args)))).transpose()?;
    // Here, so that its thread is in the sandbox, too.
    let _log = log::start(&args.log)?;
    sandbox::allow_core_dumps(*core_dumps)?;

    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch signals")?;
    let lender = Lender::start(settings)?;
    let gate = lender.close_gate();
    if let Some(path) = &args.control {
        lender.control(path)?;
    }
    if let Some(address) = lender.metrics() {
        tracing::info!("metrics on {address}");
    }
    tracing::info!("a level of {memory}{}", file.unwrap_or_default());
    let address = lender.listen(&address, args.insecure_tcp)?;
    tracing::info!("listening on {address}");
    if let Some(user) = user {
        // It is opened once more at the end.
        lender.file().into_iter().try_for_each(|path| user.own(path))?;
        user.assume()?;
        // The system has other ideas about processes whose user changed.
        sandbox::allow_core_dumps(*core_dumps)?;
    }
    if let Some(confined) = confined {
        sandbox::filter()?;
        confined.report();
    }
    drop(gate);
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        // Errors are logged.
        let _ = lender.reload();
    }
    tracing::info!("shutting down");
    let LenderStatistics { counts, clients, .. } = lender.statistics();
    for LenderClient { name, used_bytes, counts, .. } in clients {
        tracing::info!(client = name, size = human_bytes(used_bytes), ?counts, "at the end");
    }
    tracing::info!(?counts, "in all");
    lender.shut_down();
    Ok(())
}

/// The files that it opens, for its sandbox.
fn files(settings: &LenderSettings, args: &LevelArgs) -> Rules {
    let mut rules = Rules::new();
    let LenderSettings { file, tls, metrics, .. } = settings;
    file.iter().for_each(|file| rules.beside(&file.path, change()));
    args.control.iter().for_each(|path| rules.beside(path, socket()));
    tls.iter().for_each(|tls| rules.certificates(tls));
    metrics.iter().filter_map(|metrics| metrics.token.as_ref()).for_each(|path| rules.beside(path, read()));
    args.rights.sandbox_allow.iter().for_each(|folder| rules.allow(folder));
    rules
}

fn settings(args: &LevelArgs) -> anyhow::Result<LenderSettings> {
    let blocks = |flag: &str, text: &str| {
        let bytes = nigh_text::bytes(text).with_context(|| format!("{flag} {text}: expected a size, such as 64G"))?;
        u32::try_from(bytes / BLOCK)
            .ok()
            .filter(|blocks| (1..u32::MAX).contains(blocks))
            .with_context(|| format!("{flag} is from 4K to 16T"))
    };
    let all = blocks("--memory", &args.memory)?;
    let file = args.level.as_deref().map(file).transpose()?;
    let each = args.client_size.as_deref().map(|text| blocks("--client-size", text)).transpose()?.unwrap_or(u32::MAX);
    let most = file.as_ref().map_or(u64::from(all) * BLOCK, |file| file.bytes);
    let is_less = args.client_size.is_none() || u64::from(each) * BLOCK <= most;
    ensure!(is_less, "--client-size is more than the level has, {}", human_bytes(most));
    let there = rustix::system::sysinfo();
    let there = (there.totalram as u64).saturating_mul(u64::from(there.mem_unit));
    let asked = u64::from(all) * BLOCK;
    ensure!(asked <= there, "--memory is {}, but the machine has {}", human_bytes(asked), human_bytes(there));
    let index = most / BLOCK * INDEX;
    ensure!(
        asked + index <= there,
        "the index of {} takes up to {} besides --memory, but the machine has {}",
        human_bytes(most),
        human_bytes(index),
        human_bytes(there)
    );
    let tls = args.tls.clone().map(TlsSettings::from);
    let has_clients = tls.as_ref().is_none_or(|tls| tls.client_ca.is_some());
    ensure!(has_clients, "--tls needs client-ca=FILE, too: clients are known by their certificates");
    let metrics = args.metrics.clone().map(|MetricsArg { address, token }| MetricsSettings {
        address,
        token,
        insecure: args.insecure_tcp,
    });
    let limits = Limits {
        blocks: all,
        memory_blocks: all,
        block_bytes: BLOCK as u32,
        clients: args.connections,
        blocks_each: each,
        namespaces_each: NAMESPACES,
    };
    Ok(LenderSettings { limits, file, connections_max: args.connections.into(), tls, metrics })
}

/// `file:PATH:SIZE`.
fn file(text: &str) -> anyhow::Result<LenderFileSettings> {
    let form = || format!("'--level {text}': it is written file:PATH:SIZE, such as file:/ssd/level.cache:1T");
    let (path, size) = text.strip_prefix("file:").and_then(|text| text.rsplit_once(':')).with_context(form)?;
    ensure!(!path.is_empty(), form());
    let bytes = nigh_text::bytes(size).with_context(|| format!("--level {text}: expected a size, such as 1T"))?;
    ensure!(bytes <= FILE_MOST, "--level {text}: expected at most {}", human_bytes(FILE_MOST));
    Ok(LenderFileSettings { path: path.into(), bytes })
}
