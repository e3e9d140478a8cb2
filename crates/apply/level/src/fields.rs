//! Little-endian fields in byte slices, without indexing.

use crate::{Decoded, Violation};

/// Reads fields of a message that is as long as they are.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk::<N>() else { return [0; N] };
        self.0 = rest;
        *field
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(length).unwrap_or((self.0, &[]));
        self.0 = rest;
        bytes
    }

    pub(crate) fn text(&mut self, length: usize, field: &'static str) -> Result<&'a str, Violation> {
        let text = std::str::from_utf8(self.bytes(length)).map_err(|_| Violation::Text(field))?;
        // It is shown on terminals.
        if text.chars().any(char::is_control) { Err(Violation::Text(field)) } else { Ok(text) }
    }
}

/// The first `length` bytes of `input`, or how many are missing.
pub(crate) fn first<T>(input: &[u8], length: usize) -> Result<&[u8], Decoded<T>> {
    input.get(..length).ok_or_else(|| Decoded::Need(length - input.len()))
}

/// `value`, which is at most `most`.
pub(crate) fn at_most(
    field: &'static str,
    value: u64,
    most: usize,
    expected: &'static str,
) -> Result<usize, Violation> {
    let length = usize::try_from(value).ok().filter(|&length| length <= most);
    length.ok_or(Violation::Field { field, value, expected })
}

/// The longest beginning of `text` that has at most `most` bytes.
pub(crate) fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}
