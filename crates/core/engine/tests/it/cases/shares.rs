//! The resources that volumes leave to each other.

use nigh_engine::{Op, Outcome, Refusal, Request, WriteMode};

use super::host::{BLOCK, Host, config};

const DISK: (usize, WriteMode) = (64 * BLOCK, WriteMode::Back);

#[test]
fn quota_3_a_volume_finds_requests_although_another_has_taken_all_it_can() {
    let mut config = config(64, "lru");
    config.limits.requests = 56;
    config.limits.dirty = 64;
    let mut host = Host::new(config, &[DISK; 3]);
    let flush = |host: &mut Host, volume| {
        let request = host.request(volume, Op::Write, 0, BLOCK);
        let request = Request { fua: true, ..request };
        host.engine.submit(0, request).map(|submitted| submitted.reply)
    };
    for (volume, most) in [(0, 56), (1, 7), (2, 1)] {
        let fills: Vec<_> = (0..).map_while(|_| flush(&mut host, volume).ok()).collect();
        assert_eq!(fills.len(), most, "volume {volume}");
        assert!(matches!(flush(&mut host, volume), Err(Refusal::Busy)));
        for reply in fills {
            if let Some(Outcome::Fill(fill)) = reply.map(|reply| reply.outcome) {
                host.engine.commit(0, fill);
            }
        }
    }
    host.engine.check();
}

/// However many devices are hung, a volume on a healthy one has some requests and loads.
#[test]
fn quota_3_a_volume_finds_requests_and_loads_beside_five_that_took_all_they_could() {
    let mut config = config(2048, "lru");
    (config.limits.requests, config.limits.loading) = (1024, 1024);
    let mut host = Host::new(config, &[(2048 * BLOCK, WriteMode::Back); 6]);
    for volume in 0..6 {
        let loading = host.engine.gauges().loading;
        let requests = (0..2048).map(|block| host.request(volume, Op::Read, block * BLOCK, BLOCK)).collect::<Vec<_>>();
        let began = requests.into_iter().map_while(|request| host.engine.submit(0, request).ok()).count();
        let loads = host.engine.gauges().loading - loading;
        assert!(began >= 16 && loads >= 16, "volume {volume} has {began} requests and {loads} loads");
    }
    host.engine.check();
}

/// More volumes than one call serves wait for room.
#[test]
fn dirty_10_all_volumes_that_wait_are_served() {
    let mut host = Host::new(config(32, "lru"), &[DISK; 100]);
    for (volume, blocks) in [(0, 16), (1, 9)] {
        (0..blocks).for_each(|block| host.write(volume, block * BLOCK, BLOCK, 1));
    }
    for volume in 2..100 {
        assert!(host.submit(host.request(volume, Op::Write, 0, BLOCK), 2).is_none());
    }
    let mut done = 0;
    while done < 98 {
        host.run();
        let reply = host.engine.next_reply().expect("nobody is forgotten");
        match reply.outcome {
            Outcome::Fill(fill) => host.engine.commit(0, fill),
            Outcome::Done => done += 1,
            outcome => panic!("{outcome:?}"),
        }
        host.engine.check();
    }
}

/// A device that writes as fast as its client never makes it wait, although a slow one has more dirty blocks than it can
/// write.
#[test]
fn dirty_10_writes_to_a_fast_device_do_not_wait_for_a_slow_one() {
    let mut config = config(256, "lru");
    config.limits.dirty = 64;
    (config.write_back.start, config.write_back.stop) = (32, 16);
    let mut host = Host::new(config, &[DISK, DISK]);
    let mut at_devices = Vec::new();
    let mut waited = [0, 0];
    for turn in 0..4000_usize {
        for volume in [0, 1] {
            // The client of the slow one has one write that waits.
            if volume == 1 || host.engine.gauges().waiting == 0 {
                let write = host.request(volume, Op::Write, turn % 64 * BLOCK, BLOCK);
                waited[volume as usize] += u32::from(host.submit(write, 3).is_none());
            }
        }
        at_devices.extend(host.operations());
        // Of 16 operations, the slow device completes one.
        let mine = |port: u16| port == 1 || turn.is_multiple_of(16);
        if let Some(at) = at_devices.iter().position(|operation| mine(operation.port.0)) {
            host.perform(at_devices.remove(at));
        }
        while let Some(reply) = host.engine.next_reply() {
            if let Outcome::Fill(fill) = reply.outcome {
                host.engine.commit(host.now, fill);
            }
        }
        host.now += 1000;
    }
    assert!(waited[0] > 100 && waited[1] == 0, "writes that waited: {waited:?}");
}

/// A device that completes nothing has all the loads that it may have, or all spare frames: others still prefetch.
#[test]
fn ahead_4_a_hung_volume_does_not_stop_the_prefetches_of_others() {
    let prefetches = |host: &mut Host, block| {
        let request = host.request(1, Op::Prefetch, block * BLOCK, 2 * BLOCK);
        assert!(matches!(host.submit(request, 0), Some(Outcome::Done)));
        let blocks = host.operations().into_iter().filter(|operation| operation.port.0 == 1).map(|operation| {
            let length = operation.length as usize / BLOCK;
            host.perform(operation);
            length
        });
        blocks.sum::<usize>()
    };
    let mut host = Host::new(config(64, "lru"), &[DISK; 2]);
    for block in [0, 8] {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, 8 * BLOCK), 0).is_none());
    }
    assert_eq!(host.engine.gauges().loading, 16);
    let hung = host.operations();
    assert_eq!(prefetches(&mut host, 0), 2);
    drop(hung);

    let mut config = config(32, "lru");
    config.spare = 24;
    let mut host = Host::new(config, &[DISK; 2]);
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    // They leave the policy, and wait outside for their device.
    for block in 0..32 {
        assert!(host.submit(host.request(1, Op::Read, block * BLOCK, BLOCK), 0).is_none());
        host.operations().into_iter().filter(|operation| operation.port.0 == 1).for_each(|read| host.perform(read));
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
    assert_eq!(host.engine.dirty(nigh_engine::Volume(0)), Some(16));
    assert_eq!(prefetches(&mut host, 40), 2);
    host.engine.check();
}

/// A read that waited for loads, and needs none any more, is answered although its volume may load nothing.
#[test]
fn quota_3_a_queued_read_whose_blocks_have_come_is_answered() {
    let mut host = Host::new(config(64, "lru"), &[DISK]);
    for block in [0, 8] {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, 8 * BLOCK), 0).is_none());
    }
    assert!(host.submit(host.request(0, Op::Read, 20 * BLOCK, BLOCK), 0).is_none());
    host.submit(host.request(0, Op::Write, 20 * BLOCK, BLOCK), 9);
    let mut replies = std::iter::from_fn(|| host.reply());
    assert!(replies.any(|reply| matches!(reply, Outcome::Data(_))), "it waits for loads of others");
}

/// More volumes wait in vain than one call tries: a step tries the others.
#[test]
fn quota_3_a_volume_behind_many_that_wait_is_served_by_a_step() {
    let mut host = Host::new(config(32, "lru"), &[DISK; 80]);
    let of = |operations: Vec<nigh_engine::Operation>, port| {
        operations.into_iter().filter(move |operation| operation.port.0 == port)
    };
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    for block in [0, 8] {
        assert!(host.submit(host.request(1, Op::Read, block * BLOCK, 8 * BLOCK), 0).is_none());
    }
    // They need nine frames each, and there are not as many after the first one.
    for volume in 2..76 {
        assert!(host.submit(host.request(volume, Op::Read, BLOCK / 2, 8 * BLOCK), 0).is_none());
    }
    assert!(host.submit(host.request(79, Op::Read, 0, 5 * BLOCK), 0).is_none());
    let mut operations = host.operations();
    assert!(operations.iter().all(|operation| operation.port.0 != 79));
    let at = operations.iter().position(|operation| operation.port.0 == 0).expect("dirty blocks have to leave");
    let written = operations.swap_remove(at);
    assert!(written.length <= 4 * BLOCK as u64);
    host.perform(written);
    host.steps();
    assert_ne!(of(host.operations(), 79).count(), 0, "it waits behind others that cannot be served");
    host.engine.check();
}
