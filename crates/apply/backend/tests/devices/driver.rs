//! Engines on several threads, one driver, several devices.

use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::host::{Host, VOLUME, config, driver, folders, open, sparse};
use nigh_backend::{Completion, Device, Handle, Options};
use nigh_engine::{Engine, Op, Outcome, Port, PortConfig, Region, Request, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;

/// One engine of several: writes blocks of its own and reads them back, some at a time.
fn shard(number: u32, shards: u32, volumes: u32, handle: &Handle, completions: &Receiver<Completion>) {
    let mut engine = Engine::new(config(BLOCK as u32)).expect("a cache");
    for volume in 0..volumes {
        let port = Port(volume as u16);
        engine.attach(port, PortConfig::default()).expect("a port");
        engine.open(Volume(volume), WriteMode::Through, &[Region::whole(port, BLOCKS * BLOCK)]).expect("a volume");
    }
    let mut random = fastrand::Rng::with_seed(number.into());
    let mut model = vec![vec![0u8; BLOCKS as usize]; volumes as usize];
    for round in 0..200u64 {
        let mut wanted = 0;
        let mut expected = Vec::new();
        let mut used = Vec::new();
        for token in 0..16u64 {
            let volume = random.u32(0..volumes);
            let block = random.u64(0..BLOCKS / u64::from(shards)) * u64::from(shards) + u64::from(number);
            if used.contains(&(volume, block)) {
                continue;
            }
            used.push((volume, block));
            let op = if random.bool() { Op::Write } else { Op::Read };
            let value = &mut model[volume as usize][block as usize];
            if op == Op::Write {
                *value = random.u8(1..);
            }
            expected.push((token, *value));
            let (offset, volume) = (block * BLOCK, Volume(volume));
            let request =
                Request { volume, tenant: Tenant(0), op, offset, length: BLOCK, fua: false, stream: Stream(0), token };
            let mut reply = engine.submit(round, request).expect("accepted").reply;
            wanted += 1;
            if let Some(Outcome::Fill(mut fill)) = reply.take_if(|_| op == Op::Write).map(|reply| reply.outcome) {
                fill.frames.copy_from(&[*value; BLOCK as usize]);
                engine.commit(round, fill);
            }
            if let Some(reply) = reply {
                check(reply.outcome, *value);
                wanted -= 1;
            }
        }
        while wanted > 0 {
            while let Some(operation) = engine.next_operation(round) {
                handle.submit(number, operation);
            }
            let (sender, operation, result) = completions.recv().expect("a completion").settle();
            assert_eq!(sender, number);
            engine.complete(round, operation, result);
            while let Some(reply) = engine.next_reply() {
                let (_, value) = expected.iter().find(|(token, _)| *token == reply.token).expect("asked for");
                check(reply.outcome, *value);
                wanted -= 1;
            }
        }
    }
}

fn check(outcome: Outcome, value: u8) {
    match outcome {
        Outcome::Done => {}
        Outcome::Data(frames) => assert!(frames.slices().all(|slice| slice.iter().all(|byte| *byte == value))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn engines_share_devices() {
    const SHARDS: u32 = 3;
    let files: Vec<_> = (0..2).map(|_| sparse(&folders()[0], BLOCKS * BLOCK)).collect();
    let path = |at: usize| files[at].path().display().to_string();
    let threads = Options { threads: true, ..Options::default() };
    let devices: [Box<dyn Device>; 4] = [
        open(&path(0), &Options { depth: 3, ..Options::default() }),
        open(&path(1), &threads),
        open("memory:2M", &Options::default()),
        open("delay:200us,jitter=1ms:memory:2M", &Options::default()),
    ];
    let volumes = devices.len() as u32;
    let (senders, receivers): (Vec<Sender<Completion>>, Vec<Receiver<Completion>>) =
        (0..SHARDS).map(|_| channel()).unzip();
    let (handle, thread) = driver(SHARDS as usize * 32 * devices.len(), move |done: &mut Vec<Completion>| {
        for completion in done.drain(..) {
            senders[completion.sender as usize].send(completion).expect("the shards wait");
        }
    });
    for (volume, device) in (0..).zip(devices) {
        handle.attach(Port(volume), device);
    }
    std::thread::scope(|scope| {
        for (number, completions) in (0..SHARDS).zip(receivers) {
            let handle = handle.clone();
            scope.spawn(move || shard(number, SHARDS, volumes, &handle, &completions));
        }
    });
    // A device that left has unlocked its file.
    let gone = handle.detach(Port(0));
    drop(gone.recv_timeout(Duration::from_secs(10)).expect("it leaves"));
    drop(open(&path(0), &Options::default()));
    handle.stop();
    thread.join().expect("the driver ends");
}

/// An engine with reads and writes in flight on a device that is dropped under them.
#[test]
fn a_dropped_device_waits_for_what_is_in_flight() {
    for (folder, threads) in folders().into_iter().flat_map(|folder| [(folder.clone(), false), (folder, true)]) {
        let file = sparse(&folder, 1 << 26);
        file.as_file().write_all_at(&vec![5; 1 << 26], 0).expect("room");
        file.as_file().sync_all().expect("a sync");
        for value in 6..16u8 {
            let options = Options { threads, ..Options::default() };
            let mut config = config(BLOCK as u32);
            // All writes are started at once.
            config.write_back.age_us = 0;
            let mut host = Host::new(open(file.path().to_str().expect("a path"), &options), config);
            for at in 0..16 {
                host.begin(Op::Read, at << 21, 1 << 16, &[]);
                host.begin(Op::Write, (at << 21) + (1 << 20), 1 << 16, &[value; 1 << 16]);
            }
            // The engine and its frames go first, the device then.
            drop(host.into_device());
            for at in 0..16 {
                let mut bytes = vec![0; 1 << 16];
                file.as_file().read_exact_at(&mut bytes, (at << 21) + (1 << 20)).expect("a read");
                assert!(bytes == [value; 1 << 16], "a write that was started is complete");
            }
        }
    }
}

#[test]
fn stopping_waits_for_operations() {
    let (sender, completions) = channel();
    let (handle, thread) = driver(16, move |done: &mut Vec<Completion>| {
        done.drain(..).for_each(|completion| sender.send(completion).expect("the test waits"));
    });
    handle.attach(Port(0), open("delay:50ms:memory:1M", &Options::default()));
    let mut engine = Engine::new(config(BLOCK as u32)).expect("a cache");
    engine.attach(Port(0), PortConfig::default()).expect("a port");
    engine.open(VOLUME, WriteMode::Back, &[Region::whole(Port(0), 1 << 20)]).expect("a volume");
    let start = Instant::now();
    let request = Request {
        volume: VOLUME,
        tenant: Tenant(0),
        op: Op::Read,
        offset: 0,
        length: 1,
        fua: false,
        stream: Stream(0),
        token: 1,
    };
    assert!(engine.submit(0, request).expect("accepted").reply.is_none());
    handle.submit(7, engine.next_operation(0).expect("a read"));
    handle.stop();
    thread.join().expect("the driver ends");
    assert!(start.elapsed() >= Duration::from_millis(50));
    let completion = completions.try_recv().expect("a completion");
    let (sender, operation, result) = completion.settle();
    assert_eq!((sender, result), (7, Ok(())));
    engine.complete(0, operation, result);
    assert!(matches!(engine.next_reply().expect("a reply").outcome, Outcome::Data(_)));
}
