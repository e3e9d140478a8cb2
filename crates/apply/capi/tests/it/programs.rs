//! Programs in C and C++ that use the library, with the address sanitizer.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::built::{Built, installed};

const BLOCK: u64 = 4096;

fn check(test: &str, source: &str) {
    if installed(test, &["gcc"]) {
        Built::new().check(source);
    }
}

#[test]
fn pins_and_changes() {
    check("pins_and_changes", "pins.c");
}

#[test]
fn a_queue_with_poll() {
    check("a_queue_with_poll", "queue.c");
}

#[test]
fn a_child_gets_errors_and_its_parent_goes_on() {
    check("a_child_gets_errors_and_its_parent_goes_on", "fork.c");
}

#[test]
fn leaked_pins_stop_nobody_else() {
    check("leaked_pins_stop_nobody_else", "leak.c");
}

#[test]
fn a_device_of_the_programs_own() {
    check("a_device_of_the_programs_own", "device.c");
}

#[test]
fn a_program_in_c_plus_plus() {
    if installed("a_program_in_c_plus_plus", &["g++"]) {
        Built::new().check("plus.cc");
    }
}

#[test]
fn a_killed_program_has_lost_nothing_that_it_flushed() {
    const STEPS: u64 = 300;
    if !installed("a_killed_program_has_lost_nothing_that_it_flushed", &["gcc"]) {
        return;
    }
    let built = Built::new();
    let program = built.compile("killed.c", &[]);
    let path = built.folder.path().join("killed.data");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(64 * BLOCK).unwrap();
    let mut child = Command::new(program).arg(built.folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut last = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        last = line.unwrap().parse().unwrap();
        if last == STEPS {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(last >= STEPS, "it ended after {last} changes");
    for block in 0..64 {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, block * BLOCK).unwrap();
        let step = u64::from_le_bytes(bytes);
        // The block may also have the change that was not flushed yet.
        let flushed = last - (last + 64 - block) % 64;
        assert!(
            step == flushed || step == last + 1 && step % 64 == block,
            "block {block}: {step} after {last} changes"
        );
    }
}
