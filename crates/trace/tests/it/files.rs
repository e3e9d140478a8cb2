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
