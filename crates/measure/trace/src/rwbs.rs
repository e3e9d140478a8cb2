//! The kinds of block requests in the notation of blktrace and the kernel's block tracepoints: RWBS.
//!
//! One letter is the operation: `R` read, `W` write, `D` discard, `E` erase, `Z` with a second letter for zones, `N`
//! none. `F` before it requests a flush first. After it there can be `F` (force unit access), `A` (read-ahead), `S`
//! (synchronous), `M` (metadata), `B` and `U` (barrier, atomic). `FF` is a flush only.

use crate::error::Bad;
use crate::text::extent_of;
use crate::{Op, Request};

/// The kind of one request.
#[derive(Clone, Copy, Debug)]
pub struct Rwbs {
    /// The operation on data; `None` for kinds that access no data.
    pub op: Option<Op>,
    /// Whether it flushes, in addition or only.
    pub flushes: bool,
}

impl Rwbs {
    /// The kind in `field`. Unknown letters are ignored.
    pub fn new(field: &[u8]) -> Rwbs {
        let flushes = field.contains(&b'F');
        let op = match field {
            _ if field.starts_with(b"ZA") => Some(Op::Write),
            _ if field.starts_with(b"Z") => return Rwbs { op: None, flushes: false },
            _ if field.contains(&b'D') => Some(Op::Trim),
            _ if field.contains(&b'W') => Some(Op::Write),
            _ if field.contains(&b'R') => Some(Op::Read),
            _ => None,
        };
        Rwbs { op, flushes }
    }

    /// The kind in `field`, if it consists only of known letters.
    pub(crate) fn strict(field: &[u8]) -> Option<Rwbs> {
        let rest = match field {
            [b'F', b'F', rest @ ..] => rest,
            [b'Z', _, rest @ ..] => rest,
            [b'F', b'R' | b'W' | b'D' | b'E' | b'N', rest @ ..] => rest,
            [b'R' | b'W' | b'D' | b'E' | b'N', rest @ ..] => rest,
            _ => return None,
        };
        let is_known = rest.iter().all(|byte| matches!(byte, b'F' | b'A' | b'S' | b'M' | b'B' | b'U' | b'E'));
        is_known.then(|| Rwbs::new(field))
    }

    /// The request of this kind for `count` units of `unit_bytes` from `first` on; `None` if it accesses nothing.
    pub(crate) fn request(
        self,
        line: &[u8],
        request: Request,
        (first, first_bytes): (u64, u64),
        (count, unit_bytes): (u64, u64),
    ) -> Result<Option<Request>, Bad> {
        let flush = self.flushes.then_some(Request { op: Op::Flush, ..request });
        let Some(op) = self.op.filter(|_| count > 0) else { return Ok(flush) };
        let far = || Bad::field(line, crate::text::EXTENT);
        let first = first.checked_mul(first_bytes).ok_or_else(far)?;
        let bytes = count.checked_mul(unit_bytes).ok_or_else(far)?;
        let (offset, length) = extent_of(line, first, bytes, 1)?;
        Ok(Some(Request { offset, length, op, ..request }))
    }
}
