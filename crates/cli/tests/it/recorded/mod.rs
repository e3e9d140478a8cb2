//! Programs that the tests of recordings compile, and what is in a recording. Not every test needs all of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nigh_testkit::tools::{installed, run};
use nigh_trace::{Op, ReadOptions, Request, Stream};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

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

/// The calls seen by `strace` that transfer data to and from files in a folder, except what the dynamic linker reads.
pub(crate) fn straced(
    mut strace: Command,
    log: &Path,
    program: &[&str],
    below: &Path,
) -> (Output, BTreeMap<&'static str, usize>) {
    let calls = "trace=read,pread64,readv,preadv,preadv2,write,pwrite64,writev,pwritev,pwritev2,copy_file_range";
    strace.args(["-f", "-y", "-e", calls, "-s", "8", "-o", log.to_str().unwrap()]).args(program);
    let output = strace.stdin(Stdio::null()).output().unwrap();
    let mut counts = BTreeMap::from([("read", 0), ("write", 0)]);
    for line in String::from_utf8_lossy(&std::fs::read(log).unwrap()).lines() {
        // `1234 read(3</etc/passwd>, "root:x:0"..., 4096) = 2996`, whole or unfinished.
        let Some((name, rest)) = line.split_once(' ').map_or("", |(_, call)| call.trim_start()).split_once('(') else {
            continue;
        };
        let is_file = |text: &str| {
            text.split_once("</").is_some_and(|(_, path)| {
                let is_below = Path::new("/").join(path.split('>').next().unwrap()).starts_with(below);
                is_below && !path.starts_with("dev/") && !path.starts_with("proc/")
            })
        };
        // The beginning of a library, and its table of segments.
        let is_linker = (rest.contains("\"\\177ELF") && rest.contains(", 832"))
            || (name == "pread64" && rest.contains("\"\\6\\0\\0\\0\\4\\0\\0\\0"));
        if name.starts_with('<') || is_linker {
            continue;
        }
        match name {
            "copy_file_range" => counts.values_mut().for_each(|count| *count += 1),
            _ if !is_file(rest) => {}
            _ if name.contains("write") => *counts.get_mut("write").unwrap() += 1,
            _ => *counts.get_mut("read").unwrap() += 1,
        }
    }
    (output, counts)
}

/// The calls that transfer data to and from files in a folder, in a recording; none if there is none.
pub(crate) fn counted(recording: &Path, below: &Path) -> BTreeMap<&'static str, usize> {
    counted_of(recording, |path| path.starts_with(below))
}

/// The same for the files that `is_counted`.
pub(crate) fn counted_of(recording: &Path, is_counted: impl Fn(&Path) -> bool) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::from([("read", 0), ("write", 0)]);
    let Ok(file) = File::open(recording) else { return counts };
    for row in SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap().map(Result::unwrap) {
        let text = |name: &str| match row.get_column_iter().find(|(column, _)| *column == name) {
            Some((_, Field::Str(text))) => text,
            other => panic!("{name}: {other:?}"),
        };
        if let Some(count) = counts.get_mut(&**text("op")).filter(|_| is_counted(Path::new(text("path")))) {
            *count += 1;
        }
    }
    counts
}
