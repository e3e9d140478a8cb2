//! Processor time a request of the timed simulation, as the trace grows and its blocks and the cache do not.

use anyhow::ensure;

use crate::measure::{self, load, median, nigh};

const REQUESTS: [&str; 3] = ["100k", "1M", "10M"];
const ROUNDS: usize = 3;
/// Sequential reads and skewed ones of a disk's files, in turn. Few blocks, so that also the shortest trace has most of them:
/// what more blocks cost is `growth`'s question.
const WORKLOAD: &str = "loop:blocks=60k:weight=3+zipf:blocks=60k";
const CACHE: &str = "12000b";

pub(crate) fn run(policies: &[String]) -> anyhow::Result<()> {
    println!(
        "processor seconds of one simulation on hdd-10k, Linux read-ahead, deadline, cache of {CACHE}, reading the trace \
         included; load {}",
        load()
    );
    print!("{:12}", "requests");
    REQUESTS.iter().for_each(|requests| print!("{requests:>9}"));
    println!("   ns a request, 10M by 1M");
    for policy in policies {
        let mut rounds = [const { Vec::new() }; REQUESTS.len()];
        for _ in 0..ROUNDS {
            for (requests, seconds) in REQUESTS.iter().zip(&mut rounds) {
                seconds.push(cpu_s(policy, requests)?);
            }
        }
        let [hundred_thousand, million, ten_million] = rounds.map(|mut seconds| median(&mut seconds));
        print!("{policy:12}{hundred_thousand:>9.2}{million:>9.2}{ten_million:>9.2}");
        println!("   {:.0} and {:.0}: {:.2}x", 1e3 * million, 1e2 * ten_million, ten_million / (10.0 * million));
    }
    Ok(())
}

fn cpu_s(policy: &str, requests: &str) -> anyhow::Result<f64> {
    let mut command = nigh()?;
    command.args(["sim", "--generate", WORKLOAD, "--requests", requests, "--policy", policy, "--size", CACHE]);
    command.args(["--device", "hdd-10k", "--readahead", "linux", "--scheduler", "deadline"]);
    command.args(["--think", "0.1ms", "--threads", "1", "--json"]);
    let finished = measure::run(&mut command)?;
    ensure!(finished.stdout.contains("execution_s"), "nigh sim gives no times");
    Ok(finished.cpu_s)
}
