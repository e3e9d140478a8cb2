//! A cache whose memory is a [`Store`]: every block is encoded in the fewest bytes that pay, equal ones once. The least
//! recently used block leaves while there is no room. The memory is that of the encodings; a frame for a block that is being
//! decoded and what the store knows of its contents (`nigh_content::Settings::contents`) come in addition.

use std::io;

use nigh_content::{BLOCK_BYTES, Content, ContentId, Encoder, Refused, Scheme, Store};
use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use super::{Access, Contents, times};

/// Most contents for each page of memory. The indices of similar ones have room for a share of them.
const CONTENTS_PER_PAGE: u32 = 4;

/// A block's content, and its place in the store.
#[derive(Clone, Copy)]
struct Held {
    id: ContentId,
    content: Content,
}

/// Blocks in the order of their last references.
struct Blocks {
    store: Store,
    /// For contents that lose their base.
    encoder: Encoder,
    held: Vec<Option<Held>>,
    links: Links,
    queue: List,
}

impl Blocks {
    fn remove(&mut self, slot: Slot) {
        if let Some(held) = self.held[slot.index()].take() {
            self.store.release(held.id);
            self.store.rebase(&mut self.encoder);
            self.queue.unlink(&mut self.links, slot);
        }
    }
}

/// Blocks, and their encodings.
pub(super) struct Stored<'a> {
    contents: &'a Contents,
    blocks: Blocks,
    encoder: Encoder,
    scheme: Scheme,
    /// The first image that could not be read; what was counted since means nothing.
    pub(super) failed: Option<io::Error>,
}

impl<'a> Stored<'a> {
    /// A cache of `capacity` pages for slots `0..slots`.
    pub(super) fn new(contents: &'a Contents, slots: u32, capacity: u32, scheme: Scheme) -> Stored<'a> {
        let (links, [queue]) = Links::new(slots);
        // Contents without owners take places, too.
        let most = capacity.saturating_mul(CONTENTS_PER_PAGE).min(slots.saturating_mul(2));
        let store = Store::new(scheme.settings(capacity, most, 0));
        let rules = scheme.rules();
        let blocks = Blocks { store, encoder: Encoder::new(rules), held: vec![None; slots as usize], links, queue };
        Stored { contents, blocks, encoder: Encoder::new(rules), scheme, failed: None }
    }

    /// A reference to `slot`, which has `content` afterwards.
    pub(super) fn access(&mut self, slot: Slot, write: bool, content: Content) -> Access {
        let Stored { contents, blocks, encoder, scheme, failed } = self;
        // A content that the store lost is a miss for all its blocks.
        let held = blocks.held[slot.index()];
        let encoding = held.and_then(|held| blocks.store.encoding(held.id));
        let mut access = Access { hit: encoding.is_some(), processor_ns: 0 };
        if let Some((codec, _)) = encoding.filter(|_| !write) {
            access.processor_ns = times::decode(codec);
        }
        if access.hit && held.is_some_and(|held| held.content == content) {
            blocks.queue.move_to_front(&mut blocks.links, slot);
            return access;
        }
        blocks.remove(slot);
        let mut block = [0; BLOCK_BYTES];
        if let Err(error) = contents.bytes(content, &mut block) {
            failed.get_or_insert(error);
            return access;
        }
        let mut plan = blocks.store.plan(encoder, 0, &block);
        // At first, an encoder is thorough.
        access.processor_ns += times::encode(*scheme, true, plan.encoded());
        let id = loop {
            match blocks.store.apply(&plan) {
                Ok(id) => break id,
                // Its base left for it.
                Err(Refused::Changed) => plan = blocks.store.plan(encoder, 0, &block),
                Err(Refused::Full) => match blocks.queue.back(&blocks.links) {
                    Some(oldest) => blocks.remove(oldest),
                    // A cache too small for its bases has no room even if no block is left.
                    None => return access,
                },
            }
        };
        blocks.held[slot.index()] = Some(Held { id, content });
        blocks.queue.push_front(&mut blocks.links, slot);
        access
    }

    /// How many blocks can be read.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.store.counts().owners
    }
}
