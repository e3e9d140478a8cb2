//! A virtual machine as its disk sees it: memory, queues, and a driver of virtio-blk, which talks to a server over vhost-user.
//!
//! One thread drives a machine. Request number `n` of a queue uses the three descriptors from `3 n` on, and 256 KiB of memory of its own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MmapRegion,
};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub use vhost;
pub use virtio_bindings;
pub use vm_memory;
pub use vmm_sys_util;

/// Reads.
pub const READ: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_IN;
/// Writes.
pub const WRITE: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_OUT;
/// Makes what was written stable.
pub const FLUSH: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_FLUSH;
/// Asks for the name.
pub const GET_ID: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_GET_ID;
/// Gives up the contents of a range.
pub const DISCARD: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_DISCARD;
/// Makes a range zeros.
pub const ZEROES: u32 = virtio_bindings::virtio_blk::VIRTIO_BLK_T_WRITE_ZEROES;

/// The status of a request that nobody answered.
pub const UNANSWERED: u8 = 0xaa;

/// Bytes of a request's data at most.
pub const DATA: usize = 256 << 10;
/// Memory of a queue's rings, and of its requests' headers and status.
const RINGS: u64 = 256 << 10;
/// Bytes of a request's header, of a range, and of its status, together.
const HEAD: u64 = 64;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a machine is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its queues.
    pub queues: usize,
    /// Entries of each queue: a power of two, at least 4.
    pub entries: u16,
    /// Features that are not agreed on, although both sides have them.
    pub without: u64,
    /// Seals of its memory.
    pub seals: SealFlags,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { queues: 1, entries: 256, without: 0, seals: SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL }
    }
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number in its queue.
    pub number: u16,
    /// Its status.
    pub status: u8,
    /// Bytes that the device wrote by its own count.
    pub bytes: u32,
}

/// A virtual machine.
pub struct Machine {
    /// The connection to the server.
    pub frontend: Frontend,
    /// Its memory.
    pub memory: GuestMemoryMmap<()>,
    /// The file of its memory.
    pub file: File,
    /// Features that both sides have.
    pub features: u64,
    setup: Setup,
    queues: Vec<Queue>,
}

/// A queue of a machine, as its driver sees it.
struct Queue {
    kick: EventFd,
    call: EventFd,
    /// Waits for the call.
    epoll: Epoll,
    /// The address of its rings.
    at: u64,
    /// The address of its requests' data.
    data: u64,
    entries: u16,
    event_idx: bool,
    available: u16,
    used: u16,
    /// Kicks of the device, and interrupts of the driver.
    kicks: u64,
    interrupts: u64,
}

/// Memory with a name: a file of `bytes` bytes with `seals`.
pub fn memory_file(bytes: u64, seals: SealFlags) -> File {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(bytes).unwrap();
    if !seals.is_empty() {
        fcntl_add_seals(&file, seals).unwrap();
    }
    file
}

/// A connection to the server at `socket`, which may have to start first.
fn stream_to(socket: &Path) -> UnixStream {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{}: {error}", socket.display()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Machine {
    /// A machine that is connected to the server at `socket`, with running queues.
    pub fn connect(socket: &Path, setup: Setup) -> Machine {
        Machine::over(stream_to(socket), setup)
    }

    /// The same over a connection.
    pub fn over(stream: UnixStream, setup: Setup) -> Machine {
        let mut machine = Machine::prepared(stream, setup);
        machine.negotiate();
        machine.share_memory().unwrap();
        (0..machine.setup.queues).for_each(|index| machine.start(index, 0).unwrap());
        machine
    }

    /// A machine that has sent nothing yet.
    pub fn prepared(stream: UnixStream, setup: Setup) -> Machine {
        let of_queue = RINGS + u64::from(setup.entries / 3) * DATA as u64;
        let bytes = of_queue * setup.queues as u64;
        let file = memory_file(bytes, setup.seals);
        let mapped = FileOffset::new(file.try_clone().unwrap(), 0);
        let mapped = GuestRegionMmap::new(MmapRegion::from_file(mapped, bytes as usize).unwrap(), GuestAddress(0));
        let memory = GuestMemoryMmap::from_regions(vec![mapped.unwrap()]).unwrap();
        let queue = |index: u64| {
            let (call, epoll) = (EventFd::new(EFD_NONBLOCK).unwrap(), Epoll::new().unwrap());
            epoll.ctl(ControlOperation::Add, call.as_raw_fd(), EpollEvent::new(EventSet::IN, 0)).unwrap();
            Queue {
                kick: EventFd::new(EFD_NONBLOCK).unwrap(),
                call,
                epoll,
                at: index * of_queue,
                data: index * of_queue + RINGS,
                entries: setup.entries,
                event_idx: false,
                available: 0,
                used: 0,
                kicks: 0,
                interrupts: 0,
            }
        };
        let queues = (0..setup.queues as u64).map(queue).collect();
        let frontend = Frontend::from_stream(stream, setup.queues as u64);
        Machine { frontend, memory, file, features: 0, setup, queues }
    }

    /// Agrees on features.
    pub fn negotiate(&mut self) {
        self.frontend.set_owner().unwrap();
        self.features = self.frontend.get_features().unwrap() & !self.setup.without;
        self.frontend.set_features(self.features).unwrap();
        let protocol = self.frontend.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        self.frontend.set_protocol_features(protocol & wanted).unwrap();
        // Each message is answered.
        self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let event_idx = self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        self.queues.iter_mut().for_each(|queue| queue.event_idx = event_idx);
    }

    /// The memory as the frontend describes it.
    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        let region = self.memory.iter().next().unwrap();
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Gives the server the memory.
    pub fn share_memory(&mut self) -> vhost::Result<()> {
        self.frontend.set_mem_table(&[self.region()]).map(drop)
    }

    /// The frontend's address of one of the guest's.
    pub fn user(&self, at: u64) -> u64 {
        self.region().userspace_addr + at
    }

    /// Addresses of a queue's descriptors, available and used ring, of the guest.
    pub fn rings(&self, index: usize) -> [u64; 3] {
        let queue = &self.queues[index];
        [queue.at, queue.available_ring(), queue.used_ring()]
    }

    /// Starts a queue at an entry of its available ring.
    pub fn start(&mut self, index: usize, base: u16) -> vhost::Result<()> {
        let [descriptors, available, used] = self.rings(index).map(|at| self.user(at));
        let queue = &self.queues[index];
        let (entries, frontend) = (queue.entries, &mut self.frontend);
        frontend.set_vring_num(index, entries)?;
        frontend.set_vring_addr(
            index,
            &VringConfigData {
                queue_max_size: entries,
                queue_size: entries,
                flags: 0,
                desc_table_addr: descriptors,
                used_ring_addr: used,
                avail_ring_addr: available,
                log_addr: None,
            },
        )?;
        frontend.set_vring_base(index, base)?;
        frontend.set_vring_call(index, &queue.call)?;
        frontend.set_vring_kick(index, &queue.kick)?;
        frontend.set_vring_enable(index, true)
    }

    /// Connects to another server with the same memory and queues, as a VMM does whose server is gone: each queue goes on after what became used.
    pub fn reconnect(&mut self, socket: &Path) -> vhost::Result<()> {
        self.frontend = Frontend::from_stream(stream_to(socket), self.queues.len() as u64);
        self.negotiate();
        self.share_memory()?;
        (0..self.queues.len()).try_for_each(|index| {
            let used: u16 = self.memory.read_obj(GuestAddress(self.queues[index].used_ring() + 2)).unwrap();
            self.start(index, used)
        })
    }

    /// The server's configuration of the device: `size` bytes from `offset`.
    pub fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let zeros = vec![0; size as usize];
        self.frontend.get_config(offset, size, VhostUserConfigFlags::empty(), &zeros).unwrap().1
    }

    /// Bytes of the disk.
    pub fn disk_bytes(&mut self) -> u64 {
        u64::from_le_bytes(self.config(0, 8).try_into().unwrap()) * 512
    }

    /// Requests of a queue that can be in progress.
    pub fn requests(&self) -> u16 {
        self.setup.entries / 3
    }

    /// Memory of a request's data.
    pub fn data(&self, queue: usize, number: u16) -> GuestAddress {
        GuestAddress(self.queues[queue].data + u64::from(number) * DATA as u64)
    }

    /// Writes a chain of `descriptors`: address, length, flags beside those for the order.
    pub fn chain(&self, queue: usize, first: u16, descriptors: &[(u64, u32, u32)]) {
        for (at, (address, length, flags)) in (first..).zip(descriptors) {
            let is_last = usize::from(at - first) + 1 == descriptors.len();
            let flags = flags | if is_last { 0 } else { VRING_DESC_F_NEXT };
            self.descriptor(queue, at, (*address, *length, flags as u16, at + 1));
        }
    }

    /// Writes a descriptor: address, length, flags, the next one.
    pub fn descriptor(&self, queue: usize, at: u16, (address, length, flags, next): (u64, u32, u16, u16)) {
        let place = GuestAddress(self.queues[queue].at + 16 * u64::from(at));
        self.memory.write_slice(&raw_descriptor(address, length, flags, next), place).unwrap();
    }

    /// Makes a chain available, without a kick.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let queue = &mut self.queues[queue];
        let at = queue.available_ring() + 4 + 2 * u64::from(queue.available % queue.entries);
        self.memory.write_obj(head, GuestAddress(at)).unwrap();
        queue.available = queue.available.wrapping_add(1);
        self.memory.store(queue.available, GuestAddress(queue.available_ring() + 2), Ordering::Release).unwrap();
    }

    /// Makes request `number` of a queue available, without a kick. Its data, of `bytes` bytes, are at `data`.
    pub fn submit(&mut self, queue: usize, number: u16, kind: u32, sector: u64, bytes: u32) {
        let head = self.queues[queue].head(number);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write_slice(&header, GuestAddress(head)).unwrap();
        self.memory.write_obj(UNANSWERED, GuestAddress(head + 48)).unwrap();
        let data = self.data(queue, number).0;
        let writes = if matches!(kind, READ | GET_ID) { VRING_DESC_F_WRITE } else { 0 };
        let status = (head + 48, 1, VRING_DESC_F_WRITE);
        let whole = [(head, 16, 0), (data, bytes, writes), status];
        let short = [(head, 16, 0), status];
        self.chain(queue, 3 * number, if bytes == 0 { &short } else { &whole });
        self.offer(queue, 3 * number);
    }

    /// Makes a discard, or zeroes, available.
    pub fn submit_range(&mut self, queue: usize, number: u16, kind: u32, sector: u64, sectors: u32, flags: u32) {
        let mut range = [0; 16];
        range[..8].copy_from_slice(&sector.to_le_bytes());
        range[8..12].copy_from_slice(&sectors.to_le_bytes());
        range[12..].copy_from_slice(&flags.to_le_bytes());
        self.memory.write_slice(&range, self.data(queue, number)).unwrap();
        self.submit(queue, number, kind, 0, 16);
    }

    /// Tells the device of new chains since `before` were available, if it wants to know.
    pub fn kick(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        fence(Ordering::SeqCst);
        let wanted = if queue.event_idx {
            let event: u16 =
                self.memory.read_obj(GuestAddress(queue.used_ring() + 4 + 8 * u64::from(queue.entries))).unwrap();
            // At least one is new; which of those does not matter to a driver that may notify too often.
            queue.available.wrapping_sub(event).wrapping_sub(1) < queue.entries
        } else {
            self.memory.read_obj::<u16>(GuestAddress(queue.used_ring())).unwrap() & 1 == 0
        };
        if wanted {
            queue.kicks += 1;
            queue.kick.write(1).unwrap();
        }
    }

    /// Kicks, whatever the device wants.
    pub fn kick_anyway(&self, queue: usize) {
        self.queues[queue].kick.write(1).unwrap();
    }

    /// Takes what is over, without a wait.
    pub fn take(&mut self, queue: usize) -> Vec<Done> {
        let mut done = Vec::new();
        self.take_into(queue, &mut done);
        done
    }

    /// Takes what is over to the end of `done`, without a wait.
    pub fn take_into(&mut self, queue: usize, done: &mut Vec<Done>) {
        let queue = &mut self.queues[queue];
        let index: u16 = self.memory.load(GuestAddress(queue.used_ring() + 2), Ordering::Acquire).unwrap();
        while queue.used != index {
            let at = queue.used_ring() + 4 + 8 * u64::from(queue.used % queue.entries);
            let [head, bytes]: [u32; 2] = self.memory.read_obj(GuestAddress(at)).unwrap();
            let number = head as u16 / 3;
            let status = self.memory.read_obj(GuestAddress(queue.head(number) + 48)).unwrap();
            done.push(Done { number, status, bytes });
            queue.used = queue.used.wrapping_add(1);
        }
    }

    /// Waits until something is over, and takes it: nothing after `most`.
    pub fn wait_for(&mut self, queue: usize, most: Duration) -> Vec<Done> {
        let mut done = Vec::new();
        let begin = Instant::now();
        loop {
            self.take_into(queue, &mut done);
            if !done.is_empty() {
                return done;
            }
            let of = &mut self.queues[queue];
            // It is to interrupt when the next one is over.
            let event = GuestAddress(of.available_ring() + 4 + 2 * u64::from(of.entries));
            self.memory.store(of.used, event, Ordering::Relaxed).unwrap();
            fence(Ordering::SeqCst);
            let index: u16 = self.memory.load(GuestAddress(of.used_ring() + 2), Ordering::Acquire).unwrap();
            if index != of.used {
                continue;
            }
            let Some(left) = most.checked_sub(begin.elapsed()) else { return done };
            let _ = of.epoll.wait(left.as_millis() as i32 + 1, &mut [EpollEvent::default()]);
            if let Ok(interrupts) = of.call.read() {
                of.interrupts += interrupts;
            }
        }
    }

    /// Waits until something is over, and takes it.
    pub fn wait(&mut self, queue: usize) -> Vec<Done> {
        let done = self.wait_for(queue, PATIENCE);
        assert!(!done.is_empty(), "nothing is over");
        done
    }

    /// Waits until `count` requests are over; they are in the order of that.
    pub fn wait_all(&mut self, queue: usize, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            done.append(&mut self.wait(queue));
        }
        done
    }

    /// A request alone; returns its status.
    pub fn ask(&mut self, kind: u32, sector: u64, bytes: u32) -> u8 {
        self.submit(0, 0, kind, sector, bytes);
        self.kick(0);
        let done = self.wait_all(0, 1);
        assert_eq!(done[0].number, 0);
        done[0].status
    }

    /// A discard or zeroes alone; returns its status.
    pub fn ask_range(&mut self, kind: u32, sector: u64, sectors: u32, flags: u32) -> u8 {
        self.submit_range(0, 0, kind, sector, sectors, flags);
        self.kick(0);
        self.wait_all(0, 1)[0].status
    }

    /// Reads, alone.
    pub fn read(&mut self, sector: u64, bytes: usize) -> Vec<u8> {
        assert_eq!(self.ask(READ, sector, bytes as u32), 0, "a read failed");
        let mut data = vec![0; bytes];
        self.memory.read_slice(&mut data, self.data(0, 0)).unwrap();
        data
    }

    /// Writes, alone.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        self.memory.write_slice(data, self.data(0, 0)).unwrap();
        assert_eq!(self.ask(WRITE, sector, data.len() as u32), 0, "a write failed");
    }

    /// Kicks of the device and interrupts of the driver.
    pub fn signals(&self, queue: usize) -> (u64, u64) {
        (self.queues[queue].kicks, self.queues[queue].interrupts)
    }

    /// The eventfds of a queue: the kick and the call.
    pub fn eventfds(&self, queue: usize) -> (&EventFd, &EventFd) {
        (&self.queues[queue].kick, &self.queues[queue].call)
    }
}

/// A descriptor of a queue, as bytes.
pub fn raw_descriptor(address: u64, length: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&address.to_le_bytes());
    raw[8..12].copy_from_slice(&length.to_le_bytes());
    raw[12..14].copy_from_slice(&flags.to_le_bytes());
    raw[14..].copy_from_slice(&next.to_le_bytes());
    raw
}

impl Queue {
    fn available_ring(&self) -> u64 {
        self.at + 16 * u64::from(self.entries)
    }

    fn used_ring(&self) -> u64 {
        (self.available_ring() + 6 + 2 * u64::from(self.entries)).next_multiple_of(64)
    }

    /// Memory of a request's header, and 48 bytes on, of its status.
    fn head(&self, number: u16) -> u64 {
        let rings = self.used_ring() + 6 + 8 * u64::from(self.entries);
        rings.next_multiple_of(HEAD) + u64::from(number) * HEAD
    }
}
