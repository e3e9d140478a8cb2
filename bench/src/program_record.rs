//! Cost of recording a program for each of its calls: a program of C reads a cached file, recorded or not, by `strace -c` and
//! by `perf trace`, in turns. It reports the processor time of its own reads, and how many it makes in a second without a pause.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::measure::{load, median, nigh};

/// Reads and pauses in turns: a fast program, but one that does other work as well.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
__attribute__((noinline)) static void reads(int fd, char *page, int positioned, long count) {
    for (long at = 0; at < count; at++) {
        if (!positioned && at % 256 == 0) lseek(fd, 0, SEEK_SET);
        ssize_t got = positioned ? pread(fd, page, 4096, at % 256 * 4096) : read(fd, page, 4096);
        if (got != 4096) abort();
    }
}
__attribute__((noinline)) static void deep(int levels, int fd, char *page, int positioned, long count) {
    if (levels) deep(levels - 1, fd, page, positioned, count); else reads(fd, page, positioned, count);
    __asm__ volatile("");
}
int main(int argc, char **argv) {
    static char page[4096];
    int fd = open(argv[1], O_RDONLY), positioned = atoi(argv[2]);
    long rounds = atol(argv[3]);
    (void)argc;
    deep(10, fd, page, positioned, 2000);
    double total = 0;
    for (long round = 0; round < rounds; round++) {
        double before = now(CLOCK_PROCESS_CPUTIME_ID);
        deep(10, fd, page, positioned, 2000);
        total += now(CLOCK_PROCESS_CPUTIME_ID) - before;
        usleep(5000);
    }
    double begin = now(CLOCK_MONOTONIC);
    deep(10, fd, page, positioned, 40000);
    printf("%f %f\n", total / rounds / 2000, 40000 / (now(CLOCK_MONOTONIC) - begin) * 1e9);
    return 0;
}
"#;

/// Calls of 2,000 reads each.
const BURSTS: u64 = 100;

/// Goal of the addition to a read, as a share of it: 150 ns beside 220 ns, on the machine where these were measured.
const GOAL: f64 = 150.0 / 220.0;

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir()?;
    let [source, program, data, trace] =
        ["reads.c", "reads", "data", "trace.parquet"].map(|name| folder.path().join(name));
    std::fs::write(&source, SOURCE)?;
    std::fs::write(&data, vec![7; 1 << 20])?;
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status().context("cc")?;
    ensure!(compiled.success(), "cc cannot compile the program");
    println!("reads of 4 KiB from the page cache, processor time, {rounds} rounds; load {}", load());
    println!(
        "{:10}{:22}{:>12}{:>12}{:>12}{:>14}{:>14}{:>10}",
        "call", "recorded by", "ns alone", "ns added", "of a read", "reads/s alone", "recorded", "lost"
    );
    for (name, positioned) in [("pread", "1"), ("read", "0")] {
        // Nanoseconds of a read, reads in a second, and messages.
        let reads = |mut command: Command| -> anyhow::Result<(f64, f64, String)> {
            command.arg(&program).arg(&data).args([positioned, &BURSTS.to_string()]);
            let output = command.output().with_context(|| format!("{command:?}"))?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{command:?}: {errors}");
            let printed = String::from_utf8(output.stdout)?;
            let (ns, rate) = printed.trim().split_once(' ').context("the program prints two numbers")?;
            Ok((ns.parse()?, rate.parse()?, errors))
        };
        for by in ["nigh record", "nigh record --ptrace", "strace -c", "perf trace -s"] {
            let is_own = by.starts_with("nigh");
            let (mut alone, mut shares, mut lost) = (Vec::new(), Vec::new(), 0);
            let (mut rates_alone, mut rates) = (Vec::new(), Vec::new());
            let Some(_) = recorder(by, &trace)? else {
                println!("{name:10}{by:22}     skipped: not installed");
                continue;
            };
            for _ in 0..rounds {
                // The program's own arguments begin after these.
                let (plain, rate_alone, _) = reads(Command::new("env"))?;
                let (recorded, rate, errors) = reads(recorder(by, &trace)?.context("it was there")?)?;
                if is_own {
                    lost += lost_calls(&errors)?;
                }
                alone.push(plain);
                shares.push(recorded / plain - 1.0);
                rates_alone.push(rate_alone);
                rates.push(rate);
            }
            let (alone, share) = (median(&mut alone), median(&mut shares));
            let (rate_alone, rate) = (median(&mut rates_alone), median(&mut rates));
            let lost = if is_own { lost.to_string() } else { String::new() };
            println!(
                "{name:10}{by:22}{alone:>12.0}{:>12.0}{share:>12.2}{rate_alone:>14.0}{rate:>14.0}{lost:>10}",
                alone * share
            );
            if by == "nigh record" && positioned == "1" {
                let held = if share <= GOAL { "yes" } else { "no" };
                println!("{:10}goal: at most {GOAL:.2} of a read (150 ns beside 220 ns); held: {held}", "");
            }
        }
    }
    Ok(())
}

/// The beginning of a command that records a program; `None` if it is not installed.
fn recorder(by: &str, trace: &Path) -> anyhow::Result<Option<Command>> {
    let mut command = match by {
        "nigh record" | "nigh record --ptrace" => {
            let mut command = nigh()?;
            command.arg("record").args(by.strip_prefix("nigh record ")).args(["--force", "-o"]).arg(trace).arg("--");
            return Ok(Some(command));
        }
        "strace -c" => Command::new("strace"),
        _ => Command::new("perf"),
    };
    if Command::new(command.get_program()).arg("--version").output().is_err() {
        return Ok(None);
    }
    match by {
        "strace -c" => command.args(["-f", "-c", "-o", "/dev/null"]),
        "perf trace -s" => command.args(["trace", "-s", "-o", "/dev/null", "--"]),
        other => bail!("no such recorder: {other}"),
    };
    Ok(Some(command))
}

/// The lost calls that `nigh record` reports.
fn lost_calls(errors: &str) -> anyhow::Result<u64> {
    let before = errors.split(" calls lost").next().filter(|before| before.len() < errors.len());
    let word =
        before.and_then(|before| before.rsplit(' ').next()).with_context(|| format!("no such line: {errors}"))?;
    if word == "no" { Ok(0) } else { Ok(word.replace(',', "").parse()?) }
}
