//! Properties over random input.

use nigh_nbd::client::Client;
use nigh_nbd::handshake::{InfoQuery, Listed, MetaQuery};
use nigh_nbd::wire::{command, command_flag, option};
use nigh_nbd::{
    Command, Context, Decoded, Event, Framing, Negotiation, Outcome, ReplyHeader, RequestHeader, Tag, Tls, Transmission,
};
use proptest::prelude::*;

use super::client::{Script, prelude};
use super::{client_flags, disk, exports, info_option, meta_option, option as option_bytes, transmission};

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![Just(Framing::Simple), Just(Framing::Structured), Just(Framing::Extended)]
}

fn request() -> impl Strategy<Value = RequestHeader> {
    let length = prop_oneof![0..5000_u64, 0..=u64::from(u32::MAX)];
    let offset = prop_oneof![0..1_u64 << 20, any::<u64>()];
    (0..10_u16, 0..64_u16, any::<u64>(), offset, length)
        .prop_map(|(command, flags, cookie, offset, length)| RequestHeader { flags, command, cookie, offset, length })
}

/// Options of which most are well formed.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("root"), Just("data"), Just("absent")];
    let query = prop_oneof![Just("base:"), Just("base:allocation"), Just("x-nigh:cache"), Just("bad")];
    let one = prop_oneof![
        4 => Just(option_bytes(option::LIST, &[])),
        4 => name.clone().prop_map(|name| info_option(option::INFO, name, &[0, 1, 2, 3])),
        4 => (name.clone(), 9..11_u32, prop::collection::vec(query, 0..3))
            .prop_map(|(name, number, queries)| meta_option(number, name, &queries)),
        1 => Just(option_bytes(option::EXTENDED_HEADERS, &[])),
        1 => name.prop_map(|name| option_bytes(option::EXPORT_NAME, name.as_bytes())),
        1 => (0..12_u32, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(number, data)| option_bytes(number, &data)),
    ];
    prop::collection::vec(one, 0..8).prop_map(|options| options.concat())
}

/// A host that receives its stream in pieces and notes the session's events; payloads of writes it takes itself.
struct Host {
    negotiation: Negotiation,
    transmission: Option<Transmission>,
    buffer: Vec<u8>,
    /// Bytes of a write's payload still to be taken.
    payload: u64,
    sent: Vec<u8>,
    log: Vec<String>,
    closed: bool,
}

impl Host {
    fn new() -> Self {
        Self {
            negotiation: Negotiation::new(exports(&["root", "data"]), Tls::Off),
            transmission: None,
            buffer: Vec::new(),
            payload: 0,
            sent: Vec::new(),
            log: Vec::new(),
            closed: false,
        }
    }

    fn receive(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
        while !self.closed && self.step() {}
    }

    /// Whether another step may come to something.
    fn step(&mut self) -> bool {
        let here = self.payload.min(self.buffer.len() as u64);
        self.buffer.drain(..here as usize);
        self.payload -= here;
        if self.payload > 0 {
            return false;
        }
        let consumed = match &mut self.transmission {
            None => self.negotiation.step(&self.buffer, &mut self.sent).map(|(consumed, outcome)| {
                match outcome {
                    Outcome::Need(_) => return (consumed, false),
                    Outcome::Continue => {}
                    Outcome::Transmit(transmission) => {
                        self.log.push(format!("{transmission:?}"));
                        self.transmission = Some(transmission);
                    }
                    Outcome::StartTls | Outcome::Abort => self.closed = true,
                }
                (consumed, true)
            }),
            Some(transmission) => transmission.step(&self.buffer).map(|(consumed, event)| {
                match event {
                    Event::Need(_) => return (consumed, false),
                    Event::Disconnect => self.closed = true,
                    Event::Request(request) if matches!(request.command, Command::Write { .. }) => {
                        self.payload = request.length;
                    }
                    Event::Request(_) | Event::Refused { .. } => {}
                }
                self.log.push(format!("{event:?}"));
                (consumed, true)
            }),
        };
        match consumed {
            Ok((consumed, more)) => {
                self.buffer.drain(..consumed);
                more
            }
            Err(violation) => {
                self.log.push(violation.to_string());
                self.closed = true;
                false
            }
        }
    }
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let requests = prop::collection::vec((request(), any::<bool>()), 0..12);
    (options(), prop::option::weighted(0.9, framing()), requests, prop::collection::vec(any::<u8>(), 0..60)).prop_map(
        |(options, framing, requests, garbage)| {
            let mut stream = client_flags();
            match framing {
                Some(Framing::Structured) => stream.extend(option_bytes(option::STRUCTURED_REPLY, &[])),
                Some(Framing::Extended) => stream.extend(option_bytes(option::EXTENDED_HEADERS, &[])),
                Some(Framing::Simple) | None => {}
            }
            stream.extend(options);
            if let Some(framing) = framing {
                stream.extend(info_option(option::GO, "root", &[]));
                for (mut request, valid) in requests {
                    if valid {
                        let payload = framing == Framing::Extended && request.command == command::WRITE;
                        request.flags = if payload { command_flag::PAYLOAD_LEN } else { 0 };
                        request.offset %= 1 << 20;
                        request.length = request.length % 512 + 1;
                    }
                    stream.extend_from_slice(&request.encode(framing).unwrap());
                    if request.command == command::WRITE && request.length < 5000 {
                        stream.resize(stream.len() + request.length as usize, 0x5a);
                    }
                }
            }
            stream.extend(garbage);
            stream
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_round_trip(header in request(), framing in framing(), cut in 0..32_usize) {
        let bytes = header.encode(framing).unwrap();
        prop_assert_eq!(RequestHeader::decode(framing, &bytes), Ok(Decoded::Whole(header, bytes.len())));
        let cut = cut % bytes.len();
        prop_assert_eq!(RequestHeader::decode(framing, &bytes[..cut]), Ok(Decoded::Need(bytes.len() - cut)));
    }

    #[test]
    fn replies_round_trip(framing in framing(), cookie: u64, offset: u64, length in 1..1_u32 << 30) {
        let bytes = framing.data(Tag { cookie, offset }, length);
        let header = match framing {
            Framing::Simple => ReplyHeader::Simple { errno: 0, cookie },
            _ => ReplyHeader::Chunk { flags: 1, kind: 1, cookie, length: u64::from(length) + 8 },
        };
        match ReplyHeader::decode(framing, &bytes) {
            Ok(Decoded::Whole(decoded, _)) => prop_assert_eq!(decoded, header),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn option_data_round_trips(name in "[^\0]{0,40}", text in "[^\0]{0,40}", wanted: Vec<u16>) {
        let mut data = Vec::new();
        let query = InfoQuery { export: &name, wanted };
        query.encode(&mut data);
        prop_assert_eq!(InfoQuery::decode(&data), Ok(query));

        let mut data = Vec::new();
        MetaQuery::encode(&name, &[&text, &name], &mut data);
        let query = MetaQuery::decode(&data).unwrap();
        prop_assert_eq!((query.export, query.queries().unwrap()), (name.as_str(), vec![text.as_str(), name.as_str()]));

        let mut data = Vec::new();
        let entry = Listed { name: &name, description: &text };
        entry.encode(&mut data);
        prop_assert_eq!(Listed::decode(&data), Ok(entry));
    }

    #[test]
    fn pieces_and_the_whole_come_to_the_same(stream in stream(), cuts in prop::collection::vec(1..40_usize, 1..20)) {
        let mut whole = Host::new();
        whole.receive(&stream);
        let mut pieces = Host::new();
        let mut rest = &stream[..];
        for length in cuts.iter().cycle() {
            let (piece, more) = rest.split_at((*length).min(rest.len()));
            pieces.receive(piece);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&whole.log, &pieces.log);
        prop_assert_eq!(&whole.sent, &pieces.sent);
        prop_assert_eq!(whole.closed, pieces.closed);
        if !whole.closed {
            prop_assert_eq!(&whole.buffer, &pieces.buffer);
        }
    }

    #[test]
    fn garbage_breaks_no_session(garbage: Vec<u8>, framing in framing(), command in 0..10_u16) {
        let mut host = Host::new();
        host.receive(&client_flags());
        host.receive(&garbage);
        let mut host = Host::new();
        host.receive(&garbage);
        let contexts = if framing == Framing::Simple { &[][..] } else { &Context::ALL };
        let mut host = Host { transmission: Some(transmission(disk("root"), framing, contexts)), ..Host::new() };
        let header = RequestHeader { flags: 0, command, cookie: 0, offset: 0, length: 10 };
        host.receive(&header.encode(framing).unwrap());
        host.receive(&garbage);
    }

    #[test]
    fn what_a_session_yields_is_within_its_export(header in request(), framing in framing()) {
        let mut session = transmission(disk("root"), framing, &[]);
        if let Ok((_, Event::Request(request))) = session.step(&header.encode(framing).unwrap()) {
            prop_assert!(request.offset.checked_add(request.length).unwrap() <= 1 << 20);
            prop_assert!(request.length > 0 || request.command == Command::Flush);
        }
    }

    #[test]
    fn garbage_breaks_no_client(garbage in prop::collection::vec(any::<u8>(), 0..80), kind in 0..8_u16, cookie in 0..4_u8) {
        let _ = Client::connect(Script::new(garbage.clone()), "disk", &["base:allocation"]).map(drop);
        let greeted = [&Negotiation::greeting(), &garbage[..]].concat();
        let _ = Client::connect(Script::new(greeted), "disk", &["base:allocation"]).map(drop);
        let chunk = [
            &0x668e_33ef_u32.to_be_bytes()[..],
            &[0, 1],
            &kind.to_be_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, cookie],
            &(garbage.len() as u32).to_be_bytes(),
            &garbage,
        ]
        .concat();
        let mut client = Client::connect(Script::new([prelude(), chunk].concat()), "disk", &["base:allocation"]).unwrap();
        client.submit_read(0, vec![0; 64]).unwrap();
        client.submit(Command::BlockStatus { one: false }, 0, 4096).unwrap();
        client.submit_write(0, b"data", false).unwrap();
        while client.receive().is_ok() {}
    }
}
