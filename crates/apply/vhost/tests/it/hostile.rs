//! Hostile guests and frontends cannot end the server, read others' memory, or keep others from their disks.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nigh_service::ExportSettings;
use nigh_testkit::virtio::vhost::vhost_user::VhostUserFrontend;
use nigh_testkit::virtio::vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use nigh_testkit::virtio::vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use nigh_testkit::virtio::vm_memory::{Bytes, GuestAddress};
use nigh_testkit::virtio::vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use nigh_testkit::virtio::{FLUSH, GET_ID, Machine, READ, Setup, UNANSWERED, WRITE, memory_file, raw_descriptor};
use rustix::fs::SealFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::tools::{BLOCK, Server, serve, serve_with};

const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// Messages with a descriptor.
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
/// How long a request that gets no answer is waited for.
const SILENCE: Duration = Duration::from_millis(200);

/// A machine that works can use the disk: the server lives, and has what it had.
fn works(server: &Server) {
    let mut machine = server.machine();
    machine.write(8, &[9; BLOCK]);
    assert_eq!(machine.read(8, BLOCK), [9; BLOCK]);
    assert_eq!(machine.read(0, BLOCK), [1; BLOCK], "the first block changed");
}

/// A server whose first block has a pattern.
fn server() -> Server {
    let server = serve("memory:16M", 4);
    server.machine().write(0, &[1; BLOCK]);
    server
}

/// Puts a header somewhere in the memory of request 0.
fn header(machine: &Machine, kind: u32, sector: u64) -> u64 {
    let at = machine.data(0, 0).0 + 64 * 1024;
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    machine.memory.write_slice(&header, GuestAddress(at)).unwrap();
    machine.memory.write_obj(UNANSWERED, GuestAddress(at + 32)).unwrap();
    at
}

/// Makes chains available that are no requests; each becomes used with no bytes, and the queue goes on.
fn malformed(machine: &mut Machine, descriptors: &[(u64, u32, u16, u16)]) {
    for (at, descriptor) in (0..).zip(descriptors) {
        machine.descriptor(0, at, *descriptor);
    }
    machine.offer(0, 0);
    machine.kick(0);
    let done = machine.wait(0);
    assert_eq!((done.len(), done[0].number, done[0].bytes), (1, 0, 0), "{descriptors:x?}");
}

#[test]
fn chains_that_are_no_requests() {
    let server = server();
    let mut machine = server.machine();
    let at = header(&machine, READ, 0);
    let (status, data) = (at + 32, machine.data(0, 0).0);
    let end = machine.region().memory_size;
    // A chain that is a circle, with itself or in two steps.
    malformed(&mut machine, &[(at, 16, NEXT, 0)]);
    malformed(&mut machine, &[(at, 16, NEXT, 1), (data, 512, NEXT | WRITABLE, 2), (data, 512, NEXT | WRITABLE, 1)]);
    // It goes on beyond the table.
    malformed(&mut machine, &[(at, 16, NEXT, 256)]);
    malformed(&mut machine, &[(at, 16, NEXT, 1), (status, 1, NEXT | WRITABLE, 65_535)]);
    // No status, or one that the device may not write.
    malformed(&mut machine, &[(at, 16, 0, 0)]);
    malformed(&mut machine, &[(at, 16, NEXT, 1), (status, 1, 0, 0)]);
    malformed(&mut machine, &[(at, 16, NEXT, 1), (status, 0, WRITABLE, 0)]);
    // No header, or a part of one.
    malformed(&mut machine, &[(status, 1, WRITABLE, 0)]);
    malformed(&mut machine, &[(at, 15, NEXT, 1), (status, 1, WRITABLE, 0)]);
    malformed(&mut machine, &[(at, 0, NEXT, 1), (status, 1, WRITABLE, 0)]);
    // Bytes to read after those to write.
    malformed(&mut machine, &[(status, 1, NEXT | WRITABLE, 1), (at, 16, 0, 0)]);
    // Outside of memory, at its end, or around the end of all addresses.
    for (address, length) in [(end, 512), (end - 511, 512), (u64::MAX - 511, 512), (u64::MAX, 2), (0, u32::MAX)] {
        malformed(&mut machine, &[(at, 16, NEXT, 1), (address, length, NEXT | WRITABLE, 2), (status, 1, WRITABLE, 0)]);
        malformed(&mut machine, &[(address, length, NEXT, 1), (status, 1, WRITABLE, 0)]);
        malformed(&mut machine, &[(at, 16, NEXT, 1), (address, length, WRITABLE, 0)]);
    }
    // More than 2^32 bytes in all: descriptors of the same memory.
    let most = (end as u32 - 4096) & !511;
    let mut long = vec![(at, 16, NEXT, 1)];
    long.extend((2..200).map(|next| (0, most, NEXT | WRITABLE, next)));
    long.push((status, 1, WRITABLE, 0));
    malformed(&mut machine, &long);
    assert_eq!(machine.read(0, BLOCK), [1; BLOCK], "the queue does not go on");
    drop(machine);
    works(&server);
    server.end();
}

#[test]
fn indirect_descriptors() {
    let server = server();
    let mut machine = server.machine();
    let at = header(&machine, READ, 0);
    let (status, data, table) = (at + 32, machine.data(0, 0).0, machine.data(0, 1).0);
    let put = |machine: &Machine, descriptors: &[(u64, u32, u16, u16)]| {
        for (place, (address, length, flags, next)) in (0..).zip(descriptors) {
            let raw = raw_descriptor(*address, *length, *flags, *next);
            machine.memory.write_slice(&raw, GuestAddress(table + 16 * place)).unwrap();
        }
    };
    // As Linux makes them.
    put(&machine, &[(at, 16, NEXT, 1), (data, 4096, NEXT | WRITABLE, 2), (status, 1, WRITABLE, 0)]);
    machine.descriptor(0, 0, (table, 48, INDIRECT, 0));
    machine.offer(0, 0);
    machine.kick(0);
    assert_eq!(machine.wait(0)[0].bytes, 4097);
    let mut block = [0; BLOCK];
    machine.memory.read_slice(&mut block, GuestAddress(data)).unwrap();
    assert_eq!((block, machine.memory.read_obj::<u8>(GuestAddress(status)).unwrap()), ([1; BLOCK], 0));
    // A table in a table, first or later.
    put(&machine, &[(table, 48, INDIRECT, 0)]);
    malformed(&mut machine, &[(table, 48, INDIRECT, 0)]);
    put(&machine, &[(at, 16, NEXT, 1), (table, 48, INDIRECT, 2), (status, 1, WRITABLE, 0)]);
    malformed(&mut machine, &[(table, 48, INDIRECT, 0)]);
    // A circle, and lengths that are no tables.
    put(&machine, &[(at, 16, NEXT, 1), (data, 512, NEXT | WRITABLE, 1)]);
    malformed(&mut machine, &[(table, 32, INDIRECT, 0)]);
    for length in [0, 1, 15, 17, 16 * 65_536, 0xffff_fff0] {
        malformed(&mut machine, &[(table, length, INDIRECT, 0)]);
    }
    // More descriptors than any driver has, of one byte each.
    let raw: Vec<u8> = (1..=16_384u16).flat_map(|next| raw_descriptor(data, 1, NEXT | WRITABLE, next)).collect();
    machine.memory.write_slice(&raw_descriptor(at, 16, NEXT, 1), GuestAddress(table)).unwrap();
    machine.memory.write_slice(&raw[16..], GuestAddress(table + 16)).unwrap();
    malformed(&mut machine, &[(table, raw.len() as u32, INDIRECT, 0)]);
    // Outside of memory.
    malformed(&mut machine, &[(u64::MAX - 15, 48, INDIRECT, 0)]);
    assert_eq!(machine.read(0, BLOCK), [1; BLOCK], "the queue does not go on");
    drop(machine);
    works(&server);
    server.end();
}

#[test]
fn requests_that_fail() {
    let server = server();
    let mut machine = server.machine();
    let end = (16 << 20) / 512;
    // Beyond the end, with sectors that overflow, or parts of sectors.
    assert_eq!(machine.ask(READ, end, 512), 1);
    assert_eq!(machine.ask(READ, end - 1, 1024), 1);
    assert_eq!(machine.ask(READ, u64::MAX / 512, 1024), 1);
    assert_eq!(machine.ask(WRITE, u64::MAX, 512), 1);
    assert_eq!(machine.ask(READ, 0, 511), 1);
    assert_eq!(machine.ask(WRITE, 0, 513), 1);
    // Nothing at all.
    assert_eq!(machine.ask(READ, 0, 0), 0);
    assert_eq!(machine.ask(WRITE, 0, 0), 0);
    // Names that are too short or too long.
    assert_eq!(machine.ask(GET_ID, 0, 0), 0);
    assert_eq!(machine.ask(GET_ID, 0, 3), 0);
    assert_eq!(machine.ask(GET_ID, 0, 4096), 0);
    // Unknown requests, and ranges that are none.
    assert_eq!(machine.ask(77, 0, 512), 2);
    assert_eq!(machine.ask(u32::MAX, 0, 0), 2);
    for kind in [11, 13] {
        assert_eq!(machine.ask(kind, 0, 0), 1);
        assert_eq!(machine.ask(kind, 0, 15), 1);
        assert_eq!(machine.ask(kind, 0, 32), 1);
    }
    assert_eq!(machine.ask(FLUSH, 99, 0), 0);
    assert_eq!(machine.read(0, BLOCK), [1; BLOCK]);
    drop(machine);
    server.end();
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut export = ExportSettings::new("disk", "memory:16M".parse().unwrap());
    export.disk.read_only = true;
    let server = serve_with(export, 4, |_| ());
    let mut machine = server.machine();
    assert_ne!(machine.features & 1 << 5, 0, "VIRTIO_BLK_F_RO");
    assert_eq!(machine.features & (1 << 13 | 1 << 14), 0);
    for kind in [WRITE, 11, 13] {
        assert_eq!(machine.ask(kind, 0, if kind == WRITE { 512 } else { 16 }), 1);
    }
    assert_eq!(machine.ask_range(13, 0, 8, 0), 1);
    assert_eq!(machine.read(0, BLOCK), [0; BLOCK]);
    drop(machine);
    server.end();
}

#[test]
fn a_broken_queue_stops_and_begins_again() {
    let server = server();
    for case in 0..3 {
        let mut machine = server.machine();
        assert_eq!(machine.read(0, BLOCK), [1; BLOCK]);
        let [_, available, _] = machine.rings(0);
        match case {
            // More chains than entries.
            0 => machine.memory.write_obj(1000u16, GuestAddress(available + 2)).unwrap(),
            // A head that is no descriptor.
            1 => machine.offer(0, 256),
            // The same chain twice, while it is in progress.
            _ => {
                machine.submit(0, 1, READ, 0, 512);
                machine.offer(0, 3);
                machine.offer(0, 3);
            }
        }
        machine.kick_anyway(0);
        // It may have been over before it came again.
        let done = machine.wait_for(0, SILENCE);
        assert!(done.len() <= 3, "case {case}: {done:?}");
        // The frontend stops it, as for a reset, and starts it with new rings.
        machine.frontend.get_vring_base(0).unwrap();
        drop(machine);
        works(&server);
    }
    server.end();
}

#[test]
fn memory_that_can_become_shorter_is_refused() {
    let server = server();
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SEAL] {
        let stream = UnixStream::connect(&server.socket).unwrap();
        let mut machine = Machine::prepared(stream, Setup { seals, ..Setup::default() });
        machine.negotiate();
        machine.share_memory().unwrap_err();
    }
    // Files that have no seals, and one that cannot be written.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![0; 1 << 20]).unwrap();
    let sealed = memory_file(1 << 20, SealFlags::SHRINK | SealFlags::WRITE);
    for file in [&file, &File::open("/dev/zero").unwrap(), &sealed] {
        let stream = UnixStream::connect(&server.socket).unwrap();
        let mut machine = Machine::prepared(stream, Setup::default());
        machine.negotiate();
        let region =
            VhostUserMemoryRegionInfo { mmap_handle: file.as_raw_fd(), memory_size: 1 << 20, ..machine.region() };
        machine.frontend.set_mem_table(&[region]).unwrap_err();
    }
    works(&server);
    server.end();
    // Unless the settings allow it.
    let server = serve_with(ExportSettings::new("disk", "memory:16M".parse().unwrap()), 4, |settings| {
        settings.unsealed = true;
    });
    let mut machine = server.machine_with(Setup { seals: SealFlags::empty(), ..Setup::default() });
    machine.write(0, &[3; BLOCK]);
    drop(machine);
    server.end();
}

#[test]
fn regions_that_do_not_fit() {
    let server = server();
    let page = 4096;
    let regions = |machine: &Machine| {
        let whole = machine.region();
        let with = |change: &dyn Fn(&mut VhostUserMemoryRegionInfo)| {
            let mut region = whole;
            change(&mut region);
            region
        };
        vec![
            // Longer than the file, by its offset or by its length.
            with(&|region| region.mmap_offset = page),
            with(&|region| region.memory_size += page),
            with(&|region| region.memory_size = 1 << 46),
            // Not at a page of the file.
            with(&|region| (region.mmap_offset, region.memory_size) = (1, page)),
            // More than the settings allow.
            with(&|region| region.memory_size = 1 << 60),
        ]
    };
    for case in 0..5 {
        let mut machine = Machine::prepared(UnixStream::connect(&server.socket).unwrap(), Setup::default());
        machine.negotiate();
        let region = regions(&machine)[case];
        assert!(machine.frontend.set_mem_table(&[region]).is_err(), "case {case}");
    }
    // Two that overlap.
    let mut machine = Machine::prepared(UnixStream::connect(&server.socket).unwrap(), Setup::default());
    machine.negotiate();
    let whole = machine.region();
    let part = VhostUserMemoryRegionInfo { guest_phys_addr: page, memory_size: page, ..whole };
    machine.frontend.set_mem_table(&[whole, part]).unwrap_err();
    drop(machine);
    works(&server);
    server.end();
}

#[test]
fn five_hundred_and_nine_regions() {
    let server = server();
    let mut machine = server.machine();
    let most = machine.frontend.get_max_mem_slots().unwrap();
    assert_eq!(most, 509);
    let file = memory_file(4096, SealFlags::SHRINK);
    let region = |at: u64| VhostUserMemoryRegionInfo {
        guest_phys_addr: (1 << 40) + at * 8192,
        memory_size: 4096,
        userspace_addr: (1 << 46) + at * 4096,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    };
    for at in 1..most {
        machine.frontend.add_mem_region(&region(at)).unwrap();
        if at % 100 == 0 {
            assert_eq!(machine.read(0, BLOCK), [1; BLOCK]);
        }
    }
    // They are one file: what is read to one is in all.
    let at = header(&machine, READ, 0);
    machine.chain(0, 0, &[(at, 16, 0), ((1 << 40) + 300 * 8192, 4096, 2), (at + 32, 1, 2)]);
    machine.offer(0, 0);
    machine.kick(0);
    assert_eq!(machine.wait(0)[0].bytes, 4097);
    let mut block = [0; BLOCK];
    (&file).read_exact(&mut block).unwrap();
    assert_eq!(block, [1; BLOCK]);
    // One is removed: a request for its memory is none any more.
    machine.frontend.remove_mem_region(&region(300)).unwrap();
    machine.offer(0, 0);
    machine.kick(0);
    assert_eq!(machine.wait(0)[0].bytes, 0);
    machine.frontend.add_mem_region(&region(300)).unwrap();
    machine.frontend.add_mem_region(&region(509)).unwrap_err();
    drop(machine);
    works(&server);
    server.end();
}

#[test]
fn rings_that_are_none() {
    let server = server();
    let fresh = || {
        let mut machine = Machine::prepared(UnixStream::connect(&server.socket).unwrap(), Setup::default());
        machine.negotiate();
        machine.share_memory().unwrap();
        machine
    };
    for entries in [0, 3, 100, 2048, 65_535] {
        assert!(fresh().frontend.set_vring_num(0, entries).is_err(), "{entries}");
    }
    for index in [4, 255] {
        assert!(fresh().frontend.set_vring_num(index, 256).is_err(), "queue {index}");
    }
    let end = fresh().region().memory_size;
    // Outside of memory, or partly.
    for (at, entries) in [(end, 256), (end - 4096 + 16, 256), (1 << 50, 16), (0u64.wrapping_sub(4096), 256)] {
        let machine = fresh();
        let user = machine.region().userspace_addr.wrapping_add(at) & !15;
        let frontend = &machine.frontend;
        let kick = EventFd::new(EFD_NONBLOCK).unwrap();
        let place = VringConfigData {
            queue_max_size: entries,
            queue_size: entries,
            flags: 0,
            desc_table_addr: user,
            used_ring_addr: user,
            avail_ring_addr: user,
            log_addr: None,
        };
        let mut frontend = frontend.clone();
        let tried = frontend
            .set_vring_num(0, entries)
            .and_then(|()| frontend.set_vring_addr(0, &place))
            .and_then(|()| frontend.set_vring_kick(0, &kick))
            .and_then(|()| frontend.set_vring_enable(0, true));
        assert!(tried.is_err(), "{at:x}");
    }
    works(&server);
    server.end();
}

#[test]
fn descriptors_that_are_no_eventfds() {
    let server = server();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    for kind in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
        for descriptors in [&[pipe.as_fd()][..], &[file.as_fd()], &[], &[pipe.as_fd(), file.as_fd()]] {
            let stream = UnixStream::connect(&server.socket).unwrap();
            let machine = Machine::over(stream.try_clone().unwrap(), Setup::default());
            let mut message = [0; 20];
            message[..4].copy_from_slice(&kind.to_le_bytes());
            // Its version, and that it wants a reply.
            message[4..8].copy_from_slice(&9u32.to_le_bytes());
            message[8..12].copy_from_slice(&8u32.to_le_bytes());
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
            }
            sendmsg(&stream, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).unwrap();
            let mut reply = [0; 20];
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // It is refused, or the connection ends.
            let refused = (&stream).read_exact(&mut reply).is_err() || reply[12] == 1;
            assert!(refused, "{kind}");
            drop(machine);
        }
    }
    works(&server);
    server.end();
}

#[test]
fn the_configuration_is_checked() {
    let server = server();
    // QEMU asks before features are agreed on, and shows the guest what it got then.
    let mut early = Machine::prepared(UnixStream::connect(&server.socket).unwrap(), Setup::default());
    early.frontend.get_features().unwrap();
    early.frontend.get_protocol_features().unwrap();
    early.frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG).unwrap();
    assert_eq!(early.config(32, 1), [1], "writeback");
    drop(early);
    let mut machine = server.machine();
    assert_eq!(machine.config(32, 1), [1], "writeback");
    let set = |machine: &mut Machine, offset: u32, bytes: &[u8]| {
        machine.frontend.set_config(offset, VhostUserConfigFlags::WRITABLE, bytes)
    };
    set(&mut machine, 32, &[0]).unwrap();
    assert_eq!(machine.config(32, 1), [0]);
    // Beyond its end, it is zeros.
    assert_eq!(machine.config(60, 100), [0; 100]);
    assert_eq!(machine.config(34, 2), [4, 0], "queues");
    assert!(set(&mut machine, 32, &[2]).is_err());
    for (offset, bytes) in [(0, &[0; 8][..]), (31, &[0; 2]), (32, &[0; 2])] {
        let mut machine = server.machine();
        assert!(set(&mut machine, offset, bytes).is_err(), "{offset}");
    }
    works(&server);
    server.end();
}

#[test]
fn bytes_that_are_no_messages() {
    let server = server();
    fastrand::seed(49);
    for round in 0..200 {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut bytes = vec![0; fastrand::usize(0..200)];
        bytes.fill_with(|| fastrand::u8(..));
        if bytes.len() >= 12 && round % 2 == 0 {
            // A header that is one, with any body.
            bytes[..4].copy_from_slice(&fastrand::u32(0..45).to_le_bytes());
            bytes[4..8].copy_from_slice(&(1 | fastrand::u32(0..2) << 3).to_le_bytes());
            let body = (bytes.len() - 12) as u32;
            bytes[8..12].copy_from_slice(&body.to_le_bytes());
        }
        let _ = stream.write_all(&bytes);
        if round % 3 == 0 {
            let _ = stream.read(&mut [0; 64]);
        }
    }
    works(&server);
    server.end();
}

#[test]
fn a_second_frontend_is_refused_until_the_first_left() {
    let server = server();
    let machine = server.machine();
    let mut second = UnixStream::connect(&server.socket).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(second.read(&mut [0; 1]).unwrap_or(0), 0, "it is served");
    drop(machine);
    works(&server);
    server.end();
}

#[test]
fn a_frontend_leaves_while_requests_are_in_progress() {
    let server = serve("delay:50ms:memory:16M", 4);
    for round in 0..4 {
        let mut machine = server.machine();
        for number in 0..64 {
            let kind = if round % 2 == 0 { READ } else { WRITE };
            machine.submit(0, number, kind, u64::from(number) * 512, 64 * 1024);
        }
        machine.kick(0);
        std::thread::sleep(Duration::from_millis(if round < 2 { 0 } else { 5 }));
        drop(machine);
    }
    server.serves_and_ends();
}

#[test]
fn a_queue_is_drained_before_it_stops() {
    let server = serve("delay:50ms:memory:16M", 4);
    let mut machine = server.machine();
    for number in 0..64 {
        machine.submit(0, number, READ, u64::from(number) * 512, 64 * 1024);
    }
    machine.kick_anyway(0);
    // Some of them are taken by then.
    std::thread::sleep(Duration::from_millis(20));
    let base = machine.frontend.get_vring_base(0).unwrap() as u16;
    let done = machine.take(0);
    assert_eq!(done.len(), usize::from(base), "requests are in progress after the queue stopped");
    assert!(!done.is_empty() && done.iter().all(|done| done.status == 0));
    // Nothing comes afterwards, and it goes on where it was.
    assert!(machine.wait_for(0, SILENCE).is_empty());
    machine.start(0, base).unwrap();
    assert_eq!(machine.wait_all(0, 64 - done.len()).len() + done.len(), 64);
    drop(machine);
    server.end();
}

#[test]
fn memory_changes_while_requests_are_in_progress() {
    let server = serve("delay:20ms:memory:16M", 4);
    let mut machine = server.machine();
    for round in 0..4u8 {
        for number in 0..32u16 {
            let data = machine.data(0, number);
            machine.memory.write_slice(&vec![round + number as u8; BLOCK], data).unwrap();
            machine.submit(0, number, WRITE, u64::from(number) * 8, BLOCK as u32);
        }
        machine.kick(0);
        // The table is replaced by the same one. The queue is drained before, and goes on.
        machine.share_memory().unwrap();
        assert!(machine.wait_all(0, 32).iter().all(|done| done.status == 0));
        for number in 0..32u16 {
            assert_eq!(machine.read(u64::from(number) * 8, BLOCK), vec![round + number as u8; BLOCK]);
        }
    }
    // All of it goes while the queue has requests: they are over before, and it rests until the memory is there again.
    for number in 0..32 {
        machine.submit(0, number, READ, u64::from(number) * 8, BLOCK as u32);
    }
    machine.kick(0);
    let region = machine.region();
    machine.frontend.remove_mem_region(&region).unwrap();
    let over = machine.take(0);
    assert!(over.iter().all(|done| done.status == 0));
    assert!(machine.wait_for(0, SILENCE).is_empty(), "the queue is processed without its memory");
    machine.frontend.add_mem_region(&region).unwrap();
    assert_eq!(machine.wait_all(0, 32 - over.len()).len(), 32 - over.len());
    // Part of it goes, with the rings: the connection ends.
    let other = memory_file(1 << 20, SealFlags::SHRINK);
    let beyond = VhostUserMemoryRegionInfo {
        guest_phys_addr: 1 << 40,
        memory_size: 1 << 20,
        userspace_addr: 1 << 46,
        mmap_offset: 0,
        mmap_handle: other.as_raw_fd(),
    };
    machine.frontend.add_mem_region(&beyond).unwrap();
    assert!(machine.frontend.remove_mem_region(&region).is_err());
    drop(machine);
    server.serves_and_ends();
}

#[test]
fn an_export_is_removed_while_a_machine_has_it() {
    let server = serve("memory:16M", 4);
    let mut machine = server.machine();
    machine.write(0, &[5; BLOCK]);
    server.service.remove("disk", false).unwrap();
    machine.submit(0, 0, READ, 0, 512);
    machine.kick_anyway(0);
    assert!(machine.wait_for(0, SILENCE).is_empty(), "a disk that is gone answers");
    drop(machine);
    // Nobody is served there.
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    let again = ExportSettings::new("disk", "memory:16M".parse().unwrap());
    server.service.add(again).unwrap();
    let mut machine = server.machine();
    assert_eq!(machine.read(0, BLOCK), [0; BLOCK]);
    drop(machine);
    server.end();
}

#[test]
fn statistics_and_uris_have_the_frontend() {
    let server = server();
    let uri = format!("vhost-user:{}", server.socket.display());
    let machine = server.machine();
    let export = server.service.statistics().exports.remove(0);
    assert_eq!((export.uris, export.connections), (vec![uri], 1));
    drop(machine);
    server.end();
}
