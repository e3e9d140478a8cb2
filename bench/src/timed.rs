//! Processor time a request of the timed simulation, as the trace grows and its blocks and the cache do not.

use anyhow::ensure;

use crate::measure::{self, load, median, nigh};

const REQUESTS: [(u64, &str); 3] = [(100_000, "100k"), (1_000_000, "1M"), (10_000_000, "10M")];
const ROUNDS: usize = 3;
/// Sequential reads and skewed ones of a disk's files, in turn.
const WORKLOAD: &str = "loop:blocks=300k:weight=3+zipf:blocks=300k";
const CACHE: &str = "60000b";

pub(crate) fn run(policies: &[String]) -> anyhow::Result<()> {
    println!(
        "processor seconds of one simulation on hdd-10k, Linux read-ahead, deadline, cache of {CACHE}, reading the trace \
         included; load {}",
        load()
    );
    print!("{:12}", "requests");
    REQUESTS.iter().for_each(|(_, name)| print!("{name:>9}"));
    println!("   ns a request, 10M by 1M");
    for policy in policies {
        print!("{policy:12}");
        let mut costs = Vec::new();
        for (requests, name) in REQUESTS {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let mut command = nigh()?;
                command.args(["sim", "--generate", WORKLOAD, "--requests", name, "--policy", policy, "--size", CACHE]);
                command.args(["--device", "hdd-10k", "--readahead", "linux", "--scheduler", "deadline"]);
                command.args(["--think", "0.1ms", "--threads", "1", "--json"]);
                let finished = measure::run(&mut command)?;
                ensure!(finished.stdout.contains("execution_s"), "nigh sim gives no times");
                rounds.push(finished.cpu_s);
            }
            let cpu_s = median(&mut rounds);
            print!("{cpu_s:>9.2}");
            costs.push(1e9 * cpu_s / requests as f64);
        }
        let [_, million, ten] = costs[..] else { unreachable!("three lengths") };
        println!("   {million:.0} and {ten:.0}: {:.2}x", ten / million);
    }
    Ok(())
}
