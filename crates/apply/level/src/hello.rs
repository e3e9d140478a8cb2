//! The first message of each side.

use crate::fields::{Fields, at_most, first, shortened};
use crate::request::LEVELS;
use crate::{BLOCK_MAX, Decoded, NAME_MAX, VERSIONS, Violation};

/// "NIGHLVL\n".
const MAGIC: u64 = u64::from_le_bytes(*b"NIGHLVL\n");
/// Bytes before the name.
const HELLO: usize = 28;
const WELCOME: usize = 32;

/// The first message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest and the highest version that the client speaks.
    pub versions: (u16, u16),
    /// Bytes in a block, at most [`BLOCK_MAX`].
    pub block_bytes: u32,
    /// The number of the server's level for this client: 1 if it is next to the client's memory.
    pub level: u8,
    /// A number of the client's process, which differs after each start: a process may take a namespace over from its own earlier
    /// connection, and not from another process.
    pub instance: u64,
    /// The client, at most [`NAME_MAX`] bytes. With TLS, the name in its certificate counts instead.
    pub name: &'a str,
}

/// The answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that is spoken from now on.
    pub version: u16,
    /// The most requests that the server takes before it replied to the first of them.
    pub requests: u32,
    /// Blocks of this client that the server keeps at most.
    pub blocks: u64,
    /// The server's own number, which differs after each start. Two addresses with the same number are of the same server.
    pub instance: u64,
}

impl<'a> Hello<'a> {
    /// Appends the message to `out`. A name that is too long is shortened.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let name = shortened(self.name, NAME_MAX);
        out.extend(MAGIC.to_le_bytes());
        out.extend(self.versions.0.to_le_bytes());
        out.extend(self.versions.1.to_le_bytes());
        out.extend(self.block_bytes.to_le_bytes());
        out.extend([self.level, 0]);
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(self.instance.to_le_bytes());
        out.extend(name.as_bytes());
    }

    /// Decodes the message at the front of `input`.
    pub fn decode(input: &'a [u8]) -> Result<Decoded<Hello<'a>>, Violation> {
        let head = match magic(input).map(|()| first(input, HELLO))? {
            Ok(head) => head,
            Err(need) => return Ok(need),
        };
        let mut fields = Fields(head);
        fields.u64();
        let versions = (fields.u16(), fields.u16());
        let block_bytes = fields.u32();
        at_most("the size of a block", block_bytes.into(), BLOCK_MAX, "at most 65536")?;
        if block_bytes == 0 {
            return Err(Violation::Field { field: "the size of a block", value: 0, expected: "at least 1" });
        }
        let (level, reserved) = (fields.u8(), fields.u8());
        if !(1..LEVELS).contains(&level) {
            return Err(Violation::Field { field: "the server's level", value: level.into(), expected: "1 to 7" });
        }
        if reserved != 0 {
            return Err(Violation::Field { field: "a reserved field", value: reserved.into(), expected: "0" });
        }
        let length = at_most("the length of a name", fields.u16().into(), NAME_MAX, "at most 256")?;
        let instance = fields.u64();
        let whole = match first(input, HELLO + length) {
            Ok(whole) => whole,
            Err(need) => return Ok(need),
        };
        let mut rest = Fields(whole.get(HELLO..).unwrap_or_default());
        let name = rest.text(length, "the name of a client")?;
        Ok(Decoded::Whole(Hello { versions, block_bytes, level, instance, name }, whole.len()))
    }

    /// The highest version that both sides speak.
    pub fn version(&self) -> Result<u16, Violation> {
        let (lowest, highest) = self.versions;
        let version = highest.min(*VERSIONS.end());
        let is_common = version >= lowest && version >= *VERSIONS.start();
        is_common.then_some(version).ok_or(Violation::Version { lowest, highest })
    }
}

impl Welcome {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.requests.to_le_bytes());
        out.extend(self.blocks.to_le_bytes());
        out.extend(self.instance.to_le_bytes());
    }

    /// Decodes the message at the front of `input`.
    pub fn decode(input: &[u8]) -> Result<Decoded<Welcome>, Violation> {
        let head = match magic(input).map(|()| first(input, WELCOME))? {
            Ok(head) => head,
            Err(need) => return Ok(need),
        };
        let mut fields = Fields(head);
        fields.u64();
        let version = fields.u16();
        if !VERSIONS.contains(&version) {
            return Err(Violation::Version { lowest: version, highest: version });
        }
        let reserved = fields.u16();
        if reserved != 0 {
            return Err(Violation::Field { field: "a reserved field", value: reserved.into(), expected: "0" });
        }
        let welcome = Welcome { version, requests: fields.u32(), blocks: fields.u64(), instance: fields.u64() };
        if welcome.requests == 0 {
            return Err(Violation::Field { field: "the number of requests", value: 0, expected: "at least 1" });
        }
        Ok(Decoded::Whole(welcome, WELCOME))
    }
}

/// Whether `input` begins as the first message of either side, as far as it goes.
fn magic(input: &[u8]) -> Result<(), Violation> {
    let expected = MAGIC.to_le_bytes();
    let begins = input.iter().zip(expected).all(|(&byte, expected)| byte == expected);
    if begins { Ok(()) } else { Err(Violation::Magic(Fields(&padded(input)).u64())) }
}

fn padded(input: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(input).for_each(|(byte, &given)| *byte = given);
    bytes
}
