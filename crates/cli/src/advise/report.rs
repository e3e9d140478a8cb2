//! What is said of profiles and advised runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use nigh_advise::profile::{Code, Name, Profile};

use super::Did;
use crate::results::grouped;
use crate::size::human_bytes;
use crate::table::Table;

/// Code that is shown.
const SHOWN: usize = 30;

/// One line on a new profile.
pub(super) fn summary(profile: &Profile, path: &Path) -> String {
    let count = |class| profile.codes.iter().filter(|code| code.class == class).count();
    let classes = [Name::Seq, Name::Loop, Name::Short, Name::Rand].map(|class| (count(class), word(class)));
    let classes: Vec<String> =
        classes.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let path = path.display();
    let next = if profile.read_bytes == Some(0) {
        format!(
            "devices read nothing for it, because all was cached, so the next runs get no advice. Delete {path} to record one that \
             begins without that"
        )
    } else {
        "the next run gets advice".to_owned()
    };
    match &classes[..] {
        [] => format!("{path}: no code reads enough to be classified"),
        classes => format!("{path}: of the code that reads, {}; {next}", classes.join(", ")),
    }
}

/// Why no code of a profile gets advice.
pub(super) fn why_not(profile: &Profile, path: &Path) -> String {
    let codes = &profile.codes;
    if profile.is_left_alone() {
        "three runs gained nothing by it".to_owned()
    } else if codes.is_empty() {
        "the profile has no code that reads enough to be classified".to_owned()
    } else if codes.iter().any(|code| !code.advised) {
        "none of its code gains by it".to_owned()
    } else if codes.iter().all(|code| code.read_bytes.is_none()) {
        "it is not known what devices read for its code".to_owned()
    } else {
        format!(
            "when it was recorded, all that its code read was cached. Delete {} to record a run that begins without that",
            path.display()
        )
    }
}

fn word(class: Name) -> &'static str {
    match class {
        Name::Seq => "seq",
        Name::Loop => "loop",
        Name::Short => "short",
        Name::Rand => "rand",
    }
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".to_owned(), human_bytes)
}

fn place(code: &Code) -> String {
    if code.place.is_empty() { format!("{:016x}", code.code) } else { code.place.clone() }
}

/// The code that read most without advice comes first.
fn sorted(profile: &Profile) -> Vec<&Code> {
    let mut codes: Vec<&Code> = profile.codes.iter().collect();
    codes.sort_by_key(|code| std::cmp::Reverse(code.read_bytes));
    codes
}

fn rest(text: &mut String, codes: &[&Code]) {
    if codes.len() > SHOWN {
        let _ = writeln!(text, "and {} more", codes.len() - SHOWN);
    }
}

/// What a profile knows.
pub(super) fn known(profile: &Profile) -> String {
    let mut text = format!("{}: devices read {} without advice\n", profile.program, bytes(profile.read_bytes));
    let alone = if profile.is_left_alone() { ": it runs without advice" } else { "" };
    let _ = writeln!(text, "runs in a row that gained nothing: {}{alone}", profile.runs_without_gain);
    let mut table = Table::new(&["class", "advice", "devices read", "code"]);
    let codes = sorted(profile);
    for code in codes.iter().take(SHOWN) {
        let advice = match (code.advised, code.gets_advice()) {
            (false, _) => "no: it gained nothing",
            (_, false) => "no: devices read nothing for it",
            _ => "yes",
        };
        table.row([word(code.class).to_owned(), advice.to_owned(), bytes(code.read_bytes), place(code)]);
    }
    let _ = write!(text, "{table}");
    rest(&mut text, &codes);
    text
}

/// What advice did in a run.
pub(super) fn run(profile: &Profile, tallies: &BTreeMap<u64, Did>) -> String {
    let mut text = String::new();
    let head =
        ["class", "calls", "read", "from devices", "without advice", "dropped", "fetched", "from now on", "code"];
    let mut table = Table::new(&head);
    let codes: Vec<&Code> = sorted(profile).into_iter().filter(|code| tallies.contains_key(&code.code)).collect();
    for code in codes.iter().take(SHOWN) {
        let did = tallies.get(&code.code).copied().unwrap_or_default();
        table.row([
            word(code.class).to_owned(),
            grouped(did.calls),
            human_bytes(did.bytes),
            human_bytes(did.device_bytes),
            bytes(code.without_advice(did.bytes)),
            human_bytes(did.dropped),
            human_bytes(did.fetched),
            if code.gets_advice() { "advice" } else { "no advice" }.to_owned(),
            place(code),
        ]);
    }
    let _ = write!(text, "{table}");
    rest(&mut text, &codes);
    text
}
