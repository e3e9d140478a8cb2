//! Tenants in the timed simulation: that they change nothing without directives, and the effects of these.

use crate::simulated::{BLOCK, device, setup};
use nigh_control::{Allocation, Chunk, Config, Directive, Order, Saying};
use nigh_device::Profile;
use nigh_sim::timed::{Disk, Outcome, Program, Said, Setup, Step, What, run};
use nigh_testkit::workload::mixed;
use nigh_trace::layout::{Extent, Layout};

const MS: u64 = 1_000_000;

/// A device on which each request takes 1 ms, one at a time.
fn slow() -> Profile {
    device(1, 1000)
}

fn program(blocks: impl IntoIterator<Item = u64>, what: What, think_ns: u64) -> Program {
    let step =
        |block| Step { offset: block * BLOCK, think_ns, length: BLOCK as u32, what, disk: 0, stream: 0, content: 0 };
    Program { name: "p".to_owned(), steps: blocks.into_iter().map(step).collect(), ..Program::default() }
}

fn simulate(
    programs: &[Program],
    disks: &[Disk],
    readahead: &str,
    tenants: Option<&Config>,
    capacity: u32,
) -> Result<Outcome, String> {
    let readahead = readahead.parse().unwrap();
    let setup = Setup { tenants, ..setup(programs, disks, &readahead) };
    run(&setup, &"lru".parse().unwrap(), capacity).map_err(|error| error.to_string())
}

fn says(step: usize, directive: Directive) -> Said {
    Said { step, saying: Saying::Directive(directive) }
}

fn chunk(file: u32, first: u64, blocks: u64) -> Chunk {
    Chunk { file, bytes: Some((first * BLOCK, blocks * BLOCK)) }
}

fn mru() -> Directive {
    Directive::SetPolicy { priority: 0, policy: Order::Mru }
}

#[test]
fn tenants_that_say_nothing_share_a_cache_as_under_lru() {
    let sequential = program((0..3000).chain(0..3000), What::Read, MS / 20);
    let random = program(mixed(7, 2000, 6000).into_iter().map(|block| 100_000 + block), What::Read, MS / 10);
    let writes = program(mixed(9, 500, 2000).into_iter().map(|block| 200_000 + block), What::Write, MS / 3);
    let programs = [sequential, random, writes];
    let profile = Profile::named("rz26").unwrap();
    let disks = [Disk { profile: &profile, layouts: &[] }];
    let lru = simulate(&programs, &disks, "none", None, 1000).unwrap();
    for allocation in [Allocation::Global, Allocation::LruSp] {
        let config = Config { allocation, ..Config::default() };
        let mut shared = simulate(&programs, &disks, "none", Some(&config), 1000).unwrap();
        assert_eq!(shared.tenants.len(), 3);
        shared.tenants.clear();
        assert_eq!(shared, lru, "{allocation:?}");
    }
}

#[test]
fn a_tenant_that_loops_keeps_part_of_its_loop() {
    // Ten times 150 blocks in a cache of 100: LRU misses all; MRU the 150 and then 50 or 51 each time.
    let mut looping = program((0..1500).map(|at| at % 150), What::Read, 0);
    let (profile, config) = (slow(), Config::default());
    let disks = [Disk { profile: &profile, layouts: &[] }];
    let misses = |program: &Program| {
        let outcome = simulate(std::slice::from_ref(program), &disks, "none", Some(&config), 100).unwrap();
        assert_eq!(outcome.execution_ns(), outcome.cache.misses * MS);
        outcome.cache.misses
    };
    assert_eq!(misses(&looping), 1500);
    looping.says = vec![says(0, mru())];
    let smart = misses(&looping);
    assert!((600..=150 + 9 * 52).contains(&smart), "{smart}");
    // Said from the fifth time on.
    looping.says = vec![says(600, mru())];
    let late = misses(&looping);
    assert!((600 + 6 * 50..600 + 7 * 52).contains(&late), "{late}");
}

#[test]
fn a_list_is_fetched_in_batches_before_it_is_asked_for() {
    // 64 blocks all over the disk; a read of 16 takes as long as one: they are not neighbours, so 1 ms each.
    let blocks: Vec<u64> = (0..64).map(|at| at * 37 % 64 * 10).collect();
    let mut reading = program(blocks.iter().copied(), What::Read, 2 * MS);
    let (profile, config) = (slow(), Config::default());
    let disks = [Disk { profile: &profile, layouts: &[] }];
    let run = |program: &Program| simulate(std::slice::from_ref(program), &disks, "none", Some(&config), 100).unwrap();
    assert_eq!(run(&reading).execution_ns(), 64 * 3 * MS);
    let accesses = blocks.iter().map(|&block| chunk(0, block, 1)).collect();
    reading.says = vec![says(0, Directive::Predict { accesses })];
    let told = run(&reading);
    // While it computes for 2 ms, two blocks are read: it waits for the first batch only.
    assert!(told.execution_ns() <= (64 * 2 + 16 + 1) * MS, "{}", told.execution_ns());
    assert_eq!((told.cache.device_reads, told.cache.misses + told.cache.prefetch_issued), (64, 64));
    assert_eq!((told.tenants[0].predicted, told.tenants[0].unpredicted), (64, 0));
    assert_eq!((told.cache.prefetch_wasted, told.cache.prefetch_dropped), (0, 0));
    assert_eq!(told, run(&reading));
}

#[test]
fn tenants_call_files_by_the_numbers_of_the_layout_on_every_disk() {
    let piece = |file, offset: u64, disk: u64, blocks: u64| Extent {
        file,
        offset: offset * BLOCK,
        disk: disk * BLOCK,
        length: blocks * BLOCK,
    };
    let one = Layout::new(vec![piece(1, 0, 100, 40), piece(1, 40, 5000, 40)]).unwrap();
    let two = Layout::new(vec![piece(2, 0, 100, 80)]).unwrap();
    let profile = slow();
    let disks = [
        Disk { profile: &profile, layouts: std::slice::from_ref(&one) },
        Disk { profile: &profile, layouts: std::slice::from_ref(&two) },
    ];
    let predict = |file| vec![says(0, Directive::Predict { accesses: vec![Chunk { file, bytes: None }] })];
    let cut = Program { says: predict(1), ..program((100..140).chain(5000..5040), What::Read, MS) };
    let mut whole = Program { says: predict(2), ..program(100..180, What::Read, MS) };
    whole.steps.iter_mut().for_each(|step| step.disk = 1);
    let config = Config::default();
    let outcome = simulate(&[cut.clone(), whole], &disks, "none", Some(&config), 1000).unwrap();
    assert!(outcome.tenants.iter().all(|tenant| (tenant.predicted, tenant.unpredicted) == (80, 0)));
    assert!(outcome.ends_ns.iter().all(|&end_ns| end_ns <= 84 * MS), "{:?}", outcome.ends_ns);
    // One that does not know its file is refused in one line.
    let wrong = Program { says: predict(3), ..cut };
    let error = simulate(&[wrong], &disks, "none", Some(&config), 1000).unwrap_err();
    assert_eq!(
        error,
        "p, before request 0 of those replayed: the size of file 3 is not known: give an offset and a length"
    );
}

#[test]
fn a_list_that_lies_slows_its_tenant_only() {
    let honest = program(mixed(3, 300, 4000), What::Read, MS);
    let lies: Vec<Chunk> = (0..2000).map(|at| chunk(0, 100_000 + at * 7, 1)).collect();
    let reading = program((0..2000).map(|at| 50_000 + at * 3), What::Read, MS);
    let liar = Program { says: vec![says(0, Directive::Predict { accesses: lies })], ..reading.clone() };
    let (profile, config) = (slow(), Config::default());
    let disks = [Disk { profile: &profile, layouts: &[] }];
    let quiet = simulate(&[honest.clone(), reading], &disks, "none", Some(&config), 400).unwrap();
    let lying = simulate(&[honest, liar], &disks, "none", Some(&config), 400).unwrap();
    assert_eq!(lying.tenants[1].lists_dropped, 1);
    assert!(lying.ends_ns[0] <= quiet.ends_ns[0] + quiet.ends_ns[0] / 50, "{:?} {:?}", lying.ends_ns, quiet.ends_ns);
}
