//! Fuzzing: every target in `fuzz/`, each for a while, with libFuzzer on the stable toolchain.

use anyhow::{Context, ensure};

use crate::run::{cargo, check, root};

pub(crate) fn fuzz(seconds: u32, only: Option<&str>) -> anyhow::Result<()> {
    let manifest = root().join("fuzz/Cargo.toml");
    let text = std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let parsed: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
    let bins = parsed.get("bin").and_then(toml::Value::as_array).context("fuzz/Cargo.toml has no targets")?;
    let names = bins.iter().filter_map(|bin| bin.get("name")?.as_str());
    let targets: Vec<&str> = names.filter(|name| only.is_none_or(|only| name.contains(only))).collect();
    ensure!(!targets.is_empty(), "no fuzz target is called like that");
    for target in targets {
        let limit = format!("-max_total_time={seconds}");
        // New inputs of libFuzzer go to the first folder; the seeds in the second are read only.
        let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
        std::fs::create_dir_all(root().join(&corpus)).with_context(|| corpus.clone())?;
        // libFuzzer needs flags that only a nightly compiler accepts, or one that is asked to.
        let fuzz = |arguments: &[&str]| {
            check(cargo(&[&["fuzz"], arguments].concat()).env("RUSTC_BOOTSTRAP", "1"))
                .context("fuzzing (cargo-fuzz is installed by `cargo install cargo-fuzz`)")
        };
        fuzz(&["build", target])?;
        let before_s = processor_s()?;
        fuzz(&["run", target, &corpus, &seeds, "--", &limit, "-rss_limit_mb=2048"])?;
        println!("{target}: {:.0} s of processor time", processor_s()? - before_s);
    }
    Ok(())
}

/// Processor time of the programs that this one started and that have ended.
fn processor_s() -> anyhow::Result<f64> {
    /// Of Linux, in everything that it shows to programs.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').context("a field of /proc/self/stat")?.1.split_whitespace();
    // Behind the name, the fields begin with the third; these are the 16th and the 17th.
    let ticks = fields.skip(16 - 3).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_A_SECOND)
}
