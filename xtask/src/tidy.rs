//! The rules of the tree that no compiler checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::circles::circles;
use crate::run::root;
use crate::{supply, words};

/// Which crates of the workspace each crate may depend on: arrows go one way. A crate that is not here is a new room
/// and needs its line.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "nigh",
        &[
            "nigh-advise",
            "nigh-backend",
            "nigh-content",
            "nigh-control",
            "nigh-device",
            "nigh-engine",
            "nigh-guard",
            "nigh-lend",
            "nigh-level",
            "nigh-mount",
            "nigh-nbd",
            "nigh-output",
            "nigh-pattern",
            "nigh-policy",
            "nigh-prefetch",
            "nigh-record",
            "nigh-report",
            "nigh-server",
            "nigh-service",
            "nigh-sim",
            "nigh-sweep",
            "nigh-text",
            "nigh-tier",
            "nigh-trace",
            "nigh-tracefs",
            "nigh-ublk",
            "nigh-vhost",
        ],
    ),
    ("nigh-advise", &[]),
    (
        "nigh-backend",
        &[
            "nigh-device",
            "nigh-engine",
            "nigh-level",
            "nigh-nbd",
            "nigh-objects",
            "nigh-text",
            "nigh-tls",
            "nigh-writelog",
        ],
    ),
    (
        "nigh-bench",
        &[
            "nigh-backend",
            "nigh-content",
            "nigh-control",
            "nigh-device",
            "nigh-engine",
            "nigh-level",
            "nigh-nbd",
            "nigh-policy",
            "nigh-prefetch",
            "nigh-server",
            "nigh-service",
            "nigh-sim",
            "nigh-testkit",
            "nigh-trace",
        ],
    ),
    ("nigh-capi", &["nigh-backend", "nigh-host", "nigh-text"]),
    ("nigh-content", &["nigh-policy"]),
    ("nigh-control", &["nigh-policy"]),
    ("nigh-device", &["nigh-text"]),
    ("nigh-guard", &[]),
    ("nigh-host", &["nigh-backend", "nigh-content", "nigh-control", "nigh-engine", "nigh-policy", "nigh-prefetch"]),
    ("nigh-keyed", &["nigh-policy"]),
    ("nigh-lend", &["nigh-backend", "nigh-engine", "nigh-host", "nigh-level", "nigh-service", "nigh-tls"]),
    ("nigh-level", &["nigh-policy", "nigh-tier"]),
    ("nigh-mount", &["nigh-host", "nigh-service", "nigh-trace"]),
    ("nigh-nbd", &[]),
    ("nigh-objects", &[]),
    ("nigh-output", &[]),
    ("nigh-embed-bench", &["nigh-capi", "nigh-host", "nigh-keyed"]),
    ("nigh-engine", &["nigh-control", "nigh-policy", "nigh-prefetch", "nigh-text", "nigh-tier"]),
    ("nigh-pattern", &[]),
    ("nigh-policy", &["nigh-pattern", "nigh-text"]),
    ("nigh-prefetch", &["nigh-text"]),
    (
        "nigh-python",
        &[
            "nigh-device",
            "nigh-keyed",
            "nigh-policy",
            "nigh-prefetch",
            "nigh-sim",
            "nigh-sweep",
            "nigh-testkit",
            "nigh-text",
            "nigh-tier",
            "nigh-trace",
        ],
    ),
    ("nigh-preload", &["nigh-advise", "nigh-pattern", "nigh-ring"]),
    ("nigh-record", &["nigh-pattern", "nigh-ring", "nigh-trace"]),
    ("nigh-report", &[]),
    ("nigh-ring", &[]),
    (
        "nigh-server",
        &["nigh-backend", "nigh-engine", "nigh-host", "nigh-nbd", "nigh-policy", "nigh-service", "nigh-trace"],
    ),
    (
        "nigh-service",
        &[
            "nigh-backend",
            "nigh-control",
            "nigh-host",
            "nigh-output",
            "nigh-policy",
            "nigh-prefetch",
            "nigh-report",
            "nigh-text",
            "nigh-tls",
            "nigh-trace",
        ],
    ),
    (
        "nigh-sim",
        &[
            "nigh-content",
            "nigh-control",
            "nigh-device",
            "nigh-engine",
            "nigh-pattern",
            "nigh-policy",
            "nigh-prefetch",
            "nigh-text",
            "nigh-tier",
            "nigh-trace",
        ],
    ),
    ("nigh-sweep", &["nigh-policy", "nigh-sim", "nigh-text", "nigh-trace"]),
    ("nigh-testkit", &["nigh-policy"]),
    ("nigh-text", &[]),
    ("nigh-tier", &["nigh-policy"]),
    ("nigh-tls", &[]),
    ("nigh-trace", &["nigh-output", "nigh-text"]),
    ("nigh-tracefs", &["nigh-trace"]),
    ("nigh-ublk", &["nigh-backend", "nigh-engine", "nigh-host", "nigh-policy", "nigh-service", "nigh-trace"]),
    ("nigh-union", &[]),
    ("nigh-vhost", &["nigh-backend", "nigh-engine", "nigh-host", "nigh-policy", "nigh-service", "nigh-trace"]),
    ("nigh-writelog", &[]),
    ("xtask", &["nigh-text"]),
];

/// A crate and those that it stands on.
pub(crate) fn needs(name: &'static str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::from([name]);
    let mut next = vec![name];
    while let Some(name) = next.pop() {
        let arrows = ARROWS.iter().filter(|(of, _)| *of == name).flat_map(|(_, to)| *to);
        next.extend(arrows.filter(|to| found.insert(to)));
    }
    found
}

/// Longer files have more than one reason to change.
const LINES_MOST: usize = 900;

/// Marks of unfinished work.
const MARKS: &[&str] = &["dbg!(", "todo!(", "unimplemented!(", "FIXME", "XXX"];

pub(crate) fn tidy() -> anyhow::Result<()> {
    let root = root();
    let mut wrong = Vec::new();
    let files = tracked(&root)?;
    for crate_dir in files.iter().filter(|path| path.ends_with("Cargo.toml")).filter_map(|path| path.parent()) {
        if crate_dir != Path::new("") && crate_dir != Path::new("fuzz") {
            arrows(&root, crate_dir, &mut wrong)?;
            lints(&root, crate_dir, &mut wrong)?;
            if !root.join(crate_dir).join("README.md").exists() {
                wrong.push(format!("{}: has no README.md", crate_dir.display()));
            }
        }
    }
    for path in &files {
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        if path.extension().is_some_and(|extension| extension == "rs") {
            rust_file(path, &text, &mut wrong);
        }
        own_paths(path, &text, &mut wrong);
        wrong.extend(words::wrong(path, &text));
        strangers(path, &text, &mut wrong);
    }
    unreferenced(&root, &files, &mut wrong);
    file_circles(&root, &files, &mut wrong);
    wrong.extend(supply::wrong(&root)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("\n  {}", wrong.join("\n  "))
}

/// The files of the tree: those git tracks and those it would.
fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    let names = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
    let paths = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(paths.filter(|path| root.join(path).exists()).collect())
}

fn arrows(root: &Path, crate_dir: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let manifest = crate_dir.join("Cargo.toml");
    let text = std::fs::read_to_string(root.join(&manifest))?;
    let parsed: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
    let name = parsed.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let name = name.with_context(|| format!("{}: no package name", manifest.display()))?;
    let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| *of == name) else {
        wrong.push(format!("{}: '{name}' has no line in ARROWS of xtask/src/tidy.rs", manifest.display()));
        return Ok(());
    };
    let empty = toml::Table::new();
    let dependencies = parsed.get("dependencies").and_then(toml::Value::as_table).unwrap_or(&empty);
    for dependency in dependencies.keys().filter(|key| key.starts_with("nigh")) {
        if !allowed.contains(&dependency.as_str()) {
            wrong.push(format!("{}: {name} must not depend on {dependency}", manifest.display()));
        }
    }
    Ok(())
}

/// A crate that allows some unsafe code has a table of lints of its own: nothing else of the workspace's may be missing from it.
fn lints(root: &Path, crate_dir: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let table = |manifest: &Path| -> anyhow::Result<toml::Table> {
        let text = std::fs::read_to_string(root.join(manifest))?;
        text.parse().with_context(|| manifest.display().to_string())
    };
    let clippy = |lints: Option<&toml::Value>| lints.and_then(|lints| lints.get("clippy")?.as_table().cloned());
    let manifest = crate_dir.join("Cargo.toml");
    let own = table(&manifest)?;
    let own = own.get("lints");
    if own.and_then(|lints| lints.get("workspace")).is_some() {
        return Ok(());
    }
    let wanted = clippy(table(Path::new("Cargo.toml"))?.get("workspace").and_then(|workspace| workspace.get("lints")));
    let own = clippy(own).unwrap_or_default();
    for lint in wanted.unwrap_or_default().keys().filter(|lint| !own.contains_key(*lint)) {
        wrong.push(format!("{}: the workspace's lint {lint} is missing from lints.clippy", manifest.display()));
    }
    Ok(())
}

fn rust_file(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LINES_MOST {
        wrong.push(format!("{}: {lines} lines; more than {LINES_MOST} have two reasons to change", path.display()));
    }
    if path == Path::new("xtask/src/tidy.rs") {
        return;
    }
    for (at, line) in text.lines().enumerate() {
        for mark in MARKS.iter().filter(|mark| line.contains(**mark)) {
            wrong.push(format!("{}:{}: {mark}", path.display(), at + 1));
        }
    }
}

/// The tree is whole by itself: only tests look for traces beside it, and nothing knows whose machine it lies on.
fn own_paths(path: &Path, text: &str, wrong: &mut Vec<String>) {
    if path == Path::new("xtask/src/tidy.rs") || path == Path::new("Cargo.lock") {
        return;
    }
    for (at, line) in text.lines().enumerate() {
        if ["/work/", "/root/", "/home/"].iter().any(|own| line.contains(own)) {
            wrong.push(format!("{}:{}: a path of one machine", path.display(), at + 1));
        }
    }
}

/// `nigh` of the Python index belongs to somebody else: no command installs it, and no requirement names it.
fn strangers(path: &Path, text: &str, wrong: &mut Vec<String>) {
    if path == Path::new("xtask/src/tidy.rs") {
        return;
    }
    for (at, _) in text.lines().enumerate().filter(|(_, line)| names_stranger(line)) {
        wrong.push(format!(
            "{}:{}: 'nigh' of the Python index is another project; ours is nigh-cache",
            path.display(),
            at + 1
        ));
    }
}

/// Whether a line installs `nigh` from the Python index, or requires it with extras.
fn names_stranger(line: &str) -> bool {
    let installs = |command: &str| {
        let (_, arguments) = line.split_once(command)?;
        // In prose, a command ends with its quote, and elsewhere where a comment begins.
        let arguments = arguments.split(['`', '#']).next().unwrap_or_default();
        let quotes = ['"', '\'', '(', ')', ',', ';', '.', '\\'];
        arguments.split_whitespace().map(|word| word.trim_matches(quotes)).find(|word| {
            let end = word.find(|letter: char| "[=<>!~@".contains(letter)).unwrap_or(word.len());
            word[..end].trim_end_matches(quotes) == "nigh"
        })
    };
    let has_extras = line.match_indices("nigh[").any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let inside = line[at..].split(['[', ']']).nth(1).unwrap_or_default();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "_-./".contains(letter))
            && inside.chars().all(|letter| letter.is_alphanumeric() || ",.- ".contains(letter))
    });
    has_extras
        || ["pip install", "pip download", "pipx install", "pip add", "uv add"]
            .iter()
            .any(|command| installs(command).is_some())
}

/// Imports between the files of a crate go one way.
fn file_circles(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) {
    let mut crates: BTreeMap<PathBuf, BTreeMap<String, String>> = BTreeMap::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some(src) = parts.iter().position(|part| part == "src") else { continue };
        let mut module = parts[src + 1..].to_vec();
        if let Some(last) = module.last_mut() {
            *last = last.trim_end_matches(".rs").to_owned();
        }
        // Each binary is a crate of its own.
        if module.first().is_some_and(|first| first == "bin") {
            continue;
        }
        if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
            module.pop();
        }
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        crates.entry(parts[..src].iter().collect()).or_default().insert(module.join("::"), text);
    }
    for (name, files) in crates {
        wrong.extend(circles(&files).into_iter().map(|line| format!("{}: {line}", name.display())));
    }
}

/// Every module file is named by the one above it.
fn unreferenced(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) {
    let mut declared: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let sources: Vec<&PathBuf> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .collect();
    for path in &sources {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or(Path::new(""));
        let of = if ["lib", "main", "mod"].contains(&stem.as_str()) { folder.to_owned() } else { folder.join(&stem) };
        let names = text.lines().filter_map(|line| {
            let line = line.trim();
            let rest = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
            rest.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned)
        });
        declared.entry(of).or_default().extend(names);
    }
    for path in sources {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or(Path::new(""));
        let (above, name) = match stem.as_str() {
            "lib" | "main" => continue,
            "mod" => (
                folder.parent().unwrap_or(Path::new("")).to_owned(),
                folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ),
            _ => (folder.to_owned(), stem),
        };
        let is_bin = above.file_name().is_some_and(|name| name == "bin");
        if !is_bin && !declared.get(&above).is_some_and(|names| names.contains(&name)) {
            wrong.push(format!("{}: no module names it", path.display()));
        }
    }
}

#[cfg(test)]
mod installed {
    use super::*;

    #[test]
    fn only_the_package_of_others_is_named_by_a_line() {
        for line in [
            "pip install nigh",
            "    pip install 'nigh[dask]'   # everywhere",
            "raise ImportError(\"plots: pip install nigh\")",
            "pip install --upgrade nigh==0.1.0",
            "pip install pandas \"nigh>=0.1\"",
            "requires = [\"nigh[plot]\"]",
            "uv add nigh",
        ] {
            assert!(names_stranger(line), "{line}");
        }
        for line in [
            "pip install nigh-cache",
            "pip install \"$(ls wheels/nigh_cache-*.whl)[dask]\"",
            "pip install '.[plot,pandas]'   # in a checkout of nigh",
            "it needs `pip install '.[plot,pandas]'` in a checkout of nigh",
            "pip install ./nigh",
            "cargo install --path crates/cli, which installs nigh",
            "let first = nigh[&at];",
            "the module is `nigh`",
        ] {
            assert!(!names_stranger(line), "{line}");
        }
    }
}
