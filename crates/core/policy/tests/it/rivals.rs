//! The rules that distinguish UBM, PCC and AMP, one at a time.

use nigh_testkit::host::{Host, Slots};

fn host(spec: &str, capacity: u32) -> Host {
    Host::new(spec, capacity, 4000, Slots::Forever, None)
}

/// References the blocks, and counts hits.
fn read(host: &mut Host, code: u64, blocks: impl IntoIterator<Item = u64>) -> usize {
    let hits = blocks.into_iter().filter(|&block| host.access_by(code, block).hit).count();
    host.check();
    hits
}

fn file(number: u64) -> u64 {
    number << 32
}

fn partition(host: &Host, name: &str) -> u64 {
    host.gauges().iter().find(|(gauge, _)| *gauge == name).expect("a gauge").1
}

#[test]
fn ubm_finds_sequences_of_files_whoever_reads_them() {
    let mut host = host("ubm:threshold=5", 100);
    // Two files in turns, each in order: the first four blocks of each are not known to be a sequence.
    (0..20).for_each(|at| {
        read(&mut host, 1, [file(1) + at, file(2) + at]);
    });
    assert_eq!((partition(&host, "sequential"), partition(&host, "other")), (32, 8));
    // Every other block, and the same block twice, are no sequence.
    read(&mut host, 1, (0..20).map(|at| file(3) + 2 * at));
    read(&mut host, 1, (0..20).map(|at| file(4) + at / 8));
    assert_eq!((partition(&host, "sequential"), partition(&host, "other")), (32, 8 + 20 + 3));
}

#[test]
fn ubm_drops_sequences_before_other_blocks() {
    let mut host = host("ubm:threshold=5", 50);
    read(&mut host, 1, (0..30).map(|at| 3 * at));
    read(&mut host, 1, (0..1000).map(|at| file(1) + at));
    assert_eq!(read(&mut host, 1, (0..30).map(|at| 3 * at)), 30, "the scan takes none of them");
}

#[test]
fn ubm_keeps_a_part_of_a_loop() {
    let mut host = host("ubm:threshold=5", 50);
    let hits: Vec<usize> = (0..4).map(|_| read(&mut host, 1, 0..100)).collect();
    assert_eq!(hits[0], 0);
    // LRU hits nothing.
    assert!(hits[1..].iter().all(|&hits| (40..=50).contains(&hits)), "{hits:?}");
}

/// "1 / period": of two loops, the one with the longer period loses blocks.
#[test]
fn ubm_prefers_loops_with_short_periods() {
    let mut host = host("ubm:threshold=5", 60);
    let mut hits = [0, 0];
    for _ in 0..20 {
        for _ in 0..4 {
            hits[0] += read(&mut host, 1, 0..50);
        }
        hits[1] += read(&mut host, 1, (0..100).map(|at| file(1) + at));
    }
    assert!(hits[0] > 3600, "of 4000 references of the short loop: {hits:?}");
    assert!((50..400).contains(&hits[1]), "of 2000 references of the long one: {hits:?}");
}

/// Other blocks gain buffers from a loop when their ghosts are hit, and lose them when they are not used.
#[test]
fn ubm_divides_buffers_by_gain() {
    let mut host = host("ubm:threshold=5", 60);
    (0..3).for_each(|_| {
        read(&mut host, 1, 0..100);
    });
    assert!(partition(&host, "looping") > 50);
    // Forty blocks, each three times as often as one of the loop.
    let mut late = 0;
    for round in 0..60 {
        for at in 0..100 {
            read(&mut host, 1, [at]);
            let block = file(1) + 2 * ((7 * (100 * round + at)) % 40);
            late += read(&mut host, 1, [block]) * usize::from(round >= 50);
        }
    }
    assert!(late > 500, "of the last 1000 references to the forty blocks: {late}");
    for _ in 0..10 {
        read(&mut host, 1, 0..100);
    }
    assert!(partition(&host, "looping") > 50);
}

#[test]
fn pcc_classifies_code_not_files() {
    let mut host = host("pcc:threshold=5", 100);
    // One file: the first code reads it in sequence, the second one back and forth.
    read(&mut host, 1, 0..20);
    read(&mut host, 2, (1..20).map(|at| 100 + 37 * at % 90));
    assert_eq!((partition(&host, "sequential"), partition(&host, "other")), (16, 4 + 19));
    // The first block of another file is already sequential to the first code.
    read(&mut host, 1, [file(1), file(2), file(3)]);
    assert_eq!(partition(&host, "sequential"), 19);
}

#[test]
fn pcc_finds_loops_across_small_files() {
    let round = || (0..50).flat_map(|name| [file(name), file(name) + 1]);
    let hits = |spec| {
        let mut host = host(spec, 50);
        (0..4).map(|_| read(&mut host, 1, round())).collect::<Vec<_>>()
    };
    let [ubm, pcc] = ["ubm:threshold=5", "pcc:threshold=5"].map(hits);
    assert_eq!(ubm, [0; 4], "UBM sees no sequence in files of two blocks");
    assert!(pcc[1..].iter().all(|&hits| hits >= 40), "of 100 each: {pcc:?}");
}

#[test]
fn pcc_takes_loops_that_are_not_consecutive_for_other_references() {
    let mut host = host("pcc:threshold=5", 50);
    let hits: Vec<usize> = (0..4).map(|_| read(&mut host, 1, (0..100).map(|at| 1 + 37 * at % 100))).collect();
    assert_eq!(hits, [0; 4], "as LRU");
    assert_eq!(partition(&host, "other"), 50);
}

/// R of loops is 0, of the latest blocks 1, and of random ones 1/2 on average; blocks need not be consecutive.
#[test]
fn amp_detects_patterns_by_recency() {
    let mut state = 1u64;
    let mut random = |span: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % span
    };
    let scan: Vec<u64> = (0..400).map(|at| 5 * at).collect();
    let back_and_forth: Vec<u64> = (0..400).map(|at| at / 3 - (at % 3) * u64::from(at > 6)).collect();
    let chosen: Vec<u64> = (0..400).map(|_| random(80)).collect();
    let looped: Vec<u64> = (0..400).map(|at| 37 * at % 90).collect();
    for (blocks, pattern) in
        [(scan, "one_shot"), (back_and_forth, "clustered"), (chosen, "probabilistic"), (looped, "looping")]
    {
        let mut host = host("amp", 100);
        read(&mut host, 1, blocks);
        assert_eq!(partition(&host, pattern), host.resident().len() as u64, "{pattern}: {:?}", host.gauges());
    }
}

#[test]
fn amp_serves_each_pattern_by_its_own_policy() {
    // MRU for a loop, in any order of blocks.
    let mut looping = host("amp", 50);
    let hits: Vec<usize> = (0..4).map(|_| read(&mut looping, 1, (0..100).map(|at| 37 * at % 100))).collect();
    assert!(hits[1..].iter().all(|&hits| hits >= 45), "{hits:?}");
    // LRU for the latest blocks.
    let mut clustered = host("amp", 8);
    let hits = read(&mut clustered, 1, (0..3000).map(|at| at / 6 + [0, 3, 1, 2, 0, 3][at as usize % 6]));
    assert!(hits > 2400, "{hits}");
    let evicted: Vec<u64> = (3900..3904).filter_map(|block| clustered.access_by(1, block).evicted).collect();
    assert!(evicted.len() == 4 && evicted.iter().all(|&block| block < 3900), "the oldest ones leave: {evicted:?}");
}

#[test]
fn amp_keeps_code_apart() {
    let mut host = host("amp", 60);
    let mut hits = 0;
    for round in 0..50 {
        hits += read(&mut host, 1, (0..40).map(|at| 5 * at));
        read(&mut host, 2, (0..50).map(|at| file(1) + 50 * round + at));
    }
    assert!(hits > 1800, "of 2000 references of the first code, whose blocks fit: {hits}");
}

/// More sequences than UBM keeps: the oldest are forgotten, and a loop that is read all the time is not.
#[test]
fn ubm_forgets_the_oldest_sequences() {
    let mut host = Host::new("ubm", 300, 30_000, Slots::Forever, None);
    let mut hits = 0;
    for number in 1..6000 {
        (0..4).for_each(|at| {
            host.access_unchecked(file(number) + at);
        });
        if number % 50 == 0 {
            hits += (0..100).filter(|&at| host.access_unchecked(at).hit).count();
            host.check();
        }
    }
    assert!(hits > 11_000, "of 11,900 references of the loop: {hits}");
}

/// Beyond the limit, code shares one place, and everything goes on.
#[test]
fn any_number_of_pieces_of_code_is_accepted() {
    for spec in ["pcc", "amp"] {
        let mut host = host(spec, 50);
        for at in 0..5000 {
            host.access_by(at % 1500, at * 7919 % 4000);
        }
        host.check();
        assert_eq!(host.resident().len(), 50);
    }
}
