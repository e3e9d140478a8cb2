//! A guest with Linux 6.12 in which `nigh serve --ublk` runs: a file system is made, written by fio with verification, trimmed and checked; the server
//! is restarted, replaced and killed below it; the device is removed while it is mounted. At last, the rate is measured beside the kernel's NBD client.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use super::{MODULES_OF_6_12, boot, is_possible, kernel, libraries_in, packed_with, place, qemu};
use crate::run::{builds, cargo, check, root};

/// Programs that the guest runs.
const PROGRAMS: [&str; 4] = ["/usr/bin/fio", "/sbin/mke2fs", "/sbin/e2fsck", "/usr/sbin/blkdiscard"];
/// Suites of Debian: the first one has the kernel.
const SUITES: [&str; 2] = ["bookworm-backports", "bookworm"];
/// Packages that are not installed here.
const PACKAGES: [&str; 3] = ["busybox-static", "nbd-client", "libnl-genl-3-200"];
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The folder of libraries in the packages.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// The guest's work.
const START: &str = include_str!("ublk.sh");

/// Starts a guest, prints what it reports, and fails unless it passed.
pub(crate) fn run() -> anyhow::Result<()> {
    if !is_possible("ublk", PROGRAMS.iter().chain(&["/usr/bin/xz", KEYS])) {
        return Ok(());
    }
    let start = Instant::now();
    let folder = root().join("target/guest");
    let tree = folder.join("ublk");
    fs::create_dir_all(tree.join("usr/bin"))?;
    let unpacked = backports(&folder).context("Debian's kernel of bookworm-backports")?;
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh"]))?;
    let own = unpacked.join(LIBRARIES);
    let mut programs: Vec<(PathBuf, PathBuf)> = PROGRAMS.map(|path| (path.into(), path.into())).into();
    programs.push((builds().join("release/nigh"), "/usr/bin/nigh".into()));
    programs.push((unpacked.join("sbin/nbd-client"), "/sbin/nbd-client".into()));
    for (program, path) in programs {
        place(&tree, &program, &path)?;
        for library in libraries_in(&program, Some(&own))? {
            // Libraries of packages are where the guest looks for those that are installed.
            let to = library.strip_prefix(&unpacked).map_or(library.clone(), |inner| Path::new("/").join(inner));
            place(&tree, &library, &to)?;
        }
    }
    let (kernel, image) = (kernel(&unpacked)?, packed_with(&tree, &unpacked, MODULES_OF_6_12, START)?);
    let mut qemu = qemu(&kernel, &image);
    // With the instruction cmpxchg16b, this kernel ends at its start in QEMU 7.2. Two processors, for two queues.
    qemu.args(["-cpu", "max,cx16=off", "-smp", "2", "-m", "1200"]);
    let (mut passed, mut rates) = (false, BTreeMap::<String, Vec<f64>>::new());
    let said = boot(qemu, &image.with_extension("console"), |line| {
        match line.strip_prefix("rate ").and_then(|rest| rest.rsplit_once(' ')) {
            Some((what, rate)) => rates.entry(what.to_owned()).or_default().push(rate.parse()?),
            None => println!("guest: {line}"),
        }
        passed |= line == "passed";
        Ok(())
    })?;
    report(&mut rates);
    println!("{:.0} s", start.elapsed().as_secs_f64());
    ensure!(passed, "the guest did not pass; its console:\n{said}");
    Ok(())
}

/// Prints medians, and their ratio at each depth.
fn report(rates: &mut BTreeMap<String, Vec<f64>>) {
    let medians: BTreeMap<&String, f64> = rates
        .iter_mut()
        .map(|(what, rates)| {
            rates.sort_by(f64::total_cmp);
            (what, rates.get(rates.len() / 2).copied().unwrap_or_default())
        })
        .collect();
    for depth in [1, 16] {
        let of = |front: &str| medians.get(&format!("{front} {depth}")).copied();
        if let (Some(ublk), Some(nbd)) = (of("ublk"), of("nbd")) {
            println!("{depth} at a time: ublk {ublk:.0}/s, nbd-client {nbd:.0}/s: {:.2} times", ublk / nbd);
        }
    }
}

/// Fetches and unpacks the kernel and the packages, unless they are there; installs nothing, and changes nothing that apt knows.
fn backports(folder: &Path) -> anyhow::Result<PathBuf> {
    let (unpacked, apt) = (folder.join("root-6.12"), folder.join("apt-6.12"));
    if kernel(&unpacked).is_ok() {
        return Ok(unpacked);
    }
    for name in ["lists/partial", "cache/archives/partial", "packages"] {
        fs::create_dir_all(apt.join(name))?;
    }
    let sources = SUITES.map(|suite| format!("deb [signed-by={KEYS}] http://deb.debian.org/debian {suite} main\n"));
    fs::write(apt.join("sources.list"), sources.concat())?;
    let run = |program: &str| {
        let mut command = Command::new(program);
        let options = [
            format!("Dir::Etc::SourceList={}", apt.join("sources.list").display()),
            "Dir::Etc::SourceParts=-".into(),
            format!("Dir::State::Lists={}", apt.join("lists").display()),
            format!("Dir::Cache={}", apt.join("cache").display()),
            "APT::Sandbox::User=root".into(),
        ];
        options.iter().for_each(|option| _ = command.args(["-o", option]));
        command.current_dir(apt.join("packages"));
        command
    };
    check(run("apt-get").args(["update", "-qq"]))?;
    let output =
        run("apt-cache").args(["search", "--names-only", "^linux-image-6.12.*-cloud-amd64-unsigned$"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.lines().filter_map(|line| line.split_whitespace().next()).next_back();
    let package = package.context("bookworm-backports has no linux-image-6.12…-cloud-amd64-unsigned")?;
    check(run("apt-get").args(["download", "-qq", package]).args(PACKAGES))?;
    for entry in fs::read_dir(apt.join("packages"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            check(Command::new("dpkg").arg("-x").arg(&path).arg(&unpacked))?;
        }
    }
    Ok(unpacked)
}
