//! Programs that the tests of recordings compile, and what is in a recording. Not every test needs all of it.

#![allow(dead_code)]

use std::path::{Path, PathBuf};

use nigh_testkit::tools::{installed, run};
use nigh_trace::{ReadOptions, Request, Stream};

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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{name}.c"));
    let program = folder.join(name);
    let output = ["-o", program.to_str().unwrap(), source.to_str().unwrap()];
    run("gcc", &[&["-O1", "-pthread", "-w"], flags, &output].concat());
    Some(program)
}
