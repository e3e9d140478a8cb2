//! External programs for tests: if one is not installed, its tests are skipped by name.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::process::{Command, Stdio};

/// Whether `tool` is installed; otherwise prints that `test` is skipped.
pub fn installed(test: &str, tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()));
    if !found {
        println!("skipped: {test}: {tool} is not installed");
    }
    found
}

/// Runs a tool to its end and returns its output.
///
/// # Panics
/// With the output, if the tool fails.
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).stdin(Stdio::null()).output().expect("the tool is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// Writes, reads, discards and zeroes a disk of at least 6 MiB with qemu-io, aligned and not, and checks the data it
/// reads.
///
/// # Panics
/// If data differs from what was written.
pub fn qemu_io(uri: &str) {
    let mut arguments = vec!["-f", "raw", "-t", "writeback", "-d", "unmap"];
    for command in [
        "write -P 0x11 0 1M",
        "write -P 0x22 -f 1M 1M",
        "read -P 0x11 0 1M",
        "read -P 0x22 1M 1M",
        "write -P 0x33 3000 777",
        "read -P 0x33 3000 777",
        "read -P 0x11 3777 5000",
        "write -z 1M 512k",
        "read -P 0 1M 512k",
        "write -z -u 1536k 512k",
        "read -P 0 1536k 512k",
        "discard 0 64k",
        "flush",
        "aio_write -P 0x44 4M 1M",
        "aio_write -P 0x55 5M 1M",
        "aio_read 0 4M",
        "aio_flush",
        "read -P 0x44 4M 1M",
        "read -P 0x55 5M 1M",
    ] {
        arguments.extend(["-c", command]);
    }
    arguments.push(uri);
    let text = run("qemu-io", &arguments);
    assert!(!text.contains("failed") && !text.contains("error"), "{text}");
}

/// Whether fio can drive an NBD server; otherwise prints that `test` is skipped.
pub fn fio_speaks_nbd(test: &str) -> bool {
    if !installed(test, "fio") {
        return false;
    }
    let found = run("fio", &["--enghelp"]).contains("nbd");
    if !found {
        println!("skipped: {test}: fio has no nbd engine");
    }
    found
}

/// A Python that has libnbd's module; otherwise prints that `test` is skipped.
pub fn python_with_libnbd(test: &str) -> Option<&'static str> {
    // The system's own Python has the packages, whatever comes first on the path.
    let has_it = |python: &&str| {
        let output = Command::new(python).args(["-c", "import nbd"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_it);
    if found.is_none() {
        println!("skipped: {test}: no Python has the module nbd");
    }
    found
}

/// `length` bytes of which the middle half is zeroes, and no two other blocks are alike.
pub fn half_empty(length: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..length as u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    data[length / 4..length * 3 / 4].fill(0);
    data
}
