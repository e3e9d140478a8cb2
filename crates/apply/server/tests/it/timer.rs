//! Processor time of an idle server: the only test of its process, which is measured.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nigh_nbd::client::Client;
use nigh_server::NBD;
use nigh_service::{ExportSettings, Service, Settings};

/// Processor time of the thread called `name`, which has its name once it runs.
fn cpu(name: &str) -> Duration {
    let of = |path: &Path, file| std::fs::read_to_string(path.join(file)).unwrap();
    let named = || {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        threads.find(|path| of(path, "comm").trim_end() == name)
    };
    let thread = std::iter::repeat_with(named).flatten().next().expect("it goes on until there is one");
    Duration::from_nanos(of(&thread, "schedstat").split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn blocks_that_wait_to_be_written_cost_no_time() {
    let export = ExportSettings::new("disk", "memory:64M".parse().unwrap());
    let server = Service::start(Settings::new(16 << 20, "lirs".parse().unwrap(), vec![export])).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    let mut client = Client::connect(ours, "disk", &[]).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    let before = cpu("timer");
    std::thread::sleep(Duration::from_secs(1));
    let after = cpu("timer");
    assert_eq!(server.statistics().exports[0].disk.dirty_bytes, 4096);
    assert!(after - before < Duration::from_millis(20), "{:?} of the timer in a second", after - before);
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}
