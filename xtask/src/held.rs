//! With which files the steps held that run only when their inputs change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use twox_hash::XxHash3_64;

use crate::run::root;

/// The file has a line for each such step: its name, and a hash of its inputs and of the compiler. It is committed with
/// the change after which the step held.
pub(crate) struct Held(BTreeMap<String, String>);

impl Held {
    fn path() -> PathBuf {
        root().join("xtask/held.toml")
    }

    pub(crate) fn read() -> anyhow::Result<Held> {
        let text = std::fs::read_to_string(Held::path()).unwrap_or_default();
        Ok(Held(toml::from_str(&text).context("xtask/held.toml")?))
    }

    /// Whether a step held with these inputs, which are paths as git takes them.
    pub(crate) fn holds(&self, step: &str, inputs: &[&str]) -> anyhow::Result<bool> {
        Ok(self.0.get(step) == Some(&hash(inputs)?))
    }

    /// The step has just held.
    pub(crate) fn note(&mut self, step: &str, inputs: &[&str]) -> anyhow::Result<()> {
        let hash = hash(inputs)?;
        if self.0.insert(step.to_owned(), hash.clone()) != Some(hash) {
            let head = "# Written by `cargo xtask ci`: the inputs with which these steps held last.\n";
            std::fs::write(Held::path(), format!("{head}{}", toml::to_string(&self.0)?))?;
        }
        Ok(())
    }
}

fn hash(inputs: &[&str]) -> anyhow::Result<String> {
    let files = output(Command::new("git").args(["ls-files", "-z", "--"]).args(inputs).current_dir(root()))?;
    let mut all = output(Command::new("rustc").arg("--version"))?;
    for file in files.split_terminator('\0') {
        // One that was deleted, but is still in git's index, has no bytes.
        let bytes = std::fs::read(root().join(file)).unwrap_or_default();
        writeln!(all, "{file} {:016x}", XxHash3_64::oneshot(&bytes))?;
    }
    Ok(format!("{:016x}", XxHash3_64::oneshot(all.as_bytes())))
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
