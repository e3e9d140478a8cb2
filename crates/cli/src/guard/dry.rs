//! `nigh guard --dry-run`: reports what the guard sees and what it would do. It needs no privileges, changes nothing, keeps no files, and
//! can run beside another guard.

use std::fmt::Write;
use std::time::Duration;

use nigh_guard::{Guard, Procfs, ScopeStatus, Service, State, Status, Tree, Version};

use super::{GuardArgs, settings};
use crate::{log, output};

pub(super) fn run(args: &GuardArgs) -> anyhow::Result<()> {
    let settings = settings(args, None)?;
    let _log = log::start(args.log.as_deref().unwrap_or("warn"))?;
    let tree = Tree::open(&args.cgroupfs, super::below(args)?)?;
    let version = tree.version();
    let mut guard = Guard::new(settings, tree, Procfs::new(&args.procfs), None)?;
    guard.survey(Duration::ZERO)?;
    output::print(watched(&guard.status(Duration::ZERO), version).as_bytes())?;
    // The first error is kept: a reader that hangs up ends the run.
    let broken = std::cell::OnceCell::new();
    let report = |elapsed: Duration, status: &Status| {
        if let Err(error) = output::print(seen(elapsed, status).as_bytes()) {
            let _ = broken.set(error);
        }
        broken.get().is_none()
    };
    let service = Service { procfs: &args.procfs, state: None, metrics: args.metrics, report: Some(&report) };
    nigh_guard::serve(&mut guard, &service)?;
    broken.into_inner().map_or(Ok(()), Err)
}

/// Which groups compete, at the start.
fn watched(status: &Status, version: Version) -> String {
    let mut text = String::from("dry run: nothing is changed; Ctrl-C ends it\n");
    let scopes = &status.scopes;
    let names = scopes
        .iter()
        .take(8)
        .map(|scope| format!("{} ({} MiB, {} groups)", name(scope), scope.limit >> 20, scope.groups));
    let mut names: Vec<String> = names.collect();
    if scopes.len() > names.len() {
        names.push(format!("{} more", scopes.len() - names.len()));
    }
    let _ = match &names[..] {
        [] => writeln!(
            text,
            "no two groups compete for memory: start programs by 'nigh guard run', or as services of systemd"
        ),
        names => writeln!(text, "groups compete within: {}", names.join(", ")),
    };
    if version == Version::V1 {
        text.push_str(
            "cgroup v1: groups can be protected only within the limit of a group, not on the whole machine\n",
        );
    }
    text
}

/// What there is to see at one moment.
fn seen(elapsed: Duration, status: &Status) -> String {
    let faults = status.rates.major.unwrap_or(0.0);
    let mut text = format!("{:>4} s  {faults:.0} major faults/s", elapsed.as_secs());
    if let Some(pages) = status.rates.from_swap {
        let _ = write!(text, ", {pages:.0} pages/s from swap");
    }
    let scopes: Vec<_> = status.scopes.iter().filter(|scope| scope.state != State::Normal).collect();
    if scopes.is_empty() {
        text.push_str(": nothing thrashes\n");
        return text;
    }
    text.push('\n');
    scopes.iter().for_each(|scope| scope_seen(&mut text, scope));
    text
}

fn scope_seen(text: &mut String, scope: &ScopeStatus) {
    let _ = write!(text, "        {} ({} MiB): {} groups fault", name(scope), scope.limit >> 20, scope.faulting.len());
    if let Some((cpu, io)) = scope.utilization.zip(scope.io_full) {
        let _ = write!(text, ", they keep a processor {:.0} % busy, I/O stalls {:.0} %", 100.0 * cpu, 100.0 * io);
    }
    let _ = match (&scope.protected, scope.protected_s) {
        (Some(group), Some(seconds)) => {
            let by = scope.mechanism.unwrap_or("freeze");
            writeln!(text, ": would protect {group} by {by} (for {seconds:.0} s so far)")
        }
        _ => writeln!(text, ": no protection yet"),
    };
    for seen in &scope.busiest {
        let (resident, swapped) = (seen.resident >> 20, seen.swapped >> 20);
        let _ = writeln!(
            text,
            "          {}: {:.0} faults/s, {resident} MiB resident, {swapped} MiB in swap",
            seen.group, seen.faults_per_s
        );
    }
}

/// A scope as people know it.
fn name(scope: &ScopeStatus) -> String {
    if scope.scope.is_empty() { "the machine".to_owned() } else { format!("/{}", scope.scope) }
}
