//! Effects of the hints in the kernel: a reader in a memory cgroup, with advice and without it.
//!
//! These tests need root and the memory controller of cgroup v1; elsewhere they print that and pass. They count the bytes
//! that the device reads, which do not depend on the machine's speed.

mod rig;
mod slow;

use std::fs;

use nigh_advise::budget;
use rig::{Group, MIB, file, folder, read_ahead};

/// Memory that the reader and the kernel's own structures for it need beside file pages.
const OWN: u64 = 2 * MIB;
/// The same, with the inodes of a thousand files. 4 MiB were enough on one kernel, and 6 on another of the same version.
const OWN_TREE: u64 = 8 * MIB;

/// Not a file itself, but where it is on the disk may have to be read again.
const LITTLE: u64 = 16 << 10;

/// A loop over 84 MiB with 64 MiB of memory: without advice, every pass reads everything. On a busy machine, the kernel may
/// detect that it evicted pages just before they were read, and keep some of them: some rounds without advice then read less.
#[test]
fn a_loop_that_does_not_fit() {
    let folder = folder();
    let path = folder.path().join("loop");
    let mut most_plain = 0;
    for round in 0..5 {
        let Some(group) = Group::new("loop", 64 * MIB) else { return };
        file(&path, 84 * MIB);
        let plain: u64 = group.read("plain", "loop", 0, 4, &[&path]).iter().sum();
        group.empty();
        file(&path, 84 * MIB);
        let budget = budget(64 * MIB, OWN, read_ahead(&path), 84 * MIB);
        let advised = group.read("advised", "loop", budget, 4, &[&path]);
        let total: u64 = advised.iter().sum();
        println!("round {round}: plain {} MiB, advised {advised:?}, {} MiB, budget {budget}", plain / MIB, total / MIB);
        assert!(total <= 216 * MIB, "{total}");
        most_plain = most_plain.max(plain);
    }
    assert!(most_plain >= 330 * MIB, "{most_plain}");
}

/// A scan of 1 GiB in 256 MiB evicts 160 MiB that were read before, without advice. With it, the limit is not even reached. A kernel may page out by itself
/// what was not used for seconds (DAMON, for instance); so it counts what is read again in the best of three rounds.
#[test]
fn a_scan_beside_a_hot_set() {
    let folder = folder();
    let [hot, scanned] = ["hot", "scanned"].map(|name| folder.path().join(name));
    file(&scanned, 1024 * MIB);
    let mut read_again = [u64::MAX; 2];
    for mode in ["plain", "advised", "advised", "advised"] {
        let advised = mode == "advised";
        if advised && read_again[1] <= LITTLE {
            break;
        }
        let Some(group) = Group::new("scan", 256 * MIB) else { return };
        file(&hot, 160 * MIB);
        group.read("plain", "loop", 0, 1, &[&hot]);
        let scan: u64 = group.read(mode, "sequential", 0, 1, &[&scanned]).iter().sum();
        assert!(scan >= 1000 * MIB, "{mode}: {scan}");
        let peak = group.peak();
        let again = group.read("plain", "loop", 0, 1, &[&hot]).iter().sum();
        println!("{mode}: {again} bytes were read again, peak of memory {peak}");
        assert!(!advised || peak <= 224 * MIB, "{mode}: {peak}");
        read_again[usize::from(advised)] = again;
    }
    assert!(read_again[0] >= 150 * MIB, "{read_again:?}");
    assert!(read_again[1] <= LITTLE, "{read_again:?}");
}

/// Processes that each read 49 MB in small files, with 44 MB of memory, as `grep -r` does.
#[test]
fn small_files_again_and_again() {
    let folder = folder();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("a folder");
    let largest = 80_000;
    let mut total = 0;
    for number in 0_u64.. {
        let bytes = 2_000 + number * 7919 % (largest - 2_000);
        file(&tree.join(number.to_string()), bytes);
        total += bytes;
        if total > 49_000_000 {
            break;
        }
    }
    let mut last = Vec::new();
    for mode in ["plain", "advised"] {
        let Some(group) = Group::new("tree", 44_000_000) else { return };
        let budget = budget(44_000_000, OWN_TREE, read_ahead(&tree), largest);
        let runs: Vec<u64> = (0..4).map(|_| group.read(mode, "loop", budget, 1, &[&tree])[0]).collect();
        println!("{mode}: {runs:?} of {total} bytes");
        last.extend(runs.last().copied());
    }
    assert!(last[0] > 45_000_000, "{last:?}");
    assert!(last[1] <= 20_000_000, "{last:?}");
}
