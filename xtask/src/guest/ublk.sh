PATH=/usr/bin:/bin:/sbin
/bin/busybox --install -s /bin
mkdir -p /dev/shm /mnt
mount -t tmpfs -o size=500M tmpfs /dev/shm
mount -t tmpfs tmpfs /run
ip link set lo up
fail() {
    echo "guest: failed: $1"
    tail -3 /tmp/served | while read line; do echo "guest: nigh: $line"; done
    dmesg | tail -5 | while read line; do echo "guest: kernel: $line"; done
    poweroff -f
}
served=0
memory=32M
# begin OPTIONS: starts a server, which goes on or makes a device: $device. Its log is in /tmp/served.
begin() {
    nigh serve data=/dev/shm/disk --ublk data --memory $memory --control /run/nigh.control --listen unix:/run/nigh.socket --stop-within 60s "$@" > /tmp/served 2>&1 &
    served=$!
    for at in $(seq 300); do
        device=$(sed -n 's/.*data is \(\/dev\/ublkb[0-9]*\).*/\1/p' /tmp/served)
        [ -z "$device" ] || return 0
        kill -0 $served 2> /dev/null || fail "nigh serve ended"
        sleep 0.1
    done
    fail "nigh serve has no device"
}
end() {
    kill -TERM $served
    wait $served || fail "nigh serve ended with $?"
}
killed() { kill -9 $served; wait $served 2> /dev/null; }
verified() {
    /usr/bin/fio --name=$1 --directory=/mnt --rw=randrw --bs=4k-64k --size=16M --ioengine=psync --numjobs=2 --fsync=32 --verify=crc32c \
        --verify_fatal=1 --do_verify=1 --minimal > /tmp/fio 2>&1 || fail "fio $1: $(tail -1 /tmp/fio)"
    rm /mnt/$1*
    echo "guest: fio $1 verified"
}
# Writes past the page cache and reads again for a time, in the background.
work() {
    /usr/bin/fio --name=work --directory=/mnt --rw=randrw --bs=4k --size=8M --ioengine=psync --direct=1 --time_based --runtime=$1 --verify=crc32c \
        --verify_fatal=1 --minimal > /tmp/work 2>&1 &
    working=$!
}
worked() {
    wait $working || fail "fio over $1: $(tail -1 /tmp/work)"
    echo "guest: fio over $1 verified"
}
make() {
    /sbin/mke2fs -q -F -t ext4 -E nodiscard $device || fail mke2fs
    mount -t ext4 $device /mnt || fail mount
}
unmade() {
    umount /mnt || fail umount
    /sbin/e2fsck -fn $device > /tmp/check 2>&1 || fail "e2fsck: $(tail -3 /tmp/check)"
}

head -c 134217728 /dev/urandom > /dev/shm/disk
begin
[ $(cat /sys/block/${device#/dev/}/size) = 262144 ] || fail "its size"
[ "$(cat /sys/block/${device#/dev/}/queue/write_cache)" = "write back" ] || fail "it does not flush"
cmp $device /dev/shm/disk || fail "it is another disk"
nigh ctl status --control /run/nigh.control --json | grep -q "ublk:$device" || fail "nigh ctl does not show it"
echo "guest: $device has the disk, in $(ls -d /sys/block/${device#/dev/}/mq/* | wc -l) queues"
blkdiscard $device || fail blkdiscard
head -c 134217728 /dev/zero | cmp $device - || fail "discarded blocks are not zeros"
make
verified before
sync
fstrim -v /mnt > /tmp/trim || fail fstrim
echo "guest: $(cat /tmp/trim)"

work 15
sleep 3
end
[ -e $device ] || fail "a mounted device was removed"
begin
worked "an orderly end and start"
work 15
sleep 3
before=$served
begin --replace
wait $before || fail "the server that was replaced ended with $?"
worked "a replacement"
verified after
unmade
end
[ ! -e $device ] || fail "a device that is not in use stays"
echo "guest: an unused device is removed"

begin --write-mode through
make
for round in 1 2 3; do
    work 10
    sleep 3
    killed
    begin --write-mode through
    worked "a kill in write-through mode"
done
unmade
end

begin
make
dd if=/dev/zero bs=4096 count=64 2> /dev/null | tr '\0' a > /mnt/file
sync
# Acknowledged in the server's memory, and not flushed.
tr a b < /mnt/file | dd of=/mnt/file bs=262144 count=1 conv=notrunc oflag=direct 2> /dev/null || fail "the last write"
killed
# It waits for a server.
dd if=/mnt/file of=/tmp/read bs=262144 count=1 iflag=direct 2> /tmp/dd &
reading=$!
sleep 2
kill -0 $reading 2> /dev/null || fail "a read did not wait for the next server"
old=$device
begin
wait $reading && fail "reads work after a kill in write-back mode: $(head -c 1 /tmp/read)"
dd if=/mnt/file of=/tmp/read bs=262144 count=1 iflag=direct 2> /tmp/dd && fail "reads work after a kill in write-back mode"
[ $device != $old ] || fail "the device goes on after a kill in write-back mode"
echo "guest: after a kill in write-back mode, reads fail: $(head -1 /tmp/dd); $device is the new device"
umount /mnt

make
work 30
sleep 2
nigh ctl export remove data --control /run/nigh.control > /tmp/ctl 2>&1 || fail "export remove: $(tail -1 /tmp/ctl)"
wait $working && fail "writes work after the device was removed"
[ ! -e $device ] || fail "a removed device is there"
umount /mnt
echo "guest: removed while mounted: $(tail -1 /tmp/work | cut -c1-100)"
kill -0 $served || fail "nigh serve ended with its device"
end

memory=160M
begin
/sbin/nbd-client -unix /run/nigh.socket -N data -b 4096 /dev/nbd0 > /tmp/nbd 2>&1 || fail "nbd-client: $(tail -1 /tmp/nbd)"
cat $device /dev/nbd0 > /dev/null
for round in 1 2 3; do
    for depth in 1 16; do
        for front in ublk:$device nbd:/dev/nbd0; do
            /usr/bin/fio --name=rate --filename=${front#*:} --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=$depth --time_based --runtime=4 \
                --readonly --minimal > /tmp/rate 2>&1 || fail "fio: $(tail -1 /tmp/rate)"
            echo "guest: rate ${front%%:*} $depth $(cut -d';' -f8 /tmp/rate)"
        done
    done
done
/sbin/nbd-client -d /dev/nbd0 > /dev/null
end
echo "guest: passed"
poweroff -f
