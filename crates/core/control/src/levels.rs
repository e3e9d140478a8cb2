//! The priority levels of one tenant (4.1.1): the lowest one that holds a block loses it.

use std::collections::BTreeMap;

use crate::directive::{Limits, Refusal};
use crate::pools::Pools;

/// A level: its pool, and the reasons to keep it when it is empty.
struct Level {
    pool: u32,
    /// Files with this priority.
    files: u32,
    /// Whether `set_policy` named it.
    named: bool,
}

/// The levels of one tenant and the priorities of its files: 4.2.1's manager structure.
pub(crate) struct Levels {
    levels: BTreeMap<i32, Level>,
    /// Files with a priority other than 0, by number.
    files: Vec<(u32, i32)>,
}

impl Levels {
    pub(crate) fn new(pools: &mut Pools) -> Levels {
        let ground = Level { pool: pools.open(0), files: 0, named: false };
        Levels { levels: BTreeMap::from([(0, ground)]), files: Vec::new() }
    }

    /// The long-term priority of `file`.
    pub(crate) fn priority(&self, file: u32) -> i32 {
        self.files.binary_search_by_key(&file, |&(file, _)| file).map_or(0, |at| self.files[at].1)
    }

    /// The pool of the long-term priority of `file`.
    pub(crate) fn pool_of_file(&self, file: u32) -> u32 {
        self.levels[&self.priority(file)].pool
    }

    /// Files with a priority other than 0, with their priorities.
    pub(crate) fn files(&self) -> &[(u32, i32)] {
        &self.files
    }

    /// The pool of priority 0.
    pub(crate) fn ground(&self) -> u32 {
        self.levels[&0].pool
    }

    /// Whether a hint chose the policy of priority 0.
    pub(crate) fn is_ground_named(&self) -> bool {
        self.levels[&0].named
    }

    /// The priorities of levels whose policies hints chose.
    pub(crate) fn named(&self) -> impl Iterator<Item = i32> + '_ {
        self.levels.iter().filter(|(_, level)| level.named).map(|(&priority, _)| priority)
    }

    pub(crate) fn pool_of_priority(&self, priority: i32) -> Option<u32> {
        self.levels.get(&priority).map(|level| level.pool)
    }

    /// All pools, by ascending priority.
    pub(crate) fn pools(&self) -> impl Iterator<Item = u32> + '_ {
        self.levels.values().map(|level| level.pool)
    }

    /// Ensures that there is a level of `priority`.
    pub(crate) fn open(&mut self, priority: i32, limits: &Limits, pools: &mut Pools) -> Result<u32, Refusal> {
        if let Some(level) = self.levels.get(&priority) {
            return Ok(level.pool);
        }
        if self.levels.len() >= limits.levels {
            return Err(Refusal::TooManyLevels { most: limits.levels });
        }
        let pool = pools.open(priority);
        self.levels.insert(priority, Level { pool, files: 0, named: false });
        Ok(pool)
    }

    /// Records that a hint chose the policy of the level of `priority`, which is open.
    pub(crate) fn name(&mut self, priority: i32) {
        if let Some(level) = self.levels.get_mut(&priority) {
            level.named = true;
        }
    }

    /// Changes the priority of `file` to one whose level is open.
    pub(crate) fn set_file(&mut self, file: u32, priority: i32, limits: &Limits) -> Result<(), Refusal> {
        let before = self.priority(file);
        match (self.files.binary_search_by_key(&file, |&(file, _)| file), priority) {
            (Ok(at), 0) => _ = self.files.remove(at),
            (Ok(at), _) => self.files[at].1 = priority,
            (Err(_), 0) => {}
            (Err(_), _) if self.files.len() >= limits.files => {
                return Err(Refusal::TooManyFiles { most: limits.files });
            }
            (Err(at), _) => self.files.insert(at, (file, priority)),
        }
        let mut count = |priority: i32, change: i32| {
            if let Some(level) = self.levels.get_mut(&priority).filter(|_| priority != 0) {
                level.files = level.files.wrapping_add_signed(change);
            }
        };
        count(before, -1);
        count(priority, 1);
        Ok(())
    }

    /// Closes the level of `priority` if nothing needs it.
    pub(crate) fn tidy(&mut self, priority: i32, pools: &mut Pools) {
        let unused = |level: &&Level| priority != 0 && level.files == 0 && !level.named && pools.len(level.pool) == 0;
        if let Some(level) = self.levels.get(&priority).filter(unused) {
            pools.close(level.pool);
            self.levels.remove(&priority);
        }
    }

    /// Closes all levels, which are empty.
    pub(crate) fn close(&self, pools: &mut Pools) {
        self.pools().for_each(|pool| pools.close(pool));
    }
}
