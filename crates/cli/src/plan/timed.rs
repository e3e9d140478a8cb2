//! The times of a plan: those of `nigh sim --device` for the policies and sizes that the verdict is about.

use anyhow::{Context, bail};
use clap::Parser;

use super::search::Answers;
use crate::args::{Cli, Command, PlanArgs, SimArgs};
use crate::timed::{self, Timing};

/// How a simulation takes place: a `nigh sim` of which only policies and sizes are open.
#[derive(Clone)]
pub(super) struct Settings {
    sim: SimArgs,
    device: String,
}

/// The command line of a `nigh sim` of the trace.
pub(super) fn sim(args: &PlanArgs) -> anyhow::Result<SimArgs> {
    let Command::Sim(parsed) = Cli::try_parse_from(["nigh", "sim", "TRACE"])?.command else {
        bail!("'nigh sim' has another name")
    };
    let mut sim = SimArgs { input: args.input.clone(), ops: args.ops, threads: args.threads, ..*parsed };
    sim.trace = vec![args.trace().to_owned()];
    sim.timed.readahead.clone_from(&args.readahead);
    Ok(sim)
}

/// Reads the settings of the simulation, without the trace.
pub(super) fn settings(args: &PlanArgs, device: &str) -> anyhow::Result<Settings> {
    let mut sim = sim(args)?;
    sim.timed.device = Some(device.to_owned());
    args.scheduler.iter().for_each(|given| sim.timed.scheduler.clone_from(given));
    sim.timed.think.clone_from(&args.think);
    sim.timed.pace.clone_from(&args.pace);
    timed::check_settings(&sim.timed, device)?;
    Ok(Settings { sim, device: device.to_owned() })
}

/// The time of `policy` with `memory` blocks, and with a level if there is one: `PROFILE:SIZE`.
pub(super) fn one(settings: &Settings, policy: &str, memory: u64, level: Option<String>) -> anyhow::Result<Timing> {
    let Settings { mut sim, device } = settings.clone();
    sim.policy = vec![policy.to_owned()];
    sim.size = vec![format!("{memory}b")];
    sim.timed.level = level.into_iter().collect();
    timed::timings(&sim, &device)?.pop().context("the simulation has no result")
}

pub(super) fn simulate(settings: &Settings, answers: &Answers) -> anyhow::Result<Vec<Timing>> {
    let Settings { mut sim, device } = settings.clone();
    sim.policy = answers.policies().map(ToString::to_string).collect();
    sim.size = [answers.question.have, answers.question.grown()].map(|blocks| format!("{blocks}b")).to_vec();
    timed::timings(&sim, &device)
}
