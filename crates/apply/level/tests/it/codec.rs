//! Messages survive encoding, whole or in pieces; anything else is a violation or incomplete, and never a panic.

use nigh_level::{
    BLOCK_MAX, Decoded, Hello, MESSAGE_MAX, NAME_MAX, NOTICES_MAX, Notice, Place, Refusal, Reply, Request, Result,
    TEXT_MAX, Violation, Welcome,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn level() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![Just(None), (0..8u8).prop_map(Some)]
}

fn place() -> impl Strategy<Value = Place> {
    any::<(u32, u64, u64)>().prop_map(|(namespace, epoch, block)| Place { namespace, epoch, block })
}

/// A request with data and texts that outlive it.
fn request<'a>(name: &'a str, data: &'a [u8]) -> impl Strategy<Value = Request<'a>> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(move |(epoch, resumes)| Request::Open { name, epoch, resumes }),
        (place(), level(), level()).prop_map(|(place, one, other)| {
            let below = |level: Option<u8>| level.unwrap_or(u8::MAX);
            let (from, to) = if below(one) >= below(other) { (one, other) } else { (other, one) };
            Request::Retrieve { place, from, to }
        }),
        (place(), 0..7u8, 1..8u8, any::<u64>()).prop_map(move |(place, from, step, age_us)| {
            Request::Demote { place, from, to: (from + step).min(7), age_us, data }
        }),
        (place(), any::<u64>())
            .prop_map(|(place, count)| Request::Invalidate { place, count: count.min(u64::MAX - place.block) }),
    ]
}

fn reply<'a>(text: &'a str, data: &'a [u8]) -> impl Strategy<Value = Reply<'a>> {
    let result = prop_oneof![
        any::<(u32, bool)>().prop_map(|(namespace, resumed)| Result::Opened { namespace, resumed }),
        Just(Result::Found { data }),
        Just(Result::Missed),
        Just(Result::Done),
        prop::sample::select(&Refusal::ALL[..]).prop_map(move |refusal| Result::Refused { refusal, text }),
    ];
    let notice = any::<(u32, u64, u64)>().prop_map(|(namespace, epoch, block)| Notice { namespace, epoch, block });
    let numbers = any::<(u64, u64, Option<u64>)>();
    (result, vec(notice, 0..20), numbers).prop_map(|(result, notices, (cookie, free, oldest_us))| Reply {
        cookie,
        result,
        free,
        oldest_us,
        notices,
    })
}

/// How many bytes are missing.
fn missing<T>(decoded: Decoded<T>) -> Option<usize> {
    match decoded {
        Decoded::Need(missing) => Some(missing),
        Decoded::Whole(..) => None,
    }
}

/// Every beginning of `bytes` is incomplete, and never asks for more than is missing.
fn incomplete(bytes: &[u8], decode: impl Fn(&[u8]) -> std::result::Result<Option<usize>, Violation>) {
    for end in 0..bytes.len() {
        match decode(&bytes[..end]) {
            Ok(Some(missing)) => assert!((1..=bytes.len() - end).contains(&missing), "{missing} of {end}"),
            Ok(None) => panic!("whole after {end} of {} bytes", bytes.len()),
            Err(violation) => panic!("{violation} after {end} bytes"),
        }
    }
}

proptest! {
    #[test]
    fn requests(
        cookie: u64,
        (name, data, request) in ("[a-zé]{0,40}", vec(any::<u8>(), 0..200)).prop_flat_map(|(name, data)| {
            let (name, data): (&str, &[u8]) = (String::leak(name), Vec::leak(data));
            (Just(name), Just(data), request(name, data))
        }),
        rest in vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = Vec::new();
        request.encode(cookie, &mut bytes);
        incomplete(&bytes, |bytes| Request::decode(bytes).map(missing));
        let length = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(Request::decode(&bytes), Ok(Decoded::Whole((cookie, request), length)), "{} {:?}", name, data);
    }

    #[test]
    fn replies(
        reply in ("[a-zé]{0,40}", vec(any::<u8>(), 0..200)).prop_flat_map(|(text, data)| {
            reply(String::leak(text), Vec::leak(data))
        }),
        rest in vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        incomplete(&bytes, |bytes| Reply::decode(bytes).map(missing));
        let length = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(Reply::decode(&bytes), Ok(Decoded::Whole(reply, length)));
    }

    #[test]
    fn greetings(versions: (u16, u16), block_bytes in 1..=65536u32, level in 1..8u8, name in "[a-zé]{0,40}", blocks: u64, instance: u64, requests in 1..u32::MAX) {
        let mut bytes = Vec::new();
        let hello = Hello { versions, block_bytes, level, instance, name: &name };
        hello.encode(&mut bytes);
        incomplete(&bytes, |bytes| Hello::decode(bytes).map(missing));
        prop_assert_eq!(Hello::decode(&bytes), Ok(Decoded::Whole(hello, bytes.len())));
        prop_assert_eq!(hello.version().ok(), (versions.0 <= 2 && versions.1 >= 2).then_some(2));
        bytes.clear();
        let welcome = Welcome { version: 2, requests, blocks, instance };
        welcome.encode(&mut bytes);
        incomplete(&bytes, |bytes| Welcome::decode(bytes).map(missing));
        prop_assert_eq!(Welcome::decode(&bytes), Ok(Decoded::Whole(welcome, bytes.len())));
    }

    /// A message that was changed on the way is another message in its only encoding, incomplete, or a violation.
    #[test]
    fn damaged(
        bytes in ("[a-z]{0,9}", vec(any::<u8>(), 0..60)).prop_flat_map(|(text, data)| {
            let (text, data): (&str, &[u8]) = (String::leak(text), Vec::leak(data));
            prop_oneof![
                request(text, data).prop_map(|request| {
                    let mut bytes = Vec::new();
                    request.encode(7, &mut bytes);
                    bytes
                }),
                reply(text, data).prop_map(|reply| {
                    let mut bytes = Vec::new();
                    reply.encode(&mut bytes);
                    bytes
                }),
                vec(any::<u8>(), 0..99),
            ]
        }),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = bytes;
        for (at, value) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        let mut again = Vec::new();
        if let Ok(Decoded::Whole((cookie, request), length)) = Request::decode(&bytes) {
            request.encode(cookie, &mut again);
            prop_assert_eq!(&again, &bytes[..length]);
        }
        again.clear();
        if let Ok(Decoded::Whole(reply, length)) = Reply::decode(&bytes) {
            reply.encode(&mut again);
            prop_assert_eq!(&again, &bytes[..length]);
        }
        let _ = (Hello::decode(&bytes), Welcome::decode(&bytes));
    }
}

/// The longest messages fit into a buffer of `MESSAGE_MAX` bytes, and encoding keeps to the limits.
#[test]
fn limits() {
    let place = Place { namespace: 1, epoch: 2, block: 3 };
    let data = vec![7; BLOCK_MAX + 1];
    let name = "é".repeat(NAME_MAX);
    let mut bytes = Vec::new();
    Request::Demote { place, from: 0, to: 1, age_us: 0, data: &data }.encode(1, &mut bytes);
    let Ok(Decoded::Whole((_, Request::Demote { data: kept, .. }), length)) = Request::decode(&bytes) else {
        panic!("a Demote")
    };
    assert!(kept.len() == BLOCK_MAX && length <= MESSAGE_MAX);
    bytes.clear();
    Request::Open { name: &name, epoch: 1, resumes: 0 }.encode(1, &mut bytes);
    assert!(
        matches!(Request::decode(&bytes), Ok(Decoded::Whole((_, Request::Open { name, .. }), _)) if name.len() == NAME_MAX)
    );
    bytes.clear();
    let notices = vec![Notice { namespace: 0, epoch: 0, block: 0 }; NOTICES_MAX + 1];
    let found = Result::Found { data: &data };
    Reply { cookie: 1, result: found, free: 0, oldest_us: None, notices }.encode(&mut bytes);
    let Ok(Decoded::Whole(reply, length)) = Reply::decode(&bytes) else { panic!("a reply") };
    assert!(reply.notices.len() == NOTICES_MAX && length == MESSAGE_MAX);
    bytes.clear();
    let refused = Result::Refused { refusal: Refusal::Limit, text: &name.repeat(9) };
    Reply { cookie: 1, result: refused, free: 0, oldest_us: None, notices: Vec::new() }.encode(&mut bytes);
    assert!(matches!(Reply::decode(&bytes), Ok(Decoded::Whole(reply, _))
        if matches!(reply.result, Result::Refused { text, .. } if text.len() == TEXT_MAX)));
}

/// Errors name their cause.
#[test]
fn violations() {
    let place = Place { namespace: 1, epoch: 2, block: 3 };
    let mut bytes = Vec::new();
    Request::Retrieve { place, from: Some(1), to: Some(1) }.encode(1, &mut bytes);
    let says = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Request::decode(&bytes).unwrap_err().to_string()
    };
    assert!(says(0, b'x').contains("does not speak the protocol"));
    assert!(says(2, 9).contains("the operation is 9"));
    assert!(says(3, 8).contains("the level is 8"));
    assert!(says(4, 2).contains("not below the one"), "{}", says(4, 2));
    assert!(says(5, 1).contains("reserved"));
    assert!(says(36, 1).contains("the length of a request is 1: 0"), "{}", says(36, 1));
    // Long before the data is there.
    bytes.clear();
    Request::Demote { place, from: 0, to: 1, age_us: 0, data: &[1] }.encode(1, &mut bytes);
    bytes[38] = 2;
    assert!(matches!(Request::decode(&bytes), Err(Violation::Field { field: "the length of a request", .. })));
    assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n").unwrap_err(), Violation::Magic(u64::from_le_bytes(*b"GET / HT")));
    assert!(Hello::decode(b"N").is_ok_and(|decoded| matches!(decoded, Decoded::Need(_))));
    let newer = Hello { versions: (3, 4), block_bytes: 4096, level: 1, instance: 3, name: "" };
    assert_eq!(
        newer.version().unwrap_err().to_string(),
        "the other side speaks versions 3 to 4; this one speaks 2 to 2"
    );
}
