//! What directives, bounds and prefetching do to a [`Control`].

use nigh_policy::{Block, Slot, Tenant};

use crate::access_list::{NEVER, Stretch};
use crate::config::Foresight;
use crate::directive::{Chunk, Directive, Index, Order, Refusal};
use crate::lru_sp::{Control, Enter, TENANTS_MOST};
use crate::prefetch::Prefetch;
use crate::tenant::{Prediction, Share};

impl Control {
    /// Does what `tenant` says, or nothing. Takes time in proportion to the
    /// tenant's resident blocks, and to a list's entries.
    pub fn apply(&mut self, tenant: Tenant, directive: &Directive, index: &dyn Index) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        let done = match directive {
            Directive::SetPriority { file, priority } => self.set_priority(owner, *file, *priority, index),
            Directive::SetPolicy { priority, policy } => self.set_policy(owner, *priority, policy, index),
            Directive::SetTemporaryPriority { file, first, last, priority } => {
                self.set_temporary_priority(owner, *file, *first, *last, *priority, index)
            }
            Directive::Predict { accesses } => self.predict(owner, accesses, index),
        };
        self.collect();
        done
    }

    /// The long-term priority of `file` for `tenant`.
    pub fn priority(&self, tenant: Tenant, file: u32) -> i32 {
        let share = self.shares.get(tenant.0 as usize);
        share.and_then(|share| share.levels.as_ref()).map_or(0, |levels| levels.priority(file))
    }

    /// The policy of `tenant`'s blocks of `priority`.
    pub fn policy(&self, tenant: Tenant, priority: i32) -> Order {
        let levels = self.shares.get(tenant.0 as usize).and_then(|share| share.levels.as_ref());
        let pool = levels.and_then(|levels| levels.pool_of_priority(priority));
        match (&self.managed, pool) {
            (Some(managed), Some(pool)) => managed.pools.order(pool).clone(),
            _ => Order::default(),
        }
    }

    /// What `tenant` said, as far as it holds: to say it again brings about the same.
    pub fn said(&self, tenant: Tenant) -> Vec<Directive> {
        let Some(share) = self.shares.get(tenant.0 as usize) else { return Vec::new() };
        let levels = share.levels.iter();
        let policies = levels.clone().flat_map(|levels| levels.named());
        let policies = policies.map(|priority| (priority, self.policy(tenant, priority)));
        let policies = policies.filter(|(_, policy)| *policy != Order::Lru);
        let files = levels.flat_map(|levels| levels.files());
        let files = files.map(|&(file, priority)| Directive::SetPriority { file, priority });
        let block_bytes = u64::from(self.setup.block_bytes);
        let accesses = share.prediction.iter().flat_map(|list| list.prefetch.list().from(list.prefetch.ahead()));
        let accesses = accesses.map(|Stretch { file, first, end }| Chunk {
            file,
            bytes: Some((first * block_bytes, (end - first) * block_bytes)),
        });
        let accesses: Vec<Chunk> = accesses.collect();
        let list = (!accesses.is_empty()).then_some(Directive::Predict { accesses });
        let policies = policies.map(|(priority, policy)| Directive::SetPolicy { priority, policy });
        files.chain(policies).chain(list).collect()
    }

    /// The least blocks that `tenant` keeps, and the most that it may have, 0 for any number.
    pub fn bounds(&self, tenant: Tenant) -> (u32, u32) {
        let share = self.shares.get(tenant.0 as usize);
        share.map_or((0, 0), |share| (share.floor, if share.ceiling == u32::MAX { 0 } else { share.ceiling }))
    }

    /// Forgets what `tenant` said. Its blocks have no owner until they are referenced; its bounds and counts stay.
    pub fn forget(&mut self, tenant: Tenant) {
        let (floor, ceiling) = self.bounds(tenant);
        self.let_go(tenant);
        if (floor, ceiling) != (0, 0) {
            self.set_bounds(tenant, floor, ceiling).expect("these bounds were set before");
        }
    }

    /// Changes the least blocks that `tenant` keeps and, unless it is 0, the most that it may have of a full cache.
    /// Blocks above a new ceiling leave as anyone misses.
    pub fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        let others: u64 = self.shares.iter().map(|share| u64::from(share.floor)).sum();
        let floors = others - u64::from(self.shares[owner as usize].floor) + u64::from(floor);
        if (ceiling > 0 && floor > ceiling) || floors >= u64::from(self.setup.capacity) {
            return Err(Refusal::BadBounds);
        }
        if ceiling > 0 {
            // Who has a ceiling must be able to name a block of its own.
            self.manage(owner);
        }
        let share = &mut self.shares[owner as usize];
        (share.floor, share.ceiling) = (floor, if ceiling > 0 { ceiling } else { u32::MAX });
        self.see_bounds();
        Ok(())
    }

    /// The next block to fetch for `tenant` from `device`, if it is to fetch one now.
    ///
    /// To be called after each reference of the tenant and each [`prefetched`](Control::prefetched), until it gives none.
    /// The host references each block with [`Kind::Prefetch`](nigh_policy::Kind::Prefetch) before it asks again, and
    /// sends the whole batch, sorted by place, when there is no more.
    pub fn next_prefetch(&mut self, tenant: Tenant, device: u32, index: &dyn Index) -> Option<Block> {
        let (batch, least) = (self.config.batch, self.config.free_least);
        let share = self.shares.get_mut(tenant.0 as usize)?;
        let underway = share.outstanding.get(device as usize).is_some_and(|&outstanding| outstanding > 0);
        let (position, block) = share.prediction.as_mut()?.prefetch.hole(device, underway, batch, index)?;
        let enough = self.free_frames() >= least || self.free_blocks(tenant.0 as u16, position) >= least;
        let Share { prediction, outstanding, credit, .. } = &mut self.shares[tenant.0 as usize];
        let prefetch = &mut prediction.as_mut()?.prefetch;
        if !enough || *credit == Some(0) {
            prefetch.end_batch(device);
            return None;
        }
        prefetch.issue(device);
        *credit = credit.map(|credit| credit - 1);
        let device = device as usize;
        outstanding.resize(outstanding.len().max(device + 1), 0);
        outstanding[device] += 1;
        Some(block)
    }

    /// A prefetch of `tenant` from `device` is complete or failed, whatever became of its list.
    ///
    /// # Panics
    /// If none is outstanding.
    pub fn prefetched(&mut self, tenant: Tenant, device: u32) {
        let share = self.shares.get_mut(tenant.0 as usize);
        let outstanding = share.and_then(|share| share.outstanding.get_mut(device as usize));
        let outstanding = outstanding.filter(|outstanding| **outstanding > 0);
        *outstanding.expect("a prefetch that was asked for") -= 1;
    }

    /// `tenant` is about to reference the block of `slot`, which is still being loaded.
    pub fn late(&mut self, slot: Slot, tenant: Tenant) {
        if self.is_ahead(slot, tenant) {
            self.shares[tenant.0 as usize].statistics.late += 1;
        }
    }

    /// A block that `tenant` waited for is there.
    pub fn loaded(&mut self, tenant: Tenant) {
        if let Some(prediction) = self.shares.get_mut(tenant.0 as usize).and_then(|share| share.prediction.as_mut()) {
            prediction.prefetch.demand_finished();
        }
    }

    /// The devices that the files of `tenant`'s list lie on.
    pub fn devices(&self, tenant: Tenant) -> &[u32] {
        let list = self.shares.get(tenant.0 as usize).and_then(|share| share.prediction.as_ref());
        list.map_or(&[], |list| list.prefetch.devices())
    }

    /// Prefetches of `tenant` that are not complete: 4.3's pCount, of all devices.
    pub fn outstanding(&self, tenant: Tenant) -> u32 {
        self.shares.get(tenant.0 as usize).map_or(0, |share| share.outstanding.iter().sum())
    }

    /// Whether `tenant` has a list that is not over.
    pub fn has_list(&self, tenant: Tenant) -> bool {
        self.shares.get(tenant.0 as usize).is_some_and(|share| share.prediction.is_some())
    }

    /// 4.3's freeBlocks, as far as it matters: the blocks of `tenant` that come after `hole`, or never, but not more than
    /// `free_least`, and free frames count as well.
    fn free_blocks(&self, tenant: u16, hole: u32) -> u32 {
        let least = self.config.free_least;
        let share = &self.shares[tenant as usize];
        let (Some(managed), Some(levels), Some(prediction)) = (&self.managed, &share.levels, &share.prediction) else {
            return 0;
        };
        let frames = self.free_frames().min(least);
        let pools = levels.pools().filter(|&pool| managed.pools.len(pool) > 0);
        if self.config.foresight == Foresight::Full {
            let never: u32 = pools.map(|pool| managed.pools.len(pool)).sum();
            let after = prediction.coming.range(hole + 1..).take(least as usize).count() as u32;
            return frames.saturating_add(never).saturating_add(after).min(least);
        }
        // The next victims are those of the policies, whatever the list says.
        let victims = pools.flat_map(|pool| managed.pools.victims(pool)).take((least - frames) as usize);
        frames + victims.take_while(|victim| managed.position[victim.index()] > hole).count() as u32
    }

    fn known_tenant(&mut self, tenant: Tenant) -> Result<u16, Refusal> {
        if tenant.0 >= self.config.limits.tenants.min(TENANTS_MOST) {
            return Err(Refusal::NoTenant);
        }
        if tenant.0 as usize >= self.shares.len() {
            self.admit(tenant.0);
        }
        Ok(tenant.0 as u16)
    }

    fn set_priority(&mut self, tenant: u16, file: u32, priority: i32, index: &dyn Index) -> Result<(), Refusal> {
        self.manage(tenant);
        let limits = self.config.limits;
        let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[tenant as usize].levels) else {
            unreachable!("the tenant manages itself")
        };
        let before = levels.priority(file);
        if before == priority {
            return Ok(());
        }
        levels.open(priority, &limits, &mut managed.pools)?;
        if let Err(refusal) = levels.set_file(file, priority, &limits) {
            levels.tidy(priority, &mut managed.pools);
            return Err(refusal);
        }
        let later_first = self.policy(Tenant(tenant.into()), priority) == Order::Mru;
        let moves = |slot: &Slot| index.block(*slot).volume == file;
        let mut slots: Vec<Slot> = self.blocks_of(tenant).into_iter().filter(moves).collect();
        if !later_first {
            // Each enters at the end that is replaced later: the last to enter is the most recently used.
            slots.reverse();
        }
        for slot in slots {
            if self.is_temporary(slot) || (self.config.foresight == Foresight::Full && self.position(slot) != NEVER) {
                continue;
            }
            let access = self.moving(index.block(slot), tenant);
            self.leave_pool(slot);
            self.enter_pool(slot, tenant, file, &access, Enter::Later);
        }
        if let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[tenant as usize].levels) {
            levels.tidy(before, &mut managed.pools);
        }
        Ok(())
    }

    fn set_policy(&mut self, tenant: u16, priority: i32, policy: &Order, index: &dyn Index) -> Result<(), Refusal> {
        self.manage(tenant);
        let limits = self.config.limits;
        let (template, Some(managed)) = (self.moving(Block { volume: 0, index: 0 }, tenant), &mut self.managed) else {
            unreachable!("the tenant manages itself")
        };
        let Some(levels) = &mut self.shares[tenant as usize].levels else { unreachable!("the tenant manages itself") };
        let is_other = |order: &Order| matches!(order, Order::Policy(_));
        let pool = levels.open(priority, &limits, &mut managed.pools)?;
        let more = is_other(policy) && !is_other(managed.pools.order(pool));
        let done = if more && managed.pools.policies() >= limits.policies {
            Err(Refusal::TooManyPolicies { most: limits.policies })
        } else {
            let access = |slot: Slot| nigh_policy::Access { block: index.block(slot), ..template };
            managed.pools.set_order(pool, policy.clone(), &access)
        };
        match done {
            Ok(()) => levels.name(priority),
            Err(_) => levels.tidy(priority, &mut managed.pools),
        }
        done
    }

    fn set_temporary_priority(
        &mut self,
        tenant: u16,
        file: u32,
        first: u64,
        last: u64,
        priority: i32,
        index: &dyn Index,
    ) -> Result<(), Refusal> {
        if first > last {
            return Err(Refusal::BadRange);
        }
        self.manage(tenant);
        let limits = self.config.limits;
        let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[tenant as usize].levels) else {
            unreachable!("the tenant manages itself")
        };
        levels.open(priority, &limits, &mut managed.pools)?;
        let slots: Vec<Slot> = if last - first < u64::from(self.size(Tenant(tenant.into()))) {
            (first..=last).filter_map(|at| index.resident(Block { volume: file, index: at })).collect()
        } else {
            let block = |slot: &Slot| index.block(*slot);
            let inside = |slot: &Slot| block(slot).volume == file && (first..=last).contains(&block(slot).index);
            let mut slots: Vec<Slot> = self.blocks_of(tenant).into_iter().filter(inside).collect();
            slots.sort_by_key(|slot| block(slot).index);
            slots
        };
        for slot in slots {
            let in_list = self.config.foresight == Foresight::Full && self.position(slot) != NEVER;
            if self.owner_is(slot, tenant) && !in_list {
                let access = self.moving(index.block(slot), tenant);
                self.set_temporary(slot, tenant, priority, &access);
            }
        }
        if let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[tenant as usize].levels) {
            levels.tidy(priority, &mut managed.pools);
        }
        Ok(())
    }

    fn predict(&mut self, tenant: u16, accesses: &[Chunk], index: &dyn Index) -> Result<(), Refusal> {
        let most = self.config.limits.entries;
        if accesses.len() > most {
            return Err(Refusal::TooManyAccesses { given: accesses.len(), most });
        }
        let block_bytes = self.setup.block_bytes;
        let mut prefetch = Prefetch::new();
        for chunk in accesses {
            if let Some(stretch) = stretch(chunk, block_bytes, index)?
                && !prefetch.extend(stretch, index.device(stretch.file))
            {
                return Err(Refusal::TooManyBlocks);
            }
        }
        self.manage(tenant);
        self.drop_list(tenant);
        if prefetch.list().length() == 0 {
            return Ok(());
        }
        self.shares[tenant as usize].prediction = Some(Box::new(Prediction { prefetch, coming: Default::default() }));
        for slot in self.blocks_of(tenant) {
            self.place(slot, tenant, index.block(slot));
        }
        Ok(())
    }

    /// `tenant` will read `chunk` after what its list says; without one, its list begins with that. Takes time in
    /// proportion to the chunk's blocks.
    pub fn extend(&mut self, tenant: Tenant, chunk: &Chunk, index: &dyn Index) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        let most = self.config.limits.entries;
        let Some(stretch) = stretch(chunk, self.setup.block_bytes, index)? else { return Ok(()) };
        self.manage(owner);
        let mut list = self.shares[owner as usize].prediction.take();
        let Prediction { prefetch, .. } = &mut **list
            .get_or_insert_with(|| Box::new(Prediction { prefetch: Prefetch::new(), coming: Default::default() }));
        let done = match prefetch.list().entries() {
            given if given >= most => Err(Refusal::TooManyAccesses { given: given + 1, most }),
            _ if prefetch.extend(stretch, index.device(stretch.file)) => Ok(()),
            _ => Err(Refusal::TooManyBlocks),
        };
        self.shares[owner as usize].prediction = list.filter(|list| list.prefetch.list().length() > 0);
        done?;
        for block in (stretch.first..stretch.end).map(|at| Block { volume: stretch.file, index: at }) {
            if let Some(slot) = index.resident(block)
                && self.owner_is(slot, owner)
                && self.position(slot) == NEVER
            {
                self.place(slot, owner, block);
            }
        }
        self.collect();
        Ok(())
    }
}

/// The blocks of `chunk`, those that it has in part included; `None` for an empty file.
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
