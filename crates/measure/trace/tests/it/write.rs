//! Every format that can be written is read back as what it can hold; a file is there whole or not at all.

use std::fs;
use std::io::Read;
use std::path::Path;

use nigh_trace::write::{Destination, FORMATS, WriteOptions, Writer, Written};
use nigh_trace::{Error, Field, Format, Op, ReadOptions, Request, Result, open};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const BLOCK: u32 = 4096;

fn to(path: &Path) -> Destination {
    Destination::new(path, true, &[]).unwrap()
}

fn write(path: &Path, format: Option<Format>, requests: &[Request]) -> Result<Written> {
    let mut writer =
        Writer::create(&Destination::new(path, true, &[])?, &WriteOptions { format, block_bytes: BLOCK, taken: None })?;
    for chunk in requests.chunks(1000) {
        writer.push(chunk)?;
    }
    writer.finish()
}

fn read(path: &Path, format: Option<Format>) -> Vec<Request> {
    let mut opened = open(path, &ReadOptions { format, ..ReadOptions::default() }).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.append(&mut batch);
    }
}

/// Requests for whole sectors, at times that rise, with every operation.
fn random_requests(count: usize) -> Vec<Request> {
    let mut random = Random::seed_from_u64(count as u64);
    let mut time_ns = 0;
    let request = |_| {
        time_ns += random.random_range(0..50_000_000);
        let op = Op::ALL[random.random_range(0..4)];
        let place =
            if op == Op::Flush { (0, 0) } else { (random.random_range(0..1 << 30), random.random_range(0..64)) };
        Request {
            time_ns,
            offset: place.0 * 512,
            length: place.1 * 512,
            volume: random.random_range(0..5),
            tenant: random.random(),
            op,
            stream: random.random(),
            latency_ns: random.random_range(0..9_000_000),
            content: random.random_range(0..5) << 40,
        }
    };
    (0..count).map(request).collect()
}

fn touches_blocks(request: &Request) -> bool {
    matches!(request.op, Op::Read | Op::Write) && request.length > 0
}

/// The rest of `requests` as references to single blocks.
fn references(requests: &[Request]) -> impl Iterator<Item = Request> {
    requests.iter().filter(|request| touches_blocks(request)).flat_map(|request| {
        let last = (request.offset + u64::from(request.length) - 1) / u64::from(BLOCK);
        let (time_ns, volume) = (request.time_ns / 1_000_000_000 * 1_000_000_000, request.volume);
        (request.offset / u64::from(BLOCK)..=last).map(move |block| Request {
            time_ns,
            volume,
            offset: block * u64::from(BLOCK),
            length: BLOCK,
            ..Request::default()
        })
    })
}

#[test]
fn requests_survive_in_what_a_format_can_hold() {
    use Field::{Content, Latency, Length, Offset, Stream, Tenant, Time, Volume};
    let folder = tempfile::tempdir().unwrap();
    let requests = random_requests(6_000);
    let skipped = requests.iter().filter(|request| !touches_blocks(request)).count() as u64;
    for format in FORMATS {
        for compression in ["", ".zst", ".gz", ".xz"] {
            if format == Format::Parquet && !compression.is_empty() {
                continue;
            }
            let path = folder.path().join(format!("trace.{format}{compression}"));
            let one_disk: Vec<_> = requests.iter().map(|&request| Request { volume: 3, ..request }).collect();
            let requests = if format == Format::Vscsi { &one_disk } else { &requests };
            let written = write(&path, None, requests).unwrap();
            let (expected, lost): (Vec<Request>, &[Field]) = match format {
                Format::Lirs => {
                    let place = |request: Request| {
                        let offset = (u64::from(request.volume) << 52) + request.offset;
                        Request { time_ns: 0, volume: 0, offset, ..request }
                    };
                    let lost = &[Time, Field::Op, Volume, Offset, Length, Tenant, Stream, Latency, Content];
                    (references(requests).map(place).collect(), lost)
                }
                Format::OracleGeneral => (
                    references(requests).collect(),
                    &[Time, Field::Op, Offset, Length, Tenant, Stream, Latency, Content],
                ),
                Format::Vscsi => {
                    let micros = |&Request { time_ns, offset, length, op, .. }: &Request| Request {
                        time_ns: time_ns / 1000 * 1000,
                        offset,
                        length,
                        op,
                        ..Request::default()
                    };
                    (requests.iter().map(micros).collect(), &[Time, Volume, Tenant, Stream, Latency, Content])
                }
                _ => (requests.clone(), &[]),
            };
            assert!(read(&path, Some(format)) == expected, "{}", path.display());
            assert_eq!(read(&path, None).len(), expected.len(), "{} is recognized", path.display());
            assert_eq!(written.lost, lost, "{format}");
            let in_blocks = matches!(format, Format::Lirs | Format::OracleGeneral);
            assert_eq!(written.skipped, if in_blocks { skipped } else { 0 });
            assert_eq!(written.requests + written.skipped, requests.len() as u64);
            assert_eq!(written.records, expected.len() as u64);
        }
    }
}

#[test]
fn nothing_is_lost_where_nothing_is_to_lose() {
    let folder = tempfile::tempdir().unwrap();
    let requests: Vec<_> =
        (0..10).map(|block| Request { offset: block * 4096, length: BLOCK, ..Request::default() }).collect();
    for format in FORMATS {
        let path = folder.path().join("trace");
        let written = write(&path, Some(format), &requests).unwrap();
        assert_eq!(written, Written { requests: 10, records: 10, skipped: 0, lost: vec![] }, "{format}");
        assert_eq!(read(&path, Some(format)), requests, "{format}");
    }
}

#[test]
fn oracle_general_knows_the_next_reference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.oracleGeneral");
    // Several pieces of the backward pass.
    let mut random = Random::seed_from_u64(9);
    let blocks: Vec<u64> = (0..200_000).map(|_| random.random_range(0..30_000)).collect();
    let requests: Vec<_> =
        blocks.iter().map(|block| Request { offset: block * 4096, length: BLOCK, ..Request::default() }).collect();
    write(&path, None, &requests).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 24 * blocks.len());
    let mut later = std::collections::HashMap::new();
    for (at, record) in bytes.chunks_exact(24).enumerate().rev() {
        assert_eq!(record[4..12], blocks[at].to_le_bytes());
        assert_eq!(record[12..16], BLOCK.to_le_bytes());
        let next: i64 = later.insert(blocks[at], at as i64 + 1).unwrap_or(-1);
        assert_eq!(record[16..], next.to_le_bytes(), "record {at}");
    }
}

#[test]
fn what_cannot_be_held_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let block = Request { length: BLOCK, ..Request::default() };
    let cases = [
        ("a.vscsi", Request { volume: 1, ..block }, "more than one volume"),
        ("a.vscsi", Request { offset: 100, ..block }, "an offset that is not a multiple of 512 bytes"),
        ("a.oracleGeneral", Request { time_ns: u64::MAX, ..block }, "a time of 2^32 seconds or more"),
        ("a.oracleGeneral", Request { volume: 1 << 13, ..block }, "a volume number this high"),
        ("a.oracleGeneral", Request { offset: 1 << 63, ..block }, "a block number this high"),
        ("a.lirs", Request { volume: 1 << 12, ..block }, "a volume number this high"),
        ("a.lirs", Request { offset: 1 << 52, ..block }, "a block number this high"),
    ];
    for (name, request, reason) in cases {
        let path = folder.path().join(name);
        match write(&path, None, &[block, block, request]) {
            Err(Error::Unrepresentable { number: 2, what, .. }) => assert_eq!(what, reason),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}: a file is left");
    }
}

#[test]
fn a_file_is_replaced_when_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("trace.csv"), folder.path().join("link.csv"));
    fs::write(&path, "before").unwrap();
    std::os::unix::fs::symlink("trace.csv", &link).unwrap();
    let mut writer =
        Writer::create(&to(&link), &WriteOptions { format: None, block_bytes: BLOCK, taken: None }).unwrap();
    writer.push(&random_requests(5000)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    writer.finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&path, None).len(), 5000);
    let writer = Writer::create(&to(&path), &WriteOptions { format: None, block_bytes: BLOCK, taken: None }).unwrap();
    drop(writer);
    assert_eq!(read(&path, None).len(), 5000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(write(&folder.path().join("no/such/folder.csv"), None, &[]).is_err());
}

#[test]
fn a_pipe_is_written_through() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let one = [Request { offset: 8192, length: 1, ..Request::default() }];
    write(Path::new(&path), Some(Format::Lirs), &one).unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "2\n");
}

#[test]
fn names_say_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str| {
        let options = WriteOptions { format: None, block_bytes: BLOCK, taken: None };
        Writer::create(&to(&folder.path().join(name)), &options).err()
    };
    for name in ["a.csv", "a.CSV", "a.lirs.zst", "a.oracleGeneral.gz", "a.oracle-general", "a.vscsi.xz", "a.parquet"] {
        assert!(create(name).is_none(), "{name}");
    }
    for name in ["a", "a.zst", "a.txt", ".csv"] {
        assert!(matches!(create(name), Some(Error::OutputFormat { .. })), "{name}");
    }
    assert!(matches!(create("a.msr"), Some(Error::NotWritable { format: Format::Msr })));
    let message = create("a.txt").unwrap().to_string();
    let expected =
        "a.txt: the name does not show the format to write: give one of parquet, csv, lirs, oracle-general, vscsi";
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn parquet_is_not_compressed_once_more() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.parquet.gz", "a.parquet.zst", "a.parquet.xz"] {
        let error = write(&folder.path().join(name), None, &[]).unwrap_err();
        assert!(matches!(error, Error::NotCompressible { format: Format::Parquet, .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn errors_of_the_output_name_it_once_and_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.join("a.csv");
    let error = write(&path, None, &[]).unwrap_err();
    assert_eq!(error.to_string(), path.display().to_string());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(!cause.contains(".nigh-") && cause.contains("os error"), "{cause}");
    let missing = folder.path().join("missing");
    let error = write(&missing.join("a.csv"), None, &[]).unwrap_err().to_string();
    assert!(error.ends_with(&format!("a.csv: there is no folder {}; create it first", missing.display())), "{error}");
}
