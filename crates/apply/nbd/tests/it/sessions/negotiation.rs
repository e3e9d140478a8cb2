//! Negotiation: transcripts, and what must be refused.

use nigh_nbd::wire::option::{
    ABORT, EXPORT_NAME, EXTENDED_HEADERS, GO, INFO, LIST, LIST_META_CONTEXT, SET_META_CONTEXT, STARTTLS,
    STRUCTURED_REPLY,
};
use nigh_nbd::wire::option_reply::{
    ACK, ERR_EXT_HEADER_REQD, ERR_INVALID, ERR_POLICY, ERR_TLS_REQD, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP,
    INFO as REP_INFO, META_CONTEXT, SERVER,
};
use nigh_nbd::wire::{OPTION_MAX, QUERIES_MAX};
use nigh_nbd::{Context, Framing, Negotiation, Outcome, Tls, Transmission, Violation};

use super::{End, client_flags, exports, info_option, meta_option, negotiate, option, replies};

/// The types of the replies to options sent after the client's flags, and how it ended.
fn session(tls: Tls, options: &[Vec<u8>]) -> (Vec<(u32, u32)>, End) {
    let input = [client_flags(), options.concat()].concat();
    let (out, end) = negotiate(&mut Negotiation::new(exports(&["root", "data"]), tls), &input);
    (replies(&out).into_iter().map(|(option, kind, _)| (option, kind)).collect(), end)
}

fn refused(options: &[Vec<u8>], kind: u32) {
    let (replies, end) = session(Tls::Off, options);
    assert_eq!(replies.last().map(|&(_, kind)| kind), Some(kind));
    assert!(matches!(end, End::Waiting), "{end:?}");
}

fn closed(tls: Tls, options: &[Vec<u8>]) -> Violation {
    match session(tls, options) {
        (_, End::Closed(violation)) => violation,
        (_, end) => panic!("{end:?}"),
    }
}

fn transmits(options: &[Vec<u8>]) -> Transmission {
    match session(Tls::Off, options) {
        (_, End::Transmit(transmission)) => *transmission,
        (_, end) => panic!("{end:?}"),
    }
}

#[test]
fn go_tells_what_was_asked() {
    let wanted = [3, 2, 77, 3];
    let input = [client_flags(), option(STRUCTURED_REPLY, &[]), info_option(GO, "data", &wanted)].concat();
    let (out, end) = negotiate(&mut Negotiation::new(exports(&["root", "data"]), Tls::Off), &input);
    let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0x0d, 0xed]].concat();
    let block_size = [0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0].to_vec();
    let expected = vec![
        (STRUCTURED_REPLY, ACK, vec![]),
        (GO, REP_INFO, export),
        (GO, REP_INFO, b"\0\x02disk data".to_vec()),
        (GO, REP_INFO, block_size),
        (GO, ACK, vec![]),
    ];
    assert_eq!(replies(&out), expected);
    let End::Transmit(transmission) = end else { panic!("{end:?}") };
    assert_eq!((transmission.export(), transmission.framing()), (1, Framing::Structured));
}

#[test]
fn info_goes_on_and_canonical_name_is_told() {
    let input = [client_flags(), info_option(INFO, "", &[1])].concat();
    let (out, end) = negotiate(&mut Negotiation::new(exports(&["root"]), Tls::Off), &input);
    assert!(matches!(end, End::Waiting));
    assert_eq!(replies(&out)[1], (INFO, REP_INFO, b"\0\x01root".to_vec()));
    refused(&[info_option(INFO, "absent", &[])], ERR_UNKNOWN);
    refused(&[info_option(GO, "absent", &[])], ERR_UNKNOWN);
    refused(&[option(GO, b"\0\0\0\x09root\0\0")], ERR_INVALID);
    refused(&[option(GO, &[0, 0, 16, 1].into_iter().chain([b'a'; 4099]).collect::<Vec<_>>())], ERR_TOO_BIG);
}

#[test]
fn a_choice_can_be_refused_and_another_one_made() {
    let mut negotiation = Negotiation::new(exports(&["root", "data"]), Tls::Off);
    let input = [client_flags(), info_option(GO, "root", &[])].concat();
    assert!(matches!(negotiate(&mut negotiation, &input), (_, End::Transmit(_))));
    let mut out = Vec::new();
    assert!(negotiation.refuse_choice(ERR_POLICY, "full", &mut out));
    assert_eq!(replies(&out), [(GO, ERR_POLICY, b"full".to_vec())]);
    let (_, end) = negotiate(&mut negotiation, &info_option(GO, "data", &[]));
    assert!(matches!(end, End::Transmit(transmission) if transmission.export() == 1));

    let mut negotiation = Negotiation::new(exports(&["root"]), Tls::Off);
    let input = [client_flags(), option(EXPORT_NAME, b"root")].concat();
    assert!(matches!(negotiate(&mut negotiation, &input), (_, End::Transmit(_))));
    assert!(!negotiation.refuse_choice(ERR_POLICY, "full", &mut Vec::new()));
}

#[test]
fn export_name_with_and_without_zeroes() {
    for (flags, length) in [(3_u32, 10), (1, 134), (0, 134)] {
        let input = [flags.to_be_bytes().to_vec(), option(EXPORT_NAME, b"root")].concat();
        let (out, end) = negotiate(&mut Negotiation::new(exports(&["root", "data"]), Tls::Off), &input);
        assert!(matches!(end, End::Transmit(_)));
        assert_eq!(out.len(), length);
        assert_eq!(out[..10], [0, 0, 0, 0, 0, 16, 0, 0, 0x0d, 0x6d]);
        assert!(out[10..].iter().all(|&byte| byte == 0));
    }
    for name in [&b"absent"[..], b"", b"\xff"] {
        assert_eq!(closed(Tls::Off, &[option(EXPORT_NAME, name)]), Violation::UnknownExport);
    }
    let extended = [option(EXTENDED_HEADERS, &[]), option(EXPORT_NAME, b"root")];
    assert_eq!(closed(Tls::Off, &extended), Violation::ExportNameExtended);
}

#[test]
fn list() {
    let input = [client_flags(), option(LIST, &[])].concat();
    let (out, end) = negotiate(&mut Negotiation::new(exports(&["root", "data"]), Tls::Off), &input);
    let entry = |name: &str| (LIST, SERVER, [&[0, 0, 0, 4], name.as_bytes(), b"disk ", name.as_bytes()].concat());
    assert_eq!(replies(&out), [entry("root"), entry("data"), (LIST, ACK, vec![])]);
    assert!(matches!(end, End::Waiting));
    refused(&[option(LIST, b"x")], ERR_INVALID);
    let (none, _) =
        negotiate(&mut Negotiation::new(exports(&[]), Tls::Off), &[client_flags(), option(LIST, &[])].concat());
    assert_eq!(replies(&none), [(LIST, ACK, vec![])]);
}

#[test]
fn abort_is_acknowledged_whatever_its_data() {
    let (replies, end) = session(Tls::Required, &[option(ABORT, b"bye")]);
    assert_eq!(replies, [(ABORT, ACK)]);
    assert!(matches!(end, End::Abort));
}

#[test]
fn unknown_options_are_skipped() {
    let (replies, end) = session(Tls::Off, &[option(4, b"peek"), option(99, &[0; 1000]), info_option(GO, "root", &[])]);
    assert_eq!(replies, [(4, ERR_UNSUP), (99, ERR_UNSUP), (GO, REP_INFO), (GO, ACK)]);
    assert!(matches!(end, End::Transmit(_)));
}

#[test]
fn framing_options() {
    refused(&[option(STRUCTURED_REPLY, b"x")], ERR_INVALID);
    refused(&[option(EXTENDED_HEADERS, b"x")], ERR_INVALID);
    refused(&[option(EXTENDED_HEADERS, &[]), option(STRUCTURED_REPLY, &[])], ERR_EXT_HEADER_REQD);
    let both = [option(STRUCTURED_REPLY, &[]), option(EXTENDED_HEADERS, &[]), info_option(GO, "root", &[])];
    assert_eq!(transmits(&both).framing(), Framing::Extended);
    assert_eq!(transmits(&both[2..]).framing(), Framing::Simple);
}

fn contexts(number: u32, queries: &[&str]) -> Vec<(u32, String)> {
    let input = [client_flags(), option(STRUCTURED_REPLY, &[]), meta_option(number, "root", queries)].concat();
    let (out, _) = negotiate(&mut Negotiation::new(exports(&["root"]), Tls::Off), &input);
    let mut replies = replies(&out);
    assert_eq!(replies.pop(), Some((number, ACK, vec![])));
    let contexts = replies.drain(1..).map(|(_, kind, data)| {
        assert_eq!(kind, META_CONTEXT);
        let (id, name) = data.split_first_chunk().unwrap();
        (u32::from_be_bytes(*id), String::from_utf8(name.to_vec()).unwrap())
    });
    contexts.collect()
}

#[test]
fn contexts_are_listed_and_selected() {
    let (base, cache) = ("base:allocation".to_owned(), "x-nigh:cache".to_owned());
    let all = vec![(0, base.clone()), (0, cache.clone())];
    assert_eq!(contexts(LIST_META_CONTEXT, &[]), all);
    assert_eq!(contexts(LIST_META_CONTEXT, &["x-nigh:", "base:", "base:allocation"]), all);
    assert_eq!(contexts(LIST_META_CONTEXT, &["base:"]), all[..1]);
    assert_eq!(contexts(LIST_META_CONTEXT, &["x-nigh:cache", "qemu:dirty-bitmap:x", "base:more"]), all[1..]);

    assert_eq!(contexts(SET_META_CONTEXT, &[]), []);
    assert_eq!(contexts(SET_META_CONTEXT, &["base:", "x-nigh:", "qemu:allocation-depth"]), []);
    assert_eq!(contexts(SET_META_CONTEXT, &["x-nigh:cache"]), [(2, cache.clone())]);
    assert_eq!(contexts(SET_META_CONTEXT, &["x-nigh:cache", "base:allocation"]), [(1, base), (2, cache)]);
}

#[test]
fn contexts_last_for_one_export_until_they_are_set_again() {
    let structured = option(STRUCTURED_REPLY, &[]);
    let set = meta_option(SET_META_CONTEXT, "root", &["base:allocation"]);
    let go = info_option(GO, "root", &[]);
    let selected = |options: &[Vec<u8>]| transmits(options).contexts().iter().collect::<Vec<_>>();
    assert_eq!(selected(&[structured.clone(), set.clone(), go.clone()]), [Context::Allocation]);
    assert_eq!(selected(&[structured.clone(), set.clone(), info_option(GO, "data", &[])]), []);
    let cleared = meta_option(SET_META_CONTEXT, "root", &[]);
    assert_eq!(selected(&[structured.clone(), set.clone(), cleared, go.clone()]), []);
    let failed = meta_option(SET_META_CONTEXT, "absent", &["base:allocation"]);
    assert_eq!(selected(&[structured.clone(), set.clone(), failed, go.clone()]), []);
    let listed = meta_option(LIST_META_CONTEXT, "root", &[]);
    assert_eq!(selected(&[structured, set, listed, go]), [Context::Allocation]);
}

#[test]
fn context_queries_are_limited() {
    let structured = option(STRUCTURED_REPLY, &[]);
    let many = |count: u32| vec!["base:allocation"; count as usize];
    for number in [LIST_META_CONTEXT, SET_META_CONTEXT] {
        refused(&[meta_option(number, "root", &["base:allocation"])], ERR_INVALID);
        refused(&[structured.clone(), meta_option(number, "absent", &["base:allocation"])], ERR_UNKNOWN);
        refused(&[structured.clone(), meta_option(number, "root", &["allocation"])], ERR_INVALID);
        refused(&[structured.clone(), meta_option(number, "root", &many(QUERIES_MAX))], ACK);
        refused(&[structured.clone(), meta_option(number, "root", &many(QUERIES_MAX + 1))], ERR_TOO_BIG);
        refused(&[structured.clone(), meta_option(number, "root", &[&"a:".repeat(2049)])], ERR_TOO_BIG);
        refused(&[structured.clone(), option(number, b"\0\0\0\x04root\0\0\0\x02\0\0\0\x02a:")], ERR_INVALID);
        refused(&[structured.clone(), option(number, b"\0\0\0\x04root\xff\xff\xff\xff")], ERR_TOO_BIG);
        refused(&[structured.clone(), option(number, b"")], ERR_INVALID);
    }
}

#[test]
fn tls_off_and_malformed() {
    refused(&[option(STARTTLS, &[])], ERR_UNSUP);
    let (replies, _) = session(Tls::Required, &[option(STARTTLS, b"x"), info_option(GO, "root", &[])]);
    assert_eq!(replies, [(STARTTLS, ERR_INVALID), (GO, ERR_TLS_REQD)]);
}

#[test]
fn tls_required_refuses_all_else_before_it() {
    let options = [LIST, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT, SET_META_CONTEXT, EXTENDED_HEADERS, 99];
    let (replies, _) = session(Tls::Required, &options.map(|number| option(number, &[])));
    assert_eq!(replies, options.map(|number| (number, ERR_TLS_REQD)));
    assert_eq!(closed(Tls::Required, &[option(EXPORT_NAME, b"root")]), Violation::TlsRequired);
}

#[test]
fn tls_forgets_and_may_show_other_exports() {
    let mut negotiation = Negotiation::new(exports(&["public"]), Tls::Required);
    let input = [client_flags(), option(STRUCTURED_REPLY, &[]), option(STARTTLS, &[])].concat();
    let (out, end) = negotiate(&mut negotiation, &input);
    assert!(matches!(end, End::StartTls));
    assert_eq!(replies(&out).last(), Some(&(STARTTLS, ACK, vec![])));
    let waiting = negotiation.step(b"not yet TLS", &mut Vec::new());
    assert!(matches!(waiting, Ok((0, Outcome::StartTls))));

    negotiation.tls_started(exports(&["private"]));
    let input = [option(STARTTLS, &[]), info_option(GO, "public", &[]), info_option(GO, "private", &[])].concat();
    let (out, end) = negotiate(&mut negotiation, &input);
    let kinds: Vec<_> = replies(&out).into_iter().map(|(_, kind, _)| kind).collect();
    assert_eq!(kinds, [ERR_INVALID, ERR_UNKNOWN, REP_INFO, ACK]);
    let End::Transmit(transmission) = end else { panic!("{end:?}") };
    assert_eq!(transmission.framing(), Framing::Simple);
}

#[test]
fn bytes_before_tls_are_not_taken_for_encrypted_ones() {
    let injected = [option(STARTTLS, &[]), option(LIST, &[])];
    assert_eq!(closed(Tls::Required, &injected), Violation::BytesBeforeTls);
}

#[test]
fn broken_streams_are_closed() {
    let mut negotiation = Negotiation::new(exports(&["root"]), Tls::Off);
    let violation = negotiation.step(&7_u32.to_be_bytes(), &mut Vec::new()).unwrap_err();
    assert_eq!(violation, Violation::ClientFlags(7));
    let garbage = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    assert_eq!(closed(Tls::Off, &[garbage]), Violation::Magic(u64::from_be_bytes(*b"GET / HT")));
    let mut long = option(99, &[]);
    long[12..].copy_from_slice(&(OPTION_MAX + 1).to_be_bytes());
    assert_eq!(closed(Tls::Off, &[long]), Violation::OptionTooLong { option: 99, length: OPTION_MAX + 1 });
    refused(&[option(99, &vec![0; OPTION_MAX as usize])], ERR_UNSUP);

    let input = [vec![0; 4], option(LIST, &[])].concat();
    let (_, end) = negotiate(&mut Negotiation::new(exports(&["root"]), Tls::Off), &input);
    assert!(matches!(end, End::Closed(Violation::NotFixedNewstyle(LIST))), "{end:?}");
}

#[test]
fn an_absent_export_is_refused_with_the_reason_and_is_no_default() {
    let offered = exports(&["only"]).with_absent([("late".to_owned(), "it comes later".to_owned())]);
    // Which one is the default is not known yet.
    assert!(offered.find("only").is_some() && offered.find("").is_none());
    let input = [client_flags(), info_option(GO, "late", &[]), info_option(GO, "none", &[])].concat();
    let (out, _) = negotiate(&mut Negotiation::new(offered, Tls::Off), &input);
    let refusals: Vec<_> = replies(&out).into_iter().map(|(_, kind, data)| (kind, data)).collect();
    assert_eq!(
        refusals,
        [(ERR_UNKNOWN, b"it comes later".to_vec()), (ERR_UNKNOWN, b"there is no export of this name".to_vec())]
    );
}
