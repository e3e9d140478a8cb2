//! The times of a plan: those of `nigh sim --device` for the policies and sizes that the verdict is about.

use anyhow::bail;
use clap::Parser;

use super::search::Answers;
use crate::args::{Cli, Command, PlanArgs, SimArgs};
use crate::timed::{self, Timing};

pub(super) fn simulate(args: &PlanArgs, device: &str, answers: &Answers) -> anyhow::Result<Vec<Timing>> {
    let policies: Vec<String> =
        [Some(&answers.present), answers.best.as_ref()].into_iter().flatten().map(ToString::to_string).collect();
    let sizes = format!("{}b,{}b", answers.question.have, answers.question.grown());
    let line = ["nigh", "sim", "TRACE", "--device", device, "--policy", &policies.join(","), "--size", &sizes];
    let Command::Sim(parsed) = Cli::try_parse_from(line)?.command else { bail!("'nigh sim' has another name") };
    let mut sim = SimArgs { input: args.input.clone(), ops: args.ops, threads: args.threads, ..*parsed };
    sim.trace = vec![args.trace.clone()];
    for (given, setting) in [
        (&args.readahead, &mut sim.timed.readahead),
        (&args.scheduler, &mut sim.timed.scheduler),
        (&args.think, &mut sim.timed.think),
    ] {
        given.iter().for_each(|given| setting.clone_from(given));
    }
    timed::timings(&sim, device)
}
