//! The hints of applications about their accesses (4.1), and their limits.

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

impl From<Spec> for Order {
    fn from(spec: Spec) -> Order {
        if spec.name() == "lru" { Order::Lru } else { Order::Policy(spec) }
    }
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

/// A hint of a tenant about its own files and blocks.
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
        /// The policy of the level.
        policy: Order,
    },
    /// `set_temppri`: the priority of those blocks that are resident now, each until it is referenced or replaced.
    /// Blocks that the tenant's list predicts keep their place in the list.
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
    /// `FileListStart` to `FileListEnd`, and `BlockList`: the reads that follow, in order. It replaces the previous
    /// list; an empty one removes it.
    Predict {
        /// The accesses.
        accesses: Vec<Chunk>,
    },
}

/// Limits of the memory that the cache uses for hints.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tenants are numbered below this; at most 65,534.
    pub tenants: u32,
    /// Files of a tenant with a priority other than 0.
    pub files: usize,
    /// Priority levels of a tenant that hold blocks or have a policy of their own.
    pub levels: usize,
    /// Levels, of all tenants together, that were given a policy of the registry by a hint. Each costs the memory of that
    /// policy for the blocks of the level and their ghosts.
    pub policies: usize,
    /// Ghosts that the policies of all levels remember together, in multiples of the cache's blocks. Each policy has a
    /// share in proportion to its blocks.
    pub ghosts: f32,
    /// Entries of a tenant's list: 5000 in 4.3.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { tenants: 4096, files: 4096, levels: 4096, policies: 8, ghosts: 1.0, entries: 5000 }
    }
}

/// Why a directive was rejected; nothing has changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The cache was set up without tenants.
    NotHeard,
    /// The tenant's number is not below [`Limits::tenants`].
    NoTenant,
    /// The tenant has reached its limit of files with a priority.
    TooManyFiles {
        /// The limit.
        most: usize,
    },
    /// The tenant has reached its limit of priority levels.
    TooManyLevels {
        /// The limit.
        most: usize,
    },
    /// The limit of levels managed by policies of the registry is reached.
    TooManyPolicies {
        /// The limit.
        most: usize,
    },
    /// The list of accesses is too long.
    TooManyAccesses {
        /// The number of its entries.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// The list names a whole file whose size is not known.
    UnknownFile {
        /// The file.
        file: u32,
    },
    /// The range is empty, or ends beyond the largest number.
    BadRange,
    /// The blocks of the list exceed 2^32 - 2 in total.
    TooManyBlocks,
    /// The floor is above the ceiling, or all floors together leave no block for others.
    BadBounds,
    /// A previous directive of the same kind is still being applied: the previous policy of the level has not handed
    /// over all blocks, or the queue of temporary priorities is full.
    Busy,
    /// With [`Allocation::Global`](crate::Allocation::Global), tenants have no policies.
    OneList,
    /// The policy remembers an unlimited number of blocks.
    Unlimited {
        /// The policy.
        policy: Spec,
    },
    /// The policy decides for memory and levels.
    Unified {
        /// The policy.
        policy: Spec,
    },
    /// A policy cannot be created.
    Policy(nigh_policy::SpecError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotHeard => {
                write!(f, "the cache was set up without tenants, so it takes no hints")
            }
            Refusal::NoTenant => write!(f, "the number of the tenant exceeds the limit of the cache"),
            Refusal::TooManyFiles { most } => write!(f, "a tenant can give priorities to at most {most} files"),
            Refusal::TooManyLevels { most } => write!(f, "a tenant can have at most {most} priority levels"),
            Refusal::TooManyPolicies { most } => {
                write!(f, "at most {most} priority levels of a cache can have a policy other than lru and mru")
            }
            Refusal::TooManyAccesses { given, most } => {
                write!(f, "a list of {given} predicted accesses exceeds the limit of {most} per tenant")
            }
            Refusal::UnknownFile { file } => {
                write!(f, "the size of file {file} is not known: give an offset and a length")
            }
            Refusal::BadRange => write!(f, "expected a range of at least one block or byte that ends below 2^64"),
            Refusal::TooManyBlocks => write!(f, "a list can predict at most {} blocks", u32::MAX - 1),
            Refusal::BadBounds => {
                write!(f, "expected a floor up to the ceiling, and floors that together are less than the cache")
            }
            Refusal::Busy => write!(f, "the previous hint about this is still being applied: send it again later"),
            Refusal::Unlimited { policy } => {
                write!(f, "policy '{policy}' remembers an unlimited number of blocks: give ghosts= a number")
            }
            Refusal::Unified { policy } => write!(
                f,
                "policy {policy} does not go with tenants: it decides for levels of fixed sizes, and a tenant's part of memory changes \
                 all the time"
            ),
            Refusal::OneList => {
                write!(f, "with the allocation global, the blocks of all tenants are in one list under lru")
            }
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

/// The host's index of blocks and files. Hits and misses never query it.
pub trait Index {
    /// The slot of `block`, if it is resident or being loaded.
    fn resident(&self, block: Block) -> Option<Slot>;
    /// The block of `slot`, which is resident.
    fn block(&self, slot: Slot) -> Block;
    /// The size of a file in bytes.
    fn file_bytes(&self, file: u32) -> Option<u64>;
    /// The device of a file: any number, the same for files that share a queue.
    fn device(&self, file: u32) -> u32;
}
