//! Whatever a server sends in whatever pieces, replies are understood or refused, and no byte of a read arrives twice or from
//! beyond the request. Whatever text is given as a URI, it is refused or shown as it is parsed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_nbd::client::{Asked, Coverage, Part, Replies};
use nigh_nbd::uri::Uri;
use nigh_nbd::wire::command;
use nigh_nbd::{Decoded, Framing};

fn asked(cookie: u64) -> Option<Asked> {
    let (command, offset, length) = match cookie {
        0 => (command::READ, 4096, 300),
        1 => (command::WRITE, 0, 4096),
        2 => (command::BLOCK_STATUS, 0, 1 << 20),
        3 => (command::FLUSH, 0, 0),
        _ => return None,
    };
    Some(Asked { command, offset, length })
}

fn follow(framing: Framing, piece: usize, input: &[u8]) {
    let (mut replies, mut arrived) = (Replies::new(framing), Coverage::default());
    let (mut from, mut to) = (0, 0);
    loop {
        match replies.step(&input[from..to], asked) {
            Err(_) => return,
            Ok(Decoded::Need(more)) => {
                assert!(more > 0);
                if to == input.len() {
                    return;
                }
                to = (to + more.min(piece)).min(input.len());
            }
            Ok(Decoded::Whole(part, taken)) => {
                from += taken;
                let (offset, length) = match part {
                    Some(Part::Data { offset, bytes, .. }) => (offset, bytes.len() as u64),
                    Some(Part::Zeroes { offset, length, .. }) => (offset, length),
                    Some(Part::Done { cookie: 0 }) => {
                        arrived = Coverage::default();
                        continue;
                    }
                    _ => continue,
                };
                assert!(offset >= 4096 && offset + length <= 4096 + 300);
                if arrived.add(offset, length).is_err() {
                    return;
                }
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, input)) = data.split_first() else { return };
    let framing = [Framing::Simple, Framing::Structured, Framing::Extended][usize::from(mode) % 3];
    follow(framing, 1 + usize::from(mode / 3), input);
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(uri) = text.parse::<Uri>()
    {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
});
