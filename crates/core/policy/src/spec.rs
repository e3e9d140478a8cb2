//! The description, specification and configuration of policies: `name:key=value:key=value`.

use std::fmt;
use std::sync::Arc;

use nigh_pattern::Table;
use nigh_text::{did_you_mean, nearest};

use crate::Policy;
use crate::values::{self, Values};
use crate::visit::Visit;

/// The description of a policy in `nigh policies`.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its name: lower case, words joined by hyphens.
    pub name: &'static str,
    /// Its rule, in one line.
    pub summary: &'static str,
    /// The work that specifies it: authors, title, venue and year.
    pub paper: &'static str,
    /// Its parameters, with the paper's defaults unless they say otherwise.
    pub params: &'static [Param],
    /// Whether it needs the future, and so runs in replay only.
    pub offline: bool,
    /// Whether it depends on which blocks are neighbours; a sample of blocks contains hardly any.
    pub spatial: bool,
    /// Whether it distinguishes streams: the code that issues requests.
    pub streams: bool,
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name before the `=`.
    pub key: &'static str,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The valid values.
    pub values: Values,
    /// Meaning and unit, in one line.
    pub doc: &'static str,
    /// The value of the work that specifies the policy, if the default is another one.
    pub published: Option<&'static str>,
}

/// Resources that the host provides when it creates a policy.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many blocks can be resident; at least 1.
    pub capacity: u32,
    /// Slots are numbered `0..slots`.
    pub slots: u32,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// How many ghosts the host can hold. A policy that would remember more forgets the oldest.
    pub ghosts: u32,
    /// For each tick, the tick at which the same block is referenced next, `u32::MAX` for never.
    /// Only a replay knows it.
    pub future: Option<Arc<[u32]>>,
    /// Patterns of an earlier run for the code that issues references (`Access::stream`), for policies that use
    /// it. Without them, they are learned.
    pub patterns: Option<Arc<Table>>,
}

/// A policy that can be created from its parameters. Each registered policy implements it.
pub trait Configured: Policy + Sized {
    /// Its description.
    const INFO: Info;

    /// The most ghosts that it remembers with these parameters and a cache of `capacity` blocks; `u32::MAX` if their
    /// number is not limited.
    fn ghosts(_params: &Params, _capacity: u32) -> Result<u32, SpecError> {
        Ok(0)
    }

    /// Creates the policy. `params` contains only keys of `INFO.params`.
    fn new(setup: &Setup, params: &Params) -> Result<Self, SpecError>;

    /// Creates the variant that `params` select and passes it to `visitor`.
    fn visit<V: Visit>(setup: &Setup, params: &Params, visitor: V) -> Result<V::Out, SpecError>
    where
        Self: Send + 'static,
    {
        Ok(visitor.visit(Self::new(setup, params)?))
    }
}

/// The specification of a policy: a name and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    text: String,
    name: String,
    given: Vec<(String, String)>,
}

impl Spec {
    /// A spec of this form, whether or not the policy exists.
    pub(crate) fn parse(text: &str) -> Result<Spec, SpecError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let mut given: Vec<(String, String)> = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(SpecError::Syntax { text: text.to_owned() });
            };
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            if key.is_empty() || value.is_empty() || given.iter().any(|(other, _)| *other == key) {
                return Err(SpecError::Syntax { text: text.to_owned() });
            }
            given.push((key, value));
        }
        Ok(Spec { text: text.trim().to_owned(), name, given })
    }

    /// The same policy under its own name, if the spec uses another one.
    pub(crate) fn renamed(mut self, name: &'static str) -> Spec {
        let rest = self.text.find(':').map_or("", |at| &self.text[at..]);
        self.text = format!("{name}{rest}");
        self.name = name.to_owned();
        self
    }

    /// Whether it sets the parameter `key`.
    pub(crate) fn gives(&self, key: &str) -> bool {
        self.given.iter().any(|(given, _)| given == key)
    }

    /// The name of the policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error if a parameter is a number of blocks, bytes or references: in a simulation of a part of the blocks, or of another size, it would mean something else.
    pub(crate) fn check_scales(&self, info: &'static Info) -> Result<(), SpecError> {
        let params = self.params(info)?;
        for (key, value) in &self.given {
            let values = match params.param(key).values {
                Values::Or(_, values) => *values,
                values => values,
            };
            let is_scaled = match values {
                Values::Portion { .. } | Values::Size | Values::Bytes => value.ends_with('%'),
                // References.
                Values::Whole { .. } if key == "correlated" => value == "0",
                _ => true,
            };
            if !is_scaled {
                return Err(params.bad(key, "a share, because a part of the blocks is simulated at other sizes"));
            }
        }
        Ok(())
    }

    /// The parameters for the policy described by `info`, after a check of every key and value.
    pub(crate) fn params(&self, info: &'static Info) -> Result<Params, SpecError> {
        let params = Params { info, given: self.given.clone() };
        for (key, value) in &self.given {
            let Some(param) = info.params.iter().find(|known| known.key == key) else {
                return Err(SpecError::UnknownParam { info, key: key.clone() });
            };
            if !param.values.accept(value) {
                return Err(params.bad(key, param.values.to_string()));
            }
        }
        Ok(params)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The parameters of one policy; those that are not given have their defaults.
#[derive(Clone)]
pub struct Params {
    info: &'static Info,
    given: Vec<(String, String)>,
}

impl Params {
    /// The default parameters of the policy described by `info`.
    pub(crate) fn defaults(info: &'static Info) -> Params {
        Params { info, given: Vec::new() }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        if let Some((_, value)) = self.given.iter().find(|(given, _)| given == key) {
            return value;
        }
        self.param(key).default
    }

    fn param(&self, key: &str) -> &'static Param {
        let param = self.info.params.iter().find(|param| param.key == key);
        param.unwrap_or_else(|| panic!("{} has no parameter {key}", self.info.name))
    }

    /// Whether `key` was given.
    pub(crate) fn given(&self, key: &str) -> bool {
        self.given.iter().any(|(given, _)| given == key)
    }

    /// The error for a bad value of `key`, with the values expected.
    pub(crate) fn bad(&self, key: &str, expected: impl Into<String>) -> SpecError {
        SpecError::BadValue {
            policy: self.info.name,
            key: key.to_owned(),
            value: self.text(key).to_owned(),
            expected: expected.into(),
        }
    }

    /// The error for a value that is not among those in the registry.
    pub(crate) fn impossible(&self, key: &str) -> SpecError {
        self.bad(key, self.param(key).values.to_string())
    }

    /// A number of blocks: a share of `whole` such as `1%`, rounded to the nearest, or a count such as `32`. It must be
    /// in `least..=most`; a share is raised or lowered to fit.
    pub fn blocks(&self, key: &str, whole: u32, least: u32, most: u32) -> Result<u32, SpecError> {
        Ok(self.portion(key, least, most)?.of(whole, least, most))
    }

    /// A share such as `1%`, or a count of blocks in `least..=most` such as `32`.
    pub fn portion(&self, key: &str, least: u32, most: u32) -> Result<Portion, SpecError> {
        let text = self.text(key);
        if let Some(share) = values::percent(text) {
            return Ok(Portion::Share(share));
        }
        let count = values::blocks(text).filter(|count| (least..=most).contains(count));
        let expected = || self.bad(key, format!("{}, here {most}", self.param(key).values));
        count.map(Portion::Count).ok_or_else(expected)
    }

    /// A number of blocks: a share of the cache such as `10%`, not rounded, bytes such as `8M`, or a count such as
    /// `32`, each above 0; `None` for the word `auto`.
    pub fn size(&self, key: &str, setup: &Setup) -> Result<Option<Size>, SpecError> {
        let text = self.text(key);
        if text == "auto" {
            return Ok(None);
        }
        let size = if let Some(share) = values::percent(text) {
            Some(Size::Share(share))
        } else if let Some(blocks) = values::blocks(text).filter(|_| text.ends_with(|last: char| last.is_ascii_digit()))
        {
            Some(Size::Blocks(blocks.into()))
        } else {
            nigh_text::bytes(text).map(|bytes| Size::Blocks((bytes / u64::from(setup.block_bytes)) as f64))
        };
        let size = size.filter(|&size| size.of(setup.capacity) > 0.0);
        let expected = || self.bad(key, format!("{}; bytes of a block or more", self.param(key).values));
        size.map(Some).ok_or_else(expected)
    }

    /// Bytes, such as `8M`, or a share of a whole, rounded down.
    pub fn bytes(&self, key: &str) -> Result<Bytes, SpecError> {
        let text = self.text(key);
        let found = values::percent(text).map(Bytes::Share).or_else(|| nigh_text::bytes(text).map(Bytes::Count));
        found.ok_or_else(|| self.impossible(key))
    }

    /// A time in milliseconds, such as `8.5ms` or `100us`.
    pub fn milliseconds(&self, key: &str) -> Result<f64, SpecError> {
        values::milliseconds(self.text(key)).ok_or_else(|| self.impossible(key))
    }

    /// A whole number.
    pub fn number<T: TryFrom<u64>>(&self, key: &str) -> Result<T, SpecError> {
        let number = nigh_text::count(self.text(key)).and_then(|number| number.try_into().ok());
        number.ok_or_else(|| self.impossible(key))
    }

    /// A number, whole or not.
    pub fn real(&self, key: &str) -> Result<f64, SpecError> {
        self.text(key).parse().map_err(|_| self.impossible(key))
    }

    /// One of `words`.
    pub fn one_of<'a>(&self, key: &str, words: &[&'a str]) -> Result<&'a str, SpecError> {
        let found = words.iter().find(|word| self.is(key, word));
        found.copied().ok_or_else(|| self.impossible(key))
    }

    /// A factor, such as `1.5` or the equivalent share `150%`; `None` for the word `none`.
    pub fn factor(&self, key: &str) -> Result<Option<f64>, SpecError> {
        if self.is(key, "none") {
            return Ok(None);
        }
        values::factor(self.text(key)).map(Some).ok_or_else(|| self.impossible(key))
    }

    /// The history of the parameter `ghosts`: a multiple of the cache size such as `1.5` or the equivalent share
    /// `150%`, or the word `unlimited`.
    pub fn history(&self) -> Result<Portion, SpecError> {
        if self.is("ghosts", "unlimited") {
            return Ok(Portion::Share(f64::INFINITY));
        }
        let text = self.text("ghosts");
        let share = values::percent(text).or_else(|| text.parse().ok().map(|factor: f64| factor * 100.0));
        share.map(Portion::Share).ok_or_else(|| self.impossible("ghosts"))
    }

    /// Whether the value is `word`, for parameters that allow a word instead of a number.
    pub fn is(&self, key: &str, word: &str) -> bool {
        self.text(key) == word
    }
}

/// A number of blocks in the form of a parameter, for caches whose size changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Portion {
    /// A share in percent.
    Share(f64),
    /// A count.
    Count(u32),
}

impl Portion {
    /// Blocks of `whole`: a share is rounded to the nearest, then limited to `least..=most`.
    pub fn of(self, whole: u32, least: u32, most: u32) -> u32 {
        self.rounded(whole, f64::round).clamp(least, most)
    }

    /// As [`of`](Portion::of), but a share is rounded down: a whole length exceeds the result exactly if it exceeds the
    /// share.
    pub fn within(self, whole: u32, least: u32, most: u32) -> u32 {
        self.rounded(whole, f64::floor).clamp(least, most)
    }

    fn rounded(self, whole: u32, round: fn(f64) -> f64) -> u32 {
        match self {
            Portion::Share(share) => round(f64::from(whole) * share / 100.0) as u32,
            Portion::Count(count) => count,
        }
    }
}

/// A number of blocks, not rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A share of the cache in percent.
    Share(f64),
    /// A number.
    Blocks(f64),
}

impl Size {
    /// Blocks in a cache of `capacity`.
    pub fn of(self, capacity: u32) -> f64 {
        match self {
            Size::Share(share) => f64::from(capacity) * share / 100.0,
            Size::Blocks(blocks) => blocks,
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bytes {
    /// A share of a whole in percent.
    Share(f64),
    /// A count.
    Count(u64),
}

impl Bytes {
    /// Bytes of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Bytes::Share(share) => (whole as f64 * share / 100.0) as u64,
            Bytes::Count(bytes) => bytes,
        }
    }
}

/// Why a policy could not be created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SpecError {
    /// No policy has that name.
    UnknownPolicy {
        /// The name given.
        name: String,
        /// The most similar name of a policy.
        near: Option<&'static str>,
    },
    /// The policy has no such parameter.
    UnknownParam {
        /// The policy.
        info: &'static Info,
        /// The key given.
        key: String,
    },
    /// Not of the form `name:key=value:key=value`.
    Syntax {
        /// The text given.
        text: String,
    },
    /// A parameter has an invalid value.
    BadValue {
        /// The policy's name.
        policy: &'static str,
        /// The parameter.
        key: String,
        /// The value given.
        value: String,
        /// The values expected.
        expected: String,
    },
    /// The host has more slots than the policy can number.
    TooLarge {
        /// The policy's name.
        policy: &'static str,
        /// The number of slots.
        slots: u32,
        /// The most slots that the policy can number.
        most: u32,
    },
    /// The policy needs the future and the host does not know it.
    NeedsFuture {
        /// The policy's name.
        policy: &'static str,
    },
    /// The policy decides for all levels of a cache at once, and the host has one.
    NeedsLevels {
        /// The policy's name.
        policy: &'static str,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::UnknownPolicy { name, near } => {
                write!(f, "unknown policy '{name}' ('nigh policies' lists them){}", did_you_mean(*near))
            }
            SpecError::UnknownParam { info, key } => {
                write!(f, "policy '{}' has no parameter '{key}'", info.name)?;
                if info.params.is_empty() {
                    return write!(f, "; it has none");
                }
                let known: Vec<_> = info.params.iter().map(|p| format!("{}={}", p.key, p.default)).collect();
                let near = did_you_mean(nearest(key, info.params.iter().map(|param| param.key)));
                write!(f, "; it has, with these defaults: {}{near}", known.join(", "))
            }
            SpecError::Syntax { text } => {
                write!(f, "'{text}' is not a policy: expected name:key=value:key=value, each key once")
            }
            SpecError::BadValue { policy, key, value, expected } => {
                write!(f, "policy '{policy}': {key}={value} is not possible: expected {expected}")
            }
            SpecError::TooLarge { policy, slots, most } => {
                write!(
                    f,
                    "policy '{policy}' is limited to {most} blocks, including ghosts, and this cache could hold {slots}: \
                     use a smaller cache, fewer ghosts, larger blocks or another policy"
                )
            }
            SpecError::NeedsLevels { policy } => {
                write!(
                    f,
                    "policy '{policy}' decides at which level of a cache a block belongs: it needs a cache with levels"
                )
            }
            SpecError::NeedsFuture { policy } => {
                write!(f, "policy '{policy}' needs to know the future: it runs in replay only")
            }
        }
    }
}

impl std::error::Error for SpecError {}
