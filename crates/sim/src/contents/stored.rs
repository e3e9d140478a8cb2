//! A cache whose memory is a [`Store`]: every block is encoded in the fewest bytes that pay, equal ones once. The least
//! recently used block leaves while there is no room. The memory is that of the encodings; a frame for a block that is being
//! decoded and what the store knows of its contents (`nigh_content::Settings::contents`) come in addition.

use std::io;

use nigh_content::{BLOCK_BYTES, Content, ContentId, Rules, Settings, Store};
use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use super::Contents;

/// Most contents for each page of memory.
const CONTENTS_PER_PAGE: u32 = 16;

/// A block's content, and its place in the store.
#[derive(Clone, Copy)]
struct Held {
    id: ContentId,
    content: Content,
}

/// Blocks in the order of their last references, and their encodings.
pub(super) struct Stored<'a> {
    contents: &'a Contents,
    store: Store,
    held: Vec<Option<Held>>,
    links: Links,
    queue: List,
    /// The first image that could not be read; what was counted since means nothing.
    pub(super) failed: Option<io::Error>,
}

impl<'a> Stored<'a> {
    /// A cache of `capacity` pages for slots `0..slots`. Similar blocks are stored as differences if `is_similar_shared`.
    pub(super) fn new(
        contents: &'a Contents,
        slots: u32,
        capacity: u32,
        rules: Rules,
        is_similar_shared: bool,
    ) -> Stored<'a> {
        let (links, [queue]) = Links::new(slots);
        let most = capacity.saturating_mul(CONTENTS_PER_PAGE).min(slots);
        let settings = Settings { pages: capacity, contents: most, rules, is_similar_shared, ..Settings::default() };
        Stored { contents, store: Store::new(settings), held: vec![None; slots as usize], links, queue, failed: None }
    }

    /// A reference to `slot`, which has `content` afterwards. Returns whether the block was cached.
    pub(super) fn access(&mut self, slot: Slot, content: Content) -> bool {
        // A content that left the store on its own is a miss for all its blocks.
        let held = self.held[slot.index()];
        let hit = held.is_some_and(|held| self.store.encoding(held.id).is_some());
        if let Some(held) = held {
            if hit && held.content == content {
                self.queue.move_to_front(&mut self.links, slot);
                return true;
            }
            self.remove(slot, held);
        }
        let mut block = [0; BLOCK_BYTES];
        if let Err(error) = self.contents.bytes(content, &mut block) {
            self.failed.get_or_insert(error);
            return hit;
        }
        let id = loop {
            if let Ok(id) = self.store.insert(&block) {
                break id;
            }
            // A cache too small for its bases has no room even if no block is left.
            let Some(oldest) = self.queue.back(&self.links) else { return hit };
            let held = self.held[oldest.index()].expect("what is in the queue is held");
            self.remove(oldest, held);
        };
        self.held[slot.index()] = Some(Held { id, content });
        self.queue.push_front(&mut self.links, slot);
        hit
    }

    fn remove(&mut self, slot: Slot, held: Held) {
        self.store.release(held.id);
        self.held[slot.index()] = None;
        self.queue.unlink(&mut self.links, slot);
    }

    /// How many blocks can be read.
    pub(super) fn blocks(&self) -> u64 {
        self.store.counts().owners
    }
}
