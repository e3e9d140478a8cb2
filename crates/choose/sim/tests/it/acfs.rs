//! The workloads of ACFS: their shapes, and what their directives do to the misses of a cache without prefetching.

use std::collections::HashMap;

use nigh_control::{Config, Directive, Event, Index, LruSp, Saying, When, sidecar};
use nigh_engine::Scheduler;
use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Stream, Tenant};
use nigh_sim::acfs::{self, BLOCK_BYTES, Workload};
use nigh_sim::timed;

#[derive(Default)]
struct Blocks {
    resident: HashMap<Block, Slot>,
    block: HashMap<Slot, Block>,
    files: Vec<u64>,
}

impl Index for Blocks {
    fn resident(&self, block: Block) -> Option<Slot> {
        self.resident.get(&block).copied()
    }

    fn block(&self, slot: Slot) -> Block {
        self.block[&slot]
    }

    fn file_bytes(&self, file: u32) -> Option<u64> {
        self.files.get(file as usize).copied()
    }

    fn device(&self, _file: u32) -> u32 {
        0
    }
}

/// Misses of a cache of `capacity` blocks, each block having its slot for ever.
fn misses(workload: &Workload, capacity: u32, events: &[Event]) -> usize {
    let mut slots = HashMap::new();
    let total: u64 = workload.files.iter().map(|bytes| bytes.div_ceil(BLOCK_BYTES.into())).sum();
    let setup = Setup {
        capacity,
        slots: total as u32,
        ghosts: total as u32,
        block_bytes: BLOCK_BYTES,
        future: None,
        patterns: None,
    };
    let mut control = LruSp::new(&setup, Config::default());
    let mut blocks = Blocks { files: workload.files.clone(), ..Blocks::default() };
    let (mut events, mut misses) = (events.iter().peekable(), 0);
    for (at, request) in workload.requests.iter().enumerate() {
        while let Some(event) = events.next_if(|event| event.when == When::Request(at as u64)) {
            let Saying::Directive(directive) = &event.saying else { panic!("programs set no bounds") };
            control.apply(event.tenant, directive, &blocks).expect("within the limits");
            while control.step(1024, &blocks) {}
        }
        let block = Block { volume: request.volume, index: request.offset / u64::from(BLOCK_BYTES) };
        let next = Slot(slots.len() as u32);
        let slot = *slots.entry(block).or_insert(next);
        let access = Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: at as u64 };
        if blocks.resident.contains_key(&block) {
            control.hit(slot, &access);
            continue;
        }
        misses += 1;
        if blocks.resident.len() == capacity as usize {
            let victim = control.evict(slot, &access).expect("it keeps what comes in");
            blocks.resident.remove(&blocks.block[&victim]);
        }
        control.insert(slot, &access);
        blocks.resident.insert(block, slot);
        blocks.block.insert(slot, block);
        while control.step(1024, &blocks) {}
        while control.take_forgotten().is_some() {}
    }
    assert!(events.next().is_none(), "every event has its request");
    control.check();
    misses
}

#[test]
fn workloads_are_those_of_the_paper() {
    let shapes: Vec<_> = acfs::alone(1)
        .iter()
        .map(|workload| {
            let bytes: u64 = workload.files.iter().sum();
            (workload.name, bytes >> 20, workload.requests.len())
        })
        .collect();
    let requests = |name: &str| shapes.iter().find(|shape| shape.0 == name).map(|shape| (shape.1, shape.2));
    assert_eq!(requests("cs1"), Some((9, 8 * 9 * 128)));
    assert_eq!(requests("din"), Some((8, 9 * 8 * 128)));
    assert_eq!(requests("cs2").map(|found| found.0), Some(18));
    assert_eq!(requests("cs3").map(|found| found.0), Some(10));
    assert_eq!(requests("gli").map(|found| found.0), Some(42));
    // Two inner blocks of the index, the leaves of the range, and a block for each tuple.
    assert_eq!(requests("psel1").map(|found| found.1), Some(2 + 8 + 2000));
    assert_eq!(requests("psel2").map(|found| found.1), Some(2 + 16 + 4000));
}

#[test]
fn the_same_seed_gives_the_same_program() {
    for (one, other) in acfs::alone(3).iter().zip(&acfs::alone(3)) {
        assert_eq!((&one.requests, &one.events), (&other.requests, &other.events));
    }
    assert_ne!(acfs::glimpse(3).requests, acfs::glimpse(4).requests);
}

/// Programs' directives are within the limits, and a sidecar holds them.
#[test]
fn directives_are_within_the_limits() {
    let all = acfs::alone(1).into_iter().chain(acfs::pairs(1).into_iter().flatten());
    for workload in all {
        assert_eq!(sidecar::parse(&sidecar::write(&workload.events)).unwrap(), workload.events);
        for event in &workload.events {
            if let Saying::Directive(Directive::Predict { accesses }) = &event.saying {
                assert!(accesses.len() <= 5000, "{}: {} entries", workload.name, accesses.len());
            }
        }
        assert!(workload.requests.iter().all(|request| request.length > 0));
        assert!(workload.requests.is_sorted_by_key(|request| request.time_ns));
    }
}

/// Application-controlled caching reads fewer blocks at both cache sizes of 5.2 (figures 4 and 5 show it; their numbers
/// are not in the paper's text), and programs' predictions make it no worse.
#[test]
fn what_programs_say_saves_misses() {
    for megabytes in [6.4, 12.0] {
        let capacity = (megabytes * 1024.0 * 1024.0 / f64::from(BLOCK_BYTES)) as u32;
        for workload in acfs::alone(1) {
            let lru = misses(&workload, capacity, &[]);
            let caching = misses(&workload, capacity, &workload.says(true, false));
            let both = misses(&workload, capacity, &workload.says(true, true));
            println!("{:6} {megabytes:4} MB: LRU {lru:6}, caching {caching:6}, with lists {both:6}", workload.name);
            assert!(caching <= lru && both <= caching + caching / 50, "{}: {lru}, {caching}, {both}", workload.name);
        }
    }
}

#[test]
fn the_timed_simulation_replaces_what_the_pure_model_does() {
    for (workload, capacity) in [(acfs::cscope_text_10(1), 800), (acfs::glimpse(1), 1536), (acfs::postgres_1(1), 800)] {
        let placed =
            acfs::Placed::new(std::slice::from_ref(&workload), true, false, &acfs::Assumed::default()).unwrap();
        let (tenants, none) = (Config::default(), nigh_prefetch::Spec::None);
        let setup = timed::Setup {
            programs: &placed.programs,
            block_bytes: BLOCK_BYTES,
            disks: &placed.disks(),
            levels: &[],
            encoded: None,
            seed: 1,
            readahead: &none,
            scheduler: Scheduler::FirstCome,
            tenants: Some(&tenants),
            processors: timed::Processors::Each,
            processor_ns_a_block: 0,
            warmup: 0,
            progress: None,
            stop: None,
        };
        let outcome = timed::run(&setup, &"lru".parse().unwrap(), capacity).unwrap();
        let model = misses(&workload, capacity, &workload.says(true, false));
        assert_eq!(outcome.cache.misses, model as u64, "{}", workload.name);
    }
}
