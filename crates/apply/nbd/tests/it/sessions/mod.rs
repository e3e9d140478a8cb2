//! The state machines of the server's side, driven by bytes.

mod client;
mod negotiation;
mod properties;
mod transmission;

use nigh_nbd::handshake::{InfoQuery, MetaQuery, OptionHeader, OptionReplyHeader};
use nigh_nbd::wire::{handshake_flag, option};
use nigh_nbd::{
    BlockSizes, Context, Decoded, Export, Exports, Features, Framing, Negotiation, Outcome, Tls, Transmission,
    Violation,
};

/// An export of 1 MiB that understands everything.
fn disk(name: &str) -> Export {
    let features = Features {
        read_only: false,
        rotational: false,
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        multi_conn: true,
    };
    let (description, blocks) = (format!("disk {name}"), BlockSizes::default());
    Export { name: name.into(), description, size: 1 << 20, features, blocks }
}

fn exports(names: &[&str]) -> Exports {
    Exports::new(names.iter().map(|name| disk(name)).collect()).unwrap()
}

fn client_flags() -> Vec<u8> {
    u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes().to_vec()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&*OptionHeader { option, length: data.len() as u32 }.encode(), data].concat()
}

fn info_option(number: u32, export: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    InfoQuery { export, wanted: wanted.to_vec() }.encode(&mut data);
    option(number, &data)
}

fn meta_option(number: u32, export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    MetaQuery::encode(export, queries, &mut data);
    option(number, &data)
}

/// How a negotiation stood when it had taken all that it could of its input.
#[derive(Debug)]
enum End {
    Waiting,
    StartTls,
    Transmit(Box<Transmission>),
    Abort,
    Closed(Violation),
}

/// Feeds `input` and returns what was sent and how it ended; what was not consumed is dropped.
fn negotiate(negotiation: &mut Negotiation, mut input: &[u8]) -> (Vec<u8>, End) {
    let mut out = Vec::new();
    loop {
        match negotiation.step(input, &mut out) {
            Err(violation) => return (out, End::Closed(violation)),
            Ok((consumed, outcome)) => {
                input = &input[consumed..];
                match outcome {
                    Outcome::Continue => {}
                    Outcome::Need(more) => {
                        assert!(more > 0);
                        return (out, End::Waiting);
                    }
                    Outcome::StartTls => return (out, End::StartTls),
                    Outcome::Transmit(transmission) => return (out, End::Transmit(Box::new(transmission))),
                    Outcome::Abort => return (out, End::Abort),
                }
            }
        }
    }
}

/// Splits what was sent into replies to options: option, type, data.
fn replies(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !out.is_empty() {
        let Ok(Decoded::Whole(header, size)) = OptionReplyHeader::decode(out) else { panic!("{out:?}") };
        let end = size + header.length as usize;
        replies.push((header.option, header.kind, out[size..end].to_vec()));
        out = &out[end..];
    }
    replies
}

/// The transmission phase of an export.
fn transmission(export: Export, framing: Framing, contexts: &[Context]) -> Transmission {
    let name = export.name.clone();
    let mut input = client_flags();
    match framing {
        Framing::Simple => {}
        Framing::Structured => input.extend(option(option::STRUCTURED_REPLY, &[])),
        Framing::Extended => input.extend(option(option::EXTENDED_HEADERS, &[])),
    }
    if !contexts.is_empty() {
        let queries: Vec<_> = contexts.iter().map(|context| context.name()).collect();
        input.extend(meta_option(option::SET_META_CONTEXT, &name, &queries));
    }
    input.extend(info_option(option::GO, &name, &[]));
    match negotiate(&mut Negotiation::new(Exports::new(vec![export]).unwrap(), Tls::Off), &input) {
        (_, End::Transmit(transmission)) => *transmission,
        (_, end) => panic!("{end:?}"),
    }
}
