//! Texts on profiles and advised runs.

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
    match &classes[..] {
        [] => format!("{}: no code reads enough to be classified", path.display()),
        classes => {
            format!("{}: of the code that reads, {}; {}", path.display(), classes.join(", "), outlook(profile, path))
        }
    }
}

/// Whether the next runs with this profile get advice, and if not, why.
pub(crate) fn outlook(profile: &Profile, path: &Path) -> String {
    if profile.gets_advice() {
        "the next run gets advice".to_owned()
    } else {
        format!("the next runs get no advice: {}", why_not(profile, path))
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

/// The contents of a profile.
pub(super) fn known(profile: &Profile) -> String {
    let mut text = format!("{}: devices read {} without advice\n", profile.program, bytes(profile.read_bytes));
    let alone = if profile.is_left_alone() { ": it runs without advice" } else { "" };
    let _ = writeln!(text, "runs in a row that gained nothing: {}{alone}", profile.runs_without_gain);
    let mut table = Table::new(&["class", "advice", "devices read", "code"]);
    let codes = sorted(profile);
    for code in codes.iter().take(SHOWN) {
        let advice = match code.read_bytes {
            _ if profile.advises(code) => "yes",
            _ if !code.advised => "no: it gained nothing",
            None => "no: it is not known what devices read",
            Some(0) => "no: devices read nothing for it",
            Some(_) => "no: three runs gained nothing",
        };
        table.row([word(code.class).to_owned(), advice.to_owned(), bytes(code.read_bytes), place(code)]);
    }
    let _ = write!(text, "{table}");
    rest(&mut text, &codes);
    text
}

/// Effects of advice in a run.
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
            if profile.advises(code) { "advice" } else { "no advice" }.to_owned(),
            place(code),
        ]);
    }
    let _ = write!(text, "{table}");
    rest(&mut text, &codes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile with one piece of code, for which devices read this much.
    fn profile(read_bytes: Option<u64>) -> Profile {
        let code = read_bytes.map_or(String::new(), |bytes| format!("asked_bytes = 5000\nread_bytes = {bytes}\n"));
        let head =
            "program = '/bin/cat'\nframes = 5\nread_bytes = 4096\n[[code]]\ncode = '0000000000000001'\nclass = 'seq'\n";
        Profile::parse(&format!("{head}{code}")).unwrap()
    }

    /// Advice depends on reads for the code. For the whole program, devices also read its own pages.
    #[test]
    fn advise_13_only_advice_that_comes_is_announced() {
        let path = Path::new("a.aoio");
        assert!(summary(&profile(Some(1)), path).contains("the next run gets advice"));
        for (read_bytes, why) in [(Some(0), "was cached. Delete a.aoio"), (None, "it is not known what devices read")] {
            let said = summary(&profile(read_bytes), path);
            assert!(said.contains("the next runs get no advice") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn advise_13_a_program_left_alone_has_no_code_with_advice() {
        let alone = Profile { runs_without_gain: 3, ..profile(Some(1)) };
        assert!(known(&alone).contains("no: three runs gained nothing"), "{}", known(&alone));
        let done = run(&alone, &[(1, Did { calls: 1, ..Did::default() })].into());
        assert!(done.contains("no advice"), "{done}");
        assert!(known(&profile(None)).contains("no: it is not known what devices read"));
        assert!(known(&profile(Some(1))).contains("yes"));
    }
}
