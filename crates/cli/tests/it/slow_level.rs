//! `nigh serve` with a level that is slower than the disk.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::remote_level::{BLOCK, BLOCKS, Level, Wire, connect, contents, count, image};
use crate::serving::{Folder, until};

/// A level that takes longer than the disk is left out, and used again when it does not.
#[test]
fn slow_7_a_level_is_left_out_while_its_network_is_slow() {
    const TOGETHER: u64 = 8;
    let folder = Folder::new();
    image(&folder);
    let level = Level::start("tcp:127.0.0.1:0");
    let wire = Wire::to(&level);
    let (of, disk) = (format!("{}:16M", wire.address), format!("disk=delay:20ms:{}", folder.text("image")));
    let control = folder.text("control");
    let server = folder.serve(&[
        "--memory",
        "1M",
        "--shards",
        "1",
        "--level",
        &of,
        "--control",
        &control,
        &disk,
        "--policy",
        "lru",
    ]);
    let mut clients: Vec<_> = (0..TOGETHER).map(|_| connect(&server)).collect();
    let mut next = 0;
    // Each client reads one block, at the same time as the others; memory has forgotten it.
    let mut read = |rounds: u64| {
        for _ in 0..rounds {
            std::thread::scope(|scope| {
                for (client, block) in clients.iter_mut().zip(next..) {
                    let block = block % BLOCKS;
                    scope.spawn(move || assert!(client.read(block * BLOCK, 4096).unwrap() == contents(block, 0)));
                }
            });
            next += TOGETHER;
        }
    };
    read(BLOCKS / TOGETHER);
    until("storing", || count(&folder, "stores") > BLOCKS / 2);
    read(BLOCKS / TOGETHER);
    assert!(count(&folder, "hits") > BLOCKS / 4 && count(&folder, "left_out") == 0);
    fn go_on(what: &str, read: &mut dyn FnMut(u64), is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(90), "{what}");
            read(1);
        }
    }
    wire.delay_ms.store(150, Ordering::SeqCst);
    go_on("leaving it out", &mut read, || count(&folder, "left_out") == 1);
    let line = server.logged("left out for 10 s").join(" ");
    assert!(line.contains("disk=\"disk\"") && line.contains("level_ms=") && line.contains("disk_ms="), "{line}");
    let hits = count(&folder, "hits");
    read(20);
    assert_eq!(count(&folder, "hits"), hits, "all blocks come from the disk");
    wire.delay_ms.store(0, Ordering::SeqCst);
    go_on("using it again", &mut read, || count(&folder, "hits") > hits + BLOCKS / 8);
    server.logged("fast again");
    server.end();
}
