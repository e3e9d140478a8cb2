//! What an application says about its accesses (4.1), and how much it may say.

use std::fmt;

use nigh_policy::{Block, Slot, Spec};

/// The replacement policy of a priority level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The block referenced longest ago leaves first: the default of every level.
    #[default]
    Lru,
    /// The block referenced last leaves first.
    Mru,
    /// A policy of the registry, beyond the paper.
    Policy(Spec),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Lru => f.write_str("lru"),
            Order::Mru => f.write_str("mru"),
            Order::Policy(spec) => spec.fmt(f),
        }
    }
}

/// A part of a file that will be read from its first byte to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The file: the volume of its blocks.
    pub file: u32,
    /// First byte and number of bytes; `None` for the whole file.
    pub bytes: Option<(u64, u64)>,
}

/// One thing that a tenant says about its own files and blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    /// `set_priority`: the long-term priority of a file. Every file has priority 0 until then.
    SetPriority {
        /// The file.
        file: u32,
        /// Blocks of lower priority leave first.
        priority: i32,
    },
    /// `set_policy`: the replacement policy among blocks of one priority.
    SetPolicy {
        /// The level.
        priority: i32,
        /// Its policy.
        policy: Order,
    },
    /// `set_temppri`: the priority of those blocks that are resident now, each until it is referenced or replaced.
    /// Blocks that the tenant's list says will be read again keep their place in it.
    SetTemporaryPriority {
        /// The file.
        file: u32,
        /// The first block.
        first: u64,
        /// The last block.
        last: u64,
        /// The priority.
        priority: i32,
    },
    /// `FileListStart` to `FileListEnd`, and `BlockList`: what will be read from now on, in order. It takes the place of
    /// the list before; an empty one is none.
    Predict {
        /// The accesses.
        accesses: Vec<Chunk>,
    },
}

/// What a tenant may make the cache remember.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tenants are numbered below this; at most 65,534.
    pub tenants: u32,
    /// Files of a tenant with a priority other than 0.
    pub files: usize,
    /// Priority levels of a tenant that hold blocks or have a policy of their own.
    pub levels: usize,
    /// Levels, of all tenants together, that a policy of the registry manages. Each costs that policy's memory for
    /// the blocks of the level and their ghosts.
    pub policies: usize,
    /// Ghosts that the policies of all levels remember together, in multiples of the cache's blocks. Each has a part of them
    /// in proportion to its blocks.
    pub ghosts: f32,
    /// Entries of a tenant's list: 5000 in 4.3.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { tenants: 4096, files: 4096, levels: 4096, policies: 8, ghosts: 1.0, entries: 5000 }
    }
}

/// Why a directive was not followed; nothing has changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The cache was set up without tenants.
    NotHeard,
    /// The tenant's number is not below [`Limits::tenants`].
    NoTenant,
    /// The tenant has as many files with a priority as it may.
    TooManyFiles {
        /// How many it may have.
        most: usize,
    },
    /// The tenant has as many priority levels as it may.
    TooManyLevels {
        /// How many it may have.
        most: usize,
    },
    /// As many levels as can be are managed by policies of the registry.
    TooManyPolicies {
        /// How many there can be.
        most: usize,
    },
    /// The list of accesses is too long.
    TooManyAccesses {
        /// How many entries it has.
        given: usize,
        /// How many it may have.
        most: usize,
    },
    /// The list names a whole file whose size is not known.
    UnknownFile {
        /// The file.
        file: u32,
    },
    /// The range has no block or byte, or ends beyond the largest number.
    BadRange,
    /// All blocks of the list together are more than 2^32 - 2.
    TooManyBlocks,
    /// The floor is above the ceiling, or all floors together leave no block for others.
    BadBounds,
    /// The same thing said before is still being done: the level is still handed over from the policy before, or as many
    /// temporary priorities as can wait do.
    Busy,
    /// A policy cannot be made.
    Policy(nigh_policy::SpecError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotHeard => {
                write!(f, "the cache was set up without tenants: a policy decides, and nobody is heard")
            }
            Refusal::NoTenant => write!(f, "the cache knows no tenant with so large a number"),
            Refusal::TooManyFiles { most } => write!(f, "a tenant gives priorities to at most {most} files"),
            Refusal::TooManyLevels { most } => write!(f, "a tenant has at most {most} priority levels"),
            Refusal::TooManyPolicies { most } => {
                write!(f, "at most {most} priority levels of a cache have a policy other than lru and mru")
            }
            Refusal::TooManyAccesses { given, most } => {
                write!(f, "a list of {given} predicted accesses: a tenant predicts at most {most}")
            }
            Refusal::UnknownFile { file } => write!(f, "the size of file {file} is not known: give bytes of it"),
            Refusal::BadRange => write!(f, "a range has at least one block or byte, and ends below 2^64"),
            Refusal::TooManyBlocks => write!(f, "a list predicts at most {} blocks", u32::MAX - 1),
            Refusal::BadBounds => {
                write!(f, "a floor is at most the ceiling, and all floors are together less than the cache")
            }
            Refusal::Busy => write!(f, "what was said about this before is still being done: say it again later"),
            Refusal::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<nigh_policy::SpecError> for Refusal {
    fn from(error: nigh_policy::SpecError) -> Refusal {
        Refusal::Policy(error)
    }
}

/// What the host knows of blocks and files: its index. Hits and misses never ask for it.
pub trait Index {
    /// The slot of `block`, if it is resident or being loaded.
    fn resident(&self, block: Block) -> Option<Slot>;
    /// The block of `slot`, which is resident.
    fn block(&self, slot: Slot) -> Block;
    /// Bytes of a file.
    fn file_bytes(&self, file: u32) -> Option<u64>;
    /// Which device a file lies on: any number, the same for files that share a queue.
    fn device(&self, file: u32) -> u32;
}
