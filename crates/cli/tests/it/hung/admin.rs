//! Administrators of a server with a device that does not respond.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;

use crate::hung::device::Device;
use crate::hung::others::metrics;
use crate::hung::{MIB, connect, ctl, quickly};
use crate::serving::{Folder, Server, until};

fn begin(folder: &Folder, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["ctl", "--control", &folder.text("control")]).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A reload of the server, which takes no longer than it waits for devices.
fn reload(folder: &Folder, config: &str) {
    std::fs::write(folder.path("nigh.toml"), config).unwrap();
    quickly("a reload", || ctl(folder, &["reload"]));
}

/// Commands that wait for a device leave room for others, however many there are.
#[test]
fn hung_3_commands_that_wait_do_not_lock_administrators_out() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_3_commands_that_wait_do_not_lock_administrators_out", &folder, 16 * MIB)
    else {
        return;
    };
    let hung = format!("hung={}", device.file.display());
    let server = folder.serve(&[&hung, "well=memory:16M", "--control", &folder.text("control")]);
    connect(&server.socket, "hung").write(0, &[1; 4096]).unwrap();
    device.hang();
    let mut waiting: Vec<Child> = (0..20).map(|_| begin(&folder, &["flush", "hung"])).collect();
    // All but a few are refused.
    until("flushes of one export are not limited", || {
        waiting.iter_mut().filter_map(|child| child.try_wait().unwrap()).count() >= 16
    });
    let mut refused = waiting.extract_if(.., |child| child.try_wait().unwrap().is_some());
    let output = refused.next().unwrap().wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("4 commands for export hung wait for its device already"), "{error}");
    drop(refused.collect::<Vec<_>>());
    waiting.extend((0..20).map(|_| begin(&folder, &["flush"])));
    // Connections without a command give way, too.
    let idle = (0..20).map(|_| {
        let mut stream = UnixStream::connect(folder.path("control")).unwrap();
        stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert!(line.contains("exports"), "{line}");
        stream
    });
    let idle: Vec<UnixStream> = idle.collect();
    quickly("nigh ctl status", || ctl(&folder, &["status"]));
    quickly("nigh ctl flush", || ctl(&folder, &["flush", "well"]));
    quickly("nigh ctl export add", || ctl(&folder, &["export", "add", "more=memory:1M"]));
    drop(idle);
    device.go_on();
    waiting.iter_mut().for_each(|child| _ = child.wait().unwrap());
    server.end();
}

/// A reload that removes an export whose device does not respond does not keep later ones waiting.
#[test]
fn hung_3_a_removal_that_waits_does_not_delay_reloads() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_3_a_removal_that_waits_does_not_delay_reloads", &folder, 16 * MIB) else {
        return;
    };
    let (config, control) = (folder.text("nigh.toml"), folder.text("control"));
    let export = |name: &str, target: &str| format!("[[export]]\nname = '{name}'\ntarget = '{target}'\n");
    let well = export("well", "memory:16M");
    let hung = well.clone() + &export("hung", device.file.to_str().unwrap());
    std::fs::write(&config, &hung).unwrap();
    let server = folder.serve(&["--config", &config, "--control", &control]);
    connect(&server.socket, "hung").write(0, &[1; 4096]).unwrap();
    device.hang();
    reload(&folder, &well);
    let status = ctl(&folder, &["status"]);
    assert!(status.contains("hung: being removed for"), "{status}");
    reload(&folder, &(well + &export("more", "memory:1M")));
    quickly("another export", || connect(&server.socket, "more").write(0, &[1; 4096]).unwrap());
    device.go_on();
    until("it is not removed", || !ctl(&folder, &["status"]).contains("hung"));
    reload(&folder, &hung);
    assert_eq!(connect(&server.socket, "hung").read(0, 4096).unwrap(), [1; 4096]);
    server.end();
}

/// A device that does not respond when the server starts does not keep the others from being served.
#[test]
fn hung_6_a_device_does_not_delay_the_start_of_others() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_6_a_device_does_not_delay_the_start_of_others", &folder, 16 * MIB) else {
        return;
    };
    let hung = format!("hung={}", device.file.display());
    let control = folder.text("control");
    let with_level =
        ["well=memory:16M", "--control", &control, "--level", &format!("file:{}:16M", folder.text("level"))];
    // From now on, there is a level whose file could be that of a disk.
    folder.serve(&with_level).end();
    device.hang();
    // Until then, the kernel answers for it what it remembers.
    std::thread::sleep(Duration::from_secs(2));
    let server: Server = quickly("the start", || folder.serve(&[&[hung.as_str()], &with_level[..]].concat()));
    quickly("a write", || connect(&server.socket, "well").write(0, &[1; 4096]).unwrap());
    let status = quickly("nigh ctl status", || ctl(&folder, &["status"]));
    assert!(status.contains("hung: being opened for"), "{status}");
    let stream = UnixStream::connect(&server.socket).unwrap();
    let refused = Client::connect(stream, "hung", &[]).err().expect("it is not open").to_string();
    assert!(refused.contains("export hung is being opened"), "{refused}");
    device.go_on();
    server.logged("open, and served from now on");
    connect(&server.socket, "hung").write(0, &[1; 4096]).unwrap();
    server.end();

    device.hang();
    let server = folder.serve(&[&hung, "well=memory:16M", "--control", &control]);
    // Exports that are not wanted any more are not opened.
    quickly("a removal", || ctl(&folder, &["export", "remove", "hung"]));
    device.go_on();
    server.logged("not served");
    assert!(!ctl(&folder, &["status"]).contains("hung"));
    device.hang();
    // Nor does the end wait for what is not open.
    let (second, other) = (Folder::new(), "well=memory:16M");
    let server_of_it = second.serve(&[&hung, other]);
    quickly("the end of a server with an export that is not open", || server_of_it.end());
    device.go_on();
    server.end();
}

/// A flush of all exports does not wait for room in one that has as many requests as it may before it begins the others.
#[test]
fn hung_3_a_flush_of_all_exports_begins_with_those_that_have_room() {
    let folder = Folder::new();
    let name = "hung_3_a_flush_of_all_exports_begins_with_those_that_have_room";
    let Some(device) = Device::new(name, &folder, 64 * MIB) else { return };
    let image = folder.empty_image("image", 16 * MIB as u64);
    let hung = format!("hung={}", device.file.display());
    let control = folder.text("control");
    let server = folder.serve(&[&hung, &format!("well={image}"), "--control", &control]);
    let mut well = connect(&server.socket, "well");
    let mut clients: Vec<_> = (0..64).map(|_| connect(&server.socket, "hung")).collect();
    device.hang();
    let mut block = 0;
    for client in &mut clients {
        // The bytes that the socket holds, even if the server does not take them.
        for _ in 0..60 {
            client.submit_read(block * 4096, vec![0; 4096]).unwrap();
            // In all shards.
            block = (block + 259) % (64 << 8);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    well.write(0, &[5; 4096]).unwrap();
    let written = Instant::now();
    let mut flush = begin(&folder, &["flush"]);
    // Far less than the age at which blocks are written in any case, 5 s.
    while std::fs::read(&image).unwrap()[..4096] != [5; 4096] {
        assert!(written.elapsed() < Duration::from_secs(3), "it waits for the one that has no room");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(flush.try_wait().unwrap().is_none(), "the hung one had room");
    device.go_on();
    until("the flush does not end", || flush.try_wait().unwrap().is_some_and(|status| status.success()));
    drop(clients);
    server.end();
}

/// An export that is opened after the start has its own name in the log, the status and the metrics.
#[test]
fn hung_6_late_exports_have_their_names() {
    let folder = Folder::new();
    let Some(device) = Device::new("hung_6_late_exports_have_their_names", &folder, 16 * MIB) else { return };
    let hung = format!("hung={}", device.file.display());
    let bad = format!("bad=fault:flush=1:{}", device.file.display());
    let control = folder.text("control");
    device.hang();
    let arguments = ["well=memory:16M", "--control", &control, "--metrics", "127.0.0.1:0"];
    let server = folder.serve(&[&[hung.as_str()][..], &arguments].concat());
    device.go_on();
    let said = server.logged("open, and served from now on");
    assert!(said.iter().any(|line| line.contains("hung")), "{said:?}");
    let mut client = connect(&server.socket, "hung");
    client.write(0, &[1; 4096]).unwrap();
    client.read(0, 4096).unwrap();
    client.flush().unwrap();
    let status = ctl(&folder, &["status"]);
    assert!(status.lines().any(|line| line.starts_with("hung ")), "{status}");
    let metrics = metrics(&server);
    let counts = |line: &&str| line.contains("export=\"hung\"") && !line.ends_with(" 0");
    assert!(metrics.lines().filter(counts).count() > 2, "{metrics}");
    client.disconnect().unwrap();
    server.end();

    // Its device is named in the log, too.
    device.hang();
    let server = folder.serve(&[&[bad.as_str()][..], &arguments].concat());
    device.go_on();
    server.logged("open, and served from now on");
    let mut client = connect(&server.socket, "bad");
    client.write(0, &[2; 4096]).unwrap();
    assert!(client.flush().is_err());
    let said = server.logged("its device failed a flush");
    assert!(said.iter().any(|line| line.contains("bad")), "{said:?}");
    drop(client);
    drop(server);
}
