//! The client against servers that break the protocol.

use std::io::{Cursor, Read, Write};

use nigh_nbd::client::{Client, Error, Handshake, Unexpected};
use nigh_nbd::handshake::OptionReplyHeader;
use nigh_nbd::wire::{option, option_reply};
use nigh_nbd::{Errno, Framing, Negotiation, Tag};

/// A server whose bytes are all there from the beginning, and which ignores what it is sent.
pub(crate) struct Script(Cursor<Vec<u8>>);

impl Script {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Cursor::new(bytes))
    }
}

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        Ok(from.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    [&*OptionReplyHeader { option, kind, length: data.len() as u32 }.encode(), data].concat()
}

/// The messages of a server up to the transmission phase of an export of 1 MiB, with structured replies and contexts.
pub(crate) fn prelude() -> Vec<u8> {
    let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat();
    [
        Negotiation::greeting().to_vec(),
        reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]),
        reply(option::SET_META_CONTEXT, option_reply::META_CONTEXT, b"\0\0\0\x09base:allocation"),
        reply(option::SET_META_CONTEXT, option_reply::ACK, &[]),
        reply(option::GO, option_reply::INFO, &export),
        reply(option::GO, option_reply::ACK, &[]),
    ]
    .concat()
}

fn client(replies: &[&[u8]]) -> Client<Script> {
    let bytes = [prelude(), replies.concat()].concat();
    Client::connect(Script::new(bytes), "disk", &["base:allocation"]).unwrap()
}

/// A client's first request has cookie 1.
fn tag(offset: u64) -> Tag {
    Tag { cookie: 1, offset }
}

fn unexpected<T: std::fmt::Debug>(result: Result<T, Error>) -> Unexpected {
    match result {
        Err(Error::Unexpected(unexpected)) => unexpected,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_are_put_together_in_any_order() {
    let chunks = Framing::Structured.chunks().unwrap();
    let mut client = client(&[
        &chunks.data(tag(100), 104, 2, false),
        b"ef",
        &chunks.hole(tag(100), 102, 2, false),
        &chunks.data(tag(100), 100, 2, false),
        b"ab",
        &chunks.end(tag(100)),
    ]);
    assert_eq!(client.read(100, 6).unwrap(), b"ab\0\0ef");
}

#[test]
fn chunks_outside_their_request_are_refused() {
    let chunks = Framing::Structured.chunks().unwrap();
    for chunk in [
        chunks.data(tag(100), 99, 2, true),
        chunks.data(tag(100), 105, 2, true),
        chunks.hole(tag(100), 100, 7, true),
        chunks.hole(tag(100), 100, 0, true),
        chunks.data(tag(100), u64::MAX, 2, true),
    ] {
        assert_eq!(unexpected(client(&[&chunk, b"ab"]).read(100, 6)), Unexpected::Chunk);
    }
    let stray = chunks.end(Tag { cookie: 2, offset: 0 });
    assert_eq!(unexpected(client(&[&stray]).read(0, 6)), Unexpected::Cookie);
    assert_eq!(unexpected(client(&[&chunks.end(tag(0))]).read(0, 6)), Unexpected::Incomplete);
    assert_eq!(unexpected(client(&[&chunks.data(tag(0), 0, 6, true)]).flush()), Unexpected::Chunk);
    assert_eq!(unexpected(client(&[&Framing::Simple.success(tag(0))]).read(0, 6)), Unexpected::SimpleRead);
}

#[test]
fn errors_of_the_server_are_told() {
    let chunks = Framing::Structured.chunks().unwrap();
    let mut failing = client(&[&chunks.error_at(tag(0), Errno::Io, 3, false), &chunks.end(tag(0))]);
    assert!(matches!(failing.read(0, 6), Err(Error::Failed(failure)) if failure.errno == Errno::Io));
    let words = b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x01\0\0\0\x0a\0\0\0\x1c\0\x04full";
    match client(&[words]).write(0, b"x") {
        Err(Error::Failed(failure)) => {
            assert_eq!((failure.errno, failure.message.as_str()), (Errno::NoSpc, "full"));
            assert_eq!(failure.to_string(), "no space left on device (ENOSPC) full");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(client(&[]).flush(), Err(Error::Io(_))));
}

#[test]
fn negotiation_with_odd_servers() {
    let oldstyle = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0".to_vec();
    assert!(matches!(Handshake::begin(Script::new(oldstyle)), Err(Error::Violation(_))));
    let greeted = |replies: &[u8]| Handshake::begin(Script::new([&Negotiation::greeting(), replies].concat())).unwrap();
    let refusal = reply(option::GO, option_reply::ERR_UNKNOWN, b"no such disk");
    match greeted(&refusal).go("disk").map(drop) {
        Err(Error::Refused { option: option::GO, kind: option_reply::ERR_UNKNOWN, message }) => {
            assert_eq!(message, "no such disk");
        }
        other => panic!("{other:?}"),
    }
    let ack = reply(option::GO, option_reply::ACK, &[]);
    assert_eq!(unexpected(greeted(&ack).go("disk").map(drop)), Unexpected::NoExport);
    assert_eq!(unexpected(greeted(&ack).list()), Unexpected::OptionReply);
    let mut long = reply(option::LIST, option_reply::SERVER, &[]);
    long[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(unexpected(greeted(&long).list()), Unexpected::OptionReplyLength);
    let unsupported = reply(option::EXTENDED_HEADERS, option_reply::ERR_UNSUP, &[]);
    assert!(!greeted(&unsupported).extended_headers().unwrap());
    let tls = reply(option::STARTTLS, option_reply::ACK, &[]);
    let listed = reply(option::LIST, option_reply::ACK, &[]);
    let mut secured = greeted(&[tls, listed].concat()).start_tls(Ok).unwrap();
    assert_eq!(secured.list().unwrap(), []);
}
