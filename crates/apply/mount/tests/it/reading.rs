//! Reads return the bytes of the source.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::support::{Mounted, bytes};

#[test]
fn reads_of_any_place_and_length() {
    let Some(mounted) = Mounted::new() else { return };
    for (name, length) in [("empty", 0), ("one", 1), ("block", 4096), ("odd", 1_000_003), ("long", 5 << 20)] {
        let whole = bytes(length as u64, length);
        fs::write(mounted.behind(name), &whole).unwrap();
        assert!(fs::read(mounted.inside(name)).unwrap() == whole, "{name}");
        let file = File::open(mounted.inside(name)).unwrap();
        let mut random = fastrand::Rng::with_seed(length as u64);
        for step in 0..200 {
            let at = random.u64(0..length as u64 + 5000);
            let most = 1 << random.u32(0..22);
            let mut into = vec![0xaa; random.usize(0..=most)];
            let read = file.read_at(&mut into, at).unwrap();
            let from = (at as usize).min(length);
            assert_eq!(read, into.len().min(length - from), "{name}, step {step}");
            assert!(into[..read] == whole[from..from + read], "{name}, step {step}: {read} bytes at {at}");
        }
    }
    mounted.end();
}

#[test]
fn what_was_read_is_a_hit() {
    let Some(mounted) = Mounted::new() else { return };
    let whole = bytes(1, 300_000);
    fs::write(mounted.behind("file"), &whole).unwrap();
    assert!(fs::read(mounted.inside("file")).unwrap() == whole);
    let before = mounted.disk();
    for _ in 0..3 {
        assert!(fs::read(mounted.inside("file")).unwrap() == whole);
    }
    let after = mounted.disk();
    assert_eq!((after.misses, after.prefetch_issued), (before.misses, before.prefetch_issued));
    assert!(after.hits >= before.hits + 3 * 74, "{} and {}", before.hits, after.hits);
    mounted.end();
}

#[test]
fn holes_and_large_sparse_files() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.behind("sparse")).unwrap();
    for at in [0, 5 << 20, (1 << 40) + 7, (1 << 43) - 3] {
        file.write_all_at(b"here", at).unwrap();
    }
    let inside = File::open(mounted.inside("sparse")).unwrap();
    for at in [0, 5 << 20, (1 << 40) + 7, (1 << 43) - 3] {
        let mut four = [0; 4];
        inside.read_exact_at(&mut four, at).unwrap();
        assert_eq!(&four, b"here", "at {at}");
        // Nothing is there.
        let mut zeros = [1; 5];
        if inside.read_at(&mut zeros, at + 100_000).unwrap() == 5 {
            assert_eq!(zeros, [0; 5], "behind {at}");
        }
    }
    assert_eq!(inside.read_at(&mut [0; 10], 1 << 43).unwrap(), 1);
    drop(inside);
    mounted.end();
}

#[test]
fn read_ahead_stays_in_the_file() {
    let Some(mounted) = Mounted::new() else { return };
    for number in 0..50 {
        fs::write(mounted.behind(&format!("small-{number}")), bytes(number, 20_000)).unwrap();
    }
    for number in 0..50 {
        assert!(fs::read(mounted.inside(&format!("small-{number}"))).unwrap() == bytes(number, 20_000));
    }
    let disk = mounted.disk();
    // 5 blocks of each.
    assert!(disk.misses + disk.prefetch_issued <= 250, "{} and {}", disk.misses, disk.prefetch_issued);
    mounted.end();
}
