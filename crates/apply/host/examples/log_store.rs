//! A device of the program's own: a disk whose blocks are appended to a log, so that writes in any order reach the file in sequence.
//!
//! `cargo run --release -p nigh-host --example log_store`

#![allow(clippy::print_stdout, reason = "its output")]

use std::collections::HashMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nigh_host::{BLOCK, Custom, CustomAction, CustomDevice, CustomRequest, DiskSettings, Host, Settings, Target};

const DISK: u64 = 16 << 20;
/// A record of the log: the number of a block, and its bytes.
const RECORD: u64 = 8 + BLOCK;

struct Log {
    file: File,
    state: Mutex<State>,
}

struct State {
    /// The positions of the latest bytes of each block.
    records: HashMap<u64, u64>,
    end: u64,
}

impl Log {
    /// Reads the numbers of all records. An incomplete one at the end was never flushed.
    fn open(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut state = State { records: HashMap::new(), end: 0 };
        let mut number = [0; 8];
        while state.end + RECORD <= file.metadata()?.len() {
            file.read_exact_at(&mut number, state.end)?;
            state.records.insert(u64::from_le_bytes(number), state.end);
            state.end += RECORD;
        }
        Ok(Log { file, state: Mutex::new(state) })
    }

    fn append(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = Vec::with_capacity(RECORD as usize);
        record.extend_from_slice(&block.to_le_bytes());
        record.extend_from_slice(bytes);
        self.file.write_all_at(&record, state.end)?;
        let at = state.end;
        state.records.insert(block, at);
        state.end += RECORD;
        Ok(())
    }

    fn read(&self, block: u64, into: &mut [u8]) -> io::Result<()> {
        let at = self.state.lock().unwrap_or_else(PoisonError::into_inner).records.get(&block).copied();
        match at {
            Some(at) => self.file.read_exact_at(into, at + 8),
            None => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn act(&self, range: Range<u64>, action: CustomAction<'_>) -> io::Result<()> {
        let mut blocks = range.start / BLOCK..range.end / BLOCK;
        match action {
            CustomAction::Read(slices) => {
                slices.into_iter().zip(blocks).try_for_each(|(mut slice, block)| self.read(block, &mut slice))
            }
            CustomAction::Write(slices) => {
                slices.iter().zip(blocks).try_for_each(|(slice, block)| self.append(block, slice))
            }
            CustomAction::Flush => self.file.sync_data(),
            CustomAction::Discard => Ok(()),
            CustomAction::Zero => blocks.try_for_each(|block| self.append(block, &[0; BLOCK as usize])),
        }
    }
}

impl CustomDevice for Log {
    fn size(&self) -> io::Result<u64> {
        Ok(DISK)
    }

    fn perform(&self, mut request: CustomRequest) {
        let result = self.act(request.range(), request.action());
        request.finish(result);
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("nigh-log-{}", std::process::id()));
    let start = || -> Result<Host, Box<dyn Error>> {
        let target = Target::Custom(Custom::new("log", 2, Arc::new(Log::open(&path)?)));
        Ok(Host::start(Settings::new(4 << 20, "s3-fifo".parse()?, vec![DiskSettings::new("store", target)]))?)
    };
    let contents = |at: u64| [at as u8; 100];
    // Each block once, in no order.
    let place = |at: u64| {
        let block = at * 7919 % (DISK / BLOCK);
        block * BLOCK..(block + 1) * BLOCK
    };
    let host = start()?;
    let store = host.open("store")?;
    for at in 0..2000_u64 {
        store.write(place(at).start, &contents(at), false)?;
    }
    store.flush()?;
    host.shut_down().map_err(|unwritten| format!("{unwritten:?}"))?;

    let host = start()?;
    let store = host.open("store")?;
    for at in 0..2000_u64 {
        assert_eq!(store.pin(place(at))?[..100], contents(at));
    }
    println!("a log of {} KiB has the last bytes of 2000 blocks", std::fs::metadata(&path)?.len() >> 10);
    std::fs::remove_file(path)?;
    Ok(())
}
