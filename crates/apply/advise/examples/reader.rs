//! A program that reads files under advice, for the tests against the kernel.
//!
//! `reader advised|plain CLASS BUDGET PASSES PATH…` reads the files in order, `PASSES` times, in pieces of 64 KiB, and
//! prints for each pass the bytes that the device read for it (`/proc/self/io`). It
//! takes what it reads in sequence for not resident.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

use std::error::Error;
use std::fs::{File, read_to_string};
use std::os::unix::fs::{FileExt, MetadataExt};

use nigh_advise::{Adviser, Class, Hint, Read};
use rustix::fs::{Advice, fadvise};

fn device_reads() -> Result<u64, Box<dyn Error>> {
    let io = read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("no read_bytes")?.parse()?)
}

fn give(file: &File, hint: Hint) {
    let (range, advice) = match hint {
        Hint::Drop(range) => (range, Advice::DontNeed),
        Hint::Fetch(range) => (range, Advice::WillNeed),
    };
    fadvise(file, range.start, std::num::NonZeroU64::new(range.end - range.start), advice).expect("advice");
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, class, budget, passes, paths @ ..] = arguments.as_slice() else {
        return Err("reader advised|plain CLASS BUDGET PASSES PATH…".into());
    };
    let class = match class.as_str() {
        "sequential" => Class::Sequential,
        "loop" => Class::Loop,
        "random" => Class::Random,
        // `short:65536`: of each file, this many bytes are read, in pieces of 4 KiB.
        other => match other.strip_prefix("short:") {
            Some(run) => Class::Short { run: run.parse()? },
            None => return Err(format!("class {other}").into()),
        },
    };
    let (piece, most) = if let Class::Short { run } = class { (4096, run) } else { (64 << 10, u64::MAX) };
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(budget.parse()?);
    let mut buffer = vec![0; piece];
    let mut files = Vec::new();
    for path in paths {
        if std::fs::metadata(path)?.is_dir() {
            let entries: Result<Vec<_>, _> = std::fs::read_dir(path)?.collect();
            files.extend(entries?.into_iter().map(|entry| entry.path()));
        } else {
            files.push(path.into());
        }
    }
    files.sort();
    for _ in 0..passes.parse()? {
        let before = device_reads()?;
        for path in &files {
            let file = File::open(path)?;
            let (number, size) = (file.metadata()?.ino(), file.metadata()?.size());
            let mut offset = 0;
            while offset < most {
                if mode == "advised" {
                    let read = Read { reader: number, file: number, size, offset, length: buffer.len() as u64, class };
                    adviser.read(&read, |_| false, |hint| give(&file, hint));
                }
                let got = file.read_at(&mut buffer, offset)?;
                if got == 0 {
                    break;
                }
                offset += got as u64;
            }
            adviser.close(number, size, |hint| give(&file, hint));
        }
        println!("{}", device_reads()? - before);
    }
    Ok(())
}
