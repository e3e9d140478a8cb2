//! Files that people have, as `nigh` reads them: the messages about them.

use std::process::{Command, Output};

fn nigh(folder: &std::path::Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nigh")).current_dir(folder).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).replace('\n', " ")
}

#[test]
fn files_17_a_guess_is_printed_and_its_line_confirms_it() {
    let folder = tempfile::tempdir().unwrap();
    let content = "timestamp;dev;op;lba;sectors\n1795863225.5;sda;get;64;8\n1795863225.6;sdb;set;64;8\n";
    std::fs::write(folder.path().join("a.csv"), content).unwrap();
    let guessed = nigh(folder.path(), &["trace", "head", "a.csv"]);
    let said = stderr(&guessed);
    assert!(guessed.status.success(), "{said}");
    let line = said.split_once("--columns ").expect(&said).1.split(' ').next().unwrap();
    let confirmed = nigh(folder.path(), &["trace", "head", "a.csv", "--columns", line]);
    assert_eq!((&confirmed.stdout, &stderr(&confirmed)[..]), (&guessed.stdout, ""));
}

#[test]
fn files_17_settings_hold_for_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let blocks: Vec<u8> =
        [7_u32, 0, 70_000, 5, 70_001, 3, 2, 1, 9, 9, 9, 9].iter().flat_map(|block| block.to_le_bytes()).collect();
    std::fs::write(folder.path().join("a.bin"), blocks).unwrap();
    std::fs::write(folder.path().join("b.csv"), "1,8\n2,8\n1,8\n").unwrap();
    std::fs::write(folder.path().join("c,format=d"), "1\n2\n1\n").unwrap();
    let ambiguous = nigh(folder.path(), &["sim", "a.bin", "-p", "lru", "-s", "2b"]);
    assert!(stderr(&ambiguous).contains("--format raw-u32"), "{}", stderr(&ambiguous));
    let both = "b.csv,columns=offset=0,length=1,offset-unit=sectors,length-unit=sectors";
    let output =
        nigh(folder.path(), &["sim", "a.bin,format=raw-u32", both, "c,format=d", "-p", "lru", "-s", "2b", "--csv"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["a.bin,", "b.csv,", "\"c,format=d\","] {
        assert!(text.contains(&format!("\n{name}")), "{text}");
    }
    for (trace, expected) in [("a.bin,fromat=raw-u32", "Did you mean 'format'?"), ("a.bin,limit", "`limit`")] {
        let output = nigh(folder.path(), &["sim", trace, "-p", "lru", "-s", "2b"]);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn files_16_bad_lines_are_counted_with_skip_bad() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.lirs"), "1\n2\ngarbage\n1\n").unwrap();
    let output = nigh(folder.path(), &["sim", "a.lirs", "-p", "lru", "-s", "2b"]);
    assert!(!output.status.success() && stderr(&output).contains("--skip-bad"), "{}", stderr(&output));
    let output = nigh(folder.path(), &["sim", "a.lirs", "-p", "lru", "-s", "2b", "--skip-bad"]);
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("1 lines") && said.contains("line 3: found `garbage`"), "{said}");
}
