//! The text of `nigh serve --check`.

use std::fmt::Write;

use nigh_service::{
    ClientTlsSettings, ContentSettings, DiskSettings, ExportSettings, LevelSettings, Listen, MetricsSettings,
    SocketSettings, TlsSettings, WarmSettings, WriteMode,
};

use super::{Plan, ublk, vhost};
use crate::args::{RightsArgs, ServeArgs};
use crate::results::grouped;
use crate::size::human_bytes;

/// Describes what would be served, and how.
pub(super) fn explain(plan: &Plan, args: &ServeArgs) -> String {
    let Plan { settings, given, listen, vhost, ublk, user, record, level_wait } = plan;
    let RightsArgs { core_dumps, sandbox_allow, .. } = &given.rights;
    let mut text = String::new();
    for export in &settings.exports {
        let targets: Vec<String> = export.disk.targets().map(ToString::to_string).collect();
        let _ = writeln!(text, "serve    {} from {}{}", export.disk.name, targets.join(", then "), said(export));
    }
    let SocketSettings { mode, group } = &settings.sockets;
    let mode = mode.map(|mode| format!(" (mode {mode:04o})")).unwrap_or_default();
    let access = group.as_ref().map(|group| format!(" (group {group})")).unwrap_or_default() + &mode;
    for address in listen {
        let how = match (address, &settings.tls) {
            (Listen::Unix(_), _) => &access,
            (Listen::Tcp(_), Some(TlsSettings { client_ca: Some(_), .. })) => " (TLS, with client certificates)",
            (Listen::Tcp(_), Some(_)) => " (TLS, for any client)",
            (Listen::Tcp(_), None) if given.clients.insecure_tcp => " (without encryption, for anybody)",
            (Listen::Tcp(_), None) => " (without encryption)",
        };
        let _ = writeln!(text, "on       {address}{how}");
    }
    for socket in vhost {
        let _ = writeln!(text, "machine  {}{access}", vhost::text(socket));
    }
    for device in ublk {
        let _ = writeln!(text, "block    {}", ublk::text(device));
    }
    if args.stdio {
        let _ = writeln!(text, "on       standard input and output");
    }
    if let Some(TlsSettings { certificate, key, client_ca }) = &settings.tls {
        let ca = client_ca.as_ref().map_or_else(String::new, |ca| format!(", clients by {}", ca.display()));
        let _ = writeln!(text, "tls      certificate {}, key {}{ca}", certificate.display(), key.display());
    }
    let (memory, most) = (human_bytes(settings.host.memory), human_bytes(settings.host.memory_max));
    match settings.host.allocate {
        Some(allocation) => {
            let _ = writeln!(text, "memory   {memory} in one shard; up to {most} while running");
            let one = if settings.host.adapt_batch { "1 or " } else { "" };
            let window = match settings.host.prefetch_window {
                0 => String::new(),
                window => format!(", at most {window} of a tenant ahead"),
            };
            let _ = writeln!(
                text,
                "allocate {allocation}, predicted blocks in batches of {one}{}{window}",
                settings.host.batch
            );
            let _ = writeln!(text, "policy   {} of each tenant", settings.host.policy);
        }
        None => {
            let _ =
                writeln!(text, "memory   {memory} in {} shards; up to {most} while running", settings.host.shards());
            let _ = writeln!(text, "policy   {}", settings.host.policy);
        }
    }
    if let Some(ContentSettings { scheme, cpu }) = settings.host.content {
        let share = 100.0 * cpu;
        let _ = writeln!(text, "content  {scheme} in a part of the memory, encoded in {share:.0} % of one processor");
    }
    for LevelSettings { target, bytes } in &settings.host.levels {
        let path = target.path().map(|path| path.display().to_string()).unwrap_or_default();
        let _ = writeln!(text, "level    {path}, {} below the memory", human_bytes(*bytes));
    }
    if let Some(remote) = &settings.host.remote_level {
        let wait = match level_wait.as_secs_f64() {
            0.0 => String::new(),
            seconds => format!(", waited for {seconds} s at most"),
        };
        let required = if remote.required { ", required at the start" } else { "" };
        for share in &remote.servers {
            let (name, bytes, client) = (remote.name_of(share), human_bytes(share.bytes), &remote.client);
            let _ = writeln!(text, "level    {name}, {bytes} as {client}{required}{wait}");
        }
        if let Some(ClientTlsSettings { ca, certificate, key }) = &remote.tls {
            let [ca, certificate, key] = [ca, certificate, key].map(|file| file.display());
            let _ = writeln!(text, "tls      of the level: authority {ca}, certificate {certificate}, key {key}");
        }
    }
    if let Some(WarmSettings { file, .. }) = &settings.host.warm {
        let _ = writeln!(text, "warm     {}, a list of the blocks in memory", file.display());
    }
    let _ = writeln!(text, "ahead    {}", settings.host.readahead);
    let _ = writeln!(
        text,
        "device   {} orders its requests, {} a shard at a time",
        settings.host.scheduler, settings.host.depth
    );
    let [fail_after, stop_within] = [settings.host.patience, settings.stop_within].map(|time| time.as_secs_f64());
    let _ = writeln!(
        text,
        "failing  writes of a disk fail after {fail_after} s, and the end of the server takes {stop_within} s at most"
    );
    let verify = if settings.host.verify { "compared" } else { "not computed" };
    let _ = writeln!(text, "verify   checksums of blocks in memory are {verify}");
    match settings.host.sampled() {
        0 => text += "curves   none\n",
        blocks => _ = writeln!(text, "curves   of {} sampled blocks or more", grouped(blocks.into())),
    }
    let _ = writeln!(text, "clients  at most {}", settings.connections_max);
    if let Some(path) = &given.watch.control {
        let _ = writeln!(text, "control  {}", path.display());
    }
    if let Some(recording) = record {
        let share = recording.sample.map_or_else(String::new, |sample| format!(", {} % of the blocks", 100.0 * sample));
        let _ = writeln!(text, "record   {}{share}", recording.file.display());
    }
    if let Some(MetricsSettings { address, token, .. }) = &settings.metrics {
        let how = if token.is_some() { " (with a token)" } else { "" };
        let _ = writeln!(text, "metrics  http://{address}/, http://{address}/metrics and http://{address}/json{how}");
    }
    if let Some(limit) = settings.slow {
        let _ = writeln!(text, "slow     requests of more than {} s are logged", limit.as_secs_f64());
    }
    if let Some(user) = user {
        let _ = writeln!(text, "user     {}, after the start", user.text);
    }
    if settings.sandboxed {
        let more: Vec<String> = sandbox_allow.iter().map(|folder| format!(", in {}", folder.display())).collect();
        let _ = writeln!(text, "sandbox  opens files only beside those above{}", more.concat());
    } else {
        let _ = writeln!(text, "sandbox  none");
    }
    if *core_dumps {
        let _ = writeln!(text, "dumps    core dumps and debuggers see the memory");
    }
    if settings.exports.iter().any(|export| export.disk.take_over) {
        let _ = writeln!(text, "takes    disks in object stores from servers that wrote them a moment ago");
    }
    text
}

/// The options of an export, in words.
fn said(export: &ExportSettings) -> String {
    let ExportSettings { disk, clients, connections, requests } = export;
    let DiskSettings { read_only, write_mode, iops, bandwidth, floor, ceiling, write_log, .. } = disk;
    let mut text = match (read_only, write_mode) {
        (false, WriteMode::Through) if write_log.is_some() => ", acknowledged when its write log has it".to_owned(),
        (false, WriteMode::Back) if write_log.is_some() => {
            ", writes back: acknowledged in memory, in its write log at a flush or within seconds".to_owned()
        }
        (true, WriteMode::Back) => ", read-only".to_owned(),
        (true, WriteMode::Through) => ", read-only; if that ends, writes through".to_owned(),
        (false, WriteMode::Back) => {
            ", writes back: acknowledged in memory, on the device at a flush or within seconds".into()
        }
        (false, WriteMode::Through) => ", writes through: acknowledged when the device has it".into(),
    };
    if let Some(log) = write_log {
        let _ = write!(text, ", with the write log {log}");
    }
    if !clients.is_empty() {
        let _ = write!(text, ", for {}", clients.join(" and "));
    }
    for (limit, unit) in [(connections, " clients"), (requests, " requests a client"), (iops, " requests/s")] {
        if *limit > 0 {
            let _ = write!(text, ", at most {limit}{unit}");
        }
    }
    if *bandwidth > 0 {
        let _ = write!(text, ", at most {}/s", human_bytes(*bandwidth));
    }
    if let Some(group) = &disk.share {
        let _ = write!(text, ", shares equal blocks within {group}");
    }
    if disk.tenant() != disk.name {
        let _ = write!(text, ", of tenant {}", disk.tenant());
    }
    if let Some(policy) = &disk.policy {
        let _ = write!(text, ", under {policy}");
    }
    for (bound, words) in [(floor, "keeps"), (ceiling, "has at most")] {
        if *bound > 0 {
            let _ = write!(text, ", {words} {} of the cache", human_bytes(*bound));
        }
    }
    text
}
