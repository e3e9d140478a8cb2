//! Values of settings, as users write them.

use std::time::Duration;

use anyhow::{Context, bail};
use nigh_policy::Spec;
use nigh_service::{Listen, Scheme, amount, slow_limit};

use super::{MetricsArg, PrefetchArg};

/// Defines values that a file has as strings, the texts of the flags: the type, what parses it, and its text.
macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($type:ty): $read:expr, $show:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) $type);

        impl std::str::FromStr for $name {
            type Err = anyhow::Error;

            fn from_str(text: &str) -> anyhow::Result<$name> {
                let read: fn(&str) -> anyhow::Result<$type> = $read;
                read(text).map($name)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let show: fn(&$type) -> String = $show;
                to.serialize_str(&show(&self.0))
            }
        }
    )*};
}

values! {
    /// Bytes, such as 512M.
    Size(u64): |text| match nigh_text::bytes(text) {
        Some(bytes) if (4096..1 << 60).contains(&bytes) => Ok(bytes),
        _ => bail!("'{text}' is no amount of memory: expected at least 4K, such as 512M or 2G"),
    }, |bytes| amount(*bytes);
    /// A time from 0 s to an hour.
    Time(Duration): |text| time(text, 0), |time| seconds(*time);
    /// A time from a second to an hour.
    LongTime(Duration): |text| time(text, 1), |time| seconds(*time);
    /// The limit beyond which requests are slow; `none` for none.
    Slow(Option<Duration>): |text| Ok(slow_limit(text)?), |limit| limit.map_or_else(none, seconds);
    /// A scheme of encoded blocks; `none` for none.
    Content(Option<Scheme>): |text| Ok(if text == "none" { None } else { Some(text.parse()?) }),
        |scheme| scheme.map_or_else(none, |scheme| scheme.to_string());
    /// A share of one processor, from 1% to 100%.
    Processor(f64): |text| {
        let share = nigh_text::share(text).filter(|share| (0.01..=1.0).contains(share));
        share.with_context(|| format!("expected a share of one processor from 1% to 100%, not '{text}'"))
    }, |share| format!("{}%", 100.0 * share);
    /// Permissions of a socket, in octal.
    Mode(u32): |text| {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.with_context(|| format!("'{text}' is no mode of a socket: expected octal digits from 0 to 0777, such as 0660"))
    }, |mode| format!("{mode:04o}");
    /// Read-ahead of a server.
    ReadAhead(nigh_prefetch::Spec): |text| Ok(nigh_prefetch::Spec::served(text)?), ToString::to_string;
    Policy(Spec): |text| Ok(text.parse()?), ToString::to_string;
    Scheduler(nigh_engine::Scheduler): |text| Ok(text.parse()?), ToString::to_string;
    Address(Listen): |text| Ok(text.parse()?), ToString::to_string;
    Prefetch(PrefetchArg): |text| text.parse().map_err(anyhow::Error::msg), ToString::to_string;
    Metrics(MetricsArg): |text| text.parse().map_err(anyhow::Error::msg), ToString::to_string;
}

fn none() -> String {
    "none".to_owned()
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}

fn time(text: &str, least: u32) -> anyhow::Result<Duration> {
    let seconds = nigh_text::seconds(text).filter(|seconds| (f64::from(least)..=3600.0).contains(seconds));
    let seconds = seconds.with_context(|| format!("expected a time from {least}s to 1h, such as 5s, not '{text}'"))?;
    Ok(Duration::from_secs_f64(seconds))
}
