//! The guard's claim (the least time that it saved) beside the time that it saved: the same pairs without it and with it, in turn.
//!
//! The pairs are small, so that a round takes seconds. The time of a pair without the guard differs from run to run, because thrashing ends by
//! itself at times: so the claim of a run is compared with the run before it, and the bench fails if it was too much in more than a tenth.

use anyhow::{Context, ensure};

use super::pair::{Mode, Together, once};
use crate::measure::{load, median};

/// As many times goes each touch over its page: programs that compute for seconds, so that a protection takes some.
const ROUNDS: usize = 128;

const PAIRS: [Together; 4] = [
    Together { name: "gz+vx", programs: &[("gz", 52, 100_000), ("vx", 38, 100_000)], limit_mib: 64, rounds: ROUNDS },
    Together { name: "gz+gz", programs: &[("gz", 48, 100_000), ("gz", 46, 100_000)], limit_mib: 64, rounds: ROUNDS },
    Together { name: "vx+cc", programs: &[("vx", 50, 90_000), ("cc", 50, 90_000)], limit_mib: 64, rounds: ROUNDS },
    // Pages of files, each a cycle: on cgroup v1, no mechanism protects them.
    Together {
        name: "loop+loop",
        programs: &[("loop", 45, 15_000), ("loop", 45, 15_000)],
        limit_mib: 64,
        rounds: ROUNDS,
    },
];

/// Claims that may be too much, of all.
const WRONG_MOST: f64 = 0.1;

/// A round of a pair, in seconds.
struct Round {
    without_s: f64,
    with_s: f64,
    claimed_s: f64,
}

impl Round {
    fn saved_s(&self) -> f64 {
        self.without_s - self.with_s
    }

    fn is_wrong(&self) -> bool {
        self.claimed_s > self.saved_s().max(0.0)
    }
}

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    println!("claims: {rounds} rounds; load {}", load());
    println!(
        "{:>5} {:10} {:>8} {:>8} {:>8} {:>16} {:>12} {:>10}",
        "round", "pair", "without", "with", "saved", "claimed at least", "protections", "protected"
    );
    let mut all: Vec<Vec<Round>> = PAIRS.iter().map(|_| Vec::new()).collect();
    for number in 1..=rounds {
        for (pair, all) in PAIRS.iter().zip(&mut all) {
            let (plain, guarded) = (once(pair, Mode::None)?, once(pair, Mode::Guard)?);
            let status = guarded.status.as_ref().context("the guard was asked")?;
            let count = |name: &str| status[name].as_f64().with_context(|| format!("{name}: {status}"));
            let round = Round { without_s: plain.total_s(), with_s: guarded.total_s(), claimed_s: count("saved_s")? };
            println!(
                "{number:>5} {:10} {:>8.1} {:>8.1} {:>8.1} {:>16.1} {:>12} {:>10.1}{}",
                pair.name,
                round.without_s,
                round.with_s,
                round.saved_s(),
                round.claimed_s,
                count("protections")?,
                count("protected_s")?,
                if round.is_wrong() { "  too much" } else { "" }
            );
            all.push(round);
        }
    }
    println!(
        "{:10} {:>24} {:>24} {:>24} {:>9}",
        "seconds", "without, min median max", "saved, min median max", "claimed, min median max", "too much"
    );
    for (pair, rounds) in PAIRS.iter().zip(&all) {
        println!(
            "{:10} {:>24} {:>24} {:>24} {:>6}/{}",
            pair.name,
            range(rounds, |round| round.without_s),
            range(rounds, Round::saved_s),
            range(rounds, |round| round.claimed_s),
            rounds.iter().filter(|round| round.is_wrong()).count(),
            rounds.len()
        );
    }
    let wrong = all.iter().flatten().filter(|round| round.is_wrong()).count();
    let most = (all.iter().flatten().count() as f64 * WRONG_MOST).floor() as usize;
    ensure!(wrong <= most, "{wrong} claims were too much: at most {most} may be");
    Ok(())
}

fn range(rounds: &[Round], value: impl Fn(&Round) -> f64) -> String {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    let middle = median(&mut values);
    format!("{:.1} {middle:.1} {:.1}", values[0], values[values.len() - 1])
}
