//! Everything changes while fio verifies.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nigh_testkit::tools::fio_speaks_nbd;
use serde_json::{Value, json};

use super::control::Controlled;
use super::{MIB, empty_image};

/// Changes at least.
const CHANGES: usize = 120;

#[test]
fn memory_policy_and_exports_change_while_fio_verifies() {
    if !fio_speaks_nbd("memory_policy_and_exports_change_while_fio_verifies") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("disk={}", empty_image(folder.path(), "image", 64 * MIB).display());
    let extra = empty_image(folder.path(), "extra", 4 * MIB);
    let nigh = Controlled::start(folder, &[&disk]);
    let stream = UnixStream::connect(nigh.path("control")).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut ask = |command: Value| {
        (&stream).write_all(format!("{command}\n").as_bytes()).unwrap();
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(answer["error"].is_null(), "{command}: {answer}");
    };
    let uri = format!("--uri=nbd+unix:///disk?socket={}", nigh.path("nbd").display());
    let mut changes = 0;
    let mut runs = 0;
    while changes < CHANGES {
        let mut fio = Command::new("fio")
            .args(["--name=verify", "--ioengine=nbd", "--rw=randrw", "--bssplit=4k/60:64k/30:256k/10", "--iodepth=8"])
            .args(["--numjobs=8", "--size=8m", "--offset_increment=8m", "--io_size=32m", "--verify=crc32c"])
            .args(["--verify_fatal=1", "--verify_state_save=0", "--group_reporting", &uri])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while fio.try_wait().unwrap().is_none() {
            let memory = [48, 8, 24, 64, 2][changes % 5] * MIB;
            let policy = ["lru", "lirs", "s3-fifo", "arc", "clock-pro", "2q", "sieve"][changes % 7];
            ask(json!({ "command": "set", "memory": memory, "policy": policy }));
            ask(json!({ "command": "add-export", "name": "extra", "target": extra.to_str().unwrap() }));
            nigh.connect("extra").write(0, &[changes as u8; 300_000]).unwrap();
            let mode = ["back", "through"][changes % 2];
            ask(
                json!({ "command": "set-export", "name": "disk", "options": { "write_mode": mode, "requests": 3 + changes % 9 } }),
            );
            ask(json!({ "command": "remove-export", "name": "extra" }));
            assert_eq!(std::fs::read(&extra).unwrap()[299_999], changes as u8);
            changes += 1;
        }
        let output = fio.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("err= 0"), "{said}");
        runs += 1;
    }
    println!("{changes} changes during {runs} runs of fio");
    nigh.server.end();
}
