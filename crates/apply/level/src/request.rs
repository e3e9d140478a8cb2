//! Requests of a client.

use crate::fields::{Fields, at_most, first, shortened};
use crate::{BLOCK_MAX, Decoded, NAME_MAX, Violation};

const MAGIC: u16 = u16::from_le_bytes(*b"LQ");
/// Bytes of a request before its name or data.
pub(crate) const HEAD: usize = 56;

const OPEN: u8 = 1;
const RETRIEVE: u8 = 2;
const DEMOTE: u8 = 3;
const INVALIDATE: u8 = 4;

/// L_out on the wire.
const OUT: u8 = u8::MAX;
/// Levels are numbered below this.
pub(crate) const LEVELS: u8 = 8;

/// A level, 0 for the client's own memory; `None` is L_out.
pub type Level = Option<u8>;

/// A block of an epoch of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of a namespace, from the reply to [`Request::Open`].
    pub namespace: u32,
    /// The epoch of the namespace for this client. With another one, the request is refused, and nothing is done.
    pub epoch: u64,
    /// The block.
    pub block: u64,
}

/// A request of a client. The names are those of section 5.3.2.1 of the dissertation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Begins an epoch of the namespace of this name, on this connection. All blocks that the client had there in other epochs are
    /// gone, whatever still arrives on other connections, except those of `resumes`.
    Open {
        /// The namespace, at most [`NAME_MAX`] bytes.
        name: &'a str,
        /// The epoch, higher than all before.
        epoch: u64,
        /// The epoch before, whose blocks the client knows: they stay, if the server still has them. 0 if the client knows none.
        resumes: u64,
    },
    /// Retrieve(b, i, j): the block, and where it is cached from now on.
    Retrieve {
        /// The block.
        place: Place,
        /// The client's assumption of its level, i.
        from: Level,
        /// Its new level, j: not below i.
        to: Level,
    },
    /// Demote(b, i, j): caches a block that leaves a higher level.
    Demote {
        /// The block.
        place: Place,
        /// The level that it leaves, i.
        from: u8,
        /// The level that it goes to, j: below i.
        to: u8,
        /// How long ago it was referenced, in microseconds.
        age_us: u64,
        /// The contents, at most [`BLOCK_MAX`] bytes.
        data: &'a [u8],
    },
    /// Blocks that were changed: none of them may be returned in this epoch until it is demoted again.
    Invalidate {
        /// The first block.
        place: Place,
        /// How many.
        count: u64,
    },
}

impl<'a> Request<'a> {
    /// The namespace that it is for; none if it opens one.
    pub fn namespace(&self) -> Option<u32> {
        match self {
            Request::Open { .. } => None,
            Request::Retrieve { place, .. } | Request::Demote { place, .. } | Request::Invalidate { place, .. } => {
                Some(place.namespace)
            }
        }
    }

    /// Appends the message to `out`. Its reply repeats `cookie`. A name or data that are too long are shortened.
    pub fn encode(&self, cookie: u64, out: &mut Vec<u8>) {
        const NOWHERE: Place = Place { namespace: 0, epoch: 0, block: 0 };
        let wire = |level: Level| level.unwrap_or(OUT);
        let (operation, from, to, place, number, resumes, body): (u8, u8, u8, Place, u64, u64, &[u8]) = match *self {
            Request::Open { name, epoch, resumes } => {
                (OPEN, 0, 0, Place { epoch, ..NOWHERE }, 0, resumes, shortened(name, NAME_MAX).as_bytes())
            }
            Request::Retrieve { place, from, to } => (RETRIEVE, wire(from), wire(to), place, 0, 0, &[]),
            Request::Demote { place, from, to, age_us, data } => {
                (DEMOTE, from, to, place, age_us, 0, data.get(..BLOCK_MAX).unwrap_or(data))
            }
            Request::Invalidate { place, count } => (INVALIDATE, 0, 0, place, count, 0, &[]),
        };
        out.extend(MAGIC.to_le_bytes());
        out.extend([operation, from, to, 0, 0, 0]);
        out.extend(cookie.to_le_bytes());
        out.extend(place.epoch.to_le_bytes());
        out.extend(place.block.to_le_bytes());
        out.extend(place.namespace.to_le_bytes());
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(resumes.to_le_bytes());
        out.extend(body);
    }

    /// Decodes the message at the front of `input`, and its cookie.
    pub fn decode(input: &'a [u8]) -> Result<Decoded<(u64, Request<'a>)>, Violation> {
        let head = match first(input, HEAD) {
            Ok(head) => head,
            Err(need) => return Ok(need),
        };
        let mut fields = Fields(head);
        let magic = fields.u16();
        if magic != MAGIC {
            return Err(Violation::Magic(magic.into()));
        }
        let (operation, from, to) = (fields.u8(), fields.u8(), fields.u8());
        let reserved = u32::from(fields.u8()) << 16 | u32::from(fields.u16());
        let cookie = fields.u64();
        let epoch = fields.u64();
        let block = fields.u64();
        let place = Place { namespace: fields.u32(), epoch, block };
        let length = fields.u32();
        let (number, resumes) = (fields.u64(), fields.u64());
        let (most, expected) = match operation {
            OPEN => (NAME_MAX, "at most 256"),
            DEMOTE => (BLOCK_MAX, "at most 65536"),
            RETRIEVE | INVALIDATE => (0, "0"),
            _ => {
                let expected = "1 to 4";
                return Err(Violation::Field { field: "the operation", value: operation.into(), expected });
            }
        };
        let length = at_most("the length of a request", length.into(), most, expected)?;
        let whole = match first(input, HEAD + length) {
            Ok(whole) => whole,
            Err(need) => return Ok(need),
        };
        let mut body = Fields(whole.get(HEAD..).unwrap_or_default());
        let zero = |field: &'static str, value: u64| match value {
            0 => Ok(()),
            _ => Err(Violation::Field { field, value, expected: "0 in this operation" }),
        };
        zero("a reserved field", reserved.into())?;
        if operation != OPEN {
            zero("the epoch before", resumes)?;
        }
        let request = match operation {
            OPEN => {
                zero("a level", u64::from(from) << 8 | u64::from(to))?;
                zero("the block", place.block)?;
                zero("the namespace", place.namespace.into())?;
                zero("the age", number)?;
                Request::Open { name: body.text(length, "the name of a namespace")?, epoch, resumes }
            }
            RETRIEVE => {
                zero("the age", number)?;
                let (from, to) = (level(from)?, level(to)?);
                // L_out is below all levels.
                if from.unwrap_or(OUT) < to.unwrap_or(OUT) {
                    let expected = "a level that is not below the one that has the block";
                    return Err(Violation::Field { field: "the level", value: to.unwrap_or(OUT).into(), expected });
                }
                Request::Retrieve { place, from, to }
            }
            DEMOTE => {
                let expected = "a level below the one that the block leaves";
                let (Some(from), Some(to)) = (level(from)?, level(to)?) else {
                    return Err(Violation::Field { field: "the level", value: OUT.into(), expected });
                };
                if from >= to {
                    return Err(Violation::Field { field: "the level", value: to.into(), expected });
                }
                Request::Demote { place, from, to, age_us: number, data: body.bytes(length) }
            }
            _ => {
                zero("a level", u64::from(from) << 8 | u64::from(to))?;
                if place.block.checked_add(number).is_none() {
                    let expected = "blocks are numbered below 2^64";
                    return Err(Violation::Field { field: "the number of blocks", value: number, expected });
                }
                Request::Invalidate { place, count: number }
            }
        };
        Ok(Decoded::Whole((cookie, request), whole.len()))
    }
}

fn level(wire: u8) -> Result<Level, Violation> {
    match wire {
        OUT => Ok(None),
        _ if wire < LEVELS => Ok(Some(wire)),
        _ => Err(Violation::Field { field: "the level", value: wire.into(), expected: "0 to 7, or 255 for none" }),
    }
}
