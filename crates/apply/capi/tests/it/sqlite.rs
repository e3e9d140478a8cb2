//! SQLite whose page cache is the library: `examples/sqlite.c`.

use std::process::Command;

use crate::built::{Built, installed, own, run};

#[test]
fn sqlite_with_its_pages_in_nigh() {
    const TEST: &str = "sqlite_with_its_pages_in_nigh";
    if !installed(TEST, &["gcc", "pkg-config"]) {
        return;
    }
    if !Command::new("pkg-config").args(["--exists", "sqlite3"]).status().is_ok_and(|status| status.success()) {
        return skipped(TEST, "libsqlite3-dev is not installed");
    }
    let built = Built::new();
    let (folder, program) = (built.folder.path(), built.folder.path().join("sqlite"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2"]);
    gcc.arg("-I").arg(own("include")).arg(own("examples/sqlite.c")).arg("-o").arg(&program);
    gcc.arg("-L").arg(folder).arg(format!("-Wl,-rpath,{}", folder.display()));
    run(gcc.args(["-lnigh", "-lsqlite3", "-lm"]));
    // More rows than fit into the cache. The program compares the sum of the changes with their number.
    let text = run(Command::new(&program).arg(folder).args(["1", "20000", "300"]));
    let lines: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    let reads = |name: &str| {
        let line = lines.iter().find(|line| line[1..].starts_with(&[name]) || line[2..].starts_with(&[name]));
        let line = line.unwrap_or_else(|| panic!("no line of {name}:\n{text}"));
        line.last().unwrap().parse::<u64>().unwrap()
    };
    let (own, on_nigh) = (reads("direct"), reads("nigh"));
    assert!(own > 100 && on_nigh > 100, "both read the file:\n{text}");
    assert!(on_nigh < own * 3 / 2, "as a cache of this size does:\n{text}");
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn skipped(test: &str, why: &str) {
    println!("skipped: {test}: {why}");
}
