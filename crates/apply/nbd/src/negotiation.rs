//! The server's side of the handshake: fixed newstyle negotiation.

use crate::bytes::{Reader, length_of};
use crate::handshake::{
    Greeting, Info, InfoQuery, Listed, Malformed, MetaQuery, NamedContext, OptionHeader, OptionReplyHeader, text,
};
use crate::wire::{EXPORT_NAME_ZEROES, OPTION_MAX, QUERIES_MAX, handshake_flag, info, option, option_reply};
use crate::{Context, Contexts, Decoded, Export, Exports, Framing, Header, Transmission, Violation};

/// A listener's use of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// STARTTLS is unknown.
    Off,
    /// Clients must start TLS before anything else.
    Required,
}

/// The server's side of a session before transmission. The host sends the [`Negotiation::greeting`], then feeds what
/// it receives to [`Negotiation::step`] and sends what that appends to `out`, until the outcome ends the negotiation.
#[derive(Clone, Debug)]
pub struct Negotiation {
    exports: Exports,
    tls: Tls,
    stage: Stage,
    fixed_newstyle: bool,
    no_zeroes: bool,
    framing: Framing,
    /// The export and contexts of the last SET_META_CONTEXT that succeeded.
    selected: Option<(usize, Contexts)>,
    /// The last option.
    option: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    ClientFlags,
    /// Options; `secure` once TLS was started.
    Options {
        secure: bool,
    },
    StartingTls,
}

/// Result of a step of a [`Negotiation`].
#[derive(Clone, Debug)]
pub enum Outcome {
    /// At least this many more bytes must be received before the next step (never 0).
    Need(usize),
    /// An option was replied to; the next step can follow at once, with what is left of the input.
    Continue,
    /// After `out` is sent, TLS is to be started, and [`Negotiation::tls_started`] called with what the client may see.
    StartTls,
    /// The client chose an export: transmission begins with the next byte.
    Transmit(Transmission),
    /// The client ends the session: after `out` is sent, the connection is to be closed.
    Abort,
}

/// How an option is answered that does not succeed: a reply of this type.
struct Refusal(u32);

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Length | Malformed::Text => Self(option_reply::ERR_INVALID),
            Malformed::TooLong => Self(option_reply::ERR_TOO_BIG),
        }
    }
}

impl Negotiation {
    /// A session in which the client has sent nothing yet and may see `exports`.
    pub fn new(exports: Exports, tls: Tls) -> Self {
        Self {
            exports,
            tls,
            stage: Stage::ClientFlags,
            fixed_newstyle: false,
            no_zeroes: false,
            framing: Framing::Simple,
            selected: None,
            option: 0,
        }
    }

    /// The first message of the server.
    pub fn greeting() -> Header {
        Greeting { flags: handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES }.encode()
    }

    /// Tells that TLS was started, and what the client may see now that it is known. Everything agreed before is
    /// forgotten.
    pub fn tls_started(&mut self, exports: Exports) {
        self.exports = exports;
        self.stage = Stage::Options { secure: true };
        self.framing = Framing::Simple;
        self.selected = None;
    }

    /// The index of the export whose size the next message asks for, if `input` has all of the message. The host may look
    /// at the size then, and [set](Self::set_size) it.
    pub fn asks_about(&self, input: &[u8]) -> Option<usize> {
        let Decoded::Whole(OptionHeader { option, length }, _) = OptionHeader::decode(input).ok()? else { return None };
        let end = OptionHeader::SIZE.checked_add(length as usize)?;
        let data = input.get(OptionHeader::SIZE..end).filter(|_| length <= OPTION_MAX)?;
        let name = match option {
            option::EXPORT_NAME => text(data).ok()?,
            option::INFO | option::GO => InfoQuery::decode(data).ok()?.export,
            _ => return None,
        };
        self.exports.find(name).map(|(index, _)| index)
    }

    /// The size of the export at `index` in what the client may see is another one now.
    pub fn set_size(&mut self, index: usize, size: u64) {
        self.exports.set_size(index, size);
    }

    /// Takes at most one message from the front of `input`, which is everything received and not yet consumed, and
    /// appends the reply to `out`. Returns how many bytes were consumed. Messages are at most 64 KiB and 16 bytes
    /// long. After a violation the connection must be closed.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Outcome), Violation> {
        match self.stage {
            Stage::ClientFlags => self.client_flags(input),
            Stage::Options { secure } => {
                let header = match OptionHeader::decode(input)? {
                    Decoded::Need(more) => return Ok((0, Outcome::Need(more))),
                    Decoded::Whole(header, _) => header,
                };
                let OptionHeader { option, length } = header;
                if length > OPTION_MAX {
                    return Err(Violation::OptionTooLong { option, length });
                }
                let end = OptionHeader::SIZE + length as usize;
                let Some((message, rest)) = input.split_at_checked(end) else {
                    return Ok((0, Outcome::Need(end - input.len())));
                };
                let data = message.get(OptionHeader::SIZE..).unwrap_or_default();
                let outcome = self.option(option, data, secure, out)?;
                if matches!(outcome, Outcome::StartTls) && !rest.is_empty() {
                    return Err(Violation::BytesBeforeTls);
                }
                Ok((end, outcome))
            }
            Stage::StartingTls => Ok((0, Outcome::StartTls)),
        }
    }

    /// After [`Outcome::Transmit`], whose replies the host drops: the client cannot have what it chose. Appends an error of
    /// this type, of [`wire::option_reply`](crate::wire::option_reply), and the negotiation goes on. Says no if the client chose by
    /// EXPORT_NAME: there is no answer but to close the connection.
    pub fn refuse_choice(&self, kind: u32, message: &str, out: &mut Vec<u8>) -> bool {
        let answerable = self.option == option::GO;
        if answerable {
            reply(out, option::GO, kind, |out| out.extend_from_slice(message.as_bytes()));
        }
        answerable
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<(usize, Outcome), Violation> {
        let Some(flags) = Reader(input).u32() else {
            return Ok((0, Outcome::Need(4 - input.len())));
        };
        let (fixed, no_zeroes) = (u32::from(handshake_flag::FIXED_NEWSTYLE), u32::from(handshake_flag::NO_ZEROES));
        if flags & !(fixed | no_zeroes) != 0 {
            return Err(Violation::ClientFlags(flags));
        }
        self.fixed_newstyle = flags & fixed != 0;
        self.no_zeroes = flags & no_zeroes != 0;
        self.stage = Stage::Options { secure: false };
        Ok((4, Outcome::Continue))
    }

    fn option(&mut self, option: u32, data: &[u8], secure: bool, out: &mut Vec<u8>) -> Result<Outcome, Violation> {
        self.option = option;
        let tls_missing = self.tls == Tls::Required && !secure;
        if option == option::EXPORT_NAME {
            return if tls_missing { Err(Violation::TlsRequired) } else { self.export_name(data, out) };
        }
        if !self.fixed_newstyle {
            return Err(Violation::NotFixedNewstyle(option));
        }
        let outcome = match option {
            option::ABORT => Ok(Outcome::Abort),
            option::STARTTLS => self.start_tls(data, secure),
            _ if tls_missing => Err(Refusal(option_reply::ERR_TLS_REQD)),
            option::LIST => self.list(data, out),
            option::INFO => self.info(option, data, out).map(|_| Outcome::Continue),
            option::GO => self.info(option, data, out).map(|(index, export)| self.transmit(index, export)),
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::EXTENDED_HEADERS => self.extended_headers(data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, out),
            _ => Err(Refusal(option_reply::ERR_UNSUP)),
        };
        Ok(match outcome {
            Ok(outcome) => {
                reply(out, option, option_reply::ACK, |_| {});
                outcome
            }
            Err(Refusal(kind)) => {
                let reason = match kind {
                    option_reply::ERR_UNKNOWN => {
                        self.absence(option, data).unwrap_or("there is no export of this name")
                    }
                    option_reply::ERR_TLS_REQD => "connections are encrypted here: start TLS first",
                    _ => "",
                };
                reply(out, option, kind, |out| out.extend_from_slice(reason.as_bytes()));
                Outcome::Continue
            }
        })
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Result<Outcome, Violation> {
        if self.framing == Framing::Extended {
            return Err(Violation::ExportNameExtended);
        }
        let name = text(data).map_err(|_| Violation::UnknownExport)?;
        let (index, export) = self.exports.find(name).ok_or(Violation::UnknownExport)?;
        out.extend_from_slice(&export.size.to_be_bytes());
        out.extend_from_slice(&export.features.to_wire(self.framing).to_be_bytes());
        if !self.no_zeroes {
            out.resize(out.len() + EXPORT_NAME_ZEROES, 0);
        }
        Ok(self.transmit(index, export))
    }

    fn transmit(&self, index: usize, export: &Export) -> Outcome {
        let contexts = self.selected.filter(|&(of, _)| of == index).map(|(_, contexts)| contexts);
        Outcome::Transmit(Transmission::new(index, export, self.framing, contexts.unwrap_or_default()))
    }

    fn start_tls(&mut self, data: &[u8], secure: bool) -> Result<Outcome, Refusal> {
        if self.tls == Tls::Off {
            return Err(Refusal(option_reply::ERR_UNSUP));
        }
        no_data(data)?;
        if secure {
            return Err(Refusal(option_reply::ERR_INVALID));
        }
        self.stage = Stage::StartingTls;
        Ok(Outcome::StartTls)
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<Outcome, Refusal> {
        no_data(data)?;
        for Export { name, description, .. } in self.exports.as_slice() {
            reply(out, option::LIST, option_reply::SERVER, |out| Listed { name, description }.encode(out));
        }
        Ok(Outcome::Continue)
    }

    /// Why the client cannot have the export that it asks for.
    fn absence(&self, option: u32, data: &[u8]) -> Option<&str> {
        let is_query = matches!(option, option::INFO | option::GO);
        let query = is_query.then(|| InfoQuery::decode(data)).and_then(Result::ok)?;
        self.exports.absence(query.export)
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(usize, &Export), Refusal> {
        let query = InfoQuery::decode(data)?;
        let (index, export) = self.exports.find(query.export).ok_or(Refusal(option_reply::ERR_UNKNOWN))?;
        let mut put = |info: Info<'_>| {
            if info.kind() == info::EXPORT || query.wanted.contains(&info.kind()) {
                reply(out, option, option_reply::INFO, |out| info.encode(out));
            }
        };
        put(Info::Export(export.size, export.features.to_wire(self.framing)));
        put(Info::Name(&export.name));
        if !export.description.is_empty() {
            put(Info::Description(&export.description));
        }
        put(Info::BlockSize(export.blocks));
        Ok((index, export))
    }

    fn structured_reply(&mut self, data: &[u8]) -> Result<Outcome, Refusal> {
        no_data(data)?;
        if self.framing == Framing::Extended {
            return Err(Refusal(option_reply::ERR_EXT_HEADER_REQD));
        }
        self.framing = Framing::Structured;
        Ok(Outcome::Continue)
    }

    fn extended_headers(&mut self, data: &[u8]) -> Result<Outcome, Refusal> {
        no_data(data)?;
        self.framing = Framing::Extended;
        Ok(Outcome::Continue)
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Outcome, Refusal> {
        let listing = option == option::LIST_META_CONTEXT;
        if !listing {
            self.selected = None;
        }
        if self.framing == Framing::Simple {
            return Err(Refusal(option_reply::ERR_INVALID));
        }
        let query = MetaQuery::decode(data)?;
        if query.count > QUERIES_MAX {
            return Err(Refusal(option_reply::ERR_TOO_BIG));
        }
        let queries = query.queries()?;
        if queries.iter().any(|query| !query.contains(':')) {
            return Err(Refusal(option_reply::ERR_INVALID));
        }
        let (index, _) = self.exports.find(query.export).ok_or(Refusal(option_reply::ERR_UNKNOWN))?;
        let mut contexts = if listing && queries.is_empty() { Contexts::all() } else { Contexts::default() };
        queries.iter().for_each(|query| contexts.insert_matching(query, listing));
        for context in contexts.iter() {
            let id = if listing { 0 } else { context.id() };
            let name = Context::name(context);
            reply(out, option, option_reply::META_CONTEXT, |out| NamedContext { id, name }.encode(out));
        }
        if !listing {
            self.selected = Some((index, contexts));
        }
        Ok(Outcome::Continue)
    }
}

fn no_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() { Ok(()) } else { Err(Refusal(option_reply::ERR_INVALID)) }
}

/// Appends a reply whose data `encode` appends.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut data = Vec::new();
    encode(&mut data);
    out.extend_from_slice(&OptionReplyHeader { option, kind, length: length_of(data.len()) }.encode());
    out.extend_from_slice(&data);
}
