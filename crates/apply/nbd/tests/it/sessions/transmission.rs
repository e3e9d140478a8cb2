//! Transmission: which requests are valid, and what becomes of those that are not.

use nigh_nbd::wire::command::{BLOCK_STATUS, CACHE, DISC, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
use nigh_nbd::wire::command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
use nigh_nbd::{
    BlockSizes, Command, Context, Errno, Event, Export, Features, Framing, RequestHeader, Transmission, Violation,
};

use super::{disk, transmission};

const SIZE: u64 = 1 << 20;
const BOTH: [Context; 2] = Context::ALL;

fn header(command: u16, flags: u16, offset: u64, length: u64) -> RequestHeader {
    RequestHeader { flags, command, cookie: 99, offset, length }
}

/// The event after the header; that of a refused request with a payload comes after its payload.
fn step(transmission: &mut Transmission, header: RequestHeader) -> Result<Event, Violation> {
    let bytes = header.encode(transmission.framing()).unwrap();
    let (consumed, event) = transmission.step(&bytes)?;
    assert_eq!(consumed, bytes.len());
    let Event::Need(payload) = event else { return Ok(event) };
    assert_eq!(payload as u64, header.length);
    let (consumed, event) = transmission.step(&vec![0; payload])?;
    assert_eq!(consumed, payload);
    Ok(event)
}

/// The errno with which a fresh session refuses the request; `None` when it yields it.
fn refusal(export: Export, framing: Framing, header: RequestHeader) -> Option<Errno> {
    let contexts = if framing == Framing::Simple { &[][..] } else { &BOTH };
    match step(&mut transmission(export, framing, contexts), header).unwrap() {
        Event::Refused { tag, errno } => {
            assert_eq!((tag.cookie, tag.offset), (99, header.offset));
            Some(errno)
        }
        Event::Request(request) => {
            assert_eq!((request.cookie, request.offset, request.length), (99, header.offset, header.length));
            None
        }
        event => panic!("{event:?}"),
    }
}

fn structured(command: u16, flags: u16, offset: u64, length: u64) -> Option<Errno> {
    refusal(disk("root"), Framing::Structured, header(command, flags, offset, length))
}

#[test]
fn commands_with_their_flags() {
    let zeroes = Command::WriteZeroes { fua: true, no_hole: true, fast: true };
    for (number, flags, command) in [
        (READ, 0, Command::Read { dont_fragment: false }),
        (READ, DF | FUA, Command::Read { dont_fragment: true }),
        (TRIM, FUA, Command::Trim { fua: true }),
        (CACHE, 0, Command::Cache),
        (WRITE_ZEROES, FUA | NO_HOLE | FAST_ZERO, zeroes),
        (BLOCK_STATUS, REQ_ONE, Command::BlockStatus { one: true }),
        (WRITE, FUA, Command::Write { fua: true }),
    ] {
        let mut session = transmission(disk("root"), Framing::Structured, &BOTH);
        match step(&mut session, header(number, flags, 512, 1024)).unwrap() {
            Event::Request(request) => assert_eq!(request.command, command),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(structured(FLUSH, FUA, 0, 0), None);
    let mut session = transmission(disk("root"), Framing::Simple, &[]);
    assert_eq!(step(&mut session, header(DISC, 0, 1, 1)), Ok(Event::Disconnect));
}

#[test]
fn unknown_commands_and_flags() {
    for (command, flags) in [
        (8, 0),
        (u16::MAX, 0),
        (READ, NO_HOLE),
        (READ, REQ_ONE),
        (READ, PAYLOAD_LEN),
        (READ, 1 << 15),
        (WRITE, DF),
        (WRITE, PAYLOAD_LEN),
        (FLUSH, DF),
        (TRIM, NO_HOLE),
        (CACHE, DF),
        (WRITE_ZEROES, DF),
        (BLOCK_STATUS, FAST_ZERO),
    ] {
        let length = if command == FLUSH { 0 } else { 512 };
        assert_eq!(structured(command, flags, 0, length), Some(Errno::Inval), "command {command} flags {flags}");
    }
}

#[test]
fn what_was_not_offered_is_refused() {
    let bare = Export { features: Features::default(), ..disk("root") };
    for (command, flags, length) in
        [(FLUSH, 0, 0), (TRIM, 0, 512), (CACHE, 0, 512), (WRITE_ZEROES, 0, 512), (READ, FUA, 512), (WRITE, FUA, 512)]
    {
        let refused = refusal(bare.clone(), Framing::Structured, header(command, flags, 0, length));
        assert_eq!(refused, Some(Errno::Inval), "command {command} flags {flags}");
    }
    assert_eq!(refusal(bare.clone(), Framing::Structured, header(WRITE, 0, 0, 512)), None);
    assert_eq!(refusal(bare, Framing::Structured, header(READ, DF, 0, 512)), None);
    assert_eq!(refusal(disk("root"), Framing::Simple, header(READ, DF, 0, 512)), Some(Errno::Inval));
    assert_eq!(refusal(disk("root"), Framing::Simple, header(BLOCK_STATUS, 0, 0, 512)), Some(Errno::Inval));
    let slow = Features { fast_zero: false, ..disk("root").features };
    let slow = Export { features: slow, ..disk("root") };
    let fast = header(WRITE_ZEROES, FAST_ZERO, 0, 512);
    assert_eq!(refusal(slow, Framing::Structured, fast), Some(Errno::Inval));
}

#[test]
fn read_only() {
    for features in [Features::default(), disk("root").features] {
        let export = Export { features: Features { read_only: true, ..features }, ..disk("root") };
        for command in [WRITE, TRIM, WRITE_ZEROES] {
            let refused = refusal(export.clone(), Framing::Structured, header(command, 0, 2 * SIZE, 512));
            assert_eq!(refused, Some(Errno::Perm));
        }
        assert_eq!(refusal(export, Framing::Structured, header(READ, 0, 0, 512)), None);
    }
}

#[test]
fn bounds() {
    for (command, errno) in [
        (READ, Errno::Inval),
        (TRIM, Errno::Inval),
        (CACHE, Errno::Inval),
        (BLOCK_STATUS, Errno::Inval),
        (WRITE, Errno::NoSpc),
        (WRITE_ZEROES, Errno::NoSpc),
    ] {
        assert_eq!(structured(command, 0, SIZE - 512, 512), None);
        assert_eq!(structured(command, 0, SIZE - 511, 512), Some(errno));
        assert_eq!(structured(command, 0, SIZE, 1), Some(errno));
        assert_eq!(structured(command, 0, u64::MAX, 512), Some(errno));
        assert_eq!(structured(command, 0, 0, 0), Some(Errno::Inval));
    }
    assert_eq!(structured(FLUSH, 0, 1, 0), Some(Errno::Inval));
    assert_eq!(structured(FLUSH, 0, 0, 1), Some(Errno::Inval));

    let mut session = transmission(disk("root"), Framing::Simple, &[]);
    session.resize(4096);
    let refused = step(&mut session, header(READ, 0, 4096, 1)).unwrap();
    assert!(matches!(refused, Event::Refused { errno: Errno::Inval, .. }));
    session.resize(8192);
    assert!(matches!(step(&mut session, header(READ, 0, 4096, 1)), Ok(Event::Request(_))));
}

#[test]
fn alignment() {
    let blocks = BlockSizes { minimum: 512, ..BlockSizes::default() };
    for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        let export = Export { blocks, ..disk("root") };
        let refused = |offset, length| refusal(export.clone(), Framing::Structured, header(command, 0, offset, length));
        assert_eq!(refused(512, 1024), None);
        assert_eq!(refused(511, 512), Some(Errno::Inval));
        assert_eq!(refused(512, 100), Some(Errno::Inval));
    }
}

#[test]
fn lengths() {
    let blocks = BlockSizes { maximum: 64 << 10, ..BlockSizes::default() };
    let export = Export { blocks, size: 1 << 40, ..disk("root") };
    let refused =
        |command, flags, length| refusal(export.clone(), Framing::Structured, header(command, flags, 0, length));
    assert_eq!(refused(READ, DF, 64 << 10), None);
    assert_eq!(refused(READ, 0, (64 << 10) + 1), Some(Errno::Inval));
    assert_eq!(refused(READ, DF, (64 << 10) + 1), Some(Errno::Overflow));
    assert_eq!(refused(WRITE, 0, (64 << 10) + 1), Some(Errno::Inval));
    for command in [TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        assert_eq!(refused(command, 0, u32::MAX.into()), None);
        assert_eq!(refusal(export.clone(), Framing::Extended, header(command, 0, 0, 1 << 40)), None);
    }
}

#[test]
fn payloads_of_refused_writes_are_passed_over() {
    let mut session = transmission(disk("root"), Framing::Structured, &[]);
    let length = u64::from(u32::MAX);
    let write = header(WRITE, 0, 0, length).encode(Framing::Structured).unwrap();
    assert_eq!(session.step(&write), Ok((write.len(), Event::Need(length as usize))), "no reply before the payload");
    let piece = vec![0x25; 1 << 20];
    let mut left = length;
    while left > piece.len() as u64 {
        let (consumed, event) = session.step(&piece).unwrap();
        assert_eq!(consumed, piece.len());
        left -= consumed as u64;
        assert_eq!(event, Event::Need(left as usize));
    }
    let read = header(READ, 0, 0, 512).encode(Framing::Structured).unwrap();
    let rest = [&piece[..left as usize], &read].concat();
    let (consumed, event) = session.step(&rest).unwrap();
    assert_eq!(consumed as u64, left);
    assert!(matches!(event, Event::Refused { errno: Errno::NoSpc, .. }));
    let (consumed, event) = session.step(&rest[consumed..]).unwrap();
    assert_eq!(consumed, read.len());
    assert!(matches!(event, Event::Request(_)));
}

#[test]
fn the_host_takes_payloads_itself_or_has_them_passed_over() {
    let mut session = transmission(disk("root"), Framing::Simple, &[]);
    let write = header(WRITE, 0, 0, 4).encode(Framing::Simple).unwrap();
    let stream = [&write, &b"data"[..], &write, b"skip", &write].concat();
    let (first, event) = session.step(&stream).unwrap();
    assert!(matches!(event, Event::Request(_)));
    let second = first + 4;
    let (consumed, event) = session.step(&stream[second..]).unwrap();
    assert!(matches!(event, Event::Request(_)));
    session.skip(4);
    let third = second + consumed;
    let (consumed, event) = session.step(&stream[third..]).unwrap();
    assert_eq!(third + consumed, stream.len());
    assert!(matches!(event, Event::Request(_)));
}

#[test]
fn extended_payloads() {
    let session = || transmission(disk("root"), Framing::Extended, &BOTH);
    let accepted = step(&mut session(), header(WRITE, PAYLOAD_LEN | FUA, 0, 512)).unwrap();
    assert!(matches!(accepted, Event::Request(request) if request.command == Command::Write { fua: true }));

    let mut without = session();
    let refused = step(&mut without, header(WRITE, 0, 0, 512)).unwrap();
    assert!(matches!(refused, Event::Refused { errno: Errno::Inval, .. }));
    assert!(matches!(step(&mut without, header(READ, 0, 0, 512)), Ok(Event::Request(_))));

    for command in [READ, BLOCK_STATUS, 99] {
        let mut with = session();
        let refused = step(&mut with, header(command, PAYLOAD_LEN, 0, 8)).unwrap();
        assert!(matches!(refused, Event::Refused { errno: Errno::Inval, .. }));
        assert_eq!(with.step(&[]), Ok((0, Event::Need(32))), "the payload is passed over");
    }

    let maximum = 32 << 20;
    let long = step(&mut session(), header(WRITE, PAYLOAD_LEN, 0, u64::from(maximum) + 1));
    assert_eq!(long, Err(Violation::PayloadTooLong { length: u64::from(maximum) + 1, maximum }));
}

#[test]
fn broken_streams_are_closed() {
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut session = transmission(disk("root"), framing, &[]);
        assert_eq!(session.step(b"GET / HTTP/1.1"), Err(Violation::Magic(0x4745_5420)));
    }
}

#[test]
fn headers_are_coded_without_allocation() {
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let mut session = transmission(disk("root"), framing, &[]);
        let counted = allocation_counter::measure(|| {
            let read = header(READ, 0, 4096, 4096).encode(framing).unwrap();
            let (_, event) = session.step(&read).unwrap();
            let Event::Request(request) = event else { return };
            assert!(framing.data(request.tag(), 4096).len() >= 16);
            assert!(framing.error(request.tag(), Errno::Io).len() >= 16);
            assert!(matches!(session.step(&read[..20]), Ok((0, Event::Need(_)))));
        });
        assert_eq!(counted.count_total, 0);
    }
}
