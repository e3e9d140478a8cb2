//! Stamps: evidence that nobody changed a file or block device while no host served it.
//!
//! * A regular file: the time of its last change.
//! * A block device, as long as the machine runs: the kernel's counts of sectors written and discarded. A partition has those of its
//!   whole disk, because it can be written through that; a loop device also has the stamp of its file. Devices that stand on
//!   others (LVM, device mapper, MD) have none: the kernel counts neither writes to the devices below nor a merged snapshot.
//!
//! Writes that bypass the counts (by another machine to shared storage, or with commands of SCSI or NVMe) do not show.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

/// The identity of a disk, and evidence of its changes. Of a file: device, inode, size, and time of the last change in
/// ns. Of a block device: device, size, hash of its identity, and hash of its counts.
pub type Stamp = [u64; 4];

/// The stamp of an open file or block device; `None` if a change would not show. Pages of a block device that others wrote are
/// written to it first.
pub(crate) fn of(file: &File, bytes: u64) -> io::Result<Option<Stamp>> {
    let meta = file.metadata()?;
    if !meta.file_type().is_block_device() {
        return Ok(of_file(&meta));
    }
    rustix::fs::fsync(file)?;
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    // A file that is missing there: the kernel does not report enough.
    Ok(of_block_device(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))).map(|words| {
        let [identity, counts] = words.map(|words| hash(&words, 0));
        [meta.rdev(), bytes, identity, counts]
    }))
}

/// The stamp of a regular file whose system counts more than seconds.
pub(crate) fn of_file(meta: &Metadata) -> Option<Stamp> {
    let changed_ns = (meta.ctime() as u64).wrapping_mul(1_000_000_000).wrapping_add(meta.ctime_nsec() as u64);
    let shows = meta.is_file() && meta.ctime_nsec() != 0;
    shows.then_some([meta.dev(), meta.ino(), meta.size(), changed_ns])
}

/// The identity of the block device with this folder in sysfs, and counts that change with its contents.
fn of_block_device(folder: &Path) -> Option<[Vec<u64>; 2]> {
    let folder = folder.canonicalize().ok()?;
    let whole = if folder.join("partition").exists() { folder.parent()? } else { &folder };
    let read = |name: &str| std::fs::read_to_string(whole.join(name)).ok();
    if read("queue/iostats")?.trim() != "1" || std::fs::read_dir(whole.join("slaves")).ok()?.next().is_some() {
        return None;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut identity = vec![XxHash3_64::oneshot(boot.as_bytes()), read("diskseq")?.trim().parse().ok()?];
    // Documentation/block/stat.rst: the 7th is sectors written, the 14th sectors discarded.
    let counts: Vec<u64> = read("stat")?.split_whitespace().map_while(|count| count.parse().ok()).collect();
    let mut counts = vec![*counts.get(6)?, *counts.get(13)?];
    if let Some(file) = read("loop/backing_file") {
        let file = of_file(&std::fs::metadata(file.trim_end_matches('\n')).ok()?)?;
        identity.extend(&file[..2]);
        counts.extend(&file[2..]);
    }
    Some([identity, counts])
}

fn hash(words: &[u64], seed: u64) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    XxHash3_64::oneshot_with_seed(seed, &bytes)
}

/// The stamp of a disk that is several devices, one after the other.
pub fn joint_stamp(stamps: &[Stamp]) -> Stamp {
    match stamps {
        [stamp] => *stamp,
        _ => [0, 1, 2, 3].map(|seed| hash(stamps.as_flattened(), seed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_changes_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let stamp_of = |path: &Path| of(&File::open(path).unwrap(), 3).unwrap();
        std::fs::write(&path, b"one").unwrap();
        let before = stamp_of(&path);
        assert_eq!((before.is_some(), stamp_of(&path)), (true, before));
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, b"two").unwrap();
        assert_ne!(stamp_of(&path), before);
        assert_eq!(stamp_of(Path::new("/dev/null")), None);
    }

    #[test]
    fn the_counts_of_a_block_device_are_of_its_whole_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, part) = (folder.path().join("disk"), folder.path().join("disk/part"));
        let write = |name: &str, text: &str| {
            let path = disk.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let stat =
            |written, discarded| write("stat", &format!("1 0 8 0 2 0 {written} 0 0 0 0 3 0 {discarded} 0 4 0\n"));
        std::fs::create_dir_all(disk.join("slaves")).unwrap();
        write("part/partition", "1\n");
        write("queue/iostats", "1\n");
        write("diskseq", "9\n");
        stat(16, 0);
        let before = of_block_device(&disk).unwrap();
        assert_eq!(of_block_device(&part), Some(before.clone()));
        for (written, discarded) in [(24, 0), (16, 8)] {
            stat(written, discarded);
            let after = of_block_device(&part).unwrap();
            assert_eq!((after[0] == before[0], after[1] == before[1]), (true, false));
        }
        stat(16, 0);
        write("diskseq", "10\n");
        assert_ne!(of_block_device(&disk).unwrap()[0], before[0], "another medium");
        write("diskseq", "9\n");
        assert_eq!(of_block_device(&disk), Some(before.clone()));

        // Not enough is known.
        write("slaves/below", "");
        assert_eq!(of_block_device(&disk), None, "it stands on another device");
        std::fs::remove_file(disk.join("slaves/below")).unwrap();
        write("queue/iostats", "0\n");
        assert_eq!(of_block_device(&disk), None, "nothing is counted");
        write("queue/iostats", "1\n");
        std::fs::remove_file(disk.join("diskseq")).unwrap();
        assert_eq!(of_block_device(&disk), None, "it may be another medium");

        // A loop device changes with its file, too.
        write("diskseq", "9\n");
        std::fs::write(folder.path().join("file"), b"one").unwrap();
        write("loop/backing_file", &format!("{}\n", folder.path().join("file").display()));
        let before = of_block_device(&disk).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(folder.path().join("file"), b"two").unwrap();
        assert_ne!(of_block_device(&disk).unwrap()[1], before[1]);
        std::fs::remove_file(folder.path().join("file")).unwrap();
        assert_eq!(of_block_device(&disk), None, "its file has no name");
    }
}
