//! How a policy is described, asked for and configured: `name:key=value:key=value`.

use std::fmt;
use std::sync::Arc;

use nigh_text::{did_you_mean, nearest};

use crate::Policy;
use crate::values::{self, Values};
use crate::visit::Visit;

/// What `nigh policies` says about a policy.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name it is asked for by: lower case, words joined by hyphens.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The work that specifies it: authors, title, venue and year.
    pub paper: &'static str,
    /// What can be set, with the paper's defaults.
    pub params: &'static [Param],
    /// Whether it needs to know the future, and so runs in replay only.
    pub offline: bool,
    /// Whether it looks at which blocks are neighbours, of which a sample of blocks has hardly any.
    pub spatial: bool,
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name before the `=`.
    pub key: &'static str,
    /// The value where none is given, as a user would write it.
    pub default: &'static str,
    /// What it can be.
    pub values: Values,
    /// Meaning and unit, in one line.
    pub doc: &'static str,
}

/// What the host tells a policy when it makes one.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many blocks can be resident; at least 1.
    pub capacity: u32,
    /// Slots are numbered `0..slots`.
    pub slots: u32,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// How many ghosts the host can hold. A policy that would like to remember more forgets the oldest.
    pub ghosts: u32,
    /// For each tick, the tick at which the same block is referenced next, `u32::MAX` for never.
    /// Only a replay knows it.
    pub future: Option<Arc<[u32]>>,
}

/// A policy that can be made from its parameters. Each registered policy implements it.
pub trait Configured: Policy + Sized {
    /// What it is.
    const INFO: Info;

    /// The most ghosts that one with these parameters remembers with a cache of `capacity` blocks, `u32::MAX` if their
    /// number is not limited.
    fn ghosts(_params: &Params, _capacity: u32) -> Result<u32, SpecError> {
        Ok(0)
    }

    /// Makes one. `params` holds only keys of `INFO.params`.
    fn new(setup: &Setup, params: &Params) -> Result<Self, SpecError>;

    /// Makes the one of its variants that `params` ask for and gives it to `visitor`.
    fn visit<V: Visit>(setup: &Setup, params: &Params, visitor: V) -> Result<V::Out, SpecError>
    where
        Self: Send + 'static,
    {
        Ok(visitor.visit(Self::new(setup, params)?))
    }
}

/// A policy as asked for: a name and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    text: String,
    name: String,
    given: Vec<(String, String)>,
}

impl Spec {
    /// A spec of this form, whether or not there is such a policy.
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

    /// The same policy by its own name, where it was asked for by another.
    pub(crate) fn renamed(mut self, name: &'static str) -> Spec {
        let rest = self.text.find(':').map_or("", |at| &self.text[at..]);
        self.text = format!("{name}{rest}");
        self.name = name.to_owned();
        self
    }

    /// The name of the policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters for the policy described by `info`, every key and value checked against those it knows.
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

/// The parameters given for one policy; what is not given has its default.
pub struct Params {
    info: &'static Info,
    given: Vec<(String, String)>,
}

impl Params {
    /// No parameters for the policy described by `info`.
    pub(crate) fn defaults(info: &'static Info) -> Params {
        Params { info, given: Vec::new() }
    }

    fn text(&self, key: &str) -> &str {
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

    /// The error that says what `key` should be.
    pub(crate) fn bad(&self, key: &str, expected: impl Into<String>) -> SpecError {
        SpecError::BadValue {
            policy: self.info.name,
            key: key.to_owned(),
            value: self.text(key).to_owned(),
            expected: expected.into(),
        }
    }

    /// The error for a value that is none of those in the registry.
    fn impossible(&self, key: &str) -> SpecError {
        self.bad(key, self.param(key).values.to_string())
    }

    /// A number of blocks: a share of `whole` such as `1%`, rounded to the nearest, or a count such as `32`.
    /// It must lie in `least..=most`; a share is raised or lowered to fit.
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

    /// A number of blocks: a share of the cache such as `10%`, not rounded, bytes such as `8M`, or a count such as `32`,
    /// above 0 each; nothing for the word `auto`.
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

    /// A factor, such as `1.5` or the same as a share, `150%`; nothing for the word `none`.
    pub fn factor(&self, key: &str) -> Result<Option<f64>, SpecError> {
        if self.is(key, "none") {
            return Ok(None);
        }
        values::factor(self.text(key)).map(Some).ok_or_else(|| self.impossible(key))
    }

    /// The history of the parameter `ghosts`: a multiple of the cache size such as `1.5` or the same as a share, `150%`,
    /// or the word `unlimited`.
    pub fn history(&self) -> Result<Portion, SpecError> {
        if self.is("ghosts", "unlimited") {
            return Ok(Portion::Share(f64::INFINITY));
        }
        let text = self.text("ghosts");
        let share = values::percent(text).or_else(|| text.parse().ok().map(|factor: f64| factor * 100.0));
        share.map(Portion::Share).ok_or_else(|| self.impossible("ghosts"))
    }

    /// Whether the value is `word`, for parameters that take a word instead of a number.
    pub fn is(&self, key: &str, word: &str) -> bool {
        self.text(key) == word
    }
}

/// A number of blocks as a parameter gives it, for caches whose size changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Portion {
    /// A share in percent.
    Share(f64),
    /// A count.
    Count(u32),
}

impl Portion {
    /// Blocks of `whole`, a share rounded to the nearest, raised or lowered to lie in `least..=most`.
    pub fn of(self, whole: u32, least: u32, most: u32) -> u32 {
        self.rounded(whole, f64::round).clamp(least, most)
    }

    /// As [`of`](Portion::of), but a share is rounded down: a length is above the share exactly if it is above this.
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

/// Why a policy could not be made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SpecError {
    /// No policy has that name.
    UnknownPolicy {
        /// The name that was asked for.
        name: String,
        /// The name of a policy that is most like it.
        near: Option<&'static str>,
    },
    /// The policy has no such parameter.
    UnknownParam {
        /// The policy.
        info: &'static Info,
        /// The key that was given.
        key: String,
    },
    /// Not of the form `name:key=value:key=value`.
    Syntax {
        /// What was given.
        text: String,
    },
    /// A parameter has a value it cannot have.
    BadValue {
        /// The policy's name.
        policy: &'static str,
        /// The parameter.
        key: String,
        /// What was given.
        value: String,
        /// What can be given.
        expected: String,
    },
    /// The host has more slots than the policy can number.
    TooLarge {
        /// The policy's name.
        policy: &'static str,
        /// How many slots there are.
        slots: u32,
        /// How many there can be.
        most: u32,
    },
    /// The policy needs the future and the host does not know it.
    NeedsFuture {
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
                    "policy '{policy}' knows at most {most} blocks, ghosts included, and this cache could hold {slots}: \
                     use a smaller cache, fewer ghosts, larger blocks or another policy"
                )
            }
            SpecError::NeedsFuture { policy } => {
                write!(f, "policy '{policy}' needs to know the future: it runs in replay only")
            }
        }
    }
}

impl std::error::Error for SpecError {}
