//! A blocking client over anything that reads and writes.
//!
//! [`Handshake`] negotiates; [`Client`] transmits, either one call at a time ([`Client::read`], [`Client::write`] …) or
//! with many requests in flight ([`Client::submit`] and its siblings, [`Client::receive`]).

mod handshake;
mod replies;

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, IoSlice, Read, Write};

pub use handshake::{ExportInfo, Handshake, Negotiated};
pub use replies::{Asked, Coverage, Part, Replies, ReplyError};
use replies::{State, chunk_of, parse_payload};

use crate::handshake::Malformed;
use crate::wire::{chunk_flag, command, option_reply};
use crate::{Command, Decoded, Errno, Extent, Framing, ReplyHeader, RequestHeader, Violation};

/// Why a client's call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed or was closed.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    /// The server's stream cannot be followed.
    #[error("protocol: {0}")]
    Violation(#[from] Violation),
    /// The server's answer to an option has malformed data.
    #[error("option reply: {0}")]
    Malformed(#[from] Malformed),
    /// The server's answer makes no sense here.
    #[error("protocol: {0}")]
    Unexpected(Unexpected),
    /// The server refused an option.
    #[error("{}", refusal(*option, *kind, message))]
    Refused {
        /// The option, of [`wire::option`](crate::wire::option).
        option: u32,
        /// The kind of refusal, of [`wire::option_reply`](crate::wire::option_reply).
        kind: u32,
        /// The server's words, possibly none.
        message: String,
    },
    /// The server failed a command.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The request's length does not fit into its header.
    #[error("{0} bytes in one request")]
    TooLong(u64),
    /// A read or write was submitted without its buffer.
    #[error("reads and writes are submitted with their buffer")]
    NeedsBuffer,
}

/// A refusal in words, with those of the server.
fn refusal(option: u32, kind: u32, message: &str) -> String {
    let words = match kind {
        option_reply::ERR_UNSUP => "the server does not know the option",
        option_reply::ERR_POLICY => "the server does not permit it",
        option_reply::ERR_INVALID => "the server finds the option invalid",
        option_reply::ERR_PLATFORM => "the server's platform does not support it",
        option_reply::ERR_TLS_REQD => "the server requires TLS",
        option_reply::ERR_UNKNOWN => "the server has no such export",
        option_reply::ERR_SHUTDOWN => "the server is shutting down",
        option_reply::ERR_BLOCK_SIZE_REQD => "the server requires a client that asks for block sizes",
        option_reply::ERR_TOO_BIG => "the server finds the option too long",
        option_reply::ERR_EXT_HEADER_REQD => "the server requires extended headers",
        _ => return format!("the server refused option {option} with {kind:#x} {message}"),
    };
    if message.is_empty() { words.to_owned() } else { format!("{words}: {message}") }
}

/// A message of a server that a client cannot interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    /// A greeting without fixed newstyle.
    #[error("a server that does not speak fixed newstyle")]
    NotFixedNewstyle,
    /// A reply to another option than the one sent, or of a type that does not belong to it.
    #[error("an option reply that does not belong to its option")]
    OptionReply,
    /// More data than any option reply needs.
    #[error("an oversized option reply")]
    OptionReplyLength,
    /// GO succeeded without telling size and flags.
    #[error("no information on the export")]
    NoExport,
    /// A reply to no request in flight.
    #[error("a reply to no request in flight")]
    Cookie,
    /// A simple reply to a read after chunks were agreed.
    #[error("a simple reply to a read")]
    SimpleRead,
    /// A chunk that does not belong to its request, or of the wrong length.
    #[error("a chunk that does not belong to its request")]
    Chunk,
    /// A read ended as a success without all of its data.
    #[error("a read without all of its data")]
    Incomplete,
}

/// How a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno} {message}")]
pub struct Failure {
    /// The error.
    pub errno: Errno,
    /// The server's words, possibly none.
    pub message: String,
}

/// A result of the client.
pub type Result<T> = std::result::Result<T, Error>;

/// The extents of one metadata context, from the request's offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The context's name.
    pub context: String,
    /// Its extents.
    pub extents: Vec<Extent>,
}

/// A request that was replied to.
#[derive(Debug)]
pub struct Completion {
    /// The cookie that its submission returned.
    pub cookie: u64,
    /// The buffer of a read, filled if `result` is a success; otherwise empty.
    pub buffer: Vec<u8>,
    /// Result of a block status request.
    pub status: Vec<Status>,
    /// Whether it succeeded.
    pub result: std::result::Result<(), Failure>,
}

/// A request in flight.
struct Pending {
    command: u16,
    offset: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that chunks have covered.
    covered: usize,
    status: Vec<Status>,
    failure: Option<Failure>,
}

/// A connection in the transmission phase.
///
/// With many requests in flight, a client that only submits and a server that only replies may wait for each other once
/// the socket is full in both directions: keep writes in flight below the socket's buffers, or receive between them.
pub struct Client<S: Read + Write> {
    stream: BufReader<S>,
    export: ExportInfo,
    framing: Framing,
    contexts: Vec<(u32, String)>,
    cookie: u64,
    pending: HashMap<u64, Pending>,
    /// Completions that arrived while another one was waited for.
    ready: VecDeque<Completion>,
}

impl<S: Read + Write> Client<S> {
    /// Negotiates `export` with structured replies and the metadata contexts of these names, as far as the server knows
    /// them.
    pub fn connect(stream: S, export: &str, contexts: &[&str]) -> Result<Self> {
        let mut handshake = Handshake::begin(stream)?;
        if handshake.structured_replies()? && !contexts.is_empty() {
            handshake.set_contexts(export, contexts)?;
        }
        handshake.go(export)
    }

    fn new(stream: S, export: ExportInfo, framing: Framing, contexts: Vec<(u32, String)>) -> Self {
        let stream = BufReader::with_capacity(64 << 10, stream);
        Self { stream, export, framing, contexts, cookie: 0, pending: HashMap::new(), ready: VecDeque::new() }
    }

    /// The export, as the server described it.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// How requests and replies are framed.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Whether a reply, or a part of one, was read from the stream already: a caller that polls the stream calls
    /// [`Client::receive`] then without polling.
    pub fn has_buffered(&self) -> bool {
        !self.ready.is_empty() || !self.stream.buffer().is_empty()
    }

    /// Asks to fill the whole of `buffer`, which the completion gives back. Returns the request's cookie.
    pub fn submit_read(&mut self, offset: u64, buffer: Vec<u8>) -> Result<u64> {
        let length = buffer.len() as u64;
        self.send(Command::Read { dont_fragment: false }, offset, length, &[], buffer)
    }

    /// Asks to write `data`. Returns the request's cookie.
    pub fn submit_write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<u64> {
        self.send(Command::Write { fua }, offset, data.len() as u64, data, Vec::new())
    }

    /// Asks for a command that is neither a read nor a write. Returns the request's cookie.
    ///
    /// # Errors
    /// [`Error::NeedsBuffer`] for a read or write.
    pub fn submit(&mut self, command: Command, offset: u64, length: u64) -> Result<u64> {
        if matches!(command, Command::Read { .. } | Command::Write { .. }) {
            return Err(Error::NeedsBuffer);
        }
        self.send(command, offset, length, &[], Vec::new())
    }

    fn send(&mut self, command: Command, offset: u64, length: u64, data: &[u8], buffer: Vec<u8>) -> Result<u64> {
        self.cookie += 1;
        let cookie = self.cookie;
        let (command, flags) = command.to_wire(self.framing);
        let header = RequestHeader { flags, command, cookie, offset, length };
        let header = header.encode(self.framing).ok_or(Error::TooLong(length))?;
        write_both(self.stream.get_mut(), &header, data)?;
        let pending = Pending { command, offset, buffer, covered: 0, status: Vec::new(), failure: None };
        self.pending.insert(cookie, pending);
        Ok(cookie)
    }

    /// Waits for the next request to complete, in the server's order.
    pub fn receive(&mut self) -> Result<Completion> {
        match self.ready.pop_front() {
            Some(completion) => Ok(completion),
            None => self.next(),
        }
    }

    fn next(&mut self) -> Result<Completion> {
        loop {
            let done = match self.header()? {
                ReplyHeader::Simple { errno, cookie } => {
                    self.simple(cookie, errno)?;
                    Some(cookie)
                }
                ReplyHeader::Chunk { flags, kind, cookie, length } => {
                    self.chunk(cookie, flags, kind, length)?;
                    (flags & chunk_flag::DONE != 0).then_some(cookie)
                }
            };
            if let Some(cookie) = done {
                return self.complete(cookie);
            }
        }
    }

    fn header(&mut self) -> Result<ReplyHeader> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        loop {
            match ReplyHeader::decode(self.framing, bytes.get(..filled).unwrap_or_default())? {
                Decoded::Whole(header, _) => return Ok(header),
                Decoded::Need(more) => {
                    let room = bytes.get_mut(filled..filled + more).unwrap_or_default();
                    self.stream.read_exact(room)?;
                    filled += more;
                }
            }
        }
    }

    fn pending(&mut self, cookie: u64) -> Result<&mut Pending> {
        self.pending.get_mut(&cookie).ok_or(Error::Unexpected(Unexpected::Cookie))
    }

    fn simple(&mut self, cookie: u64, errno: u32) -> Result<()> {
        let Self { pending, stream, framing, .. } = self;
        let pending = pending.get_mut(&cookie).ok_or(Error::Unexpected(Unexpected::Cookie))?;
        let read = pending.command == command::READ;
        if read && *framing != Framing::Simple {
            return Err(Error::Unexpected(Unexpected::SimpleRead));
        }
        if errno != 0 {
            pending.failure = Some(Failure { errno: Errno::from_number(errno), message: String::new() });
        } else if read {
            stream.read_exact(&mut pending.buffer)?;
            pending.covered = pending.buffer.len();
        }
        Ok(())
    }

    fn chunk(&mut self, cookie: u64, flags: u16, kind: u16, length: u64) -> Result<()> {
        let unexpected = || Error::Unexpected(Unexpected::Chunk);
        let asked = self.pending(cookie)?.asked();
        match chunk_of(asked, flags, kind, cookie, length).map_err(Error::Unexpected)? {
            State::Offset { length, .. } => {
                let Self { pending, stream, .. } = self;
                let pending = pending.get_mut(&cookie).ok_or_else(unexpected)?;
                let mut offset = [0; 8];
                stream.read_exact(&mut offset)?;
                let room = pending.room(u64::from_be_bytes(offset), length).ok_or_else(unexpected)?;
                stream.read_exact(room)?;
            }
            State::Payload { length, .. } => {
                let payload = self.payload(length as u64)?;
                match parse_payload(asked, kind, cookie, &payload).map_err(Error::Unexpected)? {
                    Part::Zeroes { offset, length, .. } => {
                        self.pending(cookie)?.room(offset, length).ok_or_else(unexpected)?.fill(0);
                    }
                    Part::Extents { context, extents, .. } => self.extents(cookie, context, extents)?,
                    Part::Failed { failure, .. } => {
                        self.pending(cookie)?.failure.get_or_insert(failure);
                    }
                    Part::Data { .. } | Part::Done { .. } => return Err(unexpected()),
                }
            }
            State::Header | State::Data { .. } | State::End { .. } => {}
        }
        Ok(())
    }

    fn extents(&mut self, cookie: u64, context: u32, extents: Vec<Extent>) -> Result<()> {
        let unexpected = || Error::Unexpected(Unexpected::Chunk);
        let (_, context) = self.contexts.iter().find(|&&(known, _)| known == context).ok_or_else(unexpected)?;
        let status = Status { context: context.clone(), extents };
        let known = &mut self.pending(cookie)?.status;
        if known.iter().any(|known| known.context == status.context) {
            return Err(unexpected());
        }
        known.push(status);
        Ok(())
    }

    fn payload(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        self.stream.by_ref().take(length).read_to_end(&mut payload)?;
        if payload.len() as u64 == length {
            Ok(payload)
        } else {
            Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
        }
    }

    fn complete(&mut self, cookie: u64) -> Result<Completion> {
        let pending = self.pending.remove(&cookie).ok_or(Error::Unexpected(Unexpected::Cookie))?;
        let Pending { buffer, covered, status, failure, .. } = pending;
        let result = match failure {
            Some(failure) => Err(failure),
            None if covered < buffer.len() => return Err(Error::Unexpected(Unexpected::Incomplete)),
            None => Ok(()),
        };
        Ok(Completion { cookie, buffer, status, result })
    }

    /// Waits for one request to complete, and keeps what else completes for [`Client::receive`].
    fn wait(&mut self, cookie: u64) -> Result<Completion> {
        loop {
            let completion = self.next()?;
            if completion.cookie == cookie {
                completion.result.clone()?;
                return Ok(completion);
            }
            self.ready.push_back(completion);
        }
    }

    /// Reads `length` bytes.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let cookie = self.submit_read(offset, vec![0; length])?;
        Ok(self.wait(cookie)?.buffer)
    }

    /// Writes `data`.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let cookie = self.submit_write(offset, data, false)?;
        self.wait(cookie).map(drop)
    }

    /// Makes all writes that were replied to durable.
    pub fn flush(&mut self) -> Result<()> {
        self.call(Command::Flush, 0, 0)
    }

    /// Discards a range.
    pub fn trim(&mut self, offset: u64, length: u64) -> Result<()> {
        self.call(Command::Trim { fua: false }, offset, length)
    }

    /// Makes a range read as zeroes.
    pub fn zero(&mut self, offset: u64, length: u64) -> Result<()> {
        self.call(Command::WriteZeroes { fua: false, no_hole: false, fast: false }, offset, length)
    }

    /// Has a range prefetched.
    pub fn cache(&mut self, offset: u64, length: u64) -> Result<()> {
        self.call(Command::Cache, offset, length)
    }

    /// The extents of a range in every context that was selected; the server may describe less than the range.
    pub fn block_status(&mut self, offset: u64, length: u64) -> Result<Vec<Status>> {
        let cookie = self.submit(Command::BlockStatus { one: false }, offset, length)?;
        Ok(self.wait(cookie)?.status)
    }

    fn call(&mut self, command: Command, offset: u64, length: u64) -> Result<()> {
        let cookie = self.submit(command, offset, length)?;
        self.wait(cookie).map(drop)
    }

    /// Ends the session and gives the stream back. Requests in flight are still served, but their replies not awaited.
    pub fn disconnect(self) -> Result<S> {
        let header = RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, length: 0 };
        let mut stream = self.stream.into_inner();
        if let Some(header) = header.encode(self.framing) {
            stream.write_all(&header)?;
        }
        stream.flush()?;
        Ok(stream)
    }
}

impl Pending {
    /// The parts of a request that replies depend on. Only reads have a length here: it limits their chunks.
    fn asked(&self) -> Asked {
        Asked { command: self.command, offset: self.offset, length: self.buffer.len() as u64 }
    }

    /// The part of the buffer that a chunk fills; `None` unless it is not empty and within the request.
    fn room(&mut self, offset: u64, length: u64) -> Option<&mut [u8]> {
        let begin = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let length = usize::try_from(length).ok().filter(|&length| length > 0)?;
        let room = self.buffer.get_mut(begin..begin.checked_add(length)?)?;
        self.covered += length;
        Some(room)
    }
}

/// Writes a header and its payload, at once where the stream can.
fn write_both(stream: &mut impl Write, header: &[u8], payload: &[u8]) -> std::io::Result<()> {
    let written = match stream.write_vectored(&[IoSlice::new(header), IoSlice::new(payload)]) {
        Ok(written) => written,
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
        Err(error) => return Err(error),
    };
    stream.write_all(header.get(written..).unwrap_or_default())?;
    stream.write_all(payload.get(written.saturating_sub(header.len())..).unwrap_or_default())?;
    stream.flush()
}
