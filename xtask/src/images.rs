//! File system images with what real machines have: Debian with services, made from packages without root.
//!
//! `apt-get` resolves and downloads the packages, as for a machine that has none, `dpkg-deb` unpacks them, and `mke2fs -d`
//! makes a file system of the folder. The packages come from two states of a release: as it was released, and with its
//! updates. The databases of dpkg and apt are there as on a real machine. But no package is configured, so there are no
//! compiled Python files, logs or databases of services.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::run::check;

/// Packages of the machines besides the essential ones, and the names of their images.
const MACHINES: [(&str, &[&str]); 2] = [
    ("web", &["nginx", "php-fpm", "redis-server", "openssh-server"]),
    ("db", &["postgresql", "python3", "rsyslog", "openssh-server"]),
];

const PRIORITIES: [&str; 3] = ["?essential", "?priority(required)", "?priority(important)"];

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The size of an image; most of it is a hole.
const IMAGE: &str = "1500M";

pub(crate) fn images(folder: &Path, release: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let folder = folder.canonicalize()?;
    for state in ["released", "updated"] {
        let apt = Apt::new(&folder.join(state), release, state == "updated")?;
        apt.run(&["update"])?;
        for (machine, packages) in MACHINES {
            let image = folder.join(format!("{machine}-{state}.img"));
            if image.exists() {
                println!("{}: exists", image.display());
                continue;
            }
            let root = folder.join("root");
            unpack(&apt, packages, &root)?;
            let half_made = folder.join("half-made.img");
            let _ = std::fs::remove_file(&half_made);
            // The times, the identifier and the hashes of folders are the same each time.
            let mut make = Command::new("mke2fs");
            make.args(["-q", "-t", "ext4", "-U", "a7f5a3f0-0c2f-4b5e-9d3c-6e1d5b2f7c11"]);
            make.args(["-E", "hash_seed=b3c5a1d2-7e4f-4a6b-8c9d-0e1f2a3b4c5d,root_owner=0:0", "-d"]);
            check(make.arg(&root).arg(&half_made).arg(IMAGE).env("E2FSPROGS_FAKE_TIME", "1700000000"))?;
            std::fs::remove_dir_all(&root)?;
            std::fs::rename(&half_made, &image)?;
            println!("{}", image.display());
        }
    }
    Ok(())
}

/// `apt-get` with folders of its own, on a machine without packages.
struct Apt {
    options: Vec<String>,
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path, release: &str, is_updated: bool) -> anyhow::Result<Apt> {
        ensure!(Path::new(KEYS).exists(), "{KEYS}: missing; it is in the package debian-archive-keyring");
        for part in ["lists/partial", "archives/partial", "nothing/partial"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        let line =
            |place: &str, suite: String| format!("deb [signed-by={KEYS}] http://deb.debian.org/{place} {suite} main\n");
        let mut sources = line("debian", release.to_owned());
        if is_updated {
            sources += &line("debian", format!("{release}-updates"));
            sources += &line("debian-security", format!("{release}-security"));
        }
        std::fs::write(folder.join("sources.list"), sources)?;
        std::fs::write(folder.join("status"), "")?;
        let path = |name: &str| folder.join(name).display().to_string();
        let options = [
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", "-".to_owned()),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache::archives", path("archives")),
            ("Dir::Cache::pkgcache", String::new()),
            ("Dir::Cache::srcpkgcache", String::new()),
            ("Acquire::GzipIndexes", "false".to_owned()),
            ("Debug::NoLocking", "1".to_owned()),
            ("APT::Install-Recommends", "0".to_owned()),
            ("APT::Sandbox::User", String::new()),
        ];
        let options = options.into_iter().flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")]);
        Ok(Apt { options: options.collect(), folder: folder.to_owned() })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-y"]).args(&self.options).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> anyhow::Result<()> {
        check(self.command(args).stdout(std::process::Stdio::null()))
    }
}

/// Downloads packages with what they depend on, and unpacks all into `root`.
fn unpack(apt: &Apt, packages: &[&str], root: &Path) -> anyhow::Result<()> {
    let wanted = [&PRIORITIES, packages].concat();
    // Downloaded packages are not listed; in this folder, there is nothing.
    let nothing = format!("Dir::Cache::archives={}", apt.folder.join("nothing").display());
    let list = [&["-o", &nothing, "install", "--print-uris"], &wanted[..]].concat();
    let listed = apt.command(&list).output().context("apt-get")?;
    ensure!(listed.status.success(), "apt-get: {}", String::from_utf8_lossy(&listed.stderr));
    // 'URI' FILE SIZE HASH
    let listed = String::from_utf8(listed.stdout)?;
    let lines = listed.lines().filter(|line| line.starts_with('\''));
    let files: Vec<&str> = lines.filter_map(|line| line.split(' ').nth(1)).collect();
    ensure!(files.len() > 100, "apt-get lists {} packages, too few for a system", files.len());
    apt.run(&[&["install", "--download-only"], &wanted[..]].concat())?;
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    let [info, lists] = ["var/lib/dpkg/info", "var/lib/apt/lists"].map(|path| root.join(path));
    std::fs::create_dir_all(&info)?;
    let mut status = String::new();
    let control = apt.folder.join("control");
    for file in files {
        let archive = apt.folder.join("archives").join(file);
        check(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(root))?;
        check(Command::new("dpkg-deb").arg("-e").arg(&archive).arg(&control))?;
        let package = file.split('_').next().unwrap_or(file);
        for entry in std::fs::read_dir(&control)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == "control" {
                let about = std::fs::read_to_string(entry.path())?;
                status += &about.replacen('\n', "\nStatus: install ok installed\n", 1);
                status.push('\n');
            } else {
                std::fs::copy(entry.path(), info.join(format!("{package}.{}", name.display())))?;
            }
        }
        std::fs::remove_dir_all(&control)?;
    }
    std::fs::write(root.join("var/lib/dpkg/status"), status)?;
    std::fs::create_dir_all(&lists)?;
    for entry in std::fs::read_dir(apt.folder.join("lists"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), lists.join(entry.file_name()))?;
        }
    }
    Ok(())
}
