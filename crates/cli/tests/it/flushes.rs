//! `nigh serve` on devices whose flushes fail and lose what was not flushed, as Linux does.

use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

use crate::serving::{Folder, Server};
use nigh_nbd::Errno;
use nigh_nbd::client::{Client, Error, Failure};
use nigh_testkit::tools::{installed, run};
use serde_json::Value;

const MIB: usize = 1 << 20;
/// Of each disk.
const SIZE: usize = 8 * MIB;
/// The program that stands for the kernel and its disk.
const LOSES: &str = include_str!("flushes/loses.c");
/// Its exit code if the kernel does not support it.
const SKIPPED: i32 = 77;

/// A disk whose writes are volatile until they are flushed.
struct Volatile {
    folder: Folder,
}

impl Volatile {
    /// `None` if there is nothing to make it with.
    fn new(test: &str) -> Option<Volatile> {
        if !installed(test, "cc") {
            return None;
        }
        let folder = Folder::new();
        std::fs::write(folder.path("loses.c"), LOSES).unwrap();
        run("cc", &["-O1", "-o", &folder.text("loses"), &folder.text("loses.c")]);
        folder.image("image", &vec![0x11; SIZE]);
        let volatile = Volatile { folder };
        let tried =
            Command::new(volatile.folder.path("loses")).args(&volatile.arguments()[1..]).arg("/bin/true").output();
        if tried.unwrap().status.code() == Some(SKIPPED) {
            println!("skipped: {test}: the kernel lets no program answer system calls of another");
            return None;
        }
        Some(volatile)
    }

    fn arguments(&self) -> Vec<String> {
        ["loses", "image", "stable", "order"].map(|name| self.folder.text(name)).into()
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        let (program, control) = (self.arguments(), self.folder.text("control"));
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let disk = format!("disk={}", self.folder.text("image"));
        let own = [&disk, "--control", &control, "--metrics", "127.0.0.1:0"];
        self.folder.serve_under(&program, &[&own, arguments].concat())
    }

    /// The next flush of the device fails, and loses what was not flushed.
    fn lose(&self) {
        std::fs::write(self.folder.path("order"), "").unwrap();
    }

    /// The contents if the power fails now.
    fn stable(&self) -> Vec<u8> {
        std::fs::read(self.folder.path("stable")).unwrap()
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        self.folder.ctl(arguments)
    }

    /// The output of a command, or its error if it fails.
    fn says(&self, arguments: &[&str], succeeds: bool) -> String {
        let output = self.ctl(arguments);
        assert_eq!(output.status.success(), succeeds, "{arguments:?}: {output:?}");
        String::from_utf8(if succeeds { output.stdout } else { output.stderr }).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str::<Value>(&self.says(&["status", "--json"], true)).unwrap()["exports"][0].clone()
    }
}

fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

fn write(client: &mut Client<UnixStream>, byte: u8, mib: usize) {
    (0..mib).for_each(|at| client.write((at * MIB) as u64, &[byte; MIB]).unwrap());
}

fn write_fua(client: &mut Client<UnixStream>, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    client.submit_write(offset, bytes, true).unwrap();
    client.receive().unwrap().result
}

fn fails(result: Result<(), Error>) {
    assert!(matches!(&result, Err(Error::Failed(failure)) if failure.errno == Errno::Io), "{result:?}");
}

fn metric(server: &Server, name: &str) -> String {
    server.metrics_page().lines().find(|line| line.starts_with(name)).unwrap().to_owned()
}

/// A flush that succeeds after a failed one means that everything is stable.
#[test]
fn flush_17_what_a_failed_flush_lost_is_written_again() {
    for mode in ["back", "through"] {
        let Some(disk) = Volatile::new("flush_17_what_a_failed_flush_lost_is_written_again") else { return };
        // With less memory, the server would flush 4 MiB by itself.
        let server = disk.serve(&["--write", mode, "--memory", "64M"]);
        let mut client = connect(&server);
        write(&mut client, 0x22, 4);
        client.flush().unwrap();
        assert!(disk.stable()[..4 * MIB].iter().all(|&byte| byte == 0x22));

        write(&mut client, 0x33, 4);
        disk.lose();
        fails(client.flush());
        client.flush().unwrap();
        let wrong = disk.stable()[..4 * MIB].iter().filter(|&&byte| byte != 0x33).count();
        assert_eq!(wrong, 0, "write mode {mode}: a flush succeeded, but these bytes are not stable");

        write(&mut client, 0x44, 4);
        disk.lose();
        let failure = write_fua(&mut client, 0, &[0x55; 4096]).unwrap_err();
        assert_eq!(failure.errno, Errno::Io);
        write_fua(&mut client, 4096, &[0x66; 4096]).unwrap();
        assert_eq!(disk.stable()[4096..8192], [0x66; 4096]);
        client.flush().unwrap();
        let wrong = disk.stable()[8192..4 * MIB].iter().filter(|&&byte| byte != 0x44).count();
        assert_eq!(wrong, 0, "write mode {mode}: a flush after a failed write with FUA");

        assert_eq!(disk.status()["data_lost"], false);
        assert_eq!(server.logged("failed a flush").len(), 2);
        assert_eq!(server.logged("succeed again").len(), 2);
        client.disconnect().unwrap();
        server.end();
    }
}

/// If blocks that a failed flush lost are no longer in memory, no flush succeeds until an administrator has decided.
#[test]
fn flush_17_a_disk_that_lost_data_fails_every_flush() {
    let Some(disk) = Volatile::new("flush_17_a_disk_that_lost_data_fails_every_flush") else { return };
    let server = disk.serve(&["--memory", "1M"]);
    let mut client = connect(&server);
    // More than memory holds, and less than the server flushes by itself.
    write(&mut client, 0x22, 3);
    disk.lose();
    fails(client.flush());
    for _ in 0..3 {
        fails(client.flush());
        assert_eq!(write_fua(&mut client, 0, &[0x33; 4096]).unwrap_err().errno, Errno::Io);
    }
    // Everything else continues.
    client.write(4096, &[0x44; 4096]).unwrap();
    assert_eq!(client.read(4096, 4096).unwrap(), [0x44; 4096]);
    client.trim(1 << 16, 1 << 16).unwrap();

    let lost = server.logged("may have lost data");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].contains("disk=\"disk\"") && lost[0].contains("removed with discard"), "{lost:?}");
    assert_eq!(disk.status()["data_lost"], true);
    assert!(disk.says(&["status"], true).contains("nigh ctl export remove disk --discard"));
    assert!(metric(&server, "nigh_data_lost{").ends_with(" 1"));
    assert!(disk.says(&["flush"], false).contains("may have lost data"));
    client.disconnect().unwrap();

    let refused = disk.says(&["export", "remove", "disk"], false);
    assert!(refused.contains("disk disk: its device failed a flush") && refused.contains("with discard"), "{refused}");
    let mut client = connect(&server);
    assert_eq!(client.read(4096, 4096).unwrap(), [0x44; 4096]);
    fails(client.flush());
    client.disconnect().unwrap();
    disk.says(&["export", "remove", "disk", "--discard"], true);
    disk.says(&["export", "add", &format!("disk={}", disk.folder.text("image"))], true);
    let mut client = connect(&server);
    write(&mut client, 0x77, 8);
    client.flush().unwrap();
    assert!(disk.stable().iter().all(|&byte| byte == 0x77));
    assert_eq!(disk.status()["data_lost"], false);
    client.disconnect().unwrap();
    server.end();
}

/// A server that ends names the disks that lost data.
#[test]
fn flush_7_the_end_of_a_server_names_disks_that_lost_data() {
    let Some(disk) = Volatile::new("flush_7_the_end_of_a_server_names_disks_that_lost_data") else { return };
    let mut server = disk.serve(&["--memory", "1M"]);
    let mut client = connect(&server);
    // As above.
    write(&mut client, 0x22, 3);
    disk.lose();
    fails(client.flush());
    client.write(4096, &[0x44; 4096]).unwrap();
    client.disconnect().unwrap();
    server.signal("-TERM");
    assert_eq!(server.process.wait().unwrap().code(), Some(2));
    assert!(server.logged("disk disk: not everything is written")[0].contains("may have lost data"));
    // Its data is written all the same.
    assert_eq!(disk.stable()[4096..8192], [0x44; 4096]);
}

/// An NBD server whose flush fails is given everything again, and nothing is lost.
#[test]
fn flush_7_changes_of_an_nbd_target_are_replayed() {
    let (rear, front) = (Folder::new(), Folder::new());
    let rear = rear.serve(&["disk=fault:flush=1:memory:8M"]);
    let target = format!("disk={}", rear.uri("disk"));
    let server = front.serve(&[&target, "--memory", "1M", "--metrics", "127.0.0.1:0"]);
    let mut client = connect(&server);
    // More than there is memory for, but less than what lets the servers flush by themselves.
    write(&mut client, 0x22, 2);
    fails(client.flush());
    client.flush().unwrap();
    assert!(metric(&server, "nigh_data_lost{").ends_with(" 0"));
    client.disconnect().unwrap();
    server.end();
    rear.end();
}
