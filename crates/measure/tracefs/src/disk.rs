//! The disk or partition behind a path.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Bytes in a sector, the kernel's unit whatever the disk's own.
pub const SECTOR_BYTES: u64 = 512;

/// Level at which a disk's requests are visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has a request queue: where requests are issued to the driver.
    Requests,
    /// It has none (zram, device mapper, md): where it is asked.
    Bios,
}

/// A disk, or a partition of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The whole disk's number, as in the kernel: major * 2^20 + minor.
    pub number: u32,
    /// First sector and number of sectors (512 bytes) of a partition; `None` for a whole disk.
    pub part: Option<(u64, u64)>,
    /// Level at which its requests are visible.
    pub kind: Kind,
}

impl Disk {
    /// The block device at `path`.
    pub fn open(path: &Path) -> Result<Disk> {
        let metadata = fs::metadata(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        if !metadata.file_type().is_block_device() {
            return Err(Error::NotADisk { path: path.to_owned() });
        }
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Disk::described(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
    }

    /// The disk with the file system of `path`; `None` if it is on none.
    pub fn below(path: &Path) -> Option<Disk> {
        let device = fs::metadata(path).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Disk::described(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))).ok()
    }

    /// The device that the folder `sys` of sysfs describes.
    fn described(sys: &Path) -> Result<Disk> {
        let folder = fs::canonicalize(sys).map_err(|source| Error::Io { path: sys.to_owned(), source })?;
        let part = match folder.join("partition").exists() {
            true => Some((number(&folder.join("start"))?, number(&folder.join("size"))?)),
            false => None,
        };
        let whole = if part.is_some() { folder.parent().unwrap_or(&folder) } else { &folder };
        let dev = whole.join("dev");
        let text = read(&dev)?;
        let numbers = text.trim().split_once(':').and_then(|(major, minor)| {
            let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
            (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
        });
        let expected = "major:minor";
        let number =
            numbers.ok_or_else(|| Error::Unexpected { what: dev.display().to_string(), found: text, expected })?;
        let kind = if whole.join("mq").exists() { Kind::Requests } else { Kind::Bios };
        Ok(Disk { number, part, kind })
    }

    /// The kernel's filter for the events of this disk, by the fields that they all have.
    pub(crate) fn filter(&self) -> String {
        let dev = format!("dev == {}", self.number);
        match self.part {
            None => dev,
            // Flushes have no place.
            Some((start, sectors)) => {
                let end = start.saturating_add(sectors);
                format!("{dev} && (nr_sector == 0 || (sector >= {start} && sector < {end}))")
            }
        }
    }

    /// The first byte of what begins at `sector` of the whole disk, counted within this disk or partition.
    pub fn offset(&self, sector: u64) -> u64 {
        sector.saturating_sub(self.part.map_or(0, |(start, _)| start)).saturating_mul(SECTOR_BYTES)
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

fn number(path: &Path) -> Result<u64> {
    let text = read(path)?;
    text.trim().parse().map_err(|_| Error::Io { path: path.to_owned(), source: io::ErrorKind::InvalidData.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(files: &[(&str, &str)], name: &str) -> Result<Disk> {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Disk::described(&folder.path().join(name))
    }

    #[test]
    fn a_partition_is_a_range_of_its_disk() {
        let files = [
            ("vdb/dev", "254:16\n"),
            ("vdb/mq/0/cpu_list", ""),
            ("vdb/vdb2/dev", "254:18\n"),
            ("vdb/vdb2/partition", "2\n"),
            ("vdb/vdb2/start", "2048\n"),
            ("vdb/vdb2/size", "8\n"),
        ];
        let whole = disk(&files, "vdb").unwrap();
        assert_eq!(whole, Disk { number: 254 << 20 | 16, part: None, kind: Kind::Requests });
        assert_eq!((whole.filter(), whole.offset(3)), ("dev == 266338320".to_owned(), 1536));
        let part = disk(&files, "vdb/vdb2").unwrap();
        assert_eq!(part, Disk { part: Some((2048, 8)), ..whole });
        assert_eq!(part.filter(), "dev == 266338320 && (nr_sector == 0 || (sector >= 2048 && sector < 2056))");
        assert_eq!(part.offset(2050), 1024);
    }

    #[test]
    fn a_disk_without_queues_is_seen_where_it_is_asked() {
        assert_eq!(disk(&[("zram0/dev", "252:0\n")], "zram0").unwrap().kind, Kind::Bios);
        assert!(matches!(disk(&[("zram0/dev", "252\n")], "zram0"), Err(Error::Unexpected { .. })));
    }

    #[test]
    fn a_file_is_no_disk() {
        assert!(matches!(Disk::open(Path::new("/dev/null")), Err(Error::NotADisk { .. })));
        assert!(matches!(Disk::open(Path::new("/nonexistent")), Err(Error::Io { .. })));
    }
}
