//! The replays behind a verdict: a few sizes for all policies, then more for the two that it is about.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use nigh_policy::Spec;
use nigh_sim::plan::{Cell, Evidence, Measured, smallest};
use nigh_sim::{References, Row, Sizes, TraceSummary};

use super::{Question, TARGET_SHARE};
use crate::leaders;
use crate::results::{Found, Results};
use crate::sim::{self, Plan};

/// Results of the replays.
pub(super) struct Answers {
    pub(super) question: Question,
    /// The present policy.
    pub(super) present: Spec,
    /// The best other one, if there is any.
    pub(super) best: Option<Spec>,
    pub(super) evidence: Evidence,
    /// The hit ratio with every block of the trace in memory.
    pub(super) most: f64,
    /// The hit ratio that is to be reached.
    pub(super) target: f64,
    /// Sizes at which the present and the best other policy reach it, if any does.
    pub(super) reached: [Option<Cell>; 2],
    /// Size at which the best other policy hits as much as the present one does with the present memory.
    pub(super) equal: Option<Cell>,
    /// The hit ratio of OPT with the present memory.
    pub(super) bound: Option<f64>,
    /// After which share of the references caches of the present size and of that with the addition are full, if ever.
    pub(super) filled: [Option<f64>; 2],
    /// Share of the references that are the first to their block.
    pub(super) first: f64,
}

impl Answers {
    /// The policies that the answers are about: the present one, and the best other one if there is any.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Spec> {
        std::iter::once(&self.present).chain(&self.best)
    }
}

/// Replays, of which each is done once.
pub(super) struct Search<'a> {
    references: &'a References,
    summary: TraceSummary,
    threads: usize,
    rows: BTreeMap<(String, u64), Row>,
    notes: Vec<String>,
}

impl<'a> Search<'a> {
    pub(super) fn new(references: &'a References, summary: TraceSummary, threads: usize) -> Search<'a> {
        Search { references, summary, threads, rows: BTreeMap::new(), notes: Vec::new() }
    }

    pub(super) fn answers(&mut self, specs: &[Spec], question: Question) -> anyhow::Result<Answers> {
        let Question { have, target, .. } = question;
        let grown = question.grown();
        let present = specs.first().context("there is no policy")?.clone();
        let distinct = self.references.distinct_in_trace();
        self.replay(specs, &[have, grown])?;
        self.replay(std::slice::from_ref(&present), &[distinct])?;
        let ratio = |search: &Search, spec: &Spec, size| search.cell(spec, size).hit_ratio;
        let others = specs.iter().skip(1).filter(|spec| !spec.info().offline);
        let best = others
            .fold(None, |best: Option<&Spec>, spec| match best {
                Some(best) if ratio(self, best, have) >= ratio(self, spec, have) => Some(best),
                _ => Some(spec),
            })
            .cloned();
        let most = ratio(self, &present, distinct);
        let target = target.unwrap_or(TARGET_SHARE * most);

        let chosen: Vec<Spec> = std::iter::once(&present).chain(&best).cloned().collect();
        let length = self.references.ids.len();
        let half = length / 2;
        let last_share = (length - half) as f64 / length as f64;
        let last = self.execute(chosen.clone(), &[have, grown], half)?.results;
        let last: BTreeMap<_, _> = last.into_iter().map(|row| ((row.policy, row.size_blocks), row.hit_ratio)).collect();
        let measured = |search: &Search, spec: &Spec, size| {
            Measured::new(search.cell(spec, size), last[&(spec.to_string(), size)], last_share)
        };
        let evidence = Evidence {
            present: measured(self, &present, have),
            grown: measured(self, &present, grown),
            changed: best.as_ref().map(|best| measured(self, best, have)),
            both: best.as_ref().map(|best| measured(self, best, grown)),
            distinct,
        };
        let mut reached = [None; 2];
        for (spec, reached) in chosen.iter().zip(&mut reached) {
            *reached = self.smallest(spec, target, &[have, grown, distinct])?;
        }
        let equal = match &best {
            Some(best) => self.smallest(best, ratio(self, &present, have), &[have])?,
            None => None,
        };
        let bound = specs.iter().find(|spec| spec.info().offline).map(|spec| ratio(self, spec, have));
        Ok(Answers {
            question,
            present,
            best,
            evidence,
            most,
            target,
            reached,
            equal,
            bound,
            filled: [have, grown].map(|size| self.references.filled(size)),
            first: self.references.distinct() as f64 / self.references.ids.len() as f64,
        })
    }

    /// The rows that `answers` name, of the two policies that they are about and of OPT, as `nigh sim` gives them; and all that
    /// was replayed.
    pub(super) fn into_found(mut self, answers: &Answers) -> anyhow::Result<[Found; 2]> {
        let question = answers.question;
        let sizes: BTreeSet<u64> = [question.have, question.grown()]
            .into_iter()
            .chain(answers.reached.iter().chain([&answers.equal]).flatten().map(|cell| cell.blocks))
            .collect();
        let mut specs: Vec<Spec> = answers.policies().cloned().collect();
        if answers.bound.is_some() {
            specs.push("opt".parse()?);
        }
        let sizes: Vec<u64> = sizes.into_iter().collect();
        self.replay(&specs, &sizes)?;
        let mut results = Results::new(self.summary.clone(), 1);
        for spec in &specs {
            results.results.extend(sizes.iter().map(|&size| self.rows[&(spec.to_string(), size)].clone()));
        }
        results.best_by_size = leaders::leaders(&results.results);
        results.notes = self.notes;
        let rows: Vec<Row> = self.rows.into_values().collect();
        let all = Results { best_by_size: leaders::leaders(&rows), results: rows, ..results.clone() };
        Ok([results, all].map(|results| Found { results, internals: Vec::new() }))
    }

    /// The smallest size at which `spec` reaches `goal`, if it does so at one of `tried`, which are ascending.
    fn smallest(&mut self, spec: &Spec, goal: f64, tried: &[u64]) -> anyhow::Result<Option<Cell>> {
        let distinct = self.references.distinct_in_trace();
        // A size beyond all blocks is no better than all blocks.
        let tried: Vec<u64> = tried.iter().map(|&size| size.min(distinct)).collect();
        self.replay(std::slice::from_ref(spec), &tried)?;
        let Some(at) = tried.iter().position(|&size| self.cell(spec, size).hit_ratio >= goal) else { return Ok(None) };
        let low = at.checked_sub(1).map_or(0, |below| tried[below]);
        let size = smallest([low, tried[at]], |sizes| {
            self.replay(std::slice::from_ref(spec), sizes)?;
            Ok::<_, anyhow::Error>(sizes.iter().map(|&size| self.cell(spec, size).hit_ratio >= goal).collect())
        })?;
        Ok(Some(self.cell(spec, size)))
    }

    fn cell(&self, spec: &Spec, size: u64) -> Cell {
        let row = &self.rows[&(spec.to_string(), size)];
        Cell { blocks: size, hit_ratio: row.hit_ratio, error: row.error.unwrap_or(0.0) }
    }

    /// Replays what has not been replayed yet.
    fn replay(&mut self, specs: &[Spec], sizes: &[u64]) -> anyhow::Result<()> {
        for spec in specs {
            // All policies that miss the same sizes are replayed together, in threads.
            let missing = |spec: &Spec| -> Vec<u64> {
                let name = spec.to_string();
                sizes.iter().copied().filter(|&size| !self.rows.contains_key(&(name.clone(), size))).collect()
            };
            let wanted = missing(spec);
            if wanted.is_empty() {
                continue;
            }
            let together: Vec<Spec> = specs.iter().filter(|spec| missing(spec) == wanted).cloned().collect();
            let found = self.execute(together, &wanted, 0)?;
            for note in found.notes {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            self.rows.extend(found.results.into_iter().map(|row| ((row.policy.clone(), row.size_blocks), row)));
        }
        Ok(())
    }

    fn execute(&self, specs: Vec<Spec>, sizes: &[u64], warmup: usize) -> anyhow::Result<Results> {
        let sizes = sizes.iter().map(|size| format!("{size}b").parse::<Sizes>()).collect::<Result<_, _>>()?;
        let plan =
            Plan { specs, sizes, exact_lru: false, record_internals: false, shards: 1, warmup, threads: self.threads };
        Ok(sim::execute(&plan, self.references, self.summary.clone())?.results)
    }
}
