//! The client's side of the handshake.

use std::io::{Read, Write};

use super::{Client, Error, Result, Unexpected};
use crate::handshake::{Greeting, Info, InfoQuery, Listed, MetaQuery, NamedContext, OptionHeader, OptionReplyHeader};
use crate::wire::{EXPORT_NAME_ZEROES, OPTION_MAX, handshake_flag, info, option, option_reply};
use crate::{BlockSizes, Decoded, Features, Framing};

/// A connection that negotiates.
pub struct Handshake<S> {
    stream: S,
    no_zeroes: bool,
    framing: Framing,
    contexts: Vec<(u32, String)>,
}

/// Description of an export by its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// Bytes.
    pub size: u64,
    /// The requests that it supports.
    pub features: Features,
    /// Canonical name, if sent.
    pub name: Option<String>,
    /// Description, if sent.
    pub description: Option<String>,
    /// Block sizes, or the defaults if not sent.
    pub blocks: BlockSizes,
}

/// A connection on which everything is agreed: the transmission phase begins.
#[derive(Debug)]
pub struct Negotiated<S> {
    /// The connection. No byte of the transmission phase was read from it.
    pub stream: S,
    /// The export, as the server described it.
    pub export: ExportInfo,
    /// How requests and replies are framed.
    pub framing: Framing,
    /// The numbers and names of the metadata contexts that were selected.
    pub contexts: Vec<(u32, String)>,
}

impl<S: Read + Write> Handshake<S> {
    /// Greets a server that speaks fixed newstyle.
    pub fn begin(mut stream: S) -> Result<Self> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let flags = match Greeting::decode(&greeting)? {
            Decoded::Whole(Greeting { flags }, _) if flags & handshake_flag::FIXED_NEWSTYLE != 0 => flags,
            _ => return Err(Error::Unexpected(Unexpected::NotFixedNewstyle)),
        };
        let answer = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        stream.write_all(&u32::from(answer).to_be_bytes())?;
        stream.flush()?;
        let no_zeroes = answer & handshake_flag::NO_ZEROES != 0;
        Ok(Self { stream, no_zeroes, framing: Framing::Simple, contexts: Vec::new() })
    }

    /// Starts TLS: once the server agreed, `wrap` performs the TLS handshake. Earlier agreements are forgotten.
    pub fn start_tls<T>(mut self, wrap: impl FnOnce(S) -> std::io::Result<T>) -> Result<Handshake<T>> {
        self.option(option::STARTTLS, &[], |_, _| Err(Error::Unexpected(Unexpected::OptionReply)))?;
        let stream = wrap(self.stream)?;
        Ok(Handshake { stream, no_zeroes: self.no_zeroes, framing: Framing::Simple, contexts: Vec::new() })
    }

    /// Agrees on structured replies; `false` where the server does not know them.
    pub fn structured_replies(&mut self) -> Result<bool> {
        self.framing(option::STRUCTURED_REPLY, Framing::Structured)
    }

    /// Agrees on extended headers; `false` where the server does not know them.
    pub fn extended_headers(&mut self) -> Result<bool> {
        self.framing(option::EXTENDED_HEADERS, Framing::Extended)
    }

    fn framing(&mut self, option: u32, framing: Framing) -> Result<bool> {
        match self.option(option, &[], |_, _| Err(Error::Unexpected(Unexpected::OptionReply))) {
            Ok(()) => {
                self.framing = framing;
                Ok(true)
            }
            Err(Error::Refused { kind: option_reply::ERR_UNSUP, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Names and descriptions of the server's exports.
    pub fn list(&mut self) -> Result<Vec<(String, String)>> {
        let mut exports = Vec::new();
        self.option(option::LIST, &[], |kind, data| {
            expect(kind, option_reply::SERVER)?;
            let Listed { name, description } = Listed::decode(data)?;
            exports.push((name.to_owned(), description.to_owned()));
            Ok(())
        })?;
        Ok(exports)
    }

    /// Queries the description of an export.
    pub fn info(&mut self, export: &str) -> Result<ExportInfo> {
        self.describe(option::INFO, export)
    }

    fn describe(&mut self, option: u32, export: &str) -> Result<ExportInfo> {
        let mut query = Vec::new();
        InfoQuery { export, wanted: vec![info::NAME, info::DESCRIPTION, info::BLOCK_SIZE] }.encode(&mut query);
        let mut found = false;
        let mut told = ExportInfo::default();
        self.option(option, &query, |kind, data| {
            expect(kind, option_reply::INFO)?;
            match Info::decode(data)? {
                Info::Export(size, flags) => {
                    found = true;
                    told.size = size;
                    told.features = Features::from_wire(flags);
                }
                Info::Name(name) => told.name = Some(name.to_owned()),
                Info::Description(description) => told.description = Some(description.to_owned()),
                Info::BlockSize(blocks) => told.blocks = blocks,
                Info::Unknown(_) => {}
            }
            Ok(())
        })?;
        if found { Ok(told) } else { Err(Error::Unexpected(Unexpected::NoExport)) }
    }

    /// Names of the metadata contexts that match the queries, or of all if there are none.
    pub fn list_contexts(&mut self, export: &str, queries: &[&str]) -> Result<Vec<String>> {
        let contexts = self.contexts(option::LIST_META_CONTEXT, export, queries)?;
        Ok(contexts.into_iter().map(|(_, name)| name).collect())
    }

    /// Selects metadata contexts of the export that is chosen next; returns those that the server knows.
    pub fn set_contexts(&mut self, export: &str, queries: &[&str]) -> Result<Vec<String>> {
        self.contexts.clear();
        self.contexts = self.contexts(option::SET_META_CONTEXT, export, queries)?;
        Ok(self.contexts.iter().map(|(_, name)| name.clone()).collect())
    }

    fn contexts(&mut self, option: u32, export: &str, queries: &[&str]) -> Result<Vec<(u32, String)>> {
        let mut query = Vec::new();
        MetaQuery::encode(export, queries, &mut query);
        let mut contexts = Vec::new();
        self.option(option, &query, |kind, data| {
            expect(kind, option_reply::META_CONTEXT)?;
            let NamedContext { id, name } = NamedContext::decode(data)?;
            contexts.push((id, name.to_owned()));
            Ok(())
        })?;
        Ok(contexts)
    }

    /// Chooses an export and begins transmission.
    pub fn go(self, export: &str) -> Result<Client<S>> {
        let Negotiated { stream, export, framing, contexts } = self.negotiate(export)?;
        Ok(Client::new(stream, export, framing, contexts))
    }

    /// Chooses an export, for a program that transmits by itself.
    pub fn negotiate(mut self, export: &str) -> Result<Negotiated<S>> {
        let export = self.describe(option::GO, export)?;
        Ok(Negotiated { stream: self.stream, export, framing: self.framing, contexts: self.contexts })
    }

    /// Chooses an export and begins transmission the old way, which fails by a closed connection.
    pub fn export_name(mut self, export: &str) -> Result<Client<S>> {
        self.send(option::EXPORT_NAME, export.as_bytes())?;
        let (mut size, mut flags) = ([0; 8], [0; 2]);
        self.stream.read_exact(&mut size)?;
        self.stream.read_exact(&mut flags)?;
        if !self.no_zeroes {
            self.stream.read_exact(&mut [0; EXPORT_NAME_ZEROES])?;
        }
        let features = Features::from_wire(u16::from_be_bytes(flags));
        let told = ExportInfo { size: u64::from_be_bytes(size), features, ..ExportInfo::default() };
        Ok(Client::new(self.stream, told, self.framing, self.contexts))
    }

    /// Ends the session.
    pub fn abort(mut self) -> Result<()> {
        self.option(option::ABORT, &[], |_, _| Err(Error::Unexpected(Unexpected::OptionReply)))
    }

    fn send(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| Error::TooLong(data.len() as u64))?;
        let header = OptionHeader { option, length }.encode();
        self.stream.write_all(&[&header, data].concat())?;
        Ok(self.stream.flush()?)
    }

    /// Sends an option and hands type and data of each reply before the last to `item`.
    fn option(&mut self, option: u32, data: &[u8], mut item: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        self.send(option, data)?;
        loop {
            let mut header = [0; 20];
            self.stream.read_exact(&mut header)?;
            let header = match OptionReplyHeader::decode(&header)? {
                Decoded::Whole(header, _) if header.option == option => header,
                _ => return Err(Error::Unexpected(Unexpected::OptionReply)),
            };
            if header.length > OPTION_MAX {
                return Err(Error::Unexpected(Unexpected::OptionReplyLength));
            }
            let mut data = vec![0; header.length as usize];
            self.stream.read_exact(&mut data)?;
            match header.kind {
                option_reply::ACK => return Ok(()),
                kind if kind & option_reply::ERROR != 0 => {
                    let message = String::from_utf8_lossy(&data).into_owned();
                    return Err(Error::Refused { option, kind, message });
                }
                kind => item(kind, &data)?,
            }
        }
    }
}

fn expect(kind: u32, expected: u32) -> Result<()> {
    if kind == expected { Ok(()) } else { Err(Error::Unexpected(Unexpected::OptionReply)) }
}
