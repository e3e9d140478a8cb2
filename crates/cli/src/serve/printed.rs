//! The settings of flags and a file together, as a file of `--config`.

use nigh_service::{Allocation, ExportOptions, ExportSettings, Settings, SocketSettings, WriteMode, amount};

use super::{File, FileExport, NO_LIST, Plan, level};
use crate::args::{AllocateArg, MetricsArg, PrefetchArg, TlsArg, WriteModeArg};

/// A file that `--config` reads as `plan`.
pub(super) fn config(plan: &Plan) -> anyhow::Result<String> {
    let text = toml::to_string(&file(plan))?;
    Ok(format!("# Settings of nigh serve. docs/config.md describes each key.\n{text}"))
}

fn file(plan: &Plan) -> File {
    let Plan {
        settings,
        listen,
        vhost,
        ublk,
        insecure_tcp,
        core_dumps,
        sandbox_allow,
        user,
        control,
        record: _,
        level_wait,
    } = plan;
    let Settings {
        host,
        exports,
        connections_max,
        front_descriptors: _,
        metrics,
        slow,
        sockets: SocketSettings { mode, group },
        tls,
        after_loss: _,
        stop_within,
        sandboxed,
    } = settings;
    let alone = host.allocate.is_none();
    File {
        memory: Some(amount(host.memory)),
        memory_max: Some(amount(host.memory_max)),
        policy: Some(host.policy.to_string()),
        allocate: host.allocate.map(|allocation| match allocation {
            Allocation::LruSp => AllocateArg::LruSp,
            Allocation::Global => AllocateArg::Global,
            Allocation::Static => AllocateArg::Static,
            Allocation::Utility => AllocateArg::Utility,
        }),
        prefetch: host.allocate.map(|_| PrefetchArg {
            batch: host.batch,
            window: host.prefetch_window,
            adapts: host.adapt_batch,
        }),
        // Each export has its own.
        write_mode: None,
        readahead: Some(host.readahead.to_string()),
        scheduler: Some(host.scheduler.to_string()),
        depth: Some(host.depth),
        fail_after: Some(format!("{}s", host.patience.as_secs_f64())),
        stop_within: Some(format!("{}s", stop_within.as_secs_f64())),
        verify: Some(host.verify),
        curves: host.curves,
        shards: alone.then(|| host.shards()),
        connections: Some(*connections_max),
        content: host.content.map(|content| content.scheme.to_string()),
        content_cpu: host.content.map(|content| format!("{}%", 100.0 * content.cpu)),
        level: level::texts(&host.levels, host.remote_level.as_ref(), *level_wait),
        warm: Some(host.warm.as_ref().map_or_else(|| NO_LIST.into(), |warm| warm.file.clone())),
        listen: listen.iter().map(ToString::to_string).collect(),
        vhost_user: vhost.iter().map(super::vhost::text).collect(),
        ublk: ublk.iter().map(super::ublk::text).collect(),
        socket_mode: mode.map(|mode| format!("{mode:04o}")),
        socket_group: group.clone(),
        insecure_tcp: Some(*insecure_tcp),
        core_dumps: Some(*core_dumps),
        sandbox: Some(*sandboxed),
        sandbox_allow: sandbox_allow.clone(),
        user: user.as_ref().map(|user| user.text.clone()),
        metrics: (metrics.as_ref())
            .map(|metrics| MetricsArg { address: metrics.address, token: metrics.token.clone() }),
        slow: slow.map(|limit| format!("{}s", limit.as_secs_f64())),
        control: control.clone(),
        tls: tls.clone().map(TlsArg::from),
        export: exports.iter().map(export).collect(),
    }
}

fn export(export: &ExportSettings) -> FileExport {
    let ExportOptions {
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
    } = ExportOptions::of(export).unusual(&export.disk.name);
    FileExport {
        name: export.disk.name.clone(),
        target: export.disk.target.to_string(),
        next: next.iter().flatten().map(ToString::to_string).collect(),
        write_log: write_log.map(|log| log.to_string()),
        read_only,
        write_mode: write_mode.map(|mode| match mode {
            WriteMode::Back => WriteModeArg::Back,
            WriteMode::Through => WriteModeArg::Through,
        }),
        clients,
        connections,
        requests,
        iops,
        bandwidth: bandwidth.map(amount),
        tenant,
        floor: floor.map(amount),
        ceiling: ceiling.map(amount),
        policy: policy.flatten().map(|policy| policy.to_string()),
        share,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(table: &toml::Table, found: &mut BTreeSet<String>) {
        for (key, value) in table {
            found.insert(key.clone());
            match value {
                toml::Value::Table(inner) => keys(inner, found),
                toml::Value::Array(list) => {
                    list.iter().filter_map(|value| value.as_table()).for_each(|inner| keys(inner, found))
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_documentation_names_every_key_and_no_other() {
        let text = || Some(String::new());
        // All of them: a new one does not compile here.
        let file = File {
            memory: text(),
            memory_max: text(),
            policy: text(),
            allocate: Some(AllocateArg::LruSp),
            prefetch: Some(PrefetchArg::default()),
            write_mode: Some(WriteModeArg::Back),
            readahead: text(),
            scheduler: text(),
            depth: Some(1),
            fail_after: text(),
            stop_within: text(),
            verify: Some(true),
            curves: Some(1),
            shards: Some(1),
            connections: Some(1),
            content: text(),
            content_cpu: text(),
            level: vec![String::new()],
            warm: Some("w".into()),
            listen: vec![String::new()],
            vhost_user: vec![String::new()],
            ublk: vec![String::new()],
            socket_mode: text(),
            socket_group: text(),
            insecure_tcp: Some(false),
            core_dumps: Some(false),
            sandbox: Some(true),
            sandbox_allow: vec!["f".into()],
            user: text(),
            metrics: Some("0.0.0.0:0,token=t".parse().unwrap()),
            slow: text(),
            control: Some("c".into()),
            tls: Some(TlsArg { certificate: "a".into(), key: "b".into(), client_ca: Some("c".into()) }),
            export: vec![FileExport {
                name: String::new(),
                target: String::new(),
                next: vec![String::new()],
                write_log: text(),
                read_only: Some(false),
                write_mode: Some(WriteModeArg::Back),
                clients: Some(vec![String::new()]),
                connections: Some(1),
                requests: Some(1),
                iops: Some(1),
                bandwidth: text(),
                tenant: text(),
                floor: text(),
                ceiling: text(),
                policy: text(),
                share: text(),
            }],
        };
        let mut known = BTreeSet::new();
        keys(&toml::Table::try_from(file).unwrap(), &mut known);
        let documented: BTreeSet<String> = include_str!("../../../../docs/config.md")
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
            .collect();
        let tables = ["tls", "export"].map(str::to_owned);
        let expected: BTreeSet<String> = known.into_iter().filter(|key| !tables.contains(key)).collect();
        assert_eq!(documented, expected);
    }
}
