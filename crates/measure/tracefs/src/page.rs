//! Pages of the kernel's ring buffer, as `trace_pipe_raw` returns them: a time, a length, and events with the time since
//! the event before (Documentation/trace/ring-buffer-design.rst, include/linux/ring_buffer.h).

use crate::format::{Field, Layout};
use crate::{Error, Result};

const WORD: usize = 4;
/// An event begins with a word: 5 bits of type or length, 27 of time.
const TYPE_BITS: u32 = 5;
const DELTA_BITS: u32 = 27;
const DATA_MOST: u32 = 28;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An absolute time has this many bits; the others are those of the time before.
const STAMP_BITS: u32 = 59;

/// The length of a page's data is in the low bits; the others are flags.
const LENGTH_MASK: u64 = (1 << 20) - 1;

/// The places of what a page consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    time: Field,
    length: Field,
    data: Field,
}

impl Shape {
    /// Reads the kernel's description, `events/header_page`.
    pub fn new(header_page: &str) -> Result<Shape> {
        let (layout, what) = (Layout::parse(header_page), "events/header_page");
        Ok(Shape {
            time: layout.field(what, "timestamp", &[8])?,
            length: layout.field(what, "commit", &[4, 8])?,
            data: layout.field(what, "data", &[])?,
        })
    }

    /// Bytes in a page.
    pub fn bytes(&self) -> usize {
        self.data.offset.saturating_add(self.data.size)
    }

    /// The events of `page`.
    pub fn events<'a>(&self, page: &'a [u8]) -> Result<Events<'a>> {
        let wrong = |found: String| Error::Unexpected {
            what: "a page of the trace buffer".to_owned(),
            found,
            expected: "a header and as many bytes as it announces",
        };
        let header = self.time.number(page).zip(self.length.number(page));
        let (time, length) = header.ok_or_else(|| wrong(format!("{} bytes", page.len())))?;
        let length = (length & LENGTH_MASK) as usize;
        let data = page.get(self.data.offset..).and_then(|data| data.get(..length));
        let data = data.ok_or_else(|| wrong(format!("{} bytes and {length} announced", page.len())))?;
        Ok(Events { data, time })
    }
}

/// The events of a page: the time of each, in nanoseconds of the trace's clock, and its record.
#[derive(Debug)]
pub struct Events<'a> {
    data: &'a [u8],
    time: u64,
}

impl<'a> Events<'a> {
    fn word(&self, number: usize) -> Option<u32> {
        let at = number * WORD;
        Some(u32::from_ne_bytes(self.data.get(at..at + WORD)?.try_into().ok()?))
    }

    /// Moves past `bytes`, which were an event's, and returns those from `skip` on.
    fn take(&mut self, skip: usize, bytes: usize) -> Option<&'a [u8]> {
        let (event, rest) = self.data.split_at_checked(bytes)?;
        self.data = rest;
        event.get(skip..)
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        loop {
            let head = self.word(0)?;
            let kind = head & ((1 << TYPE_BITS) - 1);
            let delta = u64::from(head >> TYPE_BITS);
            match kind {
                TIME_EXTEND | TIME_STAMP => {
                    let time = (u64::from(self.word(1)?) << DELTA_BITS).wrapping_add(delta);
                    let high = !0 << STAMP_BITS;
                    self.time = match kind {
                        TIME_EXTEND => self.time.wrapping_add(time),
                        _ => self.time & high | time & !high,
                    };
                    self.take(0, 2 * WORD)?;
                }
                // The rest of the page is empty.
                PADDING if delta == 0 => return None,
                PADDING => {
                    self.time = self.time.wrapping_add(delta);
                    let bytes = WORD.checked_add(self.word(1)? as usize)?;
                    self.take(0, bytes)?;
                }
                0 => {
                    self.time = self.time.wrapping_add(delta);
                    // It includes its own word. Records begin at multiples of a word.
                    let bytes = WORD.checked_add((self.word(1)? as usize).checked_next_multiple_of(WORD)?)?;
                    return Some((self.time, self.take(2 * WORD, bytes)?));
                }
                1..=DATA_MOST => {
                    self.time = self.time.wrapping_add(delta);
                    return Some((self.time, self.take(WORD, WORD * (kind as usize + 1))?));
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = time.to_ne_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | flags).to_ne_bytes());
        words.iter().for_each(|word| page.extend(word.to_ne_bytes()));
        page
    }

    fn head(kind: u32, delta: u32) -> u32 {
        delta << 5 | kind
    }

    fn records(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let shape = Shape::new(HEADER).unwrap();
        assert_eq!(shape.bytes(), 4096);
        shape.events(page).unwrap().map(|(time, record)| (time, record.to_vec())).collect()
    }

    #[test]
    fn times_add_up_over_all_kinds_of_events() {
        let words = [
            head(1, 5), // 1005
            0x4433_2211,
            head(30, 3), // + 2^27 + 3
            1,
            head(2, 1),
            7,
            8,
            head(29, 10), // removed: 8 bytes
            4,
            head(0, 2), // a record of 8 bytes, with its length
            12,
            1,
            2,
            head(31, 9), // at 2^28 + 9
            2,
            head(1, 0),
            3,
            head(29, 0), // nothing else
            99,
        ];
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let extended = 1005 + (1 << 27) + 3;
        let expected = vec![
            (1005, bytes(&[0x4433_2211])),
            (extended + 1, bytes(&[7, 8])),
            (extended + 13, bytes(&[1, 2])),
            ((2 << 27) + 9, bytes(&[3])),
        ];
        assert_eq!(records(&page(1000, 1 << 31 | 1 << 30, &words)), expected);
    }

    #[test]
    fn an_absolute_time_keeps_the_highest_bits() {
        let time = (3 << STAMP_BITS) | 17;
        assert_eq!(records(&page(time, 0, &[head(31, 1), 4, head(1, 2), 0]))[0].0, (3 << STAMP_BITS) | ((4 << 27) + 3));
    }

    /// Every page of random words, and every beginning of one, ends without a panic.
    #[test]
    fn a_damaged_page_is_read_up_to_the_damage() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let shape = Shape::new(HEADER).unwrap();
        for _ in 0..20_000 {
            let mut words: Vec<u32> = (0..random() % 40).map(|_| random() as u32).collect();
            words.iter_mut().step_by(2).for_each(|word| *word &= 0x3ff);
            let mut page = page(random(), random() & 1 << 31, &words);
            page.truncate(page.len() - (random() % 8) as usize);
            if let Ok(events) = shape.events(&page) {
                assert!(events.count() <= words.len());
            }
        }
        assert!(shape.events(&[0; 12]).is_err());
        assert!(shape.events(&page(0, 64, &[])).is_err());
    }
}
