//! The effects of directives and prefetches on an [`LruSp`].

use std::collections::VecDeque;

use nigh_policy::{Block, Slot, Tenant};

use crate::access_list::Stretch;
use crate::config::Foresight;
use crate::directive::{Chunk, Directive, Index, Order, Refusal};
use crate::levels::Levels;
use crate::lru_sp::{LruSp, Managed, TENANTS_MOST};
use crate::prefetch::Prefetch;
use crate::tasks::{Search, Temporary};
use crate::tenant::Share;

/// A range of up to this many blocks is searched block by block, however small the cache is.
const SEARCHED_LEAST: u32 = 256;

impl LruSp {
    /// Applies a directive of `tenant`, or changes nothing on an error. Takes time in proportion to a list's entries.
    /// The directive reaches the first of the tenant's present blocks now, the others by [`step`](LruSp::step).
    pub fn apply(&mut self, tenant: Tenant, directive: &Directive, index: &dyn Index) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        match directive {
            Directive::SetPriority { file, priority } => self.set_priority(owner, *file, *priority)?,
            Directive::SetPolicy { priority, policy } => self.set_policy_of_level(owner, *priority, policy)?,
            Directive::SetTemporaryPriority { file, first, last, priority } => {
                self.set_temporary_priority(owner, *file, *first, *last, *priority, index)?;
            }
            Directive::Predict { accesses } => self.predict(owner, accesses, index)?,
        }
        self.step_first(index);
        self.collect();
        Ok(())
    }

    /// The long-term priority of `file` for `tenant`.
    pub fn priority(&self, tenant: Tenant, file: u32) -> i32 {
        let levels = self.share(tenant).and_then(|share| share.levels.as_ref());
        levels.map_or(0, |levels| levels.priority(file))
    }

    /// The policy of `tenant`'s blocks of `priority`.
    pub fn policy(&self, tenant: Tenant, priority: i32) -> Order {
        let levels = self.share(tenant).and_then(|share| share.levels.as_ref());
        let pool = levels.and_then(|levels| levels.pool_of_priority(priority));
        match (&self.managed, pool) {
            (Some(managed), Some(pool)) => managed.pools.order(pool).clone(),
            _ if priority == 0 => self.policy_of(self.owner(tenant)).clone(),
            _ => Order::default(),
        }
    }

    /// The directives of `tenant` that are in effect: applying them again has the same result.
    pub fn said(&self, tenant: Tenant) -> Vec<Directive> {
        let Some(share) = self.share(tenant) else { return Vec::new() };
        let levels = share.levels.iter();
        let policies = levels.clone().flat_map(|levels| levels.named());
        let policies = policies.map(|priority| (priority, self.policy(tenant, priority)));
        let policies = policies.filter(|(priority, policy)| *priority == 0 || *policy != Order::Lru);
        let files = levels.flat_map(|levels| levels.files());
        let files = files.map(|&(file, priority)| Directive::SetPriority { file, priority });
        let block_bytes = u64::from(self.block_bytes);
        let accesses = share.prediction.iter().flat_map(|prefetch| prefetch.list().from(prefetch.ahead()));
        let accesses = accesses.map(|Stretch { file, first, end }| Chunk {
            file,
            bytes: Some((first * block_bytes, (end - first) * block_bytes)),
        });
        let accesses: Vec<Chunk> = accesses.collect();
        let list = (!accesses.is_empty()).then_some(Directive::Predict { accesses });
        let policies = policies.map(|(priority, policy)| Directive::SetPolicy { priority, policy });
        files.chain(policies).chain(list).collect()
    }

    /// The next block to fetch for `tenant` from `device`, if a prefetch is due.
    ///
    /// To be called after each reference of the tenant and each [`prefetched`](LruSp::prefetched), until it returns
    /// `None` or the host can fetch no more. The host references each block with [`Kind::Prefetch`](nigh_policy::Kind::Prefetch) before it calls
    /// again, and sends the whole batch, sorted by place, at the end. `now` is the host's time, in any unit; it never decreases.
    pub fn next_prefetch(&mut self, tenant: Tenant, device: u32, index: &dyn Index, now: u64) -> Option<Block> {
        let (most, least, adapts) = (self.config.batch, self.config.free_least, self.config.adapt_batch);
        let owner = self.owner(tenant);
        let share = self.shares.get_mut(owner as usize)?;
        let batch = if adapts { share.pace(device).map_or(1, |pace| pace.batch(most)) } else { most };
        let underway = share.outstanding.iter().any(|&(other, _)| other == device);
        let prefetch = share.prediction.as_mut()?;
        let before = prefetch.furthest_hole();
        let hole = prefetch.hole(device, underway, batch, index);
        self.pass_hole(owner, before);
        let (position, block) = hole?;
        let enough = self.free_frames() >= least || self.free_blocks(owner, position) >= least;
        let terms = self.config.terms();
        let Share { prediction, outstanding, paces, credit, allowance, .. } = &mut self.shares[owner as usize];
        let prefetch = prediction.as_mut()?;
        if !enough || *credit == Some(0) || !allowance.has_any(terms) {
            prefetch.end_batch(device);
            return None;
        }
        prefetch.issue(device);
        *credit = credit.map(|credit| credit - 1);
        let count = of_device(outstanding, device);
        if adapts {
            of_device(paces, device).fetch(*count, now);
        }
        *count += 1;
        Some(block)
    }

    /// A prefetch of `tenant` from `device` is complete or failed, whether or not its list still exists. `read_at` is the time if the block was
    /// read.
    ///
    /// # Panics
    /// If none is outstanding.
    pub fn prefetched(&mut self, tenant: Tenant, device: u32, read_at: Option<u64>) {
        let most = self.config.batch;
        let share = self.share_mut(tenant);
        let Share { outstanding, paces, .. } = share.expect("a prefetch that was asked for");
        let at = outstanding.iter().position(|&(other, _)| other == device).expect("a prefetch that was asked for");
        outstanding[at].1 -= 1;
        let is_last = outstanding[at].1 == 0;
        if is_last {
            outstanding.swap_remove(at);
        }
        let pace = paces.iter_mut().find(|(other, _)| *other == device).map(|(_, pace)| pace);
        match (pace, read_at) {
            (Some(pace), Some(now)) if is_last => pace.over(now, most),
            (Some(pace), None) => pace.skip(),
            _ => {}
        }
    }

    /// `tenant` is about to reference the block of `slot`, which is still being loaded.
    pub fn late(&mut self, slot: Slot, tenant: Tenant) {
        let owner = self.owner(tenant);
        if self.is_ahead(slot, owner) {
            let share = &mut self.shares[owner as usize];
            share.statistics.late += 1;
        }
    }

    /// A block that `tenant` waited for is loaded.
    pub fn loaded(&mut self, tenant: Tenant) {
        if let Some(prefetch) = self.share_mut(tenant).and_then(|share| share.prediction.as_mut()) {
            prefetch.demand_finished();
        }
    }

    /// The devices of the files in `tenant`'s list.
    pub fn devices(&self, tenant: Tenant) -> &[u32] {
        let prefetch = self.share(tenant).and_then(|share| share.prediction.as_ref());
        prefetch.map_or(&[], |prefetch| prefetch.devices())
    }

    /// Incomplete prefetches of `tenant`: 4.3's pCount, of all devices.
    pub fn outstanding(&self, tenant: Tenant) -> u32 {
        self.share(tenant).map_or(0, |share| share.outstanding.iter().map(|&(_, count)| count).sum())
    }

    /// Whether `tenant` has a list that is not over.
    pub fn has_list(&self, tenant: Tenant) -> bool {
        self.share(tenant).is_some_and(|share| share.prediction.is_some())
    }

    /// 4.3's freeBlocks, up to the limit that matters: the blocks of `tenant` that occur after `hole`, or never, but at
    /// most `free_least`; free frames count as well.
    fn free_blocks(&self, owner: u16, hole: u32) -> u32 {
        let least = self.config.free_least;
        let share = &self.shares[owner as usize];
        let (Some(managed), Some(levels)) = (&self.managed, &share.levels) else { return 0 };
        let frames = self.free_frames().min(least);
        let pools = levels.pools().filter(|&pool| managed.pools.len(pool) > 0);
        if self.config.foresight != Foresight::Fetch {
            // All of them occur after the hole or never.
            let pooled: u32 = pools.map(|pool| managed.pools.len(pool)).sum();
            let others = share.coming.range((share.lists, hole + 1)..).map(|(_, &slot)| slot);
            let others = others.take(least as usize).filter(|&slot| managed.pools.pool(slot).is_none());
            return frames.saturating_add(pooled).saturating_add(others.count() as u32).min(least);
        }
        // The next victims are those of the policies; the list has no influence. Which blocks a policy of the registry evicts is not
        // known: it may take those that were fetched, which would be fetched again without end.
        let pools = pools.take_while(|&pool| !matches!(managed.pools.order(pool), Order::Policy(_)));
        let victims = pools.flat_map(|pool| managed.pools.victims(pool)).take((least - frames) as usize);
        frames + victims.take_while(|&victim| self.position(victim) > hole).count() as u32
    }

    pub(crate) fn known_tenant(&mut self, tenant: Tenant) -> Result<u16, Refusal> {
        if tenant.0 >= self.config.limits.tenants.min(TENANTS_MOST) {
            return Err(Refusal::NoTenant);
        }
        Ok(self.heard(tenant))
    }

    /// The pools, and the levels of `owner`, which is a manager from now on.
    fn levels(&mut self, owner: u16) -> (&mut Managed, &mut Levels) {
        self.manage(owner);
        match (&mut self.managed, &mut self.shares[owner as usize].levels) {
            (Some(managed), Some(levels)) => (managed, levels),
            _ => unreachable!("the tenant manages itself"),
        }
    }

    fn set_priority(&mut self, owner: u16, file: u32, priority: i32) -> Result<(), Refusal> {
        let limits = self.config.limits;
        let (managed, levels) = self.levels(owner);
        let before = levels.priority(file);
        if before == priority {
            return Ok(());
        }
        levels.open(priority, &limits, &mut managed.pools)?;
        if let Err(refusal) = levels.set_file(file, priority, &limits) {
            levels.tidy(priority, &mut managed.pools);
            return Err(refusal);
        }
        levels.tidy(before, &mut managed.pools);
        if self.shares[owner as usize].size > 0 {
            self.want_sweep();
        }
        Ok(())
    }

    fn set_policy_of_level(&mut self, owner: u16, priority: i32, policy: &Order) -> Result<(), Refusal> {
        let (limits, hinted, largest) = (self.config.limits, self.hinted_policies(), self.largest);
        let (managed, levels) = self.levels(owner);
        let is_other = |order: &Order| matches!(order, Order::Policy(_));
        let pool = levels.open(priority, &limits, &mut managed.pools)?;
        let is_own = priority == 0 && !levels.is_ground_named();
        let more = is_other(policy) && (is_own || !is_other(managed.pools.order(pool)));
        let done = if more && hinted >= limits.policies {
            Err(Refusal::TooManyPolicies { most: limits.policies })
        } else if managed.pools.order(pool) == policy {
            Ok(())
        } else if managed.pools.is_handing_over(pool) {
            Err(Refusal::Busy)
        } else {
            managed.pools.set_order(pool, policy.clone(), largest).map_err(Refusal::Policy)
        };
        match done {
            Ok(()) => levels.name(priority),
            Err(_) => levels.tidy(priority, &mut managed.pools),
        }
        done
    }

    fn set_temporary_priority(
        &mut self,
        owner: u16,
        file: u32,
        first: u64,
        last: u64,
        priority: i32,
        index: &dyn Index,
    ) -> Result<(), Refusal> {
        if first > last {
            return Err(Refusal::BadRange);
        }
        let (limits, slots) = (self.config.limits, self.room.slots);
        let (managed, levels) = self.levels(owner);
        levels.open(priority, &limits, &mut managed.pools)?;
        // There are no blocks beyond the end of the file.
        let blocks = index.file_bytes(file).map_or(u64::MAX, |bytes| bytes.div_ceil(u64::from(self.block_bytes)));
        let last = last.min(blocks.saturating_sub(1));
        let few = u64::from(slots.max(SEARCHED_LEAST));
        let search = if last.saturating_sub(first) < few { Search::Blocks(first) } else { Search::Slots(0) };
        let tick = self.tick;
        let done = if first > last {
            Ok(())
        } else {
            self.add_temporary(Temporary { owner, file, first, last, priority, tick, search })
        };
        if done.is_err() || first > last {
            self.tidy(owner, priority);
        }
        done
    }

    fn predict(&mut self, owner: u16, accesses: &[Chunk], index: &dyn Index) -> Result<(), Refusal> {
        let most = self.config.limits.entries;
        if accesses.len() > most {
            return Err(Refusal::TooManyAccesses { given: accesses.len(), most });
        }
        let mut prefetch = Prefetch::new();
        for chunk in accesses {
            if let Some(stretch) = stretch(chunk, self.block_bytes, index)?
                && !prefetch.extend(stretch, index.device(stretch.file))
            {
                return Err(Refusal::TooManyBlocks);
            }
        }
        self.manage(owner);
        self.replace_list(owner, prefetch);
        Ok(())
    }

    /// From now on `next` is the list of `owner`, which is a manager.
    fn replace_list(&mut self, owner: u16, next: Prefetch) {
        let next = (next.list().length() > 0).then(|| Box::new(next));
        if next.is_some() && self.shares[owner as usize].size > 0 {
            self.want_sweep();
        }
        self.set_list(owner, next);
    }

    /// Forgets the hints of `tenant` about files for which `gone` is true: their priorities, and its list if it
    /// contains them. Its hints about priority levels, its bounds and its counts stay. Takes time in proportion to its
    /// hints. The effect reaches blocks only with [`step`](LruSp::step), so that a host can first call this for several
    /// tenants.
    pub fn forget_files(&mut self, tenant: Tenant, gone: &dyn Fn(u32) -> bool, index: &dyn Index) {
        let owner = self.owner(tenant);
        let Some(share) = self.shares.get(owner as usize) else { return };
        let files = share.levels.iter().flat_map(|levels| levels.files());
        let files: Vec<u32> = files.map(|&(file, _)| file).filter(|file| gone(*file)).collect();
        for file in files {
            self.set_priority(owner, file, 0).expect("priority 0 needs no room");
        }
        let (over, left) = std::mem::take(&mut self.tasks.temporary)
            .into_iter()
            .partition::<VecDeque<Temporary>, _>(|of| of.owner == owner && gone(of.file));
        self.tasks.temporary = left;
        over.iter().for_each(|of| self.tidy(owner, of.priority));
        if let Some(prediction) = &self.shares[owner as usize].prediction {
            let rest = prediction.list().from(prediction.ahead());
            let (over, rest): (Vec<Stretch>, Vec<Stretch>) = rest.partition(|stretch| gone(stretch.file));
            if !over.is_empty() {
                let next = prediction.with_rest(&rest, index);
                self.replace_list(owner, next);
            }
        }
        self.collect();
    }

    /// Appends `chunk` to the predicted reads of `tenant`, or starts a list with it. Takes time in proportion to the
    /// chunk's blocks.
    pub fn extend(&mut self, tenant: Tenant, chunk: &Chunk, index: &dyn Index) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        let most = self.config.limits.entries;
        let Some(stretch) = stretch(chunk, self.block_bytes, index)? else { return Ok(()) };
        self.manage(owner);
        let mut prefetch = self.shares[owner as usize].prediction.take().unwrap_or_else(|| Box::new(Prefetch::new()));
        let done = match prefetch.list().entries() {
            given if given >= most => Err(Refusal::TooManyAccesses { given: given + 1, most }),
            _ if prefetch.extend(stretch, index.device(stretch.file)) => Ok(()),
            _ => Err(Refusal::TooManyBlocks),
        };
        self.shares[owner as usize].prediction = Some(prefetch).filter(|prefetch| prefetch.list().length() > 0);
        done?;
        for block in (stretch.first..stretch.end).map(|at| Block { volume: stretch.file, index: at }) {
            if let Some(slot) = index.resident(block) {
                self.foresee(slot, owner, block);
            }
        }
        self.step_first(index);
        self.collect();
        Ok(())
    }
}

/// The entry of `device` in `all`.
fn of_device<T: Default>(all: &mut Vec<(u32, T)>, device: u32) -> &mut T {
    let known = all.iter().position(|&(other, _)| other == device);
    let at = known.unwrap_or_else(|| {
        all.push((device, T::default()));
        all.len() - 1
    });
    &mut all[at].1
}

/// The blocks of `chunk`, including those it covers in part; `None` for an empty file.
fn stretch(chunk: &Chunk, block_bytes: u32, index: &dyn Index) -> Result<Option<Stretch>, Refusal> {
    let file = chunk.file;
    let (offset, length) = match chunk.bytes {
        Some((_, 0)) => return Err(Refusal::BadRange),
        Some(bytes) => bytes,
        None => (0, index.file_bytes(file).ok_or(Refusal::UnknownFile { file })?),
    };
    let end = offset.checked_add(length).ok_or(Refusal::BadRange)?;
    let block_bytes = u64::from(block_bytes);
    Ok((length > 0).then(|| Stretch { file, first: offset / block_bytes, end: end.div_ceil(block_bytes) }))
}
