//! A verdict in words: a headline, a sentence on each question, and the next command.

use std::path::Path;

use nigh_sim::plan::{Advice, Cell, Certainty, Measured};
use nigh_trace::Taken;

use super::ahead::{Ahead, Combination};
use super::level::Levels;
use super::price::amount;
use super::told::{Fact, NO_BREAK, Told, unbroken};
use super::verdict::Verdict;
use crate::args::PlanArgs;
use crate::leaders::{self, Leader};
use crate::results::grouped;
use crate::size::{human_bytes, human_time};
use crate::timed::{Timing, wait};

/// A hit ratio below this is nothing to save memory for.
const HITS_LEAST: f64 = 0.01;

/// `of_machine` is whether the present memory is that of this machine, because none was given; `best_by_size`, of the sizes in the table.
pub(super) fn tell(
    verdict: &Verdict,
    args: &PlanArgs,
    taken: Option<Taken>,
    is_profiled: bool,
    of_machine: bool,
    best_by_size: &[Leader],
) -> Told {
    let mut facts = vec![Fact { about: "target", sentence: target(verdict, args.target.is_none()) }];
    if verdict.advice != Advice::Record {
        facts.push(Fact { about: "addition", sentence: addition(verdict) });
        facts.push(Fact { about: "policy", sentence: policy(verdict) });
    }
    if best_by_size.len() > 1 {
        facts.extend(leaders::fact(best_by_size).map(|sentence| Fact { about: "by size", sentence }));
    }
    facts.extend(readahead(verdict, args.have.is_none()).map(|sentence| Fact { about: "read-ahead", sentence }));
    facts.extend(time(verdict, args.device.as_deref()).map(|sentence| Fact { about: "time", sentence }));
    facts.extend(verdict.levels.as_ref().map(|levels| Fact { about: "level", sentence: levels.sentence() }));
    facts.push(Fact { about: "certainty", sentence: certainty(verdict) });
    let assumed: Vec<String> = [
        (
            args.have.is_none(),
            format!(
                "--have is {} ({})",
                size(verdict, verdict.answers.question.have),
                if of_machine {
                    "what the page cache of this machine, or of this cgroup, can take now"
                } else {
                    "10 % of the trace's blocks"
                }
            ),
        ),
        (args.add.is_none(), format!("--add is {} (a quarter of --have)", size(verdict, verdict.answers.question.add))),
    ]
    .into_iter()
    .filter_map(|(is_assumed, text)| is_assumed.then_some(text))
    .collect();
    if !assumed.is_empty() {
        facts.push(Fact { about: "assumed", sentence: format!("{}.", assumed.join("; ")) });
    }
    Told {
        headline: headline(verdict, args.have.is_none(), taken),
        facts,
        next: next(verdict, args, taken, is_profiled),
    }
}

fn size(verdict: &Verdict, blocks: u64) -> String {
    unbroken(&human_bytes(verdict.bytes(blocks)))
}

/// A ratio as `nigh sim` prints it.
fn percent(ratio: f64) -> String {
    format!("{:.2}{NO_BREAK}%", 100.0 * ratio)
}

/// A difference of ratios.
fn points(difference: f64) -> String {
    format!("{:+.1}{NO_BREAK}points", 100.0 * difference)
}

/// The name of the best other policy.
fn best(verdict: &Verdict) -> String {
    verdict.answers.best.as_ref().map_or_else(String::new, ToString::to_string)
}

/// The advice, as an order only if it is certain and can be followed.
fn headline(verdict: &Verdict, is_assumed: bool, taken: Option<Taken>) -> String {
    let order = order(verdict, is_assumed, taken);
    let mut letters = order.chars();
    match letters.next() {
        Some(first) if verdict.certainty == Certainty::Low && verdict.advice != Advice::Record => {
            format!("Not certain enough to act on: {}{}", first.to_lowercase(), letters.as_str())
        }
        _ => order,
    }
}

fn order(verdict: &Verdict, is_assumed: bool, taken: Option<Taken>) -> String {
    let answers = verdict.answers;
    let evidence = &answers.evidence;
    let (present, best) = (&answers.present, best(verdict));
    let [have, add, grown] =
        [answers.question.have, answers.question.add, answers.question.grown()].map(|blocks| size(verdict, blocks));
    let hits = |measured: Option<&Measured>| percent(measured.map_or(0.0, |it| it.cell.hit_ratio));
    let before = hits(Some(&evidence.present));
    match verdict.advice {
        Advice::Record if taken == Some(Taken::Above) => format!(
            "All that was read, {}, fits in a page cache of {have}: neither more memory nor another policy would spare reads.",
            size(verdict, evidence.distinct)
        ),
        Advice::Record => format!(
            "This trace cannot judge a cache of {have}: all blocks that it refers to take {}. Record a longer one.",
            size(verdict, evidence.distinct)
        ),
        Advice::Change if taken == Some(Taken::Above) => format!(
            "With {have}, {best} would hit {} of the references, and {present} {before}. The kernel's policy cannot be changed, but programs can give it hints.",
            hits(evidence.changed.as_ref())
        ),
        Advice::Change if is_assumed => format!(
            "With {have} (assumed), {best} hits {} of the references, {present} hits {before}, and {} with {add} more.",
            hits(evidence.changed.as_ref()),
            hits(Some(&evidence.grown))
        ),
        Advice::Change => format!(
            "Change the policy to {best}: with the {have} that you have it hits {} of the references, {present} hits {before}, and {} with {add} more.",
            hits(evidence.changed.as_ref()),
            hits(Some(&evidence.grown))
        ),
        Advice::Grow if is_assumed => format!(
            "With {grown} instead of {have} (both assumed), {present} hits {} of the references instead of {before}.",
            hits(Some(&evidence.grown))
        ),
        Advice::Both if taken == Some(Taken::Above) => format!(
            "With {grown} instead of {have}, {present} hits {} of the references instead of {before}, and {best} would hit {}. The kernel's policy cannot be changed, but programs can give it hints.",
            hits(Some(&evidence.grown)),
            hits(evidence.both.as_ref())
        ),
        Advice::Both if is_assumed => format!(
            "With {grown} instead of {have} (both assumed) and {best} instead of {present}, {} of the references hit instead of {before}.",
            hits(evidence.both.as_ref())
        ),
        Advice::Grow => {
            format!(
                "Add the {add}: with {grown} {present} hits {} of the references instead of {before}.",
                hits(Some(&evidence.grown))
            )
        }
        Advice::Both => format!(
            "Add the {add} and change the policy to {best}: {} of the references hit instead of {before}.",
            hits(evidence.both.as_ref())
        ),
        Advice::Keep if is_assumed => format!(
            "With {have} (assumed), neither {add} more nor another policy gains a point over the {before} that {present} hits."
        ),
        Advice::Keep => format!(
            "Keep what you have: neither {add} more nor another policy gains a point over the {before} that {present} hits with {have}."
        ),
    }
}

fn target(verdict: &Verdict, is_assumed: bool) -> String {
    let answers = verdict.answers;
    let goal = percent(answers.target);
    let most = percent(answers.most);
    let all = size(verdict, answers.evidence.distinct);
    let [present, best] = answers.reached;
    if present.is_none() && best.is_none() {
        return format!(
            "No size reaches {goal}: at most {most} hit, with all {all} of the trace in memory. The other references are the first to \
             their block."
        );
    }
    let describe = |name: &str, cell: Option<Cell>| {
        let Some(cell) = cell else { return format!("no size with {name}") };
        let cost = verdict.price.as_ref().map_or_else(String::new, |price| {
            format!(" ({} at {})", amount(price.of(verdict.bytes(cell.blocks))), price.text)
        });
        format!("{} with {name}{cost}", size(verdict, cell.blocks))
    };
    let mut named = vec![describe(&answers.present.to_string(), present)];
    named.extend(answers.best.as_ref().map(|spec| describe(&spec.to_string(), best)));
    let source =
        if is_assumed { format!(", 90{NO_BREAK}% of the {most} that any size can reach,") } else { String::new() };
    format!("{goal}{source} needs {}.", named.join(", "))
}

fn addition(verdict: &Verdict) -> String {
    let answers = verdict.answers;
    let evidence = &answers.evidence;
    let gain = evidence.addition().ratio;
    let [before, after] = [&evidence.present, &evidence.grown].map(|measured| measured.cell.hit_ratio);
    let fewer = if before < 1.0 { gain / (1.0 - before) } else { 0.0 };
    let cost = verdict.price.as_ref().map_or_else(String::new, |price| {
        let cost = price.of(verdict.bytes(answers.question.add));
        let each = if gain > 0.0 { format!(", {} a point", amount(cost / (100.0 * gain))) } else { String::new() };
        format!(" It costs {} at {}{each}.", amount(cost), price.text)
    });
    format!(
        "{} more: {} hits {} instead of {} ({}, {:.1}{NO_BREAK}% fewer misses).{cost}",
        size(verdict, answers.question.add),
        answers.present,
        percent(after),
        percent(before),
        points(gain),
        100.0 * fewer
    )
}

fn policy(verdict: &Verdict) -> String {
    let answers = verdict.answers;
    let evidence = &answers.evidence;
    let have = size(verdict, answers.question.have);
    let present = &answers.present;
    let bound = answers.bound.map_or_else(String::new, |bound| {
        format!(" No policy can hit more than {} with {have} (OPT, which knows the future).", percent(bound))
    });
    let (Some(changed), Some(gain)) = (evidence.changed, evidence.change()) else {
        return format!("No other policy was compared with {present}.{bound}");
    };
    let best = best(verdict);
    let reached = percent(changed.cell.hit_ratio);
    if gain.ratio <= 0.0 {
        return format!(
            "No policy compared hits more than {present} with {have}; {best} comes next with {reached}.{bound}"
        );
    }
    // If the present policy hits nearly nothing, nearly no memory is enough for that.
    let is_saving = |cell: &Cell| cell.blocks < answers.question.have && evidence.present.cell.hit_ratio >= HITS_LEAST;
    let saving = answers.equal.filter(is_saving).map_or_else(String::new, |cell| {
        let saved = answers.question.have - cell.blocks;
        let worth = verdict.price.as_ref().map_or_else(String::new, |price| {
            format!(", worth {} at {}", amount(price.of(verdict.bytes(saved))), price.text)
        });
        format!(
            " {} is enough for what {present} hits with {have}: {:.0}{NO_BREAK}% of the memory saved{worth}.",
            size(verdict, cell.blocks),
            100.0 * saved as f64 / answers.question.have as f64
        )
    });
    let at_target = match answers.reached {
        [Some(of_present), Some(of_best)] if of_present.blocks < of_best.blocks => {
            format!(" For the target, {present} needs less than {best}.")
        }
        [Some(_), None] => format!(" {best} does not reach the target."),
        _ => String::new(),
    };
    format!("{best} hits {reached} with {have} ({}).{saving}{at_target}{bound}", points(gain.ratio))
}

fn readahead(verdict: &Verdict, is_assumed: bool) -> Option<String> {
    let ahead = verdict.ahead.as_ref()?;
    let chosen = ahead.to_serve()?;
    let compared: Vec<String> = verdict
        .answers
        .policies()
        .filter_map(|policy| {
            let policy = policy.to_string();
            let mut of_policy = ahead.combinations.iter().filter(|combination| combination.policy == policy);
            let (with, without) = (of_policy.next()?, of_policy.next()?);
            if (with.hit_ratio, with.read_ratio) == (without.hit_ratio, without.read_ratio) {
                return Some(format!("{policy} is the same as without"));
            }
            Some(format!(
                "{policy} hits {} instead of {}, and reads {:.1} blocks for 100 references instead of {:.1}",
                percent(with.hit_ratio),
                percent(without.hit_ratio),
                100.0 * with.read_ratio,
                100.0 * without.read_ratio
            ))
        })
        .collect();
    let with = if chosen.readahead == ahead.readahead { "and read-ahead" } else { "without read-ahead" };
    let last = if is_assumed {
        format!("The best of these is {} {with}", chosen.policy)
    } else {
        format!("Serve with {} {with}", chosen.policy)
    };
    Some(format!(
        "With {} and --readahead {}, {}. {last}.",
        size(verdict, ahead.blocks),
        ahead.readahead,
        compared.join("; ")
    ))
}

fn time(verdict: &Verdict, device: Option<&str>) -> Option<String> {
    let answers = verdict.answers;
    let (have, grown) = (answers.question.have, answers.question.grown());
    let present = answers.present.to_string();
    let now = verdict.timing(&present, have)?;
    let against = |timing: &Timing| {
        let change = 100.0 * (timing.waited_s / now.waited_s.max(f64::MIN_POSITIVE) - 1.0);
        format!("{} ({change:+.1}{NO_BREAK}%, p99 {})", waited(timing), latency(timing))
    };
    let mut waits = vec![format!("{} (p99 {}) with {present} and {}", waited(now), latency(now), size(verdict, have))];
    if let Some(timing) = verdict.timing(&present, grown) {
        waits.push(format!("{} with {}", against(timing), size(verdict, grown)));
    }
    let best = best(verdict);
    let both = [have, grown].map(|blocks| verdict.timing(&best, blocks));
    if let [Some(with_have), Some(with_grown)] = both {
        waits.push(format!("with {best} {} and {}", against(with_have), against(with_grown)));
    }
    let (device, waits) = (device.unwrap_or("the device"), waits.join(", "));
    let overload = match verdict.timed.iter().flatten().filter(|timing| timing.overloaded).count() {
        0 => String::new(),
        count => format!(
            " In {count} of these cases, requests come faster than they can be replied to: such latencies grow with the length of the \
             trace."
        ),
    };
    Some(if now.is_closed {
        format!(
            "On {device}, the program waits {waits} for its requests. At present, the whole trace takes {:.3}{NO_BREAK}s.",
            now.execution_s
        )
    } else {
        format!("On {device}, with requests at their recorded times, one takes a mean of {waits}.{overload}")
    })
}

/// How long requests take with one policy and size.
fn waited(timing: &Timing) -> String {
    unbroken(&wait(timing.is_closed, timing.waited_s, timing.latency_mean_us))
}

/// The latency that 99 % of the requests do not exceed.
fn latency(timing: &Timing) -> String {
    unbroken(&human_time(timing.latency_p99_us))
}

fn certainty(verdict: &Verdict) -> String {
    let answers = verdict.answers;
    let gain = &verdict.gain;
    let word = match verdict.certainty {
        Certainty::High => "High",
        Certainty::Medium => "Medium",
        Certainty::Low => "Low",
    };
    let [first, last] = gain.halves.map(|half| format!("{:+.1}", 100.0 * half));
    let sample = match gain.error {
        error if error > 0.0 => format!(", and up to {:.1} because blocks were sampled", 100.0 * error),
        _ => String::new(),
    };
    let filled = match verdict.filled {
        Some(share) => format!("The cache is full after {:.0}{NO_BREAK}% of the trace", 100.0 * share),
        None => "The trace does not fill the cache".to_owned(),
    };
    let missing = match (verdict.gaps.lost, verdict.gaps.unseen.len()) {
        (Some(0), 0) => String::new(),
        (Some(0), _) => " Some programs or calls were not recorded.".to_owned(),
        (Some(lost), _) => format!(" The recorder lost {} requests.", grouped(lost)),
        (None, _) => " The recorder lost requests.".to_owned(),
    };
    format!(
        "{word}: the gain is {} ± {:.1} ({first} in the first half of the trace, {last} in the second{sample}). {filled}; \
         {:.1}{NO_BREAK}% of its references are the first to their block, which no cache hits.{missing}",
        points(gain.ratio),
        100.0 * gain.uncertainty(),
        100.0 * answers.first
    )
}

fn next(verdict: &Verdict, args: &PlanArgs, taken: Option<Taken>, is_profiled: bool) -> String {
    let answers = verdict.answers;
    let (have, grown) = (answers.question.have, answers.question.grown());
    let trace = quoted(args.trace());
    let flag = |blocks| size_flag(blocks, verdict.trace.block_bytes);
    let serve = |blocks: u64, policy: &str| {
        // A server's memory is in whole KiB.
        let memory = verdict.bytes(blocks).div_ceil(1024) * 1024;
        let chosen = verdict.ahead.as_ref().and_then(Ahead::to_serve);
        let policy = chosen.map_or(policy, |chosen| &chosen.policy);
        let is_default = |chosen: &&Combination| chosen.readahead == nigh_prefetch::Spec::SERVED.to_string();
        let readahead = chosen
            .filter(|chosen| !is_default(chosen))
            .map_or_else(String::new, |chosen| format!(" --readahead {}", chosen.readahead));
        let level = verdict.levels.as_ref().filter(|_| blocks == have).and_then(Levels::to_serve);
        let level = level.map_or_else(String::new, |bytes| format!(" --level file:LEVEL:{}", bytes_flag(bytes)));
        format!(
            "nigh serve --memory {} --policy {policy}{readahead}{level} disk=PATH --listen unix:/run/nigh.sock",
            bytes_flag(memory)
        )
    };
    let best = best(verdict);
    match verdict.advice {
        Advice::Record => format!("nigh plan {trace} --have 10% --add 5%"),
        _ if verdict.certainty == Certainty::Low && args.sample.is_some() => {
            format!(
                "nigh plan {trace} --have {} --add {}    # without --sample",
                flag(have),
                flag(answers.question.add)
            )
        }
        _ if verdict.certainty == Certainty::Low => {
            let policies =
                if best.is_empty() { answers.present.to_string() } else { format!("{},{best}", answers.present) };
            format!("nigh sim {trace} --policy {policies} --size {},{} --html report.html", flag(have), flag(grown))
        }
        // A program can give the kernel's page cache hints, but cannot change its policy.
        Advice::Change | Advice::Both if is_profiled => {
            let profile = quoted(&args.trace().with_extension("aoio"));
            format!("nigh patterns {trace} --profile {profile}    # then: nigh advise --profile {profile} -- PROGRAM")
        }
        Advice::Change | Advice::Grow | Advice::Both if taken == Some(Taken::Above) => {
            format!("nigh sim {trace} --policy linux,opt --size {},{} --html report.html", flag(have), flag(grown))
        }
        Advice::Grow if taken == Some(Taken::Database) && args.have.is_some() => {
            let mebibytes = verdict.bytes(grown).div_ceil(1 << 20);
            format!("psql -c \"ALTER SYSTEM SET shared_buffers = '{mebibytes}MB'\"    # then restart the server")
        }
        Advice::Keep if taken == Some(Taken::Database) => {
            format!("nigh sim {trace} --policy gclock,opt --size {},{} --html report.html", flag(have), flag(grown))
        }
        // The memory of the cache was assumed.
        Advice::Change | Advice::Grow | Advice::Both if args.have.is_none() => {
            let example = bytes_flag(nearest_power(verdict.bytes(have)));
            format!("nigh plan {trace} --have {example}    # with the memory that the cache has: this is an example")
        }
        Advice::Change => serve(have, &best),
        Advice::Grow => serve(grown, &answers.present.to_string()),
        Advice::Both => serve(grown, &best),
        Advice::Keep => {
            let device = args.device.as_deref().unwrap_or("hdd-7200");
            let level = bytes_flag(verdict.bytes(answers.evidence.distinct).next_power_of_two());
            let present = &answers.present;
            format!(
                "nigh sim {trace} --device {device} --level ssd-nvme:{level} --policy {present} --size {}",
                flag(have)
            )
        }
    }
}

/// A size as it is written on a command line, exactly.
fn size_flag(blocks: u64, block_bytes: u32) -> String {
    match blocks.saturating_mul(u64::from(block_bytes)) {
        bytes if bytes.is_multiple_of(1 << 20) => bytes_flag(bytes),
        _ => format!("{blocks}b"),
    }
}

/// The power of two whose ratio to `bytes` is closest to one, at least 1 KiB.
fn nearest_power(bytes: u64) -> u64 {
    let bytes = bytes.max(1024);
    let above = bytes.next_power_of_two();
    if (bytes as f64) < above as f64 * std::f64::consts::FRAC_1_SQRT_2 { above / 2 } else { above }
}

fn bytes_flag(bytes: u64) -> String {
    for (unit, shift) in [("G", 30), ("M", 20), ("K", 10)] {
        if bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// A path as a shell reads it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:=@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_exact() {
        assert_eq!((size_flag(16384, 4096), size_flag(77, 4096)), ("64M".to_owned(), "77b".to_owned()));
        assert_eq!((bytes_flag(80 << 30), bytes_flag(513)), ("80G".to_owned(), "513B".to_owned()));
        let rounded = [1012 << 10, 37 << 20, 105 << 20, 1, 1 << 20].map(|bytes| bytes_flag(nearest_power(bytes)));
        assert_eq!(rounded, ["1M", "32M", "128M", "1K", "1M"]);
        assert_eq!((quoted(Path::new("a b")), quoted(Path::new("t.csv"))), ("'a b'".to_owned(), "t.csv".to_owned()));
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
