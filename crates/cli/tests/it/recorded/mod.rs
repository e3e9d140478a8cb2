//! Programs that the tests of recordings compile, and what is in a recording. Not every test needs all of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_testkit::tools::{installed, run};
use nigh_trace::{Op, ReadOptions, Request, Stream};

/// The requests of a recording.
pub(crate) fn requests(path: &Path, stream: Option<Stream>) -> Vec<Request> {
    let mut opened = nigh_trace::open(path, &ReadOptions { stream, ..ReadOptions::default() }).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.append(&mut batch);
    }
}

/// Compiles one of these programs into `folder`; `None`, and `test` is reported as skipped, without a compiler.
pub(crate) fn compiled(test: &str, folder: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !installed(test, "gcc") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/recorded/{name}.c"));
    let program = folder.join(name);
    let output = ["-o", program.to_str().unwrap(), source.to_str().unwrap()];
    run("gcc", &[&["-O1", "-pthread", "-w"], flags, &output].concat());
    Some(program)
}

/// A program that reads one file under three names, then one in its place, and then one after that was removed.
pub(crate) const RENAMES: [&str; 3] = [
    "sh",
    "-c",
    "echo one >a; cat a; mv a b; cat b; mkdir in; mv b in/c; cat in/c; echo two >new; mv new in/c; cat in/c; rm in/c; echo three >in/c; \
     cat in/c",
];

/// A file that is renamed is the same one, and one that takes the place of another is not. `record` records [`RENAMES`].
pub(crate) fn renames_are_followed(folder: &Path, mut record: Command) {
    let output = record.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\none\none\ntwo\nthree\n");
    let found = requests(&folder.join("a.parquet"), None);
    let is_cat = |request: &&Request| request.op == Op::Read && (4..7).contains(&request.length);
    let files: Vec<u32> = found.iter().filter(is_cat).map(|read| read.volume).collect();
    let [first, second, third, replaced, again] = files[..] else { panic!("{files:?}") };
    assert_eq!([second, third], [first; 2], "renamed");
    assert!(first != replaced && replaced != again && first != again, "{files:?}");
}
