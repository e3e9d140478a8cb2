//! Contents of a trace's blocks, for replays of caches that depend on them.
//!
//! A trace has no bytes. The first contents of blocks come from generated disks or from images; the contents of a write
//! are made up: mostly an edit in place of the block's first contents (`Source::written`). Some traces have
//! identities of contents: then equal ones have the same bytes, which are made up.

pub mod replay;
mod stored;
pub mod times;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hashbrown::HashMap;
use nigh_content::generated::{Machines, unlike, written};
use nigh_content::lpu::{Signature, signature};
use nigh_content::{BLOCK_BYTES, Block, Content};
use twox_hash::XxHash3_128;

use crate::References;
use crate::references::content_of;
use crate::threads::in_threads;

/// Contents measured by a thread at a time.
const PART: usize = 1024;

/// Makes neighbouring seeds differ in many bits.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A part of a volume with the contents of a file.
#[derive(Debug)]
pub struct Image {
    /// The volume.
    pub volume: u32,
    /// The block of the volume at which it begins.
    pub first: u64,
    /// Its blocks.
    pub blocks: u64,
    /// The file.
    pub file: File,
}

/// Source of contents.
#[derive(Debug)]
pub enum Source {
    /// Generated machines. With N blocks for each, block b of volume v belongs to machine v + b / N, or that without
    /// whole rounds of all machines.
    Generated(Machines),
    /// Images. Blocks outside of all images have zeros.
    Images(Vec<Image>),
    /// The trace: bytes made up for each identity of contents ([`References::contents`]).
    Recorded(Recorded),
}

/// Contents of which a trace has the identities.
#[derive(Debug)]
pub struct Recorded {
    seed: u64,
    /// The identity that the first reference to a block read or wrote.
    first: HashMap<nigh_policy::Block, u64>,
}

impl Recorded {
    /// The contents of the blocks of `references`; none if these have no identities. Bytes are made up from `seed`.
    pub fn new(references: &References, seed: u64) -> Option<Recorded> {
        let mut first = HashMap::with_capacity(references.blocks.len());
        for (&id, &content) in references.ids.iter().zip(&references.contents) {
            if content != 0 {
                first.entry(references.blocks[id as usize]).or_insert(content);
            }
        }
        (!first.is_empty()).then_some(Recorded { seed, first })
    }

    /// The identity of a block that was not written. One of which nothing is known has bytes like no other.
    fn of(&self, block: nigh_policy::Block) -> u64 {
        self.first
            .get(&block)
            .copied()
            .unwrap_or_else(|| content_of(u64::MAX - u64::from(block.volume), block.index + 1))
    }
}

/// Effect of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether no read from the disk was needed.
    pub hit: bool,
    /// How long a processor takes for contents because of it ([`times`]), in ns. Of LPU's scans, only differences count.
    pub processor_ns: u64,
}

/// How the bytes of a content are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Zeros,
    Generated(u32),
    /// The content with this identity.
    Recorded(u64),
    /// A block of an image, by its number.
    Image(u32, u64),
    /// A write to a block that has this content at first.
    Written(u32, u64),
}

/// Writes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How often it was written.
    pub times: u64,
    /// The identity of what was written last, if the trace has it.
    pub content: Option<u64>,
    /// Whether it was trimmed since.
    pub is_trimmed: bool,
}

impl Source {
    /// The present bytes of a block. Bytes of a write are made up from `salt`, which should be different for each
    /// block, unless the trace has the identity of its contents.
    ///
    /// # Errors If its image cannot be read.
    pub fn bytes(&self, of: nigh_policy::Block, now: Written, salt: u64, block: &mut Block) -> io::Result<()> {
        match now {
            Written { is_trimmed: true, .. } => *block = [0; BLOCK_BYTES],
            Written { content: Some(content), .. } if matches!(self, Source::Recorded(_)) => {
                self.read(Origin::Recorded(content), block)?;
            }
            Written { times: 0, .. } => self.read(self.origin(of), block)?,
            Written { times, .. } => {
                self.read(self.origin(of), block)?;
                *block = self.written(block, salt.wrapping_mul(ODD) ^ times);
            }
        }
        Ok(())
    }

    /// The contents of a block after a write.
    fn written(&self, block: &Block, seed: u64) -> Block {
        match self {
            Source::Generated(machines) => machines.written(block, seed),
            _ => written(block, seed),
        }
    }

    /// The bytes of a block that was not written.
    fn read(&self, origin: Origin, block: &mut Block) -> io::Result<()> {
        match (origin, self) {
            (Origin::Generated(distinct), Source::Generated(machines)) => *block = machines.bytes(distinct),
            (Origin::Recorded(content), Source::Recorded(recorded)) => *block = unlike(recorded.seed ^ content),
            (Origin::Image(image, index), Source::Images(images)) => {
                images[image as usize].file.read_exact_at(block, index * BLOCK_BYTES as u64)?;
            }
            _ => *block = [0; BLOCK_BYTES],
        }
        Ok(())
    }

    fn origin(&self, block: nigh_policy::Block) -> Origin {
        match self {
            Source::Generated(machines) => {
                let blocks = machines.blocks() as u64;
                let machine = (u64::from(block.volume) + block.index / blocks) % machines.machines() as u64;
                Origin::Generated(machines.content(machine as usize, (block.index % blocks) as usize))
            }
            Source::Recorded(recorded) => Origin::Recorded(recorded.of(block)),
            Source::Images(images) => {
                let has = |image: &Image| {
                    image.volume == block.volume && block.index.wrapping_sub(image.first) < image.blocks
                };
                let found = images.iter().position(has);
                found.map_or(Origin::Zeros, |at| Origin::Image(at as u32, block.index - images[at].first))
            }
        }
    }
}

/// The contents of a trace's blocks, reference by reference.
pub struct Contents {
    source: Source,
    seed: u64,
    origins: Vec<Origin>,
    signatures: Vec<Signature>,
    /// Contents of the referenced block after each reference.
    column: Vec<Content>,
}

impl Contents {
    /// The contents of the blocks of `references`, whose writes are made up from `seed`. `threads` threads measure
    /// them.
    ///
    /// # Errors If an image cannot be read.
    ///
    /// # Panics If the blocks do not have [`BLOCK_BYTES`].
    pub fn new(references: &References, source: Source, seed: u64, threads: usize) -> io::Result<Contents> {
        assert_eq!(references.block_bytes as usize, BLOCK_BYTES, "contents are of blocks of one size");
        let mut contents = Contents { source, seed, origins: Vec::new(), signatures: Vec::new(), column: Vec::new() };
        let raw = contents.name(references);
        contents.measure(raw, threads)?;
        Ok(contents)
    }

    /// Names contents by their origins; the same bytes may have several names.
    fn name(&mut self, references: &References) -> Vec<u32> {
        let mut names: HashMap<Origin, u32> = HashMap::new();
        // For each block, its first content and the present one.
        let mut blocks: Vec<Option<(u32, u32)>> = vec![None; references.blocks.len()];
        let mut raw = Vec::with_capacity(references.ids.len());
        for (at, &id) in references.ids.iter().enumerate() {
            let (first, present) = *blocks[id as usize].get_or_insert_with(|| {
                let name = self.named(&mut names, self.source.origin(references.blocks[id as usize]));
                (name, name)
            });
            let write = references.writes.of(at);
            let recorded = references.contents.get(at).copied().filter(|&content| content != 0);
            let recorded = recorded.filter(|_| matches!(self.source, Source::Recorded(_)));
            let name = match recorded {
                // A read changes nothing, whatever identity the trace has.
                Some(content) if write => self.named(&mut names, Origin::Recorded(content)),
                _ if write => {
                    self.origins.push(Origin::Written(first, at as u64));
                    self.origins.len() as u32 - 1
                }
                _ => present,
            };
            blocks[id as usize] = Some((first, name));
            raw.push(name);
        }
        raw
    }

    /// The name of what has this origin.
    fn named(&mut self, names: &mut HashMap<Origin, u32>, origin: Origin) -> u32 {
        *names.entry(origin).or_insert_with(|| {
            self.origins.push(origin);
            self.origins.len() as u32 - 1
        })
    }

    /// Measures all contents, and gives those with the same bytes the same name.
    fn measure(&mut self, raw: Vec<u32>, threads: usize) -> io::Result<()> {
        let parts: Vec<usize> = (0..self.origins.len()).step_by(PART).collect();
        let measured = in_threads(&parts, threads, |&start| {
            let mut block = [0; BLOCK_BYTES];
            let part = start..(start + PART).min(self.origins.len());
            part.map(|name| {
                self.bytes(Content(name as u32), &mut block)?;
                Ok((XxHash3_128::oneshot(&block), signature(&block)))
            })
            .collect::<io::Result<Vec<_>>>()
        });
        let mut by_hash: HashMap<u128, u32> = HashMap::new();
        let mut same = Vec::with_capacity(self.origins.len());
        for part in measured {
            for (hash, signature) in part? {
                same.push(Content(*by_hash.entry(hash).or_insert(self.signatures.len() as u32)));
                self.signatures.push(signature);
            }
        }
        self.column = raw.into_iter().map(|name| same[name as usize]).collect();
        Ok(())
    }

    /// The bytes of a content.
    ///
    /// # Errors If its image cannot be read.
    pub fn bytes(&self, content: Content, block: &mut Block) -> io::Result<()> {
        match self.origins[content.0 as usize] {
            Origin::Written(first, at) => {
                self.bytes(Content(first), block)?;
                *block = self.source.written(block, self.seed.wrapping_mul(ODD) ^ at);
                Ok(())
            }
            origin => self.source.read(origin, block),
        }
    }

    /// The content of a reference.
    pub fn of(&self, at: usize) -> Content {
        self.column[at]
    }

    /// The signature of a content.
    pub fn signature(&self, content: Content) -> Signature {
        self.signatures[content.0 as usize]
    }

    /// How many distinct contents the references have.
    pub fn distinct(&self) -> usize {
        let mut seen = vec![false; self.origins.len()];
        self.column.iter().filter(|content| !std::mem::replace(&mut seen[content.0 as usize], true)).count()
    }
}
