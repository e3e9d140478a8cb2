//! Clients that do not use a hung device do not notice it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nigh_nbd::client::Client;

use crate::hung::device::Device;
use crate::hung::{MIB, PATIENCE, connect, ctl, quickly};
use crate::serving::{Folder, Server};

pub(crate) fn metrics(server: &Server) -> String {
    let mut scrape = TcpStream::connect(server.metrics()).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    scrape.read_to_string(&mut page).unwrap();
    page
}

/// Kills the server if `run` takes too long, so that the test does not hang.
fn within<R>(server: &Server, limit: Duration, run: impl FnOnce() -> R) -> R {
    let (done, over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                server.signal("-KILL");
            }
        });
        let _done = done;
        run()
    })
}

fn serve(folder: &Folder, device: &Device, memory: &str) -> Server {
    let image = folder.image("image", &vec![7; 64 * MIB]);
    let hung = format!("hung={}", device.file.display());
    let control = folder.text("control");
    let well = format!("well={image}");
    folder.serve(&["--memory", memory, &hung, &well, "--control", &control, "--metrics", "127.0.0.1:0"])
}

/// Everything that an export is used for, while another one does not respond.
fn use_all(folder: &Folder, server: &Server) {
    let mut well = quickly("a new connection", || connect(&server.socket, "well"));
    for at in 0..20 {
        let offset = (at * 3 * MIB) as u64;
        quickly("a miss", || well.read(offset, 4096).unwrap());
        quickly("a hit", || well.read(offset, 4096).unwrap());
        quickly("a write", || well.write(offset + 8192, &[at as u8; 4096]).unwrap());
        quickly("a flush", || well.flush().unwrap());
    }
    quickly("the status of blocks", || well.trim(0, 4096).unwrap());
    well.disconnect().unwrap();
    quickly("nigh ctl status", || ctl(folder, &["status"]));
    quickly("nigh ctl flush", || ctl(folder, &["flush", "well"]));
    quickly("nigh ctl set", || ctl(folder, &["set", "export", "well", "iops=100000"]));
    quickly("nigh ctl export add", || ctl(folder, &["export", "add", "more=memory:1M"]));
    quickly("another export", || connect(&server.socket, "more").write(0, &[1; 4096]).unwrap());
    quickly("nigh ctl export remove", || ctl(folder, &["export", "remove", "more"]));
    assert!(quickly("metrics", || metrics(server)).contains("nigh_"));
}

/// A hung device with requests of every kind delays only its own clients.
#[test]
fn hung_6_a_device_delays_only_its_clients() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_6_a_device_delays_only_its_clients", &folder, 16 * MIB) else { return };
    let server = serve(&folder, &device, "16M");
    within(&server, Duration::from_secs(60), || {
        let mut first = connect(&server.socket, "hung");
        first.write(0, &[1; 4096]).unwrap();
        device.hang();
        // The first one finds out that its size is not reported.
        let mut second = connect(&server.socket, "hung");
        for at in 1..16 {
            second.submit_read((at * MIB) as u64, vec![0; 4096]).unwrap();
        }
        first.submit(nigh_nbd::Command::Flush, 0, 0).unwrap();
        first.submit(nigh_nbd::Command::Trim { fua: false }, 0, 4096).unwrap();
        // Nor do those delay others who change something of it.
        let commands = [
            &["flush"][..],
            &["export", "add", &format!("again=unlocked:{}", device.file.display())],
            &["export", "remove", "hung"],
        ];
        let children = commands.map(|arguments| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
            command.args(["ctl", "--control", &folder.text("control")]).args(arguments);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            child
        });
        use_all(&folder, &server);

        device.go_on();
        for client in [&mut first, &mut second] {
            while client.in_flight() > 0 {
                assert_eq!(client.receive().unwrap().result, Ok(()));
            }
        }
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        assert!(ctl(&folder, &["status"]).contains("again"));
    });
    server.end();
}

/// The status of blocks that a device does not report in time is that of data.
#[test]
fn hung_8_the_status_of_blocks_is_told_without_the_device() {
    let folder = Folder::new();
    let test = "hung_8_the_status_of_blocks_is_told_without_the_device";
    let Some(device) = Device::new(test, &folder, 16 * MIB) else { return };
    let server = serve(&folder, &device, "16M");
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, "hung", &["base:allocation"]).unwrap();
    device.hang();
    let status = quickly("the status of blocks", || within(&server, PATIENCE, || client.block_status(0, MIB as u64)));
    let extents = &status.unwrap()[0].extents;
    assert_eq!((extents.len(), extents[0].flags), (1, 0));
    device.go_on();
    client.disconnect().unwrap();
    server.end();
}

/// Neither does one whose clients write as much as the server takes.
#[test]
fn hung_16_a_device_that_takes_no_writes_delays_only_its_clients() {
    let folder = Folder::new();
    let test = "hung_16_a_device_that_takes_no_writes_delays_only_its_clients";
    let Some(device) = Device::new(test, &folder, 256 * MIB) else { return };
    let server = serve(&folder, &device, "64M");
    within(&server, Duration::from_secs(60), || {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut writer = Client::connect(stream, "hung", &[]).unwrap();
        device.hang();
        let block = vec![1; 256 << 10];
        let mut at = 0;
        while writer.submit_write(at, &block, false).is_ok() {
            at += block.len() as u64;
            assert!(at < 256 * MIB as u64, "it takes everything");
        }
        let mut reader = connect(&server.socket, "hung");
        for at in 0..64 {
            reader.submit_read((at * 2 * MIB) as u64, vec![0; 4096]).unwrap();
        }
        use_all(&folder, &server);
        drop((writer, reader));
        device.go_on();
    });
    server.end();
}
