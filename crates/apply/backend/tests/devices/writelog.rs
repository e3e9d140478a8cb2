//! Disks with a write log on real files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::{Host, config, folders};
use nigh_backend::{Device, OpenError, Options, Target};
use nigh_engine::{Fault, Op};

/// A disk that ends in mid-block.
const SIZE: u64 = 2 * (1 << 20) + 3 * 512;
const BLOCK: u64 = 4096;

/// A disk's file and its log's, in a folder.
struct Files {
    _folder: tempfile::TempDir,
    home: PathBuf,
    log: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Files {
        let folder = tempfile::tempdir_in(folder).expect("a folder");
        let (home, log) = (folder.path().join("home"), folder.path().join("log"));
        std::fs::File::create(&home).and_then(|file| file.set_len(SIZE)).expect("room");
        Files { _folder: folder, home, log }
    }

    fn marker(&self) -> PathBuf {
        self.home.with_file_name("home.nigh-write-log")
    }

    /// The disk, with `before_home` and `before_log` in front of the paths.
    fn open(&self, before_home: &str, before_log: &str) -> Result<Box<dyn Device>, OpenError> {
        let home: Target = format!("{before_home}{}", self.home.display()).parse().expect("a target");
        let log = format!("{before_log}{}:2M", self.log.display()).parse().expect("a log");
        home.open_logged(&log, &Options { depth: 8, ..Options::default() })
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.home).expect("the file")
    }
}

fn refused(opened: Result<Box<dyn Device>, OpenError>) -> String {
    opened.err().expect("it is refused").to_string()
}

/// The whole disk.
fn all(host: &mut Host) -> Vec<u8> {
    (0..SIZE).step_by(1 << 20).flat_map(|at| host.read(at, (SIZE - at).min(1 << 20)).expect("a read")).collect()
}

/// Drives the device until `is_done`.
fn drive(device: &mut Box<dyn Device>, is_done: impl Fn(&dyn Device) -> bool) {
    let begin = Instant::now();
    while !is_done(&**device) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", device.geometry().write_log());
        device.poll(Instant::now(), &mut Vec::new());
        std::thread::yield_now();
    }
}

/// Random requests; the disk is closed and opened again between rounds, with all at home or not.
#[test]
fn disks_with_a_log_hold_what_was_written() {
    for folder in folders() {
        for (seed, before_home) in [(1, ""), (2, "delay:200us,jitter=300us:"), (3, "delay:60ms:")] {
            let files = Files::new(&folder);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model = vec![0; SIZE as usize];
            for round in 0..4 {
                let device = files.open(before_home, "").expect("it opens");
                let mut host = Host::new(device, config(4096));
                for step in 0..if seed == 3 { 6 } else { 100 } {
                    let most = if random.u8(..4) == 0 { 700_000 } else { 20_000 };
                    let length = random.u64(1..=most);
                    let start = random.u64(..SIZE - length);
                    let within = start as usize..(start + length) as usize;
                    let context = || format!("seed {seed}, round {round}, step {step}, {within:?}");
                    match random.u8(..10) {
                        0..5 => {
                            let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                            host.write(start, &data).unwrap_or_else(|fault| panic!("{}: {fault}", context()));
                            model[within.clone()].copy_from_slice(&data);
                        }
                        op @ 5..7 => {
                            // Discarded bytes may be there or not until they are zeroed.
                            if op == 5 {
                                let token = host.begin(Op::Trim, start, length, &[]);
                                assert_eq!(host.end(token), Ok(Vec::new()));
                            }
                            let token = host.begin(Op::Zeroes { keep: random.bool(), fast: true }, start, length, &[]);
                            assert_eq!(host.end(token), Ok(Vec::new()), "{}", context());
                            model[within.clone()].fill(0);
                        }
                        7 => assert_eq!(host.flush(), Ok(Vec::new())),
                        _ => {
                            assert!(host.read(start, length).as_deref() == Ok(&model[within.clone()]), "{}", context())
                        }
                    }
                }
                assert!(all(&mut host) == model, "seed {seed}, round {round}");
                drop(host.into_device());
                // At an orderly end, home has all of it, or the file beside it says that it does not.
                assert!(files.bytes() == model || files.marker().exists(), "seed {seed}, round {round}");
            }
            let mut device = files.open("", "").expect("it opens");
            let drained = device.geometry().drain().expect("it has a log");
            drive(&mut device, |_| drained.try_recv().is_ok());
            assert_eq!(device.geometry().write_log().expect("a log").records, 0);
            assert!(files.bytes() == model, "seed {seed}: a drain leaves nothing in the log");
            drop(device);
            assert!(!files.marker().exists());
        }
    }
}

#[test]
fn a_disk_is_not_served_without_its_log_nor_with_another_one() {
    let files = Files::new(&folders()[0]);
    let target: Target = files.home.to_str().expect("a path").parse().expect("a target");
    let plain = |target: &Target| target.open(&Options::default());
    drop(plain(&target).expect("it has no log yet"));
    // Nothing goes home in time.
    let mut host = Host::new(files.open("delay:5s:", "").expect("it opens"), config(4096));
    host.write(0, &[7; BLOCK as usize]).expect("a write");
    drop(host);
    let error = refused(plain(&target));
    assert!(
        error.contains("write-log=") && error.contains("drain") && error.contains("home.nigh-write-log"),
        "{error}"
    );
    let error = target.check(&Options::default()).expect_err("it is refused").to_string();
    assert!(error.contains("write-log="), "{error}");
    // By another name, too.
    let other = files.home.with_file_name("other");
    std::os::unix::fs::symlink(&files.home, &other).expect("a link");
    assert!(refused(plain(&Target::File(other))).contains("write-log="));
    // The log for another disk.
    let second = files.home.with_file_name("second");
    std::fs::File::create(&second).and_then(|file| file.set_len(SIZE)).expect("room");
    let log = format!("{}:2M", files.log.display()).parse().expect("a log");
    let error = refused(Target::File(second.clone()).open_logged(&log, &Options::default()));
    assert!(error.contains("holds writes of another disk"), "{error}");
    // Another log for the disk: a new one, and one that was used.
    let new = format!("{}:2M", files.log.with_file_name("new").display()).parse().expect("a log");
    let error = refused(target.open_logged(&new, &Options::default()));
    assert!(error.contains("its newest writes may be there") && !files.log.with_file_name("new").exists(), "{error}");
    drop(Target::File(second).open_logged(&new, &Options::default()).expect("a new log for a new disk"));
    let error = refused(target.open_logged(&new, &Options::default()));
    assert!(error.contains("is not the log of"), "{error}");
    // A file that is no log.
    let text = files.log.with_file_name("text");
    std::fs::write(&text, vec![b'x'; 2 << 20]).expect("room");
    let wrong = format!("{}:2M", text.display()).parse().expect("a log");
    let error = refused(target.open_logged(&wrong, &Options::default()));
    assert!(error.contains("it is no write log"), "{error}");
    assert!(std::fs::read(&text).expect("the file").iter().all(|byte| *byte == b'x'), "it is left as it was");
    let error = refused(target.open_logged(&log, &Options { read_only: true, ..Options::default() }));
    assert!(error.contains("not read-only"), "{error}");
    // With its log, nothing is missing.
    let mut host = Host::new(files.open("", "").expect("it opens"), config(4096));
    assert_eq!(host.read(0, BLOCK), Ok(vec![7; BLOCK as usize]));
    drop(host);
    drop(plain(&target).expect("the log is empty"));
}

/// Commits that fail are tried again; if they fail for good, the disk says what is missing, and the rest goes home.
#[test]
fn a_log_that_fails_is_reported_with_what_is_missing() {
    let files = Files::new(&folders()[0]);
    // The first writes of a log are those of its making and opening.
    let mut host = Host::new(files.open("", "").expect("it opens"), config(4096));
    host.write(0, &[1; BLOCK as usize]).expect("a write");
    drop(host);
    let mut host = Host::new(files.open("", "fault:write=5,flush=4:").expect("it opens"), config(4096));
    for value in 2..20 {
        host.write(u64::from(value) * BLOCK, &[value; BLOCK as usize]).expect("it is tried again");
    }
    drop(host);
    let all: Vec<String> = (6..200).map(|at| format!("write={at}")).collect();
    let broken = format!("fault:{}:", all.join(","));
    let mut host = Host::new(files.open("delay:300ms:", &broken).expect("it opens"), config(4096));
    let mut written = Vec::new();
    let fault = (20..100).find_map(|value: u8| {
        let fault = host.write(u64::from(value) * 2 * BLOCK, &[value; BLOCK as usize]).err();
        if fault.is_none() {
            written.push(value);
        }
        fault
    });
    assert_eq!(fault, Some(Fault(libc::EIO)));
    assert!(!written.is_empty());
    assert!(host.flush().is_err());
    for value in &written {
        assert_eq!(host.read(u64::from(*value) * 2 * BLOCK, BLOCK), Ok(vec![*value; BLOCK as usize]));
    }
    let mut device = host.into_device();
    let state = device.geometry().write_log().expect("a log");
    assert!(state.failure.is_some());
    let missing: Vec<u64> = state.missing.iter().map(|range| range.start).collect();
    let expected: Vec<u64> = written.iter().map(|value| u64::from(*value) * 2 * BLOCK).collect();
    assert_eq!((missing, state.missing_bytes), (expected, written.len() as u64 * BLOCK));
    let trouble = device.geometry().trouble().expect("trouble");
    assert!(trouble.contains("its write log failed"), "{trouble}");
    drive(&mut device, |device| device.geometry().write_log().is_some_and(|state| state.missing_ranges == 0));
    drop(device);
    let home = files.bytes();
    for value in written {
        assert_eq!(home[usize::from(value) * 2 * BLOCK as usize], value);
    }
    assert!(!files.marker().exists(), "nothing is missing");
}

/// A home that fails delays what goes there; changes wait when the log is full, and all is right when home works again.
#[test]
fn a_home_that_fails_loses_nothing() {
    let files = Files::new(&folders()[0]);
    let faults = "fault:write=1,write=3,flush=2:";
    let mut host = Host::new(files.open(faults, "").expect("it opens"), config(4096));
    let mut model = vec![0; SIZE as usize];
    for round in 1..30u8 {
        let at = usize::from(round) * 60_000;
        host.write(at as u64, &vec![round; 200_000]).expect("a write");
        model[at..at + 200_000].fill(round);
        host.flush().expect("a flush");
    }
    assert!(all(&mut host) == model);
    let mut device = host.into_device();
    drive(&mut device, |device| device.geometry().write_log().is_some_and(|state| state.records == 0));
    assert!(files.bytes() == model);
}
