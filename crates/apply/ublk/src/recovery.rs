//! Whether a device that waits for a server may go on with this one.
//!
//! A device whose server has gone keeps its requests, and those that the server had, until another server takes it. Its users rely on writes that were acknowledged.
//! These are lost if the server was killed with blocks that it had not written. Therefore a device goes on only if
//!
//! * its server ended in order and had written everything: it has noted that in the file of the device's number, or
//! * writes were acknowledged when they were on the disk, from the device's beginning: that is noted in the device itself.
//!
//! Any other device is ended, which its users see as errors, and replaced by a new one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::kernel::{DEAD, Info, LIVE, QUIESCED};

/// The folder of the files with which servers note their end.
pub(crate) const FOLDER: &str = "/run/nigh-ublk";

/// Set in all of nigh's devices.
const MARK: u64 = 0x4e46;
const MARK_BITS: u32 = 16;
/// Writes were acknowledged when they were on the disk.
const SURVIVES: u64 = 1;

/// The number that a device keeps: the disk that it is, and whether it survives a killed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own(u64);

impl Own {
    /// Of the disk `name` with these targets.
    pub(crate) fn new<'a>(name: &str, targets: impl Iterator<Item = &'a str>, survives: bool) -> Own {
        let mut text = name.to_owned();
        for target in targets {
            text.push('\0');
            text.push_str(target);
        }
        let hash = XxHash3_64::oneshot(text.as_bytes()) << MARK_BITS;
        Own(hash | MARK | if survives { SURVIVES } else { 0 })
    }

    /// That of a device, if it is one of nigh's.
    pub(crate) fn of(info: &Info) -> Option<Own> {
        let mark = info.own & ((1 << MARK_BITS) - 1);
        (mark & !SURVIVES == MARK).then_some(Own(info.own))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn survives(self) -> bool {
        self.0 & SURVIVES != 0
    }

    /// Whether both are the same disk.
    pub(crate) fn is_same_disk(self, other: Own) -> bool {
        self.0 | SURVIVES == other.0 | SURVIVES
    }
}

/// Fate of a device of the same disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on with this server.
    GoesOn,
    /// It ends: its users may rely on writes that are lost.
    Ends,
    /// A server has it.
    Taken,
}

/// The fate of the device `info`, whose last server has `ended` in order or not; the loss of writes may be `accepted`.
pub(crate) fn fate(info: &Info, ended: bool, accepted: bool) -> Fate {
    let survives = Own::of(info).is_some_and(Own::survives);
    match info.state {
        LIVE => Fate::Taken,
        QUIESCED if ended || survives || accepted => Fate::GoesOn,
        QUIESCED | DEAD => Fate::Ends,
        // A state of a later driver.
        _ => Fate::Ends,
    }
}

/// The file with which the server of a device notes its end. It is opened at the beginning, when the process may open it.
#[derive(Debug)]
pub(crate) struct Note {
    file: File,
    path: PathBuf,
}

/// Longest text of a note.
const NOTE_MAX: usize = 128;
const RUNNING: &str = "served";

impl Note {
    /// Of the device of this number.
    pub(crate) fn open(folder: &Path, device: u32) -> io::Result<Note> {
        if !folder.is_dir() {
            std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        }
        let path = folder.join(device.to_string());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        Ok(Note { file, path })
    }

    /// Text of the end of the server `process` of a device in this boot of the system.
    fn text(own: u64, process: i32) -> String {
        // The same number of bytes each, so that a shorter note leaves nothing of a longer one.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        format!("ended {own:016x} {process:010} {:40}\n", boot.trim())
    }

    /// Whether the last server of the device ended in order.
    pub(crate) fn has_ended(&self, info: &Info) -> bool {
        let mut bytes = [0; NOTE_MAX];
        let read = self.file.read_at(&mut bytes, 0).unwrap_or(0);
        bytes[..read] == *Note::text(info.own, info.process).as_bytes()
    }

    fn write(&self, text: &str) {
        if let Err(error) = self.file.write_all_at(text.as_bytes(), 0) {
            tracing::warn!(file = %self.path.display(), %error, "cannot be written: the device will not go on with another server");
        }
    }

    /// A server has the device.
    pub(crate) fn begin(&self) {
        self.write(&format!("{RUNNING:width$}\n", width = Note::text(0, 0).len() - 1));
    }

    /// This process has ended as the server of a device, and everything is written.
    pub(crate) fn end(&self, own: Own) {
        self.write(&Note::text(own.number(), std::process::id() as i32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str, target: &str, survives: bool) -> Own {
        Own::new(name, [target].into_iter(), survives)
    }

    fn info(state: u16, own: Own, process: i32) -> Info {
        Info { state, own: own.number(), process, ..Info::default() }
    }

    #[test]
    fn a_device_knows_its_disk() {
        let disk = own("root", "/srv/root.img", false);
        assert!(disk.is_same_disk(own("root", "/srv/root.img", true)));
        for (name, target) in [("data", "/srv/root.img"), ("root", "/srv/data.img"), ("root/srv/root.img", "")] {
            assert!(!disk.is_same_disk(own(name, target, false)), "{name} {target}");
        }
        // It does not change from one version to the next: devices would be lost.
        assert_eq!(disk.number(), 0x7ace_bcc7_691b_4e46);
        assert_eq!(Own::of(&info(LIVE, disk, 1)), Some(disk));
        assert_eq!(Own::of(&Info { own: 0x1234, ..Info::default() }), None);
        assert_eq!(Own::of(&Info::default()), None);
    }

    #[test]
    fn only_a_device_that_lost_nothing_goes_on() {
        let (back, through) = (own("a", "b", false), own("a", "b", true));
        for (state, own, ended, accepted, wanted) in [
            (QUIESCED, back, true, false, Fate::GoesOn),
            (QUIESCED, back, false, false, Fate::Ends),
            (QUIESCED, back, false, true, Fate::GoesOn),
            (QUIESCED, through, false, false, Fate::GoesOn),
            (LIVE, through, true, true, Fate::Taken),
            (DEAD, through, true, true, Fate::Ends),
            (3, through, true, true, Fate::Ends),
        ] {
            assert_eq!(fate(&info(state, own, 1), ended, accepted), wanted, "state {state}");
        }
    }

    #[test]
    fn the_end_of_a_server_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let (own, process) = (own("a", "b", false), std::process::id() as i32);
        let note = Note::open(&folder, 3).unwrap();
        let served = info(QUIESCED, own, process);
        assert!(!note.has_ended(&served));
        note.end(own);
        assert!(note.has_ended(&served) && Note::open(&folder, 3).unwrap().has_ended(&served));
        // The end of another server, or of another device's.
        assert!(!note.has_ended(&Info { process: process + 1, ..served }));
        assert!(!note.has_ended(&Info { own: own.number() + 1, ..served }));
        assert!(!Note::open(&folder, 4).unwrap().has_ended(&served));
        note.begin();
        assert!(!note.has_ended(&served));
        note.end(own);
        assert!(note.has_ended(&served));
    }
}
