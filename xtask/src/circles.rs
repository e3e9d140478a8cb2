//! Circles among the files of a crate: files that import each other, or whose methods of one type call each other, directly or by way of
//! others.
//!
//! * An import is a path that begins with `crate::` or `super::`, outside of tests. A name that the root of a crate passes on is
//!   the root's, which has no arrows. Nor has a file one to those in its own folder.
//! * A call is `self.name(`, outside of tests, of a method that another file adds to the same type: that needs no import.

use std::collections::{BTreeMap, BTreeSet};

/// The names that a file needs of each other file.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The circles among `files`, each file's text by its module path in its crate (`lru_sp::follow`, and nothing for the root),
/// as lines to print.
pub(crate) fn circles(files: &BTreeMap<String, String>) -> Vec<String> {
    let modules = files.iter().filter(|(module, _)| !module.is_empty());
    let imports = modules.map(|(module, text)| (module.as_str(), arrows(module, text, files))).collect();
    let mut lines = of(&imports, "imports");
    for methods in methods(files).values() {
        lines.extend(of(&calls(methods), "calls"));
    }
    lines
}

/// By type, and by module: the methods that it adds to the type, each with its name and text.
type Methods<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<(&'a str, &'a str)>>>;

fn methods(files: &BTreeMap<String, String>) -> Methods<'_> {
    let mut methods = Methods::new();
    for (module, text) in files {
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for part in text.split("\nimpl").skip(1) {
            let (head, body) = part.split_once("{\n").unwrap_or_default();
            // A trait's methods are called through the trait.
            if head.contains(" for ") || head.contains('\n') {
                continue;
            }
            let head = head.trim();
            let name = head.rsplit_once("> ").map_or(head, |(_, name)| name).split('<').next().unwrap_or_default();
            let body = body.split("\n}\n").next().unwrap_or_default();
            let starts = body.match_indices("fn ").map(|(at, _)| at).filter(|&at| {
                let line = &body[body[..at].rfind('\n').map_or(0, |end| end + 1)..at];
                line.starts_with("    ") && !line.starts_with("     ") && !line.trim_start().starts_with("//")
            });
            let starts: Vec<usize> = starts.collect();
            for (at, &start) in starts.iter().enumerate() {
                let text = &body[start..starts.get(at + 1).copied().unwrap_or(body.len())];
                let end = text[3..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(text.len(), |end| end + 3);
                methods.entry(name).or_default().entry(module).or_default().push((&text[3..end], text));
            }
        }
    }
    methods
}

/// The calls among the modules that add `methods` to one type.
fn calls<'a>(methods: &BTreeMap<&'a str, Vec<(&'a str, &'a str)>>) -> BTreeMap<&'a str, Arrows> {
    let home: BTreeMap<&str, &str> =
        methods.iter().flat_map(|(module, own)| own.iter().map(|(name, _)| (*name, *module))).collect();
    let mut arrows = BTreeMap::new();
    for (module, own) in methods {
        let arrows: &mut Arrows = arrows.entry(*module).or_default();
        for (_, text) in own {
            for part in text.split("self").skip(1) {
                let Some(called) = part.trim_start().strip_prefix('.') else { continue };
                let end = called.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(called.len());
                let (called, rest) = called.split_at(end);
                if let Some(to) = home.get(called).filter(|to| *to != module && rest.starts_with('(')) {
                    arrows.entry((*to).to_owned()).or_default().insert(called.to_owned());
                }
            }
        }
    }
    arrows
}

/// The circles of `arrows`, as lines to print.
fn of(arrows: &BTreeMap<&str, Arrows>, verb: &str) -> Vec<String> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|module| (*module, reach(module, arrows))).collect();
    let mut told = BTreeSet::new();
    let mut lines = Vec::new();
    for (module, others) in &reached {
        if !others.contains(module) || told.contains(module) {
            continue;
        }
        let circle: Vec<&str> = others.iter().copied().filter(|other| reached[other].contains(module)).collect();
        told.extend(circle.iter().copied());
        lines.push(format!("a circle of {} files: {}", circle.len(), circle.join(", ")));
        for from in &circle {
            for (to, names) in arrows[from].iter().filter(|(to, _)| circle.contains(&to.as_str())) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                lines.push(format!("  {from} {verb} {} of {to}", names.join(", ")));
            }
        }
    }
    lines
}

fn reach<'a>(from: &str, arrows: &'a BTreeMap<&str, Arrows>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for other in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other.as_str()) {
                next.push(other);
            }
        }
    }
    reached
}

fn arrows(module: &str, text: &str, files: &BTreeMap<String, String>) -> Arrows {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut arrows = Arrows::new();
    for path in paths(text) {
        let absolute = match path.split_first() {
            Some((first, rest)) if first == "crate" => rest.to_vec(),
            Some((first, rest)) if first == "super" => parent
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .chain(rest.iter().cloned())
                .collect(),
            _ => continue,
        };
        let known = |length: &usize| files.contains_key(&absolute[..*length].join("::"));
        let to = absolute[..(1..=absolute.len()).rev().find(known).unwrap_or(0)].join("::");
        let own = to.is_empty() || to == module || to.starts_with(&format!("{module}::"));
        if !own {
            let name = absolute.last().cloned().unwrap_or_default();
            arrows.entry(to).or_default().insert(name);
        }
    }
    arrows
}

/// Every path of the code that begins with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code: String = text
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut found = Vec::new();
    for root in ["crate::", "super::"] {
        let mut rest = code.as_str();
        while let Some(at) = rest.find(root) {
            let before = rest[..at].chars().next_back();
            let tail = &rest[at..];
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                found.extend(expand(tree(tail)));
            }
            rest = &rest[at + root.len()..];
        }
    }
    found
}

/// The path or tree of paths at the beginning of `text`.
fn tree(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' if text[..at].ends_with("::") || depth > 0 => depth += 1,
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return &text[..=at];
                }
            }
            _ if depth > 0 || c.is_alphanumeric() || c == '_' || c == ':' => {}
            _ => return &text[..at],
        }
    }
    text
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let Some((head, body)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().split("::").map(|part| part.trim().to_owned());
        return vec![path.filter(|part| !part.is_empty() && part != "self").collect()];
    };
    let head: Vec<String> =
        head.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let body = body.trim_end().strip_suffix('}').unwrap_or(body);
    let mut depth = 0;
    let parts = body.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(expand).map(|path| head.iter().cloned().chain(path).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles(&files.iter().map(|(module, text)| ((*module).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let circle = [
            ("", "mod a;\nmod b;\nmod c;\npub use a::First;"),
            ("a", "use crate::{b::{Second, other}, d};\n// crate::c::No\n"),
            ("b", "fn f() -> u32 { crate::c::Third::new() + crate::First::new() }"),
            ("c", "use super::a::First;"),
            ("d", "#[cfg(test)]\nmod tests {\n    use crate::a::First;\n}"),
        ];
        let lines = found(&circle);
        assert_eq!(lines[0], "a circle of 3 files: a, b, c");
        assert_eq!(lines[1..], ["  a imports Second, other of b", "  b imports new of c", "  c imports First of a"]);
        assert_eq!(found(&circle[..3]), [""; 0]);
    }

    #[test]
    fn methods_of_one_type_that_call_each_other_are_a_circle() {
        let circle = [
            ("", "pub struct Engine;"),
            ("a", "use x;\n\nimpl Engine {\n    pub fn one(&self) {\n        self\n            .two();\n    }\n}\n"),
            ("b", "use x;\n\nimpl Engine {\n    fn two(&self) {\n        self.three()\n    }\n}\n"),
            (
                "c",
                "use x;\n\nimpl<'a> Engine<'a> {\n    fn three(&self) {\n        self.one();\n        self.two.x()\n    }\n}\n",
            ),
            ("d", "use x;\n\nimpl Drop for Engine {\n    fn drop(&self) {\n        self.one()\n    }\n}\n"),
        ];
        let lines = found(&circle);
        assert_eq!(
            lines,
            ["a circle of 3 files: a, b, c", "  a calls two of b", "  b calls three of c", "  c calls one of a"]
        );
        assert_eq!(found(&circle[..3]), [""; 0]);
    }

    #[test]
    fn a_folder_is_below_its_file() {
        let folder =
            [("", ""), ("a", "mod b;\nuse b::B;"), ("a::b", "use super::{A, c::C};"), ("a::c", "use crate::a::b::B;")];
        assert_eq!(found(&folder)[0], "a circle of 2 files: a::b, a::c");
        assert_eq!(found(&folder[..3]), [""; 0]);
    }
}
