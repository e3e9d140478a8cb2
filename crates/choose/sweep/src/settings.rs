//! How traces are read and replayed: what all jobs of a sweep have in common.

use nigh_policy::Spec;
use nigh_sim::{Ops, Sample, Sizes, Warmup};
use nigh_trace::{BLOCK_BYTES_MAX, ReadOptions};
use serde::Serialize;

use crate::Error;
use crate::keys::Keys;

/// The keys of settings that say how traces are replayed.
const REPLAY: [&str; 6] = ["policies", "sizes", "ops", "collapse", "sample", "warmup"];
/// The keys of settings that say how a trace is read.
pub(crate) const READING: [&str; 8] =
    ["format", "columns", "block_size", "stream", "action", "recorded_sizes", "skip_bad", "limit"];

/// The keys of settings.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    REPLAY.into_iter().chain(READING)
}

/// Settings as text, without those that are the default. Numbers, flags and policies that mean the same are written the same;
/// sizes, shares, `columns` and names are as they were given.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Texts {
    policies: Vec<String>,
    sizes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recorded_sizes: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skip_bad: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ops: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    collapse: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<String>,
}

/// How traces are read and replayed: policies, sizes, and the settings that flags of `nigh sim` have.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) texts: Texts,
    pub(crate) specs: Vec<Spec>,
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) read: ReadOptions,
    pub(crate) ops: Ops,
    pub(crate) collapse: bool,
    pub(crate) sample: Option<Sample>,
    pub(crate) warmup: Warmup,
}

impl Settings {
    /// The settings in JSON.
    pub fn parse(text: &str) -> Result<Settings, Error> {
        let mut keys = Keys::json(text)?;
        keys.check(&self::keys().collect::<Vec<_>>())?;
        Settings::take(&mut keys)
    }

    /// The settings in JSON, in one form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.texts).expect("text and numbers are JSON")
    }

    pub(crate) fn take(keys: &mut Keys) -> Result<Settings, Error> {
        let specs = policies(keys)?;
        let sizes: Vec<String> = keys.texts("sizes")?.iter().flat_map(|text| text.split(',')).map(trimmed).collect();
        let parse = |text: &String| text.parse::<Sizes>().map_err(|error| keys.wrong("sizes", text, error));
        let parsed_sizes = sizes.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let sample = keys.quantity(
            "sample",
            |text| nigh_text::share(text).and_then(Sample::new),
            "expected a rate above 0 and up to 1",
        )?;
        if sample.is_some()
            && let Some(spec) = specs.iter().find(|spec| spec.info().spatial)
        {
            let problem = "looks at which blocks are neighbours on disk, and a sample has hardly any";
            return Err(keys.wrong("policies", spec, problem));
        }
        let block_size = keys.quantity(
            "block_size",
            |text| {
                let bytes = u32::try_from(nigh_text::bytes(text)?).ok();
                bytes.filter(|bytes| bytes.is_power_of_two() && *bytes <= BLOCK_BYTES_MAX)
            },
            "expected a power of two up to 1G, such as 4096 or 64K",
        )?;
        let limit = keys.quantity(
            "limit",
            |text| nigh_text::count(text).filter(|&limit| limit > 0),
            "expected a number of requests above 0, such as 100k",
        )?;
        let ops: Ops =
            keys.quantity("ops", |text| text.parse().ok(), "expected all, reads or writes")?.unwrap_or_default();
        let given =
            keys.quantity("warmup", |text| Some(trimmed(text)), "expected a number of references, or a share")?;
        let given = given.unwrap_or_else(|| "0".to_owned());
        let warmup: Warmup = given.parse().map_err(|error| keys.wrong("warmup", &given, error))?;
        let texts = Texts {
            policies: specs.iter().map(ToString::to_string).collect(),
            sizes,
            format: keys.text("format")?,
            columns: keys.text("columns")?,
            block_size,
            stream: keys.text("stream")?,
            action: keys.text("action")?,
            recorded_sizes: keys.flag("recorded_sizes")?,
            skip_bad: keys.flag("skip_bad")?,
            limit,
            ops: (ops != Ops::default()).then(|| ops.name().to_owned()),
            collapse: keys.flag("collapse")?,
            sample: sample.map(Sample::rate),
            warmup: match warmup {
                Warmup::References(0) => None,
                Warmup::References(references) => Some(references.to_string()),
                Warmup::Share(_) => Some(given),
            },
        };
        let read = ReadOptions {
            format: texts.format.as_deref().map(str::parse).transpose()?,
            columns: texts.columns.as_deref().map(str::parse).transpose()?,
            block_bytes: block_size,
            stream: texts.stream.as_deref().map(str::parse).transpose()?,
            action: texts.action.as_deref().map(str::parse).transpose()?,
            recorded_sizes: texts.recorded_sizes,
            skip_bad: texts.skip_bad,
            limit,
        };
        let collapse = texts.collapse;
        Ok(Settings { texts, specs, sizes: parsed_sizes, read, ops, collapse, sample, warmup })
    }
}

/// The policies, each once.
fn policies(keys: &mut Keys) -> Result<Vec<Spec>, Error> {
    let texts = keys.texts("policies")?;
    let names = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    nigh_policy::parse_list(names).map_err(|(name, error)| keys.wrong("policies", name, error))
}

fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        Settings::parse(text).unwrap().to_json()
    }

    fn wrong(text: &str) -> String {
        Settings::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_the_same_is_written_the_same() {
        let plain = r#"{"policies":["lru","opt"],"sizes":["1%","64K"]}"#;
        assert_eq!(written(plain), plain);
        let long = r#"{"policies":["lru","min","lru"],"sizes":[" 1%","64K"],"format":null,"limit":null,
                       "ops":"all","collapse":false,"sample":null,"warmup":0,"recorded_sizes":false,"skip_bad":false}"#;
        assert_eq!(written(long), plain);
        let text = r#"{"policies":"lru","sizes":"5%","block_size":"64K","limit":"10k","sample":"1%","warmup":"1k","ops":"reads"}"#;
        let numbers = r#"{"policies":["lru"],"sizes":["5%"],"block_size":65536,"limit":10000,"ops":"reads","sample":0.01,"warmup":"1000"}"#;
        assert_eq!(written(text), numbers);
        assert_eq!(written(numbers), numbers);
    }

    #[test]
    fn slips() {
        let with = |more: &str| wrong(&format!(r#"{{"policies":["lru"],"sizes":["5%"],{more}}}"#));
        assert!(with(r#""blok_size":1"#).ends_with(". Did you mean 'block_size'?"));
        assert_eq!(with(r#""block_size":3"#), "block_size = 3: expected a power of two up to 1G, such as 4096 or 64K");
        assert_eq!(with(r#""collapse":1"#), "collapse = 1: expected true or false");
        assert_eq!(with(r#""ops":"read""#), "ops = read: expected all, reads or writes");
        assert!(with(r#""warmup":"100%""#).starts_with("warmup = 100%: "));
        assert!(with(r#""format":"cvs""#).contains("Did you mean 'csv'?"), "{}", with(r#""format":"cvs""#));
        assert_eq!(wrong(r#"{"sizes":["5%"]}"#), "`policies` is missing");
        assert_eq!(wrong(r#"{"policies":["lru"],"sizes":[]}"#), "sizes = []: expected a list of texts");
        assert_eq!(wrong(r#"{"policies":["lru"],"sizes":[5]}"#), "sizes = 5: expected a list of texts");
        assert!(wrong(r#"{"policies":["lur"],"sizes":["5%"]}"#).ends_with("Did you mean 'lru'?"));
        assert!(wrong(r#"{"policies":["dulo"],"sizes":["5%"],"sample":0.1}"#).contains("neighbours on disk"));
        assert_eq!(wrong("[]"), "expected an object of JSON");
    }
}
