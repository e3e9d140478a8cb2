//! The De-Dup cache with which the paper compares LPU (section 4.1): "adds data de-duplication mechanism in the LRU
//! buffer cache. In this De-Dup buffer cache system, only one of identical data blocks is cached in the buffer cache.
//! Duplications are eliminated leaving only pointers to the cached identical block. Upon a write to one of the
//! identical blocks, a copy is made in the buffer cache."
//!
//! Points that the text does not specify, and how they are read here:
//!
//! * **Order of the LRU queue**: the cached data blocks. A reference to any block that points to one makes it the
//!   most recently used. When a data block is evicted, all blocks that point to it leave the cache.
//! * **How many pointers there are**: as many as the host has slots. The paper does not charge memory for them.
//! * **The first reference to a block whose content is cached under another address** is a miss: what a block contains
//!   is known only after it was read.
//! * **A write of a content that is cached already** leaves a pointer, as a read does. A write to a block that no other
//!   block shares changes its data block.

use std::collections::HashMap;

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use crate::Content;

/// No slot, no data block.
const NONE: u32 = u32::MAX;

/// A data block.
#[derive(Clone, Copy)]
struct Data {
    content: Content,
    /// One of the slots that point to it.
    first: u32,
}

/// A slot's pointer.
#[derive(Clone, Copy)]
struct Pointer {
    /// The data block, or `NONE`.
    data: u32,
    /// The neighbours among the slots that point to the same data block.
    next: u32,
    prev: u32,
}

/// An LRU cache that keeps one data block for all blocks with the same content.
pub struct Dedup {
    pointers: Vec<Pointer>,
    data: Vec<Data>,
    /// Data blocks by their content.
    by_content: HashMap<Content, u32>,
    links: Links,
    /// The data blocks in use, the most recently used first.
    queue: List,
    free: Vec<u32>,
}

impl Dedup {
    /// A cache of `capacity` data blocks for slots `0..slots`.
    ///
    /// # Panics If it has no data block.
    pub fn new(slots: u32, capacity: u32) -> Dedup {
        assert!(capacity > 0, "a cache of at least one block");
        let (links, [queue]) = Links::new(capacity);
        Dedup {
            pointers: vec![Pointer { data: NONE, next: NONE, prev: NONE }; slots as usize],
            data: vec![Data { content: Content(0), first: NONE }; capacity as usize],
            by_content: HashMap::new(),
            links,
            queue,
            free: (0..capacity).rev().collect(),
        }
    }

    /// A reference to `slot`, which has `content` afterwards: what was read, or what `write` stores. Returns whether
    /// the block was cached.
    pub fn access(&mut self, slot: Slot, write: bool, content: Content) -> bool {
        let data = self.pointers[slot.index()].data;
        let hit = data != NONE;
        if hit && self.data[data as usize].content == content {
            self.queue.move_to_front(&mut self.links, Slot(data));
            return true;
        }
        assert!(write || !hit, "a cached block changes only by a write");
        if hit {
            self.unlink(slot);
        }
        let data = match self.by_content.get(&content) {
            Some(&data) => {
                self.queue.move_to_front(&mut self.links, Slot(data));
                data
            }
            None => self.store(content),
        };
        self.link(slot, data);
        hit
    }

    /// How many blocks are cached, each in a data block that it may share.
    pub fn blocks(&self) -> usize {
        self.pointers.iter().filter(|pointer| pointer.data != NONE).count()
    }

    /// How many data blocks are in use.
    pub fn data_blocks(&self) -> u32 {
        self.queue.len()
    }

    /// A data block for a content that is not cached.
    fn store(&mut self, content: Content) -> u32 {
        let data = self.free.pop().unwrap_or_else(|| self.evict());
        self.data[data as usize] = Data { content, first: NONE };
        self.by_content.insert(content, data);
        self.queue.push_front(&mut self.links, Slot(data));
        data
    }

    /// Takes the least recently used data block and all pointers to it.
    fn evict(&mut self) -> u32 {
        let data = self.queue.pop_back(&mut self.links).expect("a cache without a free data block has data blocks").0;
        let Data { content, first } = self.data[data as usize];
        self.by_content.remove(&content);
        let mut slot = first;
        while slot != NONE {
            let pointer = &mut self.pointers[slot as usize];
            pointer.data = NONE;
            slot = pointer.next;
        }
        data
    }

    fn link(&mut self, slot: Slot, data: u32) {
        let first = std::mem::replace(&mut self.data[data as usize].first, slot.0);
        self.pointers[slot.index()] = Pointer { data, next: first, prev: NONE };
        if first != NONE {
            self.pointers[first as usize].prev = slot.0;
        }
    }

    /// Removes the slot's pointer, and the data block if it was the last one.
    fn unlink(&mut self, slot: Slot) {
        let Pointer { data, next, prev } = self.pointers[slot.index()];
        self.pointers[slot.index()].data = NONE;
        if next != NONE {
            self.pointers[next as usize].prev = prev;
        }
        if prev != NONE {
            self.pointers[prev as usize].next = next;
            return;
        }
        self.data[data as usize].first = next;
        if next == NONE {
            self.by_content.remove(&self.data[data as usize].content);
            self.queue.unlink(&mut self.links, Slot(data));
            self.free.push(data);
        }
    }
}
