//! The profile of a program, as TOML: the classes of its code, and the gain of advice.
//!
//! ```toml
//! program = "/usr/bin/grep"
//! frames = 5                    # return addresses that identify the code
//! depth = true                  # and the depth of the stack
//! read_bytes = 49008600         # what the device read for a run without advice
//! runs_without_gain = 0         # advised runs in a row; after three, the program is left alone
//!
//! [[module]]
//! path = "/usr/bin/grep"
//! build_id = "0fb3c1a2"
//!
//! [[code]]
//! code = "a920b58f4892629b"
//! place = "grep+0x51a0"         # where it is, for people
//! class = "short"               # seq, loop, short or rand
//! run_bytes = 32768             # for short: what it reads of a file; all of it by default
//! modules = [0]                 # those of its return addresses, by their number from 0
//! asked_bytes = 98000000        # what it read without advice,
//! read_bytes = 49000000         # and what devices read for that
//! advised = true                # false: advice did not make the device read less
//!
//! [[code.file]]                 # a file in which the code belongs to another class
//! path = "/srv/words"
//! class = "loop"
//! ```

extern crate std;

use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Class, table};

/// The most bytes of a profile.
pub const BYTES_MOST: usize = 16 << 20;

/// The most files of one piece of code that have a class of their own.
pub const FILES_MOST: usize = 1000;

/// After this many advised runs in a row without gain, a program is left alone.
pub const RUNS_MOST: u32 = 3;

/// Less than this share of the reads without advice is no gain, in percent: reads differ as much from run to run.
const GAIN_LEAST: u64 = 3;

/// The profile of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its path.
    pub program: String,
    /// How many return addresses identify the code.
    pub frames: u32,
    /// Whether the depth of the stack does, too.
    #[serde(default)]
    pub depth: bool,
    /// Bytes that the device read for a run without advice, if one was recorded.
    #[serde(serialize_with = "limited")]
    pub read_bytes: Option<u64>,
    /// Advised runs in a row that gained nothing.
    #[serde(default)]
    pub runs_without_gain: u32,
    /// The files that contain the code.
    #[serde(default, rename = "module")]
    pub modules: Vec<Module>,
    /// The code that reads.
    #[serde(default, rename = "code")]
    pub codes: Vec<Code>,
}

/// A program or library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id, in hexadecimal digits.
    pub build_id: String,
}

/// One piece of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// Its identity, 16 hexadecimal digits.
    #[serde(serialize_with = "to_digits", deserialize_with = "from_digits")]
    pub code: u64,
    /// Its place in the program, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// How it reads.
    pub class: Name,
    /// Bytes that it reads of a file if it is short; all by default.
    #[serde(serialize_with = "limited")]
    pub run_bytes: Option<u64>,
    /// The modules of its return addresses: positions in [`Profile::modules`].
    #[serde(default)]
    pub modules: Vec<usize>,
    /// Bytes that it read without advice, if they were recorded.
    #[serde(serialize_with = "limited")]
    pub asked_bytes: Option<u64>,
    /// Bytes that devices read for that.
    #[serde(serialize_with = "limited")]
    pub read_bytes: Option<u64>,
    /// Whether it gets advice.
    #[serde(default = "yes")]
    pub advised: bool,
    /// The files in which its class is another one.
    #[serde(default, rename = "file", skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InFile>,
}

/// Code in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFile {
    /// The file.
    pub path: String,
    /// How the code reads it.
    pub class: Name,
    /// Bytes that it reads of it if it is short; all by default.
    #[serde(serialize_with = "limited")]
    pub run_bytes: Option<u64>,
}

/// The name of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Name {
    Seq,
    Loop,
    Short,
    Rand,
}

impl Name {
    /// The class. `run_bytes` is used for short loops only.
    pub fn class(self, run_bytes: Option<u64>) -> Class {
        match self {
            Name::Seq => Class::Sequential,
            Name::Loop => Class::Loop,
            Name::Short => Class::Short { run: run_bytes.unwrap_or(u64::MAX) },
            Name::Rand => Class::Random,
        }
    }
}

/// Why a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// Not TOML, or without the expected structure.
    Shape {
        /// The line, from 1.
        line: usize,
        /// The text of the parser.
        message: String,
    },
    /// Code refers to a module that is not in the profile.
    Module {
        /// The code.
        code: u64,
    },
    /// Code is in the profile twice.
    Twice {
        /// The code.
        code: u64,
    },
    /// The text is longer than [`BYTES_MOST`].
    TooLong,
}

impl core::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ProfileError::Shape { line, message } => write!(f, "line {line}: {message}"),
            ProfileError::Module { code } => write!(f, "code {code:016x}: no such module, expected its number from 0"),
            ProfileError::Twice { code } => write!(f, "code {code:016x} is there twice"),
            ProfileError::TooLong => write!(f, "more than {BYTES_MOST} bytes"),
        }
    }
}

impl core::error::Error for ProfileError {}

/// Reads of an advised run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Bytes that devices read, in all.
    pub read_bytes: u64,
    /// Reads by each piece of code.
    pub by_code: BTreeMap<u64, Reads>,
}

/// Reads of a piece of code in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Bytes that it read.
    pub asked_bytes: u64,
    /// Bytes that devices read for that.
    pub read_bytes: u64,
}

impl Code {
    /// Bytes that devices would read without advice for what the code read, if the same share of it was cached as then;
    /// `None` if that is not known.
    pub fn without_advice(&self, asked_bytes: u64) -> Option<u64> {
        let (asked, read) = (self.asked_bytes.filter(|&asked| asked > 0)?, self.read_bytes?);
        let scaled = u128::from(read) * u128::from(asked_bytes) / u128::from(asked);
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Whether it gets advice in a profile that is not left alone: not if there is nothing to gain, or no way to measure it.
    fn gets_advice(&self) -> bool {
        self.advised && self.read_bytes.is_some_and(|bytes| bytes > 0)
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If `text` is not a profile.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        if text.len() > BYTES_MOST {
            return Err(ProfileError::TooLong);
        }
        let profile: Profile = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            ProfileError::Shape { line: before.matches('\n').count() + 1, message: error.message().replace('\n', " ") }
        })?;
        let mut codes = std::collections::BTreeSet::new();
        for code in &profile.codes {
            if code.modules.iter().any(|&module| module >= profile.modules.len()) {
                return Err(ProfileError::Module { code: code.code });
            }
            if !codes.insert(code.code) {
                return Err(ProfileError::Twice { code: code.code });
            }
        }
        Ok(profile)
    }

    /// The profile as TOML, whose numbers are at most 2^63 - 1.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every profile has a form in TOML")
    }

    /// Removes the code in modules that are other ones today: `build_id` returns the build id of a path, if it has one.
    /// Returns the removed code.
    pub fn drop_stale(&mut self, mut build_id: impl FnMut(&str) -> Option<String>) -> Vec<Code> {
        let is_same = |module: &Module| build_id(&module.path).as_ref() == Some(&module.build_id);
        let same: Vec<bool> = self.modules.iter().map(is_same).collect();
        let is_stale = |code: &mut Code| code.modules.iter().any(|&module| same.get(module) != Some(&true));
        self.codes.extract_if(.., is_stale).collect()
    }

    /// Takes in what another recording of the same program shows, with the same identity of code: code that is not known
    /// yet, with what it read, because it got no advice; and the classes of that which is. The bytes read without advice stay,
    /// and so does whether code gets advice.
    pub fn add(&mut self, other: Profile) {
        let known: Vec<usize> = other.modules.iter().map(|module| self.module(module)).collect();
        for mut code in other.codes {
            code.modules = code.modules.iter().filter_map(|&module| known.get(module).copied()).collect();
            match self.codes.iter_mut().find(|own| own.code == code.code) {
                Some(own) => {
                    (own.class, own.run_bytes) = (code.class, code.run_bytes);
                    own.files.retain(|file| code.files.iter().all(|other| other.path != file.path));
                    own.files.extend(code.files);
                    own.files.truncate(FILES_MOST);
                }
                None => self.codes.push(code),
            }
        }
    }

    /// The position of a module, which is added if it is not there.
    fn module(&mut self, module: &Module) -> usize {
        self.modules.iter().position(|own| own == module).unwrap_or_else(|| {
            self.modules.push(module.clone());
            self.modules.len() - 1
        })
    }

    /// Whether the program runs without advice, because advice gained nothing.
    pub fn is_left_alone(&self) -> bool {
        self.runs_without_gain >= RUNS_MOST
    }

    /// Whether this code of the profile gets advice.
    pub fn advises(&self, code: &Code) -> bool {
        !self.is_left_alone() && code.gets_advice()
    }

    /// Whether some of its code gets advice.
    pub fn gets_advice(&self) -> bool {
        self.codes.iter().any(|code| self.advises(code))
    }

    /// Takes in an advised run. Code for which devices did not read less than without advice gets none from now on. Returns
    /// that code.
    ///
    /// The bytes read without advice are scaled to those that the code read this time. Without a record of it, nothing can be
    /// compared, and nothing changes.
    pub fn learn(&mut self, run: &Run) -> Vec<u64> {
        let gains = |without: u64, with: u64| with < without - without / 100 * GAIN_LEAST;
        if let Some(without) = self.without_advice(run) {
            self.runs_without_gain =
                if gains(without, run.read_bytes) { 0 } else { self.runs_without_gain.saturating_add(1) };
        }
        let mut off = Vec::new();
        for code in self.codes.iter_mut().filter(|code| code.gets_advice()) {
            let (Some(with), Some(then)) = (run.by_code.get(&code.code), code.asked_bytes) else { continue };
            let Some(without) = code.without_advice(with.asked_bytes) else { continue };
            // A shorter run, with less to be read again, is no loss.
            let is_long = with.asked_bytes > 0 && with.asked_bytes >= then / 2;
            if is_long && !gains(without, with.read_bytes) {
                code.advised = false;
                off.push(code.code);
            }
        }
        off
    }

    /// Bytes that devices would read without advice for a run, by what the known code read in it; `None` if it read less than
    /// half as much as then.
    pub fn without_advice(&self, run: &Run) -> Option<u64> {
        let plain = self.read_bytes?;
        let (mut asked, mut then) = (0_u128, 0_u128);
        for code in &self.codes {
            if let Some(before) = code.asked_bytes {
                then += u128::from(before);
                asked += u128::from(run.by_code.get(&code.code).map_or(0, |reads| reads.asked_bytes));
            }
        }
        // A shorter run, with less to be read again, is no loss.
        if asked == 0 || asked < then / 2 {
            return None;
        }
        Some(u64::try_from(u128::from(plain) * asked / then).unwrap_or(u64::MAX))
    }

    /// The entries of a [`Table`](crate::Table) for all code. `file` returns the number of the file with a
    /// path, above 0, if there is such a file.
    pub fn table(&self, mut file: impl FnMut(&str) -> Option<u64>) -> Vec<u8> {
        let mut classes = BTreeMap::new();
        for code in &self.codes {
            let is_advised = self.advises(code);
            classes.insert((code.code, 0), is_advised.then(|| code.class.class(code.run_bytes)));
            for special in code.files.iter().filter(|_| is_advised) {
                if let Some(number) = file(&special.path).filter(|&number| number > 0) {
                    classes.insert((code.code, number), Some(special.class.class(special.run_bytes)));
                }
            }
        }
        classes.into_iter().flat_map(|((code, file), class)| table::entry(code, file, class)).collect()
    }
}

fn yes() -> bool {
    true
}

/// TOML has no larger numbers, and a file has no more bytes.
fn limited<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_some(&(*bytes).min(i64::MAX as u64)),
        None => serializer.serialize_none(),
    }
}

fn to_digits<S: Serializer>(code: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{code:016x}"))
}

fn from_digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = Some(&text).filter(|text| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let code = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    code.ok_or_else(|| serde::de::Error::custom("expected 16 hexadecimal digits"))
}
