//! A change behind the mount is seen by the next open, and never mixed with what was cached before.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use crate::support::{Mounted, bytes};

#[test]
fn an_open_sees_what_was_changed_behind_the_mount() {
    let Some(mounted) = Mounted::new() else { return };
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..200 {
        let length = [0, 1, 100, 4096, 10_000, 500_000][random.usize(0..6)];
        let whole = bytes(step, length);
        match random.u8(0..4) {
            0 => fs::write(mounted.behind("file"), &whole).unwrap(),
            1 => {
                fs::write(mounted.behind("new"), &whole).unwrap();
                fs::rename(mounted.behind("new"), mounted.behind("file")).unwrap();
            }
            2 => {
                // The same size and time of change of the contents.
                let old = fs::metadata(mounted.behind("file")).ok().map(|meta| (meta.len(), meta.modified().unwrap()));
                let whole = bytes(step, old.map_or(length, |(length, _)| length as usize));
                fs::write(mounted.behind("file"), whole).unwrap();
                if let Some((_, time)) = old {
                    File::options().write(true).open(mounted.behind("file")).unwrap().set_modified(time).unwrap();
                }
            }
            _ => {
                let file = File::options().create(true).append(true).open(mounted.behind("file")).unwrap();
                (&file).write_all(&whole).unwrap();
            }
        }
        let expected = fs::read(mounted.behind("file")).unwrap();
        assert_eq!(fs::metadata(mounted.behind("file")).unwrap().len(), expected.len() as u64);
        let mut found = Vec::new();
        let mut file = File::open(mounted.inside("file")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64, "step {step}");
        file.read_to_end(&mut found).unwrap();
        assert!(found == expected, "step {step}: {} and {} bytes", found.len(), expected.len());
    }
    mounted.end();
}

#[test]
fn both_sides_write_in_turns() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("file"), bytes(0, 100_000)).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for step in 0..300 {
        let path = if random.bool() { mounted.behind("file") } else { mounted.inside("file") };
        let file = File::options().write(true).open(&path).unwrap();
        if random.u8(0..8) == 0 {
            file.set_len(random.u64(0..150_000)).unwrap();
        } else {
            file.write_all_at(&bytes(step, random.usize(1..20_000)), random.u64(0..120_000)).unwrap();
        }
        drop(file);
        let (behind, inside) = (fs::read(mounted.behind("file")).unwrap(), fs::read(mounted.inside("file")).unwrap());
        assert!(behind == inside, "step {step}, by {}", path.display());
    }
    mounted.end();
}

#[test]
fn a_mapping_sees_a_change_after_an_open() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("program"), b"#!/bin/sh\necho one\n").unwrap();
    fs::set_permissions(mounted.behind("program"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = || {
        let output = std::process::Command::new(mounted.inside("program")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(), "one\n");
    fs::write(mounted.behind("program"), b"#!/bin/sh\necho two, and longer\n").unwrap();
    assert_eq!(run(), "two, and longer\n");
    mounted.end();
}

#[test]
fn a_fresh_file_is_not_looked_at() {
    let Some(mounted) = Mounted::with(|settings| settings.fresh = Duration::from_secs(3600), |_| ()) else { return };
    fs::write(mounted.behind("file"), b"old").unwrap();
    assert_eq!(fs::read(mounted.inside("file")).unwrap(), b"old");
    fs::write(mounted.behind("file"), b"new").unwrap();
    assert_eq!(fs::read(mounted.inside("file")).unwrap(), b"old");
    mounted.end();
}

#[test]
fn own_changes_of_attributes_do_not_empty_the_cache() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.behind("file"), bytes(1, 100_000)).unwrap();
    assert!(fs::read(mounted.inside("file")).unwrap() == bytes(1, 100_000));
    let misses = mounted.disk().misses + mounted.disk().prefetch_issued;
    fs::rename(mounted.inside("file"), mounted.inside("other")).unwrap();
    fs::hard_link(mounted.inside("other"), mounted.inside("link")).unwrap();
    let file = File::options().write(true).open(mounted.inside("other")).unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    drop(file);
    assert!(fs::read(mounted.inside("link")).unwrap() == bytes(1, 100_000));
    assert_eq!(mounted.disk().misses + mounted.disk().prefetch_issued, misses);
    assert_eq!(fs::metadata(mounted.behind("link")).unwrap().mtime(), 1_000_000_000);
    mounted.end();
}
