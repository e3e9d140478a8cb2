//! Replies to a client's requests, from the bytes that it received. No I/O, and no payload is kept.

use std::ops::Range;

use super::{Failure, Unexpected};
use crate::bytes::Reader;
use crate::wire::{EXTENTS_MAX, STRING_MAX, chunk, chunk_flag, command};
use crate::{Decoded, Errno, Extent, Framing, ReplyHeader, Violation};

/// The parts of a client's request that the replies depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The command, of [`wire::command`](crate::wire::command).
    pub command: u16,
    /// First byte concerned.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
}

/// A part of the reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes of a read. They lie within the request.
    Data {
        /// The request's cookie.
        cookie: u64,
        /// Their beginning in the export.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A stretch of a read that is all zeroes. It lies within the request.
    Zeroes {
        /// The request's cookie.
        cookie: u64,
        /// Its beginning in the export.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The extents of one metadata context, from the request's offset on.
    Extents {
        /// The request's cookie.
        cookie: u64,
        /// The context's number, as negotiated.
        context: u32,
        /// Its extents, at least one.
        extents: Vec<Extent>,
    },
    /// The request failed. The first failure of a reply counts; the reply may go on.
    Failed {
        /// The request's cookie.
        cookie: u64,
        /// How.
        failure: Failure,
    },
    /// The reply is complete.
    Done {
        /// The request's cookie.
        cookie: u64,
    },
}

/// How a server's replies cannot be followed any further; the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A header that is none.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A reply that makes no sense here.
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
}

/// The next part of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Header,
    /// The offset of a data chunk that has this many bytes of payload.
    Offset {
        cookie: u64,
        length: u64,
        last: bool,
    },
    /// Data of a read.
    Data {
        cookie: u64,
        offset: u64,
        left: u64,
        last: bool,
    },
    /// The payload of another chunk, as a whole.
    Payload {
        kind: u16,
        cookie: u64,
        length: usize,
        last: bool,
    },
    /// Nothing: the reply is complete.
    End {
        cookie: u64,
    },
}

/// The replies on one connection.
#[derive(Debug)]
pub struct Replies {
    framing: Framing,
    state: State,
}

impl Replies {
    /// At the beginning of the transmission phase.
    pub fn new(framing: Framing) -> Self {
        Self { framing, state: State::Header }
    }

    /// Takes a part of a reply from the front of `input`: the part, if there is one yet, and how many bytes were taken.
    /// `asked` returns the request of a cookie, if it is in flight on this connection.
    pub fn step<'a>(
        &mut self,
        input: &'a [u8],
        asked: impl FnOnce(u64) -> Option<Asked>,
    ) -> Result<Decoded<Option<Part<'a>>>, ReplyError> {
        let ended = |cookie, last| if last { State::End { cookie } } else { State::Header };
        let whole = |part, taken| Ok(Decoded::Whole(part, taken));
        match self.state {
            State::Header => {
                let (header, taken) = match ReplyHeader::decode(self.framing, input)? {
                    Decoded::Whole(header, taken) => (header, taken),
                    Decoded::Need(more) => return Ok(Decoded::Need(more)),
                };
                let part = match header {
                    ReplyHeader::Simple { errno, cookie } => {
                        let asked = asked(cookie).ok_or(Unexpected::Cookie)?;
                        self.simple(asked, cookie, errno)?
                    }
                    ReplyHeader::Chunk { flags, kind, cookie, length } => {
                        let asked = asked(cookie).ok_or(Unexpected::Cookie)?;
                        self.state = chunk_of(asked, flags, kind, cookie, length)?;
                        None
                    }
                };
                whole(part, taken)
            }
            State::Offset { cookie, length, last } => {
                let Some(offset) = Reader(input).u64() else { return Ok(Decoded::Need(8 - input.len())) };
                let asked = asked(cookie).ok_or(Unexpected::Cookie)?;
                check_range(asked, offset, length)?;
                self.state = State::Data { cookie, offset, left: length, last };
                whole(None, 8)
            }
            State::Data { cookie, offset, left, last } => {
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let bytes = input.get(..input.len().min(most)).unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(Decoded::Need(most.max(1)));
                }
                let taken = bytes.len() as u64;
                let left = left - taken;
                self.state = if left > 0 {
                    State::Data { cookie, offset: offset + taken, left, last }
                } else {
                    ended(cookie, last)
                };
                whole(Some(Part::Data { cookie, offset, bytes }), bytes.len())
            }
            State::Payload { kind, cookie, length, last } => {
                let Some(payload) = input.get(..length) else { return Ok(Decoded::Need(length - input.len())) };
                let asked = asked(cookie).ok_or(Unexpected::Cookie)?;
                let part = parse_payload(asked, kind, cookie, payload)?;
                self.state = ended(cookie, last);
                whole(Some(part), length)
            }
            State::End { cookie } => {
                self.state = State::Header;
                whole(Some(Part::Done { cookie }), 0)
            }
        }
    }

    fn simple<'a>(&mut self, asked: Asked, cookie: u64, errno: u32) -> Result<Option<Part<'a>>, Unexpected> {
        let is_read = asked.command == command::READ;
        if is_read && self.framing != Framing::Simple {
            return Err(Unexpected::SimpleRead);
        }
        if errno != 0 {
            self.state = State::End { cookie };
            let failure = Failure { errno: Errno::from_number(errno), message: String::new() };
            return Ok(Some(Part::Failed { cookie, failure }));
        }
        self.state = match is_read {
            true => State::Data { cookie, offset: asked.offset, left: asked.length, last: true },
            false => State::End { cookie },
        };
        Ok(None)
    }
}

/// The state after the header of a chunk.
pub(super) fn chunk_of(asked: Asked, flags: u16, kind: u16, cookie: u64, length: u64) -> Result<State, Unexpected> {
    let last = flags & chunk_flag::DONE != 0;
    let fits = match kind {
        chunk::NONE => length == 0,
        chunk::OFFSET_DATA => asked.command == command::READ && length > 8,
        chunk::OFFSET_HOLE => asked.command == command::READ && length == 12,
        chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
            asked.command == command::BLOCK_STATUS && length <= 8 + 16 * EXTENTS_MAX as u64
        }
        _ => kind & chunk::ERROR_BIT != 0 && length <= 14 + STRING_MAX as u64,
    };
    match kind {
        _ if !fits => Err(Unexpected::Chunk),
        chunk::NONE if last => Ok(State::End { cookie }),
        chunk::NONE => Ok(State::Header),
        chunk::OFFSET_DATA => Ok(State::Offset { cookie, length: length - 8, last }),
        _ => Ok(State::Payload { kind, cookie, length: usize::try_from(length).unwrap_or(usize::MAX), last }),
    }
}

pub(super) fn parse_payload<'a>(asked: Asked, kind: u16, cookie: u64, payload: &[u8]) -> Result<Part<'a>, Unexpected> {
    match kind {
        chunk::OFFSET_HOLE => {
            let mut payload = Reader(payload);
            let (offset, length) = (|| Some((payload.u64()?, payload.u32()?.into())))().ok_or(Unexpected::Chunk)?;
            check_range(asked, offset, length)?;
            Ok(Part::Zeroes { cookie, offset, length })
        }
        chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
            let parsed = parse_extents(payload, kind == chunk::BLOCK_STATUS_EXT);
            let (context, extents) = parsed.ok_or(Unexpected::Chunk)?;
            Ok(Part::Extents { cookie, context, extents })
        }
        _ => {
            let failure = parse_failure(payload).ok_or(Unexpected::Chunk)?;
            Ok(Part::Failed { cookie, failure })
        }
    }
}

/// An error unless the range is not empty and within the request.
fn check_range(asked: Asked, offset: u64, length: u64) -> Result<(), Unexpected> {
    let within = offset.checked_sub(asked.offset).and_then(|begin| begin.checked_add(length));
    let fits = length > 0 && within.is_some_and(|end| end <= asked.length);
    if fits { Ok(()) } else { Err(Unexpected::Chunk) }
}

/// The number of a context and its extents.
fn parse_extents(payload: &[u8], extended: bool) -> Option<(u32, Vec<Extent>)> {
    let mut payload = Reader(payload);
    let id = payload.u32()?;
    let count = if extended { payload.u32()? } else { 0 };
    let mut extents = Vec::new();
    while !payload.0.is_empty() {
        let (length, flags) = if extended {
            (payload.u64()?, u32::try_from(payload.u64()?).ok()?)
        } else {
            (payload.u32()?.into(), payload.u32()?)
        };
        if length == 0 {
            return None;
        }
        extents.push(Extent { length, flags });
    }
    let counted = count == 0 || count as usize == extents.len();
    (counted && !extents.is_empty()).then_some((id, extents))
}

fn parse_failure(payload: &[u8]) -> Option<Failure> {
    let mut payload = Reader(payload);
    let (errno, length) = (payload.u32()?, payload.u16()?);
    let message = String::from_utf8_lossy(payload.take(length.into())?).into_owned();
    Some(Failure { errno: Errno::from_number(errno), message })
}

/// Which bytes of a read have arrived. Chunks may come in any order, but no byte twice.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// In order; neighbours do not touch.
    ranges: Vec<Range<u64>>,
}

impl Coverage {
    /// Most pieces with gaps between them. Servers send a read in a few chunks, usually in order.
    const PIECES_MAX: usize = 1024;

    /// Adds the range of a [`Part::Data`] or [`Part::Zeroes`].
    pub fn add(&mut self, offset: u64, length: u64) -> Result<(), Unexpected> {
        let end = offset.checked_add(length).ok_or(Unexpected::Chunk)?;
        let at = self.ranges.partition_point(|range| range.end < offset);
        let before = self.ranges.get(at).filter(|range| range.end == offset).map(|_| at);
        let next = if before.is_some() { at + 1 } else { at };
        let after = self.ranges.get(next);
        if after.is_some_and(|range| range.start < end) || self.ranges.len() >= Self::PIECES_MAX {
            return Err(Unexpected::Chunk);
        }
        let joins = after.filter(|range| range.start == end).map(|range| range.end);
        let end = joins.unwrap_or(end);
        match (before.and_then(|at| self.ranges.get_mut(at)), joins) {
            (Some(range), None) => range.end = end,
            (Some(range), Some(_)) => {
                range.end = end;
                self.ranges.remove(next);
            }
            (None, Some(_)) => {
                if let Some(range) = self.ranges.get_mut(next) {
                    range.start = offset;
                }
            }
            (None, None) => self.ranges.insert(at, offset..end),
        }
        Ok(())
    }

    /// Whether all of `range` has arrived.
    pub fn is_whole(&self, range: &Range<u64>) -> bool {
        self.ranges.first().is_some_and(|first| first.start <= range.start && first.end >= range.end)
    }
}
