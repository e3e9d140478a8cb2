//! Predictions of tenants: the names by which their lists know blocks, and what follows when a block is referenced or a request ends.

use nigh_control::{Index, LruSp};
use nigh_policy::{Block, Kind, Slot, Tenant};

use crate::decider::Decider;
use crate::engine::Engine;
use crate::files::Files;
use crate::frames::LOADING;
use crate::request::Volume;
use crate::slots::{Key, NONE, Slots};
use crate::volumes::Volumes;

/// The engine's view of blocks and files.
pub(crate) struct Known<'a> {
    slots: &'a Slots,
    volumes: &'a Volumes,
    pub(crate) files: &'a Files,
    shift: u32,
}

impl Index for Known<'_> {
    fn resident(&self, block: Block) -> Option<Slot> {
        let slot = self.slots.find(self.files.key(block)?)?;
        (self.slots.frame(slot) != NONE).then_some(slot)
    }

    fn block(&self, slot: Slot) -> Block {
        self.files.block(self.slots.key(slot))
    }

    fn file_bytes(&self, file: u32) -> Option<u64> {
        if self.files.is_empty() {
            return self.volumes.get(Volume(file)).map(|state| state.bytes);
        }
        self.files.last_piece(file).map(|piece| (piece.offset + piece.blocks) << self.shift)
    }

    fn device(&self, file: u32) -> u32 {
        match self.files.is_empty() {
            true => file,
            false => self.files.last_piece(file).map_or(0, |piece| piece.volume.0),
        }
    }
}

impl Engine {
    /// Whether tenants decide, not a policy.
    pub fn hears_tenants(&self) -> bool {
        self.config.tenants.is_some()
    }

    /// The file and position, for tenants, of the block that `tenant` is about to reference. Not inlined into hits of
    /// caches without tenants.
    #[inline(never)]
    pub(crate) fn name_block(&mut self, key: Key, kind: Kind, tenant: Tenant) -> Block {
        if kind != Kind::Prefetch {
            self.ask(tenant);
        }
        self.tenants.files.block(key)
    }

    /// `tenant` referenced a block, or a prefetch for it is over: prefetches may be due (rule 4 of 2.1.2).
    #[inline]
    pub(crate) fn ask(&mut self, tenant: Tenant) {
        if self.is_predicted(tenant) && !self.tenants.asking.contains(&tenant) {
            self.tenants.asking.push(tenant);
        }
    }

    /// Whether `tenant` has predicted its reads, so that no guess is needed.
    pub fn is_predicted(&self, tenant: Tenant) -> bool {
        self.policy.tenants().is_some_and(|tenants| tenants.has_list(tenant))
    }

    /// `tenant` is about to reference the block of `slot`: if that is still being loaded, its prefetch is late.
    #[inline]
    pub(crate) fn note_late(&mut self, slot: Slot, frame: u32, tenant: Tenant) {
        if self.memory.frames.has(frame, LOADING)
            && let Some(tenants) = self.policy.tenants_mut()
        {
            tenants.late(slot, tenant);
        }
    }

    /// A block that `tenant` waited for is present, or failed.
    pub(crate) fn demand_loaded(&mut self, tenant: Tenant) {
        if let Some(tenants) = self.policy.tenants_mut() {
            tenants.loaded(tenant);
            self.ask(tenant);
        }
    }

    /// The decider, and the view of blocks that it needs.
    pub(crate) fn deciding(&mut self) -> (&mut dyn Decider, Known<'_>) {
        let known = Known { slots: &self.slots, volumes: &self.volumes, files: &self.tenants.files, shift: self.shift };
        (&mut *self.policy, known)
    }

    /// The allocation among tenants, and the view of blocks that it needs.
    pub(crate) fn hearing(&mut self) -> Option<(&mut LruSp, Known<'_>)> {
        let (decider, known) = self.deciding();
        Some((decider.tenants_mut()?, known))
    }
}
