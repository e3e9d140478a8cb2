//! A program that reads files under advice, for the tests against the kernel.
//!
//! `reader advised|plain CLASS BUDGET PASSES PATH…` reads the files in order, `PASSES` times, in pieces of 64 KiB, and
//! prints for each pass the bytes that the device read for it (`/proc/self/io`).

use std::error::Error;
use std::fs::{File, read_to_string};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use nigh_advise::{Adviser, Class, Hint, Read};
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};

fn device_reads() -> Result<u64, Box<dyn Error>> {
    let io = read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("no read_bytes")?.parse()?)
}

fn give(file: &File, hint: Hint) {
    let (range, advice) = match hint {
        Hint::Drop(range) => (range, Advice::DontNeed),
        Hint::Fetch(range) => (range, Advice::WillNeed),
        Hint::Random => (0..0, Advice::Random),
    };
    fadvise(file, range.start, std::num::NonZeroU64::new(range.end - range.start), advice).expect("advice");
}

/// Whether the first page of `range` is cached: the kernel does not wait for the device, nor ask it.
fn is_resident(file: &File, range: Range<u64>) -> bool {
    let mut byte = [0];
    let mut bytes = [std::io::IoSliceMut::new(&mut byte)];
    preadv2(file, &mut bytes, range.start, ReadWriteFlags::NOWAIT).is_ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, class, budget, passes, paths @ ..] = arguments.as_slice() else {
        return Err("reader advised|plain CLASS BUDGET PASSES PATH…".into());
    };
    let class = match class.as_str() {
        "sequential" => Class::Sequential,
        "loop" => Class::Loop,
        "short" => Class::Short,
        "random" => Class::Random,
        other => return Err(format!("class {other}").into()),
    };
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(budget.parse()?);
    let mut buffer = vec![0; 64 << 10];
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
            loop {
                if mode == "advised" {
                    let read = Read { file: number, size, offset, length: buffer.len() as u64, class };
                    adviser.read(&read, |range| is_resident(&file, range), |hint| give(&file, hint));
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
