//! Profiles: what is written is read again, what is stale is dropped, and advice that gains nothing ends.

use nigh_advise::profile::{Code, InFile, Module, Name, Profile, ProfileError, Reads, Run};
use nigh_advise::{Class, NoTable, Table, entry};

fn code(code: u64, class: Name, modules: &[usize]) -> Code {
    let modules = modules.to_vec();
    let (place, files) = ("grep+0x51a0".into(), Vec::new());
    let (asked_bytes, read_bytes) = (Some(2000), Some(1000));
    Code { code, place, class, run_bytes: None, modules, asked_bytes, read_bytes, advised: true, files }
}

fn profile() -> Profile {
    let module = |path: &str, build_id: &str| Module { path: path.into(), build_id: build_id.into() };
    let words = InFile { path: "/srv/words".into(), class: Name::Loop, run_bytes: None };
    Profile {
        program: "/usr/bin/grep".into(),
        frames: 5,
        depth: true,
        read_bytes: Some(10_000),
        runs_without_gain: 0,
        modules: vec![module("/usr/bin/grep", "0fb3"), module("/lib/libc.so.6", "99aa")],
        codes: vec![
            Code { run_bytes: Some(32_768), files: vec![words], ..code(7, Name::Short, &[0, 1]) },
            code(u64::MAX, Name::Seq, &[1]),
            code(3, Name::Rand, &[]),
        ],
    }
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let text = profile().to_toml();
    assert!(text.contains("code = \"0000000000000007\"") && text.contains("class = \"short\""), "{text}");
    assert_eq!(Profile::parse(&text), Ok(profile()));
    let most = Profile { read_bytes: Some(u64::MAX), ..profile() };
    assert_eq!(Profile::parse(&most.to_toml()).map(|read| read.read_bytes), Ok(Some(i64::MAX as u64)));
}

#[test]
fn errors_name_the_place() {
    let error = |text: &str| Profile::parse(text).unwrap_err().to_string();
    assert!(error("program = 'x'\nframes = 'y'").starts_with("line 2: "), "{}", error("program = 'x'\nframes = 'y'"));
    let head = "program = 'x'\nframes = 5\n";
    assert!(error(&format!("{head}[[code]]\ncode = '12'\nclass = 'seq'")).contains("16 hexadecimal digits"));
    assert!(error(&format!("{head}[[code]]\ncode = '0123456789abcdef'\nclass = 'sek'")).contains("line 5"));
    let one = "[[code]]\ncode = '0123456789abcdef'\nclass = 'seq'\n";
    let twice = Profile::parse(&format!("{head}{one}{one}"));
    assert_eq!(twice, Err(ProfileError::Twice { code: 0x0123_4567_89ab_cdef }));
    assert!(error(&format!("{head}{one}modules = [0]")).contains("no such module"));
}

#[test]
fn code_in_other_builds_is_dropped() {
    let mut known = profile();
    let today = |path: &str| Some(if path == "/usr/bin/grep" { "0fb3" } else { "new" }.to_owned());
    let stale: Vec<u64> = known.drop_stale(today).iter().map(|code| code.code).collect();
    assert_eq!(stale, [7, u64::MAX]);
    assert_eq!(known.codes, [code(3, Name::Rand, &[])]);
    assert_eq!(profile().drop_stale(|_| None).len(), 2, "modules that are gone");
}

/// A run in which each code asked for as much as in the profile, or the part of it that is given.
fn run(read_bytes: u64, by_code: &[(u64, u64)]) -> Run {
    let reads = |read_bytes| Reads { asked_bytes: 2000, read_bytes };
    Run { read_bytes, by_code: by_code.iter().map(|&(code, bytes)| (code, reads(bytes))).collect() }
}

const ALL: [(u64, u64); 3] = [(7, 400), (3, 1000), (u64::MAX, 600)];

#[test]
fn advice_without_gain_ends() {
    let mut known = profile();
    assert_eq!(known.learn(&run(5_000, &ALL)), [3], "3 read as much as before");
    assert_eq!((known.runs_without_gain, known.codes[2].advised), (0, false));
    assert_eq!(known.learn(&run(9_800, &[(7, 971), (3, 1000), (u64::MAX, 5)])), [7], "less than 3 % is no gain");
    assert_eq!(known.runs_without_gain, 1);
    known.learn(&run(12_000, &ALL));
    assert_eq!(known.runs_without_gain, 2);
    known.learn(&run(9_699, &ALL));
    assert_eq!(known.runs_without_gain, 0, "one run with gain");
    (0..3).for_each(|_| drop(known.learn(&run(10_000, &ALL))));
    assert!(known.is_left_alone() && !known.gets_advice());
    let table = known.table(|_| None);
    assert!([7, 3, u64::MAX].iter().all(|&code| Table::new(&table).expect("entries").class(code, 0).is_none()));
    let mut unknown = Profile { read_bytes: None, ..profile() };
    unknown.learn(&run(1_000_000, &ALL));
    assert_eq!(unknown.runs_without_gain, 0, "there is nothing to compare with");
}

/// Runs with more or less input than the recorded one.
#[test]
fn runs_are_compared_by_what_they_read() {
    let mut known = profile();
    let twice = Reads { asked_bytes: 4000, read_bytes: 1500 };
    let double = Run { read_bytes: 15_000, by_code: [(7, twice), (3, twice), (u64::MAX, twice)].into() };
    assert_eq!(known.without_advice(&double), Some(20_000));
    assert!(known.learn(&double).is_empty() && known.runs_without_gain == 0);
    let little = Reads { asked_bytes: 900, read_bytes: 900 };
    let short = Run { read_bytes: 2700, by_code: [(7, little), (3, little), (u64::MAX, little)].into() };
    assert!(known.learn(&short).is_empty() && known.runs_without_gain == 0, "too short to tell");
    let nothing = Run { read_bytes: 15_000, by_code: [].into() };
    assert_eq!((known.without_advice(&nothing), known.learn(&nothing)), (None, vec![]));
    assert_eq!(known.runs_without_gain, 0, "none of the known code read");
}

#[test]
fn code_that_reads_nothing_from_devices_gets_no_advice() {
    let mut known = profile();
    known.codes.iter_mut().for_each(|code| code.read_bytes = Some(0));
    assert!(!known.gets_advice());
    known.codes[1].read_bytes = None;
    assert!(!known.gets_advice(), "nobody could tell whether it gains");
    known.codes[1].read_bytes = Some(1);
    assert!(known.gets_advice());
}

#[test]
fn tables_have_the_classes_of_the_profile() {
    let mut known = profile();
    known.codes[2].advised = false;
    let bytes = known.table(|path| (path == "/srv/words").then_some(42));
    let table = Table::new(&bytes).expect("entries");
    assert_eq!(table.class(7, 1), Some(Class::Short { run: 32_768 }));
    assert_eq!(table.class(7, 42), Some(Class::Loop));
    assert_eq!(table.class(u64::MAX, 42), Some(Class::Sequential));
    assert_eq!(table.class(3, 1), None, "without advice");
    assert_eq!(Table::new(&[]).expect("empty").class(7, 1), None);
}

#[test]
fn other_bytes_are_no_table() {
    let [first, second] = [1, 2].map(|code| entry(code, 0, Some(Class::Loop)));
    assert!(Table::new(&[first, second].concat()).is_ok());
    for bytes in [[second, first].concat(), [first, first].concat(), first[..31].to_vec(), {
        let mut class = first;
        class[16] = 5;
        class.to_vec()
    }] {
        assert_eq!(Table::new(&bytes).map(|_| ()), Err(NoTable));
    }
}

#[test]
fn other_recordings_add_code_and_change_classes() {
    let mut known = profile();
    known.codes[1].advised = false;
    let module = Module { path: "/lib/new.so".into(), build_id: "12".into() };
    let words = InFile { path: "/srv/words".into(), class: Name::Short, run_bytes: Some(5) };
    let mut other = Profile { modules: vec![module.clone(), known.modules[0].clone()], ..profile() };
    other.codes = vec![
        Code { files: vec![words.clone()], ..code(7, Name::Loop, &[1, 0]) },
        code(u64::MAX, Name::Rand, &[]),
        code(8, Name::Seq, &[1, 0]),
    ];
    known.add(other);
    assert_eq!(known.modules.len(), 3);
    assert_eq!(known.modules[2], module);
    assert_eq!(known.codes[0], Code { run_bytes: None, files: vec![words], ..code(7, Name::Loop, &[0, 1]) });
    assert_eq!((known.codes[1].class, known.codes[1].advised), (Name::Rand, false));
    assert_eq!(known.codes[3], code(8, Name::Seq, &[0, 2]));
    assert_eq!(known.codes.len(), 4);
}
