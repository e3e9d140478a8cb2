//! Options of an export, as a user, a file or a control client writes them.

use std::fmt;

use nigh_backend::{Target, TargetError};
use nigh_host::{WriteLogSettings, WriteMode};
use nigh_policy::{Spec, SpecError};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::ExportSettings;

/// Defines the options of an export. A row: the field, which is its name for control clients and, with hyphens, in a file; its type, its name as a user
/// writes it, how its value is written, the place of the value in [`ExportSettings`], and its help.
macro_rules! options {
    ($($(#[$json:meta])* $field:ident: $type:ty = $name:literal as $kind:ident, $($at:ident).+, $value:literal, $help:literal;)*) => {
        /// Changes of an export's settings, by their names there.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct ExportOptions {
            $(#[doc = $help] #[serde(skip_serializing_if = "Option::is_none")] $(#[$json])* pub $field: Option<$type>,)*
        }

        impl ExportOptions {
            /// All options, in the order in which they are printed.
            pub const ALL: &[ExportOption] = &[
                $(ExportOption { name: $name, field: stringify!($field), form: <$kind as Kind<$type>>::FORM, value: $value, help: $help },)*
            ];

            /// All of `settings`.
            pub fn of(settings: &ExportSettings) -> ExportOptions {
                let all = ExportOptions { $($field: settings.$($at).+.clone().into(),)* };
                ExportOptions { tenant: Some(settings.disk.tenant().to_owned()), ..all }
            }

            /// Changes `settings`. With a write log, writes go through the memory to the log, unless another mode is given.
            pub fn apply(&self, settings: &mut ExportSettings) {
                if self.write_log.is_some() {
                    settings.disk.write_mode = WriteMode::Through;
                }
                $(if let Some(value) = &self.$field {
                    settings.$($at).+ = value.clone().into();
                })*
            }

            /// Those that differ from `usual`.
            fn without(mut self, usual: &ExportOptions) -> ExportOptions {
                $(if self.$field == usual.$field {
                    self.$field = None;
                })*
                self
            }

            /// Adds an option as a user writes it: `NAME=VALUE`, where a switch is on without a value, and [`ExportOptions::ALL`] has the names. One with a list
            /// of values is added once for each, in their order. `none` is no limit, and instead of a policy that of the cache.
            pub fn add(&mut self, text: &str) -> Result<(), OptionError> {
                let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                match name {
                    $($name => {
                        let found = <$kind as Kind<$type>>::parse(self.$field.take(), value)?;
                        let wrong = || OptionError::Value { option: $name, takes: <$kind as Kind<$type>>::TAKES, value: value.unwrap_or_default().to_owned() };
                        self.$field = Some(found.ok_or_else(wrong)?);
                    })*
                    _ => return Err(OptionError::Unknown(name.to_owned())),
                }
                Ok(())
            }

            /// Each as a user writes it.
            fn words(&self) -> impl Iterator<Item = String> {
                let words = [$(self.$field.iter().flat_map(<$kind as Kind<$type>>::texts).map(|text| format!("{}={text}", $name)).collect::<Vec<_>>(),)*];
                words.into_iter().flatten()
            }
        }
    };
}

options! {
    #[serde(serialize_with = "write_list::<Targets, _, _>", deserialize_with = "read_list::<Targets, _, _>")]
    next: Vec<Target> = "next" as Targets, disk.next, "TARGET",
        "a target on which the disk continues, or several, in their order; fixed while the disk is served";
    #[serde(serialize_with = "write_text::<Log, _, _>", deserialize_with = "read_text::<Log, _, _>")]
    write_log: WriteLogSettings = "write-log" as Log, disk.write_log, "TARGET:SIZE",
        "a file or block device on a fast device: writes are stable there before they are acknowledged, and reach the disk's target later; fixed while the disk is served";
    read_only: bool = "read-only" as Switch, disk.read_only, "",
        "reject writes; read-only=no allows them";
    #[serde(serialize_with = "write_text::<Mode, _, _>", deserialize_with = "read_text::<Mode, _, _>")]
    write_mode: WriteMode = "write-mode" as Mode, disk.write_mode, "back|through",
        "when writes reach the device [default: that of the cache; through with write-log]";
    clients: Vec<String> = "client" as Names, clients, "NAME",
        "only for clients whose certificate has this name, or one of several [default: all clients]";
    connections: u64 = "connections" as Count, connections, "N",
        "most clients at a time";
    requests: u64 = "requests" as Count, requests, "N",
        "most requests in progress of each client, up to 512 [default: 512]";
    iops: u64 = "iops" as Count, disk.iops, "N",
        "most requests per second of all clients, of any kind; CACHE (a request to fetch), trims and zeroes count as one for each 32 MiB";
    #[serde(deserialize_with = "read_size")]
    bandwidth: u64 = "bandwidth" as Rate, disk.bandwidth, "SIZE",
        "most bytes per second that all clients read, write, zero and fetch by CACHE; trims have no bytes, nor have zeroes with FAST_ZERO";
    #[serde(deserialize_with = "read_text::<Name, _, _>")]
    tenant: String = "tenant" as Name, disk.tenant, "NAME",
        "disks with the same NAME are one tenant (with --allocate) [default: the disk's name]";
    #[serde(deserialize_with = "read_size")]
    floor: u64 = "floor" as Bytes, disk.floor, "SIZE",
        "least that its tenant keeps of a full cache (with --allocate)";
    #[serde(deserialize_with = "read_size")]
    ceiling: u64 = "ceiling" as Bytes, disk.ceiling, "SIZE",
        "most that its tenant has of a full cache (with --allocate)";
    #[serde(serialize_with = "write_text::<Policy, _, _>", deserialize_with = "read_text::<Policy, _, _>")]
    policy: Option<Spec> = "policy" as Policy, disk.policy, "POLICY",
        "which of its blocks its tenant loses (with --allocate) [default: --policy]";
    #[serde(deserialize_with = "read_text::<Group, _, _>")]
    share: String = "share" as Group, disk.share, "GROUP",
        "disks with the same GROUP share the memory of equal and similar blocks (with --content); how long a read takes then shows whether another disk of the group has the same block [default: only disks of its tenant]";
}

/// An option, for help and documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOption {
    /// Its name as a user writes it.
    pub name: &'static str,
    /// Its field in [`ExportOptions`].
    pub field: &'static str,
    /// The form of its value in a file.
    pub form: OptionForm,
    /// The form of its value behind `NAME=`; empty for a switch.
    pub value: &'static str,
    /// Its description, with its default in brackets at the end unless that is none.
    pub help: &'static str,
}

/// The form of an option's value in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionForm {
    /// A string.
    Text,
    /// A string with a size, such as `"100M"`. Control clients write bytes.
    Size,
    /// A number.
    Number,
    /// `true` or `false`.
    Switch,
    /// A list of strings.
    List,
}

/// An error in an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error(
        "'{name}' is no option of an export: {all}{near}",
        name = .0,
        all = names().collect::<Vec<_>>().join(", "),
        near = nigh_text::did_you_mean(nigh_text::nearest(.0, names()))
    )]
    Unknown(String),
    /// The text after `next` or `write-log` is no target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no such policy.
    #[error("policy: {0}")]
    Policy(String),
    /// It takes another value.
    #[error("'{option}' takes {takes}, not '{value}'")]
    Value {
        /// Which.
        option: &'static str,
        /// The values that it takes.
        takes: &'static str,
        /// The value that was given.
        value: String,
    },
}

fn names() -> impl Iterator<Item = &'static str> {
    ExportOptions::ALL.iter().map(|option| option.name)
}

fn find(name: &str) -> Option<&'static ExportOption> {
    ExportOptions::ALL.iter().find(|option| option.name == name)
}

/// How the value of an option is written.
trait Kind<T> {
    /// The values, for errors.
    const TAKES: &'static str;
    const FORM: OptionForm;

    /// The value with `text`, which follows `=`; `before` is the value so far, for lists. `None` if the option takes other values.
    fn parse(before: Option<T>, text: Option<&str>) -> Result<Option<T>, OptionError>;

    /// The values behind `=`: for a list, one for each part.
    fn texts(value: &T) -> Vec<String>;
}

/// Defines kinds: the type, the form in a file, and the values for errors; what parses a value, and its texts.
macro_rules! kinds {
    ($($kind:ident: $type:ty, $form:ident, $takes:literal, $parse:expr, $texts:expr;)*) => {$(
        struct $kind;

        impl Kind<$type> for $kind {
            const TAKES: &'static str = $takes;
            const FORM: OptionForm = OptionForm::$form;

            fn parse(before: Option<$type>, text: Option<&str>) -> Result<Option<$type>, OptionError> {
                let parse: fn(Option<$type>, Option<&str>) -> Result<Option<$type>, OptionError> = $parse;
                parse(before, text)
            }

            fn texts(value: &$type) -> Vec<String> {
                let texts: fn(&$type) -> Vec<String> = $texts;
                texts(value)
            }
        }
    )*};
}

kinds! {
    Targets: Vec<Target>, List, "a target",
        |before, text| {
            let mut targets = before.unwrap_or_default();
            targets.push(text.unwrap_or_default().parse()?);
            Ok(Some(targets))
        },
        |targets| targets.iter().map(Target::to_string).collect();
    Log: WriteLogSettings, Text, "a target and a size",
        |_, text| Ok(Some(text.unwrap_or_default().parse()?)),
        |log| vec![log.to_string()];
    Switch: bool, Switch, "yes or no",
        |_, text| Ok([(None, true), (Some("yes"), true), (Some("no"), false)].iter().find(|(word, _)| *word == text).map(|(_, is_on)| *is_on)),
        |is_on| vec![if *is_on { "yes" } else { "no" }.to_owned()];
    Mode: WriteMode, Text, "back or through",
        |_, text| Ok(MODES.iter().find(|(name, _)| Some(*name) == text).map(|(_, mode)| *mode)),
        |mode| MODES.iter().filter(|(_, known)| known == mode).map(|(name, _)| (*name).to_owned()).collect();
    Names: Vec<String>, List, "a name of a certificate, or any",
        |before, text| Ok(match text {
            Some(ANYBODY) => Some(Vec::new()),
            Some(name) if !name.is_empty() => Some(before.into_iter().flatten().chain([name.to_owned()]).collect()),
            _ => None,
        }),
        |names| if names.is_empty() { vec![ANYBODY.to_owned()] } else { names.clone() };
    Count: u64, Number, "a number or none",
        |_, text| Ok(limit(text, nigh_text::count)),
        |count| vec![if *count == 0 { NONE.to_owned() } else { count.to_string() }];
    Bytes: u64, Size, "bytes such as 100M, or none",
        |_, text| Ok(limit(text, nigh_text::bytes)),
        |bytes| vec![amount(*bytes)];
    Rate: u64, Size, "bytes per second such as 100M, or none",
        |_, text| Ok(limit(text, nigh_text::bytes)),
        |bytes| vec![amount(*bytes)];
    Name: String, Text, "a name",
        |_, text| Ok(text.filter(|name| !name.is_empty()).map(str::to_owned)),
        |name| vec![name.clone()];
    Group: String, Text, "the name of a group of disks",
        |_, text| Ok(text.filter(|name| !name.is_empty()).map(str::to_owned)),
        |name| vec![name.clone()];
    Policy: Option<Spec>, Text, "a policy, or none",
        |_, text| Ok(Some(match text.unwrap_or_default() {
            NONE => None,
            text => Some(text.parse().map_err(|error: SpecError| OptionError::Policy(error.to_string()))?),
        })),
        |policy| vec![policy.as_ref().map_or_else(|| NONE.to_owned(), Spec::to_string)];
}

const MODES: [(&str, WriteMode); 2] = [("back", WriteMode::Back), ("through", WriteMode::Through)];
const ANYBODY: &str = "any";
/// In place of a limit, and of a policy: that of the cache.
const NONE: &str = "none";

/// A limit above 0, or 0 for none.
fn limit(text: Option<&str>, read: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    match text? {
        NONE => Some(0),
        text => read(text).filter(|limit| *limit > 0),
    }
}

fn write_text<K: Kind<T>, T, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    value.iter().flat_map(K::texts).next().serialize(to)
}

fn read_text<'de, K: Kind<T>, T, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    let value = K::parse(None, Some(&text)).map_err(serde::de::Error::custom)?;
    value.map(Some).ok_or_else(|| serde::de::Error::custom(format!("expected {}, not '{text}'", K::TAKES)))
}

fn write_list<K: Kind<T>, T, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(K::texts).serialize(to)
}

fn read_list<'de, K: Kind<T>, T: Default, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let list = Vec::<String>::deserialize(from)?;
    list.iter()
        .try_fold(Some(T::default()), |value, text| K::parse(value, Some(text)))
        .map_err(serde::de::Error::custom)
}

/// Bytes as a number, or as a string with a unit.
fn read_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected bytes such as \"100M\"")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(from)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Text(text) => read_text::<Bytes, _, _>(text.into_deserializer()),
    }
}

/// Whether `text` begins with the name of an option, as a whole word.
fn is_option(text: &str) -> bool {
    text.split(['=', ',']).next().is_some_and(|name| find(name).is_some())
}

/// The words of a list with commas between them. A target behind `next=` or `write-log=` may have commas, too: it ends with the list, or
/// where the next option begins.
fn words(mut list: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        let is_target = list.starts_with("next=") || list.starts_with("write-log=");
        let ends = |&at: &usize| !is_target || is_option(&list[at + 1..]);
        let Some(at) = list.match_indices(',').map(|(at, _)| at).find(ends) else { break };
        words.push(&list[..at]);
        list = &list[at + 1..];
    }
    words.push(list);
    words
}

impl ExportOptions {
    /// Those that differ from the usual for an export called `name`.
    pub fn unusual(&self, name: &str) -> ExportOptions {
        let mut usual = ExportSettings::new(name, Target::Memory(0));
        ExportOptions { write_log: self.write_log.clone(), ..ExportOptions::default() }.apply(&mut usual);
        self.clone().without(&ExportOptions { write_log: None, ..ExportOptions::of(&usual) })
    }

    /// Adds all options of a list, with commas between them.
    pub fn add_all(&mut self, list: &str) -> Result<(), OptionError> {
        words(list).into_iter().try_for_each(|text| self.add(text))
    }

    /// `text` without the options at its end, each after a comma, and these: `disk.img,tenant=vm1` is `disk.img` with an
    /// option.
    pub fn split_off(text: &str) -> Result<(&str, ExportOptions), OptionError> {
        let words = words(text);
        let count = words[1..].iter().rev().take_while(|word| is_option(word)).count();
        let list = &words[words.len() - count..];
        let length: usize = list.iter().map(|word| word.len() + 1).sum();
        let mut options = ExportOptions::default();
        list.iter().try_for_each(|text| options.add(text))?;
        Ok((&text[..text.len() - length], options))
    }
}

impl fmt::Display for ExportOptions {
    /// As a user writes them, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(","))
    }
}

/// Bytes as a user writes them: exact, with the largest unit that is; `none` for 0.
pub fn amount(bytes: u64) -> String {
    let (number, unit) = nigh_text::exact(bytes);
    if bytes == 0 { "none".to_owned() } else { format!("{number}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[&str]) -> Result<ExportOptions, OptionError> {
        let mut options = ExportOptions::default();
        list.iter().try_for_each(|text| options.add(text))?;
        Ok(options)
    }

    #[test]
    fn options_are_read_and_applied() {
        let mut settings = ExportSettings::new("disk", "memory:1M".parse().unwrap());
        let all = ["read-only", "write-mode=through", "client=a", "client=b.example", "iops=500", "bandwidth=3M"];
        options(&all).unwrap().apply(&mut settings);
        assert!(settings.disk.read_only && settings.disk.write_mode == WriteMode::Through);
        assert_eq!((settings.clients.len(), settings.disk.iops, settings.disk.bandwidth), (2, 500, 3 << 20));
        options(&["read-only=no", "client=any", "iops=none", "requests=7", "floor=1M"]).unwrap().apply(&mut settings);
        assert_eq!((settings.disk.floor, settings.disk.ceiling), (1 << 20, 0));
        assert_eq!(
            (settings.disk.read_only, settings.clients.len(), settings.disk.iops, settings.requests),
            (false, 0, 0, 7)
        );
        assert_eq!(settings.disk.bandwidth, 3 << 20, "what is not said stays");
    }

    #[test]
    fn options_are_split_off_the_end_of_a_target() {
        let split = |text| ExportOptions::split_off(text);
        let (target, options) = split("delay:1ms,jitter=1ms:/a,b.img,tenant=vm1,read-only").unwrap();
        assert_eq!(
            (target, options.tenant.as_deref(), options.read_only),
            ("delay:1ms,jitter=1ms:/a,b.img", Some("vm1"), Some(true))
        );
        assert_eq!(split("/a,fast").unwrap(), ("/a,fast", ExportOptions::default()));
        let (target, options) = split("a,b,iops=5,next=delay:1ms,jitter=1ms:c,next=d,e,read-only").unwrap();
        let next = options.next.unwrap();
        let next: Vec<String> = next.iter().map(ToString::to_string).collect();
        assert_eq!((target, options.iops, options.read_only), ("a,b", Some(5), Some(true)));
        assert_eq!(next, ["delay:1ms,jitter=1ms:c", "d,e"]);
        assert_eq!(split("next=a,next=b").unwrap().0, "next=a");
        assert!(split("a,next=").unwrap_err().to_string().contains("a target is missing"));
        assert!(split("/a,floor=1X").unwrap_err().to_string().contains("bytes such as"));
    }

    #[test]
    fn a_write_log_makes_writes_go_through() {
        let apply = |list: &str| {
            let mut settings = ExportSettings::new("disk", "memory:1M".parse().unwrap());
            let (_, options) = ExportOptions::split_off(list).unwrap();
            options.apply(&mut settings);
            settings
        };
        let settings = apply("d.img,write-log=delay:1ms,jitter=1ms:/ssd/d.log:8G,iops=5");
        assert_eq!((settings.disk.write_mode, settings.disk.iops), (WriteMode::Through, 5));
        let unusual = |settings| ExportOptions::of(&settings).unusual("disk").to_string();
        assert_eq!(unusual(settings), "write-log=delay:1ms,jitter=1ms:/ssd/d.log:8G,iops=5");
        let settings = apply("d.img,write-mode=back,write-log=/ssd/d.log:8G");
        assert_eq!(settings.disk.write_mode, WriteMode::Back);
        assert_eq!(unusual(settings), "write-log=/ssd/d.log:8G,write-mode=back");
        assert!(
            ExportOptions::split_off("d.img,write-log=/ssd/d.log").unwrap_err().to_string().contains("TARGET:SIZE")
        );
    }

    #[test]
    fn options_are_written_as_they_are_read() {
        let all = [
            "next=./a:b,write-log=d.log:8G,read-only=yes",
            "next=./a:b,next=c,read-only=yes,write-mode=through,client=a,client=b,connections=1,requests=none,iops=5,\
             bandwidth=3M,tenant=t,floor=1025,ceiling=none,share=g",
            "client=any",
            "",
        ];
        for text in all {
            let mut options = ExportOptions::default();
            if !text.is_empty() {
                options.add_all(text).unwrap();
            }
            assert_eq!(options.to_string(), text);
        }
    }

    #[test]
    fn json_says_the_same() {
        let all = options(&["next=./a:b", "read-only", "write-mode=through", "client=a", "bandwidth=1K"]).unwrap();
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(
            text,
            r#"{"next":["./a:b"],"read_only":true,"write_mode":"through","clients":["a"],"bandwidth":1024}"#
        );
        assert_eq!(serde_json::from_str::<ExportOptions>(&text).unwrap(), all);
        assert!(serde_json::from_str::<ExportOptions>(r#"{"write_mode":"x"}"#).is_err());
        assert!(serde_json::from_str::<ExportOptions>(r#"{"next":["memroy:1G"]}"#).is_err());
        assert!(serde_json::from_str::<ExportOptions>(r#"{"iosp":1}"#).is_err());
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, part) in [
            ("fast", "no option"),
            ("read-only=maybe", "yes or no"),
            ("write-mode", "back or through"),
            ("client=", "certificate"),
            ("iops=0", "number or none"),
            ("iops=-1", "number or none"),
            ("bandwidth=20000000T", "bytes per second"),
            ("bandwidth=3X", "bytes per second"),
            ("floor=0", "bytes such as"),
            ("tenant=", "a name"),
            ("ceiling", "bytes such as"),
            ("share=", "a group of disks"),
        ] {
            let error = options(&[text]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
