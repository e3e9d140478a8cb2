//! `nigh ctl export freeze`: what is copied meanwhile has everything that was acknowledged before, and nothing newer.

use std::os::unix::net::UnixStream;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::serving::{Folder, Server, until};
use nigh_nbd::client::Client;

const SIZE: u64 = 4 << 20;
const BLOCK: usize = 4096;

fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

fn ctl(folder: &Folder, arguments: &[&str]) -> Output {
    folder.ctl(&[&["export"], arguments].concat())
}

fn done(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

fn error(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn number(bytes: &[u8], block: usize) -> u64 {
    u64::from_le_bytes(bytes[block * BLOCK..][..8].try_into().unwrap())
}

/// A client writes 1, 2, 3, … to two blocks in turn, each once the one before was acknowledged.
fn copies(folder: &Folder, server: &Server, image: &str) {
    let (acknowledged, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = connect(server);
            for value in 1u64.. {
                let block: Vec<u8> = value.to_le_bytes().repeat(BLOCK / 8);
                client.write(value % 2 * 700 * BLOCK as u64, &block).unwrap();
                acknowledged.store(value, Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
            client.disconnect().unwrap();
        });
        let mut reader = connect(server);
        for round in 0..8 {
            until("a hundred more writes", || acknowledged.load(Ordering::SeqCst) > 100 * round);
            let before = acknowledged.load(Ordering::SeqCst);
            let copy = folder.text(&format!("copy{round}"));
            done(&ctl(folder, &["freeze", "disk", "--", "cp", image, &copy]));
            let copy = std::fs::read(copy).unwrap();
            let (one, two) = (number(&copy, 0), number(&copy, 700));
            assert!(one.abs_diff(two) == 1 && one.max(two) >= before, "{one} and {two}, acknowledged before: {before}");
        }
        done(&ctl(folder, &["freeze", "disk", "--for", "1m"]));
        assert_eq!(folder.status()["exports"][0]["frozen"], true);
        let (still, bytes) = (acknowledged.load(Ordering::SeqCst), std::fs::read(image).unwrap());
        thread::sleep(Duration::from_millis(300));
        assert!(acknowledged.load(Ordering::SeqCst) <= still + 1, "the write that was under way, if any");
        assert!(std::fs::read(image).unwrap() == bytes, "it changed while it was frozen");
        reader.read(0, BLOCK).unwrap();
        reader.flush().unwrap();
        done(&ctl(folder, &["thaw", "disk"]));
        until("writes go on", || acknowledged.load(Ordering::SeqCst) > still + 10);
        assert_eq!(folder.status()["exports"][0]["frozen"], false);
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn copies_have_what_was_acknowledged_and_nothing_newer() {
    let folder = Folder::new();
    let image = folder.empty_image("image", SIZE);
    let (disk, control) = (format!("disk={image}"), folder.text("control"));
    let server = folder.serve(&[&disk, "--control", &control, "--memory", "8M"]);
    copies(&folder, &server, &image);
    server.end();

    // The log goes to the image first.
    let disk = format!("disk={image},write-log={}:2M", folder.text("fast.log"));
    let server = folder.serve(&[&disk, "--control", &control, "--memory", "8M"]);
    copies(&folder, &server, &image);
    server.end();
}

#[test]
fn a_freeze_that_is_over_too_soon_is_an_error() {
    let folder = Folder::new();
    let image = folder.empty_image("image", SIZE);
    let (disk, control) = (format!("disk={image}"), folder.text("control"));
    let server = folder.serve(&[&disk, "--control", &control]);
    let mut client = connect(&server);

    let said = error(ctl(&folder, &["freeze", "disk", "--for", "1s", "--", "sleep", "1.5"]));
    assert!(said.contains("is not frozen, or is no more"), "{said}");
    client.write(0, &[1; BLOCK]).unwrap();
    assert!(error(ctl(&folder, &["thaw", "disk"])).contains("is not frozen"), "nor is it now");
    // The program's error counts, and writes go on.
    let said = error(ctl(&folder, &["freeze", "disk", "--for", "1m", "--", "false"]));
    assert!(said.contains("false: exit status: 1"), "{said}");
    let said = error(ctl(&folder, &["freeze", "disk", "--for", "1m", "--", "/nowhere"]));
    assert!(said.contains("/nowhere: No such file"), "{said}");
    client.write(0, &[2; BLOCK]).unwrap();
    for (time, words) in [("1h", "from 1s to 10m"), ("0s", "from 1s to 10m"), ("soon", "such as 10s")] {
        let said = error(ctl(&folder, &["freeze", "disk", "--for", time]));
        assert!(said.contains(words), "{said}");
    }
    assert!(error(ctl(&folder, &["freeze", "other"])).contains("other"));
    let other = format!("other={},read-only", folder.empty_image("other", SIZE));
    done(&ctl(&folder, &["add", &other]));
    assert!(error(ctl(&folder, &["freeze", "other"])).contains("for reading only"));

    // Nobody thaws it: an end of the server does not wait for that.
    done(&ctl(&folder, &["freeze", "disk", "--for", "10m"]));
    thread::scope(|scope| {
        let waiting = scope.spawn(move || client.write(0, &[3; BLOCK]));
        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        server.end();
        // Acknowledged or not: the server's end decides.
        let written = waiting.join().unwrap().is_ok();
        let byte = std::fs::read(&image).unwrap()[0];
        assert!(byte == 3 || !written && byte == 2, "{byte}");
    });
}

#[test]
fn a_target_that_fails_is_not_frozen() {
    let folder = Folder::new();
    let image = folder.empty_image("image", SIZE);
    let (disk, control) = (format!("disk=fault:flush=1:{image}"), folder.text("control"));
    let server = folder.serve(&[&disk, "--control", &control]);
    let mut client = connect(&server);
    client.write(0, &[1; BLOCK]).unwrap();
    let said = error(ctl(&folder, &["freeze", "disk", "--for", "1m"]));
    assert!(said.contains("disk disk"), "{said}");
    client.write(BLOCK as u64, &[1; BLOCK]).unwrap();
    // The device forgot what it did not flush; that is written again.
    done(&ctl(&folder, &["freeze", "disk", "--for", "1m", "--", "true"]));
    server.end();
}
