//! The thread that does the I/O of many devices, and how others reach it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use nigh_engine::{Operation, Port};

use crate::device::{Completion, Device, Job};
use crate::signal::Signal;
use crate::sync::{Mutex, MutexGuard};

/// A change of what the driver drives.
enum Change {
    Attach(Port, Box<dyn Device>),
    /// The sender gets the device once it has nothing to do.
    Detach(Port, Sender<Box<dyn Device>>),
}

/// Work of other threads for the driver.
#[derive(Default)]
struct Inbox {
    jobs: Vec<Job>,
    changes: Vec<Change>,
    stop: bool,
    /// Whether the driver has to be woken for it.
    asleep: bool,
}

struct Common {
    inbox: Mutex<Inbox>,
    signal: Signal,
    /// How many operations may be on their way at a time.
    limit: usize,
}

impl Common {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("nobody panics with it")
    }
}

/// Gives operations to a [`Driver`], from any thread.
#[derive(Clone)]
pub struct Handle(Arc<Common>);

impl Handle {
    fn tell(&self, say: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.0.inbox();
        say(&mut inbox);
        let wake = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if wake {
            self.0.signal.raise();
        }
    }

    /// From now on, `device` does the operations of `port`, which has none yet.
    pub fn attach(&self, port: Port, device: Box<dyn Device>) {
        self.tell(|inbox| inbox.changes.push(Change::Attach(port, device)));
    }

    /// Returns the device of `port`, once all its operations are done; no more may be given. To drop it closes and unlocks
    /// its file, which may wait for the file: the driver's thread does not.
    pub fn detach(&self, port: Port) -> Receiver<Box<dyn Device>> {
        let (sender, gone) = channel();
        self.tell(|inbox| inbox.changes.push(Change::Detach(port, sender)));
        gone
    }

    /// Submits `operation` to the device of its port. Its completion carries `sender`.
    ///
    /// # Panics
    /// If more operations wait than the driver's limit: the host has set that too low for its engines.
    pub fn submit(&self, sender: u32, operation: Operation) {
        self.tell(|inbox| {
            assert!(inbox.jobs.len() < self.0.limit, "more operations than the driver was made for");
            inbox.jobs.push(Job::new(sender, operation));
        });
    }

    /// Ends `Driver::run` when all operations are done.
    pub fn stop(&self) {
        self.tell(|inbox| inbox.stop = true);
    }
}

/// A device and its place in a driver.
struct Attached {
    device: Box<dyn Device>,
    /// Operations that it has.
    busy: usize,
    /// Receives the device when its operations are done; `None` unless it is being detached.
    leaving: Option<Sender<Box<dyn Device>>>,
}

impl Attached {
    /// Whether the device may have something to do.
    fn is_awake(&self) -> bool {
        self.busy > 0 || self.device.is_restless()
    }
}

/// Devices driven by one thread, which waits for all of them and for the engines at once.
pub struct Driver {
    common: Arc<Common>,
    devices: BTreeMap<Port, Attached>,
    busy: usize,
}

impl Driver {
    /// A driver without devices. `limit` is how many operations the engines have at its devices at a time: per engine
    /// and port, the port's depth.
    pub fn new(limit: usize) -> io::Result<(Driver, Handle)> {
        let common = Arc::new(Common { inbox: Mutex::default(), signal: Signal::new()?, limit });
        Ok((Driver { common: common.clone(), devices: BTreeMap::new(), busy: 0 }, Handle(common)))
    }

    /// Does operations until `Handle::stop`. `complete` is given what is complete, one or more at a time, and empties
    /// it; it may submit operations.
    pub fn run(mut self, mut complete: impl FnMut(&mut Vec<Completion>)) {
        let (mut jobs, mut done) = (Vec::new(), Vec::new());
        loop {
            let stop = self.receive(&mut jobs);
            let now = Instant::now();
            for attached in self.devices.values_mut().filter(|attached| attached.is_awake()) {
                let before = done.len();
                attached.device.poll(now, &mut done);
                attached.busy -= done.len() - before;
                self.busy -= done.len() - before;
            }
            self.release_idle();
            if !done.is_empty() {
                complete(&mut done);
                assert!(done.is_empty(), "completions are taken");
            } else if stop && self.busy == 0 {
                return;
            } else {
                self.wait();
            }
        }
    }

    /// Returns the devices that are to leave and have nothing to do.
    fn release_idle(&mut self) {
        let idle =
            |(port, attached): (&Port, &Attached)| (attached.busy == 0 && attached.leaving.is_some()).then_some(*port);
        while let Some(port) = self.devices.iter().find_map(idle) {
            if let Some(Attached { device, leaving: Some(leaving), .. }) = self.devices.remove(&port) {
                // If the receiver is gone, this thread drops the device.
                let _ = leaving.send(device);
            }
        }
    }

    /// Takes what others have sent, with `jobs` as scratch memory; returns whether to stop.
    fn receive(&mut self, jobs: &mut Vec<Job>) -> bool {
        let mut inbox = self.common.inbox();
        inbox.asleep = false;
        std::mem::swap(jobs, &mut inbox.jobs);
        let changes = std::mem::take(&mut inbox.changes);
        let stop = inbox.stop;
        drop(inbox);
        // Those who detach a device have no more operations for it, and those who attach one have none yet.
        let (attach, detach): (Vec<_>, Vec<_>) = changes.into_iter().partition(|c| matches!(c, Change::Attach(..)));
        for change in attach {
            self.change(change);
        }
        for job in jobs.drain(..) {
            let port = job.operation.port;
            let attached = self.devices.get_mut(&port).unwrap_or_else(|| panic!("no device of port {}", port.0));
            attached.busy += 1;
            self.busy += 1;
            attached.device.submit(job);
        }
        for change in detach {
            self.change(change);
        }
        stop
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Attach(port, device) => {
                let before = self.devices.insert(port, Attached { device, busy: 0, leaving: None });
                assert!(before.is_none(), "port {} has a device", port.0);
            }
            Change::Detach(port, gone) => {
                self.devices.get_mut(&port).expect("a device that is detached").leaving = Some(gone);
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) {
        let mut inbox = self.common.inbox();
        if !inbox.jobs.is_empty() || !inbox.changes.is_empty() || (inbox.stop && self.busy == 0) {
            return;
        }
        inbox.asleep = true;
        drop(inbox);
        let awake = || self.devices.values().filter(|attached| attached.is_awake());
        let deadline = awake().filter_map(|attached| attached.device.deadline()).min();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.common.signal.wait_with(awake().filter_map(|attached| attached.device.signal()), timeout);
    }
}

/// All orders of the steps of a driver and those who give it work (`cargo xtask loom`).
#[cfg(all(test, loom))]
mod models {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::device::Geometry;
    use crate::models::{Requests, check};
    use crate::sync::{Condvar, thread};

    /// Operations that a device was given and has done.
    #[derive(Default)]
    struct Jobs {
        given: Vec<Job>,
        done: Vec<Completion>,
    }

    /// A device whose jobs a thread does, in place of a kernel.
    #[derive(Clone, Default)]
    struct Fake(Arc<(Mutex<Jobs>, Condvar)>);

    impl Fake {
        fn jobs(&self) -> MutexGuard<'_, Jobs> {
            self.0.0.lock().expect("no error")
        }

        /// Starts the thread, which does this many jobs. `signal` is the driver's: it stands for a descriptor of the device.
        fn work(&self, jobs: usize, driver: &Handle) -> thread::JoinHandle<()> {
            let (device, driver) = (self.clone(), driver.clone());
            thread::spawn(move || {
                for _ in 0..jobs {
                    let mut jobs = device.jobs();
                    while jobs.given.is_empty() {
                        jobs = device.0.1.wait(jobs).expect("no error");
                    }
                    let job = jobs.given.remove(0);
                    jobs.done.push(job.finish(Ok(())));
                    drop(jobs);
                    driver.0.signal.raise();
                }
            })
        }
    }

    impl Device for Fake {
        fn geometry(&self) -> Arc<dyn Geometry> {
            unreachable!("not asked for")
        }

        fn submit(&mut self, job: Job) {
            self.jobs().given.push(job);
            self.0.1.notify_one();
        }

        fn poll(&mut self, _: Instant, done: &mut Vec<Completion>) {
            done.append(&mut self.jobs().done);
        }

        fn deadline(&self) -> Option<Instant> {
            None
        }

        fn signal(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// A driver in a thread, which raises `complete` when something is, and returns all that was.
    fn start(driver: Driver, complete: &Arc<Signal>) -> thread::JoinHandle<Vec<Completion>> {
        let complete = complete.clone();
        thread::spawn(move || {
            let mut all = Vec::new();
            driver.run(|done| {
                all.append(done);
                complete.raise();
            });
            all
        })
    }

    /// An operation is given to a driver that sleeps, or is about to, and done.
    #[test]
    fn whoever_waits_for_an_operation_gets_it() {
        check(2, || {
            let mut requests = Requests::new();
            let (driver, handle) = Driver::new(1).expect("a descriptor");
            let (complete, device) = (Arc::new(Signal::new().expect("a descriptor")), Fake::default());
            let kernel = device.work(1, &handle);
            let driver = start(driver, &complete);
            handle.attach(Port(0), Box::new(device));
            handle.submit(0, requests.read(0));
            complete.wait();
            handle.stop();
            kernel.join().expect("no error");
            assert_eq!(requests.complete(driver.join().expect("no error")), [(0, 0)]);
        });
    }

    /// Two threads give one operation each to a driver that is being stopped: it ends when both are done.
    #[test]
    fn a_driver_ends_after_its_operations() {
        check(2, || {
            let mut requests = Requests::new();
            let (driver, handle) = Driver::new(2).expect("a descriptor");
            let (complete, device) = (Arc::new(Signal::new().expect("a descriptor")), Fake::default());
            let kernel = device.work(2, &handle);
            handle.attach(Port(0), Box::new(device));
            let driver = start(driver, &complete);
            let (other, operation) = (handle.clone(), requests.read(1));
            let client = thread::spawn(move || other.submit(1, operation));
            handle.submit(0, requests.read(0));
            client.join().expect("no error");
            handle.stop();
            let done = driver.join().expect("no error");
            kernel.join().expect("no error");
            assert_eq!(done.iter().map(|completion| completion.sender).sum::<u32>(), 1);
            assert_eq!(requests.complete(done), [(0, 0), (1, 0)]);
        });
    }

    /// A device that gets an operation and leaves is returned after that.
    #[test]
    fn a_device_leaves_after_its_operations() {
        check(3, || {
            let mut requests = Requests::new();
            let (driver, handle) = Driver::new(1).expect("a descriptor");
            let (complete, device) = (Arc::new(Signal::new().expect("a descriptor")), Fake::default());
            let kernel = device.work(1, &handle);
            let driver = start(driver, &complete);
            handle.attach(Port(0), Box::new(device.clone()));
            handle.submit(0, requests.read(0));
            let gone = handle.detach(Port(0));
            kernel.join().expect("no error");
            handle.stop();
            let done = driver.join().expect("no error");
            assert_eq!(requests.complete(done), [(0, 0)]);
            assert!(gone.try_recv().is_ok(), "the device did not come back");
        });
    }
}
