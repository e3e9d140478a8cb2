//! The server's side of the transmission phase.

use crate::wire::{command, command_flag};
use crate::{
    BlockSizes, Command, Contexts, Decoded, Errno, Export, Features, Framing, Request, RequestHeader, Tag, Violation,
};

/// The server's side of a session after negotiation: takes headers of requests and yields the requests that are valid.
/// Allocates nothing.
#[derive(Clone, Debug)]
pub struct Transmission {
    export: usize,
    size: u64,
    features: Features,
    blocks: BlockSizes,
    framing: Framing,
    contexts: Contexts,
    /// Bytes of payload still to be passed over before the next header.
    skip: u64,
    /// The write whose payload is passed over, and its error.
    refused: Option<(Tag, Errno)>,
}

/// Result of a step of a [`Transmission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// At least this many more bytes must be received before the next step (never 0).
    Need(usize),
    /// To be served and replied to. After the header of a [`Command::Write`] its payload follows in the stream, and
    /// the host must take those `length` bytes out itself, or call [`Transmission::skip`], before the next step.
    Request(Request),
    /// To be replied to with this error; nothing else is to be done. The payload of a write has been passed over: clients
    /// such as libnbd expect no reply while they send it.
    Refused {
        /// The request's tag.
        tag: Tag,
        /// Why it is refused.
        errno: Errno,
    },
    /// The client ends the session: what is in flight is to be replied to, then the connection closed.
    Disconnect,
}

impl Transmission {
    /// The transmission phase of the export with this index, as its negotiation ended.
    pub(crate) fn new(index: usize, export: &Export, framing: Framing, contexts: Contexts) -> Self {
        let Export { size, features, blocks, .. } = *export;
        Self { export: index, size, features, blocks, framing, contexts, skip: 0, refused: None }
    }

    /// The index of the chosen export in the list that was given to the negotiation.
    pub fn export(&self) -> usize {
        self.export
    }

    /// How replies are framed.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The contexts of which BLOCK_STATUS wants one chunk each.
    pub fn contexts(&self) -> Contexts {
        self.contexts
    }

    /// Sets the export's present size in bytes. The client still has the size that was negotiated.
    pub fn resize(&mut self, size: u64) {
        self.size = size;
    }

    /// Sets whether writes are refused from now on. The client still has the negotiated flags.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.features.read_only = read_only;
    }

    /// Has the next `length` bytes of the stream passed over: the payload of a write that the host cannot take.
    pub fn skip(&mut self, length: u64) {
        self.skip += length;
    }

    /// Takes one request from the front of `input`, which is everything received and not yet consumed. Returns how
    /// many bytes were consumed. After a violation the connection must be closed.
    pub fn step(&mut self, input: &[u8]) -> Result<(usize, Event), Violation> {
        let mut used = 0;
        if self.skip > 0 {
            used = usize::try_from(self.skip).map_or(input.len(), |skip| skip.min(input.len()));
            self.skip -= used as u64;
            if self.skip > 0 {
                return Ok((used, Event::Need(usize::try_from(self.skip).unwrap_or(usize::MAX))));
            }
        }
        if let Some((tag, errno)) = self.refused.take() {
            return Ok((used, Event::Refused { tag, errno }));
        }
        let rest = input.get(used..).unwrap_or_default();
        let (header, length) = match RequestHeader::decode(self.framing, rest)? {
            Decoded::Need(more) => return Ok((used, Event::Need(more))),
            Decoded::Whole(header, length) => (header, length),
        };
        used += length;
        if header.command == command::DISC {
            return Ok((used, Event::Disconnect));
        }
        let payload = self.payload(&header)?;
        match self.validate(&header) {
            Ok(command) => {
                let RequestHeader { cookie, offset, length, .. } = header;
                Ok((used, Event::Request(Request { cookie, offset, length, command })))
            }
            Err(errno) => {
                let tag = Tag { cookie: header.cookie, offset: header.offset };
                (self.skip, self.refused) = (payload, Some((tag, errno)));
                let (more, event) = self.step(rest.get(length..).unwrap_or_default())?;
                Ok((used + more, event))
            }
        }
    }

    /// Bytes of payload that follow the header. A compact write of any length is passed over when it is refused; the
    /// protocol has a server hang up on an extended payload that is too long.
    fn payload(&self, header: &RequestHeader) -> Result<u64, Violation> {
        let RequestHeader { flags, command, length, .. } = *header;
        if self.framing != Framing::Extended {
            Ok(if command == command::WRITE { length } else { 0 })
        } else if flags & command_flag::PAYLOAD_LEN == 0 {
            Ok(0)
        } else if length > u64::from(self.blocks.maximum) {
            Err(Violation::PayloadTooLong { length, maximum: self.blocks.maximum })
        } else {
            Ok(length)
        }
    }

    fn validate(&self, header: &RequestHeader) -> Result<Command, Errno> {
        let RequestHeader { offset, length, .. } = *header;
        let command = self.command(header)?;
        let writes = matches!(command, Command::Write { .. } | Command::WriteZeroes { .. } | Command::Trim { .. });
        if writes && self.features.read_only {
            return Err(Errno::Perm);
        }
        if command == Command::Flush {
            return if offset == 0 && length == 0 { Ok(command) } else { Err(Errno::Inval) };
        }
        let alignment = u64::from(self.blocks.minimum) - 1;
        if length == 0 || (offset | length) & alignment != 0 {
            return Err(Errno::Inval);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let grows = matches!(command, Command::Write { .. } | Command::WriteZeroes { .. });
            return Err(if grows { Errno::NoSpc } else { Errno::Inval });
        }
        let too_long = length > u64::from(self.blocks.maximum);
        match command {
            Command::Read { dont_fragment: true } if too_long => Err(Errno::Overflow),
            Command::Read { .. } | Command::Write { .. } if too_long => Err(Errno::Inval),
            _ => Ok(command),
        }
    }

    /// The command with its flags, provided that both were offered to the client.
    fn command(&self, header: &RequestHeader) -> Result<Command, Errno> {
        let Features { read_only, fua, flush, trim, write_zeroes, fast_zero, cache, .. } = self.features;
        let has = |flag| header.flags & flag != 0;
        let has_fua = has(command_flag::FUA);
        let (command, offered, allowed) = match header.command {
            command::READ => {
                let df = if self.framing == Framing::Simple { 0 } else { command_flag::DF };
                (Command::Read { dont_fragment: has(command_flag::DF) }, true, df)
            }
            command::WRITE => {
                let extended = self.framing == Framing::Extended;
                let payload = if extended { command_flag::PAYLOAD_LEN } else { 0 };
                (Command::Write { fua: has_fua }, !extended || has(command_flag::PAYLOAD_LEN), payload)
            }
            command::FLUSH => (Command::Flush, flush, 0),
            // Commands that a read-only export does not announce are still EPERM rather than EINVAL.
            command::TRIM => (Command::Trim { fua: has_fua }, trim || read_only, 0),
            command::WRITE_ZEROES => {
                let fast = if fast_zero { command_flag::FAST_ZERO } else { 0 };
                let command = Command::WriteZeroes {
                    fua: has_fua,
                    no_hole: has(command_flag::NO_HOLE),
                    fast: has(command_flag::FAST_ZERO),
                };
                (command, write_zeroes || read_only, command_flag::NO_HOLE | fast)
            }
            command::CACHE => (Command::Cache, cache, 0),
            command::BLOCK_STATUS => {
                let command = Command::BlockStatus { one: has(command_flag::REQ_ONE) };
                (command, !self.contexts.is_empty(), command_flag::REQ_ONE)
            }
            _ => return Err(Errno::Inval),
        };
        let allowed = allowed | if fua { command_flag::FUA } else { 0 };
        if offered && header.flags & !allowed == 0 { Ok(command) } else { Err(Errno::Inval) }
    }
}
