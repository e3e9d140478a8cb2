//! What every format is read into and written from.

use crate::{Note, Result};

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read data.
    #[default]
    Read,
    /// Write data.
    Write,
    /// Declare data no longer needed: trim, discard, unmap.
    Trim,
    /// Make what was written durable. It has no place and no length.
    Flush,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it was issued, in nanoseconds on the trace's own clock; 0 throughout where the format has no time.
    pub time_ns: u64,
    /// First byte, counted within the volume.
    pub offset: u64,
    /// Bytes asked for.
    pub length: u32,
    /// Which file, disk or export `offset` counts in; 0 where the format has only one.
    pub volume: u32,
    /// Who is charged: a process, a VM, a client; 0 where the format does not say.
    pub tenant: u32,
    /// What is asked for.
    pub op: Op,
    /// The identity of the issuing code or file; 0 where the format does not say.
    pub stream: u64,
}

impl Request {
    /// Who issued it, for policies that tell streams apart: its stream, or else its tenant; 0 where the format names neither.
    #[inline]
    pub fn issuer(&self) -> u64 {
        if self.stream == 0 { self.tenant.into() } else { self.stream }
    }
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];

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
}

impl Field {
    /// Every field.
    pub const ALL: [Field; 7] =
        [Field::Time, Field::Op, Field::Volume, Field::Offset, Field::Length, Field::Tenant, Field::Stream];

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
        }
    }
}

/// A source of requests in recorded order: a file being decoded, or a generator.
pub trait Requests {
    /// Replaces what is in `batch` by the next few thousand requests. An empty batch means the end.
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()>;

    /// How far it is, as a share from 0 to 1 of the whole, where that is known.
    fn progress(&self) -> Option<f64>;

    /// What is to be known about what was read so far, complete after the last batch.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }
}
