//! Files that are not raw disks: images with a format of their own, and compressed files, by their magic numbers.
//!
//! Served as raw, a format's header would be the guest's first sector, which the guest may overwrite.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{OpenError, OpenErrorKind};

/// A file format, and how its owner can serve it.
struct Format {
    name: &'static str,
    advice: &'static str,
}

const QEMU: &str = "serve it with `qemu-nbd`, or make a raw copy with `qemu-img convert -O raw`";
const COMPRESSED: &str = "decompress it first";
const LUKS: &str = "open it with `cryptsetup open` and serve the device that appears";

/// Magic numbers in the first bytes: their offset, the bytes, the format.
const HEADS: [(usize, &[u8], Format); 18] = [
    (0, b"QFI\xfb", Format { name: "a qcow2 image", advice: QEMU }),
    (0, b"QED\0", Format { name: "a QED image", advice: QEMU }),
    (0, b"KDMV", Format { name: "a VMDK image", advice: QEMU }),
    (0, b"COWD", Format { name: "a VMDK image", advice: QEMU }),
    (0, b"# Disk DescriptorFile", Format { name: "the description of a VMDK image", advice: QEMU }),
    (0, b"vhdxfile", Format { name: "a VHDX image", advice: QEMU }),
    (0, b"conectix", Format { name: "a VHD image", advice: QEMU }),
    (0x40, b"\x7f\x10\xda\xbe", Format { name: "a VDI image", advice: QEMU }),
    (0, b"WithoutFreeSpace", Format { name: "a Parallels image", advice: QEMU }),
    (0, b"WithouFreSpacExt", Format { name: "a Parallels image", advice: QEMU }),
    (0, b"LUKS\xba\xbe", Format { name: "an encrypted LUKS volume", advice: LUKS }),
    (0, b"\x1f\x8b", Format { name: "compressed with gzip", advice: COMPRESSED }),
    (0, b"\xfd7zXZ\0", Format { name: "compressed with xz", advice: COMPRESSED }),
    (0, b"\x28\xb5\x2f\xfd", Format { name: "compressed with zstd", advice: COMPRESSED }),
    (0, b"BZh", Format { name: "compressed with bzip2", advice: COMPRESSED }),
    (0, b"\x04\x22\x4d\x18", Format { name: "compressed with lz4", advice: COMPRESSED }),
    (0, b"PK\x03\x04", Format { name: "a zip archive", advice: COMPRESSED }),
    (0, b"7z\xbc\xaf\x27\x1c", Format { name: "a 7z archive", advice: COMPRESSED }),
];

/// The same in the last 512 bytes.
const FEET: [(&[u8], Format); 2] = [
    (b"conectix", Format { name: "a VHD image of fixed size", advice: QEMU }),
    (b"koly", Format { name: "a DMG image", advice: QEMU }),
];

/// Refuses the file or block device at `path` if it is known not to be a raw disk. A file that cannot be read here is
/// accepted: its opening reports the error.
pub(crate) fn refuse_formats(path: &Path) -> Result<(), OpenError> {
    let is_opened = |metadata: &std::fs::Metadata| {
        use std::os::unix::fs::FileTypeExt;
        metadata.is_file() || metadata.file_type().is_block_device()
    };
    if !std::fs::metadata(path).is_ok_and(|metadata| is_opened(&metadata)) {
        return Ok(());
    }
    let Some(Format { name, advice }) = File::open(path).ok().and_then(|file| known_format(&file)) else {
        return Ok(());
    };
    let text = format!("it is {name}, not a raw disk: {advice}. To serve its bytes as they are, write raw:PATH");
    let source = io::Error::new(io::ErrorKind::InvalidData, text);
    Err(OpenError { kind: OpenErrorKind::Unsuitable, action: "serve", path: path.to_owned(), source })
}

/// The format of an open file, such as `a qcow2 image`, if it is known not to be a raw disk.
pub fn format_of(file: &File) -> Option<&'static str> {
    known_format(file).map(|format| format.name)
}

fn known_format(file: &File) -> Option<&'static Format> {
    let mut head = [0; 512];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    let head = head.get(..read)?;
    let at_head = HEADS.iter().find(|(offset, magic, _)| head.get(*offset..).is_some_and(|at| at.starts_with(magic)));
    if let Some((_, _, format)) = at_head {
        return Some(format);
    }
    let last = file.metadata().ok()?.len().checked_sub(512)?;
    let mut foot = [0; 512];
    file.read_exact_at(&mut foot, last).ok()?;
    FEET.iter().find(|(magic, _)| foot.starts_with(magic)).map(|(_, format)| format)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn format(bytes: &[u8]) -> Option<&'static str> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let refused = refuse_formats(file.path()).err()?;
        assert_eq!(refused.kind, OpenErrorKind::Unsuitable);
        format_of(file.as_file())
    }

    /// Every magic number is found in its place and nowhere else, and raw disks are not refused.
    #[test]
    fn images_are_not_served_as_raw() {
        for (offset, magic, known) in &HEADS {
            let mut bytes = vec![0; 4096];
            bytes[*offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(format(&bytes), Some(known.name));
            bytes.rotate_right(1024);
            assert_eq!(format(&bytes), None);
        }
        for (magic, known) in &FEET {
            let mut bytes = vec![0; 4096 + 512];
            bytes[4096..4096 + magic.len()].copy_from_slice(magic);
            assert_eq!(format(&bytes), Some(known.name));
        }
        for raw in [&[][..], &[0; 100], &[0; 8192], b"QF", &[0xff; 512]] {
            assert_eq!(format(raw), None, "{} bytes", raw.len());
        }
    }

    #[test]
    fn what_is_no_file_is_left_to_its_opener() {
        refuse_formats(Path::new("/dev/zero")).unwrap();
        refuse_formats(Path::new("/nowhere/at/all")).unwrap();
        refuse_formats(Path::new("/")).unwrap();
    }
}
