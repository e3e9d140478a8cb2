//! A guest with ext4 on a disk of `nigh serve` over NBD, whose server is restarted, replaced and killed while the guest works.
//!
//! In the guest, fio writes past the page cache and reads back everything that was acknowledged, and a file system exerciser, if it is installed, works through
//! a page cache that is often dropped. Its server ends in order and starts again, is replaced (`--replace`), and is killed with `--write-mode through` and with a write log: the guest
//! must see no error. At last it is killed in write-back mode: the guest must see an error, and no older data.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::server::{Server, nigh};
use super::{boot, debian, is_possible, kernel, libraries, packed, place, qemu};
use crate::run::{builds, cargo, check, root};

/// Programs that the guest runs.
const PROGRAMS: [&str; 3] = ["/usr/bin/fio", "/sbin/mke2fs", "/sbin/e2fsck"];
const DISK_BYTES: u64 = 128 << 20;
/// How long the guest's requests wait for a server, in seconds.
const RECONNECT: &str = "20";
/// How long a server may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The guest's work. The first byte of its second disk is the command of the host: `e` to end the work, `c` after its server was killed in write-back mode.
const START: &str = r#"PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /dev/shm /mnt
mount -t tmpfs tmpfs /dev/shm
fail() { echo "guest: failed: $1"; dmesg | tail -5 | while read line; do echo "guest: kernel: $line"; done; poweroff -f; }
asked() { echo 1 > /proc/sys/vm/drop_caches; dd if=/dev/vdb bs=1 count=1 2> /dev/null; }
/sbin/mke2fs -q -t ext4 -E nodiscard /dev/vda || fail mke2fs
# Its pages are written soon, and dropped at each look at the second disk.
mount -t ext4 -o commit=1 /dev/vda /mnt || fail mount
echo 50 > /proc/sys/vm/dirty_writeback_centisecs
runs=0
if [ -x /usr/bin/fsx ]; then
    while [ ! -e /tmp/stop ]; do
        /usr/bin/fsx -q -N 1000 -S $((runs += 1)) -P /tmp /mnt/fsx > /tmp/fsx 2>&1 || { echo "fsx: $(tail -3 /tmp/fsx)" > /tmp/failed; break; }
        echo $runs > /tmp/runs
    done &
fi
echo "guest: ready"
rounds=0
while [ "$(asked)" != e ]; do
    /usr/bin/fio --name=work --filename=/mnt/work --rw=randwrite --bs=4k --size=4M --ioengine=psync --direct=1 --fsync=16 --verify=crc32c \
        --verify_fatal=1 --do_verify=1 --randseed=$((rounds += 1)) --minimal > /tmp/fio 2>&1 || fail "fio: $(tail -1 /tmp/fio)"
    [ ! -e /tmp/failed ] || fail "$(cat /tmp/failed)"
done
touch /tmp/stop
wait
[ ! -e /tmp/failed ] || fail "$(cat /tmp/failed)"
umount /mnt || fail umount
/sbin/e2fsck -fn /dev/vda > /tmp/check 2>&1 || fail "e2fsck: $(tail -3 /tmp/check)"
! dmesg | grep -i 'i/o error' > /tmp/errors || fail "$(head -1 /tmp/errors)"
echo "guest: worked: $rounds times fio, $(cat /tmp/runs) times fsx"
# Acknowledged in the server's memory, and not flushed.
dd if=/dev/zero bs=4096 count=64 2> /dev/null | tr '\0' a | dd of=/dev/vda bs=262144 count=1 oflag=direct 2> /dev/null || fail "the last write"
echo "guest: kill"
while [ "$(asked)" != c ]; do sleep 1; done
if dd if=/dev/vda of=/tmp/read bs=262144 count=1 iflag=direct 2> /tmp/dd; then fail "reads work after a kill in write-back mode"; fi
echo "guest: after the kill, reads fail: $(head -1 /tmp/dd)"
echo "guest: passed"
poweroff -f
"#;

/// How the server ends and begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Orderly,
    Replace,
    KillThrough,
    KillLog,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Orderly, "ended in order and started"),
    (Way::Replace, "replaced"),
    (Way::KillThrough, "killed with --write-mode through"),
    (Way::KillLog, "killed with a write log"),
];

/// The place of everything in a run.
struct Site {
    disk: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    control: PathBuf,
}

/// Starts a guest, and restarts its server `rounds` times in each way. Prints what the guest reports, and fails unless it passed.
pub(crate) fn run(rounds: u32) -> anyhow::Result<()> {
    if !is_possible("restarts", PROGRAMS.iter()) {
        return Ok(());
    }
    let start = Instant::now();
    let folder = root().join("target/guest");
    let tree = folder.join("restarts");
    fs::create_dir_all(tree.join("usr/bin"))?;
    let unpacked = debian(&folder).context("Debian's kernel")?;
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh"]))?;
    let fsx = builds().join("tools/bin/fsx");
    let mut programs: Vec<(PathBuf, PathBuf)> = PROGRAMS.map(|path| (path.into(), path.into())).into();
    match fsx.exists() {
        true => programs.push((fsx, "/usr/bin/fsx".into())),
        false => println!("without fsx, which is not installed (cargo xtask test --install)"),
    }
    for (program, path) in programs {
        place(&tree, &program, &path)?;
        for library in libraries(&program)? {
            place(&tree, &library, &library)?;
        }
    }
    let (kernel, image) = (kernel(&unpacked)?, packed(&tree, &unpacked, START)?);
    let [disk, log, socket, control, flag] =
        ["disk", "log", "socket", "control", "flag"].map(|name| folder.join(format!("restarts.{name}")));
    for old in [&log, &disk.with_extension("disk.nigh-write-log"), &socket, &control] {
        // It may not be there.
        let _ = fs::remove_file(old);
    }
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    fs::write(&flag, [b'.'; 512])?;
    let site = Site { disk, log, socket, control };
    let mut server = Some(site.start(Way::Orderly, &[])?);
    let mut qemu = qemu(&kernel, &image);
    qemu.args(["-m", "768"]);
    qemu.arg("-blockdev").arg(format!(
        "driver=nbd,node-name=disk,server.type=unix,server.path={},export=root,reconnect-delay={RECONNECT}",
        site.socket.display()
    ));
    qemu.args(["-device", "virtio-blk-pci,drive=disk"]);
    qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=writethrough,readonly=on", flag.display()));
    let mut passed = false;
    let said = boot(qemu, &image.with_extension("console"), |line| {
        println!("guest: {line}");
        match line {
            "ready" => {
                for (way, name) in WAYS {
                    let mut longest = Duration::ZERO;
                    // From the options of the way before.
                    server.take().context("it runs")?.end()?;
                    server = Some(site.start(way, &[])?);
                    for round in 0..rounds {
                        site.wait_for_writes()?;
                        std::thread::sleep(Duration::from_millis(u64::from(round) * 37 % 200));
                        let begun = Instant::now();
                        server = Some(site.again(way, server.take().context("it runs")?)?);
                        longest = longest.max(begun.elapsed());
                    }
                    println!(
                        "{name}: {rounds} rounds, at most {:.2} s from its end to the next one",
                        longest.as_secs_f64()
                    );
                }
                // Without its log, the disk is served when that is empty.
                let mut drain = nigh();
                check(drain.args(["ctl", "export", "drain", "root", "--control"]).arg(&site.control))?;
                server.take().context("it runs")?.end()?;
                server = Some(site.start(Way::Orderly, &[])?);
                fs::write(&flag, [b'e'; 512])?;
            }
            "kill" => {
                drop(server.take());
                server = Some(site.start(Way::Orderly, &[])?);
                fs::write(&flag, [b'c'; 512])?;
            }
            _ => passed |= line == "passed",
        }
        Ok(())
    })?;
    println!("{:.0} s", start.elapsed().as_secs_f64());
    ensure!(passed, "the guest did not pass; its console:\n{said}");
    Ok(())
}

impl Site {
    fn start(&self, way: Way, more: &[&str]) -> anyhow::Result<Server> {
        let mut serve = nigh();
        let target = format!("root={}", self.disk.display());
        match way {
            Way::Orderly | Way::Replace => serve.arg("serve").arg(target),
            Way::KillThrough => serve.arg("serve").arg(target).args(["--write-mode", "through"]),
            Way::KillLog => serve.arg("serve").arg(format!("{target},write-log={}:32M", self.log.display())),
        };
        serve.args(["--memory", "32M", "--log", "warn"]).args(more);
        serve.arg("--listen").arg(format!("unix:{}", self.socket.display())).arg("--control").arg(&self.control);
        let server = Server::start(&mut serve)?;
        if more.is_empty() { server.listening(&self.socket, PATIENCE) } else { Ok(server) }
    }

    /// Waits until the guest has written something to the server.
    fn wait_for_writes(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let mut ctl = nigh();
            let output = ctl.args(["ctl", "status", "--json", "--control"]).arg(&self.control).output()?;
            // The server may not listen yet.
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if status["exports"][0]["writes"].as_u64() > Some(0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the guest writes nothing")
    }

    /// The next server, in place of `server`.
    fn again(&self, way: Way, mut server: Server) -> anyhow::Result<Server> {
        match way {
            Way::Orderly => server.end()?,
            Way::Replace => {
                let mut next = self.start(way, &["--replace"])?;
                let begin = Instant::now();
                let status = loop {
                    if let Some(status) = server.ended()? {
                        break status;
                    }
                    let ended = next.ended()?;
                    ensure!(ended.is_none() && begin.elapsed() < PATIENCE, "the next server does not serve: {ended:?}");
                    std::thread::sleep(Duration::from_millis(5));
                };
                ensure!(status.success(), "the server that was replaced ended with {status}");
                return Ok(next);
            }
            Way::KillThrough | Way::KillLog => drop(server),
        }
        self.start(way, &[])
    }
}
