//! A guest whose disk is `nigh serve --vhost-user`: a file system is made, written by fio with verification, trimmed, and checked, and the server is
//! restarted below the running guest.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::server::{Server, nigh};
use super::{boot, debian, is_possible, kernel, libraries, packed, place, qemu};
use crate::run::{cargo, check, root};

/// Programs that the guest runs.
const PROGRAMS: [&str; 3] = ["/usr/bin/fio", "/sbin/mke2fs", "/sbin/e2fsck"];
const DISK_BYTES: u64 = 256 << 20;

/// The guest's work. Its server is restarted when it reports `restart`, and killed when it reports `kill`.
const START: &str = r#"PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /dev/shm /mnt
mount -t tmpfs tmpfs /dev/shm
# By their paths, since the shell of busybox prefers its own.
fail() { echo "guest: failed: $1"; poweroff -f; }
verified() {
    /usr/bin/fio --name=$1 --directory=/mnt --rw=randrw --bs=4k-64k --size=24M --ioengine=psync --numjobs=2 --fsync=32 --verify=crc32c \
        --verify_fatal=1 --do_verify=1 --minimal > /tmp/fio 2>&1 || fail "fio $1: $(tail -1 /tmp/fio)"
    echo "guest: fio $1 verified"
}
echo "guest: disk of $(cat /sys/block/vda/size) sectors, serial $(cat /sys/block/vda/serial), cache $(cat /sys/block/vda/cache_type)"
[ "$(cat /sys/block/vda/cache_type)" = "write back" ] || fail "it does not flush"
/sbin/mke2fs -q -t ext4 -E nodiscard /dev/vda || fail mke2fs
mount -t ext4 /dev/vda /mnt || fail mount
verified before
rm /mnt/before*
sync
fstrim -v /mnt > /tmp/trim || fail fstrim
echo "guest: $(cat /tmp/trim)"
# Reads and writes while the server ends and begins again.
/usr/bin/fio --name=during --directory=/mnt --rw=randrw --bs=4k --size=8M --ioengine=psync --time_based --runtime=20 --verify=crc32c \
    --verify_fatal=1 --minimal > /tmp/during 2>&1 &
sleep 3
echo "guest: restart"
wait $! || fail "fio during the restart: $(tail -1 /tmp/during)"
echo "guest: fio over the restart verified"
verified after
umount /mnt || fail umount
/sbin/e2fsck -fn /dev/vda > /tmp/check 2>&1 || fail "e2fsck: $(tail -3 /tmp/check)"
mount -t ext4 /dev/vda /mnt || fail mount
echo "guest: kill"
sleep 5
# Without its page cache, it reads everything again.
echo 3 > /proc/sys/vm/drop_caches
if dd if=/dev/vda of=/dev/null bs=64k count=64 2> /tmp/dd; then fail "reads work after the server was killed"; fi
echo "guest: after the kill, reads fail: $(head -1 /tmp/dd)"
echo "guest: passed"
poweroff -f
"#;

/// Starts a guest, prints what it reports, and fails unless it passed.
pub(crate) fn run() -> anyhow::Result<()> {
    if !is_possible("vhost", PROGRAMS.iter()) {
        return Ok(());
    }
    let start = Instant::now();
    let folder = root().join("target/guest");
    let tree = folder.join("vhost");
    fs::create_dir_all(tree.join("usr/bin"))?;
    let unpacked = debian(&folder).context("Debian's kernel")?;
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh"]))?;
    for program in PROGRAMS.map(Path::new) {
        place(&tree, program, program)?;
        for library in libraries(program)? {
            place(&tree, &library, &library)?;
        }
    }
    let (kernel, image) = (kernel(&unpacked)?, packed(&tree, &unpacked, START)?);
    let (disk, socket) = (folder.join("vhost.disk"), folder.join("vhost.socket"));
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    let mut server = Some(serve(&disk, &socket)?);
    let mut qemu = qemu(&kernel, &image);
    qemu.args(["-m", "512", "-object", "memory-backend-memfd,id=mem,size=512M,share=on"]);
    qemu.args(["-machine", "q35,memory-backend=mem"]);
    qemu.arg("-chardev").arg(format!("socket,id=disk,path={},reconnect=1", socket.display()));
    qemu.args(["-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"]);
    let mut passed = false;
    let said = boot(qemu, &image.with_extension("console"), |line| {
        println!("guest: {line}");
        match line {
            "restart" => {
                server.take().context("it runs")?.end()?;
                server = Some(serve(&disk, &socket)?);
            }
            "kill" => {
                drop(server.take());
                server = Some(serve(&disk, &socket)?);
            }
            _ => passed |= line == "passed",
        }
        Ok(())
    })?;
    println!("{:.0} s", start.elapsed().as_secs_f64());
    ensure!(passed, "the guest did not pass; its console:\n{said}");
    Ok(())
}

fn serve(disk: &Path, socket: &Path) -> anyhow::Result<Server> {
    let mut serve = nigh();
    serve.arg("serve").arg(format!("root={}", disk.display())).args(["--memory", "32M", "--log", "warn"]);
    serve.arg("--vhost-user").arg(format!("root={}", socket.display()));
    Server::start(&mut serve)?.listening(socket, Duration::from_secs(10))
}
