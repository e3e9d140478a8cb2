//! `nigh guard --dry-run`: reports what the guard sees and what it would do. It needs no privileges, changes nothing, keeps no files, and
//! can run beside another guard.

use std::fmt::Write;
use std::time::Duration;

use nigh_guard::{Guard, Procfs, ScopeStatus, Service, State, Status, Tree};

use super::{GuardArgs, settings};
use crate::{log, output};

pub(super) fn run(args: &GuardArgs) -> anyhow::Result<()> {
    let settings = settings(args, None)?;
    let _log = log::start(args.log.as_deref().unwrap_or("warn"))?;
    let tree = Tree::open(&args.cgroupfs, super::below(args)?)?;
    let (limits, pf_high) = (tree.version().limits(), settings.profile.pf_high);
    let mut guard = Guard::new(settings, tree, Procfs::new(&args.procfs), None)?;
    guard.survey(Duration::ZERO)?;
    output::print(watched(&guard.status(Duration::ZERO), limits).as_bytes())?;
    // The first error is kept: a reader that hangs up ends the run.
    let broken = std::cell::OnceCell::new();
    let report = |elapsed: Duration, status: &Status| {
        if let Err(error) = output::print(seen(elapsed, status, pf_high).as_bytes()) {
            let _ = broken.set(error);
        }
        broken.get().is_none()
    };
    let service = Service { procfs: &args.procfs, state: None, metrics: args.metrics, report: Some(&report) };
    nigh_guard::serve(&mut guard, &service)?;
    broken.into_inner().map_or(Ok(()), Err)
}

/// Which groups compete, at the start.
fn watched(status: &Status, limits: Option<&str>) -> String {
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
    limits.into_iter().for_each(|limits| text.extend([limits, "\n"]));
    text
}

/// A snapshot of all groups. `pf_high` is the rate of major faults above which groups may thrash.
fn seen(elapsed: Duration, status: &Status, pf_high: f64) -> String {
    let faults = status.rates.major.unwrap_or(0.0);
    let mut text = format!("{:>4} s  {faults:.0} major faults/s", elapsed.as_secs());
    if let Some(pages) = status.rates.from_swap {
        let _ = write!(text, ", {pages:.0} pages/s from swap");
    }
    let scopes: Vec<_> = status.scopes.iter().filter(|scope| scope.state != State::Normal).collect();
    if scopes.is_empty() {
        let _ = writeln!(text, ": {}", rest(status, pf_high));
        return text;
    }
    text.push('\n');
    scopes.iter().for_each(|scope| scope_seen(&mut text, scope, status.refusal.as_deref()));
    text
}

/// Why nothing would be protected, although there may be many faults.
fn rest(status: &Status, pf_high: f64) -> String {
    let scopes = &status.scopes;
    if status.rates.major.is_none_or(|faults| faults <= pf_high) {
        return "nothing thrashes".to_owned();
    }
    if scopes.is_empty() {
        return "no two groups compete for memory, so none can be protected from another".to_owned();
    }
    if scopes.iter().all(|scope| scope.utilization.is_none()) {
        return "not measured yet".to_owned();
    }
    let busy = scopes.iter().flat_map(|scope| &scope.busiest).filter(|seen| seen.faults_per_s > pf_high);
    let swaps = status.rates.from_swap.is_some_and(|pages| pages > pf_high);
    match busy.map(|seen| &*seen.group).collect::<Vec<_>>()[..] {
        [] if swaps => "they are of programs in no group that competes, or in one made in the last ten seconds".to_owned(),
        [] => "no group lost pages that it needs: these are read for the first time, or by programs in no group that competes".to_owned(),
        [one] => format!("only {one} lost pages that it needs, and a group cannot be protected from itself"),
        [..] => "no two groups of one limit thrash, and a group cannot be protected from itself".to_owned(),
    }
}

fn scope_seen(text: &mut String, scope: &ScopeStatus, refusal: Option<&str>) {
    let _ = write!(text, "        {} ({} MiB): {} groups fault", name(scope), scope.limit >> 20, scope.faulting.len());
    if let Some((cpu, io)) = scope.utilization.zip(scope.io_full) {
        let _ = write!(text, ", they keep a processor {:.0} % busy, I/O stalls {:.0} %", 100.0 * cpu, 100.0 * io);
    }
    let _ = match (&scope.protected, scope.protected_s) {
        (Some(group), Some(seconds)) => {
            let by = scope.mechanism.unwrap_or("freeze");
            writeln!(text, ": would protect {group} by {by} (for {seconds:.0} s so far)")
        }
        _ => match refusal {
            Some(refusal) => writeln!(text, ": not protected ({refusal})"),
            None => writeln!(text, ": no protection yet"),
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_guard::{Counts, GroupStatus, Rates, Version};

    fn status(major: f64, from_swap: f64, faulting: &[&str]) -> Status {
        let busiest = faulting.iter().map(|group| GroupStatus {
            group: (*group).to_owned(),
            faults_per_s: 900.0,
            resident: 0,
            swapped: 0,
        });
        let scope = ScopeStatus {
            scope: "box".into(),
            limit: 256 << 20,
            groups: 2,
            state: State::Normal,
            faulting: Vec::new(),
            utilization: Some(0.1),
            io_full: Some(0.0),
            busiest: busiest.collect(),
            protected: None,
            mechanism: None,
            protected_s: None,
            fading: None,
            frozen: false,
        };
        Status {
            profile: "default",
            controller: Version::V2,
            dry_run: true,
            rates: Rates { major: Some(major), from_swap: Some(from_swap) },
            refusal: None,
            scopes: vec![scope],
            counts: Counts::default(),
        }
    }

    #[test]
    fn savings_11_many_faults_at_rest_are_explained() {
        let told = |major, from_swap, faulting: &[&str]| rest(&status(major, from_swap, faulting), 10.0);
        assert_eq!(told(9.0, 0.0, &[]), "nothing thrashes");
        assert!(
            told(9170.0, 0.0, &[]).starts_with("no group lost pages that it needs: these are read for the first time")
        );
        assert!(told(9170.0, 9000.0, &[]).starts_with("they are of programs in no group that competes"));
        assert!(told(9170.0, 9000.0, &["box/gz"]).starts_with("only box/gz lost pages that it needs"));
        let unmeasured = Status {
            scopes: status(0.0, 0.0, &[])
                .scopes
                .into_iter()
                .map(|scope| ScopeStatus { utilization: None, ..scope })
                .collect(),
            ..status(9170.0, 0.0, &[])
        };
        assert_eq!(rest(&unmeasured, 10.0), "not measured yet");
        assert!(
            rest(&Status { scopes: Vec::new(), ..unmeasured }, 10.0).starts_with("no two groups compete for memory")
        );
    }
}
