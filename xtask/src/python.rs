//! The Python package: installed in an environment of its own, with its tests and types.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::run::{builds, check, count, root};

/// What its tests did.
#[derive(Default)]
pub(crate) struct Tested {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// Those that could not run, with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Installs the package from the tree, and runs its tests and mypy. With `release`, it is compiled as users get it.
pub(crate) fn test(release: bool) -> anyhow::Result<Tested> {
    let environment = match environment() {
        Ok(environment) => environment,
        Err(error) => return Ok(Tested { skipped: vec![format!("python: {error:#}")], ..Tested::default() }),
    };
    install(&environment, release)?;
    // From a folder without the package's sources, so that what was installed is what is imported.
    let tests = root().join("crates/python/tests");
    let mut mypy = Command::new(environment.join("bin/mypy"));
    mypy.arg("--config-file").arg(root().join("pyproject.toml"));
    mypy.args(["--no-error-summary", "--python-version", "3.10", "--package", "nigh"]).current_dir(builds());
    check(&mut mypy)?;
    let mut pytest = Command::new(environment.join("bin/pytest"));
    pytest.args(["--quiet", "-rsfE", "--rootdir"]).arg(&tests).arg("-p").arg("no:cacheprovider").arg(&tests);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(builds()).stdout(Stdio::piped());
    let program = builds().join("debug/nigh");
    if program.exists() {
        pytest.env("NIGH_PROGRAM", program);
    }
    let traces = root().join("../shared/traces");
    if let Ok(traces) = traces.canonicalize() {
        pytest.env("NIGH_TRACES", traces);
    }
    let mut running = pytest.spawn().context("starting pytest")?;
    let mut tested = Tested::default();
    for line in BufReader::new(running.stdout.take().expect("it is piped")).lines() {
        let line = line?;
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            tested.skipped.push(format!("python: {skipped}"));
        }
        // The last line is such as "2 failed, 40 passed, 1 skipped in 3.21s".
        if line.contains(" passed") || line.contains(" failed") {
            tested.passed = count(&line, " passed");
            tested.failed = count(&line, " failed");
        }
        println!("{line}");
    }
    let status = running.wait()?;
    ensure!(status.success() || tested.failed > 0, "pytest: {status}");
    Ok(tested)
}

/// A wheel from the source distribution, and what a newcomer does with it under every interpreter that there is.
pub(crate) fn distribution() -> anyhow::Result<()> {
    let environment = environment()?;
    check(pip(&environment).arg("maturin>=1.12,<2"))?;
    let folder = builds().join("python-sdist");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let mut maturin = Command::new(environment.join("bin/maturin"));
    check(maturin.args(["sdist", "--out"]).arg(&folder).current_dir(root()))?;
    let archive = only(&folder, ".tar.gz")?;
    check(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&folder))?;
    let sources = only(&folder, env!("CARGO_PKG_VERSION"))?;
    let mut wheel = Command::new(environment.join("bin/pip"));
    wheel.args(["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"]).arg(&folder);
    check(wheel.arg(&sources).env("CARGO_TARGET_DIR", builds()))?;
    let wheel = only(&folder, ".whl")?;
    println!("{}: {} bytes", wheel.display(), std::fs::metadata(&wheel)?.len());
    for minor in 9..20 {
        let interpreter = format!("python3.{minor}");
        let fresh = folder.join(&interpreter);
        let mut make = Command::new(&interpreter);
        make.args(["-m", "venv"]).arg(&fresh).stderr(Stdio::null());
        if !make.status().is_ok_and(|status| status.success()) {
            println!("skipped: {interpreter}: it is not installed");
            continue;
        }
        // The wheel is for 3.10 and later; 3.9 has one of its own.
        let package = if minor < 10 { &sources } else { &wheel };
        check(pip(&fresh).arg(package).arg("pandas").env("CARGO_TARGET_DIR", builds()))?;
        check(Command::new(fresh.join("bin/python")).arg(root().join("crates/python/tests/smoke.py")))?;
    }
    Ok(())
}

/// The one file in `folder` whose name ends so.
fn only(folder: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let mut found = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    found.find(is).with_context(|| format!("{} has no file that ends in {ending}", folder.display()))
}

/// Runs a bench of the package as users get it, beside its peers.
pub(crate) fn bench(name: &str, options: &[String]) -> anyhow::Result<()> {
    let folder = root().join("crates/python/benches");
    let script = folder.join(name).with_extension("py");
    if !script.is_file() {
        let names = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let names = names.filter(|path| path.extension().is_some_and(|extension| extension == "py"));
        let mut names: Vec<String> =
            names.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
        names.sort();
        bail!("there is no bench '{name}': expected one of {}", names.join(", "));
    }
    let environment = environment()?;
    check(pip(&environment).arg("--requirement").arg(folder.join("requirements.txt")))?;
    install(&environment, true)?;
    check(Command::new(environment.join("bin/python")).arg(script).args(options))
}

/// An environment with what the tests use, made anew when that changes.
fn environment() -> anyhow::Result<PathBuf> {
    let environment = builds().join("python-tests");
    let requirements = root().join("crates/python/tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)?;
    let stamp = environment.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(environment);
    }
    check(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
        .context("python3 with venv makes an environment for the tests")?;
    check(pip(&environment).arg("--requirement").arg(&requirements))?;
    std::fs::write(stamp, wanted)?;
    Ok(environment)
}

/// What users do: `pip install .`
fn install(environment: &Path, release: bool) -> anyhow::Result<()> {
    let mut pip = pip(environment);
    pip.args(["--force-reinstall", "--no-deps"]);
    if !release {
        // As the other tests, so that what they compiled is used.
        pip.args(["--config-settings", "build-args=--profile dev --locked"]);
    }
    check(pip.arg(".").current_dir(root()).env("CARGO_TARGET_DIR", builds()))
}

fn pip(environment: &Path) -> Command {
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip
}
