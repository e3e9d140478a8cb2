//! Requests of drivers.

use std::time::{Duration, Instant};

use nigh_service::ExportSettings;
use nigh_testkit::virtio::vm_memory::Bytes;
use nigh_testkit::virtio::{DISCARD, FLUSH, GET_ID, READ, Setup, WRITE, ZEROES};

use crate::tools::{BLOCK, serve, serve_with};

/// Bytes that differ by block and by version.
fn bytes_of(block: usize, version: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (block * 31 + version * 7 + at / 16) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    let server = serve("memory:16M", 4);
    let mut machine = server.machine();
    assert_eq!(machine.disk_bytes(), 16 << 20);
    for version in 0..2 {
        for block in 0..64 {
            machine.write(block as u64 * 8, &bytes_of(block, version));
        }
        assert_eq!(machine.ask(FLUSH, 0, 0), 0);
        for block in 0..64 {
            assert_eq!(machine.read(block as u64 * 8, BLOCK), bytes_of(block, version), "block {block}");
        }
    }
    // A sector in the middle of a block, and many blocks at once.
    machine.write(8 * 3 + 1, &[0xee; 512]);
    let mut third = bytes_of(3, 1);
    third[512..1024].fill(0xee);
    let all: Vec<u8> = (0..64).flat_map(|block| if block == 3 { third.clone() } else { bytes_of(block, 1) }).collect();
    assert_eq!(machine.read(0, 64 * BLOCK), all);
    assert_eq!(machine.ask(GET_ID, 0, 20), 0);
    let mut name = [0; 20];
    machine.memory.read_slice(&mut name, machine.data(0, 0)).unwrap();
    assert_eq!(&name, b"disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let disk = &server.service.statistics().exports[0].disk;
    assert!(disk.hits > 0);
    drop(machine);
    server.end();
}

#[test]
fn sixty_four_are_in_progress_at_a_time() {
    let server = serve("delay:1ms:memory:16M", 4);
    let mut machine = server.machine();
    for round in 0..4 {
        for number in 0..64u16 {
            let data = bytes_of(number.into(), round);
            machine.memory.write_slice(&data, machine.data(0, number)).unwrap();
            machine.submit(0, number, WRITE, u64::from(number) * 8, BLOCK as u32);
        }
        machine.kick(0);
        assert!(machine.wait_all(0, 64).iter().all(|done| done.status == 0 && done.bytes == 1));
        for number in 0..64u16 {
            machine.memory.write_slice(&[0; BLOCK], machine.data(0, number)).unwrap();
            machine.submit(0, number, READ, u64::from(63 - number) * 8, BLOCK as u32);
        }
        machine.kick(0);
        let mut numbers = Vec::new();
        for done in machine.wait_all(0, 64) {
            assert_eq!((done.status, done.bytes), (0, BLOCK as u32 + 1));
            let mut data = vec![0; BLOCK];
            machine.memory.read_slice(&mut data, machine.data(0, done.number)).unwrap();
            assert_eq!(data, bytes_of(63 - usize::from(done.number), round));
            numbers.push(done.number);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    }
    drop(machine);
    server.end();
}

#[test]
fn misses_of_a_slow_device_are_right() {
    let server = serve("delay:2ms:memory:64M", 4);
    let mut machine = server.machine();
    // More than fits, so that each round misses.
    for block in (0..2048).step_by(16) {
        let data: Vec<u8> = (block..block + 16).flat_map(|block| bytes_of(block, 5)).collect();
        machine.write(block as u64 * 8, &data);
    }
    for begin in [0, 1024] {
        for number in 0..64u16 {
            machine.submit(0, number, READ, (begin + u64::from(number) * 16) * 8, 16 * BLOCK as u32);
        }
        machine.kick(0);
        for done in machine.wait_all(0, 64) {
            assert_eq!(done.status, 0);
            let mut data = vec![0; 16 * BLOCK];
            machine.memory.read_slice(&mut data, machine.data(0, done.number)).unwrap();
            let first = begin as usize + usize::from(done.number) * 16;
            let expected: Vec<u8> = (first..first + 16).flat_map(|block| bytes_of(block, 5)).collect();
            assert!(data == expected, "block {first}");
        }
    }
    let disk = server.service.statistics().exports[0].disk.clone();
    assert!(disk.misses > 0, "nothing was a miss");
    drop(machine);
    server.end();
}

#[test]
fn discards_and_zeroes() {
    let server = serve("memory:16M", 4);
    let mut machine = server.machine();
    machine.write(0, &[7; 16 * BLOCK]);
    assert_eq!(machine.ask_range(ZEROES, 8, 8, 0), 0);
    assert_eq!(machine.ask_range(ZEROES, 24, 8, 1), 0);
    // Half a block.
    assert_eq!(machine.ask_range(ZEROES, 40, 4, 1), 0);
    let data = machine.read(0, 16 * BLOCK);
    for (sector, bytes) in data.chunks(512).enumerate() {
        let zero = [8..16, 24..32, 40..44].iter().any(|range| range.contains(&sector));
        assert!(bytes.iter().all(|byte| *byte == if zero { 0 } else { 7 }), "sector {sector}");
    }
    assert_eq!(machine.ask_range(DISCARD, 64, 8, 0), 0);
    assert_eq!(machine.read(72, 512), [7; 512]);
    // Flags that there are not, ranges that are too long, or beyond the end.
    assert_eq!(machine.ask_range(DISCARD, 0, 8, 1), 2);
    assert_eq!(machine.ask_range(ZEROES, 0, 8, 2), 2);
    assert_eq!(machine.ask_range(DISCARD, 0, 65_537, 0), 1);
    assert_eq!(machine.ask_range(DISCARD, (16 << 11) - 1, 2, 0), 1);
    assert_eq!(machine.ask_range(ZEROES, u64::MAX / 512, 8, 0), 1);
    assert_eq!(machine.ask_range(ZEROES, 0, 0, 0), 0);
    assert_eq!(machine.read(0, 512), [7; 512]);
    drop(machine);
    server.end();
}

#[test]
fn two_queues_without_and_with_event_idx() {
    for without in [0, 1 << 29] {
        let server = serve("memory:16M", 4);
        let mut machine = server.machine_with(Setup { queues: 2, without, ..Setup::default() });
        for round in 0..20 {
            for queue in 0..2 {
                for number in 0..32u16 {
                    let block = queue * 32 + usize::from(number);
                    machine.memory.write_slice(&bytes_of(block, round), machine.data(queue, number)).unwrap();
                    machine.submit(queue, number, WRITE, block as u64 * 8, BLOCK as u32);
                }
                machine.kick(queue);
            }
            for queue in 0..2 {
                assert!(machine.wait_all(queue, 32).iter().all(|done| done.status == 0));
            }
            // Each reads what the other wrote.
            for queue in 0..2 {
                for number in 0..32u16 {
                    let block = (1 - queue) * 32 + usize::from(number);
                    machine.submit(queue, number, READ, block as u64 * 8, BLOCK as u32);
                }
                machine.kick(queue);
            }
            for queue in 0..2 {
                for done in machine.wait_all(queue, 32) {
                    let mut data = vec![0; BLOCK];
                    machine.memory.read_slice(&mut data, machine.data(queue, done.number)).unwrap();
                    assert_eq!(data, bytes_of((1 - queue) * 32 + usize::from(done.number), round));
                }
            }
        }
        drop(machine);
        server.end();
    }
}

#[test]
fn a_machine_is_held_to_the_rate_of_its_export() {
    let mut export = ExportSettings::new("disk", "memory:16M".parse().unwrap());
    export.disk.iops = 200;
    let server = serve_with(export, 4, |_| ());
    let mut machine = server.machine();
    let begin = Instant::now();
    for number in 0..64 {
        machine.submit(0, number, READ, u64::from(number) * 8, 512);
    }
    machine.kick(0);
    assert!(machine.wait_all(0, 64).iter().all(|done| done.status == 0));
    // A burst of a tenth of a second comes first.
    assert!(begin.elapsed() > Duration::from_millis(200), "{:?}", begin.elapsed());
    // One that leaves while its requests wait for their turn is gone at once.
    for number in 0..64 {
        machine.submit(0, number, READ, u64::from(number) * 8, 512);
    }
    machine.kick(0);
    drop(machine);
    assert_eq!(server.machine().read(0, 512), [0; 512]);
    server.end();
}

#[test]
fn a_queue_that_is_polled() {
    let export = ExportSettings::new("disk", "memory:16M".parse().unwrap());
    let server = serve_with(export, 4, |settings| settings.poll = Duration::from_micros(200));
    let mut machine = server.machine();
    for block in 0..200 {
        machine.write(block % 50 * 8, &bytes_of(block as usize, 1));
        assert_eq!(machine.read(block % 50 * 8, BLOCK), bytes_of(block as usize, 1));
    }
    drop(machine);
    server.end();
}
