//! Blocks that were in memory are in memory again after a restart, with and without a level.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nigh_nbd::client::Client;

use crate::loops::Loop;
use crate::serving::{Folder, Server, nigh, until};

const BLOCK: u64 = 4096;
const DISK: u64 = 16 << 20;
const BLOCKS: u64 = 1024;

fn read(server: &Server) {
    let mut client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap();
    for block in 0..BLOCKS {
        client.read(3 * block * BLOCK, BLOCK as usize).unwrap();
    }
    client.disconnect().unwrap();
}

fn of(folder: &Folder, name: &str) -> u64 {
    let status = folder.status();
    status["exports"][0][name].as_u64().unwrap_or_else(|| panic!("{status:#}"))
}

#[test]
fn warm_5_a_restart_keeps_the_hottest_blocks() {
    for level in [false, true] {
        let folder = Folder::new();
        let disk = format!("disk={}", folder.empty_image("image", DISK));
        let (control, file) = (folder.text("control"), format!("file:{}:32M", folder.text("level")));
        let mut arguments = vec!["--memory", "8M", "--control", &control, &disk];
        if level {
            arguments.extend(["--level", &file]);
        }
        let server = folder.serve(&arguments);
        read(&server);
        server.end();
        let server = folder.serve(&arguments);
        until("all is loaded", || {
            !server.logged("loaded what was in memory").is_empty() && of(&folder, "prefetch_issued") == BLOCKS
        });
        until("nothing is being loaded", || folder.status()["loading"].as_u64() == Some(0));
        read(&server);
        assert_eq!((of(&folder, "hits"), of(&folder, "misses")), (BLOCKS, 0), "level: {level}");
        server.end();
        // No list: nothing is loaded.
        let server = folder.serve(&[&arguments[..], &["--warm", "none"]].concat());
        assert_eq!(of(&folder, "prefetch_issued"), 0);
        server.end();
    }
}

/// A level is warm after a restart if nobody wrote the block device meanwhile.
#[test]
fn warm_5_a_block_device_that_nobody_wrote() {
    let folder = Folder::new();
    folder.empty_image("image", DISK);
    let Some(device) = Loop::attach(&folder.path("image")) else {
        println!("skipped: warm_5_a_block_device_that_nobody_wrote: it needs a loop device");
        return;
    };
    let disk = format!("disk={}", device.path().display());
    let (control, file) = (folder.text("control"), format!("file:{}:32M", folder.text("level")));
    let arguments = ["--memory", "8M", "--control", &control, "--warm", "none", "--level", &file, &disk];
    let warm = || {
        let server = folder.serve(&arguments);
        let status = folder.status();
        let warm = status["levels"][0]["warm_blocks"].as_u64().unwrap_or_else(|| panic!("{status:#}"));
        read(&server);
        server.end();
        warm
    };
    assert_eq!((warm(), warm()), (0, BLOCKS));
    // Written, and not yet on the device.
    let mut other = File::options().read(true).write(true).open(device.path()).unwrap();
    other.write_all(&[1; 4096]).unwrap();
    assert_eq!((warm(), warm()), (0, BLOCKS), "somebody wrote it");
    other.read_exact(&mut [0; 4096]).unwrap();
    assert_eq!(warm(), BLOCKS, "somebody read it");
    drop(other);
    // Past the device.
    let mut image = File::options().write(true).open(folder.path("image")).unwrap();
    image.write_all(&[2; 4096]).unwrap();
    image.sync_all().unwrap();
    assert_eq!(warm(), 0, "somebody wrote its file");
}

#[test]
fn warm_5_another_file_is_not_replaced() {
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", DISK));
    folder.empty_image("other", 8192);
    let listen = format!("unix:{}", folder.text("socket"));
    for first in [&["--listen", &listen][..], &["--check"]] {
        let ended = nigh(first, &["--warm", &folder.text("other"), &disk]).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.lines().count()), (Some(2), 1), "{first:?}: {said}");
        assert!(said.contains("other is no list of blocks: choose another file"), "{first:?}: {said}");
    }
    assert_eq!(std::fs::read(folder.path("other")).unwrap(), [0; 8192]);
}
