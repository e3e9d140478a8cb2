//! Metadata contexts: what BLOCK_STATUS can report.

/// Flags of `base:allocation`; 0 is "allocated, contents not known", and always safe.
pub mod state {
    /// Not allocated in the storage behind.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Flags of `x-nigh:cache`; 0 is "absent": not in memory.
pub mod cache_state {
    /// In the cache.
    pub const CACHED: u32 = 1 << 0;
    /// In the cache and newer than the storage behind; always with [`CACHED`].
    pub const DIRTY: u32 = 1 << 1;
    /// Not in the cache as it is, but in memory in fewer bytes, from which a read makes it again.
    pub const ENCODED: u32 = 1 << 2;
    /// Other blocks have the same contents, and the same memory; always with [`ENCODED`].
    pub const SHARED: u32 = 1 << 3;
}

/// A metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// `base:allocation`, with the flags of [`state`].
    Allocation,
    /// `x-nigh:cache`, with the flags of [`cache_state`].
    Cache,
}

impl Context {
    /// Every context, in the order they are listed.
    pub const ALL: [Self; 2] = [Self::Allocation, Self::Cache];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocation => "base:allocation",
            Self::Cache => "x-nigh:cache",
        }
    }

    /// The number by which a session's chunks refer to it.
    pub fn id(self) -> u32 {
        match self {
            Self::Allocation => 1,
            Self::Cache => 2,
        }
    }
}

/// A set of contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts(u32);

impl Contexts {
    /// The contexts in the order of [`Context::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| self.0 & (1 << context.id()) != 0)
    }

    /// Whether no context is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn insert(&mut self, context: Context) {
        self.0 |= 1 << context.id();
    }

    pub(crate) fn all() -> Self {
        let mut all = Self::default();
        Context::ALL.into_iter().for_each(|context| all.insert(context));
        all
    }

    /// Adds what a query means: a context by its name, and a whole namespace (`base:`) where `wildcard` allows it.
    /// Unknown queries match nothing.
    pub(crate) fn insert_matching(&mut self, query: &str, wildcard: bool) {
        for context in Context::ALL {
            let whole = wildcard && query.ends_with(':') && context.name().starts_with(query);
            if whole || context.name() == query {
                self.insert(context);
            }
        }
    }
}

impl FromIterator<Context> for Contexts {
    fn from_iter<I: IntoIterator<Item = Context>>(contexts: I) -> Self {
        let mut set = Self::default();
        contexts.into_iter().for_each(|context| set.insert(context));
        set
    }
}

/// A stretch of an export with the same flags in one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Flags that the context defines.
    pub flags: u32,
}
