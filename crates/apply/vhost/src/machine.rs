//! A frontend's requests: the features, memory and queues of one virtual machine's disk.
//!
//! 1. A queue runs while it has entries, addresses, memory and a kick, and is enabled. Then a thread has it.
//! 2. Before any of that changes, the thread takes no more chains and ends when none is in progress.
//! 3. A queue that begins where an earlier server ended is the queue of a guest that goes on. It may, if the earlier server had written everything
//!    back. Otherwise its requests fail.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

use nigh_host::front::lock;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_FLUSH};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::features::{self, WRITEBACK_AT};
use crate::mail::Mail;
use crate::memory::{Memory, MemoryError, Place, REGIONS_MAX, Table};
use crate::ring::{self, Call, ENTRIES_MAX, Ring};
use crate::worker::{Common, Events, Worker};

/// Stack of a queue's thread.
const STACK: usize = 256 << 10;
/// The link of an eventfd in /proc/self/fd.
const EVENTFD: &str = "anon_inode:[eventfd]";

/// The state of a frontend's disk.
pub(crate) struct Machine {
    common: Arc<Common>,
    /// A guest may go on where it was with an earlier server.
    may_resume: bool,
    features: u64,
    /// As the configuration has it, also before features are agreed on. It has its effect with VIRTIO_BLK_F_FLUSH.
    writeback: bool,
    table: Table,
    memory: Option<Arc<Memory>>,
    queues: Vec<Queue>,
    /// Some queue ran.
    pub(crate) ran: bool,
}

#[derive(Default)]
struct Queue {
    entries: u16,
    /// Of its descriptors, available and used ring, in the frontend's addresses.
    rings: Option<[u64; 3]>,
    base: u16,
    /// The guest goes on with a queue that it had with an earlier server, and may not.
    stale: bool,
    /// It was stopped here, where `base` is.
    stopped_at: Option<u16>,
    kick: Option<OwnedFd>,
    call: Call,
    error: Option<Arc<OwnedFd>>,
    enabled: bool,
    running: Option<Running>,
}

struct Running {
    mail: Arc<Mail>,
    thread: JoinHandle<u16>,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

/// An eventfd of the frontend. Other descriptors could be anything.
fn eventfd(file: File) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let file = OwnedFd::from(file);
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
    if link.as_os_str() != EVENTFD {
        return Err(failed("a descriptor of a queue is no eventfd"));
    }
    Ok(file)
}

impl Machine {
    /// A disk with at most this many queues.
    pub(crate) fn new(common: Arc<Common>, table: Table, queues: usize, may_resume: bool) -> Machine {
        Machine {
            common,
            may_resume,
            features: 0,
            writeback: true,
            table,
            memory: None,
            queues: (0..queues).map(|_| Queue::default()).collect(),
            ran: false,
        }
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn has_protocol(&self) -> bool {
        self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
    }

    /// Ends the thread of a queue, when no request is in progress.
    fn stop(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let Some(Running { mail, thread }) = queue.running.take() else { return };
        mail.stop();
        match thread.join() {
            Ok(base) => queue.base = base,
            Err(_) => tracing::error!(id = self.common.id, "the thread of a queue panicked"),
        }
        queue.stopped_at = Some(queue.base);
    }

    /// Ends the threads of all queues.
    pub(crate) fn stop_all(&mut self) {
        // All at once.
        self.queues.iter().filter_map(|queue| queue.running.as_ref()).for_each(|running| running.mail.stop());
        (0..self.queues.len()).for_each(|index| self.stop(index));
    }

    /// Whether a guest that went on without what was acknowledged is still there.
    pub(crate) fn has_failed(&self) -> bool {
        self.common.failed.load(Ordering::Relaxed)
    }

    /// Starts the queue if it can run.
    fn start(&mut self, index: usize) -> Result<()> {
        let is_enabled = !self.has_protocol() || self.queues[index].enabled;
        let queue = &self.queues[index];
        if !is_enabled || queue.running.is_some() {
            return Ok(());
        }
        let (Some(memory), Some(rings), Some(kick)) = (&self.memory, queue.rings, &queue.kick) else { return Ok(()) };
        if queue.entries == 0 {
            return Ok(());
        }
        let [descriptors, available, used] = rings.map(|user| self.table.guest(user));
        let outside = || failed("the rings of a queue are outside of the guest's memory");
        let place = ring::Place {
            entries: queue.entries,
            descriptors: descriptors.ok_or_else(outside)?,
            available: available.ok_or_else(outside)?,
            used: used.ok_or_else(outside)?,
            base: queue.base,
            event_idx: features::has(self.features, VIRTIO_RING_F_EVENT_IDX),
        };
        let ring = Ring::new(place, memory, &queue.call).map_err(failed)?;
        let mail = Arc::new(Mail::new(queue.entries.into()).map_err(failed)?);
        let events = Events::new(kick.try_clone().map_err(failed)?, &mail).map_err(failed)?;
        let worker = Worker::new(&self.common, &mail, ring, Some(events), queue.error.clone());
        let thread = Builder::new().name("vhost-queue".into()).stack_size(STACK);
        let thread = thread.spawn(move || worker.run()).map_err(failed)?;
        self.queues[index].running = Some(Running { mail, thread });
        self.ran = true;
        Ok(())
    }

    /// Stops a queue, changes it, and starts it again.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Queue)) -> Result<()> {
        self.queue(index)?;
        self.stop(index as usize);
        change(self.queue(index)?);
        self.start(index as usize)
    }

    /// Stops all queues, changes the memory, and starts those that can run.
    fn change_memory(&mut self, change: impl FnOnce(&mut Table) -> std::result::Result<(), MemoryError>) -> Result<()> {
        self.stop_all();
        let changed = change(&mut self.table);
        if let Err(error) = &changed {
            tracing::warn!(id = self.common.id, %error, "a region of a guest's memory cannot be used");
        }
        self.memory = self.table.memory();
        (0..self.queues.len()).try_for_each(|index| self.start(index))?;
        changed.map_err(failed)
    }

    fn set_writeback(&mut self, wanted: bool) {
        self.writeback = wanted;
        let flushes = features::has(self.features, VIRTIO_BLK_F_FLUSH);
        self.common.writeback.store(wanted && flushes, Ordering::Relaxed);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn place_of(region: &VhostUserSingleMemoryRegion) -> Place {
    Place {
        guest: region.guest_phys_addr,
        bytes: region.memory_size,
        user: region.user_addr,
        offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Machine {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("reset"))
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features::features(self.common.export.disk.read_only()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !features::features(false) & !features::features(true) != 0 {
            return Err(Error::InvalidParam);
        }
        if features != self.features && self.queues.iter().any(|queue| queue.running.is_some()) {
            return Err(Error::InvalidOperation("features change while queues run"));
        }
        self.features = features;
        self.set_writeback(self.writeback);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(features::protocol())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        if features & !features::protocol().bits() != 0 { Err(Error::InvalidParam) } else { Ok(()) }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.queues.len() as u64)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let place = |region: &VhostUserMemoryRegion| Place {
            guest: region.guest_phys_addr,
            bytes: region.memory_size,
            user: region.user_addr,
            offset: region.mmap_offset,
        };
        let regions = regions.iter().map(place).zip(files).collect();
        self.change_memory(|table| table.replace(regions))?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        self.change_memory(|table| table.add(place_of(region), file))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.change_memory(|table| table.remove(&place_of(region)))
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let entries = u16::try_from(entries).ok().filter(|count| count.is_power_of_two() && *count <= ENTRIES_MAX);
        let entries = entries.ok_or(Error::InvalidParam)?;
        self.change(index, |queue| queue.entries = entries)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        self.change(index, |queue| queue.rings = Some([descriptors, available, used]))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.queue(index)?;
        self.stop(index as usize);
        let may_resume = self.may_resume;
        let queue = self.queue(index)?;
        queue.base = base;
        if queue.stopped_at != Some(base) {
            queue.stale = base != 0 && !may_resume;
        }
        let is_stale = self.queues.iter().any(|queue| queue.stale);
        if is_stale && !self.common.failed.swap(is_stale, Ordering::Relaxed) {
            let disk = self.common.export.disk.name();
            tracing::error!(
                disk,
                "a guest goes on after a server that did not end as it should: its requests fail until it starts anew"
            );
        }
        self.common.failed.store(is_stale, Ordering::Relaxed);
        self.start(index as usize)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.queue(index)?;
        self.stop(index as usize);
        let queue = self.queue(index)?;
        // The frontend sends others before the queue runs again.
        queue.kick = None;
        Ok(VhostUserVringState::new(index, queue.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let kick = eventfd(file.ok_or(Error::InvalidOperation("a queue without a kick"))?)?;
        self.change(index.into(), |queue| queue.kick = Some(kick))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(eventfd).transpose()?.map(Arc::new);
        let queue = self.queue(index.into())?;
        if let Some(call) = &call
            && queue.running.is_some()
        {
            // The last interrupt may have gone to the one before.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
        *lock(&queue.call) = call;
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let error = file.map(eventfd).transpose()?.map(Arc::new);
        self.change(index.into(), |queue| queue.error = error)
    }

    fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<()> {
        if enabled == self.queue(index)?.enabled {
            return Ok(());
        }
        self.change(index, |queue| queue.enabled = enabled)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let (bytes, queues) = (self.common.export.disk.size(), self.queues.len() as u16);
        Ok(features::config(bytes, self.writeback, queues, offset, size))
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        let [wanted @ (0 | 1)] = *bytes else { return Err(Error::InvalidParam) };
        if offset != WRITEBACK_AT || !features::has(self.features, VIRTIO_BLK_F_CONFIG_WCE) {
            return Err(Error::InvalidParam);
        }
        self.set_writeback(wanted == 1);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no shared objects"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("no record of requests in progress"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("no record of requests in progress"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("no migration"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("no migration"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no shared memory"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("no migration"))
    }
}
