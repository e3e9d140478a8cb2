//! Sick devices: files of this process that are well when a server opens them, and then fall ill.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nigh_testkit::fuse::{self, Mounted};

use super::Turn;

const LENGTH: u64 = 1 << 30;
/// More than a server has requests at a device at a time.
const THREADS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// Each request takes this time.
    Slow(Duration),
    /// Nothing is answered.
    Hung,
    /// All requests fail.
    Eio,
    /// All writes fail.
    Enospc,
    /// Half of each read and write is done, and reported as such.
    Short,
    /// Half of each write is done, and then it fails.
    Torn,
    /// The device is gone.
    Vanished,
    /// The file is half as long, and then as long as before, and so on.
    Resizing,
}

/// Of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Device {
    Slow,
    Sick(&'static str, Symptom),
}

pub(crate) const DEVICES: [Device; 8] = [
    Device::Slow,
    Device::Sick("device hung", Symptom::Hung),
    Device::Sick("device with EIO", Symptom::Eio),
    Device::Sick("device with ENOSPC", Symptom::Enospc),
    Device::Sick("device with short transfers", Symptom::Short),
    Device::Sick("device with torn writes", Symptom::Torn),
    Device::Sick("device vanished (ENODEV)", Symptom::Vanished),
    Device::Sick("device that changes its size", Symptom::Resizing),
];

impl Device {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Device::Slow => "device slow (50 ms a request)",
            Device::Sick(name, _) => name,
        }
    }

    /// `None` for a slow one, which nigh makes by itself.
    pub(crate) fn symptom(self) -> Option<Symptom> {
        match self {
            Device::Slow => None,
            Device::Sick(_, symptom) => Some(symptom),
        }
    }
}

/// A device that keeps nothing: reads are zeros. It begins well.
#[derive(Default)]
pub(crate) struct Sick {
    symptom: Mutex<Option<Symptom>>,
    requests: AtomicU64,
}

impl Sick {
    /// Mounts it on a folder. Its threads take no processor from a server, as a device would not: each one computes for 9 ms
    /// when it starts.
    pub(crate) fn mount(self: &Arc<Sick>, folder: &Path) -> io::Result<Mounted> {
        let mount = || {
            Turn::Last.take().expect("a lower priority needs no right");
            Mounted::new(folder, self.clone(), THREADS)
        };
        std::thread::scope(|scope| scope.spawn(mount).join().expect("mounting does not panic"))
    }

    pub(crate) fn fall_ill(&self, symptom: Symptom) {
        *self.symptom.lock().expect("no thread panics") = Some(symptom);
    }

    pub(crate) fn heal(&self) {
        *self.symptom.lock().expect("no thread panics") = None;
    }

    fn is(&self, symptom: Symptom) -> bool {
        *self.symptom.lock().expect("no thread panics") == Some(symptom)
    }

    /// The common part of all requests.
    fn begin(&self) -> io::Result<()> {
        while self.is(Symptom::Hung) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let symptom = *self.symptom.lock().expect("no thread panics");
        match symptom {
            Some(Symptom::Slow(time)) => std::thread::sleep(time),
            Some(Symptom::Eio) => return Err(io::Error::from_raw_os_error(nix::libc::EIO)),
            Some(Symptom::Vanished) => return Err(io::Error::from_raw_os_error(nix::libc::ENODEV)),
            _ => {}
        }
        Ok(())
    }
}

impl fuse::Device for Sick {
    fn length(&self) -> u64 {
        let is_short = self.is(Symptom::Resizing) && (self.requests.load(Ordering::Relaxed) / 64).is_multiple_of(2);
        if is_short { LENGTH / 2 } else { LENGTH }
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.begin()?;
        let rest = self.length().saturating_sub(offset) as usize;
        let length = if self.is(Symptom::Short) { length / 2 } else { length };
        Ok(vec![0; length.min(rest)])
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        if self.is(Symptom::Enospc) || offset + bytes.len() as u64 > self.length() {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        if self.is(Symptom::Torn) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        Ok(if self.is(Symptom::Short) { bytes.len() / 2 } else { bytes.len() })
    }

    fn sync(&self) -> io::Result<()> {
        self.begin()
    }
}
