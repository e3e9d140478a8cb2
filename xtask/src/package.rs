//! The Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::run::{builds, cargo, check, root};
use crate::suite::tool;

/// Builder of the package from `crates/cli/Cargo.toml`.
const CARGO_DEB: &str = "cargo-deb@3.8.0";

/// Files that the package has to have.
const FILES: &[&str] = &[
    "usr/bin/nigh",
    "usr/bin/nigh-guard",
    "usr/lib/systemd/system/nigh.service",
    "usr/lib/systemd/system/nigh.socket",
    "usr/lib/systemd/system/nigh-guard.service",
    "usr/lib/sysusers.d/nigh.conf",
    "etc/nigh/nigh.toml",
    "usr/share/nigh/prometheus/nigh.rules.yml",
    "usr/share/nigh/grafana/nigh.json",
    "usr/share/man/man1/nigh.1.gz",
    "usr/share/man/man1/nigh-serve.1.gz",
    "usr/share/man/man1/nigh-ctl-export-list.1.gz",
    "usr/share/bash-completion/completions/nigh",
    "usr/share/zsh/vendor-completions/_nigh",
    "usr/share/fish/vendor_completions.d/nigh.fish",
    "usr/share/doc/nigh/config.md",
    "usr/share/doc/nigh/serve.md",
    "usr/share/doc/nigh/copyright",
];
/// How exposed the service may be, of 100: `systemd-analyze security`.
const EXPOSURE_MAX: u32 = 20;

/// Builds the package with programs as they are released, and checks it.
pub(crate) fn package() -> anyhow::Result<()> {
    let package = build("release")?;
    inspect(&package)?;
    println!("{}", package.display());
    Ok(())
}

/// The same with the programs of the tests, which are there already.
pub(crate) fn check_package() -> anyhow::Result<()> {
    inspect(&build("dev")?)
}

fn cargo_deb() -> PathBuf {
    builds().join("tools/bin/cargo-deb")
}

/// Builds the programs, what they print about themselves, and the package; returns its path.
fn build(profile: &str) -> anyhow::Result<PathBuf> {
    if !cargo_deb().is_file() {
        tool(CARGO_DEB)?;
    }
    check(&mut cargo(&["build", "--locked", "--quiet", "-p", "nigh", "--features", "objects", "--profile", profile]))?;
    let folder = builds().join(if profile == "dev" { "debug" } else { profile });
    let nigh = folder.join("nigh");
    let made = folder.join("package");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir_all(made.join("man"))?;
    check(Command::new(&nigh).args(["man", "--all"]).arg(made.join("man")))?;
    let pages = fs::read_dir(made.join("man"))?.map(|page| Ok(page?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    check(Command::new("gzip").args(["-9", "-n"]).args(pages))?;
    for shell in ["bash", "zsh", "fish"] {
        fs::write(made.join(format!("nigh.{shell}")), output(Command::new(&nigh).args(["completions", shell]))?)?;
    }
    let package = made.join("nigh.deb");
    let mut deb = Command::new(cargo_deb());
    deb.current_dir(root()).args(["--package", "nigh", "--no-build", "--locked", "--quiet", "--profile", profile]);
    check(deb.arg("--output").arg(&package).stdout(Stdio::null()))?;
    Ok(package)
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

/// Unpacks the package, and checks what is in it.
fn inspect(package: &Path) -> anyhow::Result<()> {
    let unpacked = package.with_extension("unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    check(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&unpacked))?;
    for file in FILES {
        ensure!(unpacked.join(file).is_file(), "{file} is missing in {}", package.display());
    }
    for program in ["nigh", "nigh-guard"] {
        check(Command::new(unpacked.join("usr/bin").join(program)).arg("--version").stdout(Stdio::null()))?;
    }
    let mut explain = Command::new(unpacked.join("usr/bin/nigh"));
    explain.args(["serve", "root=memory:1M", "--check", "--config"]).arg(unpacked.join("etc/nigh/nigh.toml"));
    check(explain.stdout(Stdio::null()))?;
    let control = String::from_utf8(output(Command::new("dpkg-deb").arg("--field").arg(package))?)?;
    for part in ["Package: nigh\n", "Depends: ", "Section: "] {
        ensure!(control.contains(part), "the package has no {part:?}: {control}");
    }
    units(&unpacked)
}

/// systemd's own opinion of the units, with programs that are there.
fn units(unpacked: &Path) -> anyhow::Result<()> {
    if Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: units: systemd-analyze is not installed");
        return Ok(());
    }
    let folder = unpacked.join("units");
    fs::create_dir_all(&folder)?;
    let here = format!("={}/", unpacked.join("usr/bin").display());
    let mut paths = Vec::new();
    for unit in ["nigh.service", "nigh.socket", "nigh-guard.service"] {
        let text = fs::read_to_string(unpacked.join("usr/lib/systemd/system").join(unit))?;
        let path = folder.join(unit);
        fs::write(&path, text.replace("=/usr/bin/", &here))?;
        paths.push(path);
    }
    check(Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths))?;
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", &threshold]).arg(&paths[0]);
    check(security.stdout(Stdio::null()))
}
