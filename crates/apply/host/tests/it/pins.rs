//! Pins: blocks that a program holds in the cache.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use nigh_host::{BLOCK, DiskSettings, Host, HostError, Pinned, Session, Settings};

const MIB: u64 = 1 << 20;

fn start(memory: u64, disks: &[(&str, &str)]) -> Host {
    let disks = disks.iter().map(|(name, target)| DiskSettings::new(*name, target.parse().unwrap())).collect();
    Host::start(Settings::new(memory, "lirs".parse().unwrap(), disks)).unwrap()
}

fn block(at: u64) -> std::ops::Range<u64> {
    at * BLOCK..(at + 1) * BLOCK
}

/// Pins blocks until there are as many as the session can have.
fn pin_all(session: &Session) -> Vec<Pinned> {
    let mut pins = Vec::new();
    for at in 0.. {
        match session.pin(block(at)) {
            Ok(pinned) => pins.push(pinned),
            Err(error) => {
                assert_eq!(error, HostError::TooManyPins);
                break;
            }
        }
    }
    pins
}

/// Reads and writes all of a disk that is larger than the cache.
fn use_all(session: &Session, rounds: u64) {
    for round in 0..rounds {
        for at in 0..session.disk().size() / BLOCK {
            session.write(at * BLOCK, &[(at + round) as u8; 8], false).unwrap();
            let mut byte = [0];
            session.read(at * BLOCK, &mut byte).unwrap();
            assert_eq!(byte[0], (at + round) as u8);
        }
        session.flush().unwrap();
    }
}

#[test]
fn a_pin_keeps_its_bytes_whatever_happens_to_the_blocks() {
    let host = start(MIB, &[("disk", "memory:16M")]);
    let session = host.open("disk").unwrap();
    session.write(0, &[1; 3 * BLOCK as usize], false).unwrap();
    let (one, several) = (session.pin(10..20).unwrap(), session.pin(100..2 * BLOCK + 50).unwrap());
    assert_eq!(*one, [1; 10]);
    assert_eq!(several.slices().map(<[u8]>::len).collect::<Vec<_>>(), [3996, 4096, 50]);
    // Overwritten, evicted, trimmed, and the disk removed.
    session.write(0, &[2; 3 * BLOCK as usize], false).unwrap();
    assert_eq!(*session.pin(10..20).unwrap(), [2; 10]);
    use_all(&session, 2);
    session.trim(0..MIB).unwrap();
    host.remove("disk", false).unwrap();
    assert_eq!(session.pin(10..20).err(), Some(HostError::Closed));
    host.shut_down().unwrap();
    drop(host);
    let mut bytes = [0; 2 * BLOCK as usize - 50];
    several.copy_to(&mut bytes);
    assert_eq!(bytes, [1; 2 * BLOCK as usize - 50]);
    assert_eq!(*one, [1; 10]);
    assert_eq!(session.try_pin(10..20).map(|found| found.is_none()), Ok(true));
}

#[test]
fn ranges_that_cannot_be_pinned_are_rejected() {
    let host = start(MIB, &[("disk", "memory:5001000B")]);
    let session = host.open("disk").unwrap();
    let size = session.disk().size();
    for range in [0..0, 0..256 * 1024 + 1, MIB - 1..MIB + 1] {
        assert_eq!(session.pin(range.clone()).err(), Some(HostError::PinRange), "{range:?}");
        assert_eq!(session.try_pin(range).err(), Some(HostError::PinRange));
    }
    assert_eq!(session.pin(size - 1..size + 1).err(), Some(HostError::OutOfRange));
    assert_eq!(session.pin(u64::MAX - 1..u64::MAX).err(), Some(HostError::OutOfRange));
    for range in [1..BLOCK, 0..BLOCK - 1] {
        assert_eq!(session.pin_mut(range).err(), Some(HostError::PinRange));
    }
    // The last block is shorter.
    let mut last = session.pin_mut(size / BLOCK * BLOCK..size).unwrap();
    last.fill(7);
    last.commit(true).unwrap();
    assert_eq!(session.pin(size - 1..size).unwrap()[0], 7);
}

#[test]
fn a_try_finds_what_is_in_memory_and_loads_nothing() {
    let host = start(MIB, &[("disk", "delay:100ms:memory:16M")]);
    let session = host.open("disk").unwrap();
    assert!(session.try_pin(block(3)).unwrap().is_none());
    let disk = &host.statistics().1[0];
    assert_eq!((disk.hits, disk.misses), (0, 0), "it is no reference");
    drop(session.pin(block(3)).unwrap());
    assert!(session.try_pin(block(3)).unwrap().is_some());
    assert!(session.try_pin(3 * BLOCK..5 * BLOCK).unwrap().is_none());
    let disk = &host.statistics().1[0];
    assert_eq!((disk.hits, disk.misses), (1, 1));
    // With rates, each pin waits for its turn.
    host.set("disk", |disk| disk.iops = 1000).unwrap();
    assert!(session.try_pin(block(3)).unwrap().is_none());
    assert!(session.pin(block(3)).is_ok());
}

#[test]
fn pins_that_are_never_dropped_stop_nobody_else() {
    let host = start(MIB, &[("disk", "memory:8M"), ("other", "memory:8M")]);
    let session = host.open("disk").unwrap();
    let pins = pin_all(&session);
    assert_eq!(pins.len() as u32, session.pins_most());
    pins.into_iter().for_each(std::mem::forget);
    drop(session);
    // Other sessions, of the same disk and of another one.
    let (same, other) = (host.open("disk").unwrap(), host.open("other").unwrap());
    assert!(!pin_all(&same).is_empty());
    let pins = pin_all(&other);
    assert!(pins.len() >= 16, "{} pins", pins.len());
    use_all(&same, 2);
    use_all(&other, 2);
    drop(pins);
    assert!(pin_all(&other).len() >= 16, "what is unpinned can be pinned again");
    host.change(Some(MIB / 2), Some(&"clock".parse().unwrap())).unwrap();
    use_all(&other, 1);
    host.remove("disk", false).unwrap();
    host.shut_down().unwrap();
}

/// Sessions that have pinned something before do not keep it from others.
#[test]
fn many_sessions_pin_in_turn() {
    let host = start(16 * MIB, &[("disk", "memory:8M")]);
    let sessions: Vec<Session> = (0..64).map(|_| host.open("disk").unwrap()).collect();
    for at in 0..200 {
        let session = &sessions[at % 64];
        drop(session.pin(at as u64 * 2 * BLOCK..(at as u64 * 2 + 2) * BLOCK).unwrap());
    }
    assert_eq!(pin_all(&sessions[0]).len() as u32, sessions[0].pins_most());
}

#[test]
fn a_change_is_committed_or_dropped() {
    let host = start(MIB, &[("disk", "memory:8M")]);
    let (session, other) = (host.open("disk").unwrap(), host.open("disk").unwrap());
    session.write(0, &[1; 2 * BLOCK as usize], false).unwrap();
    let before = session.pin(block(0)).unwrap();
    let mut change = session.pin_mut(block(0)).unwrap();
    assert_eq!(*change, [1; BLOCK as usize]);
    change[5] = 9;
    assert_eq!(other.pin_mut(0..2 * BLOCK).err(), Some(HostError::BeingChanged));
    assert_eq!(other.pin_new(block(0)).err(), Some(HostError::BeingChanged));
    assert_eq!(session.pin(block(0)).unwrap()[5], 1, "it is not committed");
    change.commit(false).unwrap();
    assert_eq!((session.pin(block(0)).unwrap()[5], before[5]), (9, 1));
    let mut dropped = other.pin_mut(block(0)).unwrap();
    dropped[5] = 8;
    dropped.abort();
    assert_eq!(session.pin(block(0)).unwrap()[5], 9);
    // One that is never dropped keeps its blocks from other changes, and nothing else.
    std::mem::forget(session.pin_mut(block(1)).unwrap());
    assert_eq!(session.pin_mut(block(1)).err(), Some(HostError::BeingChanged));
    session.write(BLOCK, &[3], false).unwrap();
    assert_eq!(session.pin(block(1)).unwrap()[0], 3);
    host.set("disk", |disk| disk.read_only = true).unwrap();
    assert_eq!(session.pin_mut(block(2)).err(), Some(HostError::ReadOnly));
    host.shut_down().unwrap();
}

#[test]
fn a_callback_gets_a_pin() {
    let host = start(MIB, &[("disk", "delay:5ms:memory:8M")]);
    let session = host.open("disk").unwrap();
    session.write(0, &[4; 8], false).unwrap();
    let (done, pinned) = channel();
    for at in [0, 1] {
        let (done, again) = (done.clone(), session.clone());
        session.pin_then(block(at), move |pinned| {
            let nested = again.try_pin(block(0)).unwrap().map(|nested| nested[0]);
            let waits = again.pin(block(1000)).err();
            done.send((at, pinned.unwrap(), nested, waits)).unwrap();
        });
    }
    let mut answers: Vec<_> = (0..2).map(|_| pinned.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
    answers.sort_by_key(|(at, ..)| *at);
    assert_eq!(answers.iter().map(|(_, pinned, ..)| pinned[0]).collect::<Vec<_>>(), [4, 0]);
    assert!(
        answers.iter().all(|(_, _, nested, waits)| { *nested == Some(4) && *waits == Some(HostError::InCallback) })
    );
    // One that panics loses its pin, and no other request.
    session.pin_then(block(0), |_| panic!("induced"));
    session.pin_then(block(9), |_| panic!("induced"));
    let (failed, failure) = channel();
    session.pin_then(0..0, move |pinned| failed.send(pinned.err()).unwrap());
    assert_eq!(failure.recv(), Ok(Some(HostError::PinRange)));
    assert_eq!(session.pin(block(0)).unwrap()[0], 4);
    drop(answers);
    assert_eq!(pin_all(&session).len() as u32, session.pins_most());
}

/// With read-ahead, pins are reads like others.
#[test]
fn pins_in_sequence_are_read_ahead() {
    let disk = DiskSettings::new("disk", "memory:8M".parse().unwrap());
    let mut settings = Settings::new(4 * MIB, "lirs".parse().unwrap(), vec![disk]);
    settings.readahead = "linux".parse().unwrap();
    let host = Host::start(settings).unwrap();
    let session = host.open("disk").unwrap();
    for at in 0..500 {
        let found = session.try_pin(block(at)).unwrap();
        drop(found.map_or_else(|| session.pin(block(at)), Ok).unwrap());
    }
    let disk = &host.statistics().1[0];
    assert!(disk.misses < 50, "{} misses", disk.misses);
}

/// The policy gets the same references from pins, tries included, as from reads.
#[test]
fn pins_hit_as_reads_do() {
    let replay = |policy: &str, pins: bool| {
        let disk = DiskSettings::new("disk", "memory:8M".parse().unwrap());
        let host = Host::start(Settings::new(256 * BLOCK, policy.parse().unwrap(), vec![disk])).unwrap();
        let session = host.open("disk").unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let at = random.u64(..1200).min(random.u64(..1200)).min(random.u64(..1200));
            if !pins {
                session.read(at * BLOCK, &mut [0; BLOCK as usize]).unwrap();
            } else if at.is_multiple_of(3) {
                drop(session.pin(block(at)).unwrap());
            } else {
                drop(session.try_pin(block(at)).unwrap().map_or_else(|| session.pin(block(at)), Ok).unwrap());
            }
        }
        let disk = &host.statistics().1[0];
        (disk.hits, disk.misses)
    };
    for policy in ["lirs", "clock-pro", "arc", "s3-fifo", "auto"] {
        assert_eq!(replay(policy, true), replay(policy, false), "{policy}");
    }
}

/// A program that changes pages and flushes after each, until it is killed.
#[expect(clippy::print_stdout, reason = "its parent reads it")]
fn change_for_ever(path: &str) {
    let host = start(MIB, &[("disk", path)]);
    let session = host.open("disk").unwrap();
    let _kept = session.pin(block(0)).unwrap();
    for step in 1_u64.. {
        let mut page = session.pin_mut(block(step % 64)).unwrap();
        page[..8].copy_from_slice(&step.to_le_bytes());
        page.commit(false).unwrap();
        session.flush().unwrap();
        println!("flushed {step}");
    }
}

#[test]
fn a_killed_program_has_lost_nothing_that_it_flushed() {
    const PATH: &str = "NIGH_TEST_KILLED";
    if let Ok(path) = std::env::var(PATH) {
        return change_for_ever(&path);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 * BLOCK).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pins::a_killed_program_has_lost_nothing_that_it_flushed", "--nocapture"]);
    let mut child = command.env(PATH, file.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut last = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Some(step) = line.unwrap().strip_prefix("flushed ").map(|step| step.parse::<u64>().unwrap()) else {
            continue;
        };
        last = step;
        if step == 500 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(last >= 500, "the program ended after {last} steps");
    let host = start(MIB, &[("disk", file.path().to_str().unwrap())]);
    let session = host.open("disk").unwrap();
    for page in 0..64 {
        let step = u64::from_le_bytes(session.pin(block(page)).unwrap()[..8].try_into().unwrap());
        // The page may also have the change that was not acknowledged yet.
        let flushed = last - (last + 64 - page) % 64;
        assert!(step == flushed || step == last + 1 && step % 64 == page, "page {page}: {step} after {last} steps");
    }
}

/// Neither hits nor their ends allocate memory.
#[test]
fn hits_allocate_nothing() {
    let host = start(16 * MIB, &[("disk", "memory:2M")]);
    let session = host.open("disk").unwrap();
    let mut bytes = [0; BLOCK as usize];
    let mut hit = |at: u64| {
        assert_eq!(session.try_pin(block(at % 512)).unwrap().unwrap().len(), BLOCK as usize);
        session.read(at % 512 * BLOCK, &mut bytes).unwrap();
    };
    (0..3).for_each(|_| (0..512).for_each(|at| drop(session.pin(block(at)).unwrap())));
    (0..1000).for_each(&mut hit);
    let counted = allocation_counter::measure(|| (0..10_000).for_each(&mut hit));
    assert_eq!(counted.count_total, 0);
}
