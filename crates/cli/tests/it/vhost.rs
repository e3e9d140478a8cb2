//! Disks of virtual machines, served by the real binary in its sandbox, and what guests keep when it ends.

use std::os::unix::fs::FileExt;

use nigh_testkit::virtio::vm_memory::Bytes;
use nigh_testkit::virtio::{FLUSH, Machine, READ, Setup, WRITE};

use crate::serving::{Folder, Server, until};

const BLOCK: usize = 4096;

fn serve(folder: &Folder, more: &[&str]) -> Server {
    let image = folder.text("image");
    if !folder.path("image").exists() {
        folder.empty_image("image", 16 << 20);
    }
    let (target, socket) = (format!("root={image}"), format!("root={}", folder.text("root.sock")));
    let control = folder.text("control");
    let arguments = [target.as_str(), "--vhost-user", &socket, "--control", &control, "--warm", "none"];
    folder.serve(&[&arguments[..], more].concat())
}

fn machine(folder: &Folder) -> Machine {
    Machine::connect(&folder.path("root.sock"), Setup::default())
}

#[test]
fn a_machine_and_nbd_clients_have_the_same_disk() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    let mut machine = machine(&folder);
    assert_eq!(machine.disk_bytes(), 16 << 20);
    machine.write(8, &[7; BLOCK]);
    let stream = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    let mut client = nigh_nbd::client::Client::connect(stream, "root", &[]).unwrap();
    assert_eq!(client.read(4096, BLOCK).unwrap(), [7; BLOCK]);
    client.write(8192, &[8; BLOCK]).unwrap();
    assert_eq!(machine.read(16, BLOCK), [8; BLOCK]);
    let export = &folder.status()["exports"][0];
    let uris: Vec<&str> = export["uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap()).collect();
    assert!(uris.contains(&&*format!("vhost-user:{}", folder.text("root.sock"))), "{uris:?}");
    assert_eq!(export["connections"], 2);
    client.disconnect().unwrap();
    drop(machine);
    server.end();
    assert!(!folder.path("root.sock").exists(), "the socket is left behind");
}

#[test]
fn a_guest_goes_on_after_an_orderly_restart() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    let mut guest = machine(&folder);
    let bytes = |number: u16| vec![number as u8 + 1; BLOCK];
    for number in 0..64u16 {
        guest.memory.write_slice(&bytes(number), guest.data(0, number)).unwrap();
        guest.submit(0, number, WRITE, u64::from(number) * 8, BLOCK as u32);
    }
    guest.kick(0);
    assert!(guest.wait_all(0, 64).iter().all(|done| done.status == 0));
    // Nothing of that was flushed. More comes while the server ends.
    for number in 0..64 {
        guest.memory.write_slice(&[0; BLOCK], guest.data(0, number)).unwrap();
        guest.submit(0, number, READ, u64::from(number) * 8, BLOCK as u32);
    }
    guest.kick(0);
    server.end();
    assert!(folder.path("root.sock.ended").exists(), "it has not noted that it ended as it should");
    let server = serve(&folder, &[]);
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert!(!folder.path("root.sock.ended").exists());
    for done in guest.wait_all(0, 64) {
        assert_eq!(done.status, 0);
        let mut data = vec![0; BLOCK];
        guest.memory.read_slice(&mut data, guest.data(0, done.number)).unwrap();
        assert_eq!(data, bytes(done.number));
    }
    // Another frontend of the same server goes on, too, and so does this guest after another restart.
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert_eq!(guest.read(8, BLOCK), bytes(1));
    server.end();
    let server = serve(&folder, &[]);
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert_eq!(guest.read(16, BLOCK), bytes(2));
    drop(guest);
    server.end();
}

#[test]
fn a_guest_goes_on_with_the_server_that_takes_the_place_of_its_own() {
    let folder = Folder::new();
    let mut server = serve(&folder, &[]);
    let mut guest = machine(&folder);
    guest.write(8, &[9; BLOCK]);
    let next = serve(&folder, &["--replace"]);
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert_eq!(guest.read(8, BLOCK), [9; BLOCK]);
    guest.write(16, &[10; BLOCK]);
    assert_eq!(guest.read(16, BLOCK), [10; BLOCK]);
    drop(guest);
    next.end();
}

#[test]
fn the_guest_of_a_killed_server_gets_errors() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    let mut guest = machine(&folder);
    guest.write(8, &[1; BLOCK]);
    assert_eq!(guest.ask(FLUSH, 0, 0), 0);
    guest.write(8, &[2; BLOCK]);
    server.kill();
    let mut flushed = [0; BLOCK];
    std::fs::File::open(folder.path("image")).unwrap().read_exact_at(&mut flushed, 4096).unwrap();
    assert!(flushed == [1; BLOCK] || flushed == [2; BLOCK], "what was flushed is lost");

    let server = serve(&folder, &[]);
    guest.reconnect(&folder.path("root.sock")).unwrap();
    for kind in [READ, WRITE, FLUSH] {
        assert_eq!(guest.ask(kind, 8, if kind == FLUSH { 0 } else { 512 }), 1, "request {kind} does not fail");
    }
    until("the log has it", || !server.all("did not end as it should").is_empty());
    // Nor does it go on after an orderly end of this server, or at its next connection.
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert_eq!(guest.ask(READ, 8, 512), 1);
    server.end();
    assert!(!folder.path("root.sock.ended").exists());
    let server = serve(&folder, &[]);
    guest.reconnect(&folder.path("root.sock")).unwrap();
    assert_eq!(guest.ask(READ, 8, 512), 1);
    // A reset, and it is a guest as any other: its queues begin anew.
    drop(guest);
    let mut guest = machine(&folder);
    assert_eq!(guest.read(8, BLOCK), flushed);
    drop(guest);
    server.end();
}

#[test]
fn a_driver_that_does_not_flush_loses_nothing() {
    const FLUSHES: u64 = 1 << 9;
    let folder = Folder::new();
    for (without, writeback) in [(FLUSHES, true), (0, false)] {
        let server = serve(&folder, &[]);
        let mut guest = Machine::connect(&folder.path("root.sock"), Setup { without, ..Setup::default() });
        if !writeback {
            use nigh_testkit::virtio::vhost::vhost_user::VhostUserFrontend;
            use nigh_testkit::virtio::vhost::vhost_user::message::VhostUserConfigFlags;
            guest.frontend.set_config(32, VhostUserConfigFlags::WRITABLE, &[0]).unwrap();
        }
        let value = if writeback { 3 } else { 4 };
        for block in 0..32 {
            guest.write(block * 8, &[value; BLOCK]);
        }
        server.kill();
        let image = std::fs::File::open(folder.path("image")).unwrap();
        for block in 0..32 {
            let mut bytes = [0; BLOCK];
            image.read_exact_at(&mut bytes, block * 4096).unwrap();
            assert_eq!(bytes, [value; BLOCK], "block {block}");
        }
    }
}
