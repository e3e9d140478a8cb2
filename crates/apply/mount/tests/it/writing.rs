//! Writes reach the source before they return, and the cache has the same bytes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;

use crate::support::{Mounted, bytes};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A file and a model of it, changed in the same way, under `seed`.
fn changes(mounted: &Mounted, name: &str, seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (file, mut model) = (open(&mounted.inside(name)), Vec::<u8>::new());
    for step in 0..steps {
        let at = random.usize(0..300_000);
        match random.u8(0..10) {
            0 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            1 => {
                let end = at + random.usize(1..50_000);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // Space that is given back reads as zeros, and the size stays.
                rustix::fs::fallocate(&file, flags, at as u64, (end - at) as u64).unwrap();
                let (at, end) = (at.min(model.len()), end.min(model.len()));
                model[at..end].fill(0);
            }
            2..6 => {
                let most = 1 << random.u32(1..18);
                let written = bytes(seed ^ step as u64, random.usize(1..most));
                file.write_all_at(&written, at as u64).unwrap();
                model.resize(model.len().max(at + written.len()), 0);
                model[at..at + written.len()].copy_from_slice(&written);
            }
            _ => {
                let most = 1 << random.u32(1..19);
                let mut found = vec![1; random.usize(1..most)];
                let read = file.read_at(&mut found, at as u64).unwrap();
                let from = at.min(model.len());
                let end = model.len().min(at + found.len()).max(from);
                assert_eq!(read, end - from, "seed {seed}, step {step}");
                assert!(found[..read] == model[from..end], "seed {seed}, step {step}: {read} bytes at {at}");
            }
        }
        if step % 20 == 0 {
            assert!(fs::read(mounted.behind(name)).unwrap() == model, "seed {seed}, step {step}: behind the mount");
            assert!(fs::read(mounted.inside(name)).unwrap() == model, "seed {seed}, step {step}: in the mount");
        }
    }
}

#[test]
fn random_changes_of_one_file() {
    // Less memory than the files have.
    let Some(mounted) = Mounted::with(|_| (), |settings| settings.host.memory = 1 << 20) else { return };
    for seed in 0..6 {
        changes(&mounted, &format!("file-{seed}"), seed, 400);
    }
    mounted.end();
}

#[test]
fn random_changes_of_many_files_at_the_same_time() {
    let Some(mounted) = Mounted::with(|_| (), |settings| settings.host.memory = 1 << 20) else { return };
    std::thread::scope(|scope| {
        for seed in 10..16 {
            let mounted = &mounted;
            scope.spawn(move || changes(mounted, &format!("file-{seed}"), seed, 150));
        }
    });
    mounted.end();
}

#[test]
fn writers_that_append_lose_nothing() {
    let Some(mounted) = Mounted::new() else { return };
    let append = |path| OpenOptions::new().append(true).create(true).open(path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            // One of them behind the mount.
            let path = if writer == 3 { mounted.behind("log") } else { mounted.inside("log") };
            scope.spawn(move || {
                let mut file = append(path);
                for _ in 0..200 {
                    file.write_all(&[b'a' + writer; 100]).unwrap();
                }
            });
        }
    });
    let whole = fs::read(mounted.inside("log")).unwrap();
    assert_eq!(whole.len(), 4 * 200 * 100);
    assert!(whole == fs::read(mounted.behind("log")).unwrap());
    for record in whole.chunks(100) {
        assert!(record.iter().all(|byte| *byte == record[0]), "a record was torn");
    }
    mounted.end();
}

#[test]
fn writers_of_overlapping_ranges_leave_what_the_source_has() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("file"), bytes(0, 64 << 10)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..6u64 {
            let mounted = &mounted;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer);
                let file = open(&mounted.inside("file"));
                for step in 0..200 {
                    if writer == 5 && step % 20 == 0 {
                        file.set_len(random.u64(0..64 << 10)).unwrap();
                    }
                    let written = vec![writer as u8 + 1; random.usize(1..10_000)];
                    file.write_all_at(&written, random.u64(0..60_000)).unwrap();
                }
            });
        }
    });
    let file = open(&mounted.inside("file"));
    let expected = fs::read(mounted.behind("file")).unwrap();
    let mut found = vec![0; expected.len() + 1];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), expected.len());
    assert!(found[..expected.len()] == expected);
    drop(file);
    mounted.end();
}

#[test]
fn a_file_without_a_name_is_still_a_file() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("gone"), bytes(1, 50_000)).unwrap();
    fs::write(mounted.behind("over"), bytes(2, 50_000)).unwrap();
    fs::write(mounted.behind("by"), b"new").unwrap();
    let (gone, over) = (open(&mounted.inside("gone")), open(&mounted.inside("over")));
    fs::remove_file(mounted.inside("gone")).unwrap();
    fs::rename(mounted.inside("by"), mounted.inside("over")).unwrap();
    for (file, seed) in [(&gone, 1), (&over, 2)] {
        let mut found = vec![0; 50_000];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes(seed, 50_000));
        file.write_all_at(b"changed", 40_000).unwrap();
        let mut seven = [0; 7];
        file.read_exact_at(&mut seven, 40_000).unwrap();
        assert_eq!(&seven, b"changed");
        file.set_len(10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10);
    }
    assert_eq!(fs::read(mounted.inside("over")).unwrap(), b"new");
    assert!(!mounted.behind("gone").exists());
    drop((gone, over));
    mounted.end();
}

#[test]
fn names_of_one_file_share_its_blocks() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("one"), bytes(1, 50_000)).unwrap();
    fs::hard_link(mounted.behind("one"), mounted.behind("two")).unwrap();
    assert!(fs::read(mounted.inside("one")).unwrap() == bytes(1, 50_000));
    let misses = mounted.disk().misses + mounted.disk().prefetch_issued;
    assert!(fs::read(mounted.inside("two")).unwrap() == bytes(1, 50_000));
    assert_eq!(mounted.disk().misses + mounted.disk().prefetch_issued, misses);
    open(&mounted.inside("one")).write_all_at(b"x", 7).unwrap();
    assert_eq!(fs::read(mounted.inside("two")).unwrap()[7], b'x');
    mounted.end();
}

#[test]
fn what_was_written_is_a_hit() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.inside("file"), bytes(1, 100_000)).unwrap();
    let before = mounted.disk();
    assert!(fs::read(mounted.inside("file")).unwrap() == bytes(1, 100_000));
    let after = mounted.disk();
    assert_eq!((after.misses, after.prefetch_issued), (before.misses, before.prefetch_issued));
    mounted.end();
}

#[test]
fn a_full_source_is_reported_to_the_writer() {
    let source = tempfile::TempDir::new().unwrap();
    let path = source.path().to_owned();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("tmpfs", &path, "tmpfs", flags, Some(c"size=1m")) {
        eprintln!("skipped: no file system of 1 MiB can be mounted: {error}");
        return;
    }
    if let Some(mounted) = Mounted::of(&path, Some(source), |_| (), |_| ()) {
        let file = open(&mounted.inside("file"));
        let written = bytes(5, 3 << 20);
        let error = file.write_all_at(&written, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
        let length = file.metadata().unwrap().len() as usize;
        assert!((512 << 10..=1 << 20).contains(&length), "{length} bytes");
        assert!(fs::read(mounted.behind("file")).unwrap() == written[..length]);
        assert!(fs::read(mounted.inside("file")).unwrap() == written[..length]);
        assert!(file.write_all_at(b"more", length as u64).is_err());
        assert_eq!(fs::read(mounted.inside("file")).unwrap().len(), fs::read(mounted.behind("file")).unwrap().len());
        file.set_len(1000).unwrap();
        file.write_all_at(b"room", 2000).unwrap();
        assert!(fs::read(mounted.inside("file")).unwrap() == fs::read(mounted.behind("file")).unwrap());
        drop(file);
        mounted.end();
    }
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn attributes_are_changed_in_the_source() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.inside("folder")).unwrap();
    std::os::unix::fs::symlink("folder", mounted.inside("link")).unwrap();
    fs::write(mounted.inside("folder/file"), b"text").unwrap();
    fs::set_permissions(mounted.inside("folder/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(mounted.behind("folder/file")).unwrap().mode() & 0o7777, 0o4711);
    let value = b"a value".as_slice();
    rustix::fs::setxattr(mounted.inside("folder/file"), "user.name", value, rustix::fs::XattrFlags::empty()).unwrap();
    let mut found = [0; 100];
    let length = rustix::fs::getxattr(mounted.behind("folder/file"), "user.name", &mut found[..]).unwrap();
    assert_eq!(&found[..length], value);
    let length = rustix::fs::getxattr(mounted.inside("folder/file"), "user.name", &mut found[..]).unwrap();
    assert_eq!(&found[..length], value);
    rustix::fs::removexattr(mounted.inside("folder/file"), "user.name").unwrap();
    assert!(rustix::fs::getxattr(mounted.behind("folder/file"), "user.name", &mut found[..]).is_err());
    assert_eq!(fs::read(mounted.inside("link/file")).unwrap(), b"text");
    fs::remove_file(mounted.inside("folder/file")).unwrap();
    fs::remove_dir(mounted.inside("folder")).unwrap();
    fs::remove_file(mounted.inside("link")).unwrap();
    assert_eq!(fs::read_dir(mounted.behind("")).unwrap().count(), 0);
    mounted.end();
}

/// Writes through a mapping reach the source and are visible to reads, and writes to the file are visible in the mapping.
#[test]
fn mappings_and_reads_see_the_same_bytes() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("file"), bytes(1, 100_000)).unwrap();
    let script = r#"
import mmap, os, sys
path, behind = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
whole = mmap.mmap(fd, 100000)
assert whole[:] == open(behind, 'rb').read()
os.pwrite(fd, b'by a write', 50000)
assert whole[50000:50010] == b'by a write'
whole[70000:70012] = b'by a mapping'
whole[99990:100000] = b'at the end'
assert os.pread(fd, 12, 70000) == b'by a mapping'
whole.flush()
found = open(behind, 'rb').read()
assert found == whole[:] and len(found) == 100000
os.ftruncate(fd, 60000)
os.pwrite(fd, b'after', 60000)
assert os.pread(fd, 100, 59990) == whole[59990:60000] + b'after'
"#;
    let python = std::process::Command::new("python3")
        .args(["-c", script])
        .args([mounted.inside("file"), mounted.behind("file")])
        .output();
    match python {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("skipped: python3: {error}"),
    }
    assert!(fs::read(mounted.inside("file")).unwrap() == fs::read(mounted.behind("file")).unwrap());
    mounted.end();
}

#[test]
fn copies_between_files() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.inside("from"), bytes(1, 300_000)).unwrap();
    fs::write(mounted.inside("to"), bytes(2, 100_000)).unwrap();
    assert!(fs::read(mounted.inside("to")).unwrap() == bytes(2, 100_000));
    let (from, to) = (open(&mounted.inside("from")), open(&mounted.inside("to")));
    let (mut read, mut written) = (1000, 50_001);
    while read < 201_000 {
        let left = 201_000 - read as usize;
        let copied = rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left).unwrap();
        assert!(copied > 0);
    }
    let mut expected = bytes(2, 50_001);
    expected.extend(&bytes(1, 300_000)[1000..201_000]);
    assert!(fs::read(mounted.inside("to")).unwrap() == expected);
    assert!(fs::read(mounted.behind("to")).unwrap() == expected);
    drop((from, to));
    mounted.end();
}
