//! AOIO with several pieces of code: limits, tables, and the figures of recorded programs.
//!
//! `../shared/traces/pc`: reads of 4 KiB pages, of which consecutive ones to the same page by one process count once,
//! and a cache for half of the distinct pages.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nigh_pattern::{Classifier, Limits, Table, Thresholds};
use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Stream, Tenant, build};
use nigh_testkit::naive::{self, Reference};
use rand::{RngExt, SeedableRng};

/// A cache with a slot for each block.
struct Host {
    policy: Box<dyn Policy + Send>,
    capacity: usize,
    slots: HashMap<(u32, u64), Slot>,
    resident: HashSet<Slot>,
    tick: u64,
}

impl Host {
    fn new(capacity: u32, blocks: u32, patterns: Option<Arc<Table>>) -> Host {
        let ghosts = nigh_policy::ghosts(&"aoio".parse().unwrap(), capacity).unwrap();
        let setup = Setup { capacity, slots: blocks, block_bytes: 4096, ghosts, future: None, patterns };
        let policy = build(&"aoio".parse().unwrap(), &setup).unwrap();
        Host { policy, capacity: capacity as usize, slots: HashMap::new(), resident: HashSet::new(), tick: 0 }
    }

    /// Whether it hits.
    fn access(&mut self, code: u64, volume: u32, index: u64) -> bool {
        let number = Slot(self.slots.len() as u32);
        let slot = *self.slots.entry((volume, index)).or_insert(number);
        let block = Block { volume, index };
        let (tenant, stream, kind, tick) = (Tenant(0), Stream(code), Kind::Read, self.tick);
        let access = Access { block, tenant, stream, kind, tick };
        self.tick += 1;
        if self.resident.contains(&slot) {
            self.policy.hit(slot, &access);
            return true;
        }
        if self.resident.len() == self.capacity {
            let victim = self.policy.evict(slot, &access).expect("it rejects nothing");
            self.resident.remove(&victim);
            while self.policy.take_forgotten().is_some() {}
        }
        self.policy.insert(slot, &access);
        while self.policy.take_forgotten().is_some() {}
        self.resident.insert(slot);
        false
    }
}

/// Beyond the limit, code shares one place, and everything goes on.
#[test]
fn any_number_of_pieces_of_code_is_accepted() {
    let mut host = Host::new(50, 4000, None);
    for at in 0..20_000_u64 {
        host.access(at % 3000, 0, at * 7919 % 4000);
    }
    host.policy.check();
}

/// Patterns of another run decide from the first reference on.
#[test]
fn a_table_is_used_from_the_beginning() {
    // A scan beside a loop that does not fit: without the table, the first rounds look alike.
    let round =
        |number: u64| (0..90).map(|page| (1, 1, page)).chain((0..200).map(move |page| (2, 2, number * 200 + page)));
    let references: Vec<(u64, u32, u64)> = (0..3).flat_map(round).collect();
    let mut classifier = Classifier::new(Limits::default(), Thresholds::default());
    references.iter().for_each(|&(code, file, page)| classifier.reference(code, file, page));
    let table = Arc::new(classifier.table());
    let hits = |patterns| {
        let mut host = Host::new(100, 1000, patterns);
        references.iter().filter(|&&(code, file, page)| host.access(code, file, page)).count()
    };
    assert_eq!(hits(Some(table)), 180, "all of the loop's second and third round");
    assert!(hits(None) < 180);
}

/// Hits in `capacity` blocks, with the table of a run that made the references `before`.
fn hits_after(before: &[(u64, u32, u64)], references: &[(u64, u32, u64)], capacity: u32) -> usize {
    let mut host = Host::new(capacity, 4000, Some(table(before)));
    let hits = references.iter().filter(|&&(code, file, page)| host.access(code, file, page)).count();
    host.policy.check();
    hits
}

/// A loop of 300 pages in 230 blocks, a third of which is read twice a round: half of the intervals are shorter than what
/// fits. LRU would hit these alone, half of the references.
#[test]
fn a_loop_that_does_not_fit_keeps_a_part_though_half_of_its_intervals_are_short() {
    let round = (0..200_u64).chain(0..100).chain(200..300);
    let references: Vec<(u64, u32, u64)> = (0..8).flat_map(|_| round.clone()).map(|page| (1, 1, page)).collect();
    let hits = hits_after(&references, &references, 230);
    assert!(hits > 7 * 400 * 6 / 10, "{hits} of {}", references.len());
}

/// The classifier "keeps updating" the table (section 4.2): what code does now replaces what it did in the earlier run.
#[test]
fn a_table_is_updated_by_what_the_code_does_now() {
    let scan = |file, pages: u64| (0..pages).map(move |page| (1, file, page));
    let round = |number: u32| scan(1, 150).chain((0..100).map(move |page| (2, 10 + number, page)));
    let now: Vec<(u64, u32, u64)> = (0..6).flat_map(round).collect();
    let before: Vec<(u64, u32, u64)> = scan(90, 2000).collect();
    let (told, known) = (hits_after(&before, &now, 160), hits_after(&now, &now, 160));
    assert!(told >= known - 150 && told >= 4 * 140, "{told} with the table of a scan, {known} with that of a loop");

    // The loop of the earlier run is a scan now. It must not keep the loop of other code out.
    let scan_now = |number: u32| scan(20 + number, 300).chain((0..100).map(|page| (2, 2, page)));
    let now: Vec<(u64, u32, u64)> = (0..8).flat_map(scan_now).collect();
    let before: Vec<(u64, u32, u64)> = (0..3).flat_map(|_| scan(1, 150)).collect();
    let hits = hits_after(&before, &now, 160);
    assert!(hits >= 5 * 100, "{hits} of the 700 that are read again");
}

/// Six pieces of code in ten files, each of which loops, scans or reads at random for a while: the same hits as a naive
/// model whose table is a naive one, too.
#[test]
fn tables_decide_as_in_the_naive_model() {
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(47);
    let mut references = Vec::new();
    while references.len() < 12_000 {
        let (code, file) = (random.random_range(0..6_u64), random.random_range(0..10_u32));
        let (pages, times) = (random.random_range(5..120_u64), random.random_range(1..4));
        let is_random = random.random_range(0..3) == 0;
        for at in 0..pages * times {
            references.push((code, file, if is_random { random.random_range(0..pages) } else { at % pages }));
        }
    }
    let (before, now) = references.split_at(references.len() / 2);
    let named = |&(code, file, page): &(u64, u32, u64)| Reference::by(code, u64::from(file) << 32 | page);
    let named_before: Vec<Reference> = before.iter().map(named).collect();
    for (before, named_before) in [(before, &named_before[..]), (&[], &[])] {
        for capacity in [20, 100, 300] {
            let mut table_of_codes = Table::default();
            for (code, &pattern) in table(before).codes() {
                table_of_codes.set(code, pattern);
            }
            let mut host = Host::new(capacity, 1200, Some(Arc::new(table_of_codes)));
            let mut model = naive::aoio_trained(capacity as usize, named_before);
            for (at, reference) in now.iter().enumerate() {
                let &(code, file, page) = reference;
                let hit = model.reference(named(reference)).hit;
                assert_eq!(host.access(code, file, page), hit, "reference {at} in {capacity} blocks");
            }
        }
    }
}

/// References of a recorded program: code by `column`, file, page.
fn recorded(test: &str, name: &str, column: usize) -> Option<Vec<(u64, u32, u64)>> {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../../shared/traces/pc/{name}.csv.gz"));
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: {test}: {} is missing", path.display());
        return None;
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    let (mut references, mut last) = (Vec::new(), HashMap::new());
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [number, offset, length] = [4, 5, 6].map(|at| fields[at].parse::<u64>().unwrap());
        if !fields[3].contains("read") || length == 0 {
            continue;
        }
        let code = u64::from_str_radix(fields[column], 16).unwrap();
        for page in offset / 4096..=(offset + length - 1) / 4096 {
            let place = (number as u32, page);
            if last.insert(fields[1].to_owned(), place) != Some(place) {
                references.push((code, place.0, page));
            }
        }
    }
    Some(references)
}

fn distinct(references: &[(u64, u32, u64)]) -> u32 {
    references.iter().map(|&(_, file, page)| (file, page)).collect::<HashSet<_>>().len() as u32
}

fn table(references: &[(u64, u32, u64)]) -> Arc<Table> {
    let mut classifier = Classifier::new(Limits::default(), Thresholds::default());
    references.iter().for_each(|&(code, file, page)| classifier.reference(code, file, page));
    Arc::new(classifier.table())
}

/// The hit ratio in percent in a cache for half of the pages.
fn ratio(references: &[(u64, u32, u64)], patterns: Option<Arc<Table>>) -> f64 {
    let pages = distinct(references);
    let mut host = Host::new(pages / 2, pages, patterns);
    let hits = references.iter().filter(|&&(code, file, page)| host.access(code, file, page)).count();
    host.policy.check();
    100.0 * hits as f64 / references.len() as f64
}

/// In percent: with what the policy finds out itself, with the table of the same run (section 4: the first step, then
/// the second), and on the second half with the table of the first.
#[test]
fn recorded_programs_hit_as_often_as_the_study_found() {
    const PC5: usize = 7;
    const PC8: usize = 8;
    let test = "recorded_programs_hit_as_often_as_the_study_found";
    // LRU has 30.5, 0, 0 and 0 %, OPT 92.7, 28.9, 50.5 and 50.5 %.
    for (name, column, online, trained, held_out) in [
        ("gcc_build", PC5, 91.0, 91.0, 66.0),
        ("grep_loop", PC5, 27.5, 28.0, 0.0),
        ("sqlite", PC5, 34.0, 34.0, 42.0),
        ("sqlite", PC8, 46.0, 46.0, 42.0),
    ] {
        let Some(references) = recorded(test, name, column) else { continue };
        let second = references.split_at(references.len() / 2);
        let found = [
            ratio(&references, None),
            ratio(&references, Some(table(&references))),
            ratio(second.1, Some(table(second.0))),
            ratio(second.1, None),
        ];
        println!(
            "{name} pc{}: online {:.2}, trained {:.2}; second half, trained on the first {:.2}, online {:.2}",
            if column == PC5 { 5 } else { 8 },
            found[0],
            found[1],
            found[2],
            found[3]
        );
        let least = [online, trained, held_out];
        assert!(found.iter().zip(least).all(|(found, least)| *found >= least), "{name}: {found:?}, at least {least:?}");
    }
}
