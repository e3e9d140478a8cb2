//! Replies to a client, in pieces, and those that make no sense.

use nigh_nbd::client::{Asked, Coverage, Part, Replies, ReplyError, Unexpected};
use nigh_nbd::wire::command;
use nigh_nbd::{Decoded, Errno, Framing, Tag, Violation};

const READ: Asked = Asked { command: command::READ, offset: 4096, length: 4096 };
const TAG: Tag = Tag { cookie: 7, offset: 4096 };

/// Everything of `input`, fed in pieces of `most` bytes, with data joined.
fn parts(framing: Framing, input: &[u8], most: usize) -> Result<Vec<String>, ReplyError> {
    let mut replies = Replies::new(framing);
    let (mut parts, mut data) = (Vec::new(), Vec::new());
    let (mut from, mut to) = (0, 0);
    loop {
        let front = input.get(from..to).unwrap();
        match replies.step(front, |cookie| (cookie == 7).then_some(READ))? {
            Decoded::Need(_) if to == input.len() => return Ok(parts),
            Decoded::Need(more) => to = (to + more.min(most)).min(input.len()),
            Decoded::Whole(part, taken) => {
                from += taken;
                match part {
                    Some(Part::Data { bytes, .. }) => data.extend_from_slice(bytes),
                    Some(other) => parts.push(format!("{} {other:?}", data.len())),
                    None => {}
                }
            }
        }
    }
}

#[test]
fn replies_may_come_in_any_pieces() {
    let chunks = Framing::Structured.chunks().unwrap();
    let structured = [
        &chunks.data(TAG, 6144, 2048, false)[..],
        &[1; 2048],
        &chunks.hole(TAG, 4096, 2048, false),
        &Framing::Structured.error(TAG, Errno::Io),
    ]
    .concat();
    let simple = [&Framing::Simple.data(TAG, 4096)[..], &[2; 4096], &Framing::Simple.error(TAG, Errno::NoSpc)].concat();
    for most in [1, 3, 100, 100_000] {
        let said = parts(Framing::Structured, &structured, most).unwrap();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("2048 Zeroes { cookie: 7, offset: 4096, length: 2048"), "{said:?}");
        assert!(said[1].contains("errno: Io") && said[2].contains("Done"), "{said:?}");
        let said = parts(Framing::Simple, &simple, most).unwrap();
        assert!(said[0].starts_with("4096 Done") && said[1].contains("NoSpc") && said[2].contains("Done"), "{said:?}");
    }
}

#[test]
fn what_belongs_to_no_request_is_refused() {
    let chunks = Framing::Structured.chunks().unwrap();
    let refused = |input: &[u8]| parts(Framing::Structured, input, 4096).unwrap_err();
    let other = Tag { cookie: 8, offset: 0 };
    assert_eq!(refused(&Framing::Structured.success(other)), Unexpected::Cookie.into());
    assert_eq!(refused(&chunks.data(TAG, 4095, 2, true)), Unexpected::Chunk.into());
    assert_eq!(refused(&chunks.data(TAG, 8191, 2, true)), Unexpected::Chunk.into());
    assert_eq!(refused(&chunks.hole(TAG, 8191, 2, true)), Unexpected::Chunk.into());
    assert_eq!(refused(&Framing::Simple.success(TAG)), Unexpected::SimpleRead.into());
    assert!(matches!(refused(&[0; 20]), ReplyError::Violation(Violation::Magic(0))));
}

#[test]
fn no_byte_arrives_twice() {
    let mut coverage = Coverage::default();
    for (offset, length) in [(10, 10), (30, 10), (0, 10), (20, 5)] {
        coverage.add(offset, length).unwrap();
    }
    assert!(!coverage.is_whole(&(0..40)));
    for (offset, length) in [(24, 2), (0, 1), (39, 5), (5, 100)] {
        assert_eq!(coverage.add(offset, length), Err(Unexpected::Chunk), "{offset}+{length}");
    }
    coverage.add(25, 5).unwrap();
    assert!(coverage.is_whole(&(0..40)));
    let mut scattered = Coverage::default();
    let refused = (0..5000).find(|at| scattered.add(2 * at, 1).is_err());
    assert_eq!(refused, Some(1024));
}
