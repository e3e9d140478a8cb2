//! Files whose columns are described: units, dates, words and binary records.

use std::io::Cursor;
use std::path::Path;

use nigh_trace::error::Place;
use nigh_trace::{Columns, Error, Format, Note, Op, ReadOptions, Request, from_reader};

fn read(content: &[u8], columns: &str) -> Result<(Format, Vec<Request>, Vec<Note>), Error> {
    let columns = Some(columns.parse::<Columns>()?);
    let options = ReadOptions { columns, ..ReadOptions::default() };
    let mut opened = from_reader(Cursor::new(content.to_owned()), Path::new("sample"), &options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok((opened.format, all, opened.requests.notes()));
        }
        all.append(&mut batch);
    }
}

/// The time of the second request, and the unit that a note names.
fn second_time(content: &str, columns: &str) -> (u64, Option<&'static str>) {
    let (_, requests, notes) = read(content.as_bytes(), columns).unwrap();
    let unit = notes.iter().find_map(|note| match note {
        Note::Unit { what: "times", unit, .. } => Some(*unit),
        _ => None,
    });
    (requests[1].time_ns, unit)
}

/// The columns that an error asks for.
fn unknown(content: &str, columns: &str) -> String {
    match read(content.as_bytes(), columns) {
        Err(error @ Error::UnknownUnit { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn units_6_times_are_never_seconds_unasked() {
    let columns = "time=0,offset=1";
    for (first, second, unit, time_ns) in [
        ("1577808144360767000", "1577808144360767001", "nanoseconds", 1_577_808_144_360_767_001),
        ("1577808144360767", "1577808144360768", "microseconds", 1_577_808_144_360_768_000),
        ("1577808144360", "1577808144361", "milliseconds", 1_577_808_144_361_000_000),
        ("1577808144", "1577808144", "seconds", 1_577_808_144_000_000_000),
        ("0.5", "1.5", "seconds", 1_500_000_000),
    ] {
        let content = format!("{first},512\n{second},512\n");
        assert_eq!(second_time(&content, columns), (time_ns, Some(unit)), "{content}");
    }
    // Such numbers could be anything, and so could clocks that began when the machine did.
    for (first, second) in [("0", "184470"), ("123456789", "123456999"), ("1792298790375", "1792398900840")] {
        let message = unknown(&format!("{first},512\n{second},512\n"), columns);
        let example = if first == "0" { second } else { first };
        assert_eq!(
            message,
            format!(
                "sample: the unit of the times, such as {example}, cannot be detected: add time-unit=s, ms, us or ns to the columns"
            )
        );
    }
    // A stated unit overrides, and is not reported.
    let content = "1577808144360767,512\n1577808144360768,512\n";
    assert_eq!(second_time(content, "time=0,offset=1,time-unit=ns"), (1_577_808_144_360_768, None));
    assert_eq!(second_time("5,512\n6,512\n", "time=0,offset=1,time-unit=100ns"), (600, None));
    // The name of a column determines the unit, too.
    for (name, time_ns) in [("time_us", 7000), ("TIME(ms)", 7_000_000), ("ts [ns]", 7), ("seconds", 7_000_000_000)] {
        let content = format!("{name},where\n3,512\n7,512\n");
        assert_eq!(second_time(&content, columns), (time_ns, None), "{name}");
        assert_eq!(second_time(&content, &format!("time={name},offset=where")), (time_ns, None), "{name}");
    }
    // A trace that begins at 0 and ends there has no times.
    assert_eq!(second_time("0,512\n0,512\n", columns), (0, None));
}

#[test]
fn units_6_dates_are_read() {
    for (date, time_ns) in [
        ("2020-01-01T00:00:00.25Z", 1_577_836_800_250_000_000),
        ("2020-01-01 01:00:00.25+01:00", 1_577_836_800_250_000_000),
        ("\"2020-01-01T00:00:00,25\"", 1_577_836_800_250_000_000),
    ] {
        let content = format!("when,where\n{date},512\n{date},512\n");
        assert_eq!(second_time(&content, "time=0,offset=1,separator=comma"), (time_ns, None), "{date}");
    }
    let error = read(b"2020-01-01T00:00:00,512\n2020-01-32T00:00:00,512\n", "time=0,offset=1").unwrap_err();
    assert!(matches!(error, Error::Malformed { place: Place::Line(2), .. }), "{error}");
    // A file whose header names the fields of a request may have dates, too.
    let options = ReadOptions::default();
    let content = b"time,offset,length\n2020-01-01T00:00:00Z,0,512\n".to_vec();
    let mut opened = from_reader(Cursor::new(content), Path::new("sample"), &options).unwrap();
    let mut batch = Vec::new();
    opened.requests.next_batch(&mut batch).unwrap();
    assert_eq!(batch[0].time_ns, 1_577_836_800_000_000_000);
}

#[test]
fn units_6_sectors_do_not_count_as_bytes() {
    let offsets = |content: &str, columns: &str| {
        let (_, requests, notes) = read(content.as_bytes(), columns).unwrap();
        let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
        let places: Vec<_> = requests.iter().map(|request| (request.offset, request.length)).collect();
        (places, notes.join("; "))
    };
    let (places, notes) = offsets("4096,512\n8192,1024\n", "offset=0,length=1");
    assert_eq!(places, [(4096, 512), (8192, 1024)]);
    assert!(notes.contains("offsets are interpreted as bytes, because all of them are multiples of 512"), "{notes}");
    assert!(notes.contains("lengths are interpreted as bytes") && notes.contains("length-unit"), "{notes}");
    // Names show units.
    let (places, notes) = offsets("LBA,nr_sectors\n7,8\n15,8\n", "offset=0,length=1");
    assert_eq!((places, &notes[..]), (vec![(3584, 4096), (7680, 4096)], ""));
    // Adjoining requests determine the unit, too.
    let (places, notes) = offsets("7,4096\n15,4096\n", "offset=0,length=1");
    assert_eq!(places, [(3584, 4096), (7680, 4096)]);
    assert!(notes.contains("offsets are interpreted as sectors of 512 bytes"), "{notes}");
    let (places, _) = offsets("7,512\n519,512\n", "offset=0,length=1");
    assert_eq!(places, [(7, 512), (519, 512)]);
    let (places, _) = offsets("4096,8\n8192,8\n", "offset=0,length=1");
    assert_eq!(places, [(4096, 4096), (8192, 4096)]);
    let (places, _) = offsets("7,100\n900,20\n", "offset=0,length=1,offset-unit=bytes");
    assert_eq!(places, [(7, 100), (900, 20)]);
    // Else the unit is asked for.
    let message = unknown("7,8\n100,8\n", "offset=0,length=1,length-unit=sectors");
    assert!(
        message.contains(
            "the offsets, such as 7, cannot be detected: add offset-unit=bytes, kib, sectors, blocks or keys"
        ),
        "{message}"
    );
    let message = unknown("4096,8\n40960,8\n", "offset=0,length=1");
    assert!(message.contains("the lengths, such as 8, cannot be detected: add length-unit="), "{message}");
    unknown("7\n", "offset=0");
}

#[test]
fn words_for_operations() {
    let content = b"RA,0\nWS,0\nFF,0\nDS,0\nFWFS,0\nput,0\nupdate,0\nget,0\n1,0\ndrop,0\n";
    let columns = "op=0,offset=1,read=get|1,write=put|update,trim=drop";
    let ops: Vec<_> = read(content, columns).unwrap().1.iter().map(|request| request.op).collect();
    use Op::{Flush, Read, Trim, Write};
    assert_eq!(ops, [Read, Write, Flush, Trim, Write, Write, Write, Read, Read, Trim]);
    for word in ["RQ", "N", "ar"] {
        let error = read(format!("{word},0\n").as_bytes(), "op=0,offset=1").unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
    // The first line of bpftrace is no header and no row.
    assert_eq!(read(b"Attaching 1 probe...\n5 0\n6 512\n", "offset=1").unwrap().1.len(), 2);
}

#[test]
fn binary_records() {
    let record = |time: u64, offset: u64, length: u32, op: u8| {
        [&time.to_le_bytes()[..], &offset.to_le_bytes(), &length.to_le_bytes(), &[op, 9, 9, 9]].concat()
    };
    let content = [b"HEAD".to_vec(), record(5, 8, 16, 0), record(6, 24, 8, 1), record(7, 0, 0, 4)].concat();
    let columns = "header=4,record=24,time=0:u64,offset=8:u64,length=16:u32,op=20:u8,tenant=21:u8,read=0|2,write=1,flush=4,\
                   time-unit=us,offset-unit=sectors,length-unit=sectors";
    let (format, requests, notes) = read(&content, columns).unwrap();
    let first = Request { time_ns: 5000, offset: 4096, length: 8192, tenant: 9, ..Request::default() };
    assert_eq!((format, requests[0], notes), (Format::Records, first, vec![]));
    assert_eq!(requests[1].op, Op::Write);
    assert_eq!(requests[2], Request { time_ns: 7000, op: Op::Flush, tenant: 9, ..Request::default() });
    // Units are found or asked for as in text.
    let aligned = [record(1_577_808_144_360_767, 4096, 512, 0), record(1_577_808_144_360_768, 8192, 512, 0)].concat();
    let columns = "record=24,time=0:u64,offset=8:u64,length=16:u32";
    let (_, requests, notes) = read(&aligned, columns).unwrap();
    assert_eq!((requests[1].time_ns, notes.len()), (1_577_808_144_360_768_000, 3));
    assert!(matches!(read(&content[4..], columns), Err(Error::UnknownUnit { .. })));
    // Other types.
    let big = [&1.5_f64.to_be_bytes()[..], &7_u16.to_be_bytes()].concat();
    let (_, requests, _) = read(&big, "record=10,time=0:f64be,time-unit=s,offset=8:u16be,offset-unit=blocks").unwrap();
    assert_eq!(requests, [Request { time_ns: 1_500_000_000, offset: 28672, length: 4096, ..Request::default() }]);
    // Errors have a place.
    let error = read(&content[..content.len() - 1], "header=4,record=24,offset=8:u64,offset-unit=bytes").unwrap_err();
    assert!(matches!(error, Error::Malformed { place: Place::Byte(52), .. }), "{error}");
    let error = read(&content, "header=4,record=24,offset=8:u64,op=20:u8,read=0,offset-unit=bytes").unwrap_err();
    assert!(matches!(error, Error::Malformed { place: Place::Byte(28), .. }), "{error}");
    assert!(error.to_string().contains("operation 1"), "{error}");
    assert!(matches!(read(b"", "header=4,record=24,offset=8:u64"), Err(Error::Empty { .. })));
    for (columns, expected) in [
        ("record=24,offset=8", "a byte and a type"),
        ("record=24,offset=8:f64", "a byte and a type"),
        ("record=24,offset=20:u64", "within the record"),
        ("record=0,offset=0:u8", "at least one byte"),
        ("record=99999999,offset=0:u8", "up to 65536"),
        ("header=4,offset=0", "record=24"),
        ("record=8,offset=0:u32,op=4:u8", "read=0,write=1"),
        ("record=8,offset=0:u32,op=4:u8,read=R", "numbers"),
        ("record=8,offset=0:u32,separator=tab", "no separator"),
    ] {
        let error = columns.parse::<Columns>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let options = ReadOptions { format: Some(Format::Records), ..ReadOptions::default() };
    let refused = from_reader(Cursor::new(content), Path::new("sample"), &options).err().unwrap();
    assert!(refused.to_string().contains("record=24"), "{refused}");
}
