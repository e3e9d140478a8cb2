//! Values of settings, as users write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use nigh_service::{amount, slow_limit};

/// Bytes, such as 512M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Size> {
        match nigh_text::bytes(text) {
            Some(bytes) if (4096..1 << 60).contains(&bytes) => Ok(Size(bytes)),
            _ => bail!("'{text}' is no amount of memory: expected at least 4K, such as 512M or 2G"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&amount(self.0))
    }
}

/// A time from `LEAST` seconds to an hour, such as 5s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time<const LEAST: u32>(pub(crate) Duration);

impl<const LEAST: u32> FromStr for Time<LEAST> {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Time<LEAST>> {
        let seconds = nigh_text::seconds(text).filter(|seconds| (f64::from(LEAST)..=3600.0).contains(seconds));
        let seconds =
            seconds.with_context(|| format!("expected a time from {LEAST}s to 1h, such as 5s, not '{text}'"))?;
        Ok(Time(Duration::from_secs_f64(seconds)))
    }
}

impl<const LEAST: u32> fmt::Display for Time<LEAST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

/// The limit beyond which requests are slow; `none` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow(pub(crate) Option<Duration>);

impl FromStr for Slow {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Slow> {
        Ok(Slow(slow_limit(text)?))
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{}s", limit.as_secs_f64()),
            None => f.write_str("none"),
        }
    }
}

/// A scheme of encoded blocks; `none` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) Option<nigh_service::Scheme>);

impl FromStr for Content {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Content> {
        Ok(Content(if text == "none" { None } else { Some(text.parse()?) }))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(scheme) => scheme.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// A share of one processor, from 1% to 100%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Processor(pub(crate) f64);

impl FromStr for Processor {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Processor> {
        let share = nigh_text::share(text).filter(|share| (0.01..=1.0).contains(share));
        let expected = || format!("expected a share of one processor from 1% to 100%, not '{text}'");
        share.map(Processor).with_context(expected)
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", 100.0 * self.0)
    }
}

/// Read-ahead of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadAhead(pub(crate) nigh_prefetch::Spec);

impl FromStr for ReadAhead {
    type Err = nigh_prefetch::SpecError;

    fn from_str(text: &str) -> Result<ReadAhead, nigh_prefetch::SpecError> {
        nigh_prefetch::Spec::served(text).map(ReadAhead)
    }
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Permissions of a socket, in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl FromStr for Mode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Mode> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        let expected =
            || format!("'{text}' is no mode of a socket: expected octal digits from 0 to 0777, such as 0660");
        mode.map(Mode).with_context(expected)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}
