//! The file of `--config`: the settings of `args/settings.rs`, and exports.

use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use nigh_backend::Target;
use nigh_service::{ExportOptions, ExportSettings, OptionForm, amount};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

use super::Plan;
use crate::args::Given;
use crate::asked;

/// The settings in a file. Flags on the command line override them.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) given: Given,
    pub(super) exports: Vec<(ExportSettings, ExportOptions)>,
}

/// An error, with its place in the text of a file.
#[derive(Debug)]
struct Wrong {
    place: Option<Range<usize>>,
    message: String,
}

impl From<toml::de::Error> for Wrong {
    fn from(error: toml::de::Error) -> Wrong {
        Wrong { place: error.span(), message: error.message().to_owned() }
    }
}

impl Wrong {
    /// There is no such key, but those of `known`, with underscores.
    fn unknown(key: &Spanned<DeString>, known: impl Iterator<Item = &'static str>) -> Wrong {
        let known: Vec<String> = known.map(hyphened).collect();
        let near = nigh_text::did_you_mean(nigh_text::nearest(key.get_ref(), known.iter().map(String::as_str)));
        let otherwise = || format!("there is no key `{}`{near}", key.get_ref());
        Wrong { place: Some(key.span()), message: asked::moved(key.get_ref()).unwrap_or_else(otherwise) }
    }
}

/// A name as a file has it.
fn hyphened(field: &str) -> String {
    field.replace('_', "-")
}

impl File {
    /// An error names the line.
    pub(super) fn read(path: &Path) -> anyhow::Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        File::parse(&text).map_err(|Wrong { place, message }| asked::at_line(path, &text, place, &message))
    }

    fn parse(text: &str) -> Result<File, Wrong> {
        let mut entries: Vec<_> = DeTable::parse(text)?.into_inner().into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut file = File::default();
        for (key, value) in entries {
            if key.get_ref() != "export" {
                if !file.given.read(key.get_ref(), ValueDeserializer::from(value))? {
                    return Err(Wrong::unknown(&key, Given::FIELDS.iter().copied().chain(["export"])));
                }
                continue;
            }
            match value.into_inner() {
                DeValue::Array(tables) => file.exports = tables.into_iter().map(export).collect::<Result<_, _>>()?,
                _ => return Err(Wrong { place: Some(key.span()), message: EXPORT_FORM.to_owned() }),
            }
        }
        Ok(file)
    }
}

const EXPORT_FORM: &str = "an export is a table: [[export]]";

/// A table of a file: `name`, `target`, and options under the names of their fields.
fn export(value: Spanned<DeValue>) -> Result<(ExportSettings, ExportOptions), Wrong> {
    let place = value.span();
    let at_table = |message: &str| Wrong { place: Some(place.clone()), message: message.to_owned() };
    let DeValue::Table(table) = value.into_inner() else { return Err(at_table(EXPORT_FORM)) };
    let fields = || ExportOptions::ALL.iter().map(|option| option.field);
    let (mut name, mut target, mut options) = (None, None, DeTable::new());
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "name" => name = Some(String::deserialize(ValueDeserializer::from(value))?),
            "target" => {
                let place = Some(value.span());
                let text = String::deserialize(ValueDeserializer::from(value))?;
                target = Some(text.parse::<Target>().map_err(|error| Wrong { place, message: error.to_string() })?);
            }
            known if fields().any(|field| hyphened(field) == known) => {
                options.insert(Spanned::new(key.span(), known.replace('-', "_").into()), value);
            }
            _ => return Err(Wrong::unknown(&key, fields().chain(["name", "target"]))),
        }
    }
    let name = name.ok_or_else(|| at_table("missing field `name`"))?;
    let target = target.ok_or_else(|| at_table("missing field `target`"))?;
    let options = Spanned::new(place.clone(), DeValue::Table(options));
    let options = ExportOptions::deserialize(ValueDeserializer::from(options))?;
    if options.clients.as_ref().is_some_and(Vec::is_empty) {
        return Err(at_table("clients is an empty list: name clients, or leave it out to admit all"));
    }
    Ok((ExportSettings::new(name, target), options))
}

/// A file as it is printed.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    given: &'a Given,
    export: Vec<PrintedExport<'a>>,
}

#[derive(Serialize)]
struct PrintedExport<'a> {
    name: &'a str,
    target: String,
    #[serde(flatten)]
    options: toml::Table,
}

/// A file that [`File::read`] reads as `plan`.
pub(super) fn printed(plan: &Plan) -> anyhow::Result<String> {
    let export = plan.settings.exports.iter().map(printed_export).collect::<Result<_, _>>()?;
    let text = toml::to_string(&Printed { given: &plan.given, export })?;
    Ok(format!("# Settings of nigh serve. docs/config.md describes each key.\n{text}"))
}

fn printed_export(export: &ExportSettings) -> Result<PrintedExport<'_>, toml::ser::Error> {
    let name = &export.disk.name;
    let options = toml::Table::try_from(ExportOptions::of(export).unusual(name))?;
    let options = ExportOptions::ALL.iter().filter_map(|option| {
        let value = options.get(option.field)?.clone();
        let value = match (option.form, value.as_integer()) {
            (OptionForm::Size, Some(bytes)) => amount(bytes as u64).into(),
            _ => value,
        };
        Some((hyphened(option.field), value))
    });
    Ok(PrintedExport { name, target: export.disk.target.to_string(), options: options.collect() })
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
    use nigh_service::ExportOption;

    use super::*;
    use crate::args::{On, Reloaded, ServeArgs, TlsArg};
    use crate::serve::plan;

    fn command() -> Command {
        Given::augment_args(Command::new("serve"))
    }

    fn key(arg: &Arg) -> String {
        hyphened(arg.get_id().as_str())
    }

    /// A description, and the default in it.
    fn split_help(text: &str) -> (&str, Option<&str>) {
        match text.strip_suffix(']').and_then(|text| text.rsplit_once(" [default: ")) {
            Some((text, usual)) => (text, Some(usual)),
            None => (text, None),
        }
    }

    /// The values of a setting in a file, and its default unless its help has one.
    fn values(arg: &Arg) -> (String, &'static str) {
        let name = arg.get_value_names().map_or("", |names| names[0].as_str()).replace('|', "\\|");
        let kind = arg.get_value_parser().type_id();
        match arg.get_action() {
            _ if !arg.get_possible_values().is_empty()
                && kind != TypeId::of::<bool>()
                && kind != TypeId::of::<On>() =>
            {
                let values: Vec<String> =
                    arg.get_possible_values().iter().map(|value| format!("`\"{}\"`", value.get_name())).collect();
                (values.join(", "), "none")
            }
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
        let mut keys: Vec<String> = Given::FIELDS.iter().map(|field| hyphened(field)).collect();
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
            let help = arg.get_help().unwrap().to_string();
            let ((meaning, usual), (values, otherwise)) = (split_help(&help), values(arg));
            let reload = if arg.get::<Reloaded>().is_some() { ". A reload applies it" } else { "" };
            let usual = usual.unwrap_or(otherwise);
            text += &with_keys(format!("| `{}` | {values} | {meaning}{reload} | {usual} |\n", key(arg)));
        }
        text
    }

    fn options() -> String {
        let rows = ExportOptions::ALL.iter().map(|ExportOption { field, form, value, help, .. }| {
            let (values, otherwise) = match form {
                OptionForm::Text | OptionForm::Size => (format!("`\"{value}\"`"), "none"),
                OptionForm::Number => ("number".to_owned(), "none"),
                OptionForm::Switch => ("`true`".to_owned(), "`false`"),
                OptionForm::List => (format!("list of `\"{value}\"`"), "none"),
            };
            let (meaning, usual) = split_help(help);
            let usual = usual.unwrap_or(otherwise);
            with_keys(format!("| `{}` | {} | {meaning} | {usual} |\n", hyphened(field), values.replace('|', "\\|")))
        });
        rows.collect()
    }

    /// `UPDATE=1` writes the tables again.
    #[test]
    fn the_documentation_names_every_key_and_no_other() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let begin = text.find("## Cache\n").expect("tables of settings");
        let end = text.find("\n## `[tls]`").expect("a table of certificates");
        let exports = text.find("| `next` |").expect("a table of options");
        let written = [&text[..begin], &tables(), &text[end..exports], &options()].concat();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written, "cargo xtask docs writes it");
        let rows = text[end..exports].lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
        let tls = TlsArg { certificate: "a".into(), key: "b".into(), client_ca: Some("c".into()) };
        let tls = toml::Table::try_from(tls).unwrap();
        let mut known: Vec<&str> = tls.keys().map(String::as_str).chain(["name", "target"]).collect();
        let mut rows: Vec<&str> = rows.collect();
        known.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, known);
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
    fn errors_are_at_the_line_of_the_value_or_the_key() {
        let export = "[[export]]\nname = 'd'\ntarget = 'memory:1M'\n";
        for (text, line, words) in [
            ("depth = 3\npolicy = 'lrv'", 2, "unknown policy 'lrv'"),
            ("fail-after = '2h'", 1, "from 0s to 1h"),
            ("depth = 3\nmemry = '1G'", 2, "there is no key `memry`. Did you mean 'memory'?"),
            ("memory_max = '1G'", 1, "there is no key `memory_max`. Did you mean 'memory-max'?"),
            (&format!("{export}floor = 'x'"), 4, "expected bytes such as 100M"),
            (&format!("{export}write_mode = 'back'"), 4, "Did you mean 'write-mode'?"),
            ("[[export]]\nname = 'd'\ntarget = 'memroy:1M'", 3, "no kind of target"),
        ] {
            let Wrong { place, message } = File::parse(text).map(|file| format!("{file:?}")).unwrap_err();
            assert_eq!(1 + text[..place.unwrap().start].matches('\n').count(), line, "{text}");
            assert!(message.contains(words), "{text}: {message}");
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
            let help = arg.get_help().unwrap().to_string();
            let usual = split_help(&help).1.unwrap_or("none");
            // Each export has a mode of its own in the end.
            if usual == "none" || usual.contains([' ', '\'']) || key(arg) == "write-mode" {
                continue;
            }
            let found = printed.iter().find_map(|printed| printed.get(&key(arg))).unwrap_or_else(|| panic!("{usual}"));
            assert_eq!(found.as_str().map_or_else(|| found.to_string(), str::to_owned), usual, "{}", key(arg));
            compared += 1;
        }
        assert!(compared > 8, "{compared}");
    }
}
