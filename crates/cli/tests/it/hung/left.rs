//! Clients that leave while their device does not respond leave nothing behind.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;

use crate::hung::device::Device;
use crate::hung::{MIB, connect};
use crate::serving::{Folder, Server};

/// Threads of connections.
fn threads(server: &Server) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| matches!(name.trim(), "connection" | "writer")).count()
}

#[test]
fn hung_left_clients_leave_their_places() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_left_clients_leave_their_places", &folder, 64 * MIB) else { return };
    let hung = format!("hung={},connections=3", device.file.display());
    let server = folder.serve(&[&hung]);
    let [mut reader, mut asker, mut writer] = [(); 3].map(|()| {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        Client::connect(stream, "hung", &[]).unwrap()
    });
    assert_eq!(threads(&server), 3);
    device.hang();
    // It waits for its replies.
    reader.submit_read(0, vec![0; 4096]).unwrap();
    // It has more requests than a connection may have in progress, and its thread waits for room.
    while asker.submit_read(4096, vec![0; 4096]).is_ok() {
        assert!(asker.in_flight() < 10_000, "it takes everything");
    }
    // Its thread waits for frames: the device takes no dirty blocks.
    let block = vec![1; MIB];
    while writer.submit_write(32 << 20, &block, false).is_ok() {
        assert!(writer.in_flight() < 1000, "it takes everything");
    }
    assert!(UnixStream::connect(&server.socket).is_ok_and(|stream| Client::connect(stream, "hung", &[]).is_err()));
    reader.disconnect().unwrap();
    drop((asker, writer));

    let begin = Instant::now();
    while threads(&server) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "{} threads are left", threads(&server));
        std::thread::sleep(Duration::from_millis(20));
    }
    let [_first, _second, mut third] = [(); 3].map(|()| connect(&server.socket, "hung"));
    device.go_on();
    third.write(0, &[3; 4096]).unwrap();
    third.flush().unwrap();
    assert_eq!(third.read(0, 4096).unwrap(), [3; 4096]);
    server.end();
}
