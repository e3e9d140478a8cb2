//! Text in UTF-16, as some programs of Windows write it, as UTF-8.

use std::io::{self, Read};

/// The bytes by which UTF-16 is detected.
const SAMPLE_BYTES: usize = 64;
/// Code units that are decoded at a time.
const UNITS: usize = 8192;

/// A source whose content is UTF-8 if it is UTF-16 in `source`, and otherwise as it is there.
pub(crate) struct Utf8<R> {
    source: R,
    state: State,
    /// `ready[at..]` is to be returned next.
    ready: Vec<u8>,
    at: usize,
    /// The error behind `ready`.
    error: Option<io::Error>,
}

enum State {
    /// Nothing was read.
    Start,
    /// The content is not UTF-16.
    Plain,
    /// The content is UTF-16, with these bytes at the end of what was read: part of a code unit, or the first half of a pair.
    Wide { is_big_endian: bool, rest: Vec<u8> },
}

impl<R: Read> Utf8<R> {
    pub(crate) fn new(source: R) -> Utf8<R> {
        Utf8 { source, state: State::Start, ready: Vec::new(), at: 0, error: None }
    }

    /// Reads the first bytes and finds out what they are.
    fn start(&mut self) {
        let mut sample = Vec::with_capacity(SAMPLE_BYTES);
        self.error = self.source.by_ref().take(SAMPLE_BYTES as u64).read_to_end(&mut sample).err();
        self.state = match byte_order(&sample) {
            None => State::Plain,
            Some(is_big_endian) => State::Wide { is_big_endian, rest: Vec::new() },
        };
        match self.state {
            State::Wide { .. } => self.decode(sample),
            _ => self.ready = sample,
        }
    }

    /// Makes the code units in `bytes` ready, after the rest of those before.
    fn decode(&mut self, bytes: Vec<u8>) {
        let State::Wide { is_big_endian, rest } = &mut self.state else { return };
        let is_last = bytes.is_empty();
        let bytes = [std::mem::take(rest), bytes].concat();
        let unit = |pair: &[u8; 2]| if *is_big_endian { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) };
        let (pairs, odd) = bytes.as_chunks::<2>();
        let splits = pairs.last().is_some_and(|pair| (0xd800..0xdc00).contains(&unit(pair))) && !is_last;
        let (pairs, half) = pairs.split_at(pairs.len() - usize::from(splits));
        if !is_last {
            *rest = [half.as_flattened(), odd].concat();
        }
        let text: String =
            char::decode_utf16(pairs.iter().map(unit)).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.ready = text.into_bytes();
        self.at = 0;
    }
}

/// Whether content that begins with `sample` is UTF-16, and if it is, whether it is big-endian: after a byte order mark, or
/// without one, all code units are ASCII text.
fn byte_order(sample: &[u8]) -> Option<bool> {
    /// Fewer code units show nothing.
    const UNITS_LEAST: usize = 4;
    let (pairs, _) = sample.as_chunks::<2>();
    let (is_big_endian, pairs) = match pairs {
        [[0xff, 0xfe], rest @ ..] => (false, rest),
        [[0xfe, 0xff], rest @ ..] => (true, rest),
        [[0, _], ..] => (true, pairs),
        _ => (false, pairs),
    };
    let is_text = |[first, second]: &[u8; 2]| {
        let (high, low) = if is_big_endian { (first, second) } else { (second, first) };
        *high == 0 && (low.is_ascii_graphic() || matches!(low, b' ' | b'\t' | b'\r' | b'\n'))
    };
    (pairs.len() >= UNITS_LEAST && pairs.iter().all(is_text)).then_some(is_big_endian)
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if matches!(self.state, State::Start) {
            self.start();
        }
        loop {
            let ready = self.ready.get(self.at..).unwrap_or_default();
            if !ready.is_empty() || buffer.is_empty() {
                let bytes = ready.len().min(buffer.len());
                if let (Some(to), Some(from)) = (buffer.get_mut(..bytes), ready.get(..bytes)) {
                    to.copy_from_slice(from);
                }
                self.at += bytes;
                return Ok(bytes);
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if matches!(self.state, State::Plain) {
                return self.source.read(buffer);
            }
            let mut wide = vec![0; 2 * UNITS];
            let bytes = self.source.read(&mut wide)?;
            wide.truncate(bytes);
            self.decode(wide);
            if bytes == 0 && self.ready.is_empty() {
                return Ok(0);
            }
        }
    }
}
