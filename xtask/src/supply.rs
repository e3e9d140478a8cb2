//! Sources and licences of dependencies: the rules that `cargo deny check licenses sources` checks, by the same
//! settings (`deny.toml`), where that program is not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::run::cargo;

/// The only registry.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Errors in the dependencies of the workspace, one line each. Versions of the same package are only printed.
pub(crate) fn wrong(root: &Path) -> anyhow::Result<Vec<String>> {
    let settings: toml::Table = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?.parse()?;
    let allowed = settings["licenses"]["allow"].as_array().context("deny.toml: licenses.allow is a list")?;
    let allowed: BTreeSet<&str> = allowed.iter().filter_map(|licence| licence.as_str()).collect();
    let output = cargo(&["metadata", "--locked", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata: packages")? {
        let text = |key: &str| package[key].as_str();
        let (name, version) = (text("name").unwrap_or("?"), text("version").unwrap_or("?"));
        versions.entry(name).or_default().insert(version);
        match text("source") {
            None => continue,
            Some(CRATES_IO) => {}
            Some(other) => wrong.push(format!("{name} {version} comes from {other}, not from crates.io")),
        }
        let licence = text("license").unwrap_or("no licence");
        match is_allowed(licence, &allowed) {
            Ok(true) => {}
            Ok(false) => {
                wrong.push(format!("{name} {version} has the licence {licence}, which deny.toml does not allow"))
            }
            Err(error) => wrong.push(format!("{name} {version}: {error}")),
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        eprintln!("xtask: several versions of {name}: {}", versions.iter().copied().collect::<Vec<_>>().join(", "));
    }
    Ok(wrong)
}

/// Whether `expression`, of SPDX, can be fulfilled by the licences that are `allowed`. An exception (`WITH`) only permits more.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> anyhow::Result<bool> {
    // Older packages write a slash for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let result = any(&mut rest, allowed)?;
    ensure!(rest.is_empty(), "'{expression}' is no licence expression");
    Ok(result)
}

fn any(words: &mut &[&str], allowed: &BTreeSet<&str>) -> anyhow::Result<bool> {
    let mut result = all(words, allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        result |= all(words, allowed)?;
    }
    Ok(result)
}

fn all(words: &mut &[&str], allowed: &BTreeSet<&str>) -> anyhow::Result<bool> {
    let mut result = one(words, allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        result &= one(words, allowed)?;
    }
    Ok(result)
}

fn one(words: &mut &[&str], allowed: &BTreeSet<&str>) -> anyhow::Result<bool> {
    let (result, rest) = match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let result = any(words, allowed)?;
            let [")", rest @ ..] = *words else { bail!("a parenthesis is not closed") };
            (result, rest)
        }
        [licence, "WITH", _, rest @ ..] => (allowed.contains(licence), rest),
        [licence, rest @ ..] => (allowed.contains(licence), rest),
        [] => bail!("a licence is missing"),
    };
    *words = rest;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Unicode-3.0"]);
        let check = |expression| is_allowed(expression, &allowed);
        for fine in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(check(fine).unwrap(), "{fine}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "no licence", "(MIT AND GPL-3.0) OR LGPL-2.1"] {
            assert!(!check(refused).unwrap_or(false), "{refused}");
        }
        assert!(check("(MIT").is_err() && check("").is_err() && check("MIT Apache-2.0").is_err());
    }
}
