//! Cost and losses of recording a disk: fio reads a loop device in memory as fast as it can,
//! recorded or not, in turns. It needs root.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::measure::{load, median, nigh};

const DISK_MB: u64 = 256;

/// A loop device, until it is dropped.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> anyhow::Result<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().context("losetup")?;
        ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Loop(String::from_utf8(output.stdout)?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

pub(crate) fn run(rounds: usize, seconds: u64) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let image = folder.path().join("image");
    std::fs::write(&image, vec![7; (DISK_MB << 20) as usize])?;
    let disk = Loop::new(&image)?;
    println!(
        "random reads of 4 KiB, 64 at a time, of {DISK_MB} MiB in memory; {rounds} rounds of {seconds} s; load {}",
        load()
    );
    println!(
        "{:>12}{:>12}{:>8}{:>12}{:>12}{:>8}{:>18}",
        "reads/s", "recorded", "ratio", "of fio", "in the file", "lost", "processor, us each"
    );
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let (alone, _) = fio(&disk.0, seconds)?;
        let trace = folder.path().join("trace.parquet");
        let recorder = record(&disk.0, &trace)?;
        let clock = clock_getcpuclockid(Pid::from_raw(recorder.id() as i32))?;
        let (recorded, reads) = fio(&disk.0, seconds)?;
        let cpu = Duration::from(clock.now()?);
        kill(Pid::from_raw(recorder.id() as i32), Signal::SIGINT)?;
        let output = recorder.wait_with_output()?;
        ensure!(output.status.success(), "nigh record: {}", String::from_utf8_lossy(&output.stderr).trim());
        let text = String::from_utf8(output.stdout)?;
        let lost = text.split("; ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("?");
        let rows = nigh_trace::format::parquet::ParquetReader::open(&trace, None, None)?.rows();
        ratios.push(recorded / alone);
        println!(
            "{alone:>12.0}{recorded:>12.0}{:>8.2}{reads:>12}{rows:>12}{lost:>8}{:>18.2}",
            recorded / alone,
            cpu.as_secs_f64() * 1e6 / rows as f64
        );
    }
    println!("median of the ratios: {:.2}", median(&mut ratios));
    Ok(())
}

fn record(disk: &str, trace: &Path) -> anyhow::Result<Child> {
    let mut command = nigh()?;
    command.args(["record", "--force", "--disk", disk, "-o"]).arg(trace).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let part = trace.with_extension("parquet.part");
    let begin = Instant::now();
    while !part.exists() {
        ensure!(begin.elapsed() < Duration::from_secs(10), "nigh record does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(child)
}

/// Reads a second, and reads in all.
fn fio(disk: &str, seconds: u64) -> anyhow::Result<(f64, u64)> {
    let mut fio = Command::new("fio");
    fio.args(["--name=reads", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--iodepth=32"]);
    fio.args(["--numjobs=2", "--group_reporting", "--time_based", "--output-format=json"]);
    fio.arg(format!("--filename={disk}")).arg(format!("--runtime={seconds}"));
    let output = fio.output().context("fio")?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let read = &found["jobs"][0]["read"];
    let rate = read["iops"].as_f64().context("fio reports no rate")?;
    Ok((rate, read["total_ios"].as_u64().context("fio reports no number of reads")?))
}
