//! Files that people have: what is guessed, converted or left out is reported, and nothing is ignored without a note.

use std::io::{Cursor, Write};
use std::path::Path;

use nigh_trace::{Error, Format, Note, Op, ReadOptions, Request, from_reader};

const SECOND_NS: u64 = 1_000_000_000;

type Reading = (Format, Vec<Request>, Vec<Note>);

fn read_named(name: &str, content: &[u8], options: &ReadOptions) -> Result<Reading, Error> {
    let mut opened = from_reader(Cursor::new(content.to_owned()), Path::new(name), options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok((opened.format, all, opened.requests.notes()));
        }
        all.append(&mut batch);
    }
}

fn read(content: &[u8]) -> Result<Reading, Error> {
    read_named("sample", content, &ReadOptions::default())
}

/// The requests of `content`, whose format is detected as `format`, and the notes as text.
fn noted(format: Format, content: &[u8]) -> (Vec<Request>, String) {
    let (found, requests, notes) = read(content).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found, format);
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    (requests, notes.join("\n"))
}

fn described(columns: &str) -> ReadOptions {
    ReadOptions { columns: Some(columns.parse().unwrap()), ..ReadOptions::default() }
}

/// The requests of a file whose columns are guessed, and the line that confirms the guess: with that line, the file is read
/// equally and without notes.
fn guessed(content: &str) -> (Vec<Request>, String) {
    let (requests, notes) = noted(Format::Csv, content.as_bytes());
    let line = notes.split_once("--columns ").unwrap_or_else(|| panic!("{notes}")).1;
    let line = line.split_whitespace().next().unwrap().trim_matches('\'').to_owned();
    let (_, confirmed, left) = read_named("sample", content.as_bytes(), &described(&line)).unwrap();
    assert_eq!((&confirmed, left), (&requests, vec![]), "{line}");
    (requests, notes)
}

fn places(requests: &[Request]) -> Vec<(u64, u32)> {
    requests.iter().map(|request| (request.offset, request.length)).collect()
}

#[test]
fn files_17_the_commonest_header_is_guessed() {
    for separator in [",", ";", "\t", "|"] {
        let content = "timestamp,device,op,lba,sectors,latency_us\n1795863225.50,nvme0,R,64,8,410\n\
                       1795863225.75,nvme0,W,128,16,90.5\n1795863226.00,nvme1,read,64,8,380\n"
            .replace(',', separator);
        let (requests, notes) = guessed(&content);
        assert_eq!(places(&requests), [(64 * 512, 4096), (128 * 512, 8192), (64 * 512, 4096)]);
        assert_eq!(requests.iter().map(|request| request.op).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Read]);
        assert_eq!(requests[1].time_ns - requests[0].time_ns, SECOND_NS / 4);
        assert_eq!(requests[0].time_ns, 1_795_863_225_500_000_000);
        assert_eq!(requests.iter().map(|request| request.latency_ns).collect::<Vec<_>>(), [410_000, 90_500, 380_000]);
        assert!(requests[0].volume == requests[1].volume && requests[0].volume != requests[2].volume);
        assert!(notes.contains("time=timestamp") && notes.contains("latency-unit=us"), "{notes}");
    }
}

#[test]
fn files_17_names_and_values_show_columns_and_units() {
    for (content, expected, op) in [
        // Bytes by their values, names in other cases and forms.
        ("Time(ms),RW,Offset,Size\n0.5,W,4096,512\n1,R,8192,1024\n", [(4096, 512), (8192, 1024)], Op::Write),
        ("startLBA,numSectors,opType\n8,1,Write\n9,2,Read\n", [(4096, 512), (4608, 1024)], Op::Write),
        ("nsecs;cmd;start_sector;nr_bytes\n5;write;8;512\n6;read;9;1024\n", [(4096, 512), (4608, 1024)], Op::Write),
        ("is_write,byte_offset,bytes\n1,4096,512\n0,8192,1024\n", [(4096, 512), (8192, 1024)], Op::Write),
        ("lba\tcount\ttype\n8\t1\tW\n9\t2\tR\n", [(4096, 512), (4608, 1024)], Op::Write),
        (
            "\"ts\",\"I/O type\",\"address\",\"io size\"\n0.5,\"DELETE\",4096,512\n1.5,\"GET\",8192,1024\n",
            [(4096, 512), (8192, 1024)],
            Op::Trim,
        ),
        // Without a header, by values alone.
        ("1795863225.10,sda,W,4096,512\n1795863225.20,sda,R,8192,1024\n", [(4096, 512), (8192, 1024)], Op::Write),
    ] {
        let (requests, notes) = guessed(content);
        assert_eq!(places(&requests), expected, "{content}: {notes}");
        assert_eq!([requests[0].op, requests[1].op], [op, Op::Read], "{content}: {notes}");
    }
    // Keys of objects are blocks, and caches have their own words.
    let (requests, notes) =
        guessed("timestamp,key,op,client\n1,7,get,3\n2,9,SET,3\n3,7,del,4\n4,7,delete,4\n5,9,put,4\n");
    assert_eq!(requests.iter().map(|request| request.offset / 4096).collect::<Vec<_>>(), [7, 9, 7, 7, 9]);
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::Read, Op::Write, Op::Trim, Op::Trim, Op::Write]);
    // The unit of these times cannot be detected: they are left out, and that is reported.
    assert!(requests.iter().all(|request| request.time_ns == 0) && notes.contains("timestamp"), "{notes}");
    assert!(requests[0].tenant == 3 && requests[2].tenant == 4);
}

#[test]
fn files_17_units_of_kib_in_names() {
    for content in [
        "time_ms,op,lba,size_kb\n0.5,W,8,4\n1,R,17,8\n",
        "op,Offset (KiB),Size (kB)\nW,4,4\nR,9,8\n",
        "op,byteOffset,sizeKiB\nW,4096,4\nR,8704,8\n",
        "time_ms,rw,sector,KB\n0.5,W,8,4\n1,R,17,8\n",
    ] {
        let (requests, notes) = guessed(content);
        let second = if content.contains("(KiB)") { 9216 } else { 8704 };
        assert_eq!(places(&requests), [(4096, 4096), (second, 8192)], "{content}: {notes}");
        assert!(notes.contains("length-unit=kib"), "{notes}");
    }
    // Other units are not read, which is noted.
    let (_, notes) = guessed("op,lba,sizeMiB\nW,8,4\nR,16,8\n");
    assert!(notes.contains("not read: sizeMiB"), "{notes}");
}

/// The room of an object with a length.
const ROOM: u64 = 1 << 32;

#[test]
fn files_17_keys_of_objects_are_texts() {
    let (requests, notes) = guessed(
        "timestamp,op,key,client\n1,get,user:1,3\n2,SET,user:2,3\n3,get,user:1,4\n4,del,user:2,4\n5,get,user:10,4\n",
    );
    assert_eq!(places(&requests), [0, 4096, 0, 4096, 8192].map(|offset| (offset, 4096)), "{notes}");
    assert_eq!(requests[1].op, Op::Write);
    assert!(notes.contains("offset=key") && notes.contains("offset-unit=keys"), "{notes}");
    // Objects with sizes do not overlap, whether keys are texts or numbers.
    for [first, second] in [["a", "b"], ["7", "8"], ["7", "b"]] {
        let content = format!("op;object;size\nget;{first};300\nset;{second};9000\nget;{first};200\n");
        let (requests, notes) = guessed(&content);
        assert_eq!(places(&requests), [(0, 300), (ROOM, 9000), (0, 200)], "{notes}");
        assert!(notes.contains("length-unit=bytes"), "{notes}");
    }
    // Names of columns that are no plain words.
    let (requests, notes) = guessed("\"object id\";\"the op\"\na;get\nb;set\na;get\n");
    assert_eq!(places(&requests), [(0, 4096), (4096, 4096), (0, 4096)], "{notes}");
    assert!(notes.contains("offset=0,op=1,offset-unit=keys"), "{notes}");
    // A place of its own is preferred to the name of an object.
    let (requests, notes) = guessed("object,offset,size,op\na,512,512,get\nb,1024,512,get\n");
    assert_eq!(places(&requests), [(512, 512), (1024, 512)], "{notes}");
    // Without names, if they are described.
    let columns = described("op=0,offset=1,offset-unit=keys");
    let (_, requests, _) = read_named("sample", b"get,a\nset,b\nget,a\n", &columns).unwrap();
    assert_eq!(places(&requests), [(0, 4096), (4096, 4096), (0, 4096)]);
    let (_, _, notes) = read_named("a", b"k,n\na,3\n", &described("offset=k,length=n,offset-unit=keys")).unwrap();
    assert!(notes[0].to_string().contains("lengths are interpreted as bytes"), "{notes:?}");
    let error = read_named("sample", b"get,a\nset,\n", &columns).unwrap_err().to_string();
    assert!(error.contains("the key of an object"), "{error}");
    for wrong in ["offset=0,length=1,length-unit=keys", "record=8,offset=0:u64,offset-unit=keys"] {
        let error = wrong.parse::<nigh_trace::Columns>().unwrap_err().to_string();
        assert!(error.contains("-unit=keys`: expected "), "{error}");
    }
}

#[test]
fn files_17_unread_columns_and_missing_ones_are_named() {
    let (_, notes) = guessed("lba,sectors,queue_depth,cpu\n8,1,4,0\n16,1,4,1\n");
    assert!(notes.contains("queue_depth") && notes.contains("cpu"), "{notes}");
    assert!(notes.contains("all requests are read as reads") || notes.contains("all requests are reads"), "{notes}");
    // A unit that cannot be guessed is asked for, with the whole line.
    let error = read(b"time_us,op,position,size\n1,R,7,3\n2,W,100,5\n").unwrap_err().to_string();
    assert!(
        error.contains("--columns time=time_us,op=op,offset=position,length=size,") && error.contains("offset-unit="),
        "{error}"
    );
    // A header does not make other content a trace.
    for content in ["name,size\na,5\nb,7\n", "url,size\na,5\nb,7\n"] {
        assert!(matches!(read(content.as_bytes()), Err(Error::Unrecognized { .. })), "{content}");
    }
    let error = read(b"name,size\na,5\nb,7\n").unwrap_err().to_string();
    assert!(error.contains("--format") && error.contains("--columns"), "{error}");
}

#[test]
fn files_17_the_names_of_known_formats_are_theirs() {
    let msr =
        b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1,usr,0,Read,0,512,7\n2,usr,0,Write,512,512,7\n";
    assert_eq!(noted(Format::Msr, msr).1, "");
    let alibaba = b"device_id,opcode,offset,length,timestamp\n1,R,0,512,5\n1,W,4096,512,6\n";
    assert_eq!(noted(Format::Alibaba, alibaba).1, "");
    // Five numbers are also DiskSim's; the names decide.
    let (requests, _) = guessed("time_ms,disk,lba,sectors,is_write\n0.5,0,8,1,1\n1.5,0,16,1,0\n");
    assert_eq!([requests[0].op, requests[1].op], [Op::Write, Op::Read]);
}

#[test]
fn files_17_operations_of_caches() {
    let (requests, _) = noted(Format::Csv, b"op,offset,length\nget,0,512\nSET,512,512\ndel,0,512\n");
    assert_eq!(requests.iter().map(|request| request.op).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Trim]);
}

#[test]
fn files_17_ambiguous_content_names_the_likelier_format() {
    let blocks = [7_u32, 0, 70_000, 5, 70_001, 3, 2, 1, 9, 9, 9, 9];
    let wide: Vec<u8> = blocks.iter().flat_map(|&block| u64::from(block).to_le_bytes()).collect();
    let narrow: Vec<u8> = blocks.iter().flat_map(|&block| block.to_le_bytes()).collect();
    for (content, likelier) in [(&wide, "--format raw-u64"), (&narrow, "--format raw-u32")] {
        let error = read(content).unwrap_err();
        assert!(matches!(error, Error::Ambiguous { .. }), "{error}");
        assert!(error.to_string().contains(likelier), "{error}");
    }
    let error = read(b"0 0 38572736 24 0\n9 1 17 8 1\n").unwrap_err().to_string();
    assert!(error.contains("--format disksim"), "{error}");
}

#[test]
fn files_16_zstd_with_skippable_frames() {
    let skippable = |magic: u8| [&[magic, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &[1, 2, 3, 4]].concat();
    let text: String = (0..50_000).map(|block| format!("{block}\n")).collect();
    for magic in [0x50, 0x57, 0x5f] {
        let frame = zstd::encode_all(text.as_bytes(), 1).unwrap();
        let content = [skippable(magic), skippable(magic), frame.clone(), skippable(magic), frame].concat();
        assert_eq!(noted(Format::Lirs, &content).0.len(), 100_000);
    }
}

#[test]
fn files_16_other_compressions_are_named() {
    for (magic, program) in [(&b"BZh91AY&SY"[..], "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"PK\x03\x04", "unzip")] {
        let error = read(&[magic, &[0; 64]].concat()).unwrap_err().to_string();
        assert!(error.contains(program), "{error}");
    }
}

#[test]
fn files_16_utf_16() {
    let text: String = "offset,length,op\n".to_owned() + &"4096,512,write\n".repeat(5_000);
    let expected = noted(Format::Csv, text.as_bytes()).0;
    let wide = |unit: fn(u16) -> [u8; 2], mark: bool| {
        let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
        units.flat_map(unit).collect::<Vec<u8>>()
    };
    for unit in [u16::to_le_bytes, u16::to_be_bytes] {
        for mark in [true, false] {
            assert!(noted(Format::Csv, &wide(unit, mark)).0 == expected);
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&wide(unit, true)).unwrap();
        assert!(noted(Format::Csv, &gzip.finish().unwrap()).0 == expected);
    }
    // Block numbers that begin like a byte order mark are none.
    let blocks = [0xfeff_u32, 3, 5, 7].map(u32::to_le_bytes).concat();
    let (_, requests, _) = read_named("x.u32", &blocks, &ReadOptions::default()).unwrap();
    assert_eq!(requests[0].offset, 0xfeff * 4096);
}

#[test]
fn files_16_msr_with_quotes_and_fractions() {
    let plain = b"128166372003061629,usr,0,Read,4096,512,10\n128166372016382155,usr,1,Write,8192,512,20\n";
    let (expected, _) = noted(Format::Msr, plain);
    for content in [
        &b"\"128166372003061629\",\"usr\",\"0\",\"Read\",\"4096\",\"512\",\"10\"\n\"128166372016382155\",\"usr\",\"1\",\"Write\",\"8192\",\"512\",\"20\"\n"[..],
        b"128166372003061629,\"usr\",0,\"Read\",4096.0,512.0,10\n128166372016382155,\"usr\",1,\"Write\",8192.0,512.00,20\n",
        b"\"Timestamp\",\"Hostname\",\"DiskNumber\",\"Type\",\"Offset\",\"Size\",\"ResponseTime\"\n\
          128166372003061629,\"usr\",0,\"Read\",4096,512,10\n128166372016382155,\"usr\",1,\"Write\",8192,512,20\n",
        b"128166372003061629, \"usr\", 0,\" Read\", 4096,\" 512\",10\n128166372016382155,usr ,1,\"Write \",8192,512,20\n",
        // With an index in front.
        b",Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
          0,128166372003061629,usr,0,Read,4096,512,10\n1,128166372016382155,usr,1,Write,8192,512,20\n",
        b"0,128166372003061629,usr,0,Read,4096,512,10\n1,128166372016382155,usr,1,Write,8192,512,20\n",
    ] {
        assert_eq!(noted(Format::Msr, content).0, expected);
    }
    assert!(read(b"1,usr,0,Read,4096.5,512,10\n2,usr,0,Read,4096,512,10\n").is_err());
}

#[test]
fn files_16_whole_numbers_with_points_and_exponents() {
    let (requests, _) = noted(Format::Csv, b"offset,length\n4096.0,512.000\n1e+05,1.5e3\n0x1000,512\n\"8192.\",512\n");
    assert_eq!(places(&requests), [(4096, 512), (100_000, 1500), (4096, 512), (8192, 512)]);
    for wrong in ["4096.5", "1.23457e+09", "1e30", ".", "4096.0.0", "-1", "-0.0.", "1e", "nan"] {
        let content = format!("offset,length\n0,512\n{wrong},512\n0,512\n");
        let error = read(content.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains(wrong), "{error}");
    }
}

#[test]
fn files_16_csv_with_an_index_and_with_the_columns_of_recordings() {
    let plain = b"time_ns,op,offset,length\n0,read,0,4096\n10,write,4096,4096\n";
    let (expected, _) = noted(Format::Csv, plain);
    for content in [
        &b",time_ns,op,offset,length\n0,0,read,0,4096\n1,10,write,4096,4096\n"[..],
        b"Unnamed: 0,time_ns,op,offset,length\n0,0,read,0,4096\n1,10,write,4096,4096\n",
        b"\"\",\"time_ns\",\"op\",\"offset\",\"length\"\n\"1\",0,\"read\",0,4096\n\"2\",10,\"write\",4096,4096\n",
        b"index,time_ns,op,offset,length\n0,0,read,0,4096\n1,10,write,4096,4096\n",
        // R's write.table has no name for the names of rows.
        b"\"time_ns\" \"op\" \"offset\" \"length\"\n\"1\" 0 \"read\" 0 4096\n\"2\" 10 \"write\" 4096 4096\n",
    ] {
        let (requests, notes) = noted(Format::Csv, content);
        assert_eq!((&requests, &notes[..]), (&expected, ""), "{}", String::from_utf8_lossy(content));
    }
    let recorded = b"time_ns,op,volume,offset,length,tenant,stream,latency_ns,content,program,path,tid,asked,result,ra0,pc5,pc8,pc16,depth,stack,device_bytes\n\
        0,read,0,0,4096,0,0,0,0,cat,\"/tmp/a, b\",7,4096,4096,1,2,3,4,0,\"libc+0x1;cat+0x2\",0\n\
        5,map,0,0,0,0,0,0,0,cat,/tmp/a,7,4096,0,1,2,3,4,0,,0\n\
        7,fault,0,8192,4096,0,0,0,0,cat,/tmp/a,7,4096,4096,1,2,3,4,0,,0\n\
        10,write,0,4096,4096,0,0,0,0,cat,/tmp/a,7,4096,4096,1,2,3,4,0,,0\n";
    let (requests, notes) = noted(Format::Csv, recorded);
    assert_eq!(places(&requests), [(0, 4096), (8192, 4096), (4096, 4096)]);
    assert_eq!(requests[1].op, Op::Read);
    assert_eq!(notes, "1 calls that transfer nothing (mappings, advice to the kernel) were left out");
}

#[test]
fn files_16_notes_within_lines_of_strace() {
    let plain = "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
                 1795863225.2 read(3</data/a>, \"..\", 4096) = 4096\n1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\n";
    let expected = noted(Format::Strace, plain.as_bytes()).0;
    for content in [
        // The note ends the line, and the next line continues the call.
        "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
         1795863225.2 read(3</data/a>, strace: Process 41 attached\n\"..\", 4096) = 4096\n\
         1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\n",
        "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
         1795863225.2 read(3</data/a>, strace: Process 41 attached\nstrace: Process 42 attached\n <unfinished ...>\n\
         [pid 41] 1795863225.3 getpid() = 41\n\
         1795863225.2 <... read resumed>\"..\", 4096) = 4096\n1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\n",
        "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
         strace: Process 41 attached\n\
         1795863225.2 read(3</data/a>, \"..\"/usr/bin/strace: Process 41 attached\n, 4096) = 4096\n\
         1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\nstrace: Process 41 detached\n",
    ] {
        let (requests, notes) = noted(Format::Strace, content.as_bytes());
        assert_eq!((&requests, &notes[..]), (&expected, ""), "{content}");
    }
    // The first process has a number only while there is another one.
    let numbered = "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
                    1795863225.2 read(3</data/a>, strace: Process 41 attached\n <unfinished ...>\n\
                    [pid 41] 1795863225.3 getpid() = 41\n\
                    [pid 40] 1795863225.2 <... read resumed>\"..\", 4096) = 4096\n\
                    [pid 41] 1795863225.3 +++ exited with 0 +++\n\
                    1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\n";
    assert_eq!(noted(Format::Strace, numbered.as_bytes()), (expected, String::new()));
    // A name or data that contains such words is no note.
    let data = "1795863225.1 openat(AT_FDCWD</data>, \"strace: Process 1 attached\", O_RDONLY) = 3</data/strace: Process 1 attached>\n\
                1795863225.2 read(3</data/strace: Process 1 attached>, \"strace: Process 1 attached\"..., 4096) = 4096\n";
    assert_eq!(noted(Format::Strace, data.as_bytes()).0.len(), 1);
}

#[test]
fn files_16_strace_lines_that_never_end_are_reported() {
    let content = "1795863225.1 openat(AT_FDCWD</data>, \"a\", O_RDONLY) = 3</data/a>\n\
                   1795863225.2 read(3</data/a>, strace: Process 41 attached\n\
                   1795863225.5 read(3</data/a>, \"..\", 4096) = 4096\n";
    let (requests, notes) = noted(Format::Strace, content.as_bytes());
    assert_eq!(requests.len(), 1);
    assert!(notes.contains("1 calls"), "{notes}");
}

#[test]
fn files_16_biosnoop_without_a_disk() {
    let content = b"TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
        0.000000    kworker/1:1H   77      vda       W 80      4096      0.50\n\
        0.000100    scsi_eh_0      77                W 0       0         0.08\n\
        0.000200    dm thread      78                R 96      512       0.08\n\
        0.000300    kworker/1:1H   77      vda       R 80      4096      0.50\n";
    let (requests, _) = noted(Format::Biosnoop, content);
    assert_eq!(places(&requests), [(40960, 4096), (96 * 512, 512), (40960, 4096)]);
    let volumes: Vec<_> = requests.iter().map(|request| request.volume).collect();
    assert!(volumes[0] == volumes[2] && volumes[0] != volumes[1], "{volumes:?}");
    assert_eq!(requests[1].tenant, 78);
}

#[test]
fn files_18_blktrace() {
    for big_endian in [false, true] {
        let content = [
            event(
                big_endian,
                Event { act: 1, category: 2 | 16, time_ns: 829, sector: 223_490, bytes: 4096, ..Event::default() },
            ),
            event(big_endian, Event { act: 3, category: 2, pdu: b"note of blktrace", ..Event::default() }),
            event(big_endian, Event { act: 0, category: 1 << 10, pdu: b"cat\0", ..Event::default() }),
            event(
                big_endian,
                Event { act: 1 | 1 << 8, category: 1, time_ns: 900, sector: 16, bytes: 512, pid: 5, pdu: &[0; 8] },
            ),
            event(
                big_endian,
                Event { act: 1, category: 2 | 1 << 13, time_ns: 910, sector: 1024, bytes: 1 << 20, ..Event::default() },
            ),
            event(big_endian, Event { act: 1, category: 2 | 4, time_ns: 920, ..Event::default() }),
            event(
                big_endian,
                Event { act: 7, category: 2 | 64, time_ns: 930, sector: 223_490, bytes: 8192, ..Event::default() },
            ),
            event(
                big_endian,
                Event { act: 8, category: 2 | 128, time_ns: 999, sector: 223_490, bytes: 8192, ..Event::default() },
            ),
        ]
        .concat();
        let (found, requests, _) = read_named("sda.blktrace.0", &content, &ReadOptions::default()).unwrap();
        assert_eq!(found.name(), "blktrace");
        let first = Request {
            time_ns: 829,
            offset: 223_490 * 512,
            length: 4096,
            volume: 8 << 20 | 16,
            tenant: 697,
            op: Op::Write,
            ..Request::default()
        };
        assert_eq!(requests[0], first);
        assert_eq!(requests[1], Request { time_ns: 900, offset: 8192, length: 512, tenant: 5, op: Op::Read, ..first });
        let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
        assert_eq!(ops, [Op::Write, Op::Read, Op::Trim, Op::Flush]);
        for (action, time_ns) in [("issue", 930), ("complete", 999)] {
            let options = ReadOptions { action: Some(action.parse().unwrap()), ..ReadOptions::default() };
            let (_, requests, _) = read_named("x", &content, &options).unwrap();
            assert_eq!((requests.len(), requests[0].time_ns, requests[0].length), (1, time_ns, 8192));
        }
        // The end of a recording that was stopped within an event.
        let (_, cut, notes) = read_named("x", &content[..content.len() - 5], &ReadOptions::default()).unwrap();
        assert_eq!((cut.len(), notes.len()), (4, 2), "{notes:?}");
    }
    let later = read(&[0x09, 0x74, 0x61, 0x65].repeat(30)).unwrap_err().to_string();
    assert!(later.contains("version 9"), "{later}");
}

#[derive(Clone, Copy)]
struct Event {
    act: u32,
    category: u32,
    time_ns: u64,
    sector: u64,
    bytes: u32,
    pid: u32,
    pdu: &'static [u8],
}

impl Default for Event {
    fn default() -> Event {
        Event { act: 1, category: 1, time_ns: 0, sector: 0, bytes: 0, pid: 697, pdu: b"" }
    }
}

/// An event in the layout of the kernel's `struct blk_io_trace`, version 7.
fn event(big_endian: bool, event: Event) -> Vec<u8> {
    let four = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let eight = |value: u64| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let two = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let Event { act, category, time_ns, sector, bytes, pid, pdu } = event;
    let mut record = [four(0x6561_7407), four(0)].concat();
    record.extend([eight(time_ns), eight(sector)].concat());
    record.extend([four(bytes), four(category << 16 | act), four(pid), four(8 << 20 | 16), four(0)].concat());
    record.extend([two(0), two(pdu.len() as u16)].concat());
    record.extend(pdu);
    record
}

#[test]
fn files_18_times_fit_63_bits() {
    let (requests, _) =
        noted(Format::Msr, b"128166372003061629,usr,0,Read,4096,512,10\n128166372016382155,usr,0,Write,8192,512,20\n");
    assert_eq!([requests[0].time_ns, requests[1].time_ns], [0, 1_332_052_600]);
    let columns = "time=0,offset=1,length=2,time-unit=100ns";
    let content = b"128166372003061629,4096,512\n128166372016382155,8192,512\n";
    let (_, requests, _) = read_named("x", content, &described(columns)).unwrap();
    assert_eq!([requests[0].time_ns, requests[1].time_ns], [0, 1_332_052_600]);
}

#[test]
fn files_11_lost_events_are_reported() {
    let printf =
        |time: u32| format!("{{\"type\": \"printf\", \"data\": \"nsecs={time} rwbs=R sector=1024 nr_sector=8\\n\"}}\n");
    let line = |time: u32| format!("nsecs={time} rwbs=R sector=1024 nr_sector=8\n");
    let json = |lost: &str| printf(1) + lost + &printf(2);
    for content in [
        json("{\"type\": \"lost_events\", \"data\": {\"events\": 5}}\n"),
        json("{\"data\": {\"events\": 5}, \"type\":\"lost_events\"}\n"),
        json(
            "{\"type\": \"lost_events\", \"data\": {\"events\": 2}}\n{\"type\": \"lost_events\", \"data\": {\"events\":3}}\n",
        ),
        line(1) + "Lost 5 events\n" + &line(2),
        "Attaching 1 probe...\nLost 5 events\n".to_owned() + &line(1) + &line(2),
        "Attached 2 probes\nstdin:1:1-9: WARNING: x\nLost 1 event\n".to_owned()
            + &line(1)
            + "WARNING: Lost 4 events\n"
            + &line(2),
    ] {
        let (requests, notes) = noted(Format::Bpftrace, content.as_bytes());
        assert_eq!(requests.len(), 2, "{content}");
        assert!(notes.contains("lost 5 events"), "{content}: {notes}");
    }
    let ftrace = |lost: &str| {
        let event = |time: &str| format!("  fio-99 [000] ..... {time}: block_bio_queue: 254,0 R 2048 + 8 [fio]\n");
        event("5.000001") + lost + &event("5.000002")
    };
    for lost in [
        "CPU:2 [LOST 5 EVENTS]\n",
        "CPU 2: [LOST 5 EVENTS]\n",
        "CPU:2 [5 EVENTS DROPPED]\n",
        "perf 0 [002] 5.000001: PERF_RECORD_LOST lost 5\n",
        "Warning: 5 events lost\n",
        // Events of the ring that were overwritten.
        "# entries-in-buffer/entries-written: 200/205   #P:2\n",
    ] {
        let (requests, notes) = noted(Format::Perf, ftrace(lost).as_bytes());
        assert_eq!(requests.len(), 2, "{lost}");
        assert!(notes.contains("lost 5 events"), "{lost}: {notes}");
    }
    for lost in [
        "CPU:2 [LOST EVENTS]\n",
        "Processed 500 events and lost 20 chunks!\n\nCheck IO/CPU overload!\n",
        "Processed 500 samples and lost 3.20%!\n",
    ] {
        let (_, notes) = noted(Format::Perf, ftrace(lost).as_bytes());
        assert!(notes.contains("lost events"), "{lost}: {notes}");
    }
    for none in ["# entries-in-buffer/entries-written: 2/2   #P:2\n", "Processed 2 events and lost 0 chunks!\n"] {
        assert_eq!(noted(Format::Perf, ftrace(none).as_bytes()).1, "", "{none}");
    }
    let biosnoop =
        b"TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.1 a 7 vda W 80 4096 0.50\nPossibly lost 5 samples\n\
        lost 2 events on CPU #3\n0.2 a 7 vda W 80 4096 0.50\n";
    let (requests, notes) = noted(Format::Biosnoop, biosnoop);
    assert!(requests.len() == 2 && notes.contains("lost 7 events"), "{notes}");
    let blkparse = b"8,0 3 1 0.5 698 Q RA 16 + 256 [cat]\n8,0 3 2 0.6 698 Q RA 16 + 256 [cat]\n\
        Events (8,0): 43 entries\nSkips: 2 forward (5 -  11.6%)\n";
    let (requests, notes) = noted(Format::Blkparse, blkparse);
    assert!(requests.len() == 2 && notes.contains("lost 5 events"), "{notes}");
}

#[test]
fn files_11_latencies_are_read() {
    let (requests, _) = noted(Format::Msr, b"1,usr,0,Read,0,512,41286\n2,usr,0,Write,512,512,7\n");
    assert_eq!([requests[0].latency_ns, requests[1].latency_ns], [4_128_600, 700]);
    for content in [
        "0.1 a 7 vda W 80 4096 0.50\n0.2 a 7 vda W 80 4096 1.25\n",
        "0.1 a 7 vda W 80 4096 0.02 0.50\n0.2 a 7 vda W 80 4096 0.02 1.25\n",
    ] {
        let (requests, _) = noted(Format::Biosnoop, content.as_bytes());
        assert_eq!([requests[0].latency_ns, requests[1].latency_ns], [500_000, 1_250_000], "{content}");
    }
    let strace = "1795863225.1 openat(AT_FDCWD, \"a\", O_RDONLY) = 3</data/a> <0.000011>\n\
                  1795863225.2 read(3</data/a>, \"..\", 4096) = 4096 <0.001500>\n";
    assert_eq!(noted(Format::Strace, strace.as_bytes()).0[0].latency_ns, 1_500_000);
    let record = |sector: u64, response_us: u64| {
        let head = [&0x28_u16.to_le_bytes()[..], &[0, 2, 9, 0, 0, 0], &512_u32.to_le_bytes(), &[1, 0, 0, 0]].concat();
        [head, sector.to_le_bytes().to_vec(), 7_u64.to_le_bytes().to_vec(), response_us.to_le_bytes().to_vec()].concat()
    };
    let (requests, _) = noted(Format::Vscsi, &[record(8, 3), record(16, 0)].concat());
    assert_eq!([requests[0].latency_ns, requests[1].latency_ns], [3000, 0]);
    // A latency in another unit is not one in nanoseconds.
    let content = b"offset,length,resp_us\n0,512,7\n512,512,8\n";
    let options = described("offset=offset,length=length,latency=resp_us");
    let (_, requests, _) = read_named("x", content, &options).unwrap();
    assert_eq!(requests[1].latency_ns, 8000);
}

#[test]
fn files_11_times_that_go_back_are_reported() {
    let content =
        b"time_ns,offset,length\n5000,0,512\n9000,512,512\n7000,0,512\n8000,0,512\n1000,0,512\n2000,512,512\n";
    let (requests, notes) = noted(Format::Csv, content);
    // They are not changed.
    assert_eq!(requests[2].time_ns, 7000);
    assert!(notes.contains("times go back 2 times") && notes.contains("7 µs"), "{notes}");
    assert_eq!(noted(Format::Csv, b"time_ns,offset,length\n5,0,512\n5,512,512\n7,0,512\n").1, "");
}

fn skipping(format: Option<Format>) -> ReadOptions {
    ReadOptions { format, skip_bad: true, ..ReadOptions::default() }
}

#[test]
fn files_16_bad_lines_are_counted_and_named() {
    let garbage = "x".repeat(5 << 20);
    let content = format!("1\n2\nx\n3\n{garbage}\n4\n\u{1}\u{2}\n5,6\n7\n");
    let (_, requests, notes) = read_named("x.lirs", content.as_bytes(), &skipping(Some(Format::Lirs))).unwrap();
    assert_eq!(requests.iter().map(|request| request.offset / 4096).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
    let note = notes[0].to_string();
    assert!(note.starts_with("4 lines") && note.contains("line 3: found `x`") && note.contains("line 5"), "{note}");
    // Without the setting, the message names it.
    let error = read_named("x.lirs", b"1\n2\nx\n3\n", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("--skip-bad"), "{error}");
    // Every text format, in the middle and at the beginning, and whatever its state.
    for (format, line) in [
        (Format::Msr, "1,usr,0,Read,0,512,7\n"),
        (Format::Spc, "0,8,512,R,0.5\n"),
        (Format::Perf, "fio 9 [000] 5.000001: block_bio_queue: 254,0 R 2048 + 8 [fio]\n"),
        (Format::Biosnoop, "0.1 a 7 vda W 80 4096 0.50\n"),
        (Format::Bpftrace, "nsecs=1 rwbs=R sector=1024 nr_sector=8\n"),
        (Format::Csv, "4096,512\n"),
    ] {
        let header = if format == Format::Csv { "offset,length\n" } else { "" };
        let bad = match format {
            Format::Perf => "fio 9 [000] 5.000001: block_bio_queue: 254,0 R 20x48 + 8 [fio]\n",
            _ => "12,garbage;=\n",
        };
        let content = [header, line, bad, line, bad, line].concat();
        let (_, requests, notes) = read_named("x", content.as_bytes(), &skipping(Some(format))).unwrap();
        assert_eq!(requests.len(), 3, "{format}");
        assert!(notes.iter().any(|note| note.to_string().starts_with("2 lines")), "{format}: {notes:?}");
    }
    // A file of bad lines is not an empty one.
    let error = read_named("x", b"x1\ny2\n", &skipping(Some(Format::Lirs))).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

#[test]
fn files_16_bad_records_are_counted_and_named() {
    let wide: Vec<u8> = [1_u64, u64::MAX, 3].iter().flat_map(|block| block.to_le_bytes()).chain([9; 5]).collect();
    let (_, requests, notes) = read_named("x", &wide, &skipping(Some(Format::RawU64))).unwrap();
    assert_eq!(requests.len(), 2);
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("byte 8: found block 18446744073709551615"), "{notes:?}");
    assert!(notes[1].contains("without 5 bytes"), "{notes:?}");
    let error = read_named("x.parquet", b"PAR1", &skipping(Some(Format::Parquet))).unwrap_err();
    assert!(error.to_string().contains("skip-bad"), "{error}");
}

#[test]
fn files_18_blktrace_of_several_processors() {
    let folder = tempfile::tempdir().unwrap();
    let write = |processor: usize, events: &[(u64, u64)]| {
        let content: Vec<u8> = events
            .iter()
            .flat_map(|(time_ns, sector)| {
                event(
                    false,
                    Event { category: 1 | 16, time_ns: *time_ns, sector: *sector, bytes: 512, ..Event::default() },
                )
            })
            .collect();
        std::fs::write(folder.path().join(format!("sda.blktrace.{processor}")), content).unwrap();
    };
    write(0, &[(10, 0), (40, 3)]);
    write(1, &[]);
    write(2, &[(20, 1), (30, 2), (50, 4)]);
    write(10, &[(60, 5)]);
    std::fs::write(folder.path().join("sdb.blktrace.1"), b"other").unwrap();
    let all = |name: &str| {
        let mut opened = nigh_trace::open(&folder.path().join(name), &ReadOptions::default()).unwrap();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while opened.requests.next_batch(&mut batch).is_ok() && !batch.is_empty() {
            all.extend(batch.iter().map(|request| request.offset / 512));
        }
        (all, opened.requests.notes().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    let (sectors, notes) = all("sda.blktrace.0");
    assert_eq!(sectors, [0, 1, 2, 3, 4, 5]);
    assert!(notes.contains("3 files"), "{notes}");
    let (sectors, notes) = all("sda.blktrace.2");
    assert_eq!(sectors, [1, 2, 4]);
    assert!(notes.contains(".blktrace.0"), "{notes}");
}

#[test]
fn files_18_blktrace_8_and_damaged_events() {
    // The later version has a wider action and more bytes.
    let later = |categories: u64, sector: u64| {
        let mut record =
            [&0x6561_7408_u32.to_le_bytes()[..], &[0; 4], &7_u64.to_le_bytes(), &sector.to_le_bytes()].concat();
        record
            .extend([&512_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), &(categories << 16 | 1).to_le_bytes()].concat());
        record.extend(
            [&(8_u32 << 20).to_le_bytes()[..], &[0; 4], &[0; 2], &3_u16.to_le_bytes(), &[0; 12], &[1; 3]].concat(),
        );
        record
    };
    // A write, the reset of a zone, which accesses no data, and an append to a zone.
    let content = [later(2 | 16, 8), later(2 | 16 | 1 << 17, 16), later(2 | 16 | 1 << 16, 24)].concat();
    let (format, requests, _) = read(&content).unwrap();
    assert_eq!((format, places(&requests)), (Format::Blktrace, vec![(4096, 512), (12288, 512)]));
    let queued = |sector| event(false, Event { category: 1, sector, bytes: 512, ..Event::default() });
    let damaged = [queued(1), b"garbage".to_vec(), queued(2)].concat();
    let error = read(&damaged).unwrap_err().to_string();
    assert!(error.contains("byte 48") && error.contains("--skip-bad"), "{error}");
    let (_, requests, notes) = read_named("x", &damaged, &skipping(None)).unwrap();
    assert_eq!((requests.len(), notes.len()), (2, 1), "{notes:?}");
    // Numbers that are missing in a sequence are lost events.
    let numbered = |sequence: u8| {
        let mut event = queued(u64::from(sequence));
        event[4] = sequence;
        event
    };
    let (requests, notes) = noted(Format::Blktrace, &[numbered(1), numbered(2), numbered(6)].concat());
    assert!(requests.len() == 3 && notes.contains("lost 3 events"), "{notes}");
}

/// A Parquet file of three rows with names that are not nigh's, compressed by `codec`.
fn foreign_parquet(codec: parquet::basic::Compression) -> tempfile::NamedTempFile {
    use parquet::data_type::{ByteArrayType, DataType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    fn column<T: DataType>(group: &mut SerializedRowGroupWriter<std::fs::File>, values: &[T::T]) {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
    }
    let schema = "message m { required int64 at (TIMESTAMP(MICROS, true)); required binary disk (STRING);
                  required binary kind (STRING); required int64 lba; required int64 sectors; required int64 lat_us; }";
    let file = tempfile::NamedTempFile::new().unwrap();
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = std::sync::Arc::new(WriterProperties::builder().set_compression(codec).build());
    let mut writer = SerializedFileWriter::new(file.reopen().unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    column::<Int64Type>(&mut group, &[1_000_000, 1_000_001, 1_000_002]);
    column::<ByteArrayType>(&mut group, &["sda".into(), "sdb".into(), "sda".into()]);
    column::<ByteArrayType>(&mut group, &["R".into(), "put".into(), "fill".into()]);
    column::<Int64Type>(&mut group, &[8, 16, 24]);
    column::<Int64Type>(&mut group, &[8, 8, 1]);
    column::<Int64Type>(&mut group, &[7, 8, 9]);
    group.close().unwrap();
    writer.close().unwrap();
    file
}

/// A Parquet file of two rows: times in seconds, offsets and latencies, all of them floating-point numbers.
fn floating_parquet(offsets: &[f64], latencies: &[f64]) -> tempfile::NamedTempFile {
    use parquet::data_type::DoubleType;
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message m { required double at; required double offset; required double lat_us; }";
    let file = tempfile::NamedTempFile::new().unwrap();
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(file.reopen().unwrap(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for values in [&[1_795_863_225.25, 1_795_863_225.5][..], offsets, latencies] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    file
}

#[test]
fn units_12_numbers_of_blocks_in_parquet_are_noted() {
    let noted = |offsets: &[f64]| {
        let file = floating_parquet(offsets, &[0.5, 7.0]);
        let mut opened = nigh_trace::open(file.path(), &ReadOptions::default()).unwrap();
        opened.requests.next_batch(&mut Vec::new()).unwrap();
        opened.requests.notes().iter().map(ToString::to_string).collect::<String>()
    };
    let doubtful = noted(&[1.0, 37.0]);
    assert!(doubtful.contains("offsets are interpreted as bytes") && doubtful.contains("offset-unit"), "{doubtful}");
    assert_eq!(noted(&[4096.0, 512.0]), "");
}

#[test]
fn files_16_parquet_with_described_columns_and_any_codec() {
    use parquet::basic::{BrotliLevel, Compression, GzipLevel};
    let columns = "time=at,volume=DISK,op=kind,offset=lba,length=4,latency=lat_us,write=fill";
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let file = foreign_parquet(codec);
        let opened = nigh_trace::open(file.path(), &described(columns));
        let mut opened = opened.unwrap_or_else(|error| panic!("{codec}: {error}"));
        let mut requests = Vec::new();
        opened.requests.next_batch(&mut requests).unwrap_or_else(|error| panic!("{codec}: {error}"));
        assert_eq!(places(&requests), [(4096, 4096), (8192, 4096), (12288, 512)]);
        assert_eq!(requests.iter().map(|request| request.op).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Write]);
        assert_eq!(requests[1].time_ns - requests[0].time_ns, 1000);
        assert_eq!(requests[2].latency_ns, 9000);
        assert!(requests[0].volume == requests[2].volume && requests[0].volume != requests[1].volume);
    }
    // pandas makes floating-point numbers of integers as soon as a value is missing.
    let file = floating_parquet(&[4096.0, 8192.0], &[0.5, 7.0]);
    let mut opened = nigh_trace::open(file.path(), &described("time=at,offset=offset,latency=lat_us")).unwrap();
    let mut requests = Vec::new();
    opened.requests.next_batch(&mut requests).unwrap();
    assert_eq!([requests[0].offset, requests[1].offset], [4096, 8192]);
    assert_eq!([requests[0].latency_ns, requests[1].latency_ns], [500, 7000]);
    assert_eq!(requests[1].time_ns - requests[0].time_ns, SECOND_NS / 4);
    let mut opened = nigh_trace::open(file.path(), &ReadOptions::default()).unwrap();
    opened.requests.next_batch(&mut requests).unwrap();
    assert_eq!(requests[1].offset, 8192);
    for wrong in [4096.5, -1.0, 1e300, f64::NAN] {
        let file = floating_parquet(&[0.0, wrong], &[0.5, 7.0]);
        let mut opened = nigh_trace::open(file.path(), &ReadOptions::default()).unwrap();
        let error = opened.requests.next_batch(&mut requests).unwrap_err().to_string();
        assert!(error.contains("row 1: column `offset`"), "{error}");
    }
    let file = foreign_parquet(Compression::UNCOMPRESSED);
    let wrong = nigh_trace::open(file.path(), &described("offset=lba,latency=kind,latency-unit=us")).err().unwrap();
    assert!(wrong.to_string().contains("column `kind`"), "the name in the file: {wrong}");
    let error = |columns: &str| nigh_trace::open(file.path(), &described(columns)).err().unwrap().to_string();
    assert!(
        error("offset=where").contains("no column `where`; the columns are at, disk,"),
        "{}",
        error("offset=where")
    );
    assert!(error("offset=9").contains("no column `9`"));
    let plain = nigh_trace::open(file.path(), &ReadOptions::default()).err().unwrap().to_string();
    assert!(
        plain.contains("found `fill`") && plain.contains("guessed: --columns "),
        "the guess has no such word: {plain}"
    );
    assert!(plain.contains("offset=lba,"), "{plain}");
    // The flag is not ignored by formats that it does not describe.
    let options = ReadOptions { format: Some(Format::Lirs), ..described("offset=0") };
    let error = read_named("x", b"1\n2\n", &options).unwrap_err().to_string();
    assert!(error.contains("columns is for CSV"), "{error}");
}
