//! A split queue in the guest's memory.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nigh_host::front::lock;

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::memory::Memory;

/// Entries of a queue at most, as many as QEMU allows.
pub(crate) const ENTRIES_MAX: u16 = 1024;

/// An eventfd that interrupts the guest; none if it polls. The frontend changes it while the queue runs.
pub(crate) type Call = Arc<Mutex<Option<Arc<OwnedFd>>>>;

/// Why a queue is not processed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// More chains are available than the queue has entries, or it is not in memory.
    #[error("its rings are not valid")]
    Rings,
    #[error("a chain begins at a descriptor that does not exist")]
    Head,
    #[error("a chain is available twice")]
    Twice,
}

/// The place of a queue, in the guest's addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) entries: u16,
    pub(crate) descriptors: GuestAddress,
    pub(crate) available: GuestAddress,
    pub(crate) used: GuestAddress,
    /// The next entry of the available ring.
    pub(crate) base: u16,
    /// VIRTIO_RING_F_EVENT_IDX was agreed on.
    pub(crate) event_idx: bool,
}

/// A queue.
pub(crate) struct Ring {
    queue: Queue,
    pub(crate) memory: Arc<Memory>,
    call: Call,
    available: GuestAddress,
    event_idx: bool,
    /// Interrupts that were due: an eventfd write each, unless the guest polls.
    pub(crate) interrupts: u64,
    /// Chains that became used.
    pub(crate) used: u64,
}

impl Ring {
    /// The queue at `place`.
    pub(crate) fn new(place: Place, memory: &Arc<Memory>, call: &Call) -> Result<Ring, Broken> {
        let mut queue = Queue::new(ENTRIES_MAX).map_err(|_| Broken::Rings)?;
        let placed = queue.try_set_size(place.entries);
        let placed = placed.and_then(|()| queue.try_set_desc_table_address(place.descriptors));
        let placed = placed.and_then(|()| queue.try_set_avail_ring_address(place.available));
        placed.and_then(|()| queue.try_set_used_ring_address(place.used)).map_err(|_| Broken::Rings)?;
        queue.set_event_idx(place.event_idx);
        queue.set_next_avail(place.base);
        queue.set_ready(true);
        if !queue.is_valid(&**memory) {
            return Err(Broken::Rings);
        }
        let used = queue.used_idx(&**memory, Ordering::Acquire).map_err(|_| Broken::Rings)?;
        queue.set_next_used(used.0);
        let Place { available, event_idx, .. } = place;
        Ok(Ring { queue, memory: memory.clone(), call: call.clone(), available, event_idx, interrupts: 0, used: 0 })
    }

    /// Its number of entries.
    pub(crate) fn entries(&self) -> u16 {
        self.queue.size()
    }

    /// The next chain.
    pub(crate) fn pop(&mut self) -> Result<Option<DescriptorChain<&Memory>>, Broken> {
        let mut chains = self.queue.iter(&*self.memory).map_err(|_| Broken::Rings)?;
        let chain = chains.next();
        match chain {
            Some(chain) if chain.head_index() >= self.queue.size() => Err(Broken::Head),
            chain => Ok(chain),
        }
    }

    /// Whether there is a chain, without a promise.
    pub(crate) fn has_chain(&self) -> bool {
        let index = self.queue.avail_idx(&*self.memory, Ordering::Relaxed);
        index.is_ok_and(|index| index.0 != self.queue.next_avail())
    }

    /// Makes a chain used.
    pub(crate) fn add_used(&mut self, head: u16, bytes: u32) -> Result<(), Broken> {
        self.used += 1;
        self.queue.add_used(&*self.memory, head, bytes).map_err(|_| Broken::Rings)
    }

    /// Interrupts the guest if it wants that.
    pub(crate) fn notify(&mut self) -> Result<(), Broken> {
        let mut is_wanted = self.queue.needs_notification(&*self.memory).map_err(|_| Broken::Rings)?;
        if !self.event_idx {
            let flags = self.memory.load::<u16>(self.available, Ordering::Relaxed).map_err(|_| Broken::Rings)?;
            is_wanted = u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0;
        }
        if is_wanted {
            self.interrupt();
        }
        Ok(())
    }

    /// Interrupts the guest.
    pub(crate) fn interrupt(&mut self) {
        self.interrupts += 1;
        let call = lock(&self.call).clone();
        if let Some(call) = call {
            // Fails only where the count is at its maximum, and then it is readable anyway.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    /// The guest need not notify of new chains.
    pub(crate) fn silence(&mut self) -> Result<(), Broken> {
        self.queue.disable_notification(&*self.memory).map_err(|_| Broken::Rings)
    }

    /// The guest notifies of new chains. Returns whether there is one already.
    pub(crate) fn listen(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&*self.memory).map_err(|_| Broken::Rings)
    }

    /// The next entry of the available ring.
    pub(crate) fn base(&self) -> u16 {
        self.queue.next_avail()
    }
}
