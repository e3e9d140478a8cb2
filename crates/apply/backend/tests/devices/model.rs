//! Every device against an array of bytes: random requests through an engine that caches almost nothing.

use std::ffi::OsStr;
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use crate::host::{Host, config, folders, open, sparse};
use nigh_backend::{Device, Options};
use nigh_engine::{Fault, Op};

/// A disk that ends in mid-block and in mid-sector.
const SIZE: u64 = 3 * (1 << 20) + 5 * 512 + 123;

/// Contents of a disk that executed every operation.
struct Model {
    bytes: Vec<u8>,
    block: u64,
}

impl Model {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn range(&self, range: Range<u64>) -> Range<usize> {
        range.start as usize..range.end as usize
    }

    /// The blocks that lie in `range` whole, where the last block of the disk may be shorter.
    fn whole(&self, range: Range<u64>) -> Range<usize> {
        let end = if range.end == self.size() { range.end } else { range.end / self.block * self.block };
        let start = range.start.next_multiple_of(self.block).min(end);
        self.range(start..end)
    }
}

/// A random range, often at the end of the disk, and seldom long.
fn range(random: &mut fastrand::Rng, size: u64, most: u64) -> Range<u64> {
    let most = 1 << random.u32(0..=most.ilog2());
    let length = random.u64(1..=most);
    let start = match random.u32(0..4) {
        0 => size - length - random.u64(0..(size - length).min(5000)),
        1 => size - length,
        _ => random.u64(0..size - length),
    };
    start..start + length
}

/// Rounds of requests that do not depend on each other, `rounds` of them. Returns what the disk must hold. A device that
/// `ignores_trims` may leave what was trimmed as it was.
pub(crate) fn exercise(
    name: &str,
    seed: u64,
    device: Box<dyn Device>,
    block: u32,
    rounds: u32,
    ignores_trims: bool,
) -> (Vec<u8>, Box<dyn Device>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = device.geometry().size().expect("a size");
    let mut model = Model { bytes: vec![0; size as usize], block: block.into() };
    let mut host = Host::new(device, config(block));
    for round in 0..rounds {
        let mut taken: Vec<Range<u64>> = Vec::new();
        let mut begun = Vec::new();
        for _ in 0..random.u32(1..12) {
            let range = range(&mut random, size, 1 << 20);
            let blocks = range.start / model.block..range.end.div_ceil(model.block);
            if taken.iter().any(|other| other.start < blocks.end && blocks.start < other.end) {
                continue;
            }
            taken.push(blocks);
            let length = range.end - range.start;
            let (op, data) = match random.u32(0..12) {
                0..=4 => (Op::Read, Vec::new()),
                5..=8 => (Op::Write, (0..length).map(|_| random.u8(..)).collect()),
                9 => (Op::Trim, Vec::new()),
                10 => (Op::Flush, Vec::new()),
                _ => (Op::Zeroes { keep: random.bool(), fast: random.u32(0..4) == 0 }, Vec::new()),
            };
            let flush = op == Op::Flush;
            let (offset, length) = if flush { (0, 0) } else { (range.start, length) };
            begun.push((host.begin(op, offset, length, &data), op, range, data));
        }
        for (token, op, range, data) in begun {
            let context = || format!("{name}, seed {seed}, round {round}: {op:?} {range:?}");
            let ended = host.end(token);
            let within = model.range(range.clone());
            match op {
                Op::Read => {
                    let bytes = ended.unwrap_or_else(|fault| panic!("{}: {fault}", context()));
                    assert!(bytes == model.bytes[within], "{}: other bytes", context());
                }
                Op::Zeroes { fast: true, .. } if ended == Err(Fault(libc::EOPNOTSUPP)) => {
                    // Its edges may have been written: a failed request leaves any mixture.
                    let now = host.read(range.start, range.end - range.start).expect("a read");
                    let old = &model.bytes[within.clone()];
                    assert!(now.iter().zip(old).all(|(now, old)| *now == 0 || now == old), "{}", context());
                    model.bytes[within].copy_from_slice(&now);
                }
                _ => {
                    assert_eq!(ended, Ok(Vec::new()), "{}", context());
                    match op {
                        Op::Write => model.bytes[within].copy_from_slice(&data),
                        Op::Zeroes { .. } => model.bytes[within].fill(0),
                        Op::Trim if ignores_trims => {
                            let now = host.read(range.start, range.end - range.start).expect("a read");
                            let old = &model.bytes[within.clone()];
                            assert!(now.iter().zip(old).all(|(now, old)| *now == 0 || now == old), "{}", context());
                            model.bytes[within].copy_from_slice(&now);
                        }
                        Op::Trim => {
                            let whole = model.whole(range);
                            model.bytes[whole].fill(0);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    host.flush().expect("a flush");
    let all: Vec<u8> =
        (0..size).step_by(1 << 20).flat_map(|at| host.read(at, (size - at).min(1 << 20)).expect("a read")).collect();
    assert!(all == model.bytes, "{name}, seed {seed}: other bytes at the end");
    (model.bytes, host.into_device())
}

/// Extents cover the disk without gaps, and holes are zeros. Returns how much of the disk is holes.
pub(crate) fn check_extents(name: &str, device: &dyn Device, bytes: &[u8]) -> u64 {
    let (geometry, size) = (device.geometry(), bytes.len() as u64);
    let (mut at, mut holes) = (0, 0);
    while at < size {
        for extent in geometry.extents(at..size, 3).expect("extents") {
            assert_eq!(extent.range.start, at, "{name}: a gap");
            assert!(extent.range.end > at);
            if extent.hole {
                let zeros = &bytes[extent.range.start as usize..extent.range.end as usize];
                assert!(zeros.iter().all(|byte| *byte == 0), "{name}: a hole with data");
                holes += extent.range.end - extent.range.start;
            }
            at = extent.range.end;
        }
    }
    assert_eq!(at, size, "{name}: extents end where the disk does");
    holes
}

#[test]
fn files_hold_what_was_written() {
    for folder in folders() {
        for threads in [false, true] {
            for (seed, block_bytes) in [(1, 4096), (2, 4096), (3, 512), (4, 512), (5, 16384)] {
                let name = format!("{}, threads {threads}, blocks of {block_bytes}", folder.display());
                let file = sparse(&folder, SIZE);
                let options = Options { threads, block_bytes, depth: 8, ..Options::default() };
                let device = open(file.path().to_str().expect("a path"), &options);
                let (bytes, device) = exercise(&name, seed, device, block_bytes, 120, false);
                check_extents(&name, &*device, &bytes);
                drop(device);
                assert!(std::fs::read(file.path()).expect("the file") == bytes, "{name}: other bytes in the file");
            }
        }
    }
}

/// A block device, as far as the system lets the test make one of a file.
#[test]
fn block_devices_hold_what_was_written() {
    let skip = |reason: &str| println!("skipped: block_devices_hold_what_was_written: {reason}");
    let file = sparse(&folders()[0], SIZE / 512 * 512);
    let losetup = |arguments: &[&OsStr]| {
        let output = Command::new("losetup").args(arguments).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(path) = losetup(&["--find".as_ref(), "--show".as_ref(), file.path().as_os_str()]) else {
        return skip("no loop device can be set up");
    };
    let result = std::panic::catch_unwind(|| {
        for (seed, threads, block_bytes) in [(1, false, 4096), (2, true, 4096), (3, false, 512), (4, true, 512)] {
            let name = format!("{path}, threads {threads}, blocks of {block_bytes}");
            let options = Options { threads, block_bytes, depth: 8, ..Options::default() };
            let mut zeros = Host::new(open(&path, &options), config(block_bytes));
            let token = zeros.begin(Op::Zeroes { keep: false, fast: false }, 0, SIZE / 512 * 512, &[]);
            assert_eq!(zeros.end(token), Ok(Vec::new()));
            drop(zeros);
            let (bytes, device) = exercise(&name, seed, open(&path, &options), block_bytes, 120, false);
            assert_eq!(check_extents(&name, &*device, &bytes), 0);
            drop(device);
            assert!(std::fs::read(&path).expect("the device") == bytes, "{name}: other bytes on the device");
        }
    });
    losetup(&["--detach".as_ref(), path.as_ref()]).expect("the loop device goes");
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn memory_holds_what_was_written() {
    for seed in 0..5 {
        let target = format!("memory:{SIZE}B");
        let (bytes, device) = exercise(&target, seed, open(&target, &Options::default()), 4096, 120, false);
        check_extents(&target, &*device, &bytes);
    }
}

#[test]
fn delayed_devices_hold_what_was_written() {
    for target in [
        format!("delay:20us,jitter=300us,2G/s:delay:seek=1us..50us,rotation=10us:memory:{SIZE}B"),
        format!("delay:disk=hdd-10k,speed=500:delay:disk=net-volume,speed=50:memory:{SIZE}B"),
    ] {
        let (bytes, device) = exercise(&target, 7, open(&target, &Options::default()), 4096, 60, false);
        check_extents(&target, &*device, &bytes);
    }
}

/// Calls `test` with a sparse file and what reads it, in each folder, with io_uring and with threads.
fn with_sparse_files(test: impl Fn(tempfile::NamedTempFile, Host)) {
    for folder in folders() {
        for threads in [false, true] {
            let file = sparse(&folder, SIZE);
            let options = Options { threads, ..Options::default() };
            let host = Host::new(open(file.path().to_str().expect("a path"), &options), config(4096));
            test(file, host);
        }
    }
}

/// Frames are used again, by other tenants too.
#[test]
fn holes_do_not_show_what_was_read_before() {
    with_sparse_files(|_file, mut host| {
        host.write(0, &[7; 128 << 10]).expect("a write");
        // Meanwhile, the extent of the hole is looked up.
        host.read(1 << 20, 4096).expect("a read");
        std::thread::sleep(Duration::from_millis(200));
        for length in [4096, 128 << 10, 100] {
            assert!(host.read(0, 128 << 10) == Ok(vec![7; 128 << 10]));
            assert!(host.read(1 << 20, length) == Ok(vec![0; length as usize]));
        }
    });
}

#[test]
fn holes_are_known() {
    with_sparse_files(|file, mut host| {
        assert!(host.read(1 << 20, 4096) == Ok(vec![0; 4096]));
        // Meanwhile, the extent is looked up.
        std::thread::sleep(Duration::from_millis(200));
        // Behind the device's back: were the hole read, this would be seen.
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[7; 4096], 1 << 20).expect("a write");
        host.read(0, 4096).expect("a read");
        assert!(host.read(1 << 20, 4096) == Ok(vec![0; 4096]), "a known hole is not read");
        host.write((1 << 20) + 8192, &[8; 4096]).expect("a write");
        host.read(0, 4096).expect("a read");
        assert!(host.read((1 << 20) + 8192, 4096) == Ok(vec![8; 4096]), "what was written is no hole");
        // A change of size makes the device look again.
        file.as_file().set_len(2 * SIZE).expect("room");
        let device = host.into_device();
        assert_eq!(device.geometry().size().expect("a size"), 2 * SIZE);
        let mut host = Host::new(device, config(4096));
        assert!(host.read(1 << 20, 4096) == Ok(vec![7; 4096]));
        assert!(host.read(2 * SIZE - 100, 100) == Ok(vec![0; 100]));
    });
}

#[test]
fn a_discard_frees_space() {
    let folder = &folders()[0];
    for threads in [false, true] {
        let file = sparse(folder, SIZE);
        let options = Options { threads, ..Options::default() };
        let mut host = Host::new(open(file.path().to_str().expect("a path"), &options), config(4096));
        for at in 0..3 {
            host.write(at << 20, &vec![1; 1 << 20]).expect("a write");
        }
        for (op, at) in [(Op::Trim, 0), (Op::Zeroes { keep: false, fast: false }, 1)] {
            let token = host.begin(op, at << 20, 1 << 20, &[]);
            assert_eq!(host.end(token), Ok(Vec::new()));
        }
        let mut bytes = vec![0; SIZE as usize];
        bytes[2 << 20..3 << 20].fill(1);
        let holes = check_extents("discarded", &*host.into_device(), &bytes);
        if holes == 0 {
            println!("skipped: a_discard_frees_space: the file system does not punch holes");
        } else {
            assert!(holes >= 2 << 20, "{holes} bytes of holes");
        }
    }
}
