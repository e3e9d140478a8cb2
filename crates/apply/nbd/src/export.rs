//! Exports of a server, the requests that they support, and their block sizes.

use std::sync::Arc;

use crate::Framing;
use crate::wire::{STRING_MAX, export_flag};

/// A disk that clients can choose by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name, at most 4096 bytes without NUL; may be empty.
    pub name: String,
    /// Text for people, at most 4096 bytes without NUL; may be empty.
    pub description: String,
    /// Bytes, at most 2^63 - 1.
    pub size: u64,
    /// The requests that it supports.
    pub features: Features,
    /// Alignment and sizes of requests.
    pub blocks: BlockSizes,
}

/// Requests that an export supports, as announced by its transmission flags. DF is supported whenever replies have chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Writes are refused; TRIM and WRITE_ZEROES are then not announced.
    pub read_only: bool,
    /// The medium seeks.
    pub rotational: bool,
    /// FLUSH.
    pub flush: bool,
    /// The flag FUA.
    pub fua: bool,
    /// TRIM.
    pub trim: bool,
    /// WRITE_ZEROES, with NO_HOLE.
    pub write_zeroes: bool,
    /// FAST_ZERO with WRITE_ZEROES.
    pub fast_zero: bool,
    /// CACHE.
    pub cache: bool,
    /// A flush on one connection covers the writes of all.
    pub multi_conn: bool,
}

impl Features {
    /// The transmission flags.
    pub fn to_wire(self, framing: Framing) -> u16 {
        let writable = !self.read_only;
        [
            (true, export_flag::HAS_FLAGS),
            (self.read_only, export_flag::READ_ONLY),
            (self.flush, export_flag::SEND_FLUSH),
            (self.fua, export_flag::SEND_FUA),
            (self.rotational, export_flag::ROTATIONAL),
            (self.trim && writable, export_flag::SEND_TRIM),
            (self.write_zeroes && writable, export_flag::SEND_WRITE_ZEROES),
            (framing != Framing::Simple, export_flag::SEND_DF),
            (self.multi_conn, export_flag::CAN_MULTI_CONN),
            (self.cache, export_flag::SEND_CACHE),
            (self.fast_zero && self.write_zeroes && writable, export_flag::SEND_FAST_ZERO),
        ]
        .into_iter()
        .filter(|&(set, _)| set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    /// The features in transmission flags.
    pub fn from_wire(flags: u16) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            read_only: has(export_flag::READ_ONLY),
            rotational: has(export_flag::ROTATIONAL),
            flush: has(export_flag::SEND_FLUSH),
            fua: has(export_flag::SEND_FUA),
            trim: has(export_flag::SEND_TRIM),
            write_zeroes: has(export_flag::SEND_WRITE_ZEROES),
            fast_zero: has(export_flag::SEND_FAST_ZERO),
            cache: has(export_flag::SEND_CACHE),
            multi_conn: has(export_flag::CAN_MULTI_CONN),
        }
    }
}

/// Sizes of requests, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this power of two, at most 64 KiB.
    pub minimum: u32,
    /// Requests of this power of two are efficient; at least 512 and `minimum`.
    pub preferred: u32,
    /// Longest payload of a read or write; a multiple of `minimum`, at least 64 KiB and `preferred`, at most 1 GiB.
    pub maximum: u32,
}

/// The sizes to assume if none are reported: any alignment, and 32 MiB, the most that portable clients ask for.
impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: 32 << 20 }
    }
}

/// A list of exports that could not be offered as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExport {
    /// The name is too long or has a NUL.
    #[error("the export name {0:?} has a NUL or more than 4096 bytes")]
    Name(String),
    /// The description is too long or has a NUL.
    #[error("the description of export {0:?} has a NUL or more than 4096 bytes")]
    Description(String),
    /// Two exports have the same name.
    #[error("two exports are named {0:?}")]
    Duplicate(String),
    /// The size exceeds 2^63 - 1.
    #[error("export {0:?} is larger than 2^63 - 1 bytes")]
    Size(String),
    /// The block sizes break the rules of [`BlockSizes`].
    #[error("export {name:?} cannot have {blocks:?}")]
    Blocks {
        /// The export's name.
        name: String,
        /// Its block sizes.
        blocks: BlockSizes,
    },
}

/// The exports that one connection may see. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exports {
    offered: Arc<[Export]>,
    /// The names of further exports that clients cannot have now, and why.
    absent: Arc<[(String, String)]>,
}

impl Exports {
    /// Checks the rules of every field, and that names are unique.
    pub fn new(exports: Vec<Export>) -> Result<Self, InvalidExport> {
        let mut names = std::collections::HashSet::new();
        for export in &exports {
            export.check()?;
            if !names.insert(export.name.as_str()) {
                return Err(InvalidExport::Duplicate(export.name.clone()));
            }
        }
        Ok(Self { offered: exports.into(), absent: Arc::default() })
    }

    /// Clients that ask for one of these names get the reason why they cannot have it now.
    pub fn with_absent(mut self, names: impl IntoIterator<Item = (String, String)>) -> Self {
        self.absent = names.into_iter().collect();
        self
    }

    /// Why clients cannot have the export of this name, if that is known.
    pub(crate) fn absence(&self, name: &str) -> Option<&str> {
        self.absent.iter().find(|(absent, _)| absent == name).map(|(_, reason)| reason.as_str())
    }

    /// The size of the export at `index`, if there is one, is another one now.
    pub(crate) fn set_size(&mut self, index: usize, size: u64) {
        if let Some(export) = Arc::make_mut(&mut self.offered).get_mut(index) {
            export.size = size;
        }
    }

    /// The exports in their order.
    pub fn as_slice(&self) -> &[Export] {
        &self.offered
    }

    /// The export of a name with its index. The empty name is the default export: the one named so, else the only one.
    pub fn find(&self, name: &str) -> Option<(usize, &Export)> {
        let named = self.offered.iter().enumerate().find(|(_, export)| export.name == name);
        match &*self.offered {
            [only] if name.is_empty() && self.absent.is_empty() => Some((0, only)),
            _ => named,
        }
    }
}

impl Export {
    fn check(&self) -> Result<(), InvalidExport> {
        let valid_text = |text: &str| text.len() <= STRING_MAX && !text.contains('\0');
        let BlockSizes { minimum, preferred, maximum } = self.blocks;
        let valid_blocks = minimum.is_power_of_two()
            && minimum <= 64 << 10
            && preferred.is_power_of_two()
            && preferred >= minimum.max(512)
            && (preferred.max(64 << 10)..=1 << 30).contains(&maximum)
            && maximum.is_multiple_of(minimum);
        if !valid_text(&self.name) {
            Err(InvalidExport::Name(self.name.clone()))
        } else if !valid_text(&self.description) {
            Err(InvalidExport::Description(self.name.clone()))
        } else if self.size > i64::MAX.unsigned_abs() {
            Err(InvalidExport::Size(self.name.clone()))
        } else if !valid_blocks {
            Err(InvalidExport::Blocks { name: self.name.clone(), blocks: self.blocks })
        } else {
            Ok(())
        }
    }
}
