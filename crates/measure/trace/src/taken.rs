//! The level of a recording: above or below the kernel's page cache.

/// The level at which a trace was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// At the calls of programs, before the page cache: all accesses but those through mappings.
    Above,
    /// At a disk: only what the page cache did not answer, and what it wrote back.
    Below,
    /// At a database's own cache: all pages that it asks it for.
    Database,
    /// At a server of nigh: what its clients ask, before its cache.
    Server,
}

impl Taken {
    /// Every place.
    pub const ALL: [Taken; 4] = [Taken::Above, Taken::Below, Taken::Database, Taken::Server];

    /// The word for it in the metadata of nigh's own form.
    pub const fn name(self) -> &'static str {
        match self {
            Taken::Above => "above-page-cache",
            Taken::Below => "below-page-cache",
            Taken::Database => "database",
            Taken::Server => "server",
        }
    }

    /// The place of that name.
    pub(crate) fn named(word: &str) -> Option<Taken> {
        Taken::ALL.into_iter().find(|taken| taken.name() == word)
    }
}
