//! The contract as a suite: what a policy owes its host, on any reference string. Each part panics where the policy breaks
//! its contract.

use crate::host::Host;
use crate::workload::{self, Step};

/// The blocks that references are to.
pub const BLOCKS: u64 = 40;
/// The capacities to check: the seeds take turns at them.
pub const CAPACITIES: [u32; 7] = [1, 2, 3, 5, 10, 25, 39];

/// Every invariant holds after every reference, the cache fills before anything leaves, and what was just loaded hits. A
/// policy that `rejects` need not keep what comes in while the cache is full.
///
/// # Panics
/// If it does not.
pub fn invariants_hold(host: &mut Host, references: &[u64], capacity: u32, rejects: bool) {
    for &block in references {
        let full = host.resident().len() == capacity as usize;
        let outcome = host.access(block);
        if rejects && full && !outcome.hit && outcome.evicted.is_none() {
            continue;
        }
        assert_eq!(outcome.evicted.is_some(), !outcome.hit && full);
        assert!(host.resident().contains(&block), "a block just loaded hits if it is referenced again at once");
    }
}

/// Blocks can be invalidated at any time, resident or ghost.
///
/// # Panics
/// If they cannot.
pub fn blocks_can_be_removed(host: &mut Host, references: &[u64]) {
    for (at, &block) in references.iter().enumerate() {
        host.access(block);
        if at % 5 == 0 {
            host.remove(references[(at * 7) % references.len()]);
        }
        if at % 11 == 0 {
            host.remove(block);
        }
    }
}

/// A cache of `size` blocks becomes smaller and larger at any time, blocks are removed, and blocks leave without others
/// coming: every invariant holds at every step, and all `hosts` have the same hits, victims and ghosts.
///
/// # Panics
/// If one differs or breaks an invariant.
pub fn sizes_can_change(hosts: &mut [Host], steps: &[Step], mut size: u32, removals: bool) {
    let blocks = workload::blocks(steps);
    for (at, &step) in steps.iter().enumerate() {
        match step {
            Step::Access(block) => alike(hosts, |host| host.access(block)),
            Step::Shed if hosts[0].resident().is_empty() => {}
            Step::Shed => alike(hosts, Host::shed),
            Step::Resize { capacity, ghosts } => {
                size = capacity;
                hosts.iter_mut().for_each(|host| host.resize(capacity, ghosts));
            }
        }
        while hosts[0].resident().len() > size as usize {
            alike(hosts, Host::shed);
        }
        if removals && at % 13 == 0 {
            let removed = blocks[(at * 7) % blocks.len()];
            hosts.iter_mut().for_each(|host| host.remove(removed));
        }
        alike(hosts, |host| host.ghosts().clone());
    }
    while !hosts[0].resident().is_empty() {
        alike(hosts, Host::shed);
    }
}

/// A priority level of nigh-control has no size of its own: its policy's cache is always as large as what it holds. It grows
/// before a block comes, becomes smaller when one has left, and exchanges one for another. The cache of `host` has one block
/// at first, and `most` at the most. A policy that `rejects` need not exchange.
///
/// # Panics
/// If the policy breaks an invariant.
pub fn a_cache_can_be_as_large_as_what_it_holds(
    host: &mut Host,
    references: &[u64],
    most: u32,
    ghosts: u32,
    rejects: bool,
) {
    for (at, &block) in references.iter().enumerate() {
        let size = host.resident().len();
        // Waves: the level grows for a while, and then becomes smaller.
        let grows = at / 100 % 3 != 2 && size < most as usize;
        if !host.resident().contains(&block) && (grows || size == 0) {
            host.resize(size as u32 + 1, ghosts);
        }
        let outcome = host.access(block);
        let exchanges = !outcome.hit && !grows && size > 0;
        assert!(outcome.evicted.is_some() == exchanges || rejects && exchanges);
        let leaves = at / 100 % 3 == 2 && at % 3 == 0;
        if leaves {
            host.shed();
        } else if at % 17 == 0 {
            host.remove(block);
        }
        if leaves || at % 17 == 0 {
            host.resize(host.resident().len().max(1) as u32, ghosts);
        }
    }
}

/// Does the same with each host, and compares.
fn alike<T: PartialEq + std::fmt::Debug>(hosts: &mut [Host], of: impl Fn(&mut Host) -> T) {
    let (first, others) = hosts.split_first_mut().expect("there is a host");
    let expected = of(first);
    for other in others {
        assert_eq!(expected, of(other));
    }
}
