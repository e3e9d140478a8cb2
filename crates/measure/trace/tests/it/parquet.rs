//! The canonical form: what is written is read back, foreign files are taken or refused with a reason, damaged files
//! are errors.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use nigh_trace::format::parquet::{ParquetReader, ParquetWriter};
use nigh_trace::{Error, Op, ReadOptions, Request, Requests, Result};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

fn random_requests(count: usize, seed: u64) -> Vec<Request> {
    let mut random = Random::seed_from_u64(seed);
    let mut time_ns = 0;
    let mut requests: Vec<Request> = (0..count)
        .map(|_| {
            time_ns += random.random_range(0..1_000_000);
            Request {
                time_ns,
                offset: random.random_range(0..1 << 40),
                length: random.random_range(0..1 << 20),
                volume: random.random_range(0..4),
                tenant: random.random_range(0..100),
                op: Op::ALL[random.random_range(0..4)],
                stream: random.random(),
                latency_ns: random.random_range(0..5_000_000),
                content: random.random_range(0..3) * 0x1234_5678_9abc,
            }
        })
        .collect();
    let most = Request {
        time_ns: u64::MAX,
        offset: u64::MAX - u64::from(u32::MAX),
        length: u32::MAX,
        volume: u32::MAX,
        tenant: u32::MAX,
        op: Op::Flush,
        stream: u64::MAX,
        latency_ns: u64::MAX,
        content: u64::MAX,
    };
    requests.extend([most, Request::default(), Request { offset: 1 << 63, ..most }]);
    requests
}

fn write(path: &Path, requests: &[Request]) {
    let mut writer = ParquetWriter::new(File::create(path).unwrap(), 512, None).unwrap();
    requests.chunks(10_000).for_each(|chunk| writer.push(chunk).unwrap());
    writer.finish().unwrap();
}

fn read(path: &Path) -> Result<Vec<Request>> {
    let mut reader = ParquetReader::open(path, None, None)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok(all);
        }
        all.append(&mut batch);
        let progress = reader.progress().unwrap();
        assert!((progress - all.len() as f64 / reader.rows() as f64).abs() < 1e-9);
    }
}

#[test]
fn requests_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    for count in [0, 1, 4096, 5000, (1 << 20) + 10] {
        let requests = random_requests(count, count as u64);
        write(&path, &requests);
        assert!(read(&path).unwrap() == requests, "{count} requests");
    }
    let reader = ParquetReader::open(&path, None, None).unwrap();
    assert_eq!((reader.rows(), reader.block_bytes()), ((1 << 20) + 13, 512));
    let opened = nigh_trace::open(&path, &nigh_trace::ReadOptions::default()).unwrap();
    assert_eq!((opened.format, opened.block_bytes), (nigh_trace::Format::Parquet, 512));
}

#[test]
fn the_file_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    write(&path, &random_requests((1 << 20) + 10, 1));
    let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let metadata = file.metadata();
    let groups: Vec<i64> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [1 << 20, 13]);
    let pairs = metadata.file_metadata().key_value_metadata().unwrap();
    let pairs: Vec<_> = pairs.iter().map(|pair| (&pair.key[..], pair.value.as_deref().unwrap())).collect();
    assert_eq!(pairs, [("nigh.schema", "1"), ("nigh.block_bytes", "512")]);
}

#[test]
fn a_file_without_rows_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    write(&path, &[]);
    assert!(matches!(read(&path), Err(Error::Empty { .. })));
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

fn column<T: DataType>(group: &mut Group, values: &[T::T], levels: Option<&[i16]>) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, levels, None).unwrap();
    column.close().unwrap();
}

/// Writes a file of one row group as another program might, and reads it.
fn foreign(columns: &str, fill: impl Fn(&mut Group)) -> Result<Vec<Request>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.parquet");
    write_foreign(&path, columns, fill);
    read(&path)
}

fn write_foreign(path: &Path, columns: &str, fill: impl Fn(&mut Group)) {
    let schema = Arc::new(parse_message_type(&format!("message foreign {{ {columns} }}")).unwrap());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    fill(&mut group);
    group.close().unwrap();
    file.close().unwrap();
}

/// As `foreign`, with the notes, for a file whose columns are guessed: with the line that confirms the guess, it is read equally.
fn guessed(columns: &str, fill: impl Fn(&mut Group)) -> (Vec<Request>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.parquet");
    write_foreign(&path, columns, fill);
    let read = |options: &ReadOptions| {
        let mut opened = nigh_trace::open(&path, options).unwrap();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        loop {
            opened.requests.next_batch(&mut batch).unwrap();
            if batch.is_empty() {
                return (all, opened.requests.notes());
            }
            all.append(&mut batch);
        }
    };
    let (requests, notes) = read(&ReadOptions::default());
    let text = notes[0].to_string();
    let line = text.split_once("--columns ").unwrap_or_else(|| panic!("{text}")).1;
    let line = line.split_whitespace().next().unwrap().trim_matches('\'').to_owned();
    let confirmed = read(&ReadOptions { columns: Some(line.parse().unwrap()), ..ReadOptions::default() });
    assert_eq!(confirmed, (requests.clone(), vec![]), "{line}");
    (requests, text)
}

#[test]
fn files_17_columns_of_parquet_are_guessed() {
    let texts = |texts: [&'static str; 2]| texts.map(ByteArray::from);
    let columns = "required int64 ts (TIMESTAMP(MICROS, true)); required binary kind (UTF8); required int64 lba; required int32 sectors;
                   required binary disk (UTF8); optional double temperature; required boolean hot; required int32 date (DATE); required group deep { required int64 lba; }";
    let (requests, notes) = guessed(columns, |group| {
        column::<Int64Type>(group, &[5, 7], None);
        column::<ByteArrayType>(group, &texts(["W", "R"]), None);
        column::<Int64Type>(group, &[8, 16], None);
        column::<Int32Type>(group, &[8, 1], None);
        column::<ByteArrayType>(group, &texts(["sda", "sdb"]), None);
        column::<DoubleType>(group, &[0.5], Some(&[1, 0]));
        column::<BoolType>(group, &[true, false], None);
        column::<Int32Type>(group, &[20_000, 20_000], None);
        column::<Int64Type>(group, &[1, 2], None);
    });
    let first =
        Request { time_ns: 5000, offset: 4096, length: 4096, op: Op::Write, volume: 1 << 31, ..Request::default() };
    let second = Request { time_ns: 7000, offset: 8192, length: 512, op: Op::Read, volume: (1 << 31) + 1, ..first };
    assert_eq!(requests, [first, second], "{notes}");
    assert!(notes.contains("time=ts,op=kind,offset=lba,length=sectors,volume=disk,"), "{notes}");
    assert!(notes.contains("not read: temperature, hot, date, deep.lba"), "{notes}");

    let (requests, notes) =
        guessed("required binary key (UTF8); required int32 size; required int32 is_write;", |group| {
            column::<ByteArrayType>(group, &texts(["user:1", "7"]), None);
            column::<Int32Type>(group, &[300, 9000], None);
            column::<Int32Type>(group, &[0, 1], None);
        });
    assert_eq!(
        requests.iter().map(|r| (r.offset, r.length, r.op)).collect::<Vec<_>>(),
        [(0, 300, Op::Read), (1 << 32, 9000, Op::Write)]
    );
    assert!(notes.contains("offset-unit=keys"), "{notes}");
    let (requests, _) = guessed("required int64 object_id; required int64 size_kb; required float time_s;", |group| {
        column::<Int64Type>(group, &[i64::MAX, 7], None);
        column::<Int64Type>(group, &[3, 4], None);
        column::<FloatType>(group, &[0.5, 1.5], None);
    });
    assert_eq!(
        requests.iter().map(|r| (r.offset, r.length, r.time_ns)).collect::<Vec<_>>(),
        [(0, 3072, 500_000_000), (1 << 32, 4096, 1_500_000_000)]
    );
}

#[test]
fn files_17_parquet_that_cannot_be_guessed() {
    let refused = |columns: &str, fill: &dyn Fn(&mut Group)| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foreign.parquet");
        write_foreign(&path, columns, fill);
        message(nigh_trace::open(&path, &ReadOptions::default()).map(|_| Vec::new()))
    };
    // A unit that cannot be guessed is asked for, with the whole line.
    let error = refused("required int64 position; required int32 size; required binary time (UTF8);", &|group| {
        column::<Int64Type>(group, &[7, 100], None);
        column::<Int32Type>(group, &[3, 5], None);
        column::<ByteArrayType>(group, &["5".into(), "6".into()], None);
    });
    assert!(error.contains("--columns offset=position,length=size") && error.contains("offset-unit="), "{error}");
    // Neither nulls nor damage of a column that could be one of places make a trace, or end the program.
    let nulls = refused("optional int64 lba; required int32 sectors;", &|group| {
        column::<Int64Type>(group, &[7], Some(&[1, 0]));
        column::<Int32Type>(group, &[3, 5], None);
    });
    assert!(nulls.starts_with("no column `offset`"));
    let keys = refused("required double key; required int32 size;", &|group| {
        column::<DoubleType>(group, &[7.0, 8.0], None);
        column::<Int32Type>(group, &[3, 5], None);
    });
    assert!(keys.contains("keys that are strings or integers"));
}

fn message(result: Result<Vec<Request>>) -> String {
    let text = result.expect_err("it is not a trace").to_string();
    text.split_once("foreign.parquet: ").expect("the message names the file").1.to_owned()
}

#[test]
fn foreign_files_are_taken_with_fewer_columns_and_other_integers() {
    let only_offset = foreign("required int64 offset;", |group| column::<Int64Type>(group, &[0, 8192], None));
    let block = Request { length: 4096, ..Request::default() };
    assert_eq!(only_offset.unwrap(), [block, Request { offset: 8192, ..block }]);

    let columns = "optional binary op (UTF8); optional int64 tenant; required double other; required int32 offset;
                   optional int64 time_ns (TIMESTAMP(NANOS, true)); optional int32 length (INTEGER(16, false));";
    let requests = foreign(columns, |group| {
        column::<ByteArrayType>(group, &["WRITE".into(), "read".into()], Some(&[1, 1]));
        column::<Int64Type>(group, &[7, 4_294_967_295], Some(&[1, 1]));
        column::<DoubleType>(group, &[0.5, 1.5], None);
        column::<Int32Type>(group, &[512, 1024], None);
        column::<Int64Type>(group, &[5, 6], Some(&[1, 1]));
        column::<Int32Type>(group, &[100, 200], Some(&[1, 1]));
    });
    let first = Request { time_ns: 5, offset: 512, length: 100, tenant: 7, op: Op::Write, ..Request::default() };
    let second =
        Request { time_ns: 6, offset: 1024, length: 200, tenant: u32::MAX, op: Op::Read, ..Request::default() };
    assert_eq!(requests.unwrap(), [first, second]);
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    let one_long = |group: &mut Group| column::<Int64Type>(group, &[-5], None);
    let result = foreign("required int64 lba;", one_long);
    assert_eq!(
        message(result),
        "no column `offset`; the columns are lba: describe them, as in --columns offset=NAME,length=NAME,op=NAME"
    );
    let result = foreign("required int64 offset;", one_long);
    assert_eq!(message(result), "row 0: column `offset`: found -5, expected a number from 0 to 2^64 - 1");
    let result = foreign("required double offset;", |group| column::<DoubleType>(group, &[1.5], None));
    assert_eq!(message(result), "row 0: column `offset`: found 1.5, expected a whole number from 0 to 2^63");
    let result = foreign("required group offset { required int64 low; }", one_long);
    assert_eq!(message(result), "column `offset` has type list or struct, expected an integer of 32 or 64 bits");
    let result = foreign("required int64 offset (TIMESTAMP(MICROS, true));", one_long);
    assert!(message(result).starts_with("column `offset` has type INT64 (Timestamp("));
    let result = foreign("required int64 time_ns (TIMESTAMP(MICROS, true)); required int64 offset;", |group| {
        column::<Int64Type>(group, &[1], None);
        column::<Int64Type>(group, &[1], None);
    });
    assert!(message(result).ends_with("expected an integer of 32 or 64 bits, or a timestamp in nanoseconds"));
    let result = foreign("optional int64 offset;", |group| column::<Int64Type>(group, &[1], Some(&[1, 0])));
    assert_eq!(message(result), "column `offset` has nulls");
    let two = |group: &mut Group| {
        column::<Int64Type>(group, &[1, 1 << 32], None);
        column::<Int64Type>(group, &[1, 1], None);
    };
    let result = foreign("required int64 volume; required int64 offset;", two);
    assert_eq!(message(result), "row 1: column `volume`: found 4294967296, expected a number from 0 to 2^32 - 1");
    let result = foreign("required binary op (UTF8); required int64 offset;", |group| {
        column::<ByteArrayType>(group, &[ByteArray::from("erase")], None);
        column::<Int64Type>(group, &[1], None);
    });
    assert_eq!(message(result), "row 0: column `op`: found \"erase\", expected read, write, trim or flush");
    let result = foreign("required int64 length; required int64 offset (INTEGER(64, false));", |group| {
        column::<Int64Type>(group, &[4096], None);
        column::<Int64Type>(group, &[-4096], None);
    });
    let expected = "found 18446744073709547520, expected a request that ends below 2^64 bytes";
    assert_eq!(message(result), format!("row 0: column `offset`: {expected}"));
    let result = foreign("required int64 op; required int64 offset;", two);
    assert_eq!(message(result), "column `op` has type INT64, expected string");
}

#[test]
fn truncated_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    write(&path, &random_requests(3000, 5));
    let whole = fs::read(&path).unwrap();
    for bytes in (0..whole.len()).step_by(97).chain(whole.len() - 100..whole.len()) {
        fs::write(&path, &whole[..bytes]).unwrap();
        assert!(matches!(read(&path), Err(Error::Parquet { .. })), "{bytes} of {} bytes", whole.len());
    }
}

/// Changed bytes, everywhere in the file and above all in its footer, may make other requests or an error of it, but
/// no panic.
#[test]
fn damaged_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    write(&path, &random_requests(500, 6));
    let whole = fs::read(&path).unwrap();
    let footer = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap()) as usize + 8;
    let mut random = Random::seed_from_u64(11);
    let mut errors = 0;
    const ROUNDS: usize = 6000;
    for round in 0..ROUNDS {
        let mut bytes = whole.clone();
        let from = if round % 3 == 0 { 0 } else { whole.len() - footer };
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(from..whole.len());
            bytes[at] = random.random();
        }
        fs::write(&path, &bytes).unwrap();
        errors += usize::from(read(&path).is_err());
    }
    assert!(errors > ROUNDS / 4, "only {errors} of {ROUNDS} damaged files were noticed");
    println!("{errors} of {ROUNDS} damaged files were noticed");
}

#[test]
fn standard_input_and_compressed_files_are_read_through_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    let requests = random_requests(5000, 3);
    write(&path, &requests);
    let plain = fs::read(&path).unwrap();
    for content in [zstd::encode_all(&plain[..], 1).unwrap(), plain] {
        let source = std::io::Cursor::new(content);
        let opened = nigh_trace::from_reader(source, Path::new("-"), &nigh_trace::ReadOptions::default());
        let mut opened = opened.unwrap();
        assert_eq!((opened.format, opened.block_bytes), (nigh_trace::Format::Parquet, 512));
        let (mut all, mut batch) = (Vec::new(), vec![Request::default()]);
        while !batch.is_empty() {
            opened.requests.next_batch(&mut batch).unwrap();
            all.extend_from_slice(&batch);
        }
        assert!(all == requests);
    }
}

#[test]
fn an_empty_file_is_called_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    let options =
        nigh_trace::ReadOptions { format: Some(nigh_trace::Format::Parquet), ..nigh_trace::ReadOptions::default() };
    for (content, expected) in [("", "the file is empty"), ("PAR1PA", "cut short after 6 bytes")] {
        fs::write(&path, content).unwrap();
        let error = nigh_trace::open(&path, &options).err().unwrap();
        assert_eq!(error.to_string(), format!("{}: {expected}", path.display()));
    }
}
