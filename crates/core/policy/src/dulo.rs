//! DULO: of equally old blocks, those that are cheap to fetch again leave first, because their neighbours on disk leave
//! with them.
//!
//! The stack is that of section 3.1: a correlation buffer of fixed size at the top; below it the sequencing bank, which
//! holds 0 to BANK_MAX blocks; and at the bottom the evicting section, ordered by H = L + 1/size of the sequences that
//! are formed of the bank with the times in its block table. As in section 3.4 the stack is built on CLOCK: a hit only
//! marks a block as young, and a young block at the stack bottom moves to the top instead of leaving. Choices where the
//! text leaves one (the listing of figure 2 is not in the text this was written from):
//!
//! * The bank is sequenced once it holds BANK_MAX blocks. In a full cache this happens when BANK_MAX blocks have left
//!   the evicting section. It does not happen while the cache fills or after invalidations.
//! * The configured size of the evicting section is its least, which it has when the bank is full (4.1.3). The
//!   correlation buffer has the rest of the cache.
//! * The parameter `first` decides whether a new block is young, as in [CLOCK](crate::clock).
//! * The sizes of 4.1.1 are 8 MB and 64 MB, and "where the demanded memory size is less than 80MB" 4 MB and 16 MB. A
//!   cache below 20 MB uses a fifth and four fifths, the ratio of the latter.
//!
//! * A cache that becomes smaller or larger divides itself anew, and its block table has a new limit from the next bank
//!   on. Blocks that no longer fit in the correlation buffer enter the bank; none move back. Sizes that no longer fit
//!   are cut, the evicting section first.
//! * If a block must leave a cache that is not full and has none below the correlation buffer, the bottom block of the
//!   buffer enters the bank.
//!
//! Beyond the paper, with `adapt=1` the size of the bank does not matter and CLOCK decides where DULO saves nothing
//! (`dulo/adaptive.rs`); `base` replaces the correlation buffer and CLOCK's marks by another policy, and `position` and
//! `transfer` replace the cost 1 of a sequence by the cost of fetching it from a device.

mod adaptive;
mod nominated;
mod sections;
mod sequences;
mod table;

use crate::clock_pro::ClockPro;
use crate::lirs::{Lirs, Logs};
use crate::list::{Links, List};
use crate::lru::Lru;
use crate::prefetch::prefetch;
use crate::spec::{Bytes, Configured, Info, Param, Params, Setup, Size, SpecError};
use crate::values::{FLAG, Values};
use crate::visit::Visit;
use crate::{Access, Policy, Room, Slot};
use adaptive::Adaptive;
use nominated::Nominated;
use sections::{Cost, Sections};
use sequences::Sequences;
use table::Table;

const MIB: u64 = 1 << 20;
const BASES: [&str; 4] = ["clock", "lru", "lirs", "clock-pro"];

/// DULO on CLOCK.
pub struct Dulo {
    links: Links,
    /// The correlation buffer, from the block that came first.
    buffer: List,
    buffer_most: u32,
    sections: Sections,
    /// Blocks that were hit; clear for slots that are not resident.
    young: Vec<bool>,
    /// Whether a new block is young.
    first: bool,
    shares: Shares,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Configured for Dulo {
    const INFO: Info = Info {
        name: "dulo",
        summary: "CLOCK, but of equally old blocks evicts those first that are neighbours on disk",
        paper: "Jiang, Ding, Chen, Tan and Zhang, DULO, FAST 2005",
        params: &[
            Param {
                published: None,
                key: "bank",
                default: "auto",
                values: Values::Or("auto", &Values::Size),
                doc: "BANK_MAX, the blocks that are sequenced together: a share of the cache, bytes (8M) or a count; auto: 8M, \
                      4M in a cache below 80M, 20% below 20M; 1% on another base",
            },
            Param {
                published: None,
                key: "evicting",
                default: "auto",
                values: Values::Or("auto", &Values::Size),
                doc: "least size of the evicting section, given as for bank; auto: 64M, 16M in a cache below 80M, the rest below \
                      20M; 8% on another base",
            },
            Param {
                published: None,
                key: "table",
                default: "2%",
                values: Values::Bytes,
                doc: "most memory of the block table: a share of the cache, or bytes",
            },
            Param {
                published: None,
                key: "first",
                default: "0",
                values: FLAG,
                doc: "whether a new block is young, 1 for yes; only with base=clock",
            },
            Param {
                published: None,
                key: "base",
                default: "clock",
                values: Values::Words(&BASES),
                doc: "the policy that nominates blocks for the bank; clock is the paper's",
            },
            Param {
                published: None,
                key: "adapt",
                default: "0",
                values: FLAG,
                doc: "1: sequences continue across banks, of an eighth of the size, and blocks leave in CLOCK's order while \
                      that saves requests; only with base=clock",
            },
            Param {
                published: None,
                key: "position",
                default: "1ms",
                values: Values::Time { least_ms: 0.001, most_ms: 1e6 },
                doc: "time (ms, us) to position the device for a sequence: H = L + (position + size * transfer) / size",
            },
            Param {
                published: None,
                key: "transfer",
                default: "0ms",
                values: Values::Time { least_ms: 0.0, most_ms: 1e6 },
                doc: "time (ms, us) to transfer a block",
            },
        ],
        offline: false,
        spatial: true,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        // A base with its default parameters, in less than the whole cache.
        match params.one_of("base", &BASES)? {
            "lirs" => Lirs::<Logs>::ghosts(&Params::defaults(&Lirs::<Logs>::INFO), capacity),
            "clock-pro" => ClockPro::ghosts(&Params::defaults(&ClockPro::INFO), capacity),
            _ => Ok(0),
        }
    }

    fn new(setup: &Setup, params: &Params) -> Result<Dulo, SpecError> {
        let shares = Shares::new(setup, params)?;
        shares.check(params, setup.capacity, shares.auto(setup.capacity))?;
        let sizes = shares.divide(setup.capacity);
        Dulo::divided(setup, params, shares, sizes)
    }

    fn visit<V: Visit>(setup: &Setup, params: &Params, visitor: V) -> Result<V::Out, SpecError> {
        match params.one_of("base", &BASES)? {
            "clock" if adapts(params)? => Ok(visitor.visit(Adaptive::new(setup, params)?)),
            "clock" => Ok(visitor.visit(Dulo::new(setup, params)?)),
            "lru" => Ok(visitor.visit(Nominated::<Lru>::new(setup, params)?)),
            "lirs" => Ok(visitor.visit(Nominated::<Lirs>::new(setup, params)?)),
            _ => Ok(visitor.visit(Nominated::<ClockPro>::new(setup, params)?)),
        }
    }
}

impl Dulo {
    /// With the most blocks of bank and correlation buffer.
    fn divided(
        setup: &Setup,
        params: &Params,
        shares: Shares,
        (bank, buffer_most): (u32, u32),
    ) -> Result<Dulo, SpecError> {
        let (links, [buffer, bank_list, evicting_list]) = Links::new(setup.slots);
        Ok(Dulo {
            links,
            buffer,
            buffer_most,
            sections: new_sections(setup, params, [bank_list, evicting_list], bank, &shares)?,
            young: vec![false; setup.slots as usize],
            first: params.number::<u8>("first")? == 1,
            shares,
            forgotten: None,
        })
    }
}

/// The shares of bank, evicting section and block table in the cache, as configured.
struct Shares {
    bank: Option<Size>,
    evicting: Option<Size>,
    table: Bytes,
    block_bytes: u32,
    adapts: bool,
}

/// Whether `adapt` is set.
fn adapts(params: &Params) -> Result<bool, SpecError> {
    Ok(params.number::<u8>("adapt")? == 1)
}

impl Shares {
    fn new(setup: &Setup, params: &Params) -> Result<Shares, SpecError> {
        let (bank, evicting) = (params.size("bank", setup)?, params.size("evicting", setup)?);
        let (table, adapts) = (params.bytes("table")?, adapts(params)?);
        Ok(Shares { bank, evicting, table, block_bytes: setup.block_bytes, adapts })
    }

    /// The sizes of bank and evicting section on CLOCK if none are configured.
    fn auto(&self, capacity: u32) -> (u32, u32) {
        let (bank, evicting) = auto_sizes(capacity, self.block_bytes);
        if !self.adapts {
            return (bank, evicting);
        }
        let small = (bank / 8).max(1);
        (small, evicting + bank - small)
    }

    /// The sizes of bank and evicting section before they are made to fit; `auto` are the sizes if none are configured.
    fn asked(&self, capacity: u32, auto: (u32, u32)) -> (f64, f64) {
        let whole = f64::from(capacity);
        let (bank, evicting) = (self.bank.map(|size| size.of(capacity)), self.evicting.map(|size| size.of(capacity)));
        let Some(given) = bank.or(evicting) else { return (auto.0.into(), auto.1.into()) };
        let evicting = evicting.unwrap_or(f64::from(auto.1).min(whole - given));
        (bank.unwrap_or(f64::from(auto.0).min(evicting).min(whole - evicting)), evicting)
    }

    /// Checks that the sizes that `params` ask for fit.
    fn check(&self, params: &Params, capacity: u32, auto: (u32, u32)) -> Result<(), SpecError> {
        let whole = f64::from(capacity);
        let (bank, evicting) = self.asked(capacity, auto);
        if self.bank.or(self.evicting).is_none() {
            return Ok(());
        }
        if bank > evicting {
            return Err(params.bad("bank", format!("at most the {evicting:.0} blocks of the evicting section")));
        }
        if bank <= 0.0 || bank + evicting > whole {
            return Err(params.bad("evicting", format!("it and a bank of {bank:.0} blocks to fit in {whole:.0}")));
        }
        Ok(())
    }

    /// The blocks of bank and evicting section, together at most `most`. The bank has at least one block; any excess is
    /// taken from the evicting section.
    fn sizes(&self, capacity: u32, auto: (u32, u32), most: u32) -> (u32, u32) {
        let (bank, evicting) = self.asked(capacity, auto);
        let bank = (bank.round() as u32).clamp(1, most);
        (bank, (evicting.round() as u32).min(most - bank))
    }

    /// The most blocks of bank and correlation buffer.
    fn divide(&self, capacity: u32) -> (u32, u32) {
        let (bank, evicting) = self.sizes(capacity, self.auto(capacity), capacity);
        (bank, capacity - bank - evicting)
    }

    fn table_bytes(&self, capacity: u32) -> u64 {
        self.table.of(u64::from(capacity) * u64::from(self.block_bytes))
    }
}

/// The paper's sizes of bank and evicting section.
fn auto_sizes(capacity: u32, block_bytes: u32) -> (u32, u32) {
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(block_bytes)).unwrap_or(u32::MAX).max(1);
    match u64::from(capacity) * u64::from(block_bytes) {
        bytes if bytes >= 80 * MIB => (blocks(8 * MIB), blocks(64 * MIB)),
        bytes if bytes >= 20 * MIB => (blocks(4 * MIB), blocks(16 * MIB)),
        _ => ((capacity / 5).max(1), capacity),
    }
}

fn new_sections(
    setup: &Setup,
    params: &Params,
    lists: [List; 2],
    bank: u32,
    shares: &Shares,
) -> Result<Sections, SpecError> {
    let cost = Cost { position: params.milliseconds("position")?, transfer: params.milliseconds("transfer")? };
    let sequences = Sequences::new(Table::new(shares.table_bytes(setup.capacity)), bank);
    Ok(Sections::new(lists, setup.slots, bank, cost, sequences, shares.adapts))
}

impl Dulo {
    /// Puts `slot` at the stack top. "The bottom block of the correlation buffer enters the sequencing bank." (3.1)
    #[inline]
    fn push(&mut self, slot: Slot) {
        self.buffer.push_back(&mut self.links, slot);
        if self.buffer.len() > self.buffer_most {
            self.pass();
        }
    }

    #[inline]
    fn pass(&mut self) {
        let bottom = self.buffer.pop_front(&mut self.links).expect("the buffer holds a block");
        self.sections.enter(&mut self.links, bottom);
    }
}

impl Policy for Dulo {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        // "When a block is hit, it is only flagged as young block without being moved to the stack top." (3.4)
        self.young[slot.index()] = true;
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        // "If it is a young block, it is moved to the stack top and its 'young block' status is revoked. Otherwise, the
        // block is replaced."
        while let slot = self.sections.bottom(&self.links)
            && std::mem::take(&mut self.young[slot.index()])
        {
            self.sections.remove(&mut self.links, slot);
            self.push(slot);
        }
        let victim = self.sections.evict(&mut self.links);
        self.forgotten = Some(victim);
        Some(victim)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.young[slot.index()] = self.first;
        self.sections.loaded(slot, access.block);
        self.push(slot);
    }

    fn shed(&mut self) -> Slot {
        loop {
            if self.sections.is_empty() {
                self.pass();
            }
            self.sections.settle_bottom(&mut self.links);
            let slot = self.sections.bottom(&self.links);
            if !std::mem::take(&mut self.young[slot.index()]) {
                break;
            }
            self.sections.remove(&mut self.links, slot);
            self.push(slot);
        }
        let victim = self.sections.evict(&mut self.links);
        self.forgotten = Some(victim);
        victim
    }

    fn resize(&mut self, room: Room) {
        let [bank, evicting] = self.sections.lists();
        self.links.grow(room.slots, [&mut self.buffer, bank, evicting]);
        self.young.resize(room.slots as usize, false);
        let (bank, buffer_most) = self.shares.divide(room.capacity);
        let table = self.shares.table_bytes(room.capacity);
        self.sections.resize(&mut self.links, room.slots, bank, table);
        self.buffer_most = buffer_most;
        while self.buffer.len() > self.buffer_most {
            self.pass();
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.young[slot.index()] = false;
        if self.sections.contains(slot) {
            self.sections.remove(&mut self.links, slot);
        } else {
            self.buffer.unlink(&mut self.links, slot);
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.young, slot.index());
    }

    fn check(&self) {
        let buffer = self.buffer.checked(&self.links);
        let below = self.sections.checked(&self.links);
        assert!(self.buffer.len() <= self.buffer_most, "more blocks in the correlation buffer than fit");
        assert!(buffer.iter().all(|&slot| !self.sections.contains(slot)), "a block in the buffer is said to be below");
        let young = buffer.iter().chain(&below).filter(|slot| self.young[slot.index()]).count();
        assert_eq!(young, self.young.iter().filter(|&&young| young).count(), "a young block is not resident");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.sections.gauges(report);
    }
}
