//! Files that commands write besides what they print: they are checked first, and failing to write one costs no result.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::command::{nigh, refused};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn outputs_are_checked_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    // A command that reads it stumbles over its second line: one that is refused first has not read it.
    let trace = folder.path().join("bad.lirs");
    std::fs::write(&trace, "1\nx\n").unwrap();
    let nowhere = folder.path().join("missing/out.csv");
    let (trace, nowhere, itself) = (text(&trace), text(&nowhere), text(folder.path()));
    let good = folder.path().join("good.csv");
    let all: [&[&str]; 8] = [
        &["sim", trace, "--html", nowhere],
        &["sim", trace, "--device", "hdd-7200", "--html", nowhere],
        &["sim", trace, "--levels", "1M,2M", "--html", nowhere],
        &["demo", "--html", nowhere],
        &["trace", "convert", trace, nowhere],
        &["trace", "layout", trace, nowhere],
        &["trace", "layout", trace, text(&good), "--extents", nowhere],
        &["devices", "fit", trace, "--output", nowhere],
    ];
    for arguments in all {
        let start = Instant::now();
        let printed = refused(arguments);
        assert!(printed.contains("out.csv: there is no folder "), "{arguments:?}: {printed}");
        assert!(printed.trim_end().ends_with("missing; create it first"), "{arguments:?}: {printed}");
        assert!(start.elapsed() < Duration::from_secs(10), "{arguments:?}");
    }
    let printed = refused(&["trace", "generate", "zipf:blocks=1k", nowhere]);
    assert!(printed.contains("there is no folder "), "{printed}");
    let printed = refused(&["sim", trace, "--html", itself]);
    assert!(printed.contains("this is a folder; name a file in it"), "{printed}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a check leaves nothing behind");
}

#[test]
fn a_table_is_never_lost_because_a_file_could_not_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.lirs");
    std::fs::write(&trace, "1\n2\n1\n3\n1\n").unwrap();
    let common = ["sim", text(&trace), "--policy", "lru,fifo", "--size", "2b"];
    for (more, expected) in [
        (&[][..], "hit ratio"),
        (&["--json"], "\"hit_ratio\":"),
        (&["--csv"], "policy,size_blocks"),
        (&["--device", "ssd-nvme"], "execution time"),
    ] {
        // It can be opened, but every write fails.
        let output = nigh(&[&common, more, &["--html", "/dev/full"]].concat());
        let (printed, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(printed.contains(expected), "{more:?}: {printed}");
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.starts_with("nigh: /dev/full: ") && said.lines().count() == 1, "{more:?}: {said}");
        assert!(!printed.contains("wrote"), "{more:?}: {printed}");
    }
}
