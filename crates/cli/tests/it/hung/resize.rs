//! A disk that becomes longer is written back and opened again: only its own clients wait for that.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::Framing;
use nigh_nbd::client::Client;

use crate::hung::{MIB, connect, ctl, quickly};
use crate::serving::Folder;

/// The header of a write of 256 KiB, and one byte of it.
fn begin_to_write(stream: &mut UnixStream, framing: Framing) {
    let (offset, length) = (0u64, 256u64 << 10);
    let mut bytes = Vec::new();
    match framing {
        Framing::Extended => bytes.extend(0x21e4_1c71u32.to_be_bytes()),
        _ => bytes.extend(0x2560_9513u32.to_be_bytes()),
    }
    bytes.extend([0, 0, 0, 1]);
    bytes.extend([7; 8]);
    bytes.extend(offset.to_be_bytes());
    match framing {
        Framing::Extended => bytes.extend(length.to_be_bytes()),
        _ => bytes.extend((length as u32).to_be_bytes()),
    }
    bytes.push(1);
    stream.write_all(&bytes).unwrap();
}

#[test]
fn resize_5_beside_a_slow_writer_and_on_a_slow_device() {
    let folder = Folder::new();
    let images = ["slow", "written"].map(|name| folder.empty_image(name, 16 * MIB as u64));
    let slow = format!("slow=delay:4s:{}", images[0]);
    let written = format!("written={}", images[1]);
    let control = folder.text("control");
    let mut server = folder.serve(&[&slow, &written, "well=memory:16M", "--control", &control, "--stop-within", "3s"]);
    let mut ours = connect(&server.socket, "slow");
    ours.write(0, &[1; MIB]).unwrap();
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    let writer = Client::connect(stream.try_clone().unwrap(), "written", &[]).unwrap();
    begin_to_write(&mut stream, writer.framing());
    for image in &images {
        std::fs::File::options().write(true).open(image).unwrap().set_len(32 * MIB as u64).unwrap();
    }

    // Its dirty blocks and a flush take 8 s together.
    let late = std::thread::spawn({
        let socket = server.socket.clone();
        move || connect(&socket, "slow").export().size
    });
    std::thread::sleep(Duration::from_millis(500));
    let longer = quickly("a client of a disk with a slow writer", || connect(&server.socket, "written"));
    assert_eq!(longer.export().size, 32 * MIB as u64);
    quickly("a client of another export", || connect(&server.socket, "well").write(0, &[1; 4096]).unwrap());
    quickly("nigh ctl status", || ctl(&folder, &["status"]));
    quickly("nigh ctl set", || ctl(&folder, &["set", "export", "well", "iops=100000"]));
    let begin = Instant::now();
    // It may go on with the old size.
    late.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(6), "a client of the slow disk waits {:?}", begin.elapsed());

    let begin = Instant::now();
    server.signal("-TERM");
    server.process.wait().unwrap();
    assert!(begin.elapsed() < Duration::from_millis(4500), "it ends after {:?}", begin.elapsed());
}
