//! `nigh serve` with a write log: what is acknowledged survives the server, and a disk is never served without its newest writes.

use std::os::unix::net::UnixStream;

use crate::serving::{Folder, Server, nigh, until};
use nigh_nbd::client::Client;

const SIZE: u64 = 4 << 20;
const BLOCK: usize = 4096;

fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

/// The error of a server that does not start.
fn refused(arguments: &[&str]) -> String {
    let output = nigh(&["--listen", "unix:refused"], arguments).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

struct Case {
    folder: Folder,
    image: String,
    log: String,
}

impl Case {
    fn new() -> Case {
        let folder = Folder::new();
        let (image, log) = (folder.empty_image("image", SIZE), folder.text("fast.log"));
        Case { folder, image, log }
    }

    fn marker(&self) -> bool {
        self.folder.path("image.nigh-write-log").exists()
    }

    /// `before` is in front of the target's path.
    fn disk(&self, before: &str) -> String {
        format!("disk={before}{},write-log={}:2M", self.image, self.log)
    }

    fn serve(&self, before: &str) -> Server {
        let (disk, control) = (self.disk(before), self.folder.text("control"));
        self.folder.serve(&[&disk, "--control", &control, "--metrics", "127.0.0.1:0"])
    }
}

#[test]
fn acknowledged_writes_survive_a_kill_and_go_home_later() {
    let case = Case::new();
    let server = case.serve("delay:3s:");
    let mut link = connect(&server);
    for value in 1..=20u8 {
        link.write(u64::from(value) * 2 * BLOCK as u64, &[value; BLOCK]).unwrap();
    }
    let status = case.folder.status();
    let log = &status["exports"][0]["write_log"];
    assert!(log["records"].as_u64() > Some(0) && log["log_writes"].as_u64() >= Some(20), "{log:#}");
    assert_eq!(status["exports"][0]["options"]["write_mode"], "through", "with a log, that is what is acknowledged");
    let page = server.metrics_page();
    assert!(page.contains("nigh_write_log_records{export=\"disk\"}"), "{page}");
    let text = String::from_utf8(case.folder.ctl(&["status"]).stdout).unwrap();
    assert!(text.contains("WRITE LOG") && text.contains("fast.log"), "{text}");
    server.kill();
    assert!(case.marker());
    assert!(!std::fs::read(&case.image).unwrap().contains(&20), "it was not to be home yet");

    let plain = format!("disk={}", case.image);
    for more in [&[&plain as &str][..], &[&plain, "--read-only"], &[&plain, "--check"]] {
        let said = refused(more);
        assert!(said.contains("write-log=") && said.contains("drain"), "{said}");
    }
    let other = case.folder.empty_image("other", SIZE);
    let said = refused(&[&format!("disk={other},write-log={}:2M", case.log)]);
    assert!(said.contains("holds writes of another disk"), "{said}");

    let server = case.serve("");
    let mut link = connect(&server);
    for value in 1..=20u8 {
        assert!(link.read(u64::from(value) * 2 * BLOCK as u64, BLOCK).unwrap() == [value; BLOCK], "{value}");
    }
    link.write(0, &[21; BLOCK]).unwrap();
    let drained = case.folder.ctl(&["export", "drain", "disk"]);
    assert!(drained.status.success(), "{drained:?}");
    assert!(String::from_utf8(drained.stdout).unwrap().contains("the write log of disk is empty"));
    let home = std::fs::read(&case.image).unwrap();
    assert!(home[..BLOCK] == [21; BLOCK] && (1..=20).all(|value| home[value * 2 * BLOCK] == value as u8));
    server.end();
    assert!(!case.marker(), "nothing is missing");
    drop(case.folder.serve(&[&plain]));
}

#[test]
fn a_drain_without_a_log_and_a_log_that_cannot_be_are_refused() {
    let case = Case::new();
    let control = case.folder.text("control");
    let server = case.folder.serve(&[&format!("disk={}", case.image), "--control", &control]);
    let drained = case.folder.ctl(&["export", "drain", "disk"]);
    assert!(String::from_utf8(drained.stderr).unwrap().contains("disk disk has no write log"));
    let set = case.folder.ctl(&["set", "export", "disk", &format!("write-log={}:2M", case.log)]);
    assert!(String::from_utf8(set.stderr).unwrap().contains("cannot change while it is open"));
    drop(server);
    let next = case.folder.empty_image("next", SIZE);
    let said = refused(&[&case.disk(""), "--set", &format!("disk:next={next}")]);
    assert!(said.contains("it has several targets"), "{said}");
    let said = refused(&[&case.disk(""), "--read-only"]);
    assert!(said.contains("it is read-only"), "{said}");
    let said = refused(&[&format!("disk={},write-log={}", case.image, case.log)]);
    assert!(said.contains("TARGET:SIZE"), "{said}");
}

/// A home that takes no write: the log fills, writes wait, and then fail as on other failing disks; nothing acknowledged is lost.
#[test]
fn a_full_log_of_a_disk_that_fails_refuses_writes() {
    let case = Case::new();
    let faults: Vec<String> = (1..400).map(|at| format!("write={at}")).collect();
    let server = case.serve(&format!("fault:{}:", faults.join(",")));
    let mut link = connect(&server);
    let mut written = 0;
    while written < 900 && link.write(written * BLOCK as u64, &[7; BLOCK]).is_ok() {
        written += 1;
    }
    assert!((100..900).contains(&written), "{written} writes fit into 2 MiB");
    let log = case.folder.status()["exports"][0]["write_log"].clone();
    assert_eq!(log["failing"], true, "{log:#}");
    server.kill();
    let server = case.serve("");
    let mut link = connect(&server);
    for block in 0..written {
        assert!(link.read(block * BLOCK as u64, BLOCK).unwrap() == [7; BLOCK]);
    }
    until("it does not become empty", || case.folder.status()["exports"][0]["write_log"]["records"] == 0);
}
