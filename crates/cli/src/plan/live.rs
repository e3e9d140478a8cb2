//! `nigh plan --control`: the effect of more or less memory on a running server, from its curves.

use std::fmt::Write;
use std::path::Path;

use anyhow::ensure;
use nigh_service::{CurvePoint, CurveStatistics, Statistics};
use nigh_sim::plan::{Certainty, GAIN_LEAST, Gain};
use serde::Serialize;

use super::price::{Price, amount};
use super::words::quoted;
use crate::args::{ControlArgs, PlanArgs};
use crate::controlled::connect;
use crate::output;
use crate::results::{grouped, json};
use crate::size::human_bytes;

/// The version of the JSON that [`Document`] becomes.
const SCHEMA: u32 = 1;

/// The result.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    answers: Vec<Answer>,
}

/// The answer for the whole cache or a tenant.
#[derive(Debug, Serialize)]
struct Answer {
    name: String,
    sentence: String,
    /// `grow`, `enough`, `uncertain` or `unknown`.
    verdict: &'static str,
    /// How much may be concluded: `high`, `medium` or `low`; nothing without a known gain.
    certainty: Option<&'static str>,
    /// Memory to add that gains; or, if nothing gains, the memory that is enough.
    bytes: Option<u64>,
    /// The price of the memory to add.
    cost: Option<f64>,
    curve: CurveStatistics,
}

/// Prints the answers of the server at `control`.
pub(super) fn run(args: &PlanArgs, control: &Path) -> anyhow::Result<()> {
    let price = args.cost.as_deref().map(|text| Price::parse("--cost", text)).transpose()?;
    let (mut client, shown) = connect(&ControlArgs { control: Some(control.to_owned()) })?;
    let status = client.status().map_err(|error| anyhow::Error::from(error).context(shown.clone()))?;
    let curves = curves(&status);
    ensure!(
        !curves.is_empty(),
        "{shown}: the server has no curves: either nothing was referenced yet, or it was started with --curves 0"
    );
    let answers: Vec<Answer> =
        curves.into_iter().map(|(name, curve)| Answer::new(name, curve.clone(), price.as_ref())).collect();
    if args.json {
        return output::print(&json(&Document { schema: SCHEMA, answers })?);
    }
    let mut text: String = answers.iter().map(|answer| answer.sentence.clone() + "\n").collect();
    let most = status.host.memory_max_bytes;
    if let [answer] = &answers[..]
        && status.tenants.is_empty()
        && let (Some("high"), "grow", Some(bytes)) = (answer.certainty, answer.verdict, answer.bytes)
    {
        let memory = status.host.memory_bytes + bytes;
        let _ = match memory <= most {
            true => writeln!(text, "next:\n  nigh ctl --control {} set memory {}K", quoted(control), memory >> 10),
            false => writeln!(text, "The server can have {} at most until it is started anew.", human_bytes(most)),
        };
    }
    output::print(text.as_bytes())
}

/// The curves of a server by name: that of the whole cache, or those of its tenants.
fn curves(status: &Statistics) -> Vec<(String, &CurveStatistics)> {
    let whole = match &status.exports[..] {
        [export] => export.disk.name.clone(),
        _ => "the cache".to_owned(),
    };
    status.curves().map(|(tenant, curve)| (tenant.unwrap_or(&whole).to_owned(), curve)).collect()
}

/// A hit ratio in whole percent.
fn percent(ratio: f64) -> String {
    format!("{:.0}", 100.0 * ratio)
}

/// The gain of a size against the present one.
fn gain(point: &CurvePoint) -> Option<Gain> {
    let ratio = point.gain?;
    // It was measured once, so nothing is known of its changes over time.
    Some(Gain { ratio, halves: [ratio; 2], error: point.gain_error? })
}

/// The most that it may be.
fn highest(gain: &Gain) -> f64 {
    gain.ratio + gain.error
}

fn points(gain: &Gain) -> String {
    format!("{:+.1} points ± {:.1}", 100.0 * gain.ratio, 100.0 * gain.error)
}

fn uncertain(name: &str, gain: &Gain, added: u64) -> String {
    let (measured, added) = (points(gain), human_bytes(added));
    format!("{name}: whether more memory gains is uncertain: {measured} are measured for +{added}.")
}

impl Answer {
    fn new(name: String, curve: CurveStatistics, price: Option<&Price>) -> Answer {
        let mut answer = Answer {
            name,
            sentence: String::new(),
            verdict: "unknown",
            certainty: None,
            bytes: None,
            cost: None,
            curve,
        };
        answer.sentence = answer.judge(price);
        answer
    }

    fn judge(&mut self, price: Option<&Price>) -> String {
        let name = self.name.clone();
        if let Some(reason) = &self.curve.none {
            return format!("{name}: nothing is known of other sizes: {reason}.");
        }
        let known = |point: &&CurvePoint| gain(point).is_some();
        let larger: Vec<CurvePoint> =
            self.curve.points.iter().filter(|point| point.times > 1.0).filter(known).cloned().collect();
        let (Some(present), Some(last)) = (self.curve.present().cloned(), larger.last()) else {
            let (references, sampled) = (grouped(self.curve.references), grouped(self.curve.sampled));
            return format!(
                "{name}: not yet known: {references} references so far, {sampled} of them sampled. A size is known when the simulation of \
                 it has been full for four times its blocks in references."
            );
        };
        let limit = if last.times < 4.0 {
            format!(" More than {} is not yet known.", human_bytes(last.bytes))
        } else {
            String::new()
        };
        let most = larger.iter().filter_map(gain).map(|gain| gain.ratio).fold(f64::MIN, f64::max);
        if most >= GAIN_LEAST {
            // The smallest addition that brings nearly all.
            let point = larger
                .iter()
                .find(|point| point.gain.is_some_and(|gain| gain > most - GAIN_LEAST && gain >= GAIN_LEAST));
            return self.grows(&present, point.unwrap_or(last), price) + &limit;
        }
        let gains = larger.iter().filter_map(|point| Some((point, gain(point)?)));
        let (point, gain) =
            gains.max_by(|(_, one), (_, other)| highest(one).total_cmp(&highest(other))).expect("one is known");
        if highest(&gain) >= GAIN_LEAST {
            (self.verdict, self.certainty) = ("uncertain", Some("low"));
            return uncertain(&name, &gain, point.bytes - present.bytes) + &limit;
        }
        // The smallest size that is as good as the largest one, with the errors of both.
        let (best, error) = (last.gain.unwrap_or(0.0), last.gain_error.unwrap_or(1.0));
        let enough = self.curve.points.iter().filter(|point| point.times < last.times).find(|point| {
            let both = point.gain.zip(point.gain_error);
            both.is_some_and(|(gain, of_gain)| best - gain + error + of_gain < GAIN_LEAST || point.times == 1.0)
        });
        let enough = enough.map_or(present.bytes, |point| point.bytes);
        (self.verdict, self.certainty, self.bytes) = ("enough", Some("high"), Some(enough));
        format!("{name} gains nothing above {}.{limit}", human_bytes(enough))
    }

    /// `point` gains against the present size.
    fn grows(&mut self, present: &CurvePoint, point: &CurvePoint, price: Option<&Price>) -> String {
        let gain = gain(point).expect("it is known");
        let (before, after) = (present.hit_ratio.unwrap_or(0.0), point.hit_ratio.unwrap_or(0.0));
        let added = point.bytes - present.bytes;
        let certainty = gain.certainty(Some(0.0));
        let word = match certainty {
            Certainty::High => "high",
            Certainty::Medium => "medium",
            Certainty::Low => "low",
        };
        (self.verdict, self.certainty, self.bytes) = ("grow", Some(word), Some(added));
        let (name, size) = (&self.name, human_bytes(added));
        let measured = points(&gain);
        let fewer = match (1.0 - before) / (1.0 - after).max(1e-9) {
            times if times >= 1000.0 => ", nearly no misses".to_owned(),
            times => format!(", {times:.1} times fewer misses"),
        };
        let mut text = match certainty {
            Certainty::High => {
                format!("{name}: +{size} brings {} to {} % hits{fewer} ({measured}).", percent(before), percent(after))
            }
            Certainty::Medium => format!(
                "{name}: +{size} probably brings about {} to {} % hits ({measured}).",
                percent(before),
                percent(after)
            ),
            Certainty::Low => {
                self.verdict = "uncertain";
                return uncertain(name, &gain, added);
            }
        };
        if let Some(price) = price {
            let cost = price.of(added);
            self.cost = Some(cost);
            let a_point = amount(cost / (100.0 * gain.ratio));
            let _ = write!(text, " It costs {} at {}, {a_point} a point.", amount(cost), price.text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve at 0.5, 0.75, 1, 1.5, 2 and 4 times 2 GiB; nothing is known of a size without a hit ratio.
    fn curve(hits: [Option<f64>; 6], error: f64) -> CurveStatistics {
        let present = hits[2];
        let point = |(times, hits): (f64, Option<f64>)| CurvePoint {
            times,
            bytes: (times * f64::from(1 << 30)) as u64 * 2,
            hits: 0,
            hit_ratio: hits,
            error: hits.map(|_| error),
            gain: hits.and_then(|hits| Some(hits - present?)),
            gain_error: hits.and(present).map(|_| error),
        };
        let points = [0.5, 0.75, 1.0, 1.5, 2.0, 4.0].into_iter().zip(hits).map(point).collect();
        CurveStatistics { policy: "lirs".into(), none: None, references: 123_456, sampled: 7_890, points }
    }

    fn answer(hits: [f64; 6], error: f64, price: Option<&str>) -> Answer {
        let price = price.map(|price| Price::parse("--cost", price).unwrap());
        Answer::new("db".into(), curve(hits.map(Some), error), price.as_ref())
    }

    #[test]
    fn a_gain_that_is_certain_has_a_price() {
        let answer = answer([0.5, 0.6, 0.71, 0.75, 0.785, 0.88], 0.01, Some("3/GiB"));
        let expected = "db: +6 GiB brings 71 to 88 % hits, 2.4 times fewer misses (+17.0 points ± 1.0). It costs 18.00 at 3/GiB, 1.06 a point.";
        assert_eq!(answer.sentence, expected);
        assert_eq!((answer.verdict, answer.certainty, answer.bytes), ("grow", Some("high"), Some(6 << 30)));
    }

    #[test]
    fn the_smallest_addition_that_brings_nearly_all_is_named() {
        let answer = answer([0.5, 0.6, 0.7, 0.9, 0.905, 0.909], 0.01, None);
        assert_eq!(answer.sentence, "db: +1 GiB brings 70 to 90 % hits, 3.0 times fewer misses (+20.0 points ± 1.0).");
    }

    #[test]
    fn certainty_is_in_the_words() {
        let hits = [0.5, 0.6, 0.7, 0.7, 0.7, 0.74];
        let medium = answer(hits, 0.025, None);
        assert_eq!(medium.sentence, "db: +6 GiB probably brings about 70 to 74 % hits (+4.0 points ± 2.5).");
        let low = answer(hits, 0.05, None);
        assert_eq!(
            low.sentence,
            "db: whether more memory gains is uncertain: +4.0 points ± 5.0 are measured for +6 GiB."
        );
        assert_eq!((low.verdict, low.certainty, low.cost), ("uncertain", Some("low"), None));
        let flat = answer([0.7; 6], 0.02, None);
        assert_eq!(
            flat.sentence,
            "db: whether more memory gains is uncertain: +0.0 points ± 2.0 are measured for +6 GiB."
        );
    }

    #[test]
    fn memory_beyond_need_is_found() {
        let answer = answer([0.7, 0.8, 0.801, 0.802, 0.802, 0.802], 0.002, None);
        assert_eq!(answer.sentence, "db gains nothing above 1.5 GiB.");
        assert_eq!((answer.verdict, answer.bytes), ("enough", Some(3 << 29)));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let unknown = Answer::new("db".into(), curve([Some(0.5), Some(0.6), Some(0.7), None, None, None], 0.01), None);
        assert!(unknown.sentence.starts_with("db: not yet known: 123,456 references so far, 7,890 of them sampled."));
        assert_eq!((unknown.verdict, unknown.certainty), ("unknown", None));
        let partly =
            Answer::new("db".into(), curve([Some(0.5), Some(0.6), Some(0.7), Some(0.8), None, None], 0.01), None);
        let expected = "db: +1 GiB brings 70 to 80 % hits, 1.5 times fewer misses (+10.0 points ± 1.0). More than 3 GiB is not yet known.";
        assert_eq!(partly.sentence, expected);
        let refused = CurveStatistics { none: Some("hints put mru in charge".into()), ..curve([None; 6], 0.0) };
        let refused = Answer::new("db".into(), refused, None);
        assert_eq!(refused.sentence, "db: nothing is known of other sizes: hints put mru in charge.");
    }
}
