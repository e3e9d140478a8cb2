//! No call examines all blocks of the cache: a tenant's directives reach its blocks in steps, each of which looks
//! at no more than it may.

use crate::host;
use std::cell::Cell;

use crate::host::Host;
use nigh_control::{Chunk, Config, Directive, Index, Order};
use nigh_policy::{Block, Policy, Slot, Tenant};

const BLOCKS: u64 = 100_000;
/// Most blocks that a call may visit, however many there are.
const CALL_MOST: u64 = 256 + 64;
const STEP: u32 = 1024;

/// An index that counts how often it is asked.
struct Counted<'a> {
    blocks: &'a host::Blocks,
    asked: Cell<u64>,
}

impl Index for Counted<'_> {
    fn resident(&self, block: Block) -> Option<Slot> {
        self.asked.set(self.asked.get() + 1);
        self.blocks.resident(block)
    }

    fn block(&self, slot: Slot) -> Block {
        self.asked.set(self.asked.get() + 1);
        self.blocks.block(slot)
    }

    fn file_bytes(&self, _file: u32) -> Option<u64> {
        Some(BLOCKS)
    }

    fn device(&self, file: u32) -> u32 {
        self.blocks.device(file)
    }
}

/// A full cache, of tenant 0 and, every tenth block, of tenant 1.
fn full() -> Host {
    let capacity = BLOCKS as u32;
    let mut host = Host::new(capacity, 2 * capacity, Config::default());
    (host.checked, host.prompt) = (false, false);
    for at in 0..BLOCKS {
        host.access(u32::from(at % 10 == 0), block(at));
    }
    host
}

fn block(at: u64) -> Block {
    Block { volume: 7, index: at }
}

fn visited(host: &Host) -> u64 {
    let mut visited = 0;
    host.control.gauges(&mut |name, value| {
        if name == "visited" {
            visited = value;
        }
    });
    visited
}

/// The work of `call` is bounded, and so is each step that it leaves to do. Returns the number of steps.
fn bounded(host: &mut Host, call: impl FnOnce(&mut Host, &dyn Fn(&mut Host, Say<'_>))) -> u64 {
    let before = visited(host);
    call(host, &|host, say| {
        let index = Counted { blocks: &host.blocks, asked: Cell::new(0) };
        match say {
            Say::Apply(tenant, directive) => host.control.apply(Tenant(tenant), directive, &index),
            Say::Extend(tenant, chunk) => host.control.extend(Tenant(tenant), chunk, &index),
            Say::Forget(tenant, file) => {
                host.control.forget_files(Tenant(tenant), &|of| of == file, &index);
                Ok(())
            }
        }
        .expect("within the limits");
        let asked = index.asked.get();
        assert!(asked <= 2 * CALL_MOST, "a call asked for {asked} blocks");
    });
    let looked = visited(host) - before;
    assert!(looked <= CALL_MOST, "a call looked at {looked} blocks");
    let mut steps = 0;
    loop {
        let before = visited(host);
        let index = Counted { blocks: &host.blocks, asked: Cell::new(0) };
        let more = host.control.step(STEP, &index);
        let (looked, asked) = (visited(host) - before, index.asked.get());
        assert!(looked <= STEP.into() && asked <= 2 * u64::from(STEP), "a step looked at {looked} blocks");
        steps += 1;
        assert!(steps < 5 * BLOCKS / u64::from(STEP), "it never ends");
        if !more {
            break;
        }
        // The cache is used meanwhile.
        host.access((steps % 2) as u32, block(steps * 7919 % (BLOCKS + 1000)));
    }
    host.control.check();
    steps
}

enum Say<'a> {
    Apply(u32, &'a Directive),
    Extend(u32, &'a Chunk),
    Forget(u32, u32),
}

#[test]
fn what_is_said_first_reaches_blocks_in_steps() {
    let mut host = full();
    let chunk = Chunk { file: 7, bytes: Some((50, 100)) };
    let steps = bounded(&mut host, |host, say| say(host, Say::Extend(0, &chunk)));
    assert!(steps >= BLOCKS / u64::from(STEP), "all blocks are swept");
    // The second hint finds nothing to do but its own changes.
    assert_eq!(
        bounded(&mut host, |host, say| say(host, Say::Extend(0, &Chunk { file: 7, bytes: Some((200, 100)) }))),
        1
    );
}

#[test]
fn a_policy_a_list_a_priority_and_an_end_reach_blocks_in_steps() {
    let mut host = full();
    for policy in ["lfu", "lirs", "arc"] {
        let policy = Order::Policy(policy.parse().expect("a policy"));
        let directive = Directive::SetPolicy { priority: 0, policy };
        bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    }
    let directive = Directive::SetPriority { file: 7, priority: 1 };
    bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    let directive = Directive::SetTemporaryPriority { file: 7, first: 0, last: BLOCKS, priority: -1 };
    bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    let all = Chunk { file: 7, bytes: Some((0, BLOCKS)) };
    let directive = Directive::Predict { accesses: vec![all] };
    bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    bounded(&mut host, |host, say| say(host, Say::Forget(0, 7)));
    assert!(!host.control.has_list(Tenant(0)) && host.control.priority(Tenant(0), 7) == 0);
    bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    let directive = Directive::Predict { accesses: Vec::new() };
    bounded(&mut host, |host, say| say(host, Say::Apply(0, &directive)));
    bounded(&mut host, |host, _| host.control.set_bounds(Tenant(1), 10, 500).expect("within the limits"));
    bounded(&mut host, |host, _| host.control.close(Tenant(1)));
    let size = host.control.size(Tenant(0));
    assert!(size > BLOCKS as u32 / 2);
    bounded(&mut host, |host, _| host.control.close(Tenant(0)));
    assert!(host.control.size(Tenant(0)) < BLOCKS as u32 / 100, "what it had has no owner");
}

/// Whatever is swept when, the order of a pool is in the end that in which its blocks were referenced.
#[test]
fn a_sweep_keeps_the_order() {
    let mut host = Host::new(3000, 3000, Config::default());
    (host.checked, host.prompt) = (false, false);
    (0..3000).for_each(|at| _ = host.access(0, block(at)));
    host.apply(0, Directive::SetPriority { file: 9, priority: 1 }).expect("within the limits");
    let mut order: Vec<u64> = (0..3000).collect();
    for round in 0..200 {
        let at = round * 37 % 3000;
        host.access(0, block(at));
        order.retain(|&other| other != at);
        order.push(at);
        if !host.step(40) {
            break;
        }
    }
    assert!(!host.control.is_pending());
    let shed: Vec<u64> = (0..3000).map(|_| host.shed() - 7 * host::FILE).collect();
    let wrong = (0..3000).find(|&at| shed[at] != order[at]);
    assert_eq!(wrong, None, "the order in which blocks leave");
}
