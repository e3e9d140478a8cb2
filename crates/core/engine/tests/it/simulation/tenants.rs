//! Tenants of the simulation: their directives are true, true in part, false, impossible, or beyond the end.

use std::collections::VecDeque;

use nigh_control::{Allocation, Chunk, Directive, Foresight, Limits, Order, Refusal};
use nigh_engine::{Files, Piece, Tenants, Volume};
use nigh_policy::{Spec, Tenant};
use rand::RngExt;

use super::{Random, World};

/// Tenants are numbered below this.
pub(crate) const TENANTS: u32 = 4;
/// Files on one disk.
const FILES: u32 = 3;

/// Tenants' names of files, and their directives.
pub(crate) struct Talk {
    /// Nothing where each disk is a file.
    pieces: Vec<Piece>,
    /// By tenant, what it is about to read: a disk, a block and how many.
    scripts: Vec<VecDeque<(usize, u64, u64)>>,
}

/// How tenants share a cache over disks of this many blocks.
pub(crate) fn tenants(random: &mut Random, disks: &[usize]) -> (Tenants, Talk) {
    let named = random.random_bool(0.5);
    let pieces = (0..).zip(disks).filter(|_| named).flat_map(|(number, &end)| pieces(random, number, end as u64));
    let pieces: Vec<Piece> = pieces.collect();
    let control = nigh_control::Config {
        allocation: [Allocation::LruSp, Allocation::LruSp, Allocation::Global, Allocation::Static]
            [random.random_range(0..4usize)],
        foresight: match random.random_range(0..10) {
            0..5 => Foresight::Full,
            5..7 => Foresight::Prototype,
            _ => Foresight::Fetch,
        },
        batch: random.random_range(1..20),
        adapt_batch: random.random_bool(0.3),
        free_least: random.random_range(1..6),
        window: [nigh_control::Config::WINDOW, 0, 5][random.random_range(0..3usize)],
        limits: Limits { tenants: TENANTS, files: 3, levels: 5, policies: 2, ghosts: 1.0, entries: 60 },
    };
    let files = Files::new(pieces.clone()).expect("pieces lie one behind the other");
    (Tenants { control, files }, Talk { pieces, scripts: vec![VecDeque::new(); TENANTS as usize] })
}

/// Files of a disk of `end` blocks in pieces, with gaps between them, and some beyond its end.
fn pieces(random: &mut Random, number: u32, end: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lengths = [0; FILES as usize];
    let mut disk = random.random_range(0..4);
    while disk < end + 4 {
        let (blocks, file) = (random.random_range(1..30), random.random_range(0..FILES));
        let offset = lengths[file as usize] + random.random_range(0..3) / 2;
        lengths[file as usize] = offset + blocks;
        pieces.push(Piece { volume: Volume(number), disk, file: number * FILES + file, offset, blocks });
        disk += blocks + random.random_range(0..6) / 4;
    }
    pieces
}

impl Talk {
    /// A tenant's name of a block of a disk.
    fn name(&self, at: usize, block: u64) -> Option<(u32, u64)> {
        if self.pieces.is_empty() {
            return Some((at as u32, block));
        }
        let has =
            |piece: &&Piece| piece.volume.0 as usize == at && (piece.disk..piece.disk + piece.blocks).contains(&block);
        self.pieces.iter().find(has).map(|piece| (piece.file, piece.offset + block - piece.disk))
    }

    /// The host died: what programs were about to do, they don't.
    pub(crate) fn forget(&mut self) {
        self.scripts.iter_mut().for_each(VecDeque::clear);
    }
}

impl World {
    fn blocks(&self, at: usize) -> u64 {
        (self.disks[at].bytes().len() as u64).div_ceil(self.block_bytes())
    }

    /// The next read that a tenant is about to make: its number, the disk, offset and length in bytes.
    pub(super) fn scripted(&mut self) -> Option<(Tenant, usize, u64, u64)> {
        let talk = self.talk.as_mut()?;
        let tenant = self.random.random_range(0..TENANTS);
        let (at, block, blocks) = talk.scripts[tenant as usize].pop_front()?;
        let (offset, length) = (block * self.block_bytes(), blocks * self.block_bytes());
        let end = self.disks[at].bytes().len() as u64;
        Some((Tenant(tenant), at, offset, length.min(end - offset)))
    }

    /// Reads that a tenant is about to make: runs of blocks.
    fn script(&mut self) -> VecDeque<(usize, u64, u64)> {
        let most = (u64::from(self.engine.config().limits.request_bytes) / self.block_bytes()).clamp(1, 4);
        let mut at = self.random.random_range(0..self.disks.len());
        let mut block = self.random.random_range(0..self.blocks(at));
        let mut script = VecDeque::new();
        for _ in 0..self.random.random_range(1..40) {
            if block >= self.blocks(at) || self.random.random_bool(0.15) {
                at = self.random.random_range(0..self.disks.len());
                block = self.random.random_range(0..self.blocks(at));
            }
            let blocks = self.random.random_range(1..=most).min(self.blocks(at) - block);
            script.push_back((at, block, blocks));
            block += blocks;
        }
        script
    }

    /// The accesses of a script, but for those that are left out and made up.
    fn list(&mut self, script: &VecDeque<(usize, u64, u64)>, wrong: f64) -> Vec<Chunk> {
        let mut accesses = Vec::new();
        for &(at, first, blocks) in script {
            for block in first..first + blocks {
                if let Some((file, index)) = self.talk.as_ref().and_then(|talk| talk.name(at, block))
                    && !self.random.random_bool(wrong)
                {
                    let bytes = Some((index * self.block_bytes(), self.block_bytes()));
                    accesses.push(Chunk { file, bytes });
                }
                if self.random.random_bool(wrong) {
                    accesses.push(self.chunk());
                }
            }
        }
        accesses
    }

    fn file(&mut self) -> u32 {
        self.random.random_range(0..self.disks.len() as u32 * FILES + 1)
    }

    /// Any bytes of any file, which may not exist or end before.
    fn chunk(&mut self) -> Chunk {
        let block = self.block_bytes();
        let bytes = match self.random.random_range(0..60) {
            0 => None,
            1 => Some((u64::MAX - 5, 9)),
            2 => Some((0, 0)),
            3 => Some((block << 20, 1 << 45)),
            _ => Some((self.random.random_range(0..150 * block), self.random.random_range(1..10 * block))),
        };
        Chunk { file: self.file(), bytes }
    }

    fn directive(&mut self, tenant: Tenant) -> Directive {
        let (file, priority) = (self.file(), self.random.random_range(-2..3));
        match self.random.random_range(0..12) {
            0 => Directive::SetPriority { file, priority },
            1 | 2 => Directive::SetPolicy { priority, policy: self.order() },
            3 => {
                let first = self.random.random_range(0..100);
                let last = if self.random.random_bool(0.1) { u64::MAX } else { self.random.random_range(0..160) };
                Directive::SetTemporaryPriority { file, first, last, priority: self.random.random_range(-40..40) }
            }
            4 => Directive::Predict { accesses: Vec::new() },
            5 => Directive::Predict { accesses: vec![Chunk { file, bytes: None }] },
            6 => {
                let count = self.random.random_range(1..66);
                Directive::Predict { accesses: (0..count).map(|_| self.chunk()).collect() }
            }
            _ => {
                let script = self.script();
                let wrong = if self.random.random_bool(0.5) { 0.0 } else { self.random.random_range(0.0..0.9) };
                let accesses = self.list(&script, wrong);
                if let Some(talk) = &mut self.talk
                    && let Some(own) = talk.scripts.get_mut(tenant.0 as usize)
                {
                    *own = script;
                }
                Directive::Predict { accesses }
            }
        }
    }

    fn order(&mut self) -> Order {
        let policies = nigh_policy::registry();
        match self.random.random_range(0..4) {
            0 => Order::Lru,
            1 => Order::Mru,
            _ => {
                let name = policies[self.random.random_range(0..policies.len())].name;
                Order::Policy(name.parse().expect("a registered policy"))
            }
        }
    }

    /// The files of a disk are others.
    fn name_files(&mut self) {
        let at = self.random.random_range(0..self.disks.len());
        let end = self.blocks(at);
        let Some(talk) = &mut self.talk else { return };
        // If nothing is named, each disk is a file.
        if talk.pieces.is_empty() {
            return;
        }
        let volume = Volume(at as u32);
        let pieces = pieces(&mut self.random, volume.0, end);
        talk.pieces.retain(|piece| piece.volume != volume);
        talk.pieces.extend(&pieces);
        // Here all of them use every disk.
        for tenant in (0..TENANTS).map(Tenant) {
            self.engine.name_files(tenant, volume, pieces.clone()).expect("pieces lie one behind the other");
        }
    }

    /// A tenant's list goes on with what it is about to read, or with anything on a disk.
    fn extend(&mut self, tenant: Tenant) -> Result<(), Refusal> {
        let own = self.talk.as_ref().and_then(|talk| talk.scripts[tenant.0 as usize].back().copied());
        let (at, block, blocks) = own.filter(|_| self.random.random_bool(0.5)).unwrap_or_else(|| {
            let at = self.random.random_range(0..self.disks.len());
            (at, self.random.random_range(0..self.blocks(at)), self.random.random_range(1..20))
        });
        let offset = block * self.block_bytes() + self.random.random_range(0..self.block_bytes());
        self.engine.extend(tenant, Volume(at as u32), offset..offset + blocks * self.block_bytes())
    }

    /// A tenant sends a directive, gets other bounds, or is gone, or files are named anew.
    pub(super) fn talk(&mut self) {
        // One of them is beyond the limit.
        let tenant = Tenant(self.random.random_range(0..=TENANTS));
        let done = match self.random.random_range(0..40) {
            0 => {
                self.count_tenant(tenant);
                self.engine.close_tenant(tenant);
                return;
            }
            1..4 => {
                let capacity = self.engine.config().capacity;
                let (floor, ceiling) =
                    (self.random.random_range(0..=capacity), self.random.random_range(0..2 * capacity));
                self.engine.set_bounds(tenant, floor, ceiling)
            }
            4 => return self.name_files(),
            12..15 => {
                let policies = super::policies();
                let policy = policies[self.random.random_range(0..policies.len())].parse().expect("registered");
                let policy: Option<Spec> = Some(policy).filter(|_| self.random.random_bool(0.7));
                self.engine.set_policy_of(tenant, policy.as_ref())
            }
            5..12 if tenant.0 < TENANTS => self.extend(tenant),
            _ => {
                let directive = self.directive(tenant);
                self.engine.direct(tenant, &directive)
            }
        };
        self.done.said += u64::from(done.is_ok());
        assert_eq!(matches!(done, Err(Refusal::NoTenant)), tenant.0 == TENANTS, "{tenant:?}: {done:?}");
    }

    pub(super) fn count_tenant(&mut self, tenant: Tenant) {
        if let Some(own) = self.engine.statistics(tenant) {
            self.done.prefetched += own.prefetched;
            self.done.prefetch_used += own.used;
            self.done.overruled += own.overruled;
            self.done.mistakes += own.mistakes;
            self.done.lists_dropped += own.lists_dropped;
        }
    }
}
