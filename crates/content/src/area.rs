//! The memory of encoded blocks: contents, and which place of a cache's level has which.

use crate::pool::PoolCounts;
use crate::store::{ContentId, Store};

/// Contents, and which block has which. Blocks are known by the part of the cache that they are in, and their place there.
pub struct Area {
    /// The contents.
    pub store: Store,
    /// By part and place; places that were never used may be missing.
    ids: Vec<Vec<ContentId>>,
}

impl Area {
    /// Empty, with `store` for the contents, for a cache of so many parts.
    pub fn new(store: Store, parts: usize) -> Area {
        Area { store, ids: vec![Vec::new(); parts] }
    }

    /// The content of the block at a place.
    pub fn id(&self, part: u32, place: u32) -> Option<ContentId> {
        let id = self.ids[part as usize].get(place as usize).copied();
        id.filter(|&id| id != ContentId::NONE)
    }

    /// The block at a place, which has none, gets a content.
    pub fn put(&mut self, part: u32, place: u32, id: ContentId) {
        let ids = &mut self.ids[part as usize];
        if ids.len() <= place as usize {
            ids.resize(place as usize + 1, ContentId::NONE);
        }
        ids[place as usize] = id;
    }

    /// Releases the content of the block that was at a place, if there was one.
    pub fn release(&mut self, part: u32, place: u32) {
        if let Some(id) = self.id(part, place) {
            self.ids[part as usize][place as usize] = ContentId::NONE;
            self.store.release(id);
        }
    }

    /// Gives up all contents, for those in `store`. Returns the former ones, to be freed where no lock is held.
    pub fn begin_anew(&mut self, store: Store) -> Store {
        self.ids.iter_mut().for_each(Vec::clear);
        std::mem::replace(&mut self.store, store)
    }

    /// Pages that contents take.
    pub fn pages_in_use(&self) -> u64 {
        let PoolCounts { frames, run_pages, .. } = self.store.pool();
        u64::from(frames) + u64::from(run_pages)
    }

    /// Memory for the contents of places, in bytes.
    pub fn index_bytes(&self) -> usize {
        self.ids.iter().map(|ids| ids.capacity() * size_of::<ContentId>()).sum()
    }
}
