//! Requests of the transmission phase: their header on the wire, and what they ask.

use crate::bytes::Reader;
use crate::reply::Tag;
use crate::wire::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, command, command_flag};
use crate::{Decoded, Framing, Header, Violation};

/// The header of a request as it stands on the wire: 28 bytes, or 32 with extended headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// A number of [`command`].
    pub command: u16,
    /// Chosen by the client; its replies repeat it.
    pub cookie: u64,
    /// First byte concerned.
    pub offset: u64,
    /// Bytes concerned, or bytes of payload that follow.
    pub length: u64,
}

impl RequestHeader {
    /// The header's bytes; `None` when the length does not fit into the 32 bits of a compact header.
    pub fn encode(&self, framing: Framing) -> Option<Header> {
        let header =
            |magic| Header::new().u32(magic).u16(self.flags).u16(self.command).u64(self.cookie).u64(self.offset);
        Some(match framing {
            Framing::Extended => header(EXTENDED_REQUEST_MAGIC).u64(self.length),
            Framing::Simple | Framing::Structured => header(REQUEST_MAGIC).u32(u32::try_from(self.length).ok()?),
        })
    }

    /// Decodes the header at the front of `input`.
    pub fn decode(framing: Framing, input: &[u8]) -> Result<Decoded<Self>, Violation> {
        let size = framing.request_header();
        let (magic, extended) = match framing {
            Framing::Extended => (EXTENDED_REQUEST_MAGIC, true),
            Framing::Simple | Framing::Structured => (REQUEST_MAGIC, false),
        };
        match input.first_chunk() {
            Some(found) if u32::from_be_bytes(*found) != magic => {
                return Err(Violation::Magic(u32::from_be_bytes(*found).into()));
            }
            _ => {}
        }
        let fields = input.get(size_of_val(&magic)..size).map(Reader);
        Ok(match fields.and_then(|fields| Self::parse(extended, fields)) {
            Some(header) => Decoded::Whole(header, size),
            None => Decoded::Need(size.saturating_sub(input.len())),
        })
    }

    fn parse(extended: bool, mut fields: Reader<'_>) -> Option<Self> {
        let (flags, command) = (fields.u16()?, fields.u16()?);
        let (cookie, offset) = (fields.u64()?, fields.u64()?);
        let length = if extended { fields.u64()? } else { fields.u32()?.into() };
        Some(Self { flags, command, cookie, offset, length })
    }
}

/// A valid request: within its export, aligned, and with flags that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client; its replies repeat it.
    pub cookie: u64,
    /// First byte concerned; 0 for a flush.
    pub offset: u64,
    /// Bytes concerned; 0 for a flush, not 0 otherwise. At most the export's maximum block size for reads and writes.
    pub length: u64,
    /// The command.
    pub command: Command,
}

impl Request {
    /// The fields that the replies to this request repeat.
    pub fn tag(&self) -> Tag {
        Tag { cookie: self.cookie, offset: self.offset }
    }
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read {
        /// Reply with at most one data chunk, zeroes included.
        dont_fragment: bool,
    },
    /// Write the payload that follows the header: `length` bytes.
    Write {
        /// Reply after the data is durable.
        fua: bool,
    },
    /// Make all writes that were replied to durable.
    Flush,
    /// Discard; the contents are then undefined.
    Trim {
        /// Reply after the effect is durable.
        fua: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Reply after the zeroes are durable.
        fua: bool,
        /// Keep the range allocated.
        no_hole: bool,
        /// Fail with [`Errno::NotSup`](crate::Errno::NotSup) rather than be as slow as a write.
        fast: bool,
    },
    /// Prefetch; a hint that may be replied to at once.
    Cache,
    /// Report the extents of every selected metadata context.
    BlockStatus {
        /// One extent per context.
        one: bool,
    },
}

impl Command {
    /// The command's number and its flags on the wire.
    pub fn to_wire(self, framing: Framing) -> (u16, u16) {
        let flag = |set, flag| if set { flag } else { 0 };
        match self {
            Self::Read { dont_fragment } => (command::READ, flag(dont_fragment, command_flag::DF)),
            Self::Write { fua } => {
                let payload = flag(framing == Framing::Extended, command_flag::PAYLOAD_LEN);
                (command::WRITE, flag(fua, command_flag::FUA) | payload)
            }
            Self::Flush => (command::FLUSH, 0),
            Self::Trim { fua } => (command::TRIM, flag(fua, command_flag::FUA)),
            Self::WriteZeroes { fua, no_hole, fast } => {
                let flags = flag(fua, command_flag::FUA)
                    | flag(no_hole, command_flag::NO_HOLE)
                    | flag(fast, command_flag::FAST_ZERO);
                (command::WRITE_ZEROES, flags)
            }
            Self::Cache => (command::CACHE, 0),
            Self::BlockStatus { one } => (command::BLOCK_STATUS, flag(one, command_flag::REQ_ONE)),
        }
    }
}
