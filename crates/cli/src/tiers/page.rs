//! The page of schemes for several cache levels.

use nigh_report::{Levels, LevelsFigures, LevelsIntervals, LevelsScheme, Report, Verdict};
use nigh_sim::References;

use super::results::{Figures, Found, Row};
use crate::page::of_trace;
use crate::size::human_bytes;

pub(super) fn page(found: &Found, references: &References) -> Report {
    Report {
        verdict: verdict(found),
        levels: Some(Levels {
            size_bytes: found.levels.iter().map(|level| level.size_bytes).collect(),
            schemes: found.results.iter().map(scheme).collect(),
        }),
        ..of_trace(&found.trace, references)
    }
}

fn scheme(row: &Row) -> LevelsScheme {
    let Row { scheme, duplicated_bytes, intervals, cpu_s, .. } = row;
    LevelsScheme {
        scheme: scheme.clone(),
        figures: figures(&row.figures),
        duplicated_bytes: *duplicated_bytes,
        clients: row.clients.iter().map(|client| (client.name.clone(), figures(&client.figures))).collect(),
        intervals: LevelsIntervals {
            start: intervals.end.last().map_or(0, |end| end - row.figures.references),
            end: intervals.end.clone(),
            hits: intervals.hits.clone(),
            misses: intervals.misses.clone(),
            demotions: intervals.demotions.clone(),
            duplicated_bytes: intervals.duplicated_bytes.clone(),
        },
        cpu_s: *cpu_s,
    }
}

fn figures(figures: &Figures) -> LevelsFigures {
    LevelsFigures {
        references: figures.references,
        hits: figures.hits.clone(),
        misses: figures.misses,
        demotions: figures.demotions.clone(),
        demoted_bytes: figures.demoted_bytes,
        fetched_bytes: figures.fetched_bytes,
        mean_ms: figures.mean_ms,
    }
}

/// The scheme with the shortest mean time, or else the fewest misses, beside independent levels of LRU, or else the first scheme.
fn verdict(found: &Found) -> Option<Verdict> {
    let rows = &found.results;
    let share = |row: &Row, count: u64| 100.0 * count as f64 / row.figures.references.max(1) as f64;
    let cost = |row: &Row| row.figures.mean_ms.unwrap_or(row.figures.misses as f64);
    let present = rows.iter().find(|row| row.scheme == "ind:lru").or(rows.first())?;
    let best = rows.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
    let best = if cost(best) < cost(present) { best } else { present };
    let missed = |row: &Row| format!("{:.2} % of the references", share(row, row.figures.misses));
    let amount = |row: &Row| row.figures.mean_ms.map_or_else(|| missed(row), |ms| format!("{ms:.3} ms"));
    let what = if present.figures.mean_ms.is_some() { "The mean access time is" } else { "The levels miss" };
    let both = |text: &dyn Fn(&Row) -> String| {
        format!("{} with {}, {} with {}.", text(best), best.scheme, text(present), present.scheme)
    };
    if std::ptr::eq(best, present) {
        let and = if rows.len() > 1 { ", and with no other scheme less" } else { "" };
        let headline = format!("{what} {} with {}{and}.", amount(present), present.scheme);
        return Some(Verdict { headline, facts: Vec::new(), next: String::new() });
    }
    let less = 100.0 * (1.0 - cost(best) / cost(present));
    let headline = format!(
        "{what} {} with {}, and {} with {}: {less:.1} % less.",
        amount(best),
        best.scheme,
        amount(present),
        present.scheme
    );
    let mut facts = Vec::new();
    if present.figures.mean_ms.is_some() {
        facts.push(("misses".to_owned(), both(&missed)));
    }
    if found.levels.len() > 1 {
        facts.push(("demoted".to_owned(), both(&|row| human_bytes(row.figures.demoted_bytes))));
        facts.push(("duplicated".to_owned(), both(&|row| human_bytes(row.duplicated_bytes))));
    }
    Some(Verdict { headline, facts, next: String::new() })
}
