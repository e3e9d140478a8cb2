//! A Debian guest on a disk of 2 ms behind `nigh serve`: how long its work takes, and what is read from the disk, with each rule of
//! read-ahead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{boot, debian, is_possible, kernel, packed, qemu};
use crate::run::{builds, cargo, check, root};

const PACKAGES: &str = "--include=systemd-sysv,udev,sqlite3,postgresql";
const LATENCY: &str = "2ms";
const MEMORY: &str = "256M";

const START: &str = "/bin/busybox mkdir /root
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /sbin/init
";

/// Databases of 120 MB and of 160 MB, and what runs when the guest has started.
const PREPARE: &str = r#"set -e
mount -t proc proc proc
trap 'umount proc' EXIT
chroot . sqlite3 /srv/t.db "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c INTEGER);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250000)
    INSERT INTO t SELECT i, hex(zeroblob(200)), (i * 7919) % 250000 FROM n; CREATE INDEX c ON t (c);"
chroot . su postgres -c 'pg_ctlcluster 15 main start && pgbench -q -i -s 10; pg_ctlcluster 15 main stop'
cat > srv/work <<'END'
#!/bin/sh
phase() {
    echo 3 > /proc/sys/vm/drop_caches
    begun=$(cut -d' ' -f1 /proc/uptime)
    name=$1
    shift
    "$@" > /srv/said 2>&1 || echo "guest: failed $name: $(tail -1 /srv/said)"
    echo "guest: phase $name $begun $(cut -d' ' -f1 /proc/uptime)"
    sleep 2
}
echo "guest: phase boot 0 $(cut -d' ' -f1 /proc/uptime)"
# The system goes on to start in the background.
sleep 20
echo "guest: phase settle 0 20"
sleep 2
phase grep-r sh -c 'grep -r zyx /usr/share /usr/lib /usr/bin > /dev/null; true'
phase sqlite-scan sqlite3 /srv/t.db 'SELECT sum(length(b)) FROM t'
phase sqlite-index sqlite3 /srv/t.db 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    SELECT sum((SELECT length(b) FROM t WHERE c = (i * 104729) % 250000)) FROM n'
phase pg-start pg_ctlcluster 15 main start -o '-c autovacuum=off'
phase pgbench-S su postgres -c 'pgbench -n -S -t 4000 --random-seed=1'
phase pgbench su postgres -c 'pgbench -n -t 500 --random-seed=1'
phase pg-stop pg_ctlcluster 15 main stop
echo "guest: passed"
poweroff
END
chmod +x srv/work
cat > etc/systemd/system/work.service <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/srv/work
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
END
chroot . systemctl -q enable work.service
chroot . systemctl -q disable postgresql.service
chroot . systemctl -q mask serial-getty@ttyS0.service
"#;

/// A part of the guest's work, which begins with nothing in its memory and in the server's.
struct Phase {
    name: String,
    seconds: f64,
    /// The disk's reads and bytes, up to its end.
    reads: u64,
    read_bytes: u64,
}

/// Prints a table with a row for each part of the work.
pub(crate) fn run(rules: &[String]) -> anyhow::Result<()> {
    if !is_possible("read-ahead", ["debootstrap", "mke2fs", "chroot"].iter()) {
        return Ok(());
    }
    let folder = root().join("target/guest");
    fs::create_dir_all(&folder)?;
    let unpacked = debian(&folder).context("Debian's kernel")?;
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh"]))?;
    let system = system(&folder)?;
    let tree = folder.join("readahead");
    fs::create_dir_all(&tree)?;
    let (kernel, image) = (kernel(&unpacked)?, packed(&tree, &unpacked, START)?);
    println!("a disk of {LATENCY}, {MEMORY} of memory: seconds, reads of the disk, MiB of them");
    let mut all = Vec::new();
    for rule in rules {
        all.push(of_rule(rule, &folder, &system, &kernel, &image)?);
        eprintln!("{rule}: done");
    }
    print!("{:14}", "");
    rules.iter().for_each(|rule| print!("{rule:>26}"));
    println!();
    let names = all.first().map_or(0, Vec::len);
    for number in 0..names {
        for (column, phases) in all.iter().enumerate() {
            let phase = phases.get(number).context("a rule has fewer parts")?;
            if column == 0 {
                print!("{:14}", phase.name);
            }
            let mib = phase.read_bytes as f64 / f64::from(1 << 20);
            print!("{:>10.1}{:>8}{:>8.1}", phase.seconds, phase.reads, mib);
        }
        println!();
    }
    Ok(())
}

/// The guest's file system, made once.
fn system(folder: &Path) -> anyhow::Result<PathBuf> {
    let image = folder.join("readahead.ext4");
    if image.exists() {
        return Ok(image);
    }
    eprintln!("making a Debian system, which takes some minutes");
    let tree = folder.join("system");
    if !tree.join("sbin/init").exists() {
        check(Command::new("debootstrap").args(["--variant=minbase", PACKAGES, "bookworm"]).arg(&tree))?;
    }
    check(Command::new("sh").args(["-c", PREPARE]).current_dir(&tree).stdout(Stdio::null()))?;
    let unfinished = image.with_extension("part");
    fs::File::create(&unfinished)?.set_len(2 << 30)?;
    check(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &unfinished]))?;
    fs::remove_dir_all(&tree)?;
    fs::rename(&unfinished, &image)?;
    Ok(image)
}

fn of_rule(rule: &str, folder: &Path, system: &Path, kernel: &Path, image: &Path) -> anyhow::Result<Vec<Phase>> {
    let disk = folder.join("readahead.disk");
    check(Command::new("cp").arg("--sparse=always").args([system, &disk]))?;
    let [socket, control] = ["socket", "control"].map(|name| folder.join(name));
    let nigh = builds().join("release/nigh");
    let mut serve = Command::new(&nigh);
    serve.arg("serve").arg(format!("vm=delay:{LATENCY}:{}", disk.display())).args(["--memory", MEMORY]);
    serve.args(["--readahead", rule, "--log", "error"]);
    serve.arg("--listen").arg(format!("unix:{}", socket.display())).arg("--control").arg(&control);
    let mut server = Server(serve.spawn().context("nigh serve")?);
    let started = Instant::now();
    while status(&nigh, &control).is_err() {
        ensure!(
            started.elapsed() < Duration::from_secs(10) && server.0.try_wait()?.is_none(),
            "nigh serve did not start"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut qemu = qemu(kernel, image);
    qemu.args(["-m", "512"]);
    qemu.arg("-drive").arg(format!("file=nbd+unix:///vm?socket={},format=raw,if=virtio", socket.display()));
    let mut phases: Vec<Phase> = Vec::new();
    let (mut passed, mut before) = (false, (0, 0));
    let said = boot(qemu, &image.with_extension("console"), |line| {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["phase", name, begun, ended] = words[..] {
            let now = status(&nigh, &control)?;
            let seconds = ended.parse::<f64>()? - begun.parse::<f64>()?;
            phases.push(Phase {
                name: name.to_owned(),
                seconds,
                reads: now.0 - before.0,
                read_bytes: now.1 - before.1,
            });
            before = now;
        } else {
            ensure!(line == "passed", "{line}");
            passed = true;
        }
        Ok(())
    })?;
    ensure!(passed, "the guest did not finish; its console:\n{said}");
    let seconds = phases.iter().map(|phase| phase.seconds).sum();
    phases.push(Phase { name: "all".into(), seconds, reads: before.0, read_bytes: before.1 });
    Ok(phases)
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Reads of the disk, and their bytes.
fn status(nigh: &Path, control: &Path) -> anyhow::Result<(u64, u64)> {
    let output = Command::new(nigh).args(["ctl", "status", "--json", "--control"]).arg(control).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout)?;
    let disk = &status["exports"][0];
    let count = |name: &str| disk[name].as_u64().with_context(|| format!("no {name} in {disk}"));
    Ok((count("device_reads")?, count("device_read_bytes")?))
}
