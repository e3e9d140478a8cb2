//! Options of an export, as a user or a control client writes them.

use std::fmt;

use nigh_backend::{Target, TargetError};
use nigh_host::{WriteLogSettings, WriteMode};
use nigh_policy::{Spec, SpecError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::ExportSettings;

/// Changes of an export's settings, by their names there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of `ExportSettings` and `DiskSettings`")]
pub struct ExportOptions {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "targets", deserialize_with = "read_targets")]
    pub next: Option<Vec<Target>>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_log", deserialize_with = "read_log")]
    pub write_log: Option<WriteLogSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_mode", deserialize_with = "read_mode")]
    pub write_mode: Option<WriteMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "policy", deserialize_with = "read_policy")]
    pub policy: Option<Option<Spec>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

/// An error in an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is none of this name.
    #[error(
        "'{name}' is no option of an export: next, write-log, read-only, write-mode, client, connections, requests, iops, bandwidth, tenant, \
         floor, ceiling, policy, share{near}",
        name = .0,
        near = nigh_text::did_you_mean(nigh_text::nearest(.0, NAMES))
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

/// The names of options.
const NAMES: [&str; 14] = [
    "next",
    "write-log",
    "read-only",
    "write-mode",
    "client",
    "connections",
    "requests",
    "iops",
    "bandwidth",
    "tenant",
    "floor",
    "ceiling",
    "policy",
    "share",
];

const MODES: [(&str, WriteMode); 2] = [("back", WriteMode::Back), ("through", WriteMode::Through)];

fn write_mode<S: Serializer>(mode: &Option<WriteMode>, to: S) -> Result<S::Ok, S::Error> {
    MODES.iter().find(|(_, known)| Some(*known) == *mode).map(|(name, _)| name).serialize(to)
}

fn read_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<WriteMode>, D::Error> {
    let text = String::deserialize(from)?;
    let found = MODES.iter().find(|(name, _)| *name == text);
    found.map(|(_, mode)| Some(*mode)).ok_or_else(|| serde::de::Error::custom("write_mode is \"back\" or \"through\""))
}

/// In place of a policy: that of the cache.
const OF_THE_CACHE: &str = "none";

fn policy_text(policy: &Option<Spec>) -> String {
    policy.as_ref().map_or_else(|| OF_THE_CACHE.to_owned(), Spec::to_string)
}

fn parsed_policy(text: &str) -> Result<Option<Spec>, OptionError> {
    match text {
        OF_THE_CACHE => Ok(None),
        text => Ok(Some(text.parse().map_err(|error: SpecError| OptionError::Policy(error.to_string()))?)),
    }
}

fn policy<S: Serializer>(policy: &Option<Option<Spec>>, to: S) -> Result<S::Ok, S::Error> {
    policy.as_ref().map(policy_text).serialize(to)
}

fn read_policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Spec>>, D::Error> {
    parsed_policy(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn targets<S: Serializer>(targets: &Option<Vec<Target>>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(targets.iter().flatten().map(Target::to_string))
}

fn read_targets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Target>>, D::Error> {
    let list = Vec::<String>::deserialize(from)?;
    let targets = list.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    targets.map(Some).map_err(serde::de::Error::custom)
}

fn write_log<S: Serializer>(log: &Option<WriteLogSettings>, to: S) -> Result<S::Ok, S::Error> {
    log.as_ref().map(WriteLogSettings::to_string).serialize(to)
}

fn read_log<'de, D: Deserializer<'de>>(from: D) -> Result<Option<WriteLogSettings>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Whether `text` begins with the name of an option, as a whole word.
fn is_option(text: &str) -> bool {
    text.split(['=', ',']).next().is_some_and(|name| NAMES.contains(&name))
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
    /// All of `settings`.
    pub fn of(settings: &ExportSettings) -> ExportOptions {
        let disk = &settings.disk;
        ExportOptions {
            next: Some(disk.next.clone()),
            write_log: disk.write_log.clone(),
            read_only: Some(disk.read_only),
            write_mode: Some(disk.write_mode),
            clients: Some(settings.clients.clone()),
            connections: Some(settings.connections),
            requests: Some(settings.requests),
            iops: Some(disk.iops),
            bandwidth: Some(disk.bandwidth),
            tenant: Some(disk.tenant().to_owned()),
            floor: Some(disk.floor),
            ceiling: Some(disk.ceiling),
            policy: Some(disk.policy.clone()),
            share: disk.share.clone(),
        }
    }

    /// Those that differ from the usual for an export called `name`.
    pub fn unusual(&self, name: &str) -> ExportOptions {
        let limit = |limit: Option<u64>| limit.filter(|limit| *limit > 0);
        let usual_mode = if self.write_log.is_some() { WriteMode::Through } else { WriteMode::Back };
        ExportOptions {
            next: self.next.clone().filter(|next| !next.is_empty()),
            write_log: self.write_log.clone(),
            read_only: self.read_only.filter(|read_only| *read_only),
            write_mode: self.write_mode.filter(|mode| *mode != usual_mode),
            clients: self.clients.clone().filter(|clients| !clients.is_empty()),
            connections: limit(self.connections),
            requests: limit(self.requests),
            iops: limit(self.iops),
            bandwidth: limit(self.bandwidth),
            tenant: self.tenant.clone().filter(|tenant| tenant != name),
            floor: limit(self.floor),
            ceiling: limit(self.ceiling),
            policy: self.policy.clone().filter(Option::is_some),
            share: self.share.clone(),
        }
    }

    /// Adds an option as a user writes it: `next=TARGET` (once for each, in their order), `write-log=TARGET:SIZE`, `read-only`, `read-only=no`,
    /// `write-mode=through`, `client=NAME` (once for each), `connections=N`, `requests=N`, `iops=N`, `bandwidth=100M`,
    /// `tenant=NAME`, `floor=100M`, `ceiling=100M`, `policy=lirs`, `share=GROUP`; `none` instead of a number for no limit,
    /// and instead of a policy for that of the cache.
    pub fn add(&mut self, text: &str) -> Result<(), OptionError> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let takes = |option, takes| {
            let value = value.unwrap_or_default().to_owned();
            OptionError::Value { option, takes, value }
        };
        let number = |option| match value {
            Some("none") => Ok(Some(0)),
            _ => match value.and_then(nigh_text::count) {
                Some(number @ 1..) => Ok(Some(number)),
                _ => Err(takes(option, "a number or none")),
            },
        };
        let amount = |option, takes_amount| match value {
            Some("none") => Ok(Some(0)),
            _ => match value.and_then(nigh_text::bytes) {
                Some(bytes @ 1..) => Ok(Some(bytes)),
                _ => Err(takes(option, takes_amount)),
            },
        };
        match name {
            "next" => self.next.get_or_insert_default().push(value.unwrap_or_default().parse()?),
            "write-log" => self.write_log = Some(value.unwrap_or_default().parse()?),
            "read-only" => match value {
                None | Some("yes") => self.read_only = Some(true),
                Some("no") => self.read_only = Some(false),
                _ => return Err(takes("read-only", "yes or no")),
            },
            "write-mode" => {
                let mode = MODES.iter().find(|(name, _)| Some(*name) == value);
                self.write_mode = Some(mode.ok_or_else(|| takes("write-mode", "back or through"))?.1);
            }
            "client" => match value {
                Some("any") => self.clients = Some(Vec::new()),
                Some(client) if !client.is_empty() => self.clients.get_or_insert_default().push(client.to_owned()),
                _ => return Err(takes("client", "a name of a certificate, or any")),
            },
            "connections" => self.connections = number("connections")?,
            "requests" => self.requests = number("requests")?,
            "iops" => self.iops = number("iops")?,
            "bandwidth" => self.bandwidth = amount("bandwidth", "bytes per second such as 100M, or none")?,
            "tenant" => match value {
                Some(tenant) if !tenant.is_empty() => self.tenant = Some(tenant.to_owned()),
                _ => return Err(takes("tenant", "a name")),
            },
            "floor" => self.floor = amount("floor", "bytes such as 100M, or none")?,
            "ceiling" => self.ceiling = amount("ceiling", "bytes such as 100M, or none")?,
            "policy" => self.policy = Some(parsed_policy(value.unwrap_or_default())?),
            "share" => match value {
                Some(group) if !group.is_empty() => self.share = Some(group.to_owned()),
                _ => return Err(takes("share", "the name of a group of disks")),
            },
            _ => return Err(OptionError::Unknown(name.to_owned())),
        }
        Ok(())
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

    /// Changes `settings`. With a write log, writes go through the memory to the log, unless another mode is given.
    pub fn apply(&self, settings: &mut ExportSettings) {
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
        } = self;
        if let Some(clients) = clients {
            settings.clients.clone_from(clients);
        }
        settings.connections = connections.unwrap_or(settings.connections);
        settings.requests = requests.unwrap_or(settings.requests);
        let disk = &mut settings.disk;
        if let Some(next) = next {
            disk.next.clone_from(next);
        }
        if write_log.is_some() {
            disk.write_log.clone_from(write_log);
            disk.write_mode = WriteMode::Through;
        }
        disk.read_only = read_only.unwrap_or(disk.read_only);
        disk.write_mode = write_mode.unwrap_or(disk.write_mode);
        disk.iops = iops.unwrap_or(disk.iops);
        disk.bandwidth = bandwidth.unwrap_or(disk.bandwidth);
        if tenant.is_some() {
            disk.tenant.clone_from(tenant);
        }
        disk.floor = floor.unwrap_or(disk.floor);
        disk.ceiling = ceiling.unwrap_or(disk.ceiling);
        if let Some(policy) = policy {
            disk.policy.clone_from(policy);
        }
        if share.is_some() {
            disk.share.clone_from(share);
        }
    }
}

impl fmt::Display for ExportOptions {
    /// As a user writes them, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        } = self;
        let mut words: Vec<String> = next.iter().flatten().map(|target| format!("next={target}")).collect();
        words.extend(write_log.iter().map(|log| format!("write-log={log}")));
        let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
        words.extend(read_only.map(|yes| format!("read-only={}", yes_or_no(yes))));
        let mode = MODES.iter().find(|(_, known)| Some(*known) == *write_mode);
        words.extend(mode.map(|(name, _)| format!("write-mode={name}")));
        match clients.as_deref() {
            Some([]) => words.push("client=any".to_owned()),
            names => words.extend(names.into_iter().flatten().map(|name| format!("client={name}"))),
        }
        for (name, number) in [("connections", connections), ("requests", requests), ("iops", iops)] {
            words.extend(number.map(|number| match number {
                0 => format!("{name}=none"),
                _ => format!("{name}={number}"),
            }));
        }
        words.extend(bandwidth.map(|bytes| format!("bandwidth={}", amount(bytes))));
        words.extend(tenant.as_ref().map(|tenant| format!("tenant={tenant}")));
        words.extend(floor.map(|bytes| format!("floor={}", amount(bytes))));
        words.extend(ceiling.map(|bytes| format!("ceiling={}", amount(bytes))));
        words.extend(policy.as_ref().map(|policy| format!("policy={}", policy_text(policy))));
        words.extend(share.as_ref().map(|group| format!("share={group}")));
        f.write_str(&words.join(","))
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
