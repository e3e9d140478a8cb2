//! The cache as a program uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nigh_host::{Allocation, BLOCK, Directive, DiskSettings, Host, HostError, Order, Settings};

const MIB: u64 = 1 << 20;
/// Bytes of the disk that a thread has for itself.
const PART: usize = 4 << 20;

fn disk(name: &str, target: &str) -> DiskSettings {
    DiskSettings::new(name, target.parse().unwrap())
}

fn start(memory: u64, disks: Vec<DiskSettings>) -> Host {
    Host::start(Settings::new(memory, "lirs".parse().unwrap(), disks)).unwrap()
}

/// Random requests of a thread in its part of the disk, against a model in memory.
fn drive(host: &Host, part: usize, steps: usize) {
    let session = host.open("disk").unwrap();
    let mut random = fastrand::Rng::with_seed(part as u64);
    let mut model = vec![0u8; PART];
    let base = (part * PART) as u64;
    for step in 0..steps {
        let at = random.usize(..PART);
        let end = (at + random.usize(1..if step % 16 == 0 { PART } else { 64 << 10 })).min(PART);
        let (from, to) = (base + at as u64, base + end as u64);
        match random.u8(..20) {
            0..9 => {
                let mut bytes = vec![0xff; end - at];
                session.read(from, &mut bytes).unwrap();
                assert!(bytes == model[at..end], "part {part}, step {step}");
            }
            9..11 => {
                let (done, read) = channel();
                session.read_then(from..to, move |bytes| done.send(bytes).unwrap());
                assert!(read.recv().unwrap().unwrap() == model[at..end], "part {part}, step {step}");
            }
            11..15 => {
                model[at..end].fill(step as u8);
                session.write(from, &model[at..end], random.bool()).unwrap();
            }
            15..17 => {
                model[at..end].fill(!step as u8);
                let (done, written) = channel();
                session.write_then(from, model[at..end].to_vec(), false, move |bytes| done.send(bytes).unwrap());
                assert!(written.recv().unwrap().unwrap() == model[at..end]);
            }
            17 => {
                model[at..end].fill(0);
                session.zero(from..to).unwrap();
            }
            18 => session.prefetch(from..to).unwrap(),
            _ => session.flush().unwrap(),
        }
    }
}

#[test]
fn sessions_read_what_they_wrote_while_the_host_changes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 * PART as u64).unwrap();
    let mut settings = Settings::new(4 * MIB, "lirs".parse().unwrap(), Vec::new());
    settings.memory_max = 8 * MIB;
    settings.readahead = "linux".parse().unwrap();
    let host = Host::start(settings).unwrap();
    host.add(disk("disk", file.path().to_str().unwrap())).unwrap();
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..4)
            .map(|part| {
                scope.spawn({
                    let host = &host;
                    move || drive(host, part, 300)
                })
            })
            .collect();
        while !parts.iter().all(|part| part.is_finished()) {
            host.change(Some(8 * MIB), Some(&"arc".parse().unwrap())).unwrap();
            host.add(disk("other", "memory:4M")).unwrap();
            host.open("other").unwrap().write(0, &[1; 4096], false).unwrap();
            host.change(Some(2 * MIB), None).unwrap();
            host.remove("other", false).unwrap();
        }
    });
    let session = host.open("disk").unwrap();
    let mut before = vec![0; 4 * PART];
    session.read(0, &mut before).unwrap();
    host.shut_down().unwrap();
    assert!(std::fs::read(file.path()).unwrap() == before, "the device has not what was read");
}

#[test]
fn errors_are_told_apart() {
    let mut frozen = disk("frozen", "memory:1M");
    frozen.read_only = true;
    let host = start(MIB, vec![frozen, disk("faulty", "fault:read=1:memory:1M")]);
    assert_eq!(host.open("disc").err(), Some(HostError::NoDisk("disc".into())));
    let frozen = host.open("frozen").unwrap();
    assert_eq!(frozen.write(0, &[1], false), Err(HostError::ReadOnly));
    assert_eq!(frozen.trim(0..4096), Err(HostError::ReadOnly));
    assert_eq!(frozen.read(MIB - 1, &mut [0; 2]), Err(HostError::OutOfRange));
    assert_eq!(frozen.read(u64::MAX, &mut [0; 2]), Err(HostError::OutOfRange));
    frozen.read(MIB, &mut []).unwrap();
    let faulty = host.open("faulty").unwrap();
    assert!(matches!(faulty.read(0, &mut [0; 4096]), Err(HostError::Device(_))));
    faulty.read(0, &mut [0; 4096]).unwrap();
    host.remove("faulty", true).unwrap();
    assert_eq!(faulty.read(0, &mut [0; 4096]), Err(HostError::Closed));
}

#[test]
fn a_callback_may_submit_but_not_wait() {
    let host = Arc::new(start(MIB, vec![disk("disk", "memory:8M")]));
    let (done, steps) = channel();
    // Reads one block after another, each from the callback of the one before.
    fn next(host: Arc<Host>, at: u64, done: std::sync::mpsc::Sender<u64>) {
        let session = host.open("disk").unwrap();
        let again = host.clone();
        session.read_then(at * BLOCK..(at + 1) * BLOCK, move |read| {
            assert_eq!(read.unwrap(), [0; BLOCK as usize]);
            let session = again.open("disk").unwrap();
            assert_eq!(session.read(0, &mut [0; 1]), Err(HostError::InCallback));
            done.send(at).unwrap();
            if at < 1000 {
                next(again, at + 1, done);
            }
        });
    }
    next(host.clone(), 0, done);
    assert_eq!(steps.iter().collect::<Vec<_>>(), (0..=1000).collect::<Vec<_>>());

    let session = host.open("disk").unwrap();
    session.read_then(0..4096, |_| panic!("induced"));
    session.read(0, &mut [0; 4096]).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    for at in 0..512 {
        let count = count.clone();
        session.write_then(at * 16384, vec![at as u8; 16384], false, move |written| {
            assert_eq!(written.unwrap().len(), 16384);
            count.fetch_add(1, Ordering::Relaxed);
        });
    }
    session.flush().unwrap();
    while count.load(Ordering::Relaxed) < 512 {
        std::thread::yield_now();
    }
    let mut all = vec![0; 8 << 20];
    session.read(0, &mut all).unwrap();
    assert!(all.chunks(16384).enumerate().all(|(at, chunk)| chunk.iter().all(|byte| *byte == at as u8)));
}

/// The work of a long read for each byte is not done by the thread that all devices share.
#[test]
fn a_long_read_does_not_hold_other_devices() {
    let host = start(8 * MIB, vec![disk("long", "memory:16M"), disk("other", "memory:16M")]);
    let (go_on, wait) = channel::<()>();
    let (called, calls) = channel();
    host.open("long").unwrap().read_then(0..MIB, move |read| {
        called.send(read.map(|bytes| bytes.len())).unwrap();
        // Fails when it is to continue.
        let _ = wait.recv();
    });
    assert_eq!(calls.recv().unwrap(), Ok(1 << 20));
    let other = host.open("other").unwrap();
    let (done, read) = channel();
    other.read_then(0..4096, move |bytes| done.send(bytes.map(|bytes| bytes.len())).unwrap());
    assert_eq!(read.recv_timeout(Duration::from_secs(20)), Ok(Ok(4096)));
    drop(go_on);
    host.shut_down().unwrap();
}

#[test]
fn a_tenant_that_loops_and_says_so_misses_less() {
    let misses = |hint: bool| {
        let mut settings = Settings::new(256 * BLOCK, "lru".parse().unwrap(), vec![disk("disk", "memory:4M")]);
        settings.allocate = Some(Allocation::LruSp);
        let host = Host::start(settings).unwrap();
        if hint {
            host.hint("disk", &Directive::SetPolicy { priority: 0, policy: Order::Mru }).unwrap();
        }
        let session = host.open("disk").unwrap();
        for step in 0..4 * 300 {
            session.read(step % 300 * BLOCK, &mut [0; 4096]).unwrap();
        }
        host.statistics().1[0].misses
    };
    assert_eq!(misses(false), 4 * 300);
    assert!(misses(true) < 600);
}

/// The blocks of many disks in a large cache need not be forgotten at the end.
#[test]
fn end_4_of_many_disks_and_blocks_takes_no_longer_than_their_writes() {
    let disks = (0..200).map(|at| DiskSettings::new(format!("disk-{at}"), "memory:64K".parse().unwrap()));
    let host = Host::start(Settings::new(8 << 30, "lru".parse().unwrap(), disks.collect())).unwrap();
    for at in 0..200 {
        host.open(&format!("disk-{at}")).unwrap().write(0, &[1; 4096], false).unwrap();
    }
    let begin = Instant::now();
    host.shut_down().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

/// Hits take no lock: readers of blocks that others write, and that leave and return all the time, never see half a write or anything older than
/// the last write that was acknowledged before the read.
#[test]
fn hits_are_neither_torn_nor_stale() {
    const BLOCKS: usize = 600;
    const WRITERS: usize = 2;
    let mut settings = Settings::new(MIB, "lirs".parse().unwrap(), vec![disk("disk", "memory:8M")]);
    settings.shards = Some(1);
    let host = Host::start(settings).unwrap();
    let written: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (host, written, stop) = (&host, &written, &stop);
            scope.spawn(move || {
                let session = host.open("disk").unwrap();
                let mut random = fastrand::Rng::with_seed(writer as u64);
                while !stop.load(Ordering::Relaxed) {
                    // Each block has one writer. Hot blocks are written most.
                    let most = if random.bool() { 16 } else { BLOCKS };
                    let block = random.usize(..most) / WRITERS * WRITERS + writer;
                    let next = written[block].load(Ordering::Relaxed) + 1;
                    session.write(block as u64 * BLOCK, &next.to_le_bytes().repeat(512), false).unwrap();
                    written[block].store(next, Ordering::Release);
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (host, written) = (&host, &written);
                scope.spawn(move || {
                    let session = host.open("disk").unwrap();
                    let mut random = fastrand::Rng::with_seed(100 + reader);
                    let mut bytes = vec![0; BLOCK as usize];
                    for _ in 0..20_000 {
                        let most = if random.u8(..4) > 0 { 16 } else { BLOCKS };
                        let block = random.usize(..most);
                        let before = written[block].load(Ordering::Acquire);
                        session.read(block as u64 * BLOCK, &mut bytes).unwrap();
                        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert!(bytes.chunks(8).all(|part| part == &bytes[..8]), "half a write of block {block}");
                        assert!(found >= before, "block {block}: {found}, although {before} was written");
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    host.shut_down().unwrap();
}

#[test]
fn what_was_hit_cannot_be_read_without_its_disk_or_host() {
    let host = start(4 * MIB, vec![disk("one", "memory:1M"), disk("other", "memory:1M")]);
    let sessions = ["one", "other"].map(|name| host.open(name).unwrap());
    let mut block = [0; BLOCK as usize];
    for session in &sessions {
        (0..10).for_each(|_| session.read(0, &mut block).unwrap());
    }
    // Hits that are not reported yet are counted, too.
    assert!(host.statistics().1.iter().all(|disk| (disk.reads, disk.hits, disk.misses) == (10, 9, 1)));
    host.remove("one", false).unwrap();
    assert_eq!(sessions[0].read(0, &mut block), Err(HostError::Closed));
    sessions[1].read(0, &mut block).unwrap();
    host.shut_down().unwrap();
    assert_eq!(sessions[1].read(0, &mut block), Err(HostError::Closed));
}
