//! Replies of the server. Each carries the notices that are due, whatever it replies to.

use crate::fields::{Fields, at_most, first, shortened};
use crate::{BLOCK_MAX, Decoded, NOTICES_MAX, TEXT_MAX, Violation};

const MAGIC: u16 = u16::from_le_bytes(*b"LR");
/// Bytes of a reply before its notices.
pub(crate) const HEAD: usize = 56;
/// Bytes of a notice.
pub(crate) const NOTICE: usize = 20;

const OPENED: u8 = 1;
const FOUND: u8 = 2;
const MISSED: u8 = 3;
const DONE: u8 = 4;
const REFUSED: u8 = 5;

/// A block that the server no longer has for this client. Its owner adjusts its yardstick (section 5.3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The namespace.
    pub namespace: u32,
    /// The epoch in which the block was there: in another one, the notice has no meaning any more.
    pub epoch: u64,
    /// The block.
    pub block: u64,
}

/// Why a request was refused. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The epoch is not the present one.
    Epoch,
    /// The namespace was not opened on this connection.
    Namespace,
    /// A limit of the client is reached.
    Limit,
    /// The client has no permission.
    Denied,
    /// The server is ending.
    Ending,
    /// Another process of this client has the namespace open.
    Taken,
    /// The block cannot be read at the moment. It stays, unless it was to leave.
    Busy,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result<'a> {
    /// Of Open: the number of the namespace on this connection.
    Opened {
        /// The namespace.
        namespace: u32,
        /// Whether the blocks of the epoch that is resumed are still here, except those of notices.
        resumed: bool,
    },
    /// Of Retrieve: the block.
    Found {
        /// The contents, at most [`BLOCK_MAX`] bytes.
        data: &'a [u8],
    },
    /// Of Retrieve: the server does not have the block.
    Missed,
    /// Of Demote and Invalidate.
    Done,
    /// Of any.
    Refused {
        /// The reason.
        refusal: Refusal,
        /// The reason as text, at most [`TEXT_MAX`] bytes.
        text: &'a str,
    },
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The cookie of the request.
    pub cookie: u64,
    /// The result.
    pub result: Result<'a>,
    /// Blocks of this client that fit in before one is replaced.
    pub free: u64,
    /// How long ago the next block to be replaced was referenced, in microseconds; `None` if there is none.
    pub oldest_us: Option<u64>,
    /// At most [`NOTICES_MAX`].
    pub notices: Vec<Notice>,
}

impl<'a> Reply<'a> {
    /// Appends the message to `out`. Texts that are too long are shortened.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, detail, number, body): (u8, u8, u64, &[u8]) = match self.result {
            Result::Opened { namespace, resumed } => (OPENED, resumed.into(), namespace.into(), &[]),
            Result::Found { data } => (FOUND, 0, 0, data.get(..BLOCK_MAX).unwrap_or(data)),
            Result::Missed => (MISSED, 0, 0, &[]),
            Result::Done => (DONE, 0, 0, &[]),
            Result::Refused { refusal, text } => (REFUSED, refusal.number(), 0, shortened(text, TEXT_MAX).as_bytes()),
        };
        let notices = self.notices.get(..NOTICES_MAX).unwrap_or(&self.notices);
        out.extend(MAGIC.to_le_bytes());
        out.extend([kind, detail]);
        out.extend((notices.len() as u32).to_le_bytes());
        out.extend(self.cookie.to_le_bytes());
        out.extend(self.free.to_le_bytes());
        out.extend(u64::from(self.oldest_us.is_some()).to_le_bytes());
        out.extend(self.oldest_us.unwrap_or_default().to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend((body.len() as u64).to_le_bytes());
        for notice in notices {
            out.extend(notice.namespace.to_le_bytes());
            out.extend(notice.epoch.to_le_bytes());
            out.extend(notice.block.to_le_bytes());
        }
        out.extend(body);
    }

    /// Decodes the message at the front of `input`.
    pub fn decode(input: &'a [u8]) -> std::result::Result<Decoded<Reply<'a>>, Violation> {
        let head = match first(input, HEAD) {
            Ok(head) => head,
            Err(need) => return Ok(need),
        };
        let mut fields = Fields(head);
        let magic = fields.u16();
        if magic != MAGIC {
            return Err(Violation::Magic(magic.into()));
        }
        let (kind, detail) = (fields.u8(), fields.u8());
        let count = at_most("the number of notices", fields.u32().into(), NOTICES_MAX, "at most 1024")?;
        let (cookie, free) = (fields.u64(), fields.u64());
        let (has_oldest, oldest_us) = (fields.u64(), fields.u64());
        let number = fields.u64();
        let (most, expected) = match kind {
            FOUND => (BLOCK_MAX, "at most 65536"),
            REFUSED => (TEXT_MAX, "at most 1024"),
            OPENED | MISSED | DONE => (0, "0"),
            _ => return Err(Violation::Field { field: "the kind of reply", value: kind.into(), expected: "1 to 5" }),
        };
        let length = at_most("the length of a reply", fields.u64(), most, expected)?;
        let whole = match first(input, HEAD + count * NOTICE + length) {
            Ok(whole) => whole,
            Err(need) => return Ok(need),
        };
        let oldest_us = match (has_oldest, oldest_us) {
            (0, 0) => None,
            (1, age) => Some(age),
            _ => {
                let expected = "0, or 1 with an age";
                return Err(Violation::Field {
                    field: "whether there is an oldest block",
                    value: has_oldest,
                    expected,
                });
            }
        };
        let mut body = Fields(whole.get(HEAD..).unwrap_or_default());
        let notice = |_| Notice { namespace: body.u32(), epoch: body.u64(), block: body.u64() };
        let notices: Vec<Notice> = (0..count).map(notice).collect();
        let zero = |field: &'static str, value: u64| match value {
            0 => Ok(()),
            _ => Err(Violation::Field { field, value, expected: "0 in this reply" }),
        };
        if !matches!(kind, REFUSED | OPENED) {
            zero("the refusal", detail.into())?;
        }
        let result = match kind {
            OPENED => {
                let expected = "below 2^32";
                let namespace = u32::try_from(number).map_err(|_| Violation::Field {
                    field: "the namespace",
                    value: number,
                    expected,
                })?;
                let resumed = match detail {
                    0 | 1 => detail == 1,
                    _ => {
                        let expected = "0 or 1";
                        let field = "whether an epoch is resumed";
                        return Err(Violation::Field { field, value: detail.into(), expected });
                    }
                };
                Result::Opened { namespace, resumed }
            }
            _ => {
                zero("the namespace", number)?;
                match kind {
                    FOUND => Result::Found { data: body.bytes(length) },
                    MISSED => Result::Missed,
                    DONE => Result::Done,
                    _ => Result::Refused { refusal: Refusal::of(detail)?, text: body.text(length, "a refusal")? },
                }
            }
        };
        Ok(Decoded::Whole(Reply { cookie, result, free, oldest_us, notices }, whole.len()))
    }
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 7] = [
        Refusal::Epoch,
        Refusal::Namespace,
        Refusal::Limit,
        Refusal::Denied,
        Refusal::Ending,
        Refusal::Taken,
        Refusal::Busy,
    ];

    fn number(self) -> u8 {
        match self {
            Refusal::Epoch => 1,
            Refusal::Namespace => 2,
            Refusal::Limit => 3,
            Refusal::Denied => 4,
            Refusal::Ending => 5,
            Refusal::Taken => 6,
            Refusal::Busy => 7,
        }
    }

    fn of(number: u8) -> std::result::Result<Refusal, Violation> {
        let found = Refusal::ALL.into_iter().find(|refusal| refusal.number() == number);
        found.ok_or(Violation::Field { field: "the refusal", value: number.into(), expected: "1 to 7" })
    }
}
