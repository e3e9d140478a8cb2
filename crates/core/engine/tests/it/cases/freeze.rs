//! Volumes whose writes wait.

use crate::cases::host::{BLOCK, Host, config, fill_of};
use nigh_engine::{Op, Outcome, Refusal, Volume, WriteMode};

const DISK: usize = 64 * BLOCK;
const FIRST: Volume = Volume(0);

fn two_disks() -> Host {
    let mut host = Host::new(config(16, "lru"), &[(DISK, WriteMode::Back), (DISK, WriteMode::Back)]);
    host.write(0, 0, BLOCK, 0xaa);
    host
}

fn flush(host: &mut Host) {
    assert!(matches!(host.finish(host.request(0, Op::Flush, 0, 0), 0), Outcome::Done));
}

#[test]
fn writes_wait_and_reads_and_other_volumes_go_on() {
    let mut host = two_disks();
    // It began before, and is committed later.
    let request = host.request(0, Op::Write, BLOCK, BLOCK);
    let mut begun = fill_of(host.engine.submit(0, request).expect("taken").reply);
    host.engine.freeze(FIRST, 1000).expect("open");
    flush(&mut host);
    assert!(!host.engine.is_still(FIRST), "a write is not over");
    begun.frames.slices_mut().for_each(|slice| slice.fill(0xbb));
    host.engine.commit(0, begun);
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    flush(&mut host);
    assert!(host.engine.is_still(FIRST));

    let before = host.disks[0].clone();
    assert_eq!((before[0], before[BLOCK]), (0xaa, 0xbb));
    assert!(host.submit(host.request(0, Op::Write, 0, BLOCK), 0xcc).is_none());
    assert!(host.submit(host.request(0, Op::Zeroes { keep: true, fast: false }, 2 * BLOCK, BLOCK), 0).is_none());
    assert!(host.submit(host.request(0, Op::Trim, 3 * BLOCK, BLOCK), 0).is_none());
    host.run();
    assert_eq!(host.read(0, 0, 1), [0xaa]);
    assert_eq!(host.read(0, 40 * BLOCK, 1), [40]);
    host.write(1, 0, BLOCK, 0xdd);
    host.run();
    host.engine.check();
    assert!(host.engine.is_still(FIRST) && host.disks[0] == before);

    assert!(host.engine.thaw(host.now, FIRST) && !host.engine.thaw(host.now, FIRST));
    let mut fill = fill_of(host.engine.next_reply());
    fill.frames.slices_mut().for_each(|slice| slice.fill(0xcc));
    host.engine.commit(host.now, fill);
    flush(&mut host);
    let bytes = [0, 2, 3].map(|block| host.disks[0][block * BLOCK]);
    assert_eq!(bytes, [0xcc, 0, 0xdd], "written, zeroed, discarded");
    host.engine.check();
}

#[test]
fn a_freeze_ends_at_its_time_and_with_a_close() {
    let mut host = two_disks();
    host.engine.freeze(FIRST, 1000).expect("open");
    host.engine.freeze(FIRST, 2000).expect("open");
    assert!(host.submit(host.request(0, Op::Write, 0, BLOCK), 0xcc).is_none());
    host.run();
    assert_eq!(host.engine.next_wakeup(), Some(2000));
    host.now = 1999;
    host.run();
    assert!(host.reply().is_none());
    host.now = 2000;
    host.run();
    let fill = fill_of(host.engine.next_reply());
    host.engine.abort(host.now, fill);
    assert!(!host.engine.thaw(host.now, FIRST), "it is over");

    host.engine.freeze(FIRST, u64::MAX).expect("open");
    assert!(host.submit(host.request(0, Op::Write, 0, BLOCK), 0xcc).is_none());
    host.engine.close(host.now, FIRST, false, 9).expect("open");
    let fill = fill_of(host.engine.next_reply());
    host.engine.abort(host.now, fill);
    assert_eq!(host.engine.freeze(FIRST, 1), Err(Refusal::NoVolume));
    host.run();
    host.steps();
    assert_eq!(host.engine.next_reply().map(|reply| reply.token), Some(9));
    assert_eq!((host.engine.freeze(Volume(7), 1), host.engine.thaw(0, Volume(7))), (Err(Refusal::NoVolume), false));
}
