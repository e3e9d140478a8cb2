//! Messages of the handshake, in both directions.

use crate::bytes::{Reader, length_of, put_counted};
use crate::wire::{INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_MAX, info};
use crate::{BlockSizes, Decoded, Header, Violation};

/// Header of a server's first message: 18 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Bits of [`handshake_flag`](crate::wire::handshake_flag).
    pub flags: u16,
}

impl Greeting {
    const SIZE: usize = 18;

    /// The greeting's bytes.
    pub fn encode(self) -> Header {
        Header::new().u64(INIT_MAGIC).u64(OPTION_MAGIC).u16(self.flags)
    }

    /// Decodes the greeting at the front of `input`. An oldstyle server's has another second magic.
    pub fn decode(input: &[u8]) -> Result<Decoded<Self>, Violation> {
        let mut fields = Reader(input);
        let parsed = (|| Some((fields.u64()?, fields.u64()?, fields.u16()?)))();
        match parsed {
            None => Ok(Decoded::Need(Self::SIZE.saturating_sub(input.len()))),
            Some((INIT_MAGIC, OPTION_MAGIC, flags)) => Ok(Decoded::Whole(Self { flags }, Self::SIZE)),
            Some((INIT_MAGIC, magic, _) | (magic, ..)) => Err(Violation::Magic(magic)),
        }
    }
}

/// The header of an option: 16 bytes, which `length` bytes of data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// A number of [`option`](crate::wire::option).
    pub option: u32,
    /// Bytes of data.
    pub length: u32,
}

impl OptionHeader {
    pub(crate) const SIZE: usize = 16;

    /// The header's bytes.
    pub fn encode(self) -> Header {
        Header::new().u64(OPTION_MAGIC).u32(self.option).u32(self.length)
    }

    /// Decodes the header at the front of `input`.
    pub fn decode(input: &[u8]) -> Result<Decoded<Self>, Violation> {
        let mut fields = Reader(input);
        let parsed = (|| Some((fields.u64()?, fields.u32()?, fields.u32()?)))();
        match parsed {
            None => Ok(Decoded::Need(Self::SIZE.saturating_sub(input.len()))),
            Some((OPTION_MAGIC, option, length)) => Ok(Decoded::Whole(Self { option, length }, Self::SIZE)),
            Some((magic, ..)) => Err(Violation::Magic(magic)),
        }
    }
}

/// The header of a reply to an option: 20 bytes, which `length` bytes of data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option replied to.
    pub option: u32,
    /// A number of [`option_reply`](crate::wire::option_reply).
    pub kind: u32,
    /// Bytes of data.
    pub length: u32,
}

impl OptionReplyHeader {
    const SIZE: usize = 20;

    /// The header's bytes.
    pub fn encode(self) -> Header {
        Header::new().u64(OPTION_REPLY_MAGIC).u32(self.option).u32(self.kind).u32(self.length)
    }

    /// Decodes the header at the front of `input`.
    pub fn decode(input: &[u8]) -> Result<Decoded<Self>, Violation> {
        let mut fields = Reader(input);
        let parsed = (|| Some((fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?)))();
        match parsed {
            None => Ok(Decoded::Need(Self::SIZE.saturating_sub(input.len()))),
            Some((OPTION_REPLY_MAGIC, option, kind, length)) => {
                Ok(Decoded::Whole(Self { option, kind, length }, Self::SIZE))
            }
            Some((magic, ..)) => Err(Violation::Magic(magic)),
        }
    }
}

/// Error in the data of an option or of a reply to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Lengths inside do not add up to the length of the whole.
    #[error("lengths that do not add up")]
    Length,
    /// A string is not UTF-8 or has a NUL.
    #[error("a string that is not UTF-8 or has a NUL")]
    Text,
    /// A string exceeds [`STRING_MAX`] bytes.
    #[error("a string longer than 4096 bytes")]
    TooLong,
}

/// A string as the protocol allows it: UTF-8, no NUL, at most [`STRING_MAX`] bytes.
pub fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > STRING_MAX {
        return Err(Malformed::TooLong);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Malformed::Text),
    }
}

fn counted<'a>(input: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let length = input.u32().ok_or(Malformed::Length)?;
    text(input.take(length).ok_or(Malformed::Length)?)
}

/// The data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoQuery<'a> {
    /// The export.
    pub export: &'a str,
    /// Wanted information: numbers of [`info`].
    pub wanted: Vec<u16>,
}

impl<'a> InfoQuery<'a> {
    /// Appends the data's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_counted(out, self.export);
        let count = u16::try_from(self.wanted.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        self.wanted.iter().for_each(|kind| out.extend_from_slice(&kind.to_be_bytes()));
    }

    /// Decodes the whole of the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut data = Reader(data);
        let export = counted(&mut data)?;
        let count = data.u16().ok_or(Malformed::Length)?;
        if data.0.len() != 2 * usize::from(count) {
            return Err(Malformed::Length);
        }
        let wanted = std::iter::from_fn(|| data.u16()).collect();
        Ok(Self { export, wanted })
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    /// The export.
    pub export: &'a str,
    /// The announced number of queries. Limited before the queries are decoded.
    pub count: u32,
    queries: &'a [u8],
}

impl<'a> MetaQuery<'a> {
    /// Appends the bytes of the data that asks for `queries` of `export`.
    pub fn encode(export: &str, queries: &[&str], out: &mut Vec<u8>) {
        put_counted(out, export);
        out.extend_from_slice(&length_of(queries.len()).to_be_bytes());
        queries.iter().for_each(|query| put_counted(out, query));
    }

    /// Decodes the data up to its queries.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut data = Reader(data);
        let export = counted(&mut data)?;
        let count = data.u32().ok_or(Malformed::Length)?;
        Ok(Self { export, count, queries: data.0 })
    }

    /// Decodes the queries, which must be `count` and fill the rest of the data.
    pub fn queries(&self) -> Result<Vec<&'a str>, Malformed> {
        let mut data = Reader(self.queries);
        let mut queries = Vec::new();
        for _ in 0..self.count {
            queries.push(counted(&mut data)?);
        }
        if data.0.is_empty() { Ok(queries) } else { Err(Malformed::Length) }
    }
}

/// The data of a reply of type INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size in bytes and transmission flags.
    Export(u64, u16),
    /// Canonical name.
    Name(&'a str),
    /// Description.
    Description(&'a str),
    /// Block sizes.
    BlockSize(BlockSizes),
    /// A kind this crate does not know.
    Unknown(u16),
}

impl<'a> Info<'a> {
    /// The number of the kind, of [`info`].
    pub fn kind(&self) -> u16 {
        match self {
            Self::Export(..) => info::EXPORT,
            Self::Name(_) => info::NAME,
            Self::Description(_) => info::DESCRIPTION,
            Self::BlockSize(_) => info::BLOCK_SIZE,
            Self::Unknown(kind) => *kind,
        }
    }

    /// Appends the data's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind().to_be_bytes());
        match self {
            Self::Export(size, flags) => {
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&flags.to_be_bytes());
            }
            Self::Name(text) | Self::Description(text) => out.extend_from_slice(text.as_bytes()),
            Self::BlockSize(BlockSizes { minimum, preferred, maximum }) => {
                [minimum, preferred, maximum].into_iter().for_each(|size| out.extend_from_slice(&size.to_be_bytes()));
            }
            Self::Unknown(_) => {}
        }
    }

    /// Decodes the whole of the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Reader(data);
        let kind = fields.u16().ok_or(Malformed::Length)?;
        let parsed = match kind {
            info::EXPORT => (|| Some(Self::Export(fields.u64()?, fields.u16()?)))(),
            info::BLOCK_SIZE => (|| {
                let (minimum, preferred, maximum) = (fields.u32()?, fields.u32()?, fields.u32()?);
                Some(Self::BlockSize(BlockSizes { minimum, preferred, maximum }))
            })(),
            info::NAME => return text(fields.0).map(Self::Name),
            info::DESCRIPTION => return text(fields.0).map(Self::Description),
            unknown => return Ok(Self::Unknown(unknown)),
        };
        parsed.filter(|_| fields.0.is_empty()).ok_or(Malformed::Length)
    }
}

/// The data of a reply of type SERVER: an export's name, and a description that may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The export's name.
    pub name: &'a str,
    /// Text for people.
    pub description: &'a str,
}

impl<'a> Listed<'a> {
    /// Appends the data's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_counted(out, self.name);
        out.extend_from_slice(self.description.as_bytes());
    }

    /// Decodes the whole of the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut data = Reader(data);
        let name = counted(&mut data)?;
        Ok(Self { name, description: text(data.0)? })
    }
}

/// The data of a reply of type META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedContext<'a> {
    /// The number by which block status chunks refer to the context; 0 in lists.
    pub id: u32,
    /// The context's name.
    pub name: &'a str,
}

impl<'a> NamedContext<'a> {
    /// Appends the data's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(self.name.as_bytes());
    }

    /// Decodes the whole of the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut data = Reader(data);
        let id = data.u32().ok_or(Malformed::Length)?;
        Ok(Self { id, name: text(data.0)? })
    }
}
