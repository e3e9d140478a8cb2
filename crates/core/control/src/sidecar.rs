//! Directives for a trace, as TOML beside it.
//!
//! ```toml
//! [[at]]
//! tenant = 3                     # default 0
//! request = 1200                 # number of the request that follows, from 0; or time_ns; default: the start
//! set_priority = [{ file = 7, priority = 1 }]
//! set_policy = [{ priority = 1, policy = "mru" }]
//! set_temporary_priority = [{ file = 7, first = 0, last = 15, priority = -1 }]
//! predict = [{ file = 7 }, { file = 8, offset = 0, length = 65536 }]
//! bounds = { floor = 100, ceiling = 500 }
//! ```
//!
//! The settings of one `[[at]]` are applied in the order above, whatever their order in the file. `first`, `last`,
//! `floor` and `ceiling` are in blocks, `offset` and `length` in bytes; a ceiling is at least 1, or left out.

use std::fmt;
use std::ops::Range;

use nigh_policy::{Spec, SpecError, Tenant};
use serde::Deserialize;

use crate::directive::{Chunk, Directive, Order};
use crate::saying::{Event, Saying, When};

/// The most bytes of a sidecar file.
pub const BYTES_MOST: usize = 64 << 20;

/// Why a text is not a sidecar of directives.
#[derive(Clone, Debug)]
pub struct SidecarError {
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub kind: SidecarErrorKind,
}

/// The error in a line of a sidecar.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SidecarErrorKind {
    /// Not TOML, or without the expected structure; the text of the parser.
    Shape(String),
    /// `[[at]]` has both a request and a time.
    TwoTimes,
    /// A policy is neither `lru` nor `mru` nor one of the registry.
    Policy(SpecError),
    /// A chunk has an offset without a length, or is empty.
    Chunk,
    /// The text is longer than [`BYTES_MOST`].
    TooLong,
}

impl fmt::Display for SidecarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            SidecarErrorKind::Shape(message) => f.write_str(message),
            SidecarErrorKind::TwoTimes => f.write_str("expected either 'request' or 'time_ns', not both"),
            SidecarErrorKind::Policy(error) => write!(f, "expected lru, mru or a policy: {error}"),
            SidecarErrorKind::Chunk => {
                f.write_str("expected a chunk with 'file' alone, or also with 'offset' and a 'length' of at least 1")
            }
            SidecarErrorKind::TooLong => write!(f, "more than {BYTES_MOST} bytes"),
        }
    }
}

impl std::error::Error for SidecarError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    at: Vec<toml::Spanned<At>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    #[serde(default)]
    tenant: u32,
    request: Option<u64>,
    time_ns: Option<u64>,
    #[serde(default)]
    set_priority: Vec<FilePriority>,
    #[serde(default)]
    set_policy: Vec<LevelPolicy>,
    #[serde(default)]
    set_temporary_priority: Vec<RangePriority>,
    predict: Option<Vec<toml::Spanned<Access>>>,
    bounds: Option<Bounds>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePriority {
    file: u32,
    priority: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelPolicy {
    priority: i32,
    policy: toml::Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangePriority {
    file: u32,
    first: u64,
    last: u64,
    priority: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Access {
    file: u32,
    offset: Option<u64>,
    length: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    #[serde(default)]
    floor: u32,
    #[serde(default, deserialize_with = "read_ceiling")]
    ceiling: Option<u32>,
}

fn read_ceiling<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(serde::de::Error::custom("a ceiling is from 1 to 4294967295 blocks; leave it out for none")),
        blocks => Ok(Some(blocks)),
    }
}

/// Parses a sidecar. The events are in the order of the text.
pub fn parse(text: &str) -> Result<Vec<Event>, SidecarError> {
    let wrong = |span: Option<Range<usize>>, kind| {
        let start = span.map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes().iter().take(start).filter(|&&byte| byte == b'\n').count();
        SidecarError { line, kind }
    };
    if text.len() > BYTES_MOST {
        return Err(wrong(None, SidecarErrorKind::TooLong));
    }
    let file: File = toml::from_str(text)
        .map_err(|error| wrong(error.span(), SidecarErrorKind::Shape(error.message().replace('\n', " "))))?;
    let mut events = Vec::new();
    for at in file.at {
        let span = at.span();
        let at = at.into_inner();
        let when = match (at.request, at.time_ns) {
            (Some(_), Some(_)) => return Err(wrong(Some(span), SidecarErrorKind::TwoTimes)),
            (request, None) => When::Request(request.unwrap_or(0)),
            (None, Some(time_ns)) => When::Time(time_ns),
        };
        let tenant = Tenant(at.tenant);
        let mut say = |saying| events.push(Event { when, tenant, saying });
        for FilePriority { file, priority } in at.set_priority {
            say(Saying::Directive(Directive::SetPriority { file, priority }));
        }
        for LevelPolicy { priority, policy } in at.set_policy {
            let policy = match policy.get_ref().as_str() {
                "mru" => Order::Mru,
                other => {
                    let spec = other.parse::<Spec>();
                    spec.map_err(|error| wrong(Some(policy.span()), SidecarErrorKind::Policy(error)))?.into()
                }
            };
            say(Saying::Directive(Directive::SetPolicy { priority, policy }));
        }
        for RangePriority { file, first, last, priority } in at.set_temporary_priority {
            say(Saying::Directive(Directive::SetTemporaryPriority { file, first, last, priority }));
        }
        if let Some(predict) = at.predict {
            let accesses = predict.into_iter().map(|access| {
                let bytes = match (access.get_ref().offset, access.get_ref().length) {
                    (None, None) => None,
                    (offset, Some(length)) if length > 0 => Some((offset.unwrap_or(0), length)),
                    _ => return Err(wrong(Some(access.span()), SidecarErrorKind::Chunk)),
                };
                Ok(Chunk { file: access.get_ref().file, bytes })
            });
            let accesses = accesses.collect::<Result<_, _>>()?;
            say(Saying::Directive(Directive::Predict { accesses }));
        }
        if let Some(Bounds { floor, ceiling }) = at.bounds {
            say(Saying::Bounds { floor, ceiling: ceiling.unwrap_or(0) });
        }
    }
    Ok(events)
}

/// Writes `events` as a text that [`parse`] accepts.
pub fn write(events: &[Event]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for Event { when, tenant, saying } in events {
        let at = match when {
            When::Request(request) => format!("request = {request}"),
            When::Time(time_ns) => format!("time_ns = {time_ns}"),
        };
        let said = match saying {
            Saying::Directive(Directive::SetPriority { file, priority }) => {
                format!("set_priority = [{{ file = {file}, priority = {priority} }}]")
            }
            Saying::Directive(Directive::SetPolicy { priority, policy }) => {
                format!("set_policy = [{{ priority = {priority}, policy = \"{policy}\" }}]")
            }
            Saying::Directive(Directive::SetTemporaryPriority { file, first, last, priority }) => format!(
                "set_temporary_priority = [{{ file = {file}, first = {first}, last = {last}, priority = {priority} }}]"
            ),
            Saying::Directive(Directive::Predict { accesses }) => {
                let chunk = |chunk: &Chunk| match chunk.bytes {
                    None => format!("{{ file = {} }}", chunk.file),
                    Some((offset, length)) => {
                        format!("{{ file = {}, offset = {offset}, length = {length} }}", chunk.file)
                    }
                };
                format!("predict = [{}]", accesses.iter().map(chunk).collect::<Vec<_>>().join(", "))
            }
            Saying::Bounds { floor, ceiling: 0 } => format!("bounds = {{ floor = {floor} }}"),
            Saying::Bounds { floor, ceiling } => format!("bounds = {{ floor = {floor}, ceiling = {ceiling} }}"),
        };
        let _ = writeln!(text, "[[at]]\ntenant = {}\n{at}\n{said}\n", tenant.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
        [[at]]
        predict = [{ file = 7 }, { file = 8, offset = 4096, length = 65536 }]
        set_policy = [{ priority = 1, policy = "mru" }, { priority = 0, policy = "lfu" }]

        [[at]]
        tenant = 3
        time_ns = 17
        set_priority = [{ file = 7, priority = -1 }]
        set_temporary_priority = [{ file = 7, first = 0, last = 15, priority = 2 }]
        bounds = { ceiling = 9 }
    "#;

    #[test]
    fn a_sidecar_says_who_says_what_and_when() {
        let events = parse(EXAMPLE).unwrap();
        let first = |saying| Event { when: When::Request(0), tenant: Tenant(0), saying };
        let second = |saying| Event { when: When::Time(17), tenant: Tenant(3), saying };
        let accesses = vec![Chunk { file: 7, bytes: None }, Chunk { file: 8, bytes: Some((4096, 65536)) }];
        let policy = Order::Policy("lfu".parse().unwrap());
        assert_eq!(
            events,
            [
                first(Saying::Directive(Directive::SetPolicy { priority: 1, policy: Order::Mru })),
                first(Saying::Directive(Directive::SetPolicy { priority: 0, policy })),
                first(Saying::Directive(Directive::Predict { accesses })),
                second(Saying::Directive(Directive::SetPriority { file: 7, priority: -1 })),
                second(Saying::Directive(Directive::SetTemporaryPriority { file: 7, first: 0, last: 15, priority: 2 })),
                second(Saying::Bounds { floor: 0, ceiling: 9 }),
            ]
        );
        assert_eq!(parse(&write(&events)).unwrap(), events);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            message("[[at]]\n[[at]]\nrequest = 1\ntime_ns = 2"),
            "line 2: expected either 'request' or 'time_ns', not both"
        );
        assert_eq!(
            message("[[at]]\npredict = [{ file = 1, offset = 5 }]"),
            "line 2: expected a chunk with 'file' alone, or also with 'offset' and a 'length' of at least 1"
        );
        assert!(
            message("[[at]]\n\nset_policy = [{ priority = 0, policy = \"lfru\" }]")
                .starts_with("line 3: expected lru, mru or a policy: unknown policy 'lfru'")
        );
        assert!(message("[[at]]\nset_prio = 1").starts_with("line 2: unknown field `set_prio`"));
        assert_eq!(
            message("[[at]]\nbounds = { floor = 0, ceiling = 0 }"),
            "line 2: a ceiling is from 1 to 4294967295 blocks; leave it out for none"
        );
        assert!(message("[[at]]\ntenant = -1").starts_with("line 2: "));
        assert!(message("[[at").starts_with("line 1: "));
    }
}
