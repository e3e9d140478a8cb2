//! The page cache of Linux 6.18 without MGLRU, for the file pages of one memory cgroup: an active and an inactive list,
//! and the refault distance.
//!
//! The specification is the kernel's source; functions are cited by name. A page enters the inactive list and is
//! activated by its second access (`folio_mark_accessed`, mm/swap.c). Reclaim takes the tail of the inactive list
//! (`shrink_inactive_list`, mm/vmscan.c) and, when that list is low or refaults occur, moves the tail of the active list
//! there (`shrink_active_list`). A page that returns soon enough after its eviction is active at once
//! (`workingset_refault`, mm/workingset.c).
//!
//! Deviations:
//!
//! * One page leaves at a time, when another one comes in. The kernel frees 32 or more in a call, so its cache is on
//!   average some tens of pages smaller, and a page that it already freed cannot be activated any more. How many pages a
//!   call frees and deactivates is as in the kernel, and so is the time at which it decides.
//! * Folios have one page. The kernel reads ahead in larger ones, up to 2 MiB, and moves each as a whole.
//! * Counts are exact. The kernel decides by statistics of the cgroup, which it may have collected up to 4 seconds ago.
//! * No page is mapped or dirty, there is no anonymous memory and no swap. A page that is mapped gets a second round in
//!   the kernel if it was used, and an executable one stays active.
//! * Ghosts (shadow entries) are those of the last evictions, as many as the cache has pages. Older ones have no effect:
//!   their distance exceeds any active list. The kernel limits them by nodes of its tree.
//! * The kernel remembers for each open file where the last read ended; this policy, for each volume, in a table of 64.
//!
//! Measured without read-ahead in 64 MiB (ext4, Linux 6.18), for five reference strings over 84 MiB: skewed, uniform, a
//! loop, a loop beside skewed references, and a working set that shifts. The kernel's device reads are within 0.3 % of
//! this policy's if its statistics are fresh, because a program keeps reading them, and within 1.3 % otherwise.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::FLAG;
use crate::{Access, Block, Kind, Policy, Room, Slot};

/// `SWAP_CLUSTER_MAX`: the pages that a reclaim wants to free, and the most that it scans of one list at a time.
const CLUSTER: u32 = 32;

/// `DEF_PRIORITY`: the first pass of a reclaim scans a list's length shifted by this.
const PRIORITY: u32 = 12;

/// Bytes in a gibibyte.
const GIB: u32 = 1 << 30;

/// Volumes whose last access is remembered.
const VOLUMES: usize = 64;

/// Which list a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Place {
    #[default]
    None,
    Inactive,
    Active,
    Ghost,
}

/// State of a slot.
#[derive(Clone, Copy, Default)]
struct Page {
    place: Place,
    /// `PG_referenced`; clear for slots that are not resident.
    referenced: bool,
}

/// Linux's page cache.
pub struct Linux {
    /// The flags are next to the links.
    links: Links<Page>,
    /// Pages used once since they came here, the latest first.
    inactive: List,
    /// Pages used more than once, the latest activation first.
    active: List,
    /// Evicted pages, the latest first.
    ghosts: List,
    /// For a ghost, `age` when it was evicted: its shadow entry.
    evicted_at: Vec<u64>,
    /// `nonresident_age`: evictions and activations so far.
    age: u64,
    /// `WORKINGSET_ACTIVATE_FILE`: refaults that activated.
    activating_refaults: u64,
    /// `activating_refaults` at the last reclaim (`snapshot_refaults`).
    refaults_seen: u64,
    /// How many pages the current reclaim still frees.
    to_free: u32,
    /// The most ghosts.
    ghosts_most: u32,
    /// The last access to a volume, by the number of the volume modulo `VOLUMES`.
    last: [Option<Block>; VOLUMES],
    /// Pages in a gibibyte.
    gib: u64,
    /// Whether evicted pages are remembered.
    refault: bool,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl Configured for Linux {
    const INFO: Info = Info {
        name: "linux",
        summary: "the kernel's page cache: inactive and active lists; a page refaulted soon after its eviction is active",
        paper: "Linux 6.18 without MGLRU, mm/vmscan.c, mm/swap.c, mm/workingset.c",
        params: &[Param {
            published: None,
            key: "refault",
            default: "1",
            values: FLAG,
            doc: "1 to activate pages by their refault distance, as since Linux 3.15; 0 to forget evicted pages",
        }],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(if params.number::<u8>("refault")? == 1 { capacity } else { 0 })
    }

    fn new(setup: &Setup, params: &Params) -> Result<Linux, SpecError> {
        let (links, [inactive, active, ghosts]) = Links::with_own(setup.slots);
        let refault = params.number::<u8>("refault")? == 1;
        Ok(Linux {
            links,
            inactive,
            active,
            ghosts,
            evicted_at: vec![0; setup.slots as usize],
            age: 0,
            activating_refaults: 0,
            refaults_seen: 0,
            to_free: 0,
            ghosts_most: if refault { setup.ghosts.min(setup.capacity) } else { 0 },
            last: [None; VOLUMES],
            gib: u64::from(GIB / setup.block_bytes).max(1),
            refault,
            forgotten: Vec::new(),
        })
    }
}

impl Linux {
    /// `inactive_is_low` (mm/vmscan.c): the inactive list is shorter than the active one, divided by the root of ten
    /// times their gibibytes if they have one or more.
    fn inactive_is_low(&self, inactive: u32, active: u32) -> bool {
        let (inactive, active) = (u64::from(inactive), u64::from(active));
        let ratio = (10 * ((inactive + active) / self.gib)).isqrt().max(1);
        inactive * ratio < active
    }

    /// Begins a reclaim (`do_try_to_free_pages` with `shrink_lruvec`): moves pages out of the active list and decides
    /// how many leave the inactive one. The pages leave one by one, as others come.
    ///
    /// A pass at each priority scans a share of both lists, alternately and at most [`CLUSTER`] pages of one at a time,
    /// until that many were freed. The next priority doubles the share.
    fn reclaim(&mut self) {
        let refaulted = self.activating_refaults != self.refaults_seen;
        self.refaults_seen = self.activating_refaults;
        let mut inactive = self.inactive.len();
        self.to_free = 0;
        for priority in (0..=PRIORITY).rev() {
            // `prepare_scan_control`: refaults mean that a new working set is about to replace the active pages.
            let deactivate = refaulted || self.inactive_is_low(inactive, self.active.len());
            let mut from_inactive = inactive >> priority;
            let mut from_active = if deactivate { self.active.len() >> priority } else { 0 };
            let mut freed = 0;
            while freed < CLUSTER && (from_inactive > 0 || from_active > 0) {
                let scanned = from_inactive.min(CLUSTER);
                from_inactive -= scanned;
                freed += scanned;
                inactive -= scanned;
                let moved = from_active.min(CLUSTER);
                from_active -= moved;
                inactive += moved;
                (0..moved).for_each(|_| self.deactivate());
            }
            self.to_free += freed;
            if self.to_free >= CLUSTER {
                break;
            }
        }
        self.to_free = self.to_free.max(1);
    }

    /// `shrink_active_list` for one page: its reference bit does not keep it active, and moves with it.
    fn deactivate(&mut self) {
        let slot = self.active.pop_back(&mut self.links).expect("the active list has as many pages as are moved");
        self.links.own_mut(slot).place = Place::Inactive;
        self.inactive.push_front(&mut self.links, slot);
    }

    /// `shrink_inactive_list` for one page: an access before the second one does not keep it
    /// (`folio_check_references`). Its shadow entry is `nonresident_age` at this time (`workingset_eviction`).
    fn free_one(&mut self) -> Slot {
        if self.to_free == 0 || self.inactive.is_empty() {
            self.reclaim();
        }
        self.to_free -= 1;
        if self.inactive.is_empty() {
            self.deactivate();
        }
        let victim = self.inactive.pop_back(&mut self.links).expect("a page is resident");
        *self.links.own_mut(victim) = Page { place: Place::Ghost, referenced: false };
        self.evicted_at[victim.index()] = self.age;
        self.age += 1;
        self.ghosts.push_front(&mut self.links, victim);
        victim
    }

    fn limit_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_most {
            let oldest = self.ghosts.pop_back(&mut self.links).expect("there are ghosts");
            self.links.own_mut(oldest).place = Place::None;
            self.forgotten.push(oldest);
        }
    }

    /// Whether a read begins in the page in which the last one of this volume ended. Several reads of a page in a row
    /// are one access (`filemap_read` with `pos_same_folio`).
    #[inline]
    fn goes_on(&mut self, block: Block) -> bool {
        let last = self.last[block.volume as usize % VOLUMES].replace(block);
        last == Some(block)
    }
}

impl Policy for Linux {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        // Writes are no accesses: `FGP_ACCESSED` is not among the flags of `FGP_WRITEBEGIN`.
        if access.kind != Kind::Read || self.goes_on(access.block) {
            return;
        }
        let page = self.links.own_mut(slot);
        if !page.referenced {
            page.referenced = true;
        } else if page.place == Place::Inactive {
            *page = Page { place: Place::Active, referenced: false };
            self.inactive.unlink(&mut self.links, slot);
            self.active.push_front(&mut self.links, slot);
            self.age += 1;
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.free_one())
    }

    /// `filemap_add_folio`. A prefetched page and its first use are one access, the insertion (crates/core/engine/README.md).
    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let mut place = Place::Inactive;
        if self.links.own(slot).place == Place::Ghost {
            self.ghosts.unlink(&mut self.links, slot);
            // `workingset_refault`. Pages that are written are not activated (`__GFP_WRITE`).
            let distance = self.age - self.evicted_at[slot.index()];
            if access.kind != Kind::Write && distance <= u64::from(self.active.len()) {
                place = Place::Active;
                self.age += 1;
                self.activating_refaults += 1;
            }
        }
        let referenced = match access.kind {
            Kind::Read => !self.goes_on(access.block),
            Kind::Prefetch => true,
            Kind::Write => false,
        };
        *self.links.own_mut(slot) = Page { place, referenced };
        let list = if place == Place::Active { &mut self.active } else { &mut self.inactive };
        list.push_front(&mut self.links, slot);
        self.limit_ghosts();
    }

    /// A limit that is lowered reclaims, and evictions age the ghosts.
    fn shed(&mut self) -> Slot {
        let victim = self.free_one();
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.inactive, &mut self.active, &mut self.ghosts]);
        self.evicted_at.resize(room.slots as usize, 0);
        self.ghosts_most = if self.refault { room.ghosts.min(room.capacity) } else { 0 };
        self.limit_ghosts();
    }

    fn remove(&mut self, slot: Slot) {
        let list = match std::mem::take(self.links.own_mut(slot)).place {
            Place::None => unreachable!("only known slots are removed"),
            Place::Inactive => &mut self.inactive,
            Place::Active => &mut self.active,
            Place::Ghost => &mut self.ghosts,
        };
        list.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        prefetch(&self.evicted_at, slot.index());
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        let lists = [(&self.inactive, Place::Inactive), (&self.active, Place::Active), (&self.ghosts, Place::Ghost)];
        for (list, place) in lists {
            let members = list.checked(&self.links);
            assert!(
                members.iter().all(|&slot| self.links.own(slot).place == place),
                "a slot of {place:?} is elsewhere"
            );
            let all = self.links.owns().filter(|page| page.place == place).count();
            assert_eq!(members.len(), all, "a slot is {place:?} and not in that list");
        }
        let resident = |page: &Page| matches!(page.place, Place::Inactive | Place::Active);
        assert!(self.links.owns().all(|page| resident(page) || !page.referenced), "a reference bit outside the cache");
        let ages: Vec<u64> = self.ghosts.iter(&self.links).map(|slot| self.evicted_at[slot.index()]).collect();
        assert!(ages.is_sorted_by(|later, earlier| later > earlier), "ghosts are not in the order of their eviction");
        assert!(ages.first().is_none_or(|&latest| latest < self.age), "a ghost left in the future");
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
        assert!(self.refaults_seen <= self.activating_refaults);
        let unknown = |slot: &Slot| self.links.own(*slot).place == Place::None;
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("active", self.active.len().into());
        report("activating_refaults", self.activating_refaults);
    }
}
