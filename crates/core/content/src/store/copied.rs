//! The bytes of a content outside of its store.

use super::ContentId;
use super::{Store, hash_of};
use crate::codec::{Codec, Codecs};
use crate::pool::Handle;
use crate::{BLOCK_BYTES, Block};

/// An encoding.
struct Part {
    codec: Codec,
    length: usize,
    bytes: Box<Block>,
}

impl Part {
    fn new() -> Part {
        Part { codec: Codec::Raw, length: 0, bytes: Box::new([0; BLOCK_BYTES]) }
    }

    fn encoding(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A copy of an encoding and of that of its base. A thread copies them while it holds a lock on the store, and decodes
/// them without it.
pub struct Copied {
    seed: u64,
    domain: u32,
    hash: u64,
    content: Part,
    base: Part,
    has_base: bool,
}

impl Default for Copied {
    fn default() -> Copied {
        Copied::new()
    }
}

impl Copied {
    /// Room for a copy; it has none yet, so nothing can be decoded.
    pub fn new() -> Copied {
        Copied { seed: 0, domain: 0, hash: 0, content: Part::new(), base: Part::new(), has_base: false }
    }

    /// Decodes the content to `out`, and returns whether it is right. If not, the bytes in the store are damaged
    /// ([`Store::damaged`]), and `out` has any contents.
    pub fn decode(&self, codecs: &mut Codecs, out: &mut Block) -> bool {
        let mut base = [0; BLOCK_BYTES];
        // Codecs without a base ignore it, so `out` can be one.
        let has_base = !self.has_base || codecs.decode(self.base.codec, self.base.encoding(), out, &mut base).is_ok();
        has_base
            && codecs.decode(self.content.codec, self.content.encoding(), &base, out).is_ok()
            && hash_of(self.seed, self.domain, out) == self.hash
    }
}

impl Store {
    /// Copies the encoding of a content; returns whether it is there. It takes some hundred nanoseconds, so that a lock is
    /// held for no longer.
    pub fn copy(&self, id: ContentId, copied: &mut Copied) -> bool {
        let Some(place) = self.live(id) else { return false };
        let content = &self.contents[place as usize];
        (copied.seed, copied.domain, copied.hash) = (self.settings.seed, content.domain(), content.hash());
        copied.has_base = content.base().is_some();
        let part = |handle: Handle, part: &mut Part| {
            let Some(bytes) = self.pool.read(handle) else { return false };
            (part.codec, part.length) = (handle.codec(), bytes.len());
            part.bytes[..bytes.len()].copy_from_slice(bytes);
            true
        };
        // Memory that differs from the handle has a damaged header; its copy decodes to nothing.
        (copied.content.length, copied.base.length) = (0, 0);
        part(content.handle, &mut copied.content);
        if let Some(base) = content.base() {
            part(self.contents[base as usize].handle, &mut copied.base);
        }
        true
    }
}
