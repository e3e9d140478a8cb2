//! The Python package: installed in an environment of its own, with its tests and types.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail, ensure};

use crate::report::Report;
use crate::run::{builds, check, root};

/// Runs its tests and mypy on the library that the other tests were built with; with `release`, on the package as users
/// get it.
pub(crate) fn test(release: bool, report: &mut Report) -> anyhow::Result<()> {
    let environment = match environment() {
        Ok(environment) => environment,
        Err(error) => {
            report.skip(format!("python: {error:#}"));
            return Ok(());
        }
    };
    // From a folder without the package's sources, so that what was installed is what is imported.
    let folder = builds().join("python-package");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    if release {
        install(&environment)?;
    } else {
        assemble(&folder)?;
    }
    let mut mypy = Command::new(environment.join("bin/mypy"));
    mypy.arg("--config-file").arg(root().join("pyproject.toml")).env("MYPYPATH", &folder);
    mypy.args(["--no-error-summary", "--python-version", "3.10", "--package", "nigh"]).current_dir(&folder);
    check(&mut mypy)?;
    let mut pytest = pytest(&environment, &folder);
    let results = folder.join("junit.xml");
    pytest.args(["--quiet", "-rfE", "--numprocesses", "auto", "--junit-xml"]).arg(&results);
    let status = pytest.status().context("starting pytest")?;
    if results.exists() {
        report.add(&results)?;
    }
    report.ended("pytest", status);
    Ok(())
}

/// Prints its tests by name.
pub(crate) fn list() -> anyhow::Result<()> {
    let folder = builds().join("python-package");
    std::fs::create_dir_all(&folder)?;
    assemble(&folder)?;
    check(pytest(&environment()?, &folder).args(["--collect-only", "--quiet"]))
}

fn pytest(environment: &Path, folder: &Path) -> Command {
    let tests = root().join("crates/choose/python/tests");
    let mut pytest = Command::new(environment.join("bin/pytest"));
    pytest.arg("--rootdir").arg(&tests).args(["-p", "no:cacheprovider"]).arg(&tests);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", folder).current_dir(folder);
    let program = builds().join("debug/nigh");
    if program.exists() {
        pytest.env("NIGH_PROGRAM", program);
    }
    if let Ok(traces) = root().join("../shared/traces").canonicalize() {
        pytest.env("NIGH_TRACES", traces);
    }
    pytest
}

/// The package with the library that was built with the workspace.
fn assemble(folder: &Path) -> anyhow::Result<()> {
    let package = folder.join("nigh");
    std::fs::create_dir_all(&package)?;
    for file in std::fs::read_dir(root().join("crates/choose/python/python/nigh"))? {
        let file = file?;
        if file.file_type()?.is_file() {
            std::fs::copy(file.path(), package.join(file.file_name()))?;
        }
    }
    let library = builds().join("debug/lib_nigh.so");
    std::fs::copy(&library, package.join("_nigh.abi3.so")).with_context(|| library.display().to_string())?;
    Ok(())
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
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    ensure!(name.starts_with("nigh_cache-"), "{name}: docs/sweep.md has another name of the package");
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
        // The wheel is for 3.10 and later; 3.9 has one of its own. With the extra of a worker, as docs/sweep.md installs it.
        let mut package = if minor < 10 { &sources } else { &wheel }.clone().into_os_string();
        package.push("[dask,pandas]");
        check(pip(&fresh).arg(package).env("CARGO_TARGET_DIR", builds()))?;
        check(Command::new(fresh.join("bin/python")).arg(root().join("crates/choose/python/tests/smoke.py")))?;
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
    let folder = root().join("crates/choose/python/benches");
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
    install(&environment)?;
    check(Command::new(environment.join("bin/python")).arg(script).args(options))
}

/// An environment with what the tests use, made anew when that changes.
pub(crate) fn environment() -> anyhow::Result<PathBuf> {
    // A step may ask for it while it is being made in the background.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = builds().join("python-tests");
    let requirements = root().join("crates/choose/python/tests/requirements.txt");
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

/// Installs as users do: `pip install .`
fn install(environment: &Path) -> anyhow::Result<()> {
    let mut pip = pip(environment);
    check(pip.args(["--force-reinstall", "--no-deps", "."]).current_dir(root()).env("CARGO_TARGET_DIR", builds()))
}

fn pip(environment: &Path) -> Command {
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip
}
