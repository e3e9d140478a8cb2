//! The threads that a host leaves behind: the only test of its process, whose threads are counted.

use nigh_host::{DiskSettings, Host, HostError, Settings};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn settings(disks: &[(&str, &str)]) -> Settings {
    let disk = |(name, target): &(&str, &str)| DiskSettings::new(*name, target.parse().unwrap());
    Settings::new(4 << 20, "lirs".parse().unwrap(), disks.iter().map(disk).collect())
}

#[test]
fn no_thread_is_left() {
    let before = threads();
    let host = Host::start(settings(&[("disk", "memory:16M")])).unwrap();
    // The driver, the timer, and those that complete long reads.
    let completers = std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2).min(4));
    assert_eq!(threads(), before + 2 + completers);
    let session = host.open("disk").unwrap();
    session.write(0, &[1; 1 << 20], false).unwrap();
    drop(host);
    assert_eq!(threads(), before, "dropped");
    assert_eq!(session.read(0, &mut [0; 4096]), Err(HostError::Closed));
    assert_eq!(session.flush(), Err(HostError::Closed));

    let host = Host::start(settings(&[("disk", "memory:16M")])).unwrap();
    host.shut_down().unwrap();
    host.shut_down().unwrap();
    assert_eq!(threads(), before, "shut down");
    assert!(host.add(DiskSettings::new("late", "memory:1M".parse().unwrap())).is_err());

    let bad = settings(&[("good", "memory:16M"), ("bad", "/does/not/exist")]);
    assert!(Host::start(bad).is_err());
    assert_eq!(threads(), before, "not started");

    // Unwritable data is lost, and the threads end all the same.
    let host = Host::start(settings(&[("disk", "fault:flush=1,flush=2,flush=3:memory:16M")])).unwrap();
    host.open("disk").unwrap().write(0, &[1; 4096], false).unwrap();
    assert_eq!(host.shut_down().unwrap_err()[0].name, "disk");
    assert_eq!(threads(), before, "with a device that fails");
}
