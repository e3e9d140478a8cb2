//! Every format by a small sample: what is read, what is recognized, and what is refused where.

use std::io::Cursor;
use std::path::Path;

use nigh_trace::Stream;
use nigh_trace::error::Place;
use nigh_trace::format::blkparse::Action;
use nigh_trace::{Error, Format, Note, Op, ReadOptions, Request, from_reader};

const SECOND: u64 = 1_000_000_000;

fn read(content: &[u8], options: &ReadOptions) -> Result<(Format, Vec<Request>), Error> {
    let mut opened = from_reader(Cursor::new(content.to_owned()), Path::new("sample"), options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok((opened.format, all));
        }
        all.append(&mut batch);
    }
}

/// The requests of a sample whose format is recognized as `format`.
fn recognized(format: Format, content: &[u8]) -> Vec<Request> {
    let (found, requests) = read(content, &ReadOptions::default()).unwrap();
    assert_eq!(found, format);
    requests
}

fn as_format(format: Format) -> ReadOptions {
    ReadOptions { format: Some(format), ..ReadOptions::default() }
}

/// That `content` is refused at `place`, with `found` and `expected` in the message.
fn refused(options: &ReadOptions, content: &[u8], place: Place, found: &str, expected: &str) {
    match read(content, options) {
        Err(Error::Malformed { place: at, found: what, expected: instead, .. }) => {
            assert_eq!(at, place, "{what}, {instead}");
            assert!(what.contains(found), "{what}");
            assert!(instead.contains(expected), "{instead}");
        }
        other => panic!("{other:?}"),
    }
}

fn records(records: &[&[&[u8]]]) -> Vec<u8> {
    records.concat().concat()
}

#[test]
fn lirs() {
    let blocks = |content| recognized(Format::Lirs, content).iter().map(|r| r.offset / 4096).collect::<Vec<_>>();
    assert_eq!(blocks(b"3\n1\n*\n\n4\n"), [3, 1, 4]);
    assert_eq!(blocks(b"\xef\xbb\xbf3\r\n 1\t\r\n* phase 2\r\n4"), [3, 1, 4]);
    let options = ReadOptions { block_bytes: Some(512), ..as_format(Format::Lirs) };
    assert_eq!(read(b"7\n", &options).unwrap().1[0], Request { offset: 3584, length: 512, ..Request::default() });
    refused(&as_format(Format::Lirs), b"1\n2\nx\x1b[3\n", Place::Line(3), r"`x\u{1b}[3`", "a block number");
    refused(&as_format(Format::Lirs), b"1\n4503599627370496\n", Place::Line(2), "4503599627370496", "2^64");
    refused(&as_format(Format::Lirs), b"99999999999999999999", Place::Line(1), "99999", "a block number");
    refused(&as_format(Format::Lirs), &[b'a'; 100], Place::Line(1), &format!("`{}…`", "a".repeat(40)), "block");
    refused(&as_format(Format::Lirs), &vec![b'1'; 5 << 20], Place::Line(1), "a longer line", "4 MiB");
}

#[test]
fn long_traces_keep_their_order_across_batches_and_buffers() {
    let content: String = (0..200_000).map(|block| format!("{}\n", block * 7)).collect();
    let requests = recognized(Format::Lirs, content.as_bytes());
    assert_eq!(requests.len(), 200_000);
    assert!(requests.iter().enumerate().all(|(at, request)| request.offset == at as u64 * 7 * 4096));
    let bad = content + "x\n";
    refused(&ReadOptions::default(), bad.as_bytes(), Place::Line(200_001), "`x`", "block");
}

#[test]
fn arc() {
    let requests = recognized(Format::Arc, b"230027 8 0 0\n1842745\t64 0 1\r\n");
    assert_eq!(requests[0], Request { offset: 230_027 * 512, length: 4096, ..Request::default() });
    assert_eq!(requests[1].length, 32768);
    refused(&as_format(Format::Arc), b"1 1 0 0\n1 1 0\n", Place::Line(2), "end of the line", "number of the request");
    refused(&as_format(Format::Arc), b"1 8388608 0 0", Place::Line(1), "1 8388608 0 0", "4 GiB");
    refused(&as_format(Format::Arc), b"36028797018963968 1 0 0", Place::Line(1), "36028797018963968", "2^64");
    refused(&as_format(Format::Arc), b"1 1 0 0 0", Place::Line(1), "`0`", "four fields");
}

fn vscsi_1(command: u16, bytes: u32, sector: u64, time_us: u64) -> Vec<u8> {
    let (bytes, sector, time) = (bytes.to_le_bytes(), sector.to_le_bytes(), time_us.to_le_bytes());
    records(&[&[&[9, 0, 0, 0], &bytes, &[1, 0, 0, 0], &command.to_le_bytes(), &[0, 1], &sector, &time]])
}

fn vscsi_2(command: u16, bytes: u32, sector: u64, time_us: u64) -> Vec<u8> {
    let (bytes, sector, time) = (bytes.to_le_bytes(), sector.to_le_bytes(), time_us.to_le_bytes());
    records(&[&[&command.to_le_bytes(), &[0, 2, 9, 0, 0, 0], &bytes, &[1, 0, 0, 0], &sector, &time, &[7; 8]]])
}

#[test]
fn vscsi() {
    for record in [vscsi_1, vscsi_2] {
        let content = [
            record(0x28, 4096, 8, 1000),
            record(0x2a, 512, 1, 2000),
            record(0x12, 96, 0, 2500),
            record(0x42, 1 << 20, 2048, 3000),
            record(0x35, 0, 0, 4000),
        ]
        .concat();
        let requests = recognized(Format::Vscsi, &content);
        let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
        assert_eq!(ops, [Op::Read, Op::Write, Op::Trim, Op::Flush]);
        assert_eq!(
            requests[0],
            Request { time_ns: 1_000_000, offset: 4096, length: 4096, op: Op::Read, ..Request::default() }
        );

        let stride = content.len() as u64 / 5;
        let options = as_format(Format::Vscsi);
        let cut = &content[..content.len() - 3];
        refused(&options, cut, Place::Byte(4 * stride), &format!("{} bytes", stride - 3), "a record of");
        let far = [content.clone(), record(0x28, 512, u64::MAX / 512, 0)].concat();
        refused(&options, &far, Place::Byte(5 * stride), "512 bytes at sector", "2^64");
        let late = [content.clone(), record(0x28, 512, 0, u64::MAX)].concat();
        refused(&options, &late, Place::Byte(5 * stride), "µs", "2^64 ns");
    }
    let mixed = [vscsi_1(0x28, 512, 0, 0), vscsi_2(0x28, 512, 0, 0)].concat();
    refused(&as_format(Format::Vscsi), &mixed, Place::Byte(32), "version", "version 1");
    refused(&as_format(Format::Vscsi), &[0; 64], Place::Byte(0), "00", "version 1 or 2");
}

#[test]
fn msr() {
    let content = b"128166372003061629,usr,0,Read,7014609920,24576,41286\r\n128166372016382155,usr,1,Write,1317441536,8192,1963\n\
        128166372026382245,hm,0,Read,2436440064,4096,1835\n128166372036382245,usr,0,write,0,512,1\n";
    let requests = recognized(Format::Msr, content);
    let volumes: Vec<_> = requests.iter().map(|request| request.volume).collect();
    assert_eq!(volumes, [0, 1, 2, 0]);
    let first = Request {
        time_ns: 0,
        offset: 7_014_609_920,
        length: 24576,
        op: Op::Read,
        latency_ns: 4_128_600,
        ..Request::default()
    };
    assert_eq!(requests[0], first);
    let with_header = [b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n", &content[..]].concat();
    assert_eq!(recognized(Format::Msr, &with_header), requests);

    let options = as_format(Format::Msr);
    refused(&options, b"1,usr,0,Read,0,512,0\n1,usr,0,Reed,0,512,0\n", Place::Line(2), "`Reed`", "Read or Write");
    refused(&options, b"1,usr,0,Read,-1,512,0\n", Place::Line(1), "`-1`", "an offset");
    refused(&options, b"999999999999999999,usr,0,Read,1,512,0\n", Place::Line(1), "9999", "100 ns");
    refused(&options, b"1,usr,0,Read,1,4294967296,0\n", Place::Line(1), "4294967296", "4 GiB");
    // A line that is cut within its size, and files that never have a response time.
    refused(
        &options,
        b"1,usr,0,Read,1,4096,7\n2,usr,0,Read,1,40\n",
        Place::Line(2),
        "end of the line",
        "response time",
    );
    refused(&options, b"1,usr,0,Read,1,4096,7\n2,usr,0,Read,1,4096,\n", Place::Line(2), "``", "response time");
    assert_eq!(read_with(b"1,usr,0,Read,1,4096\n2,usr,0,Read,1,512\n", &options).len(), 2);
    refused(&options, b"1,usr,0,Read,1,4096\n2,usr,0,Read,1,512,7\n", Place::Line(2), "`7`", "six fields");
}

#[test]
fn spc() {
    let requests = recognized(Format::Spc, b"0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214,ignored\n");
    assert_eq!(
        requests[1],
        Request {
            time_ns: 26_214_000,
            offset: 55590 * 512,
            length: 3072,
            volume: 1,
            op: Op::Read,
            ..Request::default()
        }
    );
    assert_eq!(requests[0].op, Op::Write);
    assert_eq!(recognized(Format::Spc, b"0 1 512 R 2.5e-3\n")[0].time_ns, 2_500_000);
    let options = as_format(Format::Spc);
    refused(&options, b"0,1,512,R,0.1\n0,1,512,R,-0.1\n", Place::Line(2), "`-0.1`", "seconds");
    refused(&options, b"0,1,512,X,0.1", Place::Line(1), "`X`", "R or W");
    refused(&options, b"4294967296,1,512,R,0.1", Place::Line(1), "4294967296", "ASU");
}

#[test]
fn fiu_has_digests_of_contents() {
    let content =
        b"0 4892 syslogd 904265560 8 W 6 0 531e779e\n7 12 nfsd 64 16 R 8 1 0f\n9 12 nfsd 80 8 R 8 1 531e779e\n";
    let requests = recognized(Format::Fiu, content);
    let second = Request {
        time_ns: 7,
        tenant: 12,
        offset: 64 * 512,
        length: 8192,
        volume: 8 << 20 | 1,
        op: Op::Read,
        content: requests[1].content,
        ..Request::default()
    };
    assert_eq!((requests[1], requests[0].op), (second, Op::Write));
    assert!(requests[0].content != 0 && requests[0].content == requests[2].content);
    assert!(second.content != 0 && second.content != requests[0].content);
    refused(
        &as_format(Format::Fiu),
        b"0 1 a 1 8 W 6 0 ab\n0 1 a 1 8 W 6 0\n",
        Place::Line(2),
        "end of the line",
        "a digest",
    );
    refused(&as_format(Format::Fiu), b"0 1 a 1 8 W 5000 0 ab\n", Place::Line(1), "5000", "a device number");
    // Any CSV can have them, as numbers or as digests.
    let columns = "offset=0,content=1,offset-unit=blocks".parse().unwrap();
    let options = ReadOptions { columns: Some(columns), ..as_format(Format::Csv) };
    let contents: Vec<u64> = read_with(b"5,17\n6,\n7,abc\n8,abc\n", &options).iter().map(|of| of.content).collect();
    assert!(contents[..2] == [17, 0] && contents[2] > 0 && contents[2] == contents[3], "{contents:?}");
}

#[test]
fn disksim_and_mqsim() {
    let requests = recognized(Format::DiskSim, b"0.000000 0 38572736 24 0\n   12.345678  1  17  8  1\n");
    let second =
        Request { time_ns: 12_345_678, offset: 17 * 512, length: 4096, volume: 1, op: Op::Read, ..Request::default() };
    assert_eq!(requests[1], second);
    assert_eq!(requests[0].op, Op::Write);

    let nanoseconds = b"0 0 38572736 24 0\n12345678 1 17 8 1\n";
    assert_eq!(recognized(Format::MqSim, nanoseconds)[1], second);
    let milliseconds = read_with(b"0 0 38572736 24 0\n12345678 1 17 8 1\n", &as_format(Format::DiskSim));
    assert_eq!(milliseconds[1].time_ns, 12_345_678_000_000);

    match read(b"0 0 38572736 24 0\n9 1 17 8 1\n", &ReadOptions::default()) {
        Err(Error::Ambiguous { candidates, .. }) => assert_eq!(candidates, [Format::MqSim, Format::DiskSim]),
        other => panic!("{other:?}"),
    }
    let source = Cursor::new(b"0 0 38572736 24 0\n9 1 17 8 1\n");
    let named = from_reader(source, Path::new("dir/x.DiskSim.gz"), &ReadOptions::default()).unwrap();
    assert_eq!(named.format, Format::DiskSim);

    refused(&as_format(Format::MqSim), b"0 0 1 1 1\n0 0 1 1 2\n", Place::Line(2), "`2`", "0 for a write");
    refused(&as_format(Format::DiskSim), b"0.5 0 1 1 1\n0.5 0 1 1\n", Place::Line(2), "end of the line", "flags");
}

fn read_with(content: &[u8], options: &ReadOptions) -> Vec<Request> {
    read(content, options).unwrap().1
}

fn object(seconds: u32, id: u64, bytes: u32, next: i64) -> Vec<u8> {
    records(&[&[&seconds.to_le_bytes(), &id.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()]])
}

#[test]
fn oracle_general() {
    let content = [object(0, 5, 100, 2), object(1, 1 << 51, 200, -1), object(u32::MAX, 5, 100, -1)].concat();
    let requests = recognized(Format::OracleGeneral, &content);
    assert_eq!(requests[0], Request { offset: 5 * 4096, length: 4096, ..Request::default() });
    assert_eq!((requests[1].volume, requests[1].offset), (1, 0));
    assert_eq!(requests[2].time_ns, u64::from(u32::MAX) * SECOND);
    let sizes = ReadOptions { recorded_sizes: true, ..ReadOptions::default() };
    assert_eq!(read_with(&content, &sizes)[1].length, 200);
    refused(&ReadOptions::default(), &content[..71], Place::Byte(48), "23 bytes", "a record of 24 bytes");
    let backwards = [object(1, 5, 100, -1), object(0, 6, 200, -1)].concat();
    assert!(matches!(read(&backwards, &ReadOptions::default()), Err(Error::Unrecognized { .. })));
    assert_eq!(read_with(&backwards, &as_format(Format::OracleGeneral)).len(), 2);
}

#[test]
fn no_two_objects_share_a_place() {
    let ids = [0, 1, (1 << 33) - 1, 1 << 33, (1 << 51) - 1, 1 << 51, 1 << 63, u64::MAX - 1, u64::MAX];
    let content: Vec<u8> = ids.iter().flat_map(|&id| object(0, id, 1, -1)).collect();
    for block_bytes in [1, 3, 512, 4096, 4097, 1 << 30] {
        let options = ReadOptions { block_bytes: Some(block_bytes), ..as_format(Format::OracleGeneral) };
        let requests = read_with(&content, &options);
        let places: std::collections::HashSet<_> = requests.iter().map(|r| (r.volume, r.offset)).collect();
        assert_eq!(places.len(), ids.len(), "{block_bytes}");
        let whole = |r: &Request| {
            r.offset.is_multiple_of(u64::from(block_bytes)) && r.offset.checked_add(r.length.into()).is_some()
        };
        assert!(requests.iter().all(whole));
    }
    for block_bytes in [0, (1 << 30) + 1] {
        let options = ReadOptions { block_bytes: Some(block_bytes), ..as_format(Format::OracleGeneral) };
        assert!(matches!(read(&content, &options), Err(Error::BlockBytes(_))));
    }
}

#[test]
fn units_12_objects_of_recorded_sizes_do_not_overlap() {
    let ids = [0, 1, 2, (1 << 32) - 1, 1 << 32, 1 << 51, 1 << 63, u64::MAX - 1, u64::MAX];
    let content: Vec<u8> = ids.iter().flat_map(|&id| object(0, id, u32::MAX, -1)).collect();
    let sizes = ReadOptions { recorded_sizes: true, ..as_format(Format::OracleGeneral) };
    let mut places: Vec<(u32, u64, u64)> = read_with(&content, &sizes)
        .iter()
        .map(|r| (r.volume, r.offset, r.offset.checked_add(r.length.into()).unwrap()))
        .collect();
    places.sort_unstable();
    assert_eq!(places.len(), ids.len());
    for pair in places.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
    }
    // An object that grows stays where it is.
    let grown = read_with(&[object(0, 7, 100, 1), object(1, 7, 9000, -1)].concat(), &sizes);
    assert_eq!((grown[0].offset, grown[1].length), (grown[1].offset, 9000));
}

fn lcs_header(version: u64, bytes: usize) -> Vec<u8> {
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    records(&[&[&magic, &version.to_le_bytes(), &vec![0; bytes - 24], &magic]])
}

#[test]
fn lcs() {
    let record_2 = |op: u8| {
        records(&[&[&7u32.to_le_bytes(), &3u64.to_le_bytes(), &100u32.to_le_bytes(), &[op, 1, 2, 0], &[0xff; 8]]])
    };
    let record_3 = |op: u8, bytes: i64, features: usize| {
        let head: [&[u8]; 3] = [&7u32.to_le_bytes(), &3u64.to_le_bytes(), &bytes.to_le_bytes()];
        records(&[&head, &[&[op, 1, 2, 0], &[0; 4], &[0xff; 8], &vec![0xaa; 4 * features]]])
    };
    let read_3 = Request { time_ns: 7 * SECOND, offset: 3 * 4096, length: 4096, tenant: 0x201, ..Request::default() };
    for header_bytes in [1024, 8192] {
        let content = [lcs_header(1, header_bytes), object(7, 3, 100, -1)].concat();
        assert_eq!(recognized(Format::Lcs, &content), [Request { tenant: 0, ..read_3 }]);
        let content = [lcs_header(2, header_bytes), record_2(1), record_2(3), record_2(9)].concat();
        let write_and_trim = [Op::Write, Op::Trim].map(|op| Request { op, ..read_3 });
        assert_eq!(recognized(Format::Lcs, &content), [&[read_3], &write_and_trim[..]].concat());
        let bad = [lcs_header(2, header_bytes), record_2(1), record_2(77)].concat();
        refused(&as_format(Format::Lcs), &bad, Place::Byte(header_bytes as u64 + 28), "operation 77", "0 to 14");
    }
    for (version, features) in [(3, 0), (4, 1), (5, 2), (6, 4), (7, 8), (8, 16)] {
        let record = record_3(0, 100, features);
        assert_eq!(recognized(Format::Lcs, &[lcs_header(version, 8192), record.repeat(2)].concat()), [read_3; 2]);
        let cut = [lcs_header(version, 8192), record.repeat(2), vec![1]].concat();
        refused(&as_format(Format::Lcs), &cut, Place::Byte(8192 + 2 * record.len() as u64), "1 bytes", "a record");
    }
    for bytes in [-1, 1 << 32] {
        let content = [lcs_header(3, 8192), record_3(0, bytes, 0)].concat();
        refused(&as_format(Format::Lcs), &content, Place::Byte(8192), "a size of", "4 GiB");
    }
    refused(&as_format(Format::Lcs), &lcs_header(9, 8192), Place::Byte(8), "09", "1 to 8");
    refused(&as_format(Format::Lcs), &lcs_header(1, 8192)[..8000], Place::Byte(8184), "[]", "end of the header");
    refused(&as_format(Format::Lcs), b"nonsense", Place::Byte(0), "6e", "magic");
    assert!(matches!(read(&lcs_header(1, 8192), &ReadOptions::default()), Err(Error::Empty { .. })));
}

#[test]
fn blkparse() {
    let content = b"  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427\n\
          8,16   3        2     0.000000829   697  Q  WS 223490 + 8 [kjournald]\n\
          8,0    3        3     0.000001000   697  G   W 223490 + 8 [kjournald]\n\
          8,0    3        4     0.5           698  Q  RA 16 + 256 [cat]\n\
          8,0    3        5     0.6           698  Q   D 1024 + 2048 [fstrim]\n\
          8,0    3        6     0.7           698  Q FWS [sync]\n\
          8,0    3        7     0.7           698  Q  FN [sync]\n\
          8,0    3        8     0.7           698  m   N cfq698S / add_to_rr\n\
          8,0    3        9     0.8           698  D  WS 223490 + 16 [kjournald]\n\
          8,0    3       10     1.000000001     0  C  WS 223490 + 16 [0]\n\
        CPU3 (8,0):\n Reads Queued:           1,        4KiB\t Writes Queued:           2,        8KiB\n\n\
        Throughput (R/W): 0KiB/s / 0KiB/s\nEvents (8,0): 43 entries\nSkips: 0 forward (0 -   0.0%)\n";
    let requests = recognized(Format::Blkparse, content);
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::Write, Op::Read, Op::Trim, Op::Flush, Op::Flush]);
    assert_eq!(
        requests[0],
        Request {
            time_ns: 829,
            offset: 223_490 * 512,
            length: 4096,
            volume: 8 << 20 | 16,
            tenant: 697,
            op: Op::Write,
            stream: 0,
            latency_ns: 0,
            content: 0,
        }
    );
    for (action, time_ns) in [(Action::Issue, 800_000_000), (Action::Complete, 1_000_000_001)] {
        let requests = read_with(content, &ReadOptions { action: Some(action), ..ReadOptions::default() });
        assert_eq!((requests.len(), requests[0].time_ns, requests[0].length), (1, time_ns, 8192));
    }
    let options = as_format(Format::Blkparse);
    refused(&options, b"8,0 3 1 0.0 697 Q W 2234x0 + 8 [a]\n", Place::Line(1), "2234x0", "sector");
    refused(&options, b"8,0 3 1 0.0 697 Q W 223490 - 8 [a]\n", Place::Line(1), "`-`", "+");
    refused(&options, b"8,1048576 3 1 0.0 697 Q W 1 + 8 [a]\n", Place::Line(1), "1048576", "minor");
}

#[test]
fn pc() {
    let content = b"t_us,pid,app,op,file_id,off,len,pc5,pc8,pc16,ra0,sp_dist,nframes\n\
        0,30094,bash,read,0,0,2996,e5840752dded076d,dc654e48f38f2bc6,4d8025251bb1d522,576e960be79a21ed,2080,13\n\
        94,30094,Web Content,pread64,1,2996,0,a,b,c,d,2080,13\n95,1,x,writev,1,0,1,a,b,c,d,1,1\n96,1,x,mmap,1,0,1,a,b,c,d\n";
    let requests = recognized(Format::Pc, content);
    let first = Request { length: 2996, tenant: 30094, stream: 0xdc65_4e48_f38f_2bc6, ..Request::default() };
    assert_eq!(requests[0], first);
    let at_end = Request { time_ns: 94_000, offset: 2996, length: 0, volume: 1, stream: 0xb, ..first };
    assert_eq!(requests[1], at_end);
    assert_eq!((requests[2].op, requests.len()), (Op::Write, 3));
    for (name, expected) in [("pc5", 0xa), ("pc8", 0xb), ("pc16", 0xc), ("ra0", 0xd), ("file", 1)] {
        let stream: Stream = name.parse().unwrap();
        assert_eq!(
            read_with(content, &ReadOptions { stream: Some(stream), ..ReadOptions::default() })[1].stream,
            expected
        );
    }
    let options = as_format(Format::Pc);
    refused(&options, b"0,1,x,stat,1,0,1,a,b,c,d\n", Place::Line(1), "`stat`", "read");
    refused(&options, b"0,1,x,read,1,0,1,a,z,c,d\n", Place::Line(1), "`z`", "hexadecimal");
    refused(&options, b"0,1,x,read,1,0,1,a,b\n", Place::Line(1), "end of the line", "pc16");
}

fn described(columns: &str) -> ReadOptions {
    ReadOptions { columns: Some(columns.parse().unwrap()), ..ReadOptions::default() }
}

#[test]
fn csv() {
    let expected = Request {
        time_ns: 1_500_000_000,
        offset: 1024,
        length: 4096,
        volume: 3,
        tenant: 9,
        op: Op::Write,
        stream: 255,
        latency_ns: 0,
        content: 0,
    };
    let by_name = "time=when,offset=LBA,length=len,op=rw,tenant=user,stream=code,volume=disk,offset-unit=sectors";
    let content = b"When,disk,lba,len,rw,user,code\n1.5,3,2,4096,W,9,0xff\n";
    assert_eq!(read_with(content, &described(by_name)), [expected]);
    let by_index = "time=0,volume=1,offset=2,length=3,op=4,tenant=5,stream=6,offset-unit=sectors";
    assert_eq!(read_with(content, &described(by_index)), [expected]);
    let without_header = b"1500;3;2;8;1;9;0xff\n1500;3;2;8;1;9;0xff\n";
    let settings = format!("{by_index},time-unit=ms,length-unit=sectors,write=1,read=0");
    assert_eq!(read_with(without_header, &described(&settings)), [expected; 2]);
    let quoted = b"\"a, b\",\"17\"\n";
    assert_eq!(read_with(quoted, &described("offset=1,offset-unit=bytes"))[0].offset, 17);
    let blanks = b"1   2\n3 4\n";
    let requests = read_with(blanks, &described("offset=1,offset-unit=blocks"));
    assert_eq!(requests[0], Request { offset: 8192, length: 4096, ..Request::default() });
    assert_eq!(requests[1].offset, 16384);

    let own = b"op,offset,length,time_ns,volume\nread,0,512,5,1\nflush,,,6,\n";
    let requests = recognized(Format::Csv, own);
    assert_eq!(requests[0], Request { time_ns: 5, length: 512, volume: 1, ..Request::default() });
    assert_eq!(requests[1], Request { time_ns: 6, op: Op::Flush, ..Request::default() });

    refused(&as_format(Format::Csv), b"1,2,3\n", Place::Line(1), "1,2,3", "description");
    refused(&described("offset=lba"), b"1,2,3\n", Place::Line(1), "1,2,3", "named columns");
    refused(&described("offset=5"), b"1,2,3\n", Place::Line(1), "end of the line", "offset");
    refused(&described("offset=0,offset-unit=bytes"), b"1\nx\n", Place::Line(2), "`x`", "an offset");
    refused(&described("offset=0,op=1,offset-unit=bytes"), b"1,3\n", Place::Line(1), "`3`", "an operation");
    refused(&described("offset=0,offset-unit=sectors"), b"36028797018963968", Place::Line(1), "360287", "2^64");
}

#[test]
fn csv_headers_leave_nothing_unsaid() {
    for (name, unit_ns) in [("time_ns", 1), ("TIME_US", 1000), ("time_ms", 1_000_000), ("time_s", SECOND)] {
        let content = format!("{name},offset,length\n3,0,512\n");
        assert_eq!(recognized(Format::Csv, content.as_bytes())[0].time_ns, 3 * unit_ns);
    }
    for (header, found, expected) in [
        ("time,offset,length", "`time`", "--columns time=0,time-unit="),
        ("timestamp,offset,length", "`timestamp`", "time-unit="),
        ("offset,offset,length", "`offset`", "one column"),
        ("time_ns,time_us,offset,length", "`time_us`", "one column"),
    ] {
        let content = format!("{header}\n1,2,3,4\n");
        refused(&as_format(Format::Csv), content.as_bytes(), Place::Line(1), found, expected);
    }
    // Other names are guessed, but no unit that neither names nor values show.
    for header in ["offset,length,latency", "offset,size"] {
        let error = read(format!("{header}\n1,2,3,4\n").as_bytes(), &as_format(Format::Csv)).unwrap_err();
        assert!(matches!(error, Error::UnknownUnit { what: "offsets", guessed: Some(_), .. }), "{error}");
    }
    for separator in [";", "semicolon", "|", "\\t"] {
        let byte = separator.replace("semicolon", ";").replace("\\t", "\t");
        let requests = read_with(
            format!("a,b{byte}7\n").as_bytes(),
            &described(&format!("offset=1,offset-unit=bytes,separator={separator}")),
        );
        assert_eq!(requests[0].offset, 7);
    }
}

#[test]
fn csv_numbers_and_names_are_never_taken_for_one() {
    let content = b"0,a\n0,7\n0,b\n0,a\n0,2147483648\n0,2147483649\n0,\n";
    let tenants: Vec<_> = read_with(content, &described("offset=0,tenant=1")).iter().map(|r| r.tenant).collect();
    let base = 1 << 31;
    assert_eq!(tenants, [base, 7, base + 1, base, base + 2, base + 3, 0]);
    let streams: Vec<_> = read_with(content, &described("offset=0,stream=1")).iter().map(|r| r.stream).collect();
    assert_eq!(streams, [1 << 63, 7, (1 << 63) + 1, 1 << 63, 1 << 31, (1 << 31) + 1, 0]);
}

#[test]
fn column_descriptions_that_cannot_be_used() {
    let message = |columns: &str| columns.parse::<nigh_trace::Columns>().unwrap_err().to_string();
    assert!(message("time=0").contains("a column for the offset"));
    assert!(message("offset").contains("setting=value"));
    assert!(message("offset=").contains("a value"));
    assert!(message("offset=0,time-unit=h").contains("s, ms, us or ns"));
    assert!(message("ofset=0").contains("Did you mean 'offset'?"));
    assert!(message("offset=lba,offset=len").contains("`offset=len`: expected each setting at most once"));
    assert!(message("offset=0,separator=,").contains("a value after ="));
}

#[test]
fn format_names() {
    for &format in Format::all() {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        assert!(!format.summary().is_empty());
    }
    assert_eq!("oracleGeneral".parse::<Format>().unwrap(), Format::OracleGeneral);
    let error = "vcsi".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("Did you mean 'vscsi'?") && error.contains("blkparse"), "{error}");
    for (given, nearest) in [("orcle", "oracle-general"), ("general", "oracle-general"), ("blk", "blkparse")] {
        let error = given.parse::<Format>().unwrap_err().to_string();
        assert!(error.contains(&format!("Did you mean '{nearest}'?")), "{error}");
    }
    assert!(!"zzzzzz".parse::<Format>().unwrap_err().to_string().contains("Did you mean"));
}

/// An xz file has the size of its decoder's memory.
#[test]
fn xz_14_files_get_a_limited_memory() {
    use std::io::Write;

    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
    let packed = |dictionary| {
        let mut options = LzmaOptions::new_preset(0).unwrap();
        let stream = Stream::new_stream_encoder(Filters::new().lzma2(options.dict_size(dictionary)), Check::Crc32);
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream.unwrap());
        encoder.write_all(b"1\n2\n").unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(read(&packed(64 << 20), &as_format(Format::Lirs)).unwrap().1.len(), 2);
    match read(&packed(300 << 20), &as_format(Format::Lirs)) {
        Err(Error::Io { source, .. }) => assert!(source.to_string().contains("256 MiB of memory"), "{source}"),
        other => panic!("{:?}", other.map(|(_, requests)| requests.len())),
    }
}

#[test]
fn compression_is_seen_by_content() {
    use std::io::Write;
    let text: Vec<u8> = (0..50_000u64).flat_map(|block| format!("{}\n", block * block).into_bytes()).collect();
    let (first, second) = text.split_at(text.len() / 2);
    let gzip = |bytes| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes| zstd::encode_all(bytes, 1).unwrap();
    let xz = |bytes| {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let plain = recognized(Format::Lirs, &text);
    for (name, parts) in
        [("gzip", [gzip(first), gzip(second)]), ("zstd", [zstd(first), zstd(second)]), ("xz", [xz(first), xz(second)])]
    {
        assert_eq!(recognized(Format::Lirs, &parts.concat()), plain, "{name} in two members");
        let whole = parts.concat();
        for end in [parts[0].len() - 5, whole.len() - 5, 20] {
            match read(&whole[..end], &as_format(Format::Lirs)) {
                Err(Error::Compressed { compression, truncated: true, .. }) => assert_eq!(compression, name),
                other => panic!("{name} cut at {end}: {:?}", other.map(|(_, requests)| requests.len())),
            }
        }
        let mut damaged = whole.clone();
        damaged[parts[0].len() / 2..][..64].fill(0x55);
        match read(&damaged, &as_format(Format::Lirs)) {
            Err(Error::Compressed { truncated: false, .. } | Error::Malformed { .. }) => {}
            other => panic!("{name} damaged: {:?}", other.map(|(_, requests)| requests.len())),
        }
    }
}

#[test]
fn traces_without_requests() {
    for content in [&b""[..], b"\n\n", b"*\n*\n"] {
        assert!(matches!(read(content, &as_format(Format::Lirs)), Err(Error::Empty { .. })));
    }
    assert!(matches!(read(b"", &ReadOptions::default()), Err(Error::Empty { .. })));
    for &format in
        Format::all().iter().filter(|&&format| !matches!(format, Format::Parquet | Format::Lcs | Format::Records))
    {
        assert!(matches!(read(b"", &as_format(format)), Err(Error::Empty { .. })), "{format}");
    }
}

/// That `content`, in a file of the name `name`, is refused at `line`, with `found` in the message.
fn refused_named(name: &str, content: &[u8], line: u64, found: &str) {
    let opened = from_reader(Cursor::new(content.to_owned()), Path::new(name), &ReadOptions::default());
    match opened.and_then(|mut opened| opened.requests.next_batch(&mut Vec::new())) {
        Err(Error::Malformed { place: Place::Line(at), found: what, .. }) => {
            assert_eq!(at, line, "{what}");
            assert!(what.contains(found), "{what}");
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_bad_line_near_the_beginning_does_not_hide_the_format() {
    for bad in [
        "1,usr,0,Reed,0,512,0",
        "1,usr,0,X,0,512,0",
        "1,usr,0,Read,18446744073709551615,4096,0",
        "1,usr,0,Read,0,9223372036854775808,0",
        "1,usr,0,Read,0",
    ] {
        let (good, bad) = ("1,usr,0,Read,0,512,0\n".repeat(3), format!("{bad}\n"));
        refused_named("trace", (good.clone() + &bad).as_bytes(), 4, "");
        refused_named("trace", (bad.clone() + &good).as_bytes(), 1, "");
        refused_named("hm.msr.gz", bad.as_bytes(), 1, "");
    }
    refused_named("trace", b"1\n2\n1,2,3,foo\n", 3, "`1,2,3,foo`");
    refused_named("x.lis", b"1 2 0\n", 1, "the end of the line");
    refused_named("trace", b"0,1,512,R,0.1\n0,1,512,X,0.1\n", 2, "`X`");
    refused_named("trace", b"0.5 0 1 8 1\n0.6 0 1 8 1\n0.7 0 1\n", 3, "the end of the line");
    refused_named("trace", b"0 0 1 8 1\n5000 0 1 8 1\n9000 0 1\n", 3, "the end of the line");
    refused_named("trace", b"time,offset,length\n1,2,3\n", 1, "`time`");
    refused_named("trace", b"offset,length\n1,2\n1,x\n", 3, "`x`");
    let not_arc = read(b"1 1 0 1\n1 1 0 2\n1 1 5 3\n", &ReadOptions::default());
    assert!(matches!(not_arc, Err(Error::Unrecognized { .. })), "{not_arc:?}");
    let mut named = read(b"0 0 1 8 1\n9 0 1 8 1\n0 0 1\n", &ReadOptions::default());
    assert!(matches!(named, Err(Error::Ambiguous { .. })), "{named:?}");
    for content in [&b"offset,length\n"[..], b"time_ns,op,volume,offset,length,tenant,stream", b"\n \n", b"*\n"] {
        named = read(content, &ReadOptions::default());
        assert!(matches!(named, Err(Error::Empty { .. })), "{named:?}");
    }
}

#[test]
fn unknown_content_and_missing_files() {
    for content in [&b"hello world\n"[..], b"{\"t\": 1}\n", b"\0\x01\x02", &[0xff; 100]] {
        let error = read(content, &ReadOptions::default()).err().unwrap();
        assert!(matches!(error, Error::Unrecognized { .. }), "{error}");
        assert!(error.to_string().contains("lirs, arc, vscsi"), "{error}");
    }
    let error = nigh_trace::open(Path::new("/nonexistent/x"), &ReadOptions::default()).err().unwrap();
    assert_eq!(chain(&error), "/nonexistent/x: No such file or directory (os error 2)");
    let error = nigh_trace::open(Path::new("/"), &ReadOptions::default()).err().unwrap();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

/// An error as programs print it: with all its sources.
fn chain(error: &Error) -> String {
    let sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[test]
fn data_behind_the_end_of_a_compressed_file_is_not_called_cut_short() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"1\n2\n").unwrap();
    let content = gzip.finish().unwrap();
    for garbage in [&b"x"[..], b"garbage\n", &[0; 100]] {
        match read(&[&content, garbage].concat(), &ReadOptions::default()) {
            Err(error @ Error::Compressed { truncated: false, .. }) => {
                assert_eq!(chain(&error), "sample: the gzip data is damaged: there is other data after its end");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(b"1\n2\n").unwrap();
    for content in [xz.finish().unwrap(), zstd::encode_all(&b"1\n2\n"[..], 1).unwrap()] {
        let result = read(&[&content[..], b"long enough for a header"].concat(), &ReadOptions::default());
        assert!(matches!(result, Err(Error::Compressed { truncated: false, .. })), "{result:?}");
    }
}

#[test]
fn units_12_numbers_of_blocks_in_nighs_own_columns_are_noted() {
    let notes = |text: &[u8]| {
        let opened = from_reader(Cursor::new(text.to_vec()), Path::new("t.csv"), &ReadOptions::default()).unwrap();
        opened.requests.notes()
    };
    for content in
        [&b"offset,length\n1,4096\n2,4096\n"[..], b"offset,length\n1,1\n2,1\n", b"offset,length\n7,8\n1,16\n"]
    {
        let doubtful = notes(content);
        assert!(matches!(&doubtful[..], [Note::Unit { what: "offsets", unit: "bytes", .. }]), "{doubtful:?}");
    }
    for fine in
        [&b"offset,length\n512,4096\n0,4096\n"[..], b"offset,length\n1,100\n101,4096\n", b"offset,length\n0,1\n512,1\n"]
    {
        assert_eq!(notes(fine), [], "{}", String::from_utf8_lossy(fine));
    }
}
