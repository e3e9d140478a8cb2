//! An engine behind a lock, used as a server uses it: bytes are copied and frames released without the lock, on several
//! threads, and published blocks are read without it. Nobody sees half a write, and waiters for frames are woken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use nigh_engine::{
    Action, Config, Engine, Limits, Noted, Op, Outcome, Port, PortConfig, Published, Region, Request, Shared, Volume,
    WriteBack, WriteMode,
};
use nigh_policy::{Stream, Tenant};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
/// The blocks of every second request are among these.
const HOT: u64 = 5;
const THREADS: u64 = 4;
/// Of each thread. Miri, which finds data races, is a thousand times as slow.
const STEPS: u64 = if cfg!(miri) { 40 } else { 3000 };

struct Server {
    /// The engine, and replies that nobody took yet.
    engine: Mutex<(Engine, HashMap<u64, Outcome>)>,
    arrived: Condvar,
    disk: Mutex<Vec<u8>>,
    /// Reads without the engine.
    found: AtomicU64,
}

impl Server {
    /// Does what the devices have to do, and hands out replies.
    fn turn(&self) {
        loop {
            let mut engine = self.engine.lock().expect("no thread failed");
            while let Some(reply) = engine.0.next_reply() {
                engine.1.insert(reply.token, reply.outcome);
                self.arrived.notify_all();
            }
            let Some(mut operation) = engine.0.next_operation(0) else { return };
            drop(engine);
            let range = operation.offset as usize..(operation.offset + operation.length) as usize;
            match &mut operation.action {
                Action::Read(frames) => frames.copy_from(&self.disk.lock().expect("no thread failed")[range]),
                Action::Write(frames) => frames.copy_to(&mut self.disk.lock().expect("no thread failed")[range]),
                _ => {}
            }
            self.engine.lock().expect("no thread failed").0.complete(0, operation, Ok(()));
        }
    }

    fn wait(&self, token: u64) -> Outcome {
        self.turn();
        let mut engine = self.engine.lock().expect("no thread failed");
        for _ in 0..200 {
            if let Some(outcome) = engine.1.remove(&token) {
                return outcome;
            }
            engine = self.arrived.wait_timeout(engine, Duration::from_millis(100)).expect("no thread failed").0;
        }
        panic!("request {token} waits for ever: {:?}", engine.0.gauges());
    }

    fn submit(&self, op: Op, block: u64, blocks: u64, token: u64) -> Outcome {
        let (offset, length) = (block * BLOCK as u64, blocks * BLOCK as u64);
        let request =
            Request { volume: Volume(0), tenant: Tenant(0), op, offset, length, fua: false, stream: Stream(0), token };
        let reply = self.engine.lock().expect("no thread failed").0.submit(0, request).expect("never too many").reply;
        reply.map_or_else(|| self.wait(token), |reply| reply.outcome)
    }

    /// Releases frames.
    fn release(&self, data: Shared) {
        if data.release() {
            self.engine.lock().expect("no thread failed").0.poll(0);
            self.turn();
        }
    }

    /// The bytes of a read that needs no engine.
    fn find(&self, published: &Published, noted: &mut Noted, block: u64, blocks: u64) -> Option<Shared> {
        let (offset, length) = (block * BLOCK as u64, blocks * BLOCK as u64);
        match published.read(Volume(0), offset, length) {
            Ok(data) if published.note(noted, offset, length) => {
                self.found.fetch_add(1, Ordering::Relaxed);
                return Some(data);
            }
            Ok(data) => self.release(data),
            Err(true) => {
                self.engine.lock().expect("no thread failed").0.poll(0);
                self.turn();
            }
            Err(false) => {}
        }
        self.engine.lock().expect("no thread failed").0.take_notice(noted);
        None
    }

    fn client(&self, thread: u64) {
        let published = self.engine.lock().expect("no thread failed").0.published().clone();
        let mut noted = Noted::new(Volume(0), Tenant(0), Stream(0));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
        for step in 0..STEPS {
            let blocks = random.random_range(1..4);
            let most = if random.random_bool(0.5) { HOT } else { BLOCKS };
            let block = random.random_range(0..most - blocks);
            let token = step * THREADS + thread;
            match random.random_range(0..20) {
                0 => assert!(matches!(self.submit(Op::Flush, 0, 0, token), Outcome::Done)),
                1..8 => {
                    let Outcome::Fill(mut fill) = self.submit(Op::Write, block, blocks, token) else {
                        panic!("a fill")
                    };
                    for slice in fill.frames.slices_mut() {
                        slice.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&token.to_le_bytes()));
                    }
                    self.engine.lock().expect("no thread failed").0.commit(0, fill);
                    assert!(matches!(self.wait(token), Outcome::Done));
                }
                _ => {
                    let found = self.find(&published, &mut noted, block, blocks);
                    let data = found.unwrap_or_else(|| match self.submit(Op::Read, block, blocks, token) {
                        Outcome::Data(data) => data,
                        other => panic!("{other:?}"),
                    });
                    for slice in data.slices() {
                        let first = &slice[..8];
                        assert!(slice.chunks_exact(8).all(|word| word == first), "half a write");
                        std::thread::yield_now();
                    }
                    self.release(data);
                }
            }
        }
    }
}

#[test]
fn several_threads_share_an_engine() {
    let config = Config {
        block_bytes: BLOCK as u32,
        capacity: 8,
        capacity_max: 8,
        spare: 7,
        storing: 0,
        policy: "lru".parse().expect("registered"),
        levels: Vec::new(),
        tenants: None,
        limits: Limits {
            requests: 16,
            request_bytes: 4 * BLOCK as u32,
            loading: 8,
            prefetching: 0,
            operation_bytes: 4 * BLOCK as u32,
            dirty: 8,
        },
        write_back: WriteBack {
            start: 6,
            stop: 3,
            age_us: u64::MAX,
            retry_us: 0,
            patience_us: u64::MAX,
            unflushed: 16,
        },
        verify: 3,
        fixed_hash: false,
        into_policy: false,
        curves: 0,
    };
    let mut engine = Engine::new(config).expect("a possible set-up");
    engine.attach(Port(0), PortConfig { depth: 4, ..PortConfig::default() }).expect("not open yet");
    let whole = Region::whole(Port(0), BLOCKS * BLOCK as u64);
    engine.open(Volume(0), WriteMode::Back, &[whole]).expect("not open yet");
    let server = Server {
        engine: Mutex::new((engine, HashMap::new())),
        arrived: Condvar::new(),
        disk: Mutex::new(vec![0; BLOCKS as usize * BLOCK]),
        found: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || server.client(thread));
        }
    });
    let (mut engine, _) = server.engine.into_inner().expect("no thread failed");
    engine.check();
    assert_eq!(engine.gauges().requests, 0);
    assert!(server.found.into_inner() > 0, "blocks are read without the engine");
}
