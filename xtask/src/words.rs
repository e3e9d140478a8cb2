//! Openings of comments: a comment states what an item is, by a noun or a verb. It does not begin with a clause that stands for one,
//! nor does any of its sentences.

use std::path::Path;

/// Words that open no comment and no sentence of one.
const OPENINGS: [&str; 5] = ["What", "Who", "Whoever", "Where", "So"];

/// Words that a comment does not contain: a reader stumbles over them.
const WORDS: [&str; 2] = ["whoever", "unless said otherwise"];

/// The errors in the comments of a source file, as lines to print.
pub(crate) fn wrong(path: &Path, text: &str) -> Vec<String> {
    let Some(marks) = marks(path).filter(|_| path != Path::new("xtask/src/words.rs")) else { return Vec::new() };
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(comment) = comment(line, marks) else { continue };
        let found = opening(comment).map(|word| format!("no comment begins with '{word}'"));
        let found = found.or_else(|| contained(comment).map(|word| format!("no comment has '{word}'")));
        lines.extend(found.map(|found| format!("{}:{}: {found}: {}", path.display(), at + 1, comment.trim())));
    }
    lines
}

/// The marks of comments in files with this name, the longest first; `None` if they are not checked.
fn marks(path: &Path) -> Option<&'static [&'static str]> {
    match path.extension()?.to_str()? {
        "rs" => Some(&["//!", "///", "//"]),
        "c" | "h" => Some(&["//", "/*", "*"]),
        "py" => Some(&["#:", "#", "\"\"\""]),
        _ => None,
    }
}

/// The text of a line that is a comment, or of the comment behind its code.
fn comment<'a>(line: &'a str, marks: &[&str]) -> Option<&'a str> {
    let line = line.trim_start();
    if let Some(text) = marks.iter().find_map(|mark| line.strip_prefix(mark)) {
        return Some(text);
    }
    // A mark within a string is followed by no blank, as in `https://`.
    let at = marks.iter().filter(|mark| mark.starts_with("//")).find_map(|mark| line.find(&format!(" {mark} ")));
    at.map(|at| &line[at + 3..])
}

/// The word of [`OPENINGS`] that begins `text`, behind a mark of a list, or a later sentence of it.
fn opening(text: &str) -> Option<&'static str> {
    let begins = |text: &str| {
        OPENINGS.into_iter().find(|word| {
            text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let text = text.trim_start();
    let item = text.trim_start_matches(|c: char| c.is_ascii_digit() || "-*. ".contains(c));
    let sentences = [". ", ": ", "? ", "! ", ") "].into_iter().flat_map(|end| text.split(end).skip(1));
    begins(item).or_else(|| sentences.map(|sentence| sentence.trim_start_matches('*')).find_map(begins))
}

fn contained(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    WORDS.into_iter().find(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        wrong(Path::new(name), text)
    }

    #[test]
    fn openings_are_rejected() {
        let text = "/// What a device does.\nlet a = 1; // So that it ends.\n    //! * **Where** it lies.\n// It ends. So nobody waits.";
        assert_eq!(found("a.rs", text).len(), 4, "{:?}", found("a.rs", text));
        assert_eq!(found("a.rs", text)[0], "a.rs:1: no comment begins with 'What': What a device does.");
        assert_eq!(
            found("a.rs", "/// Wakes whoever waits.")[0],
            "a.rs:1: no comment has 'whoever': Wakes whoever waits."
        );
        assert_eq!(found("a.py", "#: What it is.\n\"\"\"Who reads.\"\"\"\n").len(), 2);
        assert_eq!(found("a.h", " * So long\n/* Where */\n").len(), 2);
    }

    #[test]
    fn other_lines_are_accepted() {
        for fine in [
            "/// The device, and what it does. Whatever happens, it ends.",
            "let text = \"What is it?\";",
            "/// Sort: whole first. Sockets come later.",
            "let uri = \"http://What/So\";",
        ] {
            assert_eq!(found("a.rs", fine), [""; 0], "{fine}");
        }
        assert_eq!(found("a.md", "What a page may say"), [""; 0]);
    }
}
