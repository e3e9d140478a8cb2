//! The outputs of tools that record block requests and system calls, by samples that the tools wrote.
//!
//! `samples/` holds: `fio-3` by fio 3.33; `fio-2` by hand, accepted by fio 3.33; `perf` by perf 6.1 on Linux 6.18;
//! `bpftrace-*` by bpftrace 0.17; `strace-*` by strace 6.1; `biosnoop` and `biosnoop-queued` from the examples that bcc ships;
//! `alibaba` by hand, in the layout that the publishers describe. The others are shortened, and paths in them are too.

use std::io::Cursor;
use std::path::Path;

use nigh_trace::error::Place;
use nigh_trace::format::blkparse::Action;
use nigh_trace::{Error, Format, Note, Op, ReadOptions, Request, Taken, from_reader};

const SECTOR: u64 = 512;
/// Disk 254:0.
const DISK: u32 = 254 << 20;

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/samples").join(name)).unwrap()
}

fn read(content: &[u8], options: &ReadOptions) -> Result<(Format, Vec<Request>, Vec<Note>), Error> {
    let mut opened = from_reader(Cursor::new(content.to_owned()), Path::new("sample"), options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok((opened.format, all, opened.requests.notes()));
        }
        all.append(&mut batch);
    }
}

/// The requests of a sample whose format is recognized as `format`, and the notes on it.
fn noted(format: Format, content: &[u8]) -> (Vec<Request>, Vec<Note>) {
    let (found, requests, notes) = read(content, &ReadOptions::default()).unwrap();
    assert_eq!(found, format);
    (requests, notes)
}

fn recognized(format: Format, content: &[u8]) -> Vec<Request> {
    let (requests, notes) = noted(format, content);
    assert_eq!(notes, []);
    requests
}

/// That `content` is refused at `line`, with `found` and `expected` in the message.
fn refused(format: Format, content: &[u8], line: u64, found: &str, expected: &str) {
    match read(content, &ReadOptions { format: Some(format), ..ReadOptions::default() }) {
        Err(Error::Malformed { place, found: what, expected: instead, .. }) => {
            assert_eq!(place, Place::Line(line), "{what}, {instead}");
            assert!(what.contains(found), "{what}");
            assert!(instead.contains(expected), "{instead}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn fio_iolog_3() {
    let requests = recognized(Format::Fio, &sample("fio-3"));
    assert_eq!(requests.len(), 16);
    let first = Request { time_ns: 148_000, offset: 61440, length: 4096, op: Op::Write, ..Request::default() };
    assert_eq!(requests[0], first);
    assert_eq!(requests[15].time_ns, 35_208_000);
    let reads = requests.iter().filter(|request| request.op == Op::Read).count();
    assert_eq!(reads, 8);
    refused(Format::Fio, b"fio version 4 iolog\n", 1, "version 4", "version 2");
    refused(Format::Fio, b"fio version 3 iolog\n1 f wait 5\n", 2, "wait", "an action");
    refused(Format::Fio, b"fio version 3 iolog\n1 f read 5\n", 2, "end of the line", "a length");
    refused(Format::Fio, b"fio version 3 iolog\nf read 5 5\n", 2, "`f`", "a time");
}

#[test]
fn fio_iolog_2() {
    let requests = recognized(Format::Fio, &sample("fio-2"));
    let ops: Vec<_> = requests.iter().map(|request| (request.op, request.time_ns / 1_000_000)).collect();
    assert_eq!(ops, [(Op::Write, 0), (Op::Read, 0), (Op::Read, 5000), (Op::Flush, 5000), (Op::Flush, 5250)]);
    assert_eq!((requests[2].offset, requests[2].length), (880_640, 4096));
    let two = b"fio version 2 iolog\na read 0 512\nb trim 512 512\na write 0 512\n";
    let volumes: Vec<_> = recognized(Format::Fio, two).iter().map(|request| request.volume).collect();
    assert_eq!(volumes, [0, 1, 0]);
}

#[test]
fn perf_script() {
    let (requests, notes) = noted(Format::Perf, &sample("perf"));
    assert_eq!(notes, [Note::Events { read: "block_bio_queue" }]);
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::Read, Op::Trim, Op::Write, Op::Write, Op::Write, Op::Flush, Op::Write]);
    let first = Request {
        time_ns: 1_739_011_133_000,
        offset: 10_122_440 * SECTOR,
        length: 4096,
        volume: DISK,
        tenant: 22616,
        op: Op::Read,
        stream: 0,
        latency_ns: 0,
        content: 0,
    };
    assert_eq!(requests[0], first);
    for (action, count, time_ns) in [(Action::Issue, 7, 1_739_011_149_000), (Action::Complete, 5, 1_739_011_419_000)] {
        let options = ReadOptions { action: Some(action), ..ReadOptions::default() };
        let (_, requests, notes) = read(&sample("perf"), &options).unwrap();
        assert_eq!((requests.len(), requests[0].time_ns), (count, time_ns), "{action:?}");
        assert_eq!(notes, []);
    }
    // As ftrace and older kernels write it, with other events and call stacks between.
    let ftrace = b"# tracer: nop\n\
        fio-77    [001] d..1.  12.5: block_rq_issue: 8,16 WS 4096 () 2048 + 8 [fio]\n\
        \tffffffff8 submit_bio+0x1 ([kernel.kallsyms])\n\
        fio 77/78 [001] 13.5: block:block_rq_issue: 8,16 R 0 (28 00 00) 4096 + 16 [a b]\n\
        fio 77 [001] 13.6: block:block_unplug: [fio] 1\n";
    let requests = recognized(Format::Perf, ftrace);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].tenant, requests[0].volume, requests[0].time_ns), (77, 8 << 20 | 16, 12_500_000_000));
    assert_eq!((requests[1].tenant, requests[1].offset, requests[1].length), (77, 4096 * SECTOR, 8192));
    let line = |payload: &str| format!("fio 7 [0] 1.5: block:block_rq_issue: {payload}\n").into_bytes();
    refused(Format::Perf, &line("8 R 0 () 4096 + 16 [a]"), 1, "`8`", "major,minor");
    refused(Format::Perf, &line("8,0 Q 0 () 4096 + 16 [a]"), 1, "`Q`", "RWBS");
    refused(Format::Perf, &line("8,0 R 0 () 4096 16 [a]"), 1, "4096 16", "+");
    refused(Format::Perf, b"fio 7 [0] x: block:block_rq_issue: 8,0 R 0 () 1 + 1 [a]\n", 1, "`x`", "a time");
}

#[test]
fn biosnoop() {
    let requests = recognized(Format::Biosnoop, &sample("biosnoop"));
    assert_eq!(requests.len(), 15);
    let first = Request {
        time_ns: 4000,
        offset: 13_092_560 * SECTOR,
        length: 4096,
        volume: 0,
        tenant: 1950,
        op: Op::Write,
        stream: 0,
        latency_ns: 740_000,
        content: 0,
    };
    assert_eq!(requests[0], first);
    let volumes: Vec<_> = requests.iter().map(|request| request.volume).collect();
    assert_eq!(volumes, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 0, 0]);
    let queued = recognized(Format::Biosnoop, &sample("biosnoop-queued"));
    assert_eq!((queued.len(), queued[1].offset, queued[1].length), (6, 41_963_894 * SECTOR, 3072));
    // libbpf-tools write RWBS, and programs' names have blanks.
    let letters = b"TIME(s)     COMM           PID     DISK      T      SECTOR     BYTES   LAT(ms)\n\
        0.5  Web Content 12 33 nvme0n1 RA 8 4096 0.1\n0.6 jbd2/sda1-8 44 sda FF -1 0 0.5\n0.7 x 1 sda N 0 0 0.1\n";
    let requests = recognized(Format::Biosnoop, letters);
    assert_eq!((requests[0].tenant, requests[0].op, requests[0].offset), (33, Op::Read, 4096));
    assert_eq!((requests[1].op, requests.len()), (Op::Flush, 2));
    refused(Format::Biosnoop, b"0.5 x 1 sda Q 8 4096 0.1\n", 1, "0.5 x", "kind of request");
    refused(Format::Biosnoop, b"0.5 x 1 sda R 8 4096 0.1\nx x 1 sda R 8 4096 0.1\n", 2, "`x`", "a time");
}

#[test]
fn bpftrace_shows_where_it_recorded() {
    for (name, taken, block_bytes) in
        [("disk", Taken::Below, 4096), ("file", Taken::Above, 4096), ("relation", Taken::Database, 8192)]
    {
        let text =
            format!("Attaching 3 probes...\nnsecs op {name} offset bytes pid\n402 read 1663-5-7-0 8192 8192 77\n");
        for format in [None, Some(Format::Bpftrace)] {
            let options = ReadOptions { format, ..ReadOptions::default() };
            let opened = from_reader(Cursor::new(text.clone()), Path::new("sample"), &options).unwrap();
            let found = (opened.format, opened.taken, opened.block_bytes);
            assert_eq!(found, (Format::Bpftrace, Some(taken), block_bytes), "{name}");
        }
    }
}

#[test]
fn bpftrace() {
    // The sample has parts of two listings, of which the later one began earlier.
    let (requests, notes) = noted(Format::Bpftrace, &sample("bpftrace-names"));
    assert!(matches!(notes[..], [Note::TimesBack { count: 1, .. }]), "{notes:?}");
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::Read, Op::Read, Op::Read, Op::Read, Op::Trim, Op::Write, Op::Flush, Op::Flush]);
    let first = Request {
        time_ns: 1_801_801_344_523,
        offset: 20_523_472 * SECTOR,
        length: 4096,
        volume: DISK,
        tenant: 25101,
        op: Op::Read,
        stream: 0,
        latency_ns: 0,
        content: 0,
    };
    assert_eq!(requests[0], first);
    let json = recognized(Format::Bpftrace, &sample("bpftrace-json"));
    assert_eq!((json.len(), json[0].time_ns, json[0].length), (6, 1_808_020_325_291, 4096));
    let rows = recognized(Format::Bpftrace, &sample("bpftrace-header"));
    assert_eq!(rows.len(), 7);
    let first =
        Request { time_ns: 1_792_298_790_375, offset: 10_132_216 * SECTOR, length: 8192, volume: DISK, ..first };
    assert_eq!(rows[0], Request { tenant: 0, ..first });
    assert_eq!((rows[3].op, rows[3].length), (Op::Write, 16384));

    let other = b"TIME(us) DISK OP OFFSET BYTES\n5 a read 4096 512\n7 b W 0 1024\n";
    let requests = recognized(Format::Bpftrace, other);
    assert_eq!((requests[0].time_ns, requests[0].offset, requests[0].volume), (5000, 4096, 0));
    assert_eq!((requests[1].op, requests[1].length, requests[1].volume), (Op::Write, 1024, 1));
    let pairs = b"Attaching 1 probe...\ndev=8:16, rwbs=WS, sector=8, bytes=512\n";
    assert_eq!(recognized(Format::Bpftrace, pairs)[0].volume, 8 << 20 | 16);

    refused(Format::Bpftrace, b"12 fio 8 R 16\n", 1, "12 fio", "sector=");
    refused(Format::Bpftrace, b"rwbs=Q sector=1 nr_sector=1\n", 1, "`Q`", "RWBS");
    refused(Format::Bpftrace, b"sector=1 nr_sector=1\n", 1, "sector=1", "rwbs=");
    refused(Format::Bpftrace, b"RWBS SECTOR BYTES\nR 1\n", 2, "end of the line", "as many words");
    refused(Format::Bpftrace, b"{\"type\": \"printf\", \"data\": \"x\n", 1, "printf", "JSON");
}

/// Accesses of the program that wrote the samples; `skipped` bytes before some reads are reads of its child, if these are seen.
fn accesses(skipped: u64) -> Vec<(u32, Op, u64, u32)> {
    let mut accesses = vec![
        (0, Op::Write, 0, 10_000),
        (0, Op::Write, 65536, 4096),
        (0, Op::Read, 100, 50),
        (0, Op::Flush, 0, 0),
        (1, Op::Write, 0, 4),
        (1, Op::Write, 4, 11),
        (0, Op::Read, 150, 50),
        (0, Op::Read, 150 + skipped, 50),
        (0, Op::Read, 200 + skipped, 50),
        (0, Op::Read, 4096, 30),
        (0, Op::Read, 250 + skipped, 69332),
        (0, Op::Trim, 4096, 4096),
    ];
    if skipped == 0 {
        accesses.remove(6);
    }
    accesses
}

#[test]
fn strace() {
    for (name, skipped) in [("strace-y", 50), ("strace-clock", 50), ("strace-relative", 0), ("strace-plain", 0)] {
        let (requests, notes) = noted(Format::Strace, &sample(name));
        let found: Vec<_> = requests.iter().map(|r| (r.volume, r.op, r.offset, r.length)).collect();
        assert_eq!(found, accesses(skipped), "{name}");
        // The pipe, and what the program prints.
        assert!(matches!(notes[..], [Note::LeftOut { count: 3, .. }]), "{name}: {notes:?}");
        assert!(requests.is_sorted_by_key(|request| request.time_ns), "{name}");
    }
    let (requests, _) = noted(Format::Strace, &sample("strace-y"));
    assert_eq!((requests[0].time_ns, requests[0].tenant), (1_795_386_095_630_572_000, 26701));
    assert_eq!(requests[6].tenant, 26770);
    let (requests, _) = noted(Format::Strace, &sample("strace-clock"));
    let of_day_ns = ((22 * 60 + 21) * 60 + 39) * 1_000_000_000 + 527_574_000;
    assert_eq!(requests[0].time_ns, of_day_ns);
}

#[test]
fn strace_of_several_processes() {
    let content = b"[pid  1] 23:59:59 openat(AT_FDCWD, \"a,(b\", O_RDONLY) = 3\n\
        [pid  1] 23:59:59 clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES <unfinished ...>\n\
        [pid  2] 23:59:59 read(3, \"a\\\"), = \"..., 10 <unfinished ...>\n\
        [pid  1] 23:59:59 <... clone resumed>) = 2\n\
        strace: Process 2 attached\n\
        [pid  2] 23:59:59 <... read resumed>) = 10\n\
        [pid  1] 00:00:01 read(3</x>, \"\", 5) = 5\n\
        [pid  2] 00:00:01 close(3) = 0\n\
        [pid  1] 00:00:01 read(3, \"\", 5) = 5\n\
        [pid  1] 00:00:01 write(4, \"\", 5) = -1 EBADF (Bad file descriptor)\n\
        [pid  1] 00:00:02 pread64(9, \"\", 5, 100) = 5\n\
        [pid  1] 00:00:02 read(9, \"\", 5) = 5\n\
        [pid  1] 00:00:02 sendfile(1, 9, [500] => [600], 100) = 100\n\
        [pid  1] 00:00:03 +++ exited with 0 +++\n";
    let (requests, notes) = noted(Format::Strace, content);
    let found: Vec<_> = requests.iter().map(|r| (r.tenant, r.volume, r.offset, r.length)).collect();
    assert_eq!(found, [(2, 0, 0, 10), (1, 0, 10, 5), (1, 1, 100, 5), (1, 1, 0, 5), (1, 1, 500, 100)]);
    assert_eq!(requests[1].time_ns - requests[0].time_ns, 2_000_000_000);
    let what = "reads and writes of descriptors that are not known to be files";
    assert_eq!(notes, [Note::LeftOut { count: 1, what }, Note::Positions { count: 1 }]);
    refused(Format::Strace, b"read 3\n", 1, "read 3", "a system call");
    refused(Format::Strace, b"[pid x] read(3, \"\", 1) = 1\n", 1, "`x`", "a process id");
    refused(Format::Strace, b"12x read(3, \"\", 1) = 1\n", 1, "`12x`", "a time");
}

#[test]
fn alibaba_and_tencent() {
    let requests = recognized(Format::Alibaba, &sample("alibaba"));
    let first = Request {
        time_ns: 1_577_808_144_360_767_000,
        offset: 8_792_731_648,
        length: 16384,
        volume: 419,
        op: Op::Write,
        ..Request::default()
    };
    assert_eq!((requests[0], requests.len()), (first, 4));
    let header = [&b"device_id,opcode,offset,length,timestamp\n"[..], &sample("alibaba")].concat();
    assert_eq!(recognized(Format::Alibaba, &header), requests);

    let rows = b"1538323199,105352008,584,1,1576\n1538323200,12910952,128,0,1063\n";
    let requests = recognized(Format::Tencent, rows);
    let first = Request {
        time_ns: 1_538_323_199_000_000_000,
        offset: 105_352_008 * SECTOR,
        length: 584 * 512,
        volume: 1576,
        op: Op::Write,
        ..Request::default()
    };
    assert_eq!((requests[0], requests[1].op), (first, Op::Read));
    let header = [&b"Timestamp,Offset,Size,IOType,VolumeID\n"[..], rows].concat();
    assert_eq!(recognized(Format::Tencent, &header), requests);
    refused(Format::Alibaba, b"1,X,0,512,5\n", 1, "`X`", "R or W");
    refused(Format::Tencent, b"1538323199,1,1,2,5\n", 1, "`2`", "0 for a read");
    refused(Format::Tencent, b"1538323199,1,1,1\n", 1, "end of the line", "volume");
}

#[test]
fn raw_block_numbers() {
    let blocks = [7_u32, 0, 70_000, 5, 70_001, 3, 2, 1, 9, 9, 9, 9];
    let wide: Vec<u8> = blocks.iter().flat_map(|&block| u64::from(block).to_le_bytes()).collect();
    let narrow: Vec<u8> = blocks.iter().flat_map(|&block| block.to_le_bytes()).collect();
    for (name, content) in [("trace.u64", &wide), ("trace.u32", &narrow)] {
        let opened = from_reader(Cursor::new(content.clone()), Path::new(name), &ReadOptions::default());
        let mut opened = opened.unwrap();
        let mut batch = Vec::new();
        opened.requests.next_batch(&mut batch).unwrap();
        let found: Vec<_> = batch.iter().map(|request| request.offset / 4096).collect();
        assert_eq!(found, blocks.map(u64::from), "{name}");
    }
    // Much else looks like numbers: their width is asked for.
    let asked = read(&wide, &ReadOptions::default());
    assert!(
        matches!(&asked, Err(Error::Ambiguous { candidates, .. }) if *candidates == [Format::RawU32, Format::RawU64]),
        "{asked:?}"
    );
    let asked = read(&narrow, &ReadOptions::default());
    assert!(
        matches!(&asked, Err(Error::Ambiguous { candidates, .. }) if candidates.contains(&Format::RawU32)),
        "{asked:?}"
    );
    let options = ReadOptions { format: Some(Format::RawU64), ..ReadOptions::default() };
    let cut = read(&wide[..30], &options);
    assert!(matches!(&cut, Err(Error::Malformed { place: Place::Byte(24), .. })), "{cut:?}");
    let far = read(&[0xff; 8], &options);
    assert!(matches!(&far, Err(Error::Malformed { place: Place::Byte(0), .. })), "{far:?}");
}

#[test]
fn headers_are_skipped_and_a_cut_last_line_is_reported() {
    let requests = recognized(Format::Spc, b"# by hand\nasu,lba,size,opcode,time\n0,8,512,R,0.5\n0,8,512,W,0.6\n");
    assert_eq!((requests.len(), requests[0].offset), (2, 4096));
    let (requests, notes) = noted(Format::Spc, b"0,8,512,R,0.5\n0,16,512,R,0.6\n0,24,51");
    assert_eq!((requests.len(), notes), (2, vec![Note::CutShort { line: 3 }]));
    let (requests, notes) = noted(Format::Msr, b"Timestamp,a,b\n1,usr,0,Read,0,512,0\n2,usr,0,Re");
    assert_eq!((requests.len(), notes), (1, vec![Note::CutShort { line: 3 }]));
    // A line in the middle is no header, and neither are two.
    refused(Format::Lirs, b"1\nblock\n2\n", 2, "`block`", "a block number");
    refused(Format::Lirs, b"block\nnumber\n2\n", 2, "`number`", "a block number");
    refused(Format::Lirs, b"block\n", 1, "`block`", "a block number");
}

/// A source that cannot be read beyond its content.
struct Cliff(Cursor<Vec<u8>>);

impl std::io::Read for Cliff {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.0.read(buffer)?;
        if bytes == 0 { Err(std::io::Error::other("read beyond the limit")) } else { Ok(bytes) }
    }
}

#[test]
fn a_limit_stops_reading() {
    let lines: String = (0..100_000).map(|block| format!("{block}\n")).collect();
    let words: Vec<u8> = (0..100_000_u64).flat_map(|block| block.to_le_bytes()).collect();
    for (format, content) in [(Format::Lirs, (lines + "garbage\n").into_bytes()), (Format::RawU64, words)] {
        for limit in [1, 4096, 5000, 100_000] {
            let options = ReadOptions { format: Some(format), limit: Some(limit), ..ReadOptions::default() };
            let source = Cliff(Cursor::new(content.clone()));
            let mut requests = from_reader(source, Path::new("cliff"), &options).unwrap().requests;
            let (mut count, mut batch) = (0, Vec::new());
            loop {
                requests.next_batch(&mut batch).unwrap();
                if batch.is_empty() {
                    break;
                }
                count += batch.len() as u64;
            }
            assert_eq!(count, limit);
        }
    }
    // A bad line behind the limit is not looked at.
    let options = ReadOptions { format: Some(Format::Lirs), limit: Some(1), ..ReadOptions::default() };
    assert_eq!(read(b"1\nx\n", &options).unwrap().1.len(), 1);
}
