//! Guests with Debian's kernel and cgroup v2, emulated in software, that show what the guard, advice or read-ahead does there.

pub(crate) mod readahead;
pub(crate) mod restarts;
mod server;
pub(crate) mod ublk;
pub(crate) mod vhost;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::run::{cargo, check, root};

/// How long a guest may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// A machine without the processor's help, which not every machine has that is virtual itself.
const MACHINE: [&str; 6] = ["-accel", "tcg", "-cpu", "max", "-smp", "1"];

/// The modules that a virtio disk needs, in the order of loading.
const MODULES: &[&str] = &[
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
];

/// Those of Linux 6.12, where virtio is not a module: the driver of ublk, and the client of NBD.
const MODULES_OF_6_12: &[&str] = &["drivers/block/ublk_drv.ko.xz", "drivers/block/nbd.ko.xz"];

const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
";

/// A loop over 84 MiB in 64 MiB, and `grep -r` over 49 MB in 44 MB: what devices read plain, recorded, and three times with advice.
/// The program enters its group, and nigh does not.
const ADVISED: &str = r#"PATH=/usr/bin:/bin
/bin/busybox --install -s /bin
mkdir -p /dev/shm /mnt
mount -t tmpfs -o size=600M tmpfs /dev/shm
mount -t ext4 /dev/vda /mnt
cd /mnt
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
passed=passed
# GROUP LIMIT MOST PROGRAM [cold]: of the advised runs but the first, none may read more than MOST bytes. If it is cold, nothing is
# cached before a run.
compare() {
    mkdir /sys/fs/cgroup/$1
    echo $2 > /sys/fs/cgroup/$1/memory.max
    inside="echo \$\$ > /sys/fs/cgroup/$1/cgroup.procs; $4; code=\$?; grep ^read_bytes /proc/\$\$/io > reads; exit \$code"
    for run in plain recorded first second third; do
        rm -f reads
        [ -z "$5" ] || echo 3 > /proc/sys/vm/drop_caches
        if [ $run = plain ]; then dash -c "$inside"; else nigh advise --profile $1.aoio -- /bin/dash -c "$inside"; fi > out 2> said
        bytes=$(cut -d' ' -f2 reads)
        echo "guest: $1 $run: $bytes bytes from the disk; $(cut -c1-200 said | tr '\n' ' ')"
        case $run in
            plain|recorded) [ "$bytes" -gt $3 ] || passed="failed: $1 $run" ;;
            second|third) [ "$bytes" -le $3 ] || passed="failed: $1 $run" ;;
        esac
    done
}
compare loop 67108864 226492416 'loop data 4' cold
compare tree 44000000 20000000 'grep -rc zyx tree'
echo "guest: $passed"
poweroff -f
"#;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Subject of a run in a guest.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Part {
    /// The effect of `memory.low`
    Cases,
    /// The guard itself, between two programs that thrash
    Whole,
    /// The same as a service of systemd, by its unit
    Systemd,
    /// The effect of advice for the page cache
    #[value(skip)]
    Advise,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Cases => "cases",
            Part::Whole => "whole",
            Part::Systemd => "systemd",
            Part::Advise => "advise",
        }
    }

    /// Programs that make its disk, and what runs in it.
    fn tools(self) -> &'static [&'static str] {
        match self {
            Part::Cases | Part::Whole | Part::Systemd => &["mkswap"],
            Part::Advise => &["mke2fs", "gcc"],
        }
    }

    fn megabytes(self) -> &'static str {
        match self {
            Part::Cases | Part::Whole | Part::Systemd => "220",
            Part::Advise => "1200",
        }
    }

    /// Programs of this machine that it needs.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Part::Cases | Part::Whole => &[],
            Part::Systemd => &[SYSTEMD, "/usr/bin/systemctl", "/usr/bin/systemd-run"],
            Part::Advise => &["/bin/dash", "/bin/grep"],
        }
    }

    /// Command of the first process.
    fn start(self) -> String {
        let swap = "/bin/busybox swapon /dev/vda";
        match self {
            Part::Cases | Part::Whole => format!("{swap}\n/usr/bin/guest {}\n/bin/busybox poweroff -f\n", self.name()),
            Part::Systemd => format!("{swap}\nexec {SYSTEMD} --unit=guest.service\n"),
            Part::Advise => ADVISED.to_owned(),
        }
    }

    /// Files that are built here for it, and their places in the guest.
    fn built(self) -> &'static [(&'static str, &'static str)] {
        const GUARD: &[(&str, &str)] =
            &[("examples/guest", "/usr/bin/guest"), ("nigh", "/usr/bin/nigh"), ("nigh-guard", "/usr/bin/nigh-guard")];
        match self {
            Part::Cases => GUARD.split_at(1).0,
            Part::Whole | Part::Systemd => GUARD,
            Part::Advise => &[("nigh", "/usr/bin/nigh")],
        }
    }
}

/// Starts a guest, prints what it reports, and fails unless it passed.
pub(crate) fn run(part: Part) -> anyhow::Result<()> {
    if !is_possible(part.name(), part.tools().iter().chain(part.programs())) {
        return Ok(());
    }
    let start = Instant::now();
    let folder = root().join("target/guest");
    fs::create_dir_all(&folder)?;
    let unpacked = debian(&folder).context("Debian's kernel")?;
    build(part)?;
    let (kernel, image) = (kernel(&unpacked)?, initramfs(&folder, &unpacked, part)?);
    let disk = if matches!(part, Part::Advise) { data(&folder)? } else { swap(&folder)? };
    let mut qemu = qemu(&kernel, &image);
    qemu.args(["-m", part.megabytes()]);
    // Programs thrash only where they wait for a slow disk.
    let throttle = if matches!(part, Part::Cases | Part::Advise) { "" } else { ",throttling.iops-total=500" };
    qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe{throttle}", disk.display()));
    let mut passed = false;
    let said = boot(qemu, &image.with_extension("console"), |line| {
        println!("guest: {line}");
        passed |= line == "passed";
        Ok(())
    })?;
    println!("{:.0} s", start.elapsed().as_secs_f64());
    ensure!(passed, "the guest did not pass; its console:\n{said}");
    Ok(())
}

/// Whether a guest can run here. If not, why not is printed.
fn is_possible<'a>(name: &str, mut tools: impl Iterator<Item = &'a &'a str>) -> bool {
    let needed = ["qemu-system-x86_64", "apt-get", "dpkg", "ldd"];
    let missing = needed.iter().find(|tool| !is_installed(tool)).or_else(|| tools.find(|tool| !is_installed(tool)));
    let possible = cfg!(target_arch = "x86_64") && missing.is_none();
    if !possible {
        let reason = missing.map_or("the guest is an x86-64".into(), |tool| format!("{tool} is not installed"));
        println!("skipped: guest {name}: {reason}");
    }
    possible
}

fn swap(folder: &Path) -> anyhow::Result<PathBuf> {
    let swap = folder.join("swap");
    fs::File::create(&swap)?.set_len(256 << 20)?;
    check(Command::new("mkswap").arg("-q").arg(&swap))?;
    Ok(swap)
}

/// A file system with a file of 84 MiB, and a tree of 49 MB.
fn data(folder: &Path) -> anyhow::Result<PathBuf> {
    let (files, disk) = (folder.join("files"), folder.join("data"));
    fs::create_dir_all(files.join("tree"))?;
    let line = "all that is read again and again\n";
    let write =
        |path: &Path, bytes: usize| fs::write(path, line.repeat(bytes / line.len() + 1).get(..bytes).unwrap_or(line));
    write(&files.join("data"), 84 << 20)?;
    let (mut number, mut total) = (0, 0);
    while total < 49_000_000 {
        let bytes = 2_000 + number * 7919 % 78_000;
        write(&files.join("tree").join(number.to_string()), bytes)?;
        (number, total) = (number + 1, total + bytes);
    }
    fs::File::create(&disk)?.set_len(256 << 20)?;
    check(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-d"]).args([&files, &disk]))?;
    Ok(disk)
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/sbin".into(), "/usr/sbin".into()]);
    folders.map(|folder| folder.join(tool)).any(|path| path.is_file())
}

/// Fetches and unpacks kernel and busybox, unless they are there; installs nothing.
fn debian(folder: &Path) -> anyhow::Result<PathBuf> {
    let unpacked = folder.join("root");
    if kernel(&unpacked).is_ok() {
        return Ok(unpacked);
    }
    let output = Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.context("apt-cache knows no linux-image-cloud-amd64: run `apt-get update`")?;
    check(Command::new("apt-get").args(["download", "-qq", package, "busybox-static"]).current_dir(folder))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            check(Command::new("dpkg").arg("-x").arg(&path).arg(&unpacked))?;
        }
    }
    Ok(unpacked)
}

fn kernel(unpacked: &Path) -> anyhow::Result<PathBuf> {
    let boot = unpacked.join("boot");
    let entries = fs::read_dir(&boot).with_context(|| boot.display().to_string())?;
    let is_kernel = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    entries.flatten().map(|entry| entry.path()).find(is_kernel).context("no kernel was unpacked")
}

fn build(part: Part) -> anyhow::Result<()> {
    if !matches!(part, Part::Advise) {
        check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh-guard", "--example", "guest"]))?;
    }
    if matches!(part, Part::Cases) {
        return Ok(());
    }
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh"]))
}

fn initramfs(folder: &Path, unpacked: &Path, part: Part) -> anyhow::Result<PathBuf> {
    let tree = folder.join(part.name());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let release = target.join("release");
    let built = part.built().iter().map(|(program, path)| (release.join(program), *path));
    fs::create_dir_all(tree.join("usr/bin"))?;
    for (program, path) in built.chain(part.programs().iter().map(|path| (path.into(), *path))) {
        place(&tree, &program, Path::new(path))?;
        for library in libraries(&program)? {
            place(&tree, &library, &library)?;
        }
    }
    if matches!(part, Part::Systemd) {
        units(&tree)?;
    }
    if matches!(part, Part::Advise) {
        let source = root().join("crates/cli/tests/it/recorded/loop.c");
        check(Command::new("gcc").args(["-O1", "-o"]).args([tree.join("usr/bin/loop"), source]))?;
    }
    packed(&tree, unpacked, &part.start())
}

/// The archive that a guest starts with: a tree, with busybox, the modules for its disk, and what its first process does.
fn packed(tree: &Path, unpacked: &Path, start: &str) -> anyhow::Result<PathBuf> {
    packed_with(tree, unpacked, MODULES, start)
}

/// The same with these modules, which may be compressed.
fn packed_with(tree: &Path, unpacked: &Path, modules: &[&str], start: &str) -> anyhow::Result<PathBuf> {
    for name in ["bin", "dev", "modules", "proc", "run", "sys", "tmp", "var/tmp"] {
        fs::create_dir_all(tree.join(name))?;
    }
    let busybox = unpacked.join("bin/busybox");
    fs::copy(&busybox, tree.join("bin/busybox"))?;
    let versions = unpacked.join("lib/modules");
    let version = fs::read_dir(&versions)?.flatten().next().context("no modules were unpacked")?.path();
    let mut order = String::new();
    for module in modules {
        let (from, name) = (version.join("kernel").join(module), Path::new(module).file_name());
        let name = name.and_then(|name| name.to_str()).context("a module has a name")?;
        let plain = name.trim_end_matches(".xz");
        let to = tree.join("modules").join(plain);
        match plain == name {
            true => _ = fs::copy(&from, &to).with_context(|| from.display().to_string())?,
            false => check(Command::new("xz").arg("-dc").arg(&from).stdout(fs::File::create(&to)?))?,
        }
        order.push_str(&format!("{plain}\n"));
    }
    fs::write(tree.join("modules/order"), order)?;
    fs::write(tree.join("init"), format!("{INIT}{start}"))?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    let image = tree.with_extension("cpio");
    let shell = r#"find . | "$0" cpio -o -H newc >"$1""#;
    check(Command::new("sh").args(["-c", shell]).args([&busybox, &image]).current_dir(tree).stderr(Stdio::null()))?;
    Ok(image)
}

/// Copies a file to where the guest has it.
fn place(tree: &Path, from: &Path, path: &Path) -> anyhow::Result<()> {
    let to = tree.join(path.strip_prefix("/")?);
    fs::create_dir_all(to.parent().context("it is in a folder")?)?;
    fs::copy(from, &to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// The guard's unit as it is shipped, those that it depends on, and what a limit and the test need.
fn units(tree: &Path) -> anyhow::Result<()> {
    let folder = Path::new("/etc/systemd/system");
    place(tree, &root().join("crates/apply/guard/systemd/nigh-guard.service"), &folder.join("nigh-guard.service"))?;
    for target in ["basic", "shutdown", "sysinit"].map(|name| format!("{name}.target")) {
        place(tree, &Path::new("/lib/systemd/system").join(&target), &folder.join(&target))?;
    }
    let told = "[Service]\nStandardError=append:/run/guard.log\n";
    let test = "[Unit]\nDefaultDependencies=no\n\n[Service]\nType=oneshot\nExecStart=/usr/bin/guest systemd\n\
                ExecStopPost=/bin/busybox poweroff -f\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/ttyS0\n";
    for (name, text) in
        [("nigh-guard.service.d/log.conf", told), ("guest.service", test), ("box.slice", "[Slice]\nMemoryMax=100M\n")]
    {
        let path = tree.join(folder.strip_prefix("/")?).join(name);
        fs::create_dir_all(path.parent().context("it is in a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Libraries that a program is linked with, and their loader.
fn libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    libraries_in(program, None)
}

/// The same, where some are in `folder`.
fn libraries_in(program: &Path, folder: Option<&Path>) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut ldd = Command::new("ldd");
    folder.iter().for_each(|folder| _ = ldd.env("LD_LIBRARY_PATH", folder));
    let output = ldd.arg(program).output().context("ldd")?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// A guest without a disk yet, whose console is the standard output.
fn qemu(kernel: &Path, image: &Path) -> Command {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(MACHINE).args(["-nographic", "-no-reboot", "-net", "none"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
    qemu
}

/// Runs a guest to its end, calls `report` for each line that it reports while it runs, and returns all that its console has.
fn boot(
    mut qemu: Command,
    console: &Path,
    mut report: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut guest = qemu.stdin(Stdio::null()).stdout(fs::File::create(console)?).spawn().context("qemu")?;
    let start = Instant::now();
    let mut reported = 0;
    loop {
        let ended = guest.try_wait()?.is_some();
        let said = String::from_utf8_lossy(&fs::read(console)?).replace('\r', "");
        let whole = said.get(..said.rfind('\n').map_or(0, |end| end + 1)).unwrap_or_default();
        // The firmware leaves something on the console before the first line.
        let lines: Vec<&str> = whole.lines().filter_map(|line| Some(line.split_once("guest: ")?.1)).collect();
        for line in lines.get(reported..).unwrap_or_default() {
            report(line)?;
        }
        reported = lines.len();
        if ended {
            return Ok(said);
        }
        if start.elapsed() > PATIENCE {
            guest.kill().and_then(|()| guest.wait())?;
            bail!("the guest did not end in {} s; its console:\n{said}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
