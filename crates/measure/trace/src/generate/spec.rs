//! The text that describes a generator.
//!
//! ```text
//! phases     = mix { "," mix }
//! mix        = component { "+" component } [ "@" count ]
//! component  = name { ":" key "=" value }
//! ```
//!
//! Components of a mix are interleaved at random, by their weights. Phases follow one another and start over after the
//! last; each lasts `count` requests, or an equal share of all requests if no phase has a count. A count can end in k,
//! M, G (powers of 1000) or Ki, Mi, Gi (powers of 1024).

use nigh_text::{did_you_mean, nearest};

use super::{COMPONENT_PARAMS, GeneratorInfo, REGISTRY};

/// Why the description of a generator is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No generator has that name.
    #[error("unknown generator {name:?}: expected one of {}{}", names(), near_name(name))]
    UnknownGenerator {
        /// The name given.
        name: String,
    },
    /// The generator has no such parameter.
    #[error("{generator} has no parameter {key:?}: expected one of {}{}", keys(generator), near_key(generator, key))]
    UnknownParam {
        /// The generator.
        generator: &'static str,
        /// The key given.
        key: String,
    },
    /// Not of the form `name:key=value+name:key=value@count,…`.
    #[error("{text:?}: expected name:key=value:key=value, each key at most once")]
    Syntax {
        /// The invalid part.
        text: String,
    },
    /// A parameter has an invalid value.
    #[error("{generator}: {key}={value}: expected {expected}")]
    BadValue {
        /// The generator.
        generator: &'static str,
        /// The parameter.
        key: &'static str,
        /// The value given.
        value: String,
        /// The values allowed.
        expected: String,
    },
    /// The text after a phase's `@` is not a count.
    #[error("@{text}: expected the number of requests of the phase, at least 1")]
    BadCount {
        /// The text given.
        text: String,
    },
    /// Some phases have a count of requests and some have none.
    #[error("expected a count of requests (@count) for every phase or for none")]
    MixedCounts,
    /// A component's blocks pass the last byte that a request can address.
    #[error("{generator}: its blocks pass the limit of 2^64 bytes")]
    TooLarge {
        /// The generator.
        generator: &'static str,
    },
    /// The times between requests are so long that the sum exceeds the range of times.
    #[error("the requests take more than 2^64 ns: choose a shorter time between them")]
    ClockOverflow,
    /// An option common to all components has an invalid value.
    #[error("{option}: expected {expected}")]
    BadCommon {
        /// The option's name.
        option: &'static str,
        /// The values allowed.
        expected: &'static str,
    },
}

fn names() -> String {
    REGISTRY.iter().map(|info| info.name).collect::<Vec<_>>().join(", ")
}

fn near_name(name: &str) -> String {
    did_you_mean(nearest(name, REGISTRY.iter().map(|info| info.name)))
}

fn keys_of(generator: &str) -> impl Iterator<Item = &'static str> {
    let own = REGISTRY.iter().find(|info| info.name == generator).map_or(&[][..], |info| info.params);
    own.iter().chain(COMPONENT_PARAMS).map(|param| param.key)
}

fn keys(generator: &str) -> String {
    keys_of(generator).collect::<Vec<_>>().join(", ")
}

fn near_key(generator: &str, key: &str) -> String {
    did_you_mean(nearest(key, keys_of(generator)))
}

/// Components that are interleaved, and the length of their phase.
pub(super) struct Mix {
    pub(super) parts: Vec<Part>,
    /// The number of requests of the phase, if it is given.
    pub(super) requests: Option<u64>,
}

/// The description of one component.
pub(super) struct Part {
    pub(super) info: &'static GeneratorInfo,
    given: Vec<(&'static str, String)>,
}

/// Parses a whole description: the phases, each a mix of components.
pub(super) fn parse(text: &str) -> Result<Vec<Mix>, SpecError> {
    let phases = text.split(',').map(parse_mix).collect::<Result<Vec<_>, _>>()?;
    let counted = phases.iter().filter(|phase| phase.requests.is_some()).count();
    if counted != 0 && counted != phases.len() {
        return Err(SpecError::MixedCounts);
    }
    Ok(phases)
}

fn parse_mix(text: &str) -> Result<Mix, SpecError> {
    let (parts, requests) = match text.split_once('@') {
        None => (text, None),
        Some((parts, count)) => match nigh_text::count(count.trim()) {
            Some(count) if count > 0 => (parts, Some(count)),
            _ => return Err(SpecError::BadCount { text: count.trim().to_owned() }),
        },
    };
    Ok(Mix { parts: parts.split('+').map(parse_part).collect::<Result<_, _>>()?, requests })
}

fn parse_part(text: &str) -> Result<Part, SpecError> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default().trim().to_ascii_lowercase();
    let info = REGISTRY
        .iter()
        .find(|info| info.name == name)
        .ok_or_else(|| SpecError::UnknownGenerator { name: name.clone() })?;
    let mut given: Vec<(&'static str, String)> = Vec::new();
    for word in words {
        let syntax = || SpecError::Syntax { text: text.trim().to_owned() };
        let (key, value) = word.split_once('=').ok_or_else(syntax)?;
        let (key, value) = (key.trim(), value.trim());
        let param = info
            .params
            .iter()
            .chain(COMPONENT_PARAMS)
            .find(|param| param.key == key)
            .ok_or_else(|| SpecError::UnknownParam { generator: info.name, key: key.to_owned() })?;
        if value.is_empty() || given.iter().any(|(other, _)| *other == key) {
            return Err(syntax());
        }
        given.push((param.key, value.to_owned()));
    }
    Ok(Part { info, given })
}

impl Part {
    /// The value given for `key`, or the default of the generator's own parameter.
    fn text(&self, key: &'static str) -> &str {
        if let Some(value) = self.given(key) {
            return value;
        }
        let param = self.info.params.iter().find(|param| param.key == key);
        param.unwrap_or_else(|| panic!("{} has no parameter {key} with a default", self.info.name)).default
    }

    fn given(&self, key: &'static str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == key).map(|(_, value)| value.as_str())
    }

    fn bad(&self, key: &'static str, value: &str, expected: impl Into<String>) -> SpecError {
        let (value, expected) = (value.to_owned(), expected.into());
        SpecError::BadValue { generator: self.info.name, key, value, expected }
    }

    fn parse_within(&self, key: &'static str, text: &str, least: u64, most: u64) -> Result<u64, SpecError> {
        nigh_text::count(text)
            .filter(|count| (least..=most).contains(count))
            .ok_or_else(|| self.bad(key, text, format!("a count from {least} to {most}, such as 500 or 20k")))
    }

    /// A count in `least..=most`.
    pub(super) fn count(&self, key: &'static str, least: u64, most: u64) -> Result<u64, SpecError> {
        self.parse_within(key, self.text(key), least, most)
    }

    /// A count in `least..=most`, if one is given.
    pub(super) fn optional_count(&self, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, SpecError> {
        self.given(key).map(|text| self.parse_within(key, text, least, most)).transpose()
    }

    fn parse_number(&self, key: &'static str, text: &str, least: f64, most: f64) -> Result<f64, SpecError> {
        text.parse::<f64>()
            .ok()
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.bad(key, text, format!("a number from {least} to {most}")))
    }

    /// A number in `least..=most`.
    pub(super) fn number(&self, key: &'static str, least: f64, most: f64) -> Result<f64, SpecError> {
        self.parse_number(key, self.text(key), least, most)
    }

    /// A share from 0 to 1, if one is given.
    pub(super) fn optional_share(&self, key: &'static str) -> Result<Option<f64>, SpecError> {
        self.given(key).map(|text| self.parse_number(key, text, 0.0, 1.0)).transpose()
    }

    /// The one of `words` that is the value.
    pub(super) fn word(&self, key: &'static str, words: &[&'static str]) -> Result<&'static str, SpecError> {
        let text = self.text(key);
        let known = words.iter().find(|word| **word == text).copied();
        known.ok_or_else(|| self.bad(key, text, words.join(" or ")))
    }

    /// Whether the value is the word `yes`; only `yes` and `no` are allowed.
    pub(super) fn yes(&self, key: &'static str) -> Result<bool, SpecError> {
        Ok(self.word(key, &["yes", "no"])? == "yes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_phases_of_mixes_of_components() {
        let phases = parse("zipf:blocks=10:alpha=0.8 + scan:weight=3@50k, loop@1k").unwrap();
        let shape: Vec<_> = phases.iter().map(|mix| (mix.parts.len(), mix.requests)).collect();
        assert_eq!(shape, [(2, Some(50_000)), (1, Some(1000))]);
        assert_eq!(phases[0].parts[0].number("alpha", 0.0, 10.0), Ok(0.8));
        assert_eq!(phases[0].parts[1].optional_count("weight", 1, 10), Ok(Some(3)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text: &str| parse(text).map(|_| ()).unwrap_err().to_string();
        assert!(message("zapf").starts_with("unknown generator \"zapf\": expected one of "));
        assert_eq!(
            message("loop:alpha=1"),
            "loop has no parameter \"alpha\": expected one of blocks, weight, tenant, region, writes"
        );
        assert_eq!(message("loop:blocks"), "\"loop:blocks\": expected name:key=value:key=value, each key at most once");
        assert_eq!(
            message("loop:blocks=1:blocks=2"),
            "\"loop:blocks=1:blocks=2\": expected name:key=value:key=value, each key at most once"
        );
        assert_eq!(message("loop@0"), "@0: expected the number of requests of the phase, at least 1");
        assert_eq!(message("loop@5,scan"), "expected a count of requests (@count) for every phase or for none");
        assert!(message("loop,").starts_with("unknown generator \"\""));
    }
}
