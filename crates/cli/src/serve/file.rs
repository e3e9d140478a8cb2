//! The file of `--config`: the settings of `args/settings.rs`, and exports.

use std::path::Path;

use anyhow::{Context, ensure};
use nigh_service::{ExportOptions, ExportSettings, WriteMode, amount};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, ValueDeserializer};

use super::Plan;
use crate::args::{Given, WriteModeArg};
use crate::asked;

/// The settings in a file. Flags on the command line override them.
#[derive(Debug, Default, Serialize)]
pub(super) struct File {
    #[serde(flatten)]
    pub(super) given: Given,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) export: Vec<FileExport>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileExport {
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

impl File {
    /// An error names the line.
    pub(super) fn read(path: &Path) -> anyhow::Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let wrong = |error: toml::de::Error| asked::at_line(path, &text, error.span(), error.message());
        let mut entries: Vec<_> = DeTable::parse(&text).map_err(wrong)?.into_inner().into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut file = File::default();
        for (key, value) in entries {
            let (name, value) = (key.get_ref(), ValueDeserializer::from(value));
            if name == "export" {
                file.export = Deserialize::deserialize(value).map_err(wrong)?;
            } else if !file.given.read(name, value).map_err(wrong)? {
                let near = nigh_text::nearest(&name.replace('-', "_"), Given::FIELDS.iter().copied());
                let near = nigh_text::did_you_mean(near.map(|near| near.replace('_', "-")).as_deref());
                let message = asked::moved(name).unwrap_or_else(|| format!("there is no key `{name}`{near}"));
                return Err(asked::at_line(path, &text, Some(key.span()), &message));
            }
        }
        Ok(file)
    }
}

/// A file that [`File::read`] reads as `plan`.
pub(super) fn printed(plan: &Plan) -> anyhow::Result<String> {
    let file = File { given: plan.given.clone(), export: plan.settings.exports.iter().map(export).collect() };
    Ok(format!("# Settings of nigh serve. docs/config.md describes each key.\n{}", toml::to_string(&file)?))
}

impl FileExport {
    pub(super) fn read(self) -> anyhow::Result<(ExportSettings, ExportOptions)> {
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
    use std::any::TypeId;

    use clap::{Arg, ArgAction, Args, Command, CommandFactory, FromArgMatches};

    use super::*;
    use crate::args::{Reloaded, ServeArgs};
    use crate::serve::plan;

    const KEYS_OF_TLS: [&str; 3] = ["certificate", "key", "client-ca"];

    fn command() -> Command {
        Given::augment_args(Command::new("serve"))
    }

    fn key(arg: &Arg) -> String {
        arg.get_id().as_str().replace('_', "-")
    }

    /// The description of a setting, and its default.
    fn help(arg: &Arg) -> (String, Option<String>) {
        let text = arg.get_help().unwrap().to_string();
        match text.rsplit_once(" [default: ") {
            Some((text, usual)) => (text.to_owned(), Some(usual.trim_end_matches(']').to_owned())),
            None => (text, None),
        }
    }

    /// The values of a setting in a file, and its default unless its help has one.
    fn values(arg: &Arg) -> (String, &'static str) {
        let name = arg.get_value_names().map_or("", |names| names[0].as_str()).replace('|', "\\|");
        let kind = arg.get_value_parser().type_id();
        match arg.get_action() {
            ArgAction::SetTrue => ("`true`".to_owned(), "`false`"),
            ArgAction::SetFalse => ("`false`".to_owned(), "`true`"),
            ArgAction::Append => (format!("list of `\"{name}\"`"), "none"),
            _ if kind == TypeId::of::<bool>() => ("`true` or `false`".to_owned(), "none"),
            _ if kind == TypeId::of::<u32>() || kind == TypeId::of::<usize>() => ("number".to_owned(), "none"),
            _ if kind == TypeId::of::<TlsArg>() => ("table, see below".to_owned(), "none"),
            _ => (format!("`\"{name}\"`"), "none"),
        }
    }

    /// `text` with the names of keys instead of flags.
    fn with_keys(mut text: String) -> String {
        let mut keys: Vec<String> = Given::FIELDS.iter().map(|field| field.replace('_', "-")).collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
        for key in keys {
            text = text.replace(&format!("--{key}"), &format!("`{key}`"));
        }
        text
    }

    fn tables() -> String {
        let (mut text, mut heading) = (String::new(), "");
        let command = command();
        for arg in command.get_arguments() {
            let of = arg.get_help_heading().expect("each group has a heading");
            if of != heading {
                let head = "| key | value | meaning | default |\n|---|---|---|---|\n";
                text += &format!("{}## {of}\n\n{head}", if heading.is_empty() { "" } else { "\n" });
                heading = of;
            }
            let ((meaning, usual), (values, otherwise)) = (help(arg), values(arg));
            let reload = if arg.get::<Reloaded>().is_some() { ". A reload applies it" } else { "" };
            let usual = usual.unwrap_or_else(|| otherwise.to_owned());
            text += &with_keys(format!("| `{}` | {values} | {meaning}{reload} | {usual} |\n", key(arg)));
        }
        text
    }

    /// `UPDATE=1` writes the tables again.
    #[test]
    fn the_documentation_names_every_key_and_no_other() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let begin = text.find("## Cache\n").expect("tables of settings");
        let end = text.find("\n## `[tls]`").expect("a table of certificates");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, format!("{}{}{}", &text[..begin], tables(), &text[end..])).unwrap();
            return;
        }
        assert_eq!(text[begin..end], tables(), "cargo xtask docs writes it");
    }

    #[test]
    fn every_setting_is_a_flag_and_a_key_of_the_same_name() {
        let command = command();
        let flags: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        assert_eq!(flags, Given::FIELDS);
        for arg in command.get_arguments() {
            let flag = arg.get_long().unwrap();
            assert!(flag == key(arg) || flag == format!("no-{}", key(arg)), "{flag}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let serve = |list: &[&str]| {
            let matches = ServeArgs::augment_args(Command::new("serve")).get_matches_from([&["serve"], list].concat());
            let plan = plan(&ServeArgs::from_arg_matches(&matches).unwrap()).unwrap();
            toml::Table::try_from(&plan.given).unwrap()
        };
        let printed = [serve(&["d=memory:1M"]), serve(&["d=memory:1M", "--allocate=lru-sp", "--content=dedup"])];
        let mut compared = 0;
        for arg in command().get_arguments() {
            // Others depend on the machine, or on further settings.
            let Some(usual) = help(arg).1.filter(|usual| usual != "none" && !usual.contains([' ', '\''])) else {
                continue;
            };
            let found = printed.iter().find_map(|printed| printed.get(&key(arg))).unwrap_or_else(|| panic!("{usual}"));
            assert_eq!(found.as_str().map_or_else(|| found.to_string(), str::to_owned), usual, "{}", key(arg));
            compared += 1;
        }
        assert!(compared > 8, "{compared}");
    }
}
