//! The end of a server: everything is written at once, and what is not written in time is named.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;

use crate::hung::device::Device;
use crate::hung::{MIB, connect};
use crate::serving::{Folder, nigh};

/// Waits until the file has these bytes at its beginning; returns whether it did within `limit`.
fn has(file: &std::path::Path, bytes: &[u8], limit: Duration) -> bool {
    let begin = Instant::now();
    while std::fs::read(file).unwrap()[..bytes.len()] != *bytes {
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A hung export and a client that takes no replies do not delay the writes of another export, and the end comes in time.
#[test]
fn stop_4_a_hung_export_delays_no_other() {
    let folder = Folder::new();
    let Some(device) = Device::new("stop_4_a_hung_export_delays_no_other", &folder, 16 * MIB) else { return };
    let image = folder.empty_image("image", 16 * MIB as u64);
    let hung = format!("hung={}", device.file.display());
    let mut server = folder.serve(&[&hung, &format!("well={image}")]);
    let (mut ours, mut other) = (connect(&server.socket, "well"), connect(&server.socket, "hung"));
    // It never takes what it asked for.
    let mut silent = connect(&server.socket, "well");
    for at in 0..8 {
        silent.submit_read(at * MIB as u64, vec![0; MIB]).unwrap();
    }
    other.write(0, &[1; 4096]).unwrap();
    other.flush().unwrap();
    device.hang();
    other.write(0, &[2; 8192]).unwrap();
    other.submit_read(8 * MIB as u64, vec![0; 4096]).unwrap();
    ours.write(0, &[3; MIB]).unwrap();

    let begin = Instant::now();
    server.signal("-TERM");
    assert!(has(image.as_ref(), &[3; MIB], Duration::from_secs(3)), "an acknowledged write is not on disk after 3 s");
    let limit = Duration::from_millis(9500);
    let status = loop {
        if let Some(status) = server.process.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < limit, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(2));
    let named = server.logged("not everything is written");
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains("disk hung: not everything is written (8192 bytes in memory)"), "{named:?}");
    assert!(!named[0].contains("disk well"), "{named:?}");
}

/// The same holds if the server serves a single client that was passed to it.
#[test]
fn stop_4_standard_input_has_the_same_limit() {
    let folder = Folder::new();
    let Some(device) = Device::new("stop_4_standard_input_has_the_same_limit", &folder, 16 * MIB) else { return };
    let image = folder.empty_image("image", MIB as u64);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let hung = format!("hung={}", device.file.display());
    let well = format!("well={image}");
    let mut command = nigh(&["--stdio", "--stop-within", "2s"], &[&hung, &well]);
    let mut process =
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut client = Client::connect(ours, "hung", &[]).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    device.hang();
    client.write(0, &[2; 4096]).unwrap();
    let begin = Instant::now();
    drop(client);
    let mut said = String::new();
    let mut errors = BufReader::new(process.stderr.take().unwrap());
    while !said.contains("not everything is written") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "it ends without a word: {said}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{said}");
    }
    errors.read_to_string(&mut said).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(2));
    assert!(begin.elapsed() < Duration::from_secs(4), "it ends after {:?}", begin.elapsed());
    assert!(said.contains("disk hung: not everything is written (4096 bytes in memory)"), "{said}");
}

/// Whatever waits in memory for its age is written at once, without a client's flush, and the end is not an error.
#[test]
fn stop_4_an_end_in_order_takes_no_time() {
    let folder = Folder::new();
    let images: Vec<String> = (0..20).map(|at| folder.empty_image(&format!("image{at}"), MIB as u64)).collect();
    let exports: Vec<String> = images.iter().enumerate().map(|(at, image)| format!("disk{at}={image}")).collect();
    let server = folder.serve(&exports.iter().map(String::as_str).collect::<Vec<_>>());
    for at in 0..images.len() {
        connect(&server.socket, &format!("disk{at}")).write(0, &[at as u8 + 1; 4096]).unwrap();
    }
    let begin = Instant::now();
    server.end();
    assert!(begin.elapsed() < Duration::from_secs(3), "it ends after {:?}", begin.elapsed());
    for (at, image) in images.iter().enumerate() {
        assert_eq!(std::fs::read(image).unwrap()[..4096], [at as u8 + 1; 4096]);
    }
}
