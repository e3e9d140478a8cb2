//! libCacheSim's `cachesim`, built from the source that its project publishes on PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::measure::{folder, run};

const VERSION: &str = "0.3.5";

/// The path of `cachesim`; `NIGH_CACHESIM` names one that is already built.
pub(crate) fn cachesim() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("NIGH_CACHESIM") {
        return Ok(path.into());
    }
    let folder = folder()?.join(format!("libcachesim-{VERSION}"));
    let built = folder.join("build/bin/cachesim");
    if !built.exists() {
        build(&folder).context(
            "building libCacheSim needs pip, cmake, ninja, a C compiler and the packages libglib2.0-dev, libzstd-dev and \
             libgoogle-perftools-dev; NIGH_CACHESIM can name a `cachesim` that is already built",
        )?;
    }
    Ok(built)
}

fn build(folder: &Path) -> anyhow::Result<()> {
    eprintln!("building libCacheSim {VERSION} ...");
    std::fs::create_dir_all(folder)?;
    let package = format!("libcachesim=={VERSION}");
    let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", &package];
    run(Command::new("python3").args(download).arg("--dest").arg(folder))?;
    let archive = folder.join(format!("libcachesim-{VERSION}.tar.gz"));
    run(Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(folder).arg("--strip-components=1"))?;
    let settings = ["-DCMAKE_BUILD_TYPE=Release", "-DENABLE_TESTS=OFF", "-DENABLE_GLCACHE=OFF", "-DENABLE_LRB=OFF"];
    let quiet = ["-DENABLE_3L_CACHE=OFF", "-DLOG_LEVEL=NONE", "-Wno-dev"];
    let mut configure = Command::new("cmake");
    configure.args(["-G", "Ninja", "-S"]).arg(folder.join("src/libCacheSim")).arg("-B").arg(folder.join("build"));
    run(configure.args(settings).args(quiet))?;
    run(Command::new("ninja").arg("-C").arg(folder.join("build")))?;
    Ok(())
}
