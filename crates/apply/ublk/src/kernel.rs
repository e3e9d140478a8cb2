//! The kernel's ublk driver: the structures of `linux/ublk_cmd.h`, and the requests to it that have no safe interface.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, register, squeue};
use rustix::ioctl::opcode::{read, read_write};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::commands::Command;
use crate::request::Descriptor;

/// The file that takes commands for all devices.
pub(crate) const CONTROL: &str = "/dev/ublk-control";

/// A device stays when its server ends, for another server.
pub(crate) const USER_RECOVERY: u64 = 1 << 3;
/// Requests that a server had when it ended go to the next one.
pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands have numbers as those of ioctl.
pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// The server copies data by reading and writing the device's character device.
pub(crate) const USER_COPY: u64 = 1 << 7;

/// Bytes that a queue's descriptors may take in the character device, for the deepest queue.
const DESCRIPTORS_BYTES: u64 = (DEPTH_MAX * size_of::<RawDescriptor>()) as u64;
/// The deepest queue of the driver.
pub(crate) const DEPTH_MAX: usize = 4096;

/// The place of requests' data in the character device, and the bits of it that are a request's own.
const DATA: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = TAG_SHIFT + 16;
/// Bytes of a request at most.
pub(crate) const DATA_MAX: u32 = 1 << TAG_SHIFT;

/// The place of a request's data in the character device.
pub(crate) fn place(queue: u16, tag: u16) -> u64 {
    DATA + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT)
}

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ControlCommand {
    device: u32,
    queue: u16,
    length: u16,
    address: u64,
    data: u64,
    path_length: u16,
    padding: u16,
    reserved: u32,
}

/// `struct ublksrv_io_cmd`.
#[repr(C)]
struct QueueCommand {
    queue: u16,
    tag: u16,
    result: i32,
    address: u64,
}

/// `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawDescriptor {
    op_flags: u32,
    sectors: u32,
    start: u64,
    address: u64,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) padding: u16,
    /// Bytes of a request at most.
    pub(crate) request_bytes: u32,
    pub(crate) device: u32,
    /// The process that serves it, or served it last.
    pub(crate) process: i32,
    pub(crate) padding_too: u32,
    /// Features of the driver.
    pub(crate) flags: u64,
    /// Kept for the server.
    pub(crate) own: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) reserved: [u64; 2],
}

/// The state of a device that nobody can use.
pub(crate) const DEAD: u16 = 0;
/// The state of a device with a server.
pub(crate) const LIVE: u16 = 1;
/// The state of a device that waits for a server.
pub(crate) const QUIESCED: u16 = 2;

/// `struct ublk_params`, as far as it is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) length: u32,
    pub(crate) types: u32,
    pub(crate) attributes: u32,
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    pub(crate) best_shift: u8,
    pub(crate) least_shift: u8,
    pub(crate) sectors_max: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) sectors: u64,
    pub(crate) virtual_boundary: u64,
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) discard_sectors_max: u32,
    pub(crate) zeroes_sectors_max: u32,
    pub(crate) discard_segments_max: u16,
    pub(crate) reserved: u16,
}

/// Parameters of the disk, and of discards and zeroes.
pub(crate) const BASIC_AND_DISCARD: u32 = 0b11;
/// The disk cannot be written.
pub(crate) const READ_ONLY: u32 = 1 << 0;
/// Writes are stable after a flush only.
pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
/// Single writes can be stable when they are over.
pub(crate) const FUA: u32 = 1 << 3;

const GROUP: u8 = b'u';

/// Commands for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Returns its `Info`.
    GetInfo,
    /// Makes it, without its disk, as `Info` describes it, and returns that.
    Add,
    /// Removes it, and waits for the last use of its disk, unless the kernel need not wait.
    Delete,
    DeleteWithoutWaiting,
    /// Begins its disk.
    Start,
    /// Ends its disk.
    Stop,
    SetParameters,
    GetParameters,
    BeginRecovery,
    EndRecovery,
    /// Returns what the driver can do.
    GetFeatures,
}

impl Order {
    const fn number(self) -> u32 {
        match self {
            Order::GetInfo => read::<ControlCommand>(GROUP, 0x02),
            Order::Add => read_write::<ControlCommand>(GROUP, 0x04),
            Order::Delete => read_write::<ControlCommand>(GROUP, 0x05),
            Order::Start => read_write::<ControlCommand>(GROUP, 0x06),
            Order::Stop => read_write::<ControlCommand>(GROUP, 0x07),
            Order::SetParameters => read_write::<ControlCommand>(GROUP, 0x08),
            Order::GetParameters => read::<ControlCommand>(GROUP, 0x09),
            Order::BeginRecovery => read_write::<ControlCommand>(GROUP, 0x10),
            Order::EndRecovery => read_write::<ControlCommand>(GROUP, 0x11),
            Order::GetFeatures => read::<ControlCommand>(GROUP, 0x13),
            Order::DeleteWithoutWaiting => read::<ControlCommand>(GROUP, 0x14),
        }
    }
}

/// Contents of `Control::command`'s memory: plain numbers, of which every pattern of bits is one.
pub(crate) trait Plain: Copy {}

impl Plain for Info {}
impl Plain for Parameters {}
impl Plain for u64 {}

/// Bytes of the memory for commands.
const MEMORY: usize = 256;

/// Sends commands for devices, with the rights of its beginning: also after its process gave those up. Its ring takes nothing but
/// such commands.
pub(crate) struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    personality: u16,
    /// The kernel reads and writes it during a command.
    memory: Box<[u64; MEMORY / 8]>,
}

impl Control {
    /// Fails if the driver is not there, the process may not use it, or the system has no io_uring.
    pub(crate) fn open() -> io::Result<Control> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let ring = IoUring::builder().dontfork().setup_r_disabled().build(2)?;
        let personality = ring.submitter().register_personality()?;
        let mut only = [register::Restriction::sqe_op(opcode::UringCmd80::CODE)];
        ring.submitter().register_restrictions(&mut only)?;
        ring.submitter().register_enable_rings()?;
        Ok(Control { ring, file, personality, memory: Box::new([0; MEMORY / 8]) })
    }

    /// Carries `order` out for `device`. `data` is one number for it, and `contents` what it reads or writes.
    pub(crate) fn command<T: Plain>(
        &mut self,
        order: Order,
        device: u32,
        data: u64,
        contents: Option<&mut T>,
    ) -> io::Result<()> {
        const { assert!(size_of::<T>() <= MEMORY && align_of::<T>() <= 8) };
        let at = self.memory.as_mut_ptr().cast::<T>();
        if let Some(contents) = &contents {
            // SAFETY: the memory is large enough and aligned, as is asserted above, and no command is in progress.
            unsafe { at.write(**contents) };
        }
        let (address, length) = if contents.is_some() { (at as u64, size_of::<T>() as u16) } else { (0, 0) };
        let command =
            ControlCommand { device, queue: u16::MAX, length, address, data, path_length: 0, padding: 0, reserved: 0 };
        let mut bytes = [0; 80];
        // SAFETY: it is a structure of numbers without gaps, and there are as many bytes.
        bytes[..size_of::<ControlCommand>()].copy_from_slice(unsafe {
            std::slice::from_raw_parts((&raw const command).cast::<u8>(), size_of::<ControlCommand>())
        });
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), order.number()).cmd(bytes).build();
        // SAFETY: `memory` stays until the completion, for which the loop below waits; if it cannot, the memory is leaked.
        unsafe { self.ring.submission().push(&entry.personality(self.personality)) }.expect("the queue is empty");
        let result = loop {
            if let Some(entry) = self.ring.completion().next() {
                break entry.result();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match error.raw_os_error() {
                    Some(errno)
                        if [rustix::io::Errno::AGAIN, rustix::io::Errno::NOMEM]
                            .map(|known| known.raw_os_error())
                            .contains(&errno) =>
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => {
                        std::mem::forget(std::mem::replace(&mut self.memory, Box::new([0; MEMORY / 8])));
                        return Err(error);
                    }
                },
            }
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        if let Some(contents) = contents {
            // SAFETY: as above; the command is complete, and every pattern of bits is a `Plain`.
            *contents = unsafe { at.read() };
        }
        Ok(())
    }
}

/// The descriptors of a queue's requests, which the kernel writes.
pub(crate) struct Descriptors {
    start: NonNull<RawDescriptor>,
    bytes: usize,
    depth: u16,
}

// SAFETY: it is memory of the process that every thread may read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// Those of a queue of the character device `device`.
    pub(crate) fn map(device: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let bytes = (usize::from(depth) * size_of::<RawDescriptor>()).next_multiple_of(rustix::param::page_size());
        let offset = u64::from(queue) * DESCRIPTORS_BYTES;
        // SAFETY: the kernel chooses the place, so no other memory changes.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, device, offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Descriptors { start, bytes, depth })
    }

    /// The request of this tag, which the server has.
    pub(crate) fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth);
        // SAFETY: it is within the mapped memory. The kernel does not write it while the server has the request, and every pattern of
        // bits is one.
        let raw = unsafe { self.start.add(usize::from(tag)).read_volatile() };
        Descriptor { op_flags: raw.op_flags, sectors: raw.sectors, start: raw.start }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the memory any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The user data of the watch over another thread's wake-up calls; commands have their tag.
const WATCH: u64 = u64::MAX;
const FETCH: u32 = read_write::<QueueCommand>(GROUP, 0x20);
const COMMIT_AND_FETCH: u32 = read_write::<QueueCommand>(GROUP, 0x21);

/// A completion of a queue's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Of the command of a tag, with its result.
    Tag(u16, i32),
    /// Another thread woke this one.
    Woken,
}

/// The ring of a queue's thread, which made it.
pub(crate) struct Ring {
    ring: IoUring,
    queue: u16,
    /// Registered: the device is open for as long as the ring.
    _device: Arc<File>,
}

impl Ring {
    /// The ring of `queue`, with up to `depth` commands.
    pub(crate) fn new(device: &Arc<File>, queue: u16, depth: u16) -> io::Result<Ring> {
        let entries = (u32::from(depth) + 1).next_power_of_two();
        // Requests come when this thread waits for them, together.
        let ring = IoUring::builder().dontfork().setup_single_issuer().setup_defer_taskrun().build(entries)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        Ok(Ring { ring, queue, _device: device.clone() })
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the entries have no memory of this process, and their files stay open: one is registered, and the thread that owns
        // the ring has the other.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there are as many entries as tags, and one more");
    }

    /// Has a command ready for the next `enter`.
    pub(crate) fn command(&mut self, command: Command) {
        let (number, tag, result) = match command {
            Command::Fetch { tag } => (FETCH, tag, 0),
            Command::Commit { tag, result } => (COMMIT_AND_FETCH, tag, result),
        };
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        self.push(opcode::UringCmd16::new(Fixed(0), number).cmd(bytes).build().user_data(tag.into()));
    }

    /// Has a watch ready for the next `enter`: it completes when `signal` is readable.
    pub(crate) fn watch(&mut self, signal: BorrowedFd<'_>) {
        const READABLE: u32 = 1;
        self.push(opcode::PollAdd::new(Fd(signal.as_raw_fd()), READABLE).build().user_data(WATCH));
    }

    /// Gives commands to the kernel. Waits until there is a completion, for `most` if that is given, unless it need not wait.
    pub(crate) fn enter(&mut self, wait: bool, most: Option<Duration>) -> io::Result<()> {
        loop {
            let result = match (wait, most) {
                (true, Some(most)) => {
                    let most = Timespec::from(most);
                    self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&most))
                }
                (true, None) => self.ring.submit_and_wait(1),
                (false, _) if self.ring.submission().is_empty() => return Ok(()),
                (false, _) => self.ring.submit(),
            };
            match result.map_err(|error| (error.raw_os_error().map(rustix::io::Errno::from_raw_os_error), error)) {
                Ok(_) if !wait && !self.ring.submission().is_empty() => {}
                Ok(_) => return Ok(()),
                Err((Some(rustix::io::Errno::TIME | rustix::io::Errno::INTR | rustix::io::Errno::BUSY), _)) => {
                    return Ok(());
                }
                Err((Some(rustix::io::Errno::AGAIN | rustix::io::Errno::NOMEM), _)) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        Some(match entry.user_data() {
            WATCH => Completion::Woken,
            tag => Completion::Tag(tag as u16, entry.result()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and numbers as a C compiler prints them for `linux/ublk_cmd.h`.
    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(size_of::<QueueCommand>(), 16);
        assert_eq!(size_of::<RawDescriptor>(), 24);
        assert_eq!(size_of::<Info>(), 64);
        assert_eq!(size_of::<Parameters>(), 64);
        assert_eq!(Order::GetInfo.number(), 0x8020_7502);
        assert_eq!(Order::Add.number(), 0xc020_7504);
        assert_eq!(Order::DeleteWithoutWaiting.number(), 0x8020_7514);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(DESCRIPTORS_BYTES, 98_304);
        assert_eq!(place(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }
}
