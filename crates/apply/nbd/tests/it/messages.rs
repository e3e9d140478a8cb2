//! Every message as bytes on the wire, written out from the tables of the protocol document.

use nigh_nbd::handshake::{
    Greeting, Info, InfoQuery, Listed, Malformed, MetaQuery, NamedContext, OptionHeader, OptionReplyHeader,
};
use nigh_nbd::wire::{option, option_reply};
use nigh_nbd::{
    BlockSizes, Command, Context, Decoded, Errno, Export, Exports, Extent, Features, Framing, InvalidExport,
    Negotiation, ReplyHeader, Request, RequestHeader, Tag, Violation,
};

/// Bytes from hexadecimal digits; blanks separate fields.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// `bytes` decode to `value` as a whole and with more behind, and cut at any place they ask for what is missing.
fn decodes<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    value: T,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, Violation>,
) {
    let whole = Ok(Decoded::Whole(value, bytes.len()));
    assert_eq!(decode(bytes), whole);
    assert_eq!(decode(&[bytes, &[0xff; 7]].concat()), whole);
    for cut in 0..bytes.len() {
        match decode(&bytes[..cut]) {
            Ok(Decoded::Need(more)) => assert!(more > 0 && cut + more <= bytes.len(), "{more} more after {cut}"),
            other => panic!("{other:?} after {cut} bytes"),
        }
    }
}

#[test]
fn greeting() {
    let bytes = hex("4e42444d41474943 49484156454f5054 0003");
    assert_eq!(&bytes[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(*Negotiation::greeting(), bytes);
    decodes(&bytes, Greeting { flags: 3 }, Greeting::decode);
    let oldstyle = hex("4e42444d41474943 0000420281861253 0000");
    assert_eq!(Greeting::decode(&oldstyle), Err(Violation::Magic(0x0000_4202_8186_1253)));
}

#[test]
fn option_headers() {
    let go = OptionHeader { option: option::GO, length: 10 };
    let bytes = hex("49484156454f5054 00000007 0000000a");
    assert_eq!(*go.encode(), bytes);
    decodes(&bytes, go, OptionHeader::decode);

    let refusal = OptionReplyHeader { option: option::GO, kind: option_reply::ERR_UNKNOWN, length: 0 };
    let bytes = hex("0003e889045565a9 00000007 80000006 00000000");
    assert_eq!(*refusal.encode(), bytes);
    decodes(&bytes, refusal, OptionReplyHeader::decode);
    assert!(OptionReplyHeader::decode(&hex("0003e889045565aa 00000007 80000006 00000000")).is_err());
}

/// `decode` accepts `data` and no part of it, and nothing that is longer.
fn fills<T: std::fmt::Debug>(data: &[u8], decode: impl Fn(&[u8]) -> Result<T, Malformed>) {
    decode(data).unwrap();
    for cut in 0..data.len() {
        decode(&data[..cut]).unwrap_err();
    }
    decode(&[data, &[0]].concat()).unwrap_err();
}

#[test]
fn info_queries() {
    let data = hex("00000004 6469736b 0002 0003 0001");
    let query = InfoQuery { export: "disk", wanted: vec![3, 1] };
    let mut out = Vec::new();
    query.encode(&mut out);
    assert_eq!(out, data);
    assert_eq!(InfoQuery::decode(&data), Ok(query));
    fills(&data, |data| InfoQuery::decode(data).map(drop));
    assert_eq!(InfoQuery::decode(&hex("ffffffff 6469736b 0000")), Err(Malformed::Length));
    assert_eq!(InfoQuery::decode(&hex("00000001 ff 0000")), Err(Malformed::Text));
    assert_eq!(InfoQuery::decode(&hex("00000002 6100 0000")), Err(Malformed::Text));
    let long = [&[0, 0, 16, 1], &[b'a'; 4097][..], &[0, 0]].concat();
    assert_eq!(InfoQuery::decode(&long), Err(Malformed::TooLong));
}

#[test]
fn meta_queries() {
    let data = hex("00000004 6469736b 00000002 00000005 626173653a 00000003 783a79");
    let mut out = Vec::new();
    MetaQuery::encode("disk", &["base:", "x:y"], &mut out);
    assert_eq!(out, data);
    let query = MetaQuery::decode(&data).unwrap();
    assert_eq!((query.export, query.count, query.queries()), ("disk", 2, Ok(vec!["base:", "x:y"])));
    fills(&data, |data| MetaQuery::decode(data)?.queries().map(drop));
    let endless = hex("00000000 ffffffff");
    assert_eq!(MetaQuery::decode(&endless).unwrap().queries(), Err(Malformed::Length));
}

#[test]
fn infos() {
    let blocks = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 25 };
    for (info, data) in [
        (Info::Export(1 << 40, 0x0d6d), "0000 0000010000000000 0d6d"),
        (Info::Name("ab"), "0001 6162"),
        (Info::Description("cd"), "0002 6364"),
        (Info::BlockSize(blocks), "0003 00000200 00001000 02000000"),
        (Info::Unknown(9), "0009"),
    ] {
        let mut out = Vec::new();
        info.encode(&mut out);
        assert_eq!(out, hex(data));
        assert_eq!(Info::decode(&out), Ok(info));
    }
    fills(&hex("0000 0000010000000000 0d6d"), |data| Info::decode(data).map(drop));
    fills(&hex("0003 00000200 00001000 02000000"), |data| Info::decode(data).map(drop));
}

#[test]
fn list_entries_and_contexts() {
    let entry = Listed { name: "ab", description: "cd" };
    let mut out = Vec::new();
    entry.encode(&mut out);
    assert_eq!(out, hex("00000002 6162 6364"));
    assert_eq!(Listed::decode(&out), Ok(entry));
    assert_eq!(Listed::decode(&hex("00000003 6162")), Err(Malformed::Length));

    let context = NamedContext { id: 2, name: "x:y" };
    let mut out = Vec::new();
    context.encode(&mut out);
    assert_eq!(out, hex("00000002 783a79"));
    assert_eq!(NamedContext::decode(&out), Ok(context));
    assert_eq!(NamedContext::decode(&[0; 3]), Err(Malformed::Length));
}

#[test]
fn requests() {
    let write = RequestHeader { flags: 1, command: 1, cookie: 0x1122_3344_5566_7788, offset: 1 << 32, length: 4096 };
    let compact = hex("25609513 0001 0001 1122334455667788 0000000100000000 00001000");
    for framing in [Framing::Simple, Framing::Structured] {
        assert_eq!(*write.encode(framing).unwrap(), compact);
        decodes(&compact, write, |input| RequestHeader::decode(framing, input));
    }
    let extended = hex("21e41c71 0001 0001 1122334455667788 0000000100000000 0000000000001000");
    assert_eq!(*write.encode(Framing::Extended).unwrap(), extended);
    decodes(&extended, write, |input| RequestHeader::decode(Framing::Extended, input));

    let wrong = Err(Violation::Magic(0x2560_9513));
    assert_eq!(RequestHeader::decode(Framing::Extended, &compact), wrong);
    assert_eq!(RequestHeader::decode(Framing::Extended, &compact[..4]), wrong);
    let long = RequestHeader { length: 1 << 32, ..write };
    assert!(long.encode(Framing::Structured).is_none() && long.encode(Framing::Extended).is_some());
}

#[test]
fn command_numbers() {
    let zero = Command::WriteZeroes { fua: true, no_hole: true, fast: true };
    for (command, number, flags) in [
        (Command::Read { dont_fragment: true }, 0, 4),
        (Command::Write { fua: true }, 1, 1),
        (Command::Flush, 3, 0),
        (Command::Trim { fua: true }, 4, 1),
        (Command::Cache, 5, 0),
        (zero, 6, 1 | 2 | 16),
        (Command::BlockStatus { one: true }, 7, 8),
    ] {
        assert_eq!(command.to_wire(Framing::Structured), (number, flags));
    }
    assert_eq!(Command::Write { fua: false }.to_wire(Framing::Extended), (1, 32));
}

const TAG: Tag = Tag { cookie: 0x0102_0304_0506_0708, offset: 0x2000 };

#[test]
fn simple_replies() {
    assert_eq!(*Framing::Simple.success(TAG), hex("67446698 00000000 0102030405060708"));
    assert_eq!(*Framing::Simple.data(TAG, 512), hex("67446698 00000000 0102030405060708"));
    let error = hex("67446698 0000001c 0102030405060708");
    assert_eq!(*Framing::Simple.error(TAG, Errno::NoSpc), error);
    assert!(Framing::Simple.chunks().is_none());
    let header = ReplyHeader::Simple { errno: 28, cookie: TAG.cookie };
    decodes(&error, header, |input| ReplyHeader::decode(Framing::Simple, input));
    decodes(&error, header, |input| ReplyHeader::decode(Framing::Structured, input));
    assert!(ReplyHeader::decode(Framing::Extended, &error).is_err());
}

#[test]
fn structured_replies() {
    let framing = Framing::Structured;
    let chunks = framing.chunks().unwrap();
    let done = hex("668e33ef 0001 0000 0102030405060708 00000000");
    assert_eq!(*framing.success(TAG), done);
    assert_eq!(*chunks.end(TAG), done);
    let whole = hex("668e33ef 0001 0001 0102030405060708 00000208 0000000000002000");
    assert_eq!(*framing.data(TAG, 512), whole);
    let part = hex("668e33ef 0000 0001 0102030405060708 00000208 0000000000002200");
    assert_eq!(*chunks.data(TAG, 0x2200, 512, false), part);
    let hole = hex("668e33ef 0001 0002 0102030405060708 0000000c 0000000000002000 00000400");
    assert_eq!(*chunks.hole(TAG, 0x2000, 1024, true), hole);
    let error = hex("668e33ef 0001 8001 0102030405060708 00000006 00000005 0000");
    assert_eq!(*framing.error(TAG, Errno::Io), error);
    let error_at = hex("668e33ef 0000 8002 0102030405060708 0000000e 00000005 0000 0000000000002001");
    assert_eq!(*chunks.error_at(TAG, Errno::Io, 0x2001, false), error_at);

    let header = ReplyHeader::Chunk { flags: 1, kind: 0, cookie: TAG.cookie, length: 0 };
    decodes(&done, header, |input| ReplyHeader::decode(framing, input));
    assert!(ReplyHeader::decode(Framing::Simple, &done).is_err());
}

#[test]
fn extended_replies() {
    let framing = Framing::Extended;
    let chunks = framing.chunks().unwrap();
    let done = hex("6e8a278c 0001 0000 0102030405060708 0000000000002000 0000000000000000");
    assert_eq!(*framing.success(TAG), done);
    let data = hex("6e8a278c 0000 0001 0102030405060708 0000000000002000 0000000000000208 0000000000002200");
    assert_eq!(*chunks.data(TAG, 0x2200, 512, false), data);
    let error = hex("6e8a278c 0001 8001 0102030405060708 0000000000002000 0000000000000006 0000006c 0000");
    assert_eq!(*framing.error(TAG, Errno::Shutdown), error);
    let error_at =
        "6e8a278c 0001 8002 0102030405060708 0000000000002000 000000000000000e 0000000c 0000 0000000000002001";
    assert_eq!(*chunks.error_at(TAG, Errno::NoMem, 0x2001, true), hex(error_at));

    let header = ReplyHeader::Chunk { flags: 1, kind: 0, cookie: TAG.cookie, length: 0 };
    decodes(&done, header, |input| ReplyHeader::decode(framing, input));
}

fn status(framing: Framing, one: bool, length: u64, extents: &[(u64, u32)]) -> Vec<u8> {
    let request = Request { cookie: TAG.cookie, offset: TAG.offset, length, command: Command::BlockStatus { one } };
    let extents = extents.iter().map(|&(length, flags)| Extent { length, flags });
    let mut out = Vec::new();
    framing.chunks().unwrap().extents(&request, Context::Cache, extents, true, &mut out);
    out
}

#[test]
fn block_status() {
    let compact = "668e33ef 0001 0005 0102030405060708 00000014 00000002 00001000 00000003 00000800 00000000";
    assert_eq!(status(Framing::Structured, false, 0x1800, &[(0x1000, 3), (0x800, 0)]), hex(compact));
    let extended = "6e8a278c 0001 0006 0102030405060708 0000000000002000 0000000000000028 00000002 00000002
        0000000000001000 0000000000000003 0000000200000000 0000000000000001";
    assert_eq!(status(Framing::Extended, false, 0x2_0000_1000, &[(0x1000, 3), (0x2_0000_0000, 1)]), hex(extended));
}

#[test]
fn block_status_is_cut_to_what_the_request_allows() {
    let long = status(Framing::Structured, false, 0x1800, &[(0x800, 1), (0, 3), (0x800, 1), (u64::MAX, 0), (1, 1)]);
    assert_eq!(long, status(Framing::Structured, false, 0x1800, &[(0x1000, 1), (0x800, 0)]));
    let one = status(Framing::Structured, true, 0x1800, &[(0x800, 1), (0x800, 1), (0x800, 0)]);
    assert_eq!(one, status(Framing::Structured, false, 0x1800, &[(0x1000, 1)]));
    let none = status(Framing::Structured, false, 0x1800, &[]);
    assert_eq!(none, status(Framing::Structured, false, 0x1800, &[(0x1800, 0)]));
    let endless = (0..).map(|i| (1, i & 1)).take(1 << 20).collect::<Vec<_>>();
    assert_eq!(status(Framing::Structured, false, 1 << 20, &endless).len(), 24 + 8 * (64 << 10));
}

#[test]
fn errors_have_the_protocols_numbers() {
    use Errno::{Inval, Io, NoMem, NoSpc, NotSup, Overflow, Perm, Shutdown};
    let numbers = [(Perm, 1), (Io, 5), (NoMem, 12), (Inval, 22), (NoSpc, 28), (Overflow, 75), (NotSup, 95)];
    for (errno, number) in numbers.into_iter().chain([(Shutdown, 108)]) {
        assert_eq!(errno.number(), number);
        assert_eq!(Errno::from_number(number), errno);
    }
    assert_eq!(Errno::from_number(4711), Inval);
    // EPERM, EACCES, EROFS, EIO, ENOMEM, EINVAL, ENOSPC, EDQUOT, EFBIG, EOPNOTSUPP, ENXIO of Linux.
    for (os, errno) in [
        (1, Perm),
        (13, Perm),
        (30, Perm),
        (5, Io),
        (12, NoMem),
        (22, Inval),
        (28, NoSpc),
        (122, NoSpc),
        (27, NoSpc),
        (95, NotSup),
        (6, Io),
    ] {
        assert_eq!(Errno::from(std::io::Error::from_raw_os_error(os).kind()), errno, "{os}");
    }
}

#[test]
fn features_round_trip() {
    let all = Features {
        read_only: false,
        rotational: true,
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        multi_conn: true,
    };
    assert_eq!(all.to_wire(Framing::Structured), 0b1101_1111_1101);
    assert_eq!(all.to_wire(Framing::Simple), 0b1101_0111_1101);
    assert_eq!(Features::from_wire(all.to_wire(Framing::Simple)), all);
    assert_eq!(Features { read_only: true, ..all }.to_wire(Framing::Simple), 0b0101_0001_1111);
    assert_eq!(Features { write_zeroes: false, ..all }.to_wire(Framing::Simple), 0b0101_0011_1101);
    assert_eq!(Features::default().to_wire(Framing::Simple), 1);
}

#[test]
fn exports_are_checked() {
    let disk = |name: &str| Export {
        name: name.into(),
        description: String::new(),
        size: 1 << 20,
        features: Features::default(),
        blocks: BlockSizes::default(),
    };
    let invalid = |export: Export| Exports::new(vec![export]).unwrap_err();
    assert!(matches!(invalid(disk("a\0")), InvalidExport::Name(_)));
    assert!(matches!(invalid(disk(&"a".repeat(4097))), InvalidExport::Name(_)));
    assert!(matches!(invalid(Export { description: "\0".into(), ..disk("a") }), InvalidExport::Description(_)));
    assert!(matches!(invalid(Export { size: 1 << 63, ..disk("a") }), InvalidExport::Size(_)));
    assert!(matches!(Exports::new(vec![disk("a"), disk("a")]), Err(InvalidExport::Duplicate(_))));
    for (minimum, preferred, maximum) in [
        (0, 4096, 1 << 20),
        (3, 4096, 1 << 20),
        (1 << 17, 1 << 17, 1 << 20),
        (1, 256, 1 << 20),
        (4096, 512, 1 << 20),
        (1, 5000, 1 << 20),
        (1, 4096, 4096),
        (4096, 4096, (1 << 20) + 512),
        (1, 1 << 21, 1 << 20),
        (1, 4096, u32::MAX),
    ] {
        let blocks = BlockSizes { minimum, preferred, maximum };
        assert!(matches!(invalid(Export { blocks, ..disk("a") }), InvalidExport::Blocks { .. }), "{blocks:?}");
    }

    let two = Exports::new(vec![disk("a"), disk("b")]).unwrap();
    assert_eq!(two.find("b").map(|(index, _)| index), Some(1));
    assert!(two.find("").is_none() && two.find("c").is_none());
    let one = Exports::new(vec![disk("a")]).unwrap();
    assert_eq!(one.find("").map(|(index, _)| index), Some(0));
    let default = Exports::new(vec![disk("a"), disk("")]).unwrap();
    assert_eq!(default.find("").map(|(index, _)| index), Some(1));
}
