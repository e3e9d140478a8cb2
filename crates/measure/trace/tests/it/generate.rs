//! Generated traces follow the models that they name, and the seed.

use std::collections::HashMap;

use nigh_trace::generate::{Arrivals, Common, Generator, component_params, generators};
use nigh_trace::{Op, Request, Requests};

fn all(mut requests: Box<dyn Requests + Send>) -> Vec<Request> {
    let (mut whole, mut batch) = (Vec::new(), Vec::new());
    loop {
        requests.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            return whole;
        }
        whole.append(&mut batch);
    }
}

fn generate(spec: &str, common: &Common) -> Vec<Request> {
    all(Generator::parse(spec, common).unwrap())
}

/// The blocks of `requests` requests.
fn blocks(spec: &str, requests: u64) -> Vec<u64> {
    let common = Common { requests, ..Common::default() };
    generate(spec, &common).iter().map(|request| request.offset / 4096).collect()
}

fn counts(blocks: &[u64]) -> HashMap<u64, u64> {
    let mut counts = HashMap::new();
    for &block in blocks {
        *counts.entry(block).or_default() += 1;
    }
    counts
}

/// Pearson's chi-square of `counts`, each expected to be `expected`, in standard deviations from its mean.
fn chi_square(counts: impl ExactSizeIterator<Item = u64>, expected: f64) -> f64 {
    let degrees = counts.len() as f64 - 1.0;
    let chi: f64 = counts.map(|count| (count as f64 - expected) * (count as f64 - expected) / expected).sum();
    (chi - degrees) / (2.0 * degrees).sqrt()
}

#[test]
fn zipf_gives_the_most_popular_their_share() {
    const BLOCKS: u64 = 10_000;
    const REQUESTS: u64 = 1_000_000;
    for alpha in [0.6, 0.9, 1.0, 1.2] {
        let weight = |rank: u64| (rank as f64).powf(-alpha);
        let whole: f64 = (1..=BLOCKS).map(weight).sum();
        let mut popular: Vec<u64> =
            counts(&blocks(&format!("zipf:blocks={BLOCKS}:alpha={alpha}"), REQUESTS)).into_values().collect();
        popular.sort_unstable_by(|one, other| other.cmp(one));
        for top in [1, 10, 100, 1000] {
            let expected = (1..=top).map(weight).sum::<f64>() / whole;
            let measured = popular[..top as usize].iter().sum::<u64>() as f64 / REQUESTS as f64;
            assert!((measured / expected - 1.0).abs() < 0.03, "alpha {alpha}, top {top}: {measured} for {expected}");
        }
    }
}

#[test]
fn zipf_scatters_the_popular_unless_told_not_to() {
    let in_order = counts(&blocks("zipf:blocks=1000:scatter=no", 100_000));
    assert!(in_order[&0] > in_order[&3] && in_order[&3] > in_order[&20] && in_order[&20] > in_order[&300]);
    let scattered = blocks("zipf:blocks=1000", 100_000);
    assert!(scattered.iter().all(|&block| block < 1000));
    let lower_half = scattered.iter().filter(|&&block| block < 500).count();
    assert!((20_000..80_000).contains(&lower_half), "{lower_half}");
}

#[test]
fn uniform_is_uniform() {
    let counts = counts(&blocks("uniform:blocks=1000", 1_000_000));
    assert_eq!(counts.len(), 1000);
    let deviation = chi_square(counts.into_values(), 1000.0);
    assert!(deviation.abs() < 5.0, "{deviation}");
}

#[test]
fn loops_and_scans_are_exact() {
    assert_eq!(blocks("loop:blocks=3", 8), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(blocks("scan:blocks=5:region=7", 100), [7, 8, 9, 10, 11]);
    assert_eq!(blocks("scan:blocks=5", 3), [0, 1, 2]);
    assert_eq!(blocks("loop:blocks=3", 0), []);
    assert_eq!(blocks("zigzag:blocks=3", 8), [0, 1, 2, 2, 1, 0, 0, 1]);
    assert_eq!(blocks("zigzag:blocks=1:region=4", 3), [4, 4, 4]);
}

#[test]
fn two_pools_has_the_probabilities_of_the_dissertation() {
    const REQUESTS: u64 = 4_000_000;
    let references = blocks("two-pools", REQUESTS);
    assert!(references.chunks_exact(2).all(|pair| pair[0] < 100 && (100..10_100).contains(&pair[1])));
    let (index, records): (Vec<_>, Vec<_>) = counts(&references).into_iter().partition(|&(block, _)| block < 100);
    assert_eq!((index.len(), records.len()), (100, 10_000));
    let deviation = chi_square(index.into_iter().map(|(_, count)| count), 0.005 * REQUESTS as f64);
    assert!(deviation.abs() < 5.0, "index {deviation}");
    let deviation = chi_square(records.into_iter().map(|(_, count)| count), 0.00005 * REQUESTS as f64);
    assert!(deviation.abs() < 5.0, "records {deviation}");
}

/// The LRU stack distance of every reference to a block that was referenced before: 1 for a repetition.
fn stack_distances(references: &[u64]) -> Vec<usize> {
    let mut stack: Vec<u64> = Vec::new();
    let mut distances = Vec::new();
    for block in references {
        if let Some(at) = stack.iter().rposition(|other| other == block) {
            distances.push(stack.len() - at);
            stack.remove(at);
        }
        stack.push(*block);
    }
    distances
}

/// Compares the distribution of measured stack distances with P(distance) in proportion to `weight(distance)`.
fn assert_distances(spec: &str, blocks_in_all: usize, weight: impl Fn(usize) -> f64) {
    const WARM_UP: usize = 100_000;
    const MEASURED: usize = 300_000;
    let references = blocks(spec, (WARM_UP + MEASURED) as u64);
    let distances = stack_distances(&references);
    let distances = &distances[distances.len() - MEASURED..];
    let whole: f64 = (1..=blocks_in_all).map(&weight).sum();
    let (mut farthest, mut below, mut expected) = (0.0f64, 0, 0.0);
    let mut histogram = vec![0; blocks_in_all + 1];
    distances.iter().for_each(|&distance| histogram[distance] += 1);
    for (distance, count) in histogram.iter().enumerate().skip(1) {
        below += count;
        expected += weight(distance) / whole;
        farthest = farthest.max((f64::from(below) / MEASURED as f64 - expected).abs());
    }
    // Kolmogorov and Smirnov's bound for a probability of error of about 10^-6.
    assert!(farthest < 2.7 / (MEASURED as f64).sqrt(), "{spec}: distributions differ by {farthest}");
}

#[test]
fn clustered_has_the_stack_distances_asked_for() {
    assert_distances("clustered:blocks=400:mean=50", 400, |distance| (1.0 - 1.0 / 50.0f64).powi(distance as i32));
    assert_distances("clustered:blocks=400:mean=1000000", 400, |_| 1.0);
    let zipf = "clustered:blocks=400:distances=zipf:alpha=0.7:scatter=no";
    assert_distances(zipf, 400, |distance| (distance as f64).powf(-0.7));
    assert!(blocks("clustered:blocks=400:mean=1", 100).windows(2).all(|pair| pair[0] == pair[1]));
}

const MIX: &str = "zipf:blocks=1000:alpha=0.8+clustered:blocks=500:writes=0.5@3k,uniform:blocks=100+two-pools@1k";

#[test]
fn the_seed_decides_and_nothing_else() {
    let common = |seed| Common { requests: 20_000, seed, arrivals: Arrivals::Exponential, ..Common::default() };
    assert!(generate(MIX, &common(1)) == generate(MIX, &common(1)));
    for spec in ["zipf", "uniform", "two-pools", "clustered", MIX] {
        let [one, two] = [1, 2].map(|seed| generate(spec, &common(seed)));
        let same = one.iter().zip(&two).filter(|(one, two)| one.offset == two.offset).count();
        assert!(same < 10_000, "{spec}: {same} of 20,000 offsets are the same for another seed");
    }
    let offsets = |common: &Common| generate(MIX, common).iter().map(|request| request.offset).collect::<Vec<_>>();
    let writing = Common { writes: 0.7, gap_ns: 0, ..common(1) };
    assert!(offsets(&common(1)) == offsets(&writing), "writes and times change no offset");
}

/// A checksum of the requests, so that a change of what a seed means does not go unnoticed, on any machine.
#[test]
fn what_a_seed_means_is_fixed() {
    let checksum = |spec| {
        let common = Common { seed: 42, writes: 0.3, arrivals: Arrivals::Exponential, ..Common::default() };
        generate(spec, &common).iter().fold(0u64, |sum, request| {
            [request.time_ns, request.offset, request.op as u64, request.tenant.into()]
                .into_iter()
                .fold(sum, |sum, value| (sum.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        })
    };
    let found = ["zipf", "zipf:alpha=0.7", "uniform", "loop", "two-pools", "clustered", MIX].map(checksum);
    let fixed = [
        0x1b88_b74b_406d_eb8c,
        0x86cc_29de_9c64_eb4c,
        0x9f91_8785_60a4_1374,
        0xf69c_d3cb_dbc7_c06d,
        0x5b70_736a_b12d_d823,
        0xf53d_9a9e_ae2f_b09d,
        0x77da_2d1b_7cd8_4b8c,
    ];
    assert_eq!(found, fixed, "{found:#x?}");
}

#[test]
fn components_are_mixed_by_weight_and_do_not_overlap() {
    let common = Common { requests: 400_000, writes: 0.25, ..Common::default() };
    let requests =
        generate("zipf:blocks=1k:weight=3+uniform:blocks=2k:writes=1:tenant=9+loop:region=10:blocks=5", &common);
    let (mut turns, mut writes) = ([0; 3], [0; 3]);
    for request in &requests {
        let block = request.offset / 4096;
        let component = request.stream as usize;
        let (range, tenant) = [(0..1000, 0), (1000..3000, 9), (10..15, 2)][component].clone();
        assert!(range.contains(&block) && request.tenant == tenant, "{request:?}");
        turns[component] += 1;
        writes[component] += usize::from(request.op == Op::Write);
    }
    for (turns, share) in turns.iter().zip([0.6, 0.2, 0.2]) {
        assert!((*turns as f64 / 400_000.0 - share).abs() < 0.005, "{turns:?}");
    }
    for ((writes, turns), share) in writes.iter().zip(&turns).zip([0.25, 1.0, 0.25]) {
        assert!((*writes as f64 / *turns as f64 - share).abs() < 0.01, "{writes:?}");
    }
}

#[test]
fn phases_follow_one_another() {
    assert_eq!(
        blocks("loop:blocks=3@2,scan:blocks=3@2", 20),
        [0, 1, 3, 4, 2, 0, 5, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1],
        "a phase ends early with its last component, and is left out from then on"
    );
    assert_eq!(blocks("loop:blocks=2,loop:blocks=3", 8), [0, 1, 0, 1, 2, 3, 4, 2], "equal shares without counts");
    assert_eq!(blocks("scan:blocks=2+scan:blocks=3", 20).len(), 5);
    assert_eq!(blocks("scan:blocks=2@1,scan:blocks=1@5", 20), [0, 2, 1]);
}

#[test]
fn times_are_as_asked_for() {
    let times = |arrivals, gap_ns| {
        let common = Common { requests: 200_000, arrivals, gap_ns, ..Common::default() };
        generate("loop", &common).iter().map(|request| request.time_ns).collect::<Vec<_>>()
    };
    assert!(times(Arrivals::Constant, 250).iter().enumerate().all(|(at, &time)| time == 250 * at as u64));
    assert!(times(Arrivals::Exponential, 0).iter().all(|&time| time == 0));
    let gaps: Vec<u64> = times(Arrivals::Exponential, 50_000).windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    let above = gaps.iter().filter(|&&gap| gap > 50_000).count() as f64 / gaps.len() as f64;
    assert!((mean / 50_000.0 - 1.0).abs() < 0.01, "{mean}");
    assert!((above - (-1.0f64).exp()).abs() < 0.005, "{above}");
}

#[test]
fn every_generator_runs_on_its_defaults_and_progresses() {
    let common = Common { requests: 10_000, ..Common::default() };
    for info in generators() {
        let own = info.params.iter().map(|param| format!(":{}={}", param.key, param.default)).collect::<String>();
        let spec = format!("{}{own}", info.name);
        assert!(generate(info.name, &common) == generate(&spec, &common), "{spec}");
        let mut generator = Generator::parse(&spec, &common).unwrap();
        let mut batch = Vec::new();
        generator.next_batch(&mut batch).unwrap();
        assert_eq!(generator.progress(), Some(0.4096));
    }
    assert_eq!(component_params().len(), 4);
}

#[test]
fn bad_descriptions_are_refused() {
    let message = |spec: &str| match Generator::parse(spec, &Common::default()) {
        Ok(_) => panic!("{spec} was accepted"),
        Err(error) => error.to_string(),
    };
    assert_eq!(message("zipf:alpha=-1"), "zipf: alpha=-1: expected a number from 0 to 10");
    assert_eq!(message("zipf:alpha=NaN"), "zipf: alpha=NaN: expected a number from 0 to 10");
    assert!(message("uniform:blocks=0").contains("expected a count from 1 to "));
    assert_eq!(message("zipf:scatter=maybe"), "zipf: scatter=maybe: expected yes or no");
    assert_eq!(message("loop:region=99999999999999999"), "loop: its blocks pass the limit of 2^64 bytes");
    assert!(message("loop:writes=2").contains("expected a number from 0 to 1"));
    assert!(message("loop:weight=0").contains("expected a count from 1 to "));
    let common = Common { writes: 1.5, ..Common::default() };
    assert_eq!(Generator::parse("loop", &common).err().unwrap().to_string(), "writes: expected a share from 0 to 1");
}

#[test]
fn a_clock_that_overflows_is_an_error() {
    for arrivals in [Arrivals::Constant, Arrivals::Exponential] {
        for (gap_ns, is_held) in [(u64::MAX, false), (u64::MAX / 50, false), (u64::MAX / 1000, true)] {
            let common = Common { requests: 100, gap_ns, arrivals, ..Common::default() };
            let mut requests = Generator::parse("uniform", &common).unwrap();
            let result = requests.next_batch(&mut Vec::new());
            assert_eq!(result.is_ok(), is_held, "{gap_ns} {arrivals:?}");
            let Err(error) = result else { continue };
            assert!(error.to_string().starts_with("the requests take more than 2^64 ns"), "{error}");
        }
    }
}
