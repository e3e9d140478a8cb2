//! Replies of the transmission phase: simple ones, and chunks of structured and extended ones.

use crate::bytes::{Reader, length_of};
use crate::wire::{EXTENDED_REPLY_MAGIC, EXTENTS_MAX, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, chunk_flag};
use crate::{Command, Context, Decoded, Errno, Extent, Header, Request, Violation};

/// How requests and replies are framed, as agreed before transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies.
    Structured,
    /// Extended requests and replies.
    Extended,
}

/// The fields of a request that its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset, which extended replies repeat.
    pub offset: u64,
}

impl Framing {
    /// Bytes of a request's header.
    pub fn request_header(self) -> usize {
        match self {
            Self::Simple | Self::Structured => 28,
            Self::Extended => 32,
        }
    }

    /// The header of a successful reply to a read as a whole; the request's `length` bytes of data follow it.
    pub fn data(self, to: Tag, length: u32) -> Header {
        match self.chunks() {
            None => Self::simple(to, 0),
            Some(chunks) => chunks.data(to, to.offset, length, true),
        }
    }

    /// The whole of a successful reply without data.
    pub fn success(self, to: Tag) -> Header {
        match self.chunks() {
            None => Self::simple(to, 0),
            Some(chunks) => chunks.end(to),
        }
    }

    /// The whole of a reply that reports an error.
    pub fn error(self, to: Tag, errno: Errno) -> Header {
        match self.chunks() {
            None => Self::simple(to, errno.number()),
            Some(chunks) => chunks.header(to, chunk::ERROR, true, 6).u32(errno.number()).u16(0),
        }
    }

    /// The chunks of which replies may consist, if replies have any.
    pub fn chunks(self) -> Option<Chunks> {
        match self {
            Self::Simple => None,
            Self::Structured => Some(Chunks { extended: false }),
            Self::Extended => Some(Chunks { extended: true }),
        }
    }

    fn simple(to: Tag, errno: u32) -> Header {
        Header::new().u32(SIMPLE_REPLY_MAGIC).u32(errno).u64(to.cookie)
    }
}

/// Chunks of a structured or extended reply. The chunk that is `last` ends its reply; chunks of different replies may
/// interleave, and those of one read may come in any order.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    extended: bool,
}

impl Chunks {
    /// The header of a part of a read: `length` bytes of data from `offset` follow it.
    pub fn data(self, to: Tag, offset: u64, length: u32, last: bool) -> Header {
        self.header(to, chunk::OFFSET_DATA, last, u64::from(length) + 8).u64(offset)
    }

    /// A part of a read that is all zeroes. Not for requests with DF, unless it is the whole.
    pub fn hole(self, to: Tag, offset: u64, length: u32, last: bool) -> Header {
        self.header(to, chunk::OFFSET_HOLE, last, 12).u64(offset).u32(length)
    }

    /// An error at one place of the request's range.
    pub fn error_at(self, to: Tag, errno: Errno, offset: u64, last: bool) -> Header {
        self.header(to, chunk::ERROR_OFFSET, last, 14).u32(errno.number()).u16(0).u64(offset)
    }

    /// The last chunk of a reply, with no contents.
    pub fn end(self, to: Tag) -> Header {
        self.header(to, chunk::NONE, true, 0)
    }

    /// Appends the chunk with the extents of one context to `out`. `extents` follow one another from the request's
    /// offset; they may reach beyond the request and have any granularity that is a multiple of the minimum block
    /// size. Equal neighbours are merged, and what the protocol does not allow in this reply is cut off. No extent at
    /// all reads as one with flags 0.
    pub fn extents(
        self,
        request: &Request,
        context: Context,
        extents: impl IntoIterator<Item = Extent>,
        last: bool,
        out: &mut Vec<u8>,
    ) {
        let most = if matches!(request.command, Command::BlockStatus { one: true }) { 1 } else { EXTENTS_MAX };
        let mut list: Vec<Extent> = Vec::new();
        let mut left = request.length;
        for Extent { length, flags } in extents.into_iter().filter(|extent| extent.length > 0) {
            let length = length.min(left);
            let full = list.len() == most;
            match list.last_mut() {
                Some(before) if before.flags == flags => before.length += length,
                _ if full => break,
                _ => list.push(Extent { length, flags }),
            }
            left -= length;
            if left == 0 {
                break;
            }
        }
        if list.is_empty() {
            list.push(Extent { length: request.length, flags: 0 });
        }
        let count = length_of(list.len());
        if self.extended {
            let length = 8 + 16 * u64::from(count);
            let header = self.header(request.tag(), chunk::BLOCK_STATUS_EXT, last, length).u32(context.id()).u32(count);
            out.extend_from_slice(&header);
            for extent in list {
                out.extend_from_slice(&extent.length.to_be_bytes());
                out.extend_from_slice(&u64::from(extent.flags).to_be_bytes());
            }
        } else {
            let length = 4 + 8 * u64::from(count);
            let header = self.header(request.tag(), chunk::BLOCK_STATUS, last, length).u32(context.id());
            out.extend_from_slice(&header);
            for extent in list {
                // A compact request's length has 32 bits, and so has everything cut to it.
                out.extend_from_slice(&u32::try_from(extent.length).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(&extent.flags.to_be_bytes());
            }
        }
    }

    fn header(self, to: Tag, kind: u16, last: bool, length: u64) -> Header {
        let flags = if last { chunk_flag::DONE } else { 0 };
        if self.extended {
            let header = Header::new().u32(EXTENDED_REPLY_MAGIC).u16(flags).u16(kind);
            header.u64(to.cookie).u64(to.offset).u64(length)
        } else {
            // `BlockSizes::maximum` and `EXTENTS_MAX` keep payloads far below 4 GiB.
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            Header::new().u32(STRUCTURED_REPLY_MAGIC).u16(flags).u16(kind).u64(to.cookie).u32(length)
        }
    }
}

/// The header of a reply as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply; the data of a successful read follows.
    Simple {
        /// 0 for success.
        errno: u32,
        /// The request's cookie.
        cookie: u64,
    },
    /// A chunk of a structured or extended reply.
    Chunk {
        /// Bits of [`chunk_flag`].
        flags: u16,
        /// A number of [`chunk`].
        kind: u16,
        /// The request's cookie.
        cookie: u64,
        /// Bytes of payload that follow.
        length: u64,
    },
}

impl ReplyHeader {
    /// Decodes the header at the front of `input`.
    pub fn decode(framing: Framing, input: &[u8]) -> Result<Decoded<Self>, Violation> {
        let Some(magic) = Reader(input).u32() else {
            return Ok(Decoded::Need(4 - input.len()));
        };
        let size = match (framing, magic) {
            (Framing::Simple | Framing::Structured, SIMPLE_REPLY_MAGIC) => 16,
            (Framing::Structured, STRUCTURED_REPLY_MAGIC) => 20,
            (Framing::Extended, EXTENDED_REPLY_MAGIC) => 32,
            _ => return Err(Violation::Magic(magic.into())),
        };
        Ok(match Self::parse(Reader(input)) {
            Some(header) => Decoded::Whole(header, size),
            None => Decoded::Need(size.saturating_sub(input.len())),
        })
    }

    fn parse(mut input: Reader<'_>) -> Option<Self> {
        match input.u32()? {
            SIMPLE_REPLY_MAGIC => Some(Self::Simple { errno: input.u32()?, cookie: input.u64()? }),
            magic => {
                let (flags, kind, cookie) = (input.u16()?, input.u16()?, input.u64()?);
                let length = if magic == EXTENDED_REPLY_MAGIC {
                    let _offset = input.u64()?;
                    input.u64()?
                } else {
                    input.u32()?.into()
                };
                Some(Self::Chunk { flags, kind, cookie, length })
            }
        }
    }
}
