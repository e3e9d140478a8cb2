//! Schemes of a memory of encoded blocks: which blocks it stores once, and how it encodes the rest.

use std::fmt;
use std::str::FromStr;

use crate::codec::Codec;
use crate::encode::Rules;
use crate::lending::Lending;
use crate::store::{Settings, Store};

/// Contents for each page of the memory that encoded blocks can take.
const CONTENTS_PER_PAGE: u64 = 4;

/// Scheme: which blocks are stored once, and how the rest is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Equal blocks once, the rest as it is
    Dedup,
    /// Equal blocks once, the rest compressed by LZ4
    Lz4,
    /// Equal blocks once, the rest compressed by zstd, which takes less memory and more time than LZ4
    Zstd,
    /// Equal blocks once, similar ones as differences, the rest compressed by LZ4
    Sketch,
    /// Equal blocks once, similar ones as differences, the rest compressed by zstd
    SketchZstd,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 5] = [Scheme::Dedup, Scheme::Lz4, Scheme::Zstd, Scheme::Sketch, Scheme::SketchZstd];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Dedup => "dedup",
            Scheme::Lz4 => "dedup+lz4",
            Scheme::Zstd => "dedup+zstd",
            Scheme::Sketch => "sketch",
            Scheme::SketchZstd => "sketch+zstd",
        }
    }

    /// The codecs.
    pub fn rules(self) -> Rules {
        let alone = match self {
            Scheme::Dedup => Codec::Raw,
            Scheme::Lz4 | Scheme::Sketch => Codec::Lz4,
            Scheme::Zstd | Scheme::SketchZstd => Codec::Zstd,
        };
        Rules { alone, ..Rules::default() }
    }

    /// Whether similar blocks are stored as differences.
    pub fn shares_similar(self) -> bool {
        matches!(self, Scheme::Sketch | Scheme::SketchZstd)
    }

    /// An empty store with its least and most memory of `lending`. A client that does not know `seed`
    /// cannot choose contents whose hashes collide.
    pub fn store(self, lending: Lending, seed: u64) -> Store {
        let pages = lending.most().clamp(1, u64::from(u32::MAX) / 4);
        let contents = (pages * CONTENTS_PER_PAGE) as u32;
        let mut store = Store::new(self.settings(pages as u32, contents, seed));
        store.allow(lending.lent() as u32);
        store
    }

    /// A store of `pages` pages for at most `contents` contents.
    pub fn settings(self, pages: u32, contents: u32, seed: u64) -> Settings {
        Settings { pages, contents, seed, is_similar_shared: self.shares_similar(), ..Settings::default() }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// This is no name of a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoScheme(pub String);

impl fmt::Display for NoScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Scheme::ALL.map(Scheme::name).join(", ");
        write!(f, "'{}' is no scheme for encoded blocks: choose one of {names}", self.0)
    }
}

impl std::error::Error for NoScheme {}

impl FromStr for Scheme {
    type Err = NoScheme;

    fn from_str(text: &str) -> Result<Scheme, NoScheme> {
        // Without equal blocks, they would only be worse.
        let name = match text {
            "lz4" => "dedup+lz4",
            "zstd" => "dedup+zstd",
            name => name,
        };
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| NoScheme(text.to_owned()))
    }
}
