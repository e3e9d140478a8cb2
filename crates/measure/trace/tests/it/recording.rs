//! Recordings: what is written is read back, streams are chosen by column, calls that transfer nothing are left out, and
//! a file that was cut short is read up to its last complete part.

use std::fs;
use std::path::Path;

use nigh_trace::format::parquet::{About, Call, Context, Did, ParquetReader, ParquetWriter, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Error, Note, Op, ReadOptions, Request, Requests, Stream, Taken};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

const CONTEXTS: u32 = 7;

/// Call number `at` of a made-up program.
fn call(at: u32) -> Call {
    let did = match at % 10 {
        3 => Did::Map,
        7 => Did::Advise,
        other => Did::Request(Op::ALL[other as usize % 4]),
    };
    let op = if let Did::Request(op) = did { op } else { Op::Read };
    Call {
        request: Request {
            time_ns: u64::from(at) * 1000,
            offset: u64::from(at % 50) << 12,
            length: 4096,
            volume: at % 2,
            tenant: 100 + at % 3,
            op,
            stream: 0x5000 + u64::from(at % CONTEXTS),
            latency_ns: 17,
            content: 0,
        },
        did,
        program: at % 2,
        context: at % CONTEXTS,
        tid: 200,
        asked: 8192,
        result: if at % 100 == 50 { -5 } else { 4096 },
        device_bytes: if at.is_multiple_of(4) { 16_384 } else { 0 },
    }
}

fn begin(path: &Path) -> Recorder {
    let mut recorder = Recorder::create(&Destination::new(path, true, &[]).unwrap(), Taken::Above, 4096).unwrap();
    assert_eq!((recorder.program("cc1"), recorder.program("ld"), recorder.program("cc1")), (0, 1, 0));
    assert_eq!((recorder.file("/usr/include/stdio.h"), recorder.file("/tmp/größe.o")), (0, 1));
    for number in 0..CONTEXTS {
        let code = u64::from(number);
        let stack = format!("libc.so.6+0x{number:x};cc1+0x51a0");
        let context = Context { pcs: [code, 50 + code, 80 + code, 160 + code], depth: 64 * number, stack };
        assert_eq!(recorder.context(context), number);
    }
    recorder
}

fn read(path: &Path, stream: Option<Stream>) -> nigh_trace::Result<(Vec<Request>, Vec<Note>, Option<Taken>)> {
    let mut opened = nigh_trace::open(path, &ReadOptions { stream, ..ReadOptions::default() })?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok((all, opened.requests.notes(), opened.taken));
        }
        all.append(&mut batch);
    }
}

fn requests(calls: u32) -> Vec<Request> {
    (0..calls).map(call).filter(|call| matches!(call.did, Did::Request(_))).map(|call| call.request).collect()
}

#[test]
fn requests_are_read_back_and_other_calls_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..10_000).for_each(|at| recorder.push(call(at)).unwrap());
    assert_eq!((recorder.calls(), recorder.files()), (10_000, 2));
    assert!(!path.exists(), "it has its name when it is complete");
    recorder.finish().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let (found, notes, taken) = read(&path, None).unwrap();
    assert_eq!(found, requests(10_000));
    assert!(matches!(notes[..], [Note::LeftOut { count: 2000, .. }]), "{notes:?}");
    assert_eq!(taken, Some(Taken::Above));
    for (stream, code) in [(Stream::Ra0, 0), (Stream::Pc5, 50), (Stream::Pc8, 80), (Stream::Pc16, 160)] {
        let (found, ..) = read(&path, Some(stream)).unwrap();
        let expected = requests(10_000).into_iter().map(|request| request.stream - 0x5000 + code);
        assert!(found.iter().map(|request| request.stream).eq(expected), "{stream:?}");
    }
    let (found, ..) = read(&path, Some(Stream::File)).unwrap();
    assert!(found.iter().all(|request| request.stream == u64::from(request.volume)));
}

#[test]
fn other_programs_can_read_every_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..60).for_each(|at| recorder.push(call(at)).unwrap());
    recorder.finish().unwrap();
    let file = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let rows: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let columns: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.as_str()).collect();
    let own =
        ["program", "path", "tid", "asked", "result", "ra0", "pc5", "pc8", "pc16", "depth", "stack", "device_bytes"];
    assert_eq!(columns[9..], own);
    assert_eq!((rows[0].get_string(1).unwrap().as_str(), rows[3].get_string(1).unwrap().as_str()), ("read", "map"));
    assert_eq!(rows[1].get_string(9).unwrap(), "ld");
    assert_eq!(rows[1].get_string(10).unwrap(), "/tmp/größe.o");
    assert_eq!((rows[1].get_uint(11).unwrap(), rows[1].get_uint(12).unwrap()), (200, 8192));
    assert_eq!((rows[49].get_long(13).unwrap(), rows[50].get_long(13).unwrap()), (4096, -5));
    let codes: Vec<u64> = (14..18).map(|column| rows[2].get_ulong(column).unwrap()).collect();
    assert_eq!(codes, [2, 52, 82, 162]);
    assert_eq!(rows[2].get_uint(18).unwrap(), 128);
    assert_eq!(rows[2].get_string(19).unwrap(), "libc.so.6+0x2;cc1+0x51a0");
    assert_eq!((rows[3].get_uint(20).unwrap(), rows[4].get_uint(20).unwrap()), (0, 16_384));
}

/// Input of a program's profile.
#[test]
fn a_complete_recording_says_which_program_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..100).for_each(|at| recorder.push(call(at)).unwrap());
    recorder.checkpoint().unwrap();
    let names = |path: &Path| ParquetReader::open(path, None, None).unwrap().names().unwrap().unwrap();
    assert_eq!(names(&folder.path().join("a.parquet.part")).about, None, "while it grows");
    let modules = vec![("/usr/lib/x y.so".to_owned(), "99".to_owned()), ("/bin/cc1".to_owned(), "0fb3".to_owned())];
    let about = About { program: "/bin/cc1".into(), device_bytes: 12_345, modules };
    recorder.describe(about.clone()).unwrap();
    recorder.finish().unwrap();
    let names = names(&path);
    assert_eq!(names.about, Some(about));
    assert_eq!((names.files[&1].as_str(), names.codes.len()), ("/tmp/größe.o", CONTEXTS as usize));
    // Of the calls that read, those with this stream.
    for (stream, code) in &names.codes {
        let own =
            (0..100).map(call).filter(|call| call.request.stream == *stream && call.did == Did::Request(Op::Read));
        let (read, device) = own.fold((0, 0), |(read, device), call| {
            (read + u64::from(call.request.length), device + u64::from(call.device_bytes))
        });
        assert_eq!((code.read_bytes, code.device_bytes), (read, device), "{stream:x}");
    }
}

/// Wherever the file ends, the groups before that are read.
#[test]
fn a_recording_that_is_cut_short_is_read_up_to_its_last_complete_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    // After this many bytes, this many calls.
    let mut ends = vec![(recorder.bytes(), 0)];
    for at in 0..400 {
        recorder.push(call(at)).unwrap();
        if at % 100 == 99 {
            recorder.checkpoint().unwrap();
            ends.push((recorder.bytes(), at + 1));
        }
    }
    let part = folder.path().join("a.parquet.part");
    assert_eq!(read(&part, None).unwrap().0, requests(400), "while it grows");
    recorder.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len() as u64, ends[4].0, "there is nothing behind the last footer");

    let cut = folder.path().join("cut.parquet");
    for bytes in (ends[1].0..whole.len() as u64).step_by(37) {
        fs::write(&cut, &whole[..bytes as usize]).unwrap();
        let &(end, calls) = ends.iter().rfind(|(end, _)| *end <= bytes).unwrap();
        let (found, notes, _) = read(&cut, None).unwrap();
        assert_eq!(found, requests(calls), "{bytes} bytes");
        let expected = (bytes > end).then_some(Note::CutBytes { bytes: bytes - end });
        assert_eq!(notes.into_iter().find(|note| matches!(note, Note::CutBytes { .. })), expected);
    }
    fs::write(&cut, &whole[..ends[1].0 as usize - 1]).unwrap();
    assert!(matches!(read(&cut, None), Err(Error::Empty { .. })), "no group is complete");
    fs::write(&cut, &whole[..40]).unwrap();
    assert!(matches!(read(&cut, None), Err(Error::Parquet { .. })), "not even the first footer is");
}

/// Groups that a later one contains are in no later footer.
#[test]
fn destroys_2_a_recording_with_many_checkpoints_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    for at in 0..500 {
        recorder.push(call(at)).unwrap();
        recorder.checkpoint().unwrap();
        assert_eq!(recorder.calls(), u64::from(at) + 1);
        if at % 97 == 0 {
            assert_eq!(read(&folder.path().join("a.parquet.part"), None).unwrap().0, requests(at + 1));
        }
    }
    recorder.finish().unwrap();
    assert_eq!(read(&path, None).unwrap().0, requests(500));
    let (bytes, groups) = (
        fs::metadata(&path).unwrap().len(),
        SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap().num_row_groups(),
    );
    assert!(bytes < 20 << 20 && groups < 10, "{bytes} bytes, {groups} groups");
}

/// As above, of requests of a server's clients.
#[test]
fn destroys_2_a_recording_of_requests_can_be_read_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.parquet", "a.csv"] {
        let (path, part) = (folder.path().join(name), folder.path().join(format!("{name}.part")));
        let options = nigh_trace::write::WriteOptions { format: None, block_bytes: 4096, taken: Some(Taken::Server) };
        let to = Destination::new(&path, false, &[]).unwrap();
        let (mut writer, left) = nigh_trace::write::Writer::record(&to, &options).unwrap();
        assert_eq!(left, None);
        let all = requests(300);
        for (at, some) in all.chunks(7).enumerate() {
            writer.push(some).unwrap();
            writer.checkpoint().unwrap();
            assert_eq!(read(&part, None).unwrap().0, all[..(at * 7 + some.len())]);
        }
        writer.checkpoint().unwrap();
        writer.finish().unwrap();
        assert_eq!(read(&path, None).unwrap().0, all);
        assert!(!part.exists());
    }
}

/// After an error, what was complete is kept.
#[test]
fn what_was_written_before_an_error_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..100).for_each(|at| recorder.push(call(at)).unwrap());
    recorder.checkpoint().unwrap();
    (100..150).for_each(|at| recorder.push(call(at)).unwrap());
    assert_eq!(recorder.salvage().unwrap(), 100);
    assert_eq!(read(&path, None).unwrap().0, requests(100));
}

#[test]
fn a_column_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.parquet");
    let options = nigh_trace::write::WriteOptions { format: None, block_bytes: 4096, taken: Some(Taken::Server) };
    let to = Destination::new(&path, false, &[]).unwrap();
    let mut writer = nigh_trace::write::Writer::create(&to, &options).unwrap();
    writer.push(&requests(10)).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path, None).unwrap().2, Some(Taken::Server));
    let error = read(&path, Some(Stream::Pc8)).unwrap_err().to_string();
    assert!(error.ends_with("no column `pc8`: it does not record this identity of the issuing code"), "{error}");
}

#[test]
fn requests_are_read_with_their_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..10_000).for_each(|at| {
        recorder.push(call(at)).unwrap();
        // Groups of rows end within batches.
        if at.is_multiple_of(3000) {
            recorder.checkpoint().unwrap();
        }
    });
    recorder.finish().unwrap();
    let mut by_program = ParquetReader::open(&path, None, None).unwrap().by_program().unwrap().unwrap();
    let (mut found, mut batch) = (Vec::new(), Vec::new());
    loop {
        by_program.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        found.append(&mut batch);
    }
    let calls: Vec<Call> = (0..10_000).map(call).filter(|call| matches!(call.did, Did::Request(_))).collect();
    // They are numbered from 1 in the order in which they are first read, and calls that are left out have no part in it.
    let expected = calls.iter().map(|call| Request { stream: u64::from(call.program) + 1, ..call.request });
    assert!(found.into_iter().eq(expected));
    assert_eq!(by_program.programs(), ["cc1", "ld"]);
    assert_eq!(by_program.files()[&1], "/tmp/größe.o");
    assert!(matches!(by_program.notes()[..], [Note::LeftOut { count: 2000, .. }]));

    let plain = folder.path().join("plain.parquet");
    let mut writer = ParquetWriter::new(fs::File::create(&plain).unwrap(), 4096, Some(Taken::Server)).unwrap();
    writer.push(&requests(10)).unwrap();
    writer.finish().unwrap();
    assert!(ParquetReader::open(&plain, None, None).unwrap().by_program().unwrap().is_none());
}

/// A damaged file is an error, or is read with other values.
#[test]
fn damaged_names_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut recorder = begin(&path);
    (0..200).for_each(|at| recorder.push(call(at)).unwrap());
    recorder.finish().unwrap();
    let bytes = fs::read(&path).unwrap();
    let (mut rejected, mut batch) = (0, Vec::new());
    for at in (0..bytes.len()).step_by(4) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        fs::write(&path, &damaged).unwrap();
        let opened = ParquetReader::open(&path, None, None).and_then(ParquetReader::by_program);
        let read = opened.and_then(|requests| {
            let Some(mut requests) = requests else { return Ok(()) };
            loop {
                requests.next_batch(&mut batch)?;
                if batch.is_empty() {
                    return Ok(());
                }
            }
        });
        rejected += usize::from(read.is_err());
    }
    assert!(rejected > bytes.len() / 40, "{rejected} of {} changes were found", bytes.len() / 4);
}
