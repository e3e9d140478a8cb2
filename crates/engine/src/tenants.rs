//! Tenants that say something about their accesses: what they say reaches who decides, and what their lists fetch ahead
//! reaches the devices. Numbers of sections are those of ACFS (Cao, Felten, Karlin, Li, TOCS 1996).

use std::ops::Range;

use nigh_control::{Chunk, Directive, Index, Refusal, Statistics};
use nigh_policy::{Block, Kind, Slot, Stream, Tenant};
use smallvec::SmallVec;

use crate::decider::Decider;
use crate::engine::Engine;
use crate::error::ConfigError;
use crate::files::{Files, Piece};
use crate::frames::{LOADING, PREFETCHED};
use crate::record::Reading;
use crate::request::Volume;
use crate::slots::{Key, NONE, Slots};
use crate::volume::VolumeState;

/// What the engine knows of blocks and files.
pub(crate) struct Known<'a> {
    slots: &'a Slots,
    volumes: &'a [Option<Box<VolumeState>>],
    files: &'a Files,
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
            return self.volumes.get(file as usize)?.as_ref().map(|state| state.bytes);
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
    /// Who decides, and what it needs to know of blocks.
    pub(crate) fn deciding(&mut self) -> (&mut dyn Decider, Known<'_>) {
        let known = Known { slots: &self.slots, volumes: &self.volumes, files: &self.files, shift: self.shift };
        (&mut *self.policy, known)
    }

    /// Does what `tenant` says, or nothing.
    pub fn direct(&mut self, tenant: Tenant, directive: &Directive) -> Result<(), Refusal> {
        let (decider, known) = self.deciding();
        let done = decider.apply(tenant, directive, &known);
        self.told(tenant);
        done
    }

    /// `tenant` will read `bytes` of `volume` after what its list says; without one, its list begins with that. What is in no
    /// file cannot be predicted, and nothing of a volume that is not open.
    pub fn extend(&mut self, tenant: Tenant, volume: Volume, bytes: Range<u64>) -> Result<(), Refusal> {
        if self.volumes.get(volume.0 as usize).is_none_or(Option::is_none) {
            return Ok(());
        }
        let (blocks, shift) = (self.blocks(&bytes), self.shift);
        let (decider, known) = self.deciding();
        let mut done = Ok(());
        for (file, blocks) in known.files.within(volume, blocks) {
            let bytes = Some((blocks.start << shift, (blocks.end - blocks.start) << shift));
            done = done.and_then(|()| decider.extend(tenant, &Chunk { file, bytes }, &known));
        }
        self.told(tenant);
        done
    }

    /// Who decides was told something by `tenant`.
    fn told(&mut self, tenant: Tenant) {
        self.drain_forgotten();
        self.stepping |= self.policy.is_pending();
        self.ask(tenant);
    }

    /// Whether tenants call anything by this number.
    pub fn has_file(&self, file: u32) -> bool {
        match self.files.is_empty() {
            true => self.hears_tenants() && self.volumes.get(file as usize).is_some_and(Option::is_some),
            false => self.files.last_piece(file).is_some(),
        }
    }

    /// Whether it is tenants who decide, and not a policy.
    pub fn hears_tenants(&self) -> bool {
        self.config.tenants.is_some()
    }

    /// What `tenant` said, as far as it holds.
    pub fn said(&self, tenant: Tenant) -> Vec<Directive> {
        self.policy.said(tenant)
    }

    /// From now on `pieces` are the files of `volume`; none once it is closed. What `tenant`, the one who uses it, said
    /// about those that it had, or about files that do not exist, is forgotten; what it said about files of other volumes
    /// and its bounds stay. An error in a cache without tenants.
    pub fn name_files(&mut self, tenant: Tenant, volume: Volume, pieces: Vec<Piece>) -> Result<(), ConfigError> {
        if !self.hears_tenants() {
            return Err(ConfigError::Impossible { what: "only tenants name files" });
        }
        let files = self.files.with(volume, pieces)?;
        let before = std::mem::replace(&mut self.files, files);
        let (decider, known) = self.deciding();
        let gone = |file| before.volume_of(file) == Some(volume) || known.files.volume_of(file).is_none();
        decider.forget_files(tenant, &gone, &known);
        self.told(tenant);
        Ok(())
    }

    /// Changes the least blocks that `tenant` keeps and, unless it is 0, the most that it may have of a full cache.
    pub fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        let done = self.policy.set_bounds(tenant, floor, ceiling);
        self.told(tenant);
        done
    }

    /// `tenant` is gone: its blocks have no owner, what it said and its bounds are forgotten. Its number may be used again.
    pub fn close_tenant(&mut self, tenant: Tenant) {
        self.policy.close(tenant);
        self.told(tenant);
    }

    /// What `tenant` did; none in a cache without tenants.
    pub fn statistics(&self, tenant: Tenant) -> Option<Statistics> {
        self.policy.statistics(tenant)
    }

    /// Resident blocks that `tenant` owns; none in a cache without tenants.
    pub fn owned(&self, tenant: Tenant) -> Option<u32> {
        self.policy.owned(tenant)
    }

    /// What tenants call the block that `tenant` is about to reference. Not inlined into hits of caches without tenants.
    #[inline(never)]
    pub(crate) fn name_block(&mut self, key: Key, kind: Kind, tenant: Tenant) -> Block {
        if kind != Kind::Prefetch {
            self.ask(tenant);
        }
        self.files.block(key)
    }

    /// Whether `tenant` has said what it will read, so that nobody has to guess it.
    pub fn is_predicted(&self, tenant: Tenant) -> bool {
        self.policy.has_list(tenant)
    }

    /// `tenant` referenced a block, or a prefetch for it is over: it may be time to fetch ahead (rule 4 of 2.1.2).
    #[inline]
    pub(crate) fn ask(&mut self, tenant: Tenant) {
        if self.is_predicted(tenant) && !self.asking.contains(&tenant) {
            self.asking.push(tenant);
        }
    }

    /// `tenant` is about to reference the block of `slot`: is it still being loaded, it comes too late for it.
    #[inline]
    pub(crate) fn note_late(&mut self, slot: Slot, frame: u32, tenant: Tenant) {
        if self.frames.has(frame, LOADING) {
            self.policy.late(slot, tenant);
        }
    }

    /// A block that `tenant` waited for is there, or failed.
    pub(crate) fn demand_loaded(&mut self, tenant: Tenant) {
        self.policy.loaded(tenant);
        self.ask(tenant);
    }

    /// A prefetch from `volume` that `tenant`'s list asked for is over. If it failed, the list is dropped: else it would
    /// ask for the same block again and again.
    pub(crate) fn predicted_loaded(&mut self, tenant: Tenant, volume: Volume, failed: bool) {
        let (decider, known) = self.deciding();
        decider.prefetched(tenant, volume.0);
        if failed {
            let none = Directive::Predict { accesses: Vec::new() };
            decider.apply(tenant, &none, &known).expect("a tenant with a list may have none");
            self.told(tenant);
        }
        self.ask(tenant);
    }

    /// Queues the batches that lists ask for now, one for each device.
    pub(crate) fn fetch_predicted(&mut self, now: u64) {
        self.stepping |= self.hears_tenants() && self.policy.is_pending();
        while let Some(tenant) = self.asking.pop() {
            let devices: SmallVec<[u32; 4]> = self.policy.devices(tenant).into();
            for device in devices {
                let state = self.volumes.get(device as usize).and_then(Option::as_ref);
                if state.is_some_and(|state| state.closing.is_none()) {
                    self.fetch_batch(tenant, Volume(device), now);
                }
            }
        }
    }

    fn fetch_batch(&mut self, tenant: Tenant, volume: Volume, now: u64) {
        // What a list asks for is its tenant's.
        let stream = Stream(tenant.0.into());
        let mut missing: Vec<(u64, u32)> = Vec::new();
        while self.has_prefetch_budget(missing.len() as u32) {
            let (decider, known) = self.deciding();
            let Some(block) = decider.next_prefetch(tenant, volume.0, &known) else { break };
            let place = known.files.key(block).filter(|key| key.volume() == volume);
            let Some(key) = place.filter(|key| !self.is_out_of_reach(*key)) else {
                // It waits for what is in its way, or for the tenant to pass it.
                self.note_fetched(tenant, volume);
                break;
            };
            let (slot, frame, _) = self.reference(key, Kind::Prefetch, tenant, stream);
            if frame.is_some() {
                self.note_fetched(tenant, volume);
                continue;
            }
            let frame = self.frames.take();
            self.place(slot, frame);
            self.frames.set(frame, LOADING | PREFETCHED);
            self.prefetching += 1;
            missing.push((key.index(), frame));
        }
        self.volume(volume).counters.prefetch_issued += missing.len() as u64;
        missing.sort_unstable();
        self.load(volume, &missing, Reading::Predicted(tenant), now, |_| SmallVec::new());
    }

    /// Beyond the end of the disk, or in a range that a request has for itself.
    fn is_out_of_reach(&mut self, key: Key) -> bool {
        let block = key.index();
        let bytes = self.volume(key.volume()).bytes;
        block << self.shift >= bytes || self.volume(key.volume()).is_locked(&(block..block + 1), NONE)
    }

    /// As [`Engine::check`], for what tenants have.
    pub(crate) fn check_tenants(&mut self) {
        let mut underway = std::collections::HashMap::<Tenant, u32>::new();
        for load in self.loads.values() {
            if let Reading::Predicted(tenant) = load.reading {
                *underway.entry(tenant).or_default() += 1;
            }
        }
        for (tenant, outstanding) in self.policy.outstanding() {
            let loads = underway.remove(&tenant).unwrap_or(0);
            assert_eq!(outstanding, loads, "prefetches of {tenant:?} that are not complete");
        }
        assert!(underway.is_empty(), "prefetches of nobody: {underway:?}");
    }

    fn note_fetched(&mut self, tenant: Tenant, volume: Volume) {
        self.policy.prefetched(tenant, volume.0);
    }
}
