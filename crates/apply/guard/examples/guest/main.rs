//! The guard on a real kernel, run as root in a guest with cgroup v2 and swap (`cargo xtask guard-guest`).

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

mod cases;
mod systemd;
mod whole;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

const MIB: u64 = 1 << 20;
const CGROUPS: &str = "/sys/fs/cgroup";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cases"] => cases::run(),
        ["whole"] => whole::run(),
        ["systemd"] => systemd::run(),
        [program, bytes] => {
            let bytes = bytes.parse().expect("bytes");
            match program {
                "hold" => hold(bytes),
                "want" => want(bytes),
                "thrash" => whole::thrash(bytes),
                _ => panic!("hold, want or thrash?"),
            }
            return ExitCode::SUCCESS;
        }
        _ => panic!("cases, whole or systemd?"),
    };
    println!("guest: {}", if passed { "passed" } else { "failed" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes the groups `box`, of this many bytes, and `box/a` and `box/b` in it.
fn groups(limit: u64) {
    for group in ["", "box", "box/a", "box/b"] {
        fs::create_dir_all(file(group, "")).expect("cgroups are mounted");
        fs::write(file(group, "cgroup.subtree_control"), "+memory").expect("the memory controller");
    }
    fs::write(file("box", "memory.max"), limit.to_string()).expect("a limit");
}

fn file(group: &str, name: &str) -> PathBuf {
    Path::new(CGROUPS).join(group).join(name)
}

/// This program in a new group; returns once it has what it wants.
fn start(what: &str, group: &str, bytes: u64) -> Child {
    fs::create_dir_all(file(group, "")).expect("a group");
    let mut command = Command::new("/proc/self/exe");
    command.args([what, &bytes.to_string()]).stdout(Stdio::piped());
    // Born in the group: what it used before it came would be charged elsewhere, and not be protected.
    enter(group);
    let mut child = command.spawn().expect("it starts");
    enter("");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it is ready");
    child
}

fn enter(group: &str) {
    fs::write(file(group, "cgroup.procs"), "0").expect("the group is there");
}

fn ready() {
    println!("ready");
    std::io::stdout().flush().expect("the parent reads");
}

/// Bytes that no compression or merging makes smaller.
fn fill(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes / 8).flatten().collect()
}

/// Fills memory and touches it no more.
fn hold(bytes: usize) -> ! {
    let memory = fill(bytes);
    ready();
    loop {
        std::thread::park();
        assert!(memory.len() <= bytes);
    }
}

/// Fills memory and goes through it three times.
fn want(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    for pass in 1..=3 {
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = pass);
    }
    assert!(memory.iter().step_by(4096).all(|byte| *byte == 3));
    ready();
}
