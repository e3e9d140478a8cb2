//! The specification of read-ahead: `NAME:KEY=VALUE`.

use std::fmt;
use std::str::FromStr;

/// An algorithm with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Spec {
    /// Nothing is fetched ahead.
    #[default]
    None,
    /// Tagged one-block look-ahead.
    OneBlock,
    /// One-block look-ahead in sequences only.
    Sequential,
    /// Linux's window.
    Linux {
        /// The longest window.
        max_bytes: u32,
        /// The number of streams that are remembered.
        streams: usize,
    },
    /// As `Linux`, with windows chosen by statistics of earlier reads.
    Auto,
    /// The aligned extent of a miss.
    Extent {
        /// Its size; a power of two.
        bytes: u32,
    },
    /// The same algorithm under the rule of published systems, for simulations: blocks enter the policy when they are fetched, and
    /// windows are not shortened.
    IntoPolicy(Box<Spec>),
}

/// The suffix of `IntoPolicy`.
const INTO_POLICY: &str = ":into=policy";

/// The names before parameters.
const NAMES: [&str; 5] = ["none", "auto", "one-block", "linux", "extent"];

/// Why a read-ahead specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no such algorithm.
    #[error(
        "there is no read-ahead '{name}': expected none, auto, one-block, one-block:sequential, linux:max=128K or extent:64K{near}",
        name = .0,
        near = nigh_text::did_you_mean(nigh_text::nearest(.0, NAMES))
    )]
    Unknown(String),
    /// It is valid in simulations only.
    #[error(
        "read-ahead '{0}': into=policy is for nigh sim; when serving, blocks that were read ahead wait beside the policy"
    )]
    Simulation(Box<Spec>),
    /// Its parameters are invalid.
    #[error("read-ahead '{text}': expected {expected}")]
    Parameters {
        /// The text given.
        text: String,
        /// The form expected.
        expected: &'static str,
    },
}

impl Spec {
    /// The algorithm of a server, and of a simulation with a device, unless another one was asked for.
    pub const SERVED: Spec = Spec::Auto;
    /// The default number of streams that are remembered.
    pub const STREAMS: usize = 32;
    /// The default of the longest window, that of Linux: its `read_ahead_kb` is 128.
    pub const MAX_BYTES: u32 = 128 << 10;
    /// The longest window of `auto`, for devices where a request takes as long as the transfer of as many blocks.
    pub const AUTO_MAX_BYTES: u32 = 1 << 20;
    /// The longest window or extent.
    const BYTES_MOST: u32 = 16 << 20;
    const BYTES_LEAST: u32 = 512;
    const STREAMS_MOST: usize = 4096;
    const EXTENT_BYTES: u32 = 64 << 10;

    /// Whether blocks enter the policy when they are fetched.
    pub fn is_into_policy(&self) -> bool {
        matches!(self, Spec::IntoPolicy(_))
    }

    /// Parses a specification for a server, which rejects `into=policy`.
    pub fn served(text: &str) -> Result<Spec, SpecError> {
        let spec: Spec = text.parse()?;
        if spec.is_into_policy() { Err(SpecError::Simulation(Box::new(spec))) } else { Ok(spec) }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::None => f.write_str("none"),
            Spec::OneBlock => f.write_str("one-block"),
            Spec::Sequential => f.write_str("one-block:sequential"),
            Spec::Auto => f.write_str("auto"),
            Spec::Linux { max_bytes, streams } => {
                write!(f, "linux:max={}", Bytes(*max_bytes))?;
                if *streams == Spec::STREAMS { Ok(()) } else { write!(f, ":streams={streams}") }
            }
            Spec::Extent { bytes } => write!(f, "extent:{}", Bytes(*bytes)),
            Spec::IntoPolicy(spec) => write!(f, "{spec}{INTO_POLICY}"),
        }
    }
}

struct Bytes(u32);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}K", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let text = text.trim();
        if let Some(inner) = text.strip_suffix(INTO_POLICY) {
            return match inner.parse()? {
                Spec::None | Spec::IntoPolicy(_) => Err(SpecError::Parameters {
                    text: text.to_owned(),
                    expected: "it once, with auto, one-block, linux or extent",
                }),
                inner => Ok(Spec::IntoPolicy(Box::new(inner))),
            };
        }
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let wrong = |expected| SpecError::Parameters { text: text.to_owned(), expected };
        match (name, rest) {
            ("none", None) => Ok(Spec::None),
            ("auto", None) => Ok(Spec::Auto),
            ("one-block", None) => Ok(Spec::OneBlock),
            ("one-block", Some("sequential")) => Ok(Spec::Sequential),
            ("one-block", Some(_)) => Err(wrong("one-block or one-block:sequential")),
            ("none" | "auto", Some(_)) => Err(wrong("no parameters")),
            ("linux", rest) => {
                let expected =
                    "linux:max=128K:streams=32, max from 512 to 16M, streams from 1 to 4096, each at most once";
                linux(rest).ok_or_else(|| wrong(expected))
            }
            ("extent", rest) => {
                let size = rest.map_or(Some(Spec::EXTENT_BYTES), bytes).filter(|bytes| bytes.is_power_of_two());
                Ok(Spec::Extent { bytes: size.ok_or_else(|| wrong("extent:64K, a power of two from 512 to 16M"))? })
            }
            _ => Err(SpecError::Unknown(name.to_owned())),
        }
    }
}

fn linux(rest: Option<&str>) -> Option<Spec> {
    let (mut max, mut count) = (None, None);
    for part in rest.iter().flat_map(|rest| rest.split(':')) {
        match part.split_once('=')? {
            ("max", value) if max.is_none() => max = Some(bytes(value)?),
            ("streams", value) if count.is_none() => {
                count = Some(value.parse().ok().filter(|count| (1..=Spec::STREAMS_MOST).contains(count))?);
            }
            _ => return None,
        }
    }
    Some(Spec::Linux { max_bytes: max.unwrap_or(Spec::MAX_BYTES), streams: count.unwrap_or(Spec::STREAMS) })
}

/// A number of bytes such as `128K`, within the limits.
fn bytes(text: &str) -> Option<u32> {
    let bytes = u32::try_from(nigh_text::bytes(text)?).ok()?;
    (Spec::BYTES_LEAST..=Spec::BYTES_MOST).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_written() {
        for text in [
            "none",
            "one-block",
            "one-block:sequential",
            "linux:max=128K",
            "linux:max=1M:streams=7",
            "extent:64K",
            "extent:512",
            "one-block:into=policy",
            "linux:max=128K:into=policy",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("linux".parse(), Ok(Spec::Linux { max_bytes: 128 << 10, streams: 32 }));
        assert_eq!("extent".parse(), Ok(Spec::Extent { bytes: 64 << 10 }));
    }

    #[test]
    fn slips_are_named() {
        let slips = [
            "",
            "windows",
            "none:1",
            "one-block:always",
            "linux:",
            "linux:max=",
            "linux:max=17M",
            "linux:max=1K:max=2K",
            "linux:streams=0",
            "linux:max=99999999M",
            "extent:3K",
            "extent:256",
            "extent:max=4K",
            "linux:max=K",
            "extent:64Ü",
            "none:into=policy",
            "linux:into=policy:into=policy",
            "linux:into=policy:max=128K",
            ":into=policy",
        ];
        for text in slips {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains("expected") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
