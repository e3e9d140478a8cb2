//! Disks on devices of the program's own.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nigh_host::{
    BLOCK, Custom, CustomAction, CustomDevice, CustomRequest, DiskSettings, Host, HostError, Settings, Target,
};

const DISK: usize = 8 << 20;

/// Bytes in memory, and a switch for trouble.
struct Bytes {
    bytes: Mutex<Vec<u8>>,
    fails: AtomicBool,
    /// With this, requests are finished by another thread.
    later: Option<Mutex<Sender<CustomRequest>>>,
}

impl Bytes {
    fn new(later: Option<Sender<CustomRequest>>) -> Arc<Bytes> {
        let (bytes, fails) = (Mutex::new(vec![0; DISK]), AtomicBool::new(false));
        Arc::new(Bytes { bytes, fails, later: later.map(Mutex::new) })
    }

    fn act(&self, request: &mut CustomRequest) -> io::Result<()> {
        let range = request.range().start as usize..request.range().end as usize;
        let mut bytes = self.bytes.lock().unwrap();
        let mut part = &mut bytes[range];
        match request.action() {
            CustomAction::Read(slices) => {
                for mut slice in slices {
                    let (now, rest) = part.split_at_mut(slice.len());
                    slice.copy_from_slice(now);
                    part = rest;
                }
            }
            CustomAction::Write(slices) => {
                for slice in slices {
                    let (now, rest) = part.split_at_mut(slice.len());
                    now.copy_from_slice(&slice);
                    part = rest;
                }
            }
            CustomAction::Flush => {}
            CustomAction::Discard | CustomAction::Zero => part.fill(0),
        }
        Ok(())
    }
}

impl CustomDevice for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(DISK as u64)
    }

    fn perform(&self, mut request: CustomRequest) {
        assert!(!self.fails.load(Ordering::Relaxed), "induced");
        match &self.later {
            Some(later) => later.lock().unwrap().send(request).unwrap(),
            None => {
                let result = self.act(&mut request);
                request.finish(result);
            }
        }
    }
}

fn disk(name: &str, device: &Arc<Bytes>) -> DiskSettings {
    DiskSettings::new(name, Target::Custom(Custom::new(name, 2, device.clone())))
}

fn start(disks: Vec<DiskSettings>) -> Host {
    Host::start(Settings::new(1 << 20, "lirs".parse().unwrap(), disks)).unwrap()
}

#[test]
fn a_device_of_the_programs_own_has_what_was_written() {
    let device = Bytes::new(None);
    let host = start(vec![disk("own", &device)]);
    let session = host.open("own").unwrap();
    let mut model = vec![0; DISK];
    let mut random = fastrand::Rng::with_seed(3);
    for step in 0..2000 {
        let at = random.usize(..DISK);
        let end = (at + random.usize(1..100_000)).min(DISK);
        match random.u8(..8) {
            0..4 => {
                let mut bytes = vec![0; end - at];
                session.read(at as u64, &mut bytes).unwrap();
                assert!(bytes == model[at..end], "step {step}");
            }
            4..7 => {
                model[at..end].fill(step as u8);
                session.write(at as u64, &model[at..end], false).unwrap();
            }
            _ => {
                model[at..end].fill(0);
                session.zero(at as u64..end as u64).unwrap();
            }
        }
    }
    host.shut_down().unwrap();
    assert!(*device.bytes.lock().unwrap() == model);
}

#[test]
fn a_device_that_panics_fails_its_requests_only() {
    let (device, sound) = (Bytes::new(None), Bytes::new(None));
    let host = start(vec![disk("sick", &device), disk("sound", &sound)]);
    let (sick, other) = (host.open("sick").unwrap(), host.open("sound").unwrap());
    device.fails.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        assert!(matches!(sick.read(0, &mut [0; 1]), Err(HostError::Device(fault)) if fault.0 == libc_eio()));
    }
    other.write(0, &[1; 1 << 20], true).unwrap();
    device.fails.store(false, Ordering::Relaxed);
    sick.read(0, &mut [0; 1]).unwrap();
    host.shut_down().unwrap();
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

/// Requests that the device finishes later, on a thread of its own; some are dropped, and fail.
#[test]
fn requests_can_be_finished_later() {
    let (later, requests) = channel::<CustomRequest>();
    let device = Bytes::new(Some(later));
    let host = start(vec![disk("own", &device)]);
    // The device has the sender that ends this thread when it is dropped.
    let own = Arc::downgrade(&device);
    let worker = std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut request in requests {
            if matches!(request.action(), CustomAction::Read(_)) && request.range().contains(&(4 << 20)) {
                drop(request);
                continue;
            }
            // Two at a time, the last first.
            kept.push(request);
            std::thread::sleep(Duration::from_micros(100));
            while let Some(mut request) = kept.pop() {
                let result = own.upgrade().expect("it has requests").act(&mut request);
                request.finish(result);
            }
        }
    });
    let session = host.open("own").unwrap();
    session.write(0, &[6; 1 << 20], true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    session.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 6));
    assert!(matches!(session.read(4 << 20, &mut [0; 1]), Err(HostError::Device(_))));
    host.shut_down().unwrap();
    drop((host, session, device));
    worker.join().expect("the host has dropped the device");
}

/// A device that never finishes holds up its own disk, and no other.
#[test]
fn requests_that_are_never_finished_stop_no_other_disk() {
    let (later, requests) = channel::<CustomRequest>();
    let (hung, sound) = (Bytes::new(Some(later)), Bytes::new(None));
    let host = start(vec![disk("hung", &hung), disk("sound", &sound)]);
    let session = host.open("hung").unwrap();
    let (done, _never) = channel();
    for at in 0..1000 {
        let done = done.clone();
        // Submission itself must not wait: there are fewer than a shard's limit.
        session.read_then(at * BLOCK..(at + 1) * BLOCK, move |read| drop(done.send(read)));
    }
    let other = host.open("sound").unwrap();
    for at in 0..(DISK as u64 / BLOCK) {
        other.write(at * BLOCK, &[2; BLOCK as usize], false).unwrap();
    }
    other.flush().unwrap();
    let late = host.shut_down_within(Duration::from_secs(2)).unwrap_err();
    assert_eq!(late.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["hung"]);
    drop(requests);
}
