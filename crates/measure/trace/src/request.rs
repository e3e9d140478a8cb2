//! The request: the common form of all formats.

use crate::{Note, Result};

/// The operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read data.
    #[default]
    Read,
    /// Write data.
    Write,
    /// Declare data no longer needed: trim, discard, unmap.
    Trim,
    /// Make everything written before durable. It has no place and no length.
    Flush,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it was issued, in nanoseconds of the trace's own clock; always 0 if the format has no time.
    pub time_ns: u64,
    /// First byte, counted within the volume.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// The file, disk or export that contains `offset`; 0 if the format has only one.
    pub volume: u32,
    /// The party charged: a process, a VM, a client; 0 if the format has none.
    pub tenant: u32,
    /// The operation.
    pub op: Op,
    /// The identity of the issuing code or file; 0 if the format has none.
    pub stream: u64,
    /// From the request to its reply, in nanoseconds; 0 if the format does not have it.
    pub latency_ns: u64,
    /// The identity of the bytes that were read or written: requests of one length with the same identity have the same bytes. 0
    /// if the format has none.
    pub content: u64,
}

impl Request {
    /// The issuer, for policies that distinguish streams: its stream, otherwise its tenant; 0 if the format has
    /// neither.
    #[inline]
    pub fn issuer(&self) -> u64 {
        if self.stream == 0 { self.tenant.into() } else { self.stream }
    }
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];

    /// The operation for which nigh's own formats have this word, in any case.
    pub fn named(word: &[u8]) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name().as_bytes().eq_ignore_ascii_case(word))
    }

    /// The word for it in nigh's own formats.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Flush => "flush",
        }
    }
}

/// A field of a request, in the order of nigh's own formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// [`Request::time_ns`].
    Time,
    /// [`Request::op`].
    Op,
    /// [`Request::volume`].
    Volume,
    /// [`Request::offset`].
    Offset,
    /// [`Request::length`].
    Length,
    /// [`Request::tenant`].
    Tenant,
    /// [`Request::stream`].
    Stream,
    /// [`Request::latency_ns`].
    Latency,
    /// [`Request::content`].
    Content,
}

impl Field {
    /// Every field.
    pub const ALL: [Field; 9] = [
        Field::Time,
        Field::Op,
        Field::Volume,
        Field::Offset,
        Field::Length,
        Field::Tenant,
        Field::Stream,
        Field::Latency,
        Field::Content,
    ];

    /// The name of its column in nigh's own formats.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Time => "time_ns",
            Field::Op => "op",
            Field::Volume => "volume",
            Field::Offset => "offset",
            Field::Length => "length",
            Field::Tenant => "tenant",
            Field::Stream => "stream",
            Field::Latency => "latency_ns",
            Field::Content => "content",
        }
    }
}

/// A source of requests in recorded order: a file being decoded, or a generator.
pub trait Requests {
    /// Replaces the contents of `batch` by the next few thousand requests. An empty batch means the end.
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()>;

    /// The progress, as a share from 0 to 1 of the whole, if it is known.
    fn progress(&self) -> Option<f64>;

    /// Notes about the requests read so far; complete after the last batch.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }
}
