//! Profiles: what is written is read again, what is stale is dropped, and advice that gains nothing ends.

use nigh_advise::profile::{Code, InFile, Module, Name, Profile, ProfileError, Run};
use nigh_advise::{Class, NoTable, Table, entry};

fn code(code: u64, class: Name, modules: &[usize]) -> Code {
    let modules = modules.to_vec();
    Code { code, class, run_bytes: None, modules, read_bytes: Some(1000), advised: true, files: Vec::new() }
}

fn profile() -> Profile {
    let module = |path: &str, build_id: &str| Module { path: path.into(), build_id: build_id.into() };
    let words = InFile { path: "/srv/words".into(), class: Name::Loop, run_bytes: None };
    Profile {
        program: "/usr/bin/grep".into(),
        frames: 5,
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

#[test]
fn advice_that_gains_nothing_ends() {
    let mut known = profile();
    let run = |read_bytes, by_code: &[(u64, u64)]| Run { read_bytes, by_code: by_code.iter().copied().collect() };
    assert_eq!(known.learn(&run(5_000, &[(7, 400), (3, 1000), (99, 5)])), [3], "3 read as much as before");
    assert_eq!(known.codes.iter().map(|code| code.advised).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(known.learn(&run(9_800, &[(7, 971)])), [7], "less than 3 % is no gain");
    known.learn(&run(12_000, &[]));
    assert!(!known.is_left_alone());
    known.learn(&run(9_699, &[]));
    assert_eq!(known.runs_without_gain, 0);
    (0..3).for_each(|_| drop(known.learn(&run(10_000, &[]))));
    assert!(known.is_left_alone() && known.table(|_| None).is_empty());
    let mut unknown = Profile { read_bytes: None, ..profile() };
    unknown.learn(&run(1_000_000, &[]));
    assert_eq!(unknown.runs_without_gain, 0, "there is nothing to compare with");
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
    let [first, second] = [1, 2].map(|code| entry(code, 0, Class::Loop));
    assert!(Table::new(&[first, second].concat()).is_ok());
    for bytes in [[second, first].concat(), [first, first].concat(), first[..31].to_vec(), {
        let mut class = first;
        class[16] = 4;
        class.to_vec()
    }] {
        assert_eq!(Table::new(&bytes).map(|_| ()), Err(NoTable));
    }
}
