//! The memory of encoded blocks: contents, which place of a cache's level has which, and how much memory they have.

use crate::lending::Lending;
use crate::pool::PoolCounts;
use crate::scheme::Scheme;
use crate::store::{ContentId, Copied, Store};

/// Contents, and which block has which. Blocks are known by the part of the cache that they are in, and their place there.
/// [`Writer`](crate::Writer) changes it.
pub struct Area {
    /// The contents.
    pub store: Store,
    /// How much of the memory these have.
    pub lending: Lending,
    /// Blocks that were to be encoded since the start.
    pub encoded: u64,
    /// Blocks that found no room since the start.
    pub rejected: u64,
    scheme: Scheme,
    seed: u64,
    /// By part and place; places that were never used may be missing.
    ids: Vec<Vec<ContentId>>,
}

impl Area {
    /// Empty, for a cache of this many parts with memory of `pages` pages. As for [`Scheme::store`], `seed` is secret where contents
    /// are foreign.
    pub fn new(scheme: Scheme, seed: u64, pages: u64, parts: usize) -> Area {
        let lending = Lending::new(pages);
        let (store, ids) = (scheme.store(lending, seed), vec![Vec::new(); parts]);
        Area { store, lending, encoded: 0, rejected: 0, scheme, seed, ids }
    }

    /// How contents are encoded.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The number of parts of the cache.
    pub fn parts(&self) -> u32 {
        self.ids.len() as u32
    }

    /// The content of the block at a place.
    pub fn id(&self, part: u32, place: u32) -> Option<ContentId> {
        let id = self.ids[part as usize].get(place as usize).copied();
        id.filter(|&id| id != ContentId::NONE)
    }

    /// Copies the encoding of the block at a place, if it is there.
    pub fn copy(&self, part: u32, place: u32, copied: &mut Copied) -> Option<ContentId> {
        self.id(part, place).filter(|&id| self.store.copy(id, copied))
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

    /// A store for [`Area::begin_anew`].
    pub fn empty_store(&self) -> Store {
        self.scheme.store(Lending::new(self.lending.pages()), self.seed)
    }

    /// Drops all contents and continues with `store`. Returns the former ones, to be freed without a lock.
    pub fn begin_anew(&mut self, store: Store) -> Store {
        self.lending.restart();
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

    /// Checks that each content has the owners that it counts, and that contents keep to their memory.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let places = (0..).zip(&self.ids).flat_map(|(part, ids)| (0..ids.len() as u32).map(move |place| (part, place)));
        let mut owners = std::collections::HashMap::new();
        places.filter_map(|(part, place)| self.id(part, place)).for_each(|id| *owners.entry(id).or_insert(0) += 1);
        let lost = |id: &ContentId| self.store.owners(*id) == 0;
        assert!(owners.iter().all(|(id, &owners)| lost(id) || self.store.owners(*id) == owners), "a content is shared");
        let live: u64 = owners.iter().filter(|(id, _)| !lost(id)).map(|(_, &owners)| u64::from(owners)).sum();
        assert_eq!(live, self.store.counts().owners, "an owner has no place");
        assert!(self.pages_in_use() <= self.lending.lent(), "{:?}", self.lending);
        assert!(self.lending.lent() <= self.lending.most(), "{:?}", self.lending);
    }
}
