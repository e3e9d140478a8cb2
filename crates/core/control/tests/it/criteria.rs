//! The criteria of 3.2, on random references of several tenants to blocks of their own, without prefetching. The measure
//! is global LRU on the same references.
//!
//! A tenant is *smart* here if it is never wrong: when it overrules the kernel's candidate A and gives up B,
//! it does not reference B before A. Then none of its placeholders is ever used, and what it misses beyond LRU it has
//! saved before: with B out and A in B's position, the first of the two that is referenced is A, which is a hit that LRU
//! misses. To be better than LRU when alone is not enough: `better_when_alone_is_not_smart`.

use crate::host;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::host::{FILE, Host, OWN, block, file_of};
use nigh_control::{Allocation, Chunk, Config, Directive, Order};
use nigh_testkit::naive;
use nigh_testkit::naive::lru_sp::{LruSp, Manager};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const BLOCKS: u64 = 24;
const LENGTH: usize = 600;
const SEEDS: u64 = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Oblivious,
    /// Gives up any of its blocks.
    Foolish,
    /// Gives up any block that it does not reference before the candidate.
    Smart,
    /// Gives up the block that it references last.
    Optimal,
}

/// A manager that may know when its tenant references which block.
struct Chooser {
    kind: Kind,
    own: BTreeSet<u64>,
    /// The positions at which a block is referenced.
    future: Rc<BTreeMap<u64, Vec<usize>>>,
    now: Rc<Cell<usize>>,
    random: Random,
}

impl Chooser {
    fn next(&self, block: u64) -> usize {
        let at = &self.future[&block];
        at.get(at.partition_point(|&at| at <= self.now.get())).copied().unwrap_or(usize::MAX)
    }
}

impl Manager for Chooser {
    fn entered(&mut self, block: u64) {
        self.own.insert(block);
    }

    fn referenced(&mut self, _block: u64) {}

    fn left(&mut self, block: u64) {
        self.own.remove(&block);
    }

    fn choose(&mut self, candidate: u64) -> u64 {
        let choice: Vec<u64> = match self.kind {
            Kind::Oblivious => vec![candidate],
            Kind::Foolish => self.own.iter().copied().collect(),
            Kind::Smart => {
                let least = self.next(candidate);
                self.own.iter().copied().filter(|&block| self.next(block) >= least).collect()
            }
            Kind::Optimal => self.own.iter().copied().max_by_key(|&block| self.next(block)).into_iter().collect(),
        };
        choice[self.random.random_range(0..choice.len())]
    }
}

/// The misses of each tenant, and the references at which it missed.
type Misses = Vec<BTreeSet<usize>>;

fn misses(model: &mut LruSp<Chooser>, references: &[(u32, u64)], tenants: usize, now: &Cell<usize>) -> Misses {
    let mut misses = vec![BTreeSet::new(); tenants];
    for (at, &(tenant, block)) in references.iter().enumerate() {
        now.set(at);
        if !model.access(tenant, block).hit {
            misses[tenant as usize].insert(at);
        }
    }
    misses
}

/// Misses of `kinds` with a `change` of LRU-SP, and under global LRU.
fn run(
    seed: u64,
    references: &[(u32, u64)],
    capacity: usize,
    kinds: &[Kind],
    change: fn(&mut LruSp<Chooser>),
) -> (Misses, Misses) {
    let mut future = BTreeMap::<u64, Vec<usize>>::new();
    for (at, &(_, block)) in references.iter().enumerate() {
        future.entry(block).or_default().push(at);
    }
    let (future, now) = (Rc::new(future), Rc::new(Cell::new(0)));
    let lru = misses(&mut LruSp::new(capacity), references, kinds.len(), &now);
    let mut model = LruSp::new(capacity);
    change(&mut model);
    for (tenant, &kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind != Kind::Oblivious) {
        let random = host::random(seed ^ tenant as u64);
        let (future, now) = (future.clone(), now.clone());
        model.manage(tenant as u32, Chooser { kind, own: BTreeSet::new(), future, now, random });
    }
    let own = misses(&mut model, references, kinds.len(), &now);
    (own, lru)
}

fn capacity(seed: u64) -> usize {
    [2, 3, 5, 8, 13, 21, 34][seed as usize % 7]
}

fn kinds(seed: u64, among: &[Kind]) -> Vec<Kind> {
    let mut random = host::random(seed.wrapping_mul(77));
    (0..3).map(|_| among[random.random_range(0..among.len())]).collect()
}

/// Violations of the criteria: the seed, and the tenant that misses more.
fn violations(change: fn(&mut LruSp<Chooser>), among: &[Kind], suffers: fn(Kind) -> bool) -> Vec<(u64, usize, usize)> {
    let mut violations = Vec::new();
    for seed in 0..SEEDS {
        let (kinds, references) = (kinds(seed, among), host::references(seed, 3, BLOCKS, LENGTH));
        let (own, lru) = run(seed, &references, capacity(seed), &kinds, change);
        for tenant in (0..3).filter(|&tenant| suffers(kinds[tenant])) {
            if own[tenant].len() > lru[tenant].len() {
                violations.push((seed, tenant, own[tenant].len() - lru[tenant].len()));
            }
        }
    }
    violations
}

const ALL: [Kind; 4] = [Kind::Oblivious, Kind::Foolish, Kind::Smart, Kind::Optimal];
const NOT_FOOLISH: [Kind; 3] = [Kind::Oblivious, Kind::Smart, Kind::Optimal];

/// The first criterion, and more: what hits under global LRU hits.
#[test]
fn an_oblivious_tenant_misses_nothing_that_lru_has() {
    for seed in 0..SEEDS {
        let (kinds, references) = (kinds(seed, &ALL), host::references(seed, 3, BLOCKS, LENGTH));
        let (own, lru) = run(seed, &references, capacity(seed), &kinds, |_| {});
        for tenant in (0..3).filter(|&tenant| kinds[tenant] == Kind::Oblivious) {
            assert!(own[tenant].is_subset(&lru[tenant]), "seed {seed}, tenant {tenant}, {kinds:?}");
        }
    }
}

/// The second criterion: whatever the foolish do, it does not hurt those who are not.
#[test]
fn a_foolish_tenant_makes_nobody_else_miss_more() {
    assert_eq!(violations(|_| {}, &ALL, |kind| kind != Kind::Foolish), []);
}

/// The third criterion.
#[test]
fn a_smart_tenant_makes_nobody_miss_more() {
    assert_eq!(violations(|_| {}, &NOT_FOOLISH, |_| true), []);
}

/// "If the allocation scheme does not use swapping, it penalizes smart applications to the extent that they are better off
/// not using good replacement policies."
#[test]
fn without_swapping_smart_tenants_suffer() {
    let found = violations(|model| model.swapping = false, &NOT_FOOLISH, |kind| kind != Kind::Oblivious);
    assert!(!found.is_empty());
}

/// "If placeholders are not built, a foolish process can hurt other processes by taking away cache blocks from them."
#[test]
fn without_placeholders_foolish_tenants_hurt_others() {
    let found = violations(|model| model.placeholders_most = 0, &ALL, |kind| kind != Kind::Foolish);
    assert!(!found.is_empty());
}

/// A tenant that misses less than LRU when it has the cache for itself, but is wrong now and then, can miss more than it
/// would under global LRU when it shares the cache: the block that a placeholder takes back is the one it would rather
/// have kept.
#[test]
fn better_when_alone_is_not_smart() {
    let found = (0..SEEDS).find(|&seed| {
        let references = host::references(seed, 2, BLOCKS, LENGTH);
        let alone: Vec<(u32, u64)> = references.iter().copied().filter(|&(tenant, _)| tenant == 0).collect();
        let capacity = capacity(seed);
        let (own, lru) = run(seed, &alone, capacity, &[Kind::Foolish], |_| {});
        let better = own[0].len() < lru[0].len();
        let (own, lru) = run(seed, &references, capacity, &[Kind::Foolish, Kind::Oblivious], |_| {});
        better && own[0].len() > lru[0].len()
    });
    assert!(found.is_some());
}

/// `block` as an entry of a list.
fn chunk(number: u64) -> Chunk {
    Chunk { file: file_of(number), bytes: Some((number % FILE, 1)) }
}

/// A random word of a tenant about its own blocks.
fn nonsense(tenant: u32, random: &mut Random) -> Directive {
    let first = u64::from(tenant) * OWN;
    let file = file_of(first + random.random_range(0..BLOCKS));
    let priority = random.random_range(-1..3);
    match random.random_range(0..4) {
        0 => Directive::SetPriority { file, priority },
        1 => Directive::SetPolicy { priority, policy: if random.random() { Order::Mru } else { Order::Lru } },
        2 => Directive::SetTemporaryPriority { file, first: 0, last: random.random_range(0..FILE), priority },
        _ => {
            let length = random.random_range(0..30);
            let accesses = (0..length).map(|_| chunk(first + random.random_range(0..BLOCKS))).collect();
            Directive::Predict { accesses }
        }
    }
}

/// The same with what ships: foolish tenants send any directives, smart ones the references that they will make.
fn control(seed: u64, references: &[(u32, u64)], kinds: &[Kind], allocation: Allocation) -> Misses {
    let capacity = capacity(seed) as u32;
    let mut host = Host::new(capacity, capacity, Config { allocation, ..Config::default() });
    host.checked = false;
    let mut random = host::random(seed);
    for (tenant, _) in kinds.iter().enumerate().filter(|(_, kind)| matches!(kind, Kind::Smart | Kind::Optimal)) {
        let own = references.iter().filter(|&&(other, _)| other as usize == tenant);
        let accesses = own.map(|&(_, block)| chunk(block)).collect();
        host.apply(tenant as u32, Directive::Predict { accesses }).expect("within the limits");
    }
    let mut misses = vec![BTreeSet::new(); kinds.len()];
    for (at, &(tenant, number)) in references.iter().enumerate() {
        if kinds[tenant as usize] == Kind::Foolish && random.random_range(0..20) == 0 {
            host.apply(tenant, nonsense(tenant, &mut random)).expect("within the limits");
        }
        if !host.access(tenant, block(number)).hit {
            misses[tenant as usize].insert(at);
        }
    }
    misses
}

#[test]
fn the_criteria_hold_for_what_tenants_can_say() {
    for seed in 0..SEEDS / 4 {
        let references = host::references(seed, 3, BLOCKS, LENGTH);
        let lru = control(seed, &references, &[Kind::Oblivious; 3], Allocation::Global);
        for among in [&ALL[..], &NOT_FOOLISH] {
            let kinds = kinds(seed, among);
            let own = control(seed, &references, &kinds, Allocation::LruSp);
            for tenant in 0..3 {
                let (own, lru) = (&own[tenant], &lru[tenant]);
                match kinds[tenant] {
                    Kind::Oblivious => assert!(own.is_subset(lru), "seed {seed}, tenant {tenant}, {kinds:?}"),
                    Kind::Foolish => {}
                    Kind::Smart | Kind::Optimal => {
                        assert!(own.len() <= lru.len(), "seed {seed}, tenant {tenant}, {kinds:?}")
                    }
                }
            }
        }
    }
}

/// 2.1.3: with the whole list the replacement is the optimal one.
#[test]
fn a_tenant_that_says_everything_has_the_misses_of_opt() {
    for seed in 0..SEEDS / 4 {
        let references = host::references(seed, 1, BLOCKS, LENGTH);
        let own = control(seed, &references, &[Kind::Optimal], Allocation::LruSp);
        let numbers: Vec<u64> = references.iter().map(|&(_, number)| number).collect();
        let mut opt = naive::model("opt", capacity(seed), &numbers).expect("OPT has a model");
        let misses = numbers.iter().filter(|&&number| !opt.access(number).hit).count();
        assert_eq!(own[0].len(), misses, "seed {seed}");
    }
}

/// A tenant that sets only the default policy is served as if it were oblivious.
#[test]
fn lru_by_name_is_lru() {
    for seed in 0..SEEDS / 4 {
        let references = host::references(seed, 3, BLOCKS, LENGTH);
        let capacity = capacity(seed) as u32;
        let mut named = Host::new(capacity, capacity, Config::default());
        let mut oblivious = Host::new(capacity, capacity, Config::default());
        let directive = Directive::SetPolicy { priority: 0, policy: Order::Lru };
        named.apply(1, directive).expect("within the limits");
        for (tenant, number) in references {
            assert_eq!(named.access(tenant, block(number)), oblivious.access(tenant, block(number)), "seed {seed}");
        }
    }
}
