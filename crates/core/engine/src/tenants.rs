//! Tenants with hints: passes their hints to the decider, and the prefetches of their lists to the devices. Numbers of
//! sections are those of ACFS (Cao, Felten, Karlin, Li, TOCS 1996).

use std::ops::Range;

use nigh_control::{Chunk, Directive, Refusal, Statistics};
use nigh_policy::{Kind, Spec, Stream, Tenant};
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::error::ConfigError;
use crate::files::Piece;
use crate::frames::{LOADING, PREFETCHED};
use crate::record::Reading;
use crate::request::Volume;
use crate::slots::{Key, NONE};

/// The most blocks that are taken from a list in one go although they need no read; the tenant's next read goes on. A long list of them
/// holds nobody up.
const UNREAD_MOST: u32 = 64;

impl Engine {
    /// Applies the hints of `tenant`, or none of them if there is an error.
    pub fn direct(&mut self, tenant: Tenant, directive: &Directive) -> Result<(), Refusal> {
        let (tenants, known) = self.hearing().ok_or(Refusal::NotHeard)?;
        let done = tenants.apply(tenant, directive, &known);
        self.told(tenant);
        done
    }

    /// Appends `bytes` of `volume` to the predicted accesses of `tenant`, or starts a list with them. Bytes outside of
    /// files cannot be predicted, nor can those of a volume that is not open.
    pub fn extend(&mut self, tenant: Tenant, volume: Volume, bytes: Range<u64>) -> Result<(), Refusal> {
        if self.volumes.get(volume).is_none() {
            return Ok(());
        }
        let (blocks, shift) = (self.blocks(&bytes), self.shift);
        let (tenants, known) = self.hearing().ok_or(Refusal::NotHeard)?;
        let mut done = Ok(());
        for (file, blocks) in known.files.within(volume, blocks) {
            let bytes = Some((blocks.start << shift, (blocks.end - blocks.start) << shift));
            done = done.and_then(|()| tenants.extend(tenant, &Chunk { file, bytes }, &known));
        }
        self.told(tenant);
        done
    }

    /// Whether a file of tenants has this number.
    pub fn has_file(&self, file: u32) -> bool {
        match self.tenants.files.is_empty() {
            true => self.hears_tenants() && self.volumes.get(Volume(file)).is_some(),
            false => self.tenants.files.last_piece(file).is_some(),
        }
    }

    /// The hints of `tenant` that are in effect.
    pub fn said(&self, tenant: Tenant) -> Vec<Directive> {
        self.policy.tenants().map_or_else(Vec::new, |tenants| tenants.said(tenant))
    }

    /// From now on `pieces` are the files of `volume`; none once it is closed. Hints of its user `tenant` about the
    /// previous files of the volume, or about files that do not exist, are forgotten; its bounds and its hints about
    /// files of other volumes stay. An error in a cache without tenants.
    pub fn name_files(&mut self, tenant: Tenant, volume: Volume, pieces: Vec<Piece>) -> Result<(), ConfigError> {
        if !self.hears_tenants() {
            return Err(ConfigError::Impossible { what: "only a cache with tenants can name files" });
        }
        let files = self.tenants.files.with(volume, pieces)?;
        let before = std::mem::replace(&mut self.tenants.files, files);
        let (tenants, known) = self.hearing().expect("it has tenants");
        let gone = |file| before.volume_of(file) == Some(volume) || known.files.volume_of(file).is_none();
        tenants.forget_files(tenant, &gone, &known);
        self.told(tenant);
        Ok(())
    }

    /// Changes the floor of `tenant`, the least blocks that it keeps, and its ceiling, the most blocks that it may have
    /// in a full cache; a ceiling of 0 means no limit.
    pub fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        let done = self.policy.tenants_mut().ok_or(Refusal::NotHeard)?.set_bounds(tenant, floor, ceiling);
        self.told(tenant);
        done
    }

    /// From now on `policy` is that of `tenant`, until its hints choose another one; `None` for that of the cache. Its blocks move to it by
    /// [`step`](Engine::step).
    pub fn set_policy_of(&mut self, tenant: Tenant, policy: Option<&Spec>) -> Result<(), Refusal> {
        let tenants = self.policy.tenants_mut().ok_or(Refusal::NotHeard)?;
        let done = tenants.set_policy_of(tenant, policy.map(|policy| policy.clone().into()));
        self.told(tenant);
        done
    }

    /// An error if no tenant can have `policy`.
    pub fn try_out(&self, policy: &Spec) -> Result<(), Refusal> {
        self.policy.tenants().ok_or(Refusal::NotHeard)?.try_out(&policy.clone().into(), 0).map(drop)
    }

    /// The policy of `tenant`, as text; `None` in a cache without tenants.
    pub fn policy_of(&self, tenant: Tenant) -> Option<String> {
        Some(self.policy.tenants()?.policy(tenant, 0).to_string())
    }

    /// `tenant` has left: its blocks have no owner, and its hints and bounds are forgotten. Its number may be used
    /// again.
    pub fn close_tenant(&mut self, tenant: Tenant) {
        if let Some(tenants) = self.policy.tenants_mut() {
            tenants.close(tenant);
            self.curves.forget(tenant);
            self.told(tenant);
        }
    }

    /// The counters of `tenant`; `None` in a cache without tenants.
    pub fn statistics(&self, tenant: Tenant) -> Option<Statistics> {
        Some(self.policy.tenants()?.statistics(tenant))
    }

    /// Resident blocks that `tenant` owns; `None` in a cache without tenants.
    pub fn owned(&self, tenant: Tenant) -> Option<u32> {
        Some(self.policy.tenants()?.size(tenant))
    }

    /// Blocks that `tenant` may have of the full cache at present, if the allocation gives it a share.
    pub fn share_of(&self, tenant: Tenant) -> Option<u32> {
        self.policy.tenants()?.share_of(tenant)
    }

    /// Queues the batches that lists request now, one for each device.
    pub(crate) fn fetch_predicted(&mut self, now: u64) {
        self.size.stepping |= self.hears_tenants() && self.policy.is_pending();
        while let Some(tenant) = self.tenants.asking.pop() {
            let devices = self.policy.tenants().map_or(&[][..], |tenants| tenants.devices(tenant));
            for device in SmallVec::<[u32; 4]>::from(devices) {
                let state = self.volumes.get(Volume(device));
                if state.is_some_and(|state| state.closing.is_none()) {
                    self.fetch_batch(tenant, Volume(device), now);
                }
            }
        }
    }

    fn fetch_batch(&mut self, tenant: Tenant, volume: Volume, now: u64) {
        // Prefetches of a list belong to its tenant.
        let stream = Stream(tenant.0.into());
        let mut missing: Vec<(u64, u32)> = Vec::new();
        let mut unread = 0;
        while unread < UNREAD_MOST && self.has_prefetch_budget(volume, missing.len() as u32) {
            let Some((tenants, known)) = self.hearing() else { break };
            let Some(block) = tenants.next_prefetch(tenant, volume.0, &known, now) else { break };
            let place = known.files.key(block).filter(|key| key.volume() == volume);
            let Some(key) = place.filter(|key| !self.is_out_of_reach(*key)) else {
                // It waits for conflicting operations, or until the tenant has passed it.
                self.note_unread(tenant, volume);
                break;
            };
            let (place, frame, _) = self.reference(key, Kind::Prefetch, tenant, stream);
            if frame.is_some() {
                self.note_unread(tenant, volume);
                unread += 1;
                continue;
            }
            let frame = self.memory.frames.take();
            self.place(place, frame);
            self.memory.frames.set(frame, LOADING | PREFETCHED);
            self.requests.prefetching += 1;
            self.volumes.state_mut(volume).prefetching += 1;
            missing.push((key.index(), frame));
        }
        self.volumes.state_mut(volume).counters.prefetch_issued += missing.len() as u64;
        missing.sort_unstable();
        self.load(volume, &missing, Reading::Predicted(tenant), now, |_| SmallVec::new());
    }

    /// Beyond the end of the disk, or in a range that is locked by a request.
    fn is_out_of_reach(&mut self, key: Key) -> bool {
        let block = key.index();
        let bytes = self.volumes.state_mut(key.volume()).bytes;
        block << self.shift >= bytes || self.volumes.state_mut(key.volume()).is_locked(&(block..block + 1), NONE)
    }

    /// As [`Engine::check`], for the state of tenants.
    pub(crate) fn check_tenants(&mut self) {
        let mut underway = std::collections::HashMap::<Tenant, u32>::new();
        for load in self.memory.loads.values() {
            if let Reading::Predicted(tenant) = load.reading {
                *underway.entry(tenant).or_default() += 1;
            }
        }
        if let Some(tenants) = self.policy.tenants() {
            for tenant in tenants.tenants() {
                let loads = underway.remove(&tenant).unwrap_or(0);
                assert_eq!(tenants.outstanding(tenant), loads, "prefetches of {tenant:?} that are not complete");
            }
        }
        assert!(underway.is_empty(), "prefetches of nobody: {underway:?}");
    }

    fn note_unread(&mut self, tenant: Tenant, volume: Volume) {
        let tenants = self.policy.tenants_mut().expect("a list requested it");
        tenants.prefetched(tenant, volume.0, None);
    }
}
