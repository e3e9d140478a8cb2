//! Reads that are started in steps, and what happens between these.

use nigh_engine::{Config, Fault, Op, Outcome, Span, Submitted, Volume, WriteMode};
use nigh_prefetch::Prefetcher;

use crate::cases::host::{BLOCK, Host, config};

fn in_steps_of(blocks: u32) -> Config {
    let mut config = config(16, "lru");
    config.limits.starting = blocks;
    config
}

fn begin(host: &mut Host, blocks: std::ops::Range<usize>) {
    let request = host.request(0, Op::Read, blocks.start * BLOCK, blocks.len() * BLOCK);
    assert!(host.engine.submit(host.now, request).expect("accepted").reply.is_none());
}

fn data(host: &mut Host) -> Vec<u8> {
    let Outcome::Data(data) = host.engine.next_reply().expect("a reply").outcome else { panic!("no data") };
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes
}

#[test]
fn devices_get_the_read_when_all_of_it_is_started() {
    let mut host = Host::new(in_steps_of(3), &[(64 * BLOCK, WriteMode::Back)]);
    begin(&mut host, 8..12);
    assert_eq!(host.engine.starting(), 1);
    host.engine.go_on_starting(host.now);
    assert!(host.engine.starting() == 1 && host.operations().is_empty());
    host.engine.go_on_starting(host.now);
    assert_eq!(host.engine.starting(), 0);
    let operations = host.operations();
    assert_eq!(operations.iter().map(|one| one.length).collect::<Vec<_>>(), [4 * BLOCK as u64]);
    operations.into_iter().for_each(|one| host.perform(one));
    assert_eq!(data(&mut host), host.disks[0][8 * BLOCK..12 * BLOCK]);
    host.engine.check();
}

#[test]
fn others_read_and_write_meanwhile() {
    let mut host = Host::new(in_steps_of(2), &[(64 * BLOCK, WriteMode::Back)]);
    begin(&mut host, 8..12);
    host.engine.go_on_starting(host.now);
    // Of the first two blocks, one is overwritten, and of the last two, the other is read before.
    host.write(0, 8 * BLOCK, BLOCK, 200);
    begin(&mut host, 11..12);
    host.engine.go_on_starting(host.now);
    for operation in host.operations() {
        host.perform(operation);
    }
    let mut sizes = [data(&mut host), data(&mut host)];
    sizes.sort_unstable_by_key(Vec::len);
    let mut expected = host.disks[0][8 * BLOCK..12 * BLOCK].to_vec();
    expected[..BLOCK].fill(200);
    assert_eq!(sizes, [host.disks[0][11 * BLOCK..12 * BLOCK].to_vec(), expected]);
    assert_eq!(host.counters(0).joined, 2, "the write, and the last block");
    host.engine.check();
}

#[test]
fn a_volume_that_discards_ends_them() {
    let mut host = Host::new(in_steps_of(2), &[(64 * BLOCK, WriteMode::Back)]);
    host.write(0, 11 * BLOCK, BLOCK, 200);
    begin(&mut host, 8..12);
    host.engine.go_on_starting(host.now);
    host.engine.close(host.now, Volume(0), true, 90).expect("it is open");
    host.engine.go_on_starting(host.now);
    for operation in host.operations() {
        host.perform(operation);
    }
    let outcome = host.engine.next_reply().expect("a reply").outcome;
    assert!(matches!(outcome, Outcome::Failed(Fault::SHUT_DOWN)), "not what the device has: {outcome:?}");
    host.engine.check();
}

#[test]
fn read_ahead_is_queued_with_all_of_the_read() {
    let mut host = Host::new(in_steps_of(1), &[(64 * BLOCK, WriteMode::Back)]);
    begin(&mut host, 32..34);
    let request = host.request(0, Op::Read, 8 * BLOCK, 2 * BLOCK);
    let bytes = request.offset..request.offset + request.length;
    let span = Span { file: 0, bytes, end: 64 * BLOCK as u64 };
    let mut prefetcher = Prefetcher::new(&"one-block".parse().expect("registered"), BLOCK as u32);
    let places = |_| Some(10 * BLOCK as u64..12 * BLOCK as u64);
    let Submitted { reply, missed } =
        host.engine.read_ahead(host.now, request, &mut prefetcher, span, places).expect("accepted");
    assert!(reply.is_none() && missed);
    assert_eq!(host.engine.starting(), 1, "the other read is as it was");
    assert_eq!(host.operations().iter().map(|one| one.length).collect::<Vec<_>>(), [4 * BLOCK as u64]);
}

#[test]
fn reserved_frames_are_no_surplus() {
    let mut host = Host::new(in_steps_of(2), &[(64 * BLOCK, WriteMode::Back)]);
    let hold = |host: &mut Host, first: usize| {
        let request = host.request(0, Op::Read, first * BLOCK, 2 * BLOCK);
        host.finish(request, 0)
    };
    // All 28 frames are in use once, and then 16, which are held.
    let all: Vec<_> = (0..28).step_by(2).map(|first| hold(&mut host, first)).collect();
    drop(all);
    host.engine.poll(host.now);
    let resident: Vec<_> = (12..28).step_by(2).map(|first| hold(&mut host, first)).collect();
    begin(&mut host, 40..48);
    host.resize(4);
    let surplus = host.engine.surplus_memory(100).expect("frames beyond the capacity");
    while host.engine.starting() > 0 {
        host.engine.go_on_starting(host.now);
    }
    for operation in host.operations() {
        host.perform(operation);
    }
    assert_eq!(data(&mut host), host.disks[0][40 * BLOCK..48 * BLOCK]);
    drop(resident);
    host.engine.return_memory(host.now, surplus);
    host.engine.check();
}
