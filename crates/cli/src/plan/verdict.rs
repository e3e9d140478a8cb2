//! A verdict as data: what is printed in words, and as JSON (docs/json.md).

use nigh_policy::Spec;
use nigh_sim::plan::{Advice, Cell, Certainty, Gain};
use nigh_sim::{Row, TraceSummary};
use nigh_trace::Gaps;
use serde::Serialize;

use super::ahead::Ahead;
use super::level::Levels;
use super::price::Price;
use super::search::Answers;
use super::told::Told;
use crate::results::Results;
use crate::timed::Timing;

/// The version of the JSON that [`Document`] becomes.
const SCHEMA: u32 = 1;

/// Conclusions from the answers.
pub(super) struct Verdict<'a> {
    pub(super) answers: &'a Answers,
    pub(super) trace: TraceSummary,
    pub(super) advice: Advice,
    /// Gain of the advised change; that of the addition if none is advised.
    pub(super) gain: Gain,
    pub(super) certainty: Certainty,
    /// Gaps of the trace, as far as they are known.
    pub(super) gaps: Gaps,
    /// After which share of the references a cache as advised is full, if ever.
    pub(super) filled: Option<f64>,
    pub(super) timed: Option<Vec<Timing>>,
    pub(super) price: Option<Price>,
    /// The effect of read-ahead, if it was compared.
    pub(super) ahead: Option<Ahead>,
    /// Levels of several sizes, if they were asked about.
    pub(super) levels: Option<Levels>,
}

impl<'a> Verdict<'a> {
    pub(super) fn new(
        answers: &'a Answers,
        timed: Option<Vec<Timing>>,
        price: Option<Price>,
        trace: &TraceSummary,
        gaps: Gaps,
    ) -> Verdict<'a> {
        let evidence = &answers.evidence;
        let advice = evidence.advice();
        let [of_present, of_grown] = answers.filled;
        let (gain, filled) = match advice {
            Advice::Change => (evidence.change(), of_present),
            Advice::Both => (evidence.both.as_ref().map(|both| Gain::between(&evidence.present, both)), of_grown),
            Advice::Record | Advice::Grow | Advice::Keep => (None, of_grown),
        };
        let gain = gain.unwrap_or_else(|| evidence.addition());
        let certainty = gain.certainty(filled).with_gaps(gaps.share(trace.requests), !gaps.unseen.is_empty());
        Verdict {
            answers,
            trace: trace.clone(),
            advice,
            gain,
            certainty,
            gaps,
            filled,
            timed,
            price,
            ahead: None,
            levels: None,
        }
    }

    pub(super) fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.trace.block_bytes))
    }

    /// The size of the cache as advised.
    pub(super) fn advised_blocks(&self) -> u64 {
        let question = self.answers.question;
        match self.advice {
            Advice::Grow | Advice::Both => question.grown(),
            Advice::Record | Advice::Change | Advice::Keep => question.have,
        }
    }

    /// The policy as advised.
    pub(super) fn advised_policy(&self) -> &Spec {
        match self.advice {
            Advice::Change | Advice::Both => self.answers.best.as_ref().unwrap_or(&self.answers.present),
            Advice::Record | Advice::Grow | Advice::Keep => &self.answers.present,
        }
    }

    pub(super) fn timing(&self, policy: &str, blocks: u64) -> Option<&Timing> {
        self.timed.iter().flatten().find(|timing| timing.policy == policy && timing.size_blocks == blocks)
    }

    pub(super) fn document<'b>(&'b self, told: &'b Told, results: &'b Results) -> Document<'b> {
        let answers = self.answers;
        let size = |blocks| Size { blocks, bytes: self.bytes(blocks) };
        let reached = answers.policies().zip(answers.reached).map(|(policy, cell)| Reached {
            policy: policy.to_string(),
            size: cell.map(|cell| size(cell.blocks)),
            hit_ratio: cell.map(|cell| cell.hit_ratio),
            cost: self.price.as_ref().zip(cell).map(|(price, cell)| price.of(self.bytes(cell.blocks))),
        });
        Document {
            schema: SCHEMA,
            trace: &self.trace,
            verdict: told,
            advice: match self.advice {
                Advice::Record => "record",
                Advice::Change => "change",
                Advice::Grow => "grow",
                Advice::Both => "both",
                Advice::Keep => "keep",
            },
            present: answers.present.to_string(),
            best: answers.best.as_ref().map(ToString::to_string),
            have: size(answers.question.have),
            add: size(answers.question.add),
            target: Target { hit_ratio: answers.target, most: answers.most, reached: reached.collect() },
            addition: Change::new(answers.evidence.addition()),
            addition_cost: self.price.as_ref().map(|price| price.of(self.bytes(answers.question.add))),
            change: answers.evidence.change().map(Change::new),
            equal: answers.equal.map(|cell| Equal::new(cell, size(cell.blocks))),
            certainty: match self.certainty {
                Certainty::Low => "low",
                Certainty::Medium => "medium",
                Certainty::High => "high",
            },
            first_references: answers.first,
            filled: answers.filled,
            timed: self.timed.as_deref(),
            ahead: self.ahead.as_ref(),
            levels: self.levels.as_ref(),
            results: &results.results,
            notes: &results.notes,
        }
    }
}

/// The JSON of `nigh plan`.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: u32,
    trace: &'a TraceSummary,
    verdict: &'a Told,
    advice: &'static str,
    present: String,
    best: Option<String>,
    have: Size,
    add: Size,
    target: Target,
    addition: Change,
    addition_cost: Option<f64>,
    change: Option<Change>,
    equal: Option<Equal>,
    certainty: &'static str,
    first_references: f64,
    filled: [Option<f64>; 2],
    timed: Option<&'a [Timing]>,
    ahead: Option<&'a Ahead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<&'a Levels>,
    results: &'a [Row],
    notes: &'a [String],
}

#[derive(Serialize)]
struct Size {
    blocks: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Target {
    hit_ratio: f64,
    most: f64,
    reached: Vec<Reached>,
}

#[derive(Serialize)]
struct Reached {
    policy: String,
    size: Option<Size>,
    hit_ratio: Option<f64>,
    cost: Option<f64>,
}

#[derive(Serialize)]
struct Change {
    gain: f64,
    halves: [f64; 2],
    error: f64,
    uncertainty: f64,
}

impl Change {
    fn new(gain: Gain) -> Change {
        Change { gain: gain.ratio, halves: gain.halves, error: gain.error, uncertainty: gain.uncertainty() }
    }
}

#[derive(Serialize)]
struct Equal {
    size: Size,
    hit_ratio: f64,
}

impl Equal {
    fn new(cell: Cell, size: Size) -> Equal {
        Equal { size, hit_ratio: cell.hit_ratio }
    }
}
