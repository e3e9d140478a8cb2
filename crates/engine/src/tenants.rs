//! Tenants that say something about their accesses: what they say reaches [`Control`], and what it fetches ahead for them
//! reaches the devices. Numbers of sections are those of ACFS (Cao, Felten, Karlin, Li, TOCS 1996).

use std::ops::{Deref, DerefMut, Range};

use nigh_control::{Chunk, Control, Directive, Index, Statistics};
use nigh_policy::{Block, Kind, Policy, Setup, Slot, SpecError, Stream, Tenant, build};
use smallvec::SmallVec;

use crate::config::{Config, ConfigError};
use crate::device::Reading;
use crate::engine::Engine;
use crate::files::{Files, Piece};
use crate::frames::{LOADING, PREFETCHED};
use crate::request::Volume;
use crate::slots::{Key, NONE, Slots};
use crate::volume::VolumeState;

/// How tenants share a cache, in place of a policy.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    /// Who gives up a block, which one, and what is fetched ahead.
    pub control: nigh_control::Config,
    /// What tenants call a file.
    pub files: Files,
}

/// Decides which block leaves.
pub(crate) enum Manager {
    /// A policy, whoever the tenants are.
    Policy(Box<dyn Policy + Send>),
    /// Tenants have a say.
    Control(Box<Control>),
}

impl Manager {
    pub(crate) fn new(config: &Config, setup: &Setup) -> Result<Manager, SpecError> {
        Ok(match &config.tenants {
            Some(tenants) => Manager::Control(Box::new(Control::new(setup, tenants.control.clone()))),
            None => Manager::Policy(build(&config.policy, setup)?),
        })
    }

    /// Whether the first reference to a prefetched block matters, although its prefetch was one: a list goes on with each.
    #[inline]
    pub(crate) fn follows_lists(&self) -> bool {
        matches!(self, Manager::Control(_))
    }
}

impl Deref for Manager {
    type Target = dyn Policy + Send;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Manager::Policy(policy) => &**policy,
            Manager::Control(control) => &**control,
        }
    }
}

impl DerefMut for Manager {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Manager::Policy(policy) => &mut **policy,
            Manager::Control(control) => &mut **control,
        }
    }
}

/// What the engine knows of blocks and files.
struct Known<'a> {
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

/// Blocks of a step of what tenants said.
const STEP: u32 = 1024;
/// No tenant has anything to say in a cache with a policy.
const NO_TENANTS: &str = "the cache was set up with tenants";

impl Engine {
    /// What tenants said, and what it needs to know of blocks; none in a cache with a policy.
    fn tenants(&mut self) -> Option<(&mut Control, Known<'_>)> {
        let (Manager::Control(control), Some(tenants)) = (&mut self.policy, &self.config.tenants) else { return None };
        let (slots, volumes, shift) = (&self.slots, &self.volumes[..], self.shift);
        Some((control, Known { slots, volumes, files: &tenants.files, shift }))
    }

    /// Does what `tenant` says, or nothing.
    ///
    /// # Panics
    /// If the cache was set up without tenants.
    pub fn direct(&mut self, tenant: Tenant, directive: &Directive) -> Result<(), nigh_control::Refusal> {
        let (control, known) = self.tenants().expect(NO_TENANTS);
        let done = control.apply(tenant, directive, &known);
        self.finish_said();
        self.ask(tenant);
        done
    }

    /// `tenant` will read `bytes` of `volume` after what its list says; without one, its list begins with that. What is in no
    /// file cannot be predicted.
    ///
    /// # Panics
    /// If the cache was set up without tenants.
    pub fn extend(&mut self, tenant: Tenant, volume: Volume, bytes: Range<u64>) -> Result<(), nigh_control::Refusal> {
        let (blocks, shift) = (self.blocks(&bytes), self.shift);
        let (control, known) = self.tenants().expect(NO_TENANTS);
        let mut done = Ok(());
        for (file, blocks) in known.files.within(volume, blocks) {
            let bytes = Some((blocks.start << shift, (blocks.end - blocks.start) << shift));
            done = done.and_then(|()| control.extend(tenant, &Chunk { file, bytes }, &known));
        }
        self.finish_said();
        self.ask(tenant);
        done
    }

    /// Does what is left to be done of what tenants said.
    fn finish_said(&mut self) {
        let Some((control, known)) = self.tenants() else { return };
        while control.step(STEP, &known) {}
        self.drain_forgotten();
    }

    /// Whether there is such a file.
    pub fn has_file(&self, file: u32) -> bool {
        match &self.config.tenants {
            Some(tenants) if tenants.files.is_empty() => self.volumes.get(file as usize).is_some_and(Option::is_some),
            Some(tenants) => tenants.files.last_piece(file).is_some(),
            None => false,
        }
    }

    /// What `tenant` said, as far as it holds.
    pub fn said(&self, tenant: Tenant) -> Vec<Directive> {
        match &self.policy {
            Manager::Control(control) => control.said(tenant),
            Manager::Policy(_) => Vec::new(),
        }
    }

    /// From now on `pieces` are the files of `volume`. Whatever `tenant`, the one who uses it, said is forgotten; its bounds
    /// stay.
    ///
    /// # Panics
    /// If the cache was set up without tenants.
    pub fn name_files(&mut self, tenant: Tenant, volume: Volume, pieces: Vec<Piece>) -> Result<(), ConfigError> {
        let tenants = self.config.tenants.as_mut().expect(NO_TENANTS);
        tenants.files = tenants.files.with(volume, pieces)?;
        self.tenants().expect(NO_TENANTS).0.forget(tenant);
        self.finish_said();
        Ok(())
    }

    /// Changes the least blocks that `tenant` keeps and, unless it is 0, the most that it may have of a full cache.
    ///
    /// # Panics
    /// If the cache was set up without tenants.
    pub fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), nigh_control::Refusal> {
        let done = self.tenants().expect(NO_TENANTS).0.set_bounds(tenant, floor, ceiling);
        self.finish_said();
        done
    }

    /// `tenant` is gone: its blocks have no owner, what it said and its bounds are forgotten. Its number may be used again.
    ///
    /// # Panics
    /// If the cache was set up without tenants.
    pub fn close_tenant(&mut self, tenant: Tenant) {
        self.tenants().expect(NO_TENANTS).0.close(tenant);
        self.finish_said();
    }

    /// What `tenant` did; none in a cache without tenants.
    pub fn statistics(&mut self, tenant: Tenant) -> Option<Statistics> {
        self.tenants().map(|(control, _)| control.statistics(tenant))
    }

    /// Resident blocks that `tenant` owns; none in a cache without tenants.
    pub fn owned(&self, tenant: Tenant) -> Option<u32> {
        match &self.policy {
            Manager::Control(control) => Some(control.size(tenant)),
            Manager::Policy(_) => None,
        }
    }

    /// What tenants call the block that `tenant` is about to reference. Not inlined into hits of caches without tenants.
    #[inline(never)]
    pub(crate) fn name_block(&mut self, key: Key, kind: Kind, tenant: Tenant) -> Block {
        if kind != Kind::Prefetch {
            self.ask(tenant);
        }
        self.config.tenants.as_ref().expect(NO_TENANTS).files.block(key)
    }

    /// Whether `tenant` has said what it will read, so that nobody has to guess it.
    pub fn is_predicted(&self, tenant: Tenant) -> bool {
        matches!(&self.policy, Manager::Control(control) if control.has_list(tenant))
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
        if let Manager::Control(control) = &mut self.policy
            && self.frames.has(frame, LOADING)
        {
            control.late(slot, tenant);
        }
    }

    /// A block that `tenant` waited for is there, or failed.
    pub(crate) fn demand_loaded(&mut self, tenant: Tenant) {
        if let Some((control, _)) = self.tenants() {
            control.loaded(tenant);
            self.ask(tenant);
        }
    }

    /// A prefetch from `volume` that `tenant`'s list asked for is over. If it failed, the list is dropped: else it would
    /// ask for the same block again and again.
    pub(crate) fn predicted_loaded(&mut self, tenant: Tenant, volume: Volume, failed: bool) {
        let Some((control, known)) = self.tenants() else { return };
        control.prefetched(tenant, volume.0);
        if failed {
            let none = Directive::Predict { accesses: Vec::new() };
            control.apply(tenant, &none, &known).expect("a tenant with a list may have none");
            self.finish_said();
        }
        self.ask(tenant);
    }

    /// Queues the batches that lists ask for now, one for each device.
    pub(crate) fn fetch_predicted(&mut self, now: u64) {
        if matches!(&self.policy, Manager::Control(control) if control.is_pending()) {
            self.finish_said();
        }
        while let Some(tenant) = self.asking.pop() {
            let Some((control, _)) = self.tenants() else { return };
            let devices: SmallVec<[u32; 4]> = control.devices(tenant).into();
            for device in devices {
                let state = self.volumes.get(device as usize).and_then(Option::as_ref);
                if state.is_some_and(|state| state.closing.is_none()) {
                    self.fetch_batch(tenant, Volume(device), now);
                }
            }
        }
    }

    fn fetch_batch(&mut self, tenant: Tenant, volume: Volume, now: u64) {
        let mut missing: Vec<(u64, u32)> = Vec::new();
        while self.has_prefetch_budget(missing.len() as u32) {
            let Some((control, known)) = self.tenants() else { return };
            let Some(block) = control.next_prefetch(tenant, volume.0, &known) else { break };
            let place = known.files.key(block).filter(|key| key.volume() == volume);
            let Some(key) = place.filter(|key| !self.is_out_of_reach(*key)) else {
                // It waits for what is in its way, or for the tenant to pass it.
                self.note_fetched(tenant, volume);
                break;
            };
            let (slot, frame, _) = self.reference(key, Kind::Prefetch, tenant, Stream(0));
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
        let Some((control, _)) = self.tenants() else { return };
        for tenant in control.tenants() {
            let loads = underway.remove(&tenant).unwrap_or(0);
            assert_eq!(control.outstanding(tenant), loads, "prefetches of {tenant:?} that are not complete");
        }
        assert!(underway.is_empty(), "prefetches of nobody: {underway:?}");
    }

    fn note_fetched(&mut self, tenant: Tenant, volume: Volume) {
        if let Some((control, _)) = self.tenants() {
            control.prefetched(tenant, volume.0);
        }
    }
}
