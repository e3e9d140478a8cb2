//! Faults, delays, and what cannot be opened.

use std::time::{Duration, Instant};

use crate::host::{Host, config, folders, open, sparse};
use nigh_backend::{OpenErrorKind, Options, Target};
use nigh_engine::{Fault, Op};

const EIO: crate::host::Ended = Err(Fault(libc::EIO));
const BLOCK: u64 = 4096;

fn host_of(target: &str) -> Host {
    Host::new(open(target, &Options::default()), config(BLOCK as u32))
}

/// Memory, and a file on the disk.
fn targets() -> (Vec<String>, tempfile::NamedTempFile) {
    let file = sparse(&folders()[0], 64 * BLOCK);
    (vec!["memory:256K".to_owned(), file.path().display().to_string()], file)
}

#[test]
fn the_kth_operation_fails() {
    let (targets, _file) = targets();
    for target in targets {
        let mut host = host_of(&format!("fault:read=3,write=2,flush=2,discard=1,zeroes=1:{target}"));
        let reads: Vec<_> = (0..5).map(|at| host.read(at * BLOCK, BLOCK).map(drop)).collect();
        assert_eq!(reads, [Ok(()), Ok(()), Err(Fault(libc::EIO)), Ok(()), Ok(())]);
        let writes: Vec<_> = (0..4u8).map(|at| host.write(u64::from(at) * BLOCK, &[at + 1; 4096])).collect();
        assert_eq!((&writes[0], &writes[1], &writes[2]), (&Ok(Vec::new()), &EIO, &Ok(Vec::new())));
        assert_eq!(host.flush(), Ok(Vec::new()));
        host.write(0, &[9; 4096]).expect("a write");
        assert_eq!(host.flush(), EIO);
        assert_eq!(host.flush(), Ok(Vec::new()));
        for op in [Op::Trim, Op::Zeroes { keep: false, fast: false }] {
            for expected in [EIO, Ok(Vec::new())] {
                let token = host.begin(op, 32 * BLOCK, 8 * BLOCK, &[]);
                assert_eq!(host.end(token), expected);
            }
        }
    }
}

#[test]
fn short_and_torn_operations_transfer_their_beginning() {
    let (targets, _file) = targets();
    for target in targets {
        let mut host = host_of(&format!("fault:short-write=2,torn-write=4,short-read=2:{target}"));
        let (old, new) = (vec![1; 16384], vec![2; 16384]);
        // One block: of more, the engine tries shorter runs at once.
        assert_eq!(host.write(0, &old[..4096]), Ok(Vec::new()));
        assert_eq!(host.write(0, &new[..4096]), EIO);
        // The contents of the device, without blocks that only the engine has.
        let read = |host: Host, length: u64| {
            let mut fresh = Host::new(host.into_device(), config(BLOCK as u32));
            (fresh.read(0, length), fresh)
        };
        let mixed = |at: usize| [&new[..at], &old[at..]].concat();
        let (now, host) = read(host, 4096);
        assert!(now == Ok(mixed(2048)[..4096].to_vec()));
        let (failed, mut host) = read(host, 16384);
        assert!(failed == EIO);
        assert_eq!(host.write(0, &old), Ok(Vec::new()));
        assert_eq!(host.write(0, &new), Ok(Vec::new()));
        assert!(read(host, 16384).0 == Ok(mixed(4096)));
        // Parts of a block, too.
        let mut host = host_of(&format!("fault:torn-write=2:{target}"));
        host.write(0, &old[..4096]).expect("a write");
        host.write(0, &new[..4096]).expect("a write that is not seen to be torn");
        let now = read(host, 16384).0.expect("a read");
        assert!(now[..1024] == new[..1024] && now[1024..4096] == old[1024..4096]);
    }
}

#[test]
fn latency_is_spent_by_each_operation_at_once() {
    let mut host = host_of("delay:20ms:memory:1M");
    let start = Instant::now();
    let begun: Vec<u64> = (0..16).map(|at| host.begin(Op::Read, 3 * at * BLOCK, BLOCK, &[])).collect();
    host.pump();
    assert!(host.operations.is_empty());
    begun.into_iter().for_each(|token| _ = host.end(token));
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(20) && took < Duration::from_millis(300), "{took:?}");
    let order: Vec<u64> = host.operations.iter().map(|(offset, _)| *offset).collect();
    assert!(order.is_sorted(), "equal latency keeps the order: {order:?}");
}

#[test]
fn the_rate_is_kept() {
    let mut host = host_of("delay:0ms,20M/s:memory:4M");
    let start = Instant::now();
    // Pieces apart from each other, so that they are not joined.
    let begun: Vec<u64> = (0..16).map(|at| host.begin(Op::Read, at << 18, 1 << 16, &[])).collect();
    begun.into_iter().for_each(|token| _ = host.end(token));
    let (took, least) = (start.elapsed(), Duration::from_millis(50));
    assert!(took >= least && took < 10 * least, "1 MiB at 20 MiB/s took {took:?}");
}

#[test]
fn near_is_faster_than_far() {
    let mut host = host_of("delay:seek=100us..20ms:memory:1G");
    let mut time = |offset| {
        let start = Instant::now();
        host.read(offset, BLOCK).expect("a read");
        start.elapsed()
    };
    time(0);
    // The fastest of some, since the machine may be busy.
    let next = (1..9).map(|at| time(at * BLOCK)).min().expect("some");
    let far = time((1 << 30) - BLOCK);
    let back = time(1 << 29);
    assert!(far >= Duration::from_millis(20), "across the disk: {far:?}");
    assert!(back >= Duration::from_millis(14), "half of it: {back:?}");
    assert!(next < Duration::from_millis(10), "in sequence: {next:?}");
}

#[test]
fn a_modelled_disk_is_no_faster_than_its_model() {
    let mut host = host_of("delay:disk=rz56,speed=10:memory:512M");
    let start = Instant::now();
    for at in 0..20 {
        // Far apart: each read has a seek of 4 ms or more and the overhead of 1.49 ms.
        host.read((at * 7919 % 100) << 22, BLOCK).expect("a read");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_micros(20 * 549), "{took:?}");
}

#[test]
fn what_cannot_be_modelled_is_explained() {
    let options = Options::default();
    let folder = tempfile::tempdir_in(&folders()[0]).expect("a folder");
    let path = folder.path().join("mine.toml").display().to_string();
    let target = format!("delay:disk={path}:memory:1M");
    assert_eq!(fails(&target, &options).0, OpenErrorKind::NotFound);
    std::fs::write(&path, "kind = 'disk'\ntitle = 'mine'\nbytes = 'many'").expect("room");
    let (kind, text) = fails(&target, &options);
    assert_eq!(kind, OpenErrorKind::Unsuitable);
    assert_eq!(
        text,
        format!("cannot use the profile {path}: 'bytes' is 'many': expected its size, 1048576 to 1152921504606846976")
    );
    let (kind, text) = fails("delay:disk=rz56:memory:1G", &options);
    assert_eq!(kind, OpenErrorKind::Unsuitable);
    assert_eq!(text, "cannot delay memory:1G: it has 1073741824 bytes, and the device of 'rz56' 665177088");
}

fn fails(target: &str, options: &Options) -> (OpenErrorKind, String) {
    let error = target.parse::<Target>().expect("a target").open(options).err().expect("it does not open");
    (error.kind, error.to_string())
}

#[test]
fn what_cannot_be_opened_is_explained() {
    let options = Options::default();
    let folder = tempfile::tempdir_in(&folders()[0]).expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (kind, text) = fails(&path("missing"), &options);
    assert_eq!(kind, OpenErrorKind::NotFound);
    assert!(text.starts_with("cannot open /") && text.contains("missing: No such file"), "{text}");
    let (kind, text) = fails(&path("."), &options);
    assert_eq!(kind, OpenErrorKind::Unsuitable);
    assert!(text.contains("neither a regular file nor a block device"), "{text}");
    assert_eq!(fails("delay:1ms:/dev/null", &options).0, OpenErrorKind::Unsuitable);
}

#[test]
fn a_file_has_one_writer() {
    let file = sparse(&folders()[0], 1 << 20);
    let path = file.path().to_str().expect("a path");
    let (writable, read_only) = (Options::default(), Options { read_only: true, ..Options::default() });
    let first = open(path, &writable);
    for options in [&writable, &read_only] {
        let (kind, text) = fails(path, options);
        assert_eq!(kind, OpenErrorKind::Busy);
        assert!(text.starts_with("cannot lock ") && text.contains("has it open, and may change it: "), "{text}");
        let own = format!("process {} ", std::process::id());
        if std::fs::read_to_string("/proc/locks").is_ok_and(|locks| !locks.is_empty()) {
            assert!(text.contains(&own), "{text}");
        }
    }
    drop(first);
    let first = open(path, &read_only);
    let mut second = Host::new(open(path, &read_only), config(4096));
    assert_eq!(fails(path, &writable).0, OpenErrorKind::Busy);
    assert_eq!(second.write(0, &[1; 4096]), Err(Fault(libc::EROFS)));
    assert!(second.read(4096, 4096) == Ok(vec![0; 4096]));
    drop((first, second));
    open(path, &writable);
}

#[test]
fn a_file_that_shrank_fails_reads() {
    for threads in [false, true] {
        let file = sparse(&folders()[0], 1 << 20);
        let options = Options { threads, ..Options::default() };
        let mut host = Host::new(open(file.path().to_str().expect("a path"), &options), config(4096));
        file.as_file().set_len(4096).expect("shorter");
        assert!(host.read(1 << 19, 4096) == EIO);
        assert!(host.read(0, 4096) == Ok(vec![0; 4096]));
    }
}
