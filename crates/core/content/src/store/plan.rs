//! How contents enter a store, in two steps. Planning compares and encodes, which takes tens of microseconds, and leaves
//! the store as it is. Applying a plan copies the encoding, and takes about a microsecond.

use super::{Content, ContentId, DEPENDENTS_MAX, DOMAINS_MAX, Full, Store, hash_of};
use crate::codec::Codec;
use crate::encode::{Choice, Encoder, GOOD_MAX, candidates};
use crate::lpu::{Signature, signature};
use crate::pool::LINE_BYTES;
use crate::sketch::{Sketch, sketch};
use crate::{BLOCK_BYTES, Block, mixed};

/// Bytes of an encoding that no difference can beat by a whole line.
const TINY: usize = LINE_BYTES;

/// A plan was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room. The same plan can be applied once enough other contents were released.
    Full,
    /// A content was added since the plan was made, or one that it builds on left. The block needs another plan.
    Changed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Full => "there is no room for the content",
            Refused::Changed => "the store changed since the plan was made",
        })
    }
}

impl std::error::Error for Refused {}

/// By which a content is found as a base.
#[derive(Clone, Copy)]
struct Features {
    signature: Signature,
    sketch: Sketch,
}

/// An encoding that is not in the store yet.
struct Encoding<'a> {
    codec: Codec,
    bytes: &'a [u8],
    base: Option<ContentId>,
    features: Option<Features>,
}

enum Step<'a> {
    /// The content is there.
    Share(ContentId),
    /// It is not; as of the number of contents that were added before.
    Add { encoding: Encoding<'a>, added: u64 },
}

/// How a block's content enters a store. The encoding is in the [`Encoder`] that made it.
pub struct Plan<'a> {
    domain: u32,
    hash: u64,
    /// A content that was found damaged.
    damaged: Option<ContentId>,
    step: Step<'a>,
}

impl Plan<'_> {
    /// How the block was encoded; `None` if the store has an equal one.
    pub fn encoded(&self) -> Option<Choice> {
        match &self.step {
            Step::Share(_) => None,
            Step::Add { encoding, .. } => Some(Choice { codec: encoding.codec, length: encoding.bytes.len() }),
        }
    }
}

/// How a content gets rid of its base, which has no owners.
pub struct Rebase<'a> {
    /// The encoding, or the content that was found damaged.
    step: Result<(ContentId, Encoding<'a>), ContentId>,
}

impl Store {
    /// Plans to add an owner to the content of `block` in `domain`: finds an equal content, or encodes the block.
    ///
    /// # Panics
    ///
    /// If `domain` is not below [`DOMAINS_MAX`].
    pub fn plan<'a>(&self, encoder: &'a mut Encoder, domain: u32, block: &Block) -> Plan<'a> {
        assert!(domain < DOMAINS_MAX, "fewer domains");
        let hash = hash_of(self.settings.seed, domain, block);
        let mut damaged = None;
        let mut found = [0; BLOCK_BYTES];
        let equal = self.identities.find(hash, |place| {
            let content = &self.contents[place as usize];
            if (content.hash(), content.domain()) != (hash, domain) {
                return false;
            }
            let is_right = self.decode(encoder.codecs(), place, &mut found);
            if !is_right {
                damaged = Some(self.id(self.culprit(encoder.codecs(), place)));
            }
            is_right && found == *block
        });
        let step = match equal {
            Some(place) => Step::Share(self.id(place)),
            None => Step::Add { encoding: self.encode(encoder, domain, block), added: self.added },
        };
        Plan { domain, hash, damaged, step }
    }

    /// Carries out a plan. If it is refused, nothing is added; a content that was found damaged is lost in any case.
    pub fn apply(&mut self, plan: &Plan<'_>) -> Result<ContentId, Refused> {
        if let Some(place) = plan.damaged.and_then(|id| self.live(id)) {
            self.lose(place);
        }
        match &plan.step {
            &Step::Share(id) => {
                let place = self.live(id).ok_or(Refused::Changed)?;
                if self.contents[place as usize].is_orphan() {
                    self.unorphan(place);
                }
                self.contents[place as usize].owners += 1;
                self.counts.owners += 1;
                Ok(id)
            }
            Step::Add { encoding, added } => {
                if *added != self.added {
                    return Err(Refused::Changed);
                }
                self.add(plan.domain, plan.hash, encoding)
            }
        }
    }

    fn add(&mut self, domain: u32, hash: u64, encoding: &Encoding<'_>) -> Result<ContentId, Refused> {
        let base = self.base(encoding)?;
        let place = self.free_place().ok_or(Refused::Full)?;
        let handle = self.pool.store(encoding.codec, encoding.bytes).ok_or(Refused::Full)?;
        self.take_place(place, Content::new(domain, hash, handle));
        self.added += 1;
        self.counts.contents += 1;
        self.counts.owners += 1;
        self.identities.insert(hash, place);
        self.connect(place, base, encoding);
        Ok(self.id(place))
    }

    /// Adds an owner to the content of `block` in `domain`: a plan that is applied at once.
    pub fn insert(&mut self, encoder: &mut Encoder, domain: u32, block: &Block) -> Result<ContentId, Full> {
        let plan = self.plan(encoder, domain, block);
        self.apply(&plan).map_err(|_| Full)
    }

    /// If orphans exceed their limit, plans to encode one of the oldest one's dependents without it. Each plan is applied
    /// before the next one is made; an orphan leaves with its last dependent.
    pub fn plan_rebase<'a>(&self, encoder: &'a mut Encoder) -> Option<Rebase<'a>> {
        if self.counts.orphan_bytes <= self.orphan_bytes_max {
            return None;
        }
        let place = self.contents[self.orphans.first as usize].link;
        let mut block = [0; BLOCK_BYTES];
        if !self.decode(encoder.codecs(), place, &mut block) {
            let culprit = self.culprit(encoder.codecs(), place);
            return Some(Rebase { step: Err(self.id(culprit)) });
        }
        let encoding = self.encode(encoder, self.contents[place as usize].domain(), &block);
        Some(Rebase { step: Ok((self.id(place), encoding)) })
    }

    /// Carries out a plan of [`plan_rebase`](Store::plan_rebase). A content that finds no room without its base leaves.
    pub fn apply_rebase(&mut self, rebase: &Rebase<'_>) {
        let (id, encoding) = match &rebase.step {
            Ok(step) => step,
            Err(damaged) => {
                if let Some(place) = self.live(*damaged) {
                    self.lose(place);
                }
                return;
            }
        };
        // Contents that changed since the plan was made get another one.
        let Some(place) = self.live(*id) else { return };
        let Ok(base) = self.base(encoding) else { return };
        let content = self.contents[place as usize];
        let Some(orphan) = content.base().filter(|&base| self.contents[base as usize].is_orphan()) else { return };
        self.counts.rebased += 1;
        self.part(place);
        self.pool.free(content.handle);
        // Its room is for this one.
        self.leave_if_useless(orphan);
        match self.pool.store(encoding.codec, encoding.bytes) {
            Some(handle) => {
                self.contents[place as usize].handle = handle;
                self.connect(place, base, encoding);
            }
            None => {
                self.counts.dropped += 1;
                self.forget(place);
            }
        }
    }

    /// Encodes dependents of orphans without them until orphans are within their limit.
    pub fn rebase(&mut self, encoder: &mut Encoder) {
        while let Some(rebase) = self.plan_rebase(encoder) {
            self.apply_rebase(&rebase);
        }
    }

    /// The base of an encoding, if it can still be one.
    fn base(&self, encoding: &Encoding<'_>) -> Result<Option<u32>, Refused> {
        let place = encoding.base.map(|id| self.live(id).ok_or(Refused::Changed)).transpose()?;
        let can_be = place.is_none_or(|place| self.weight(place).is_some());
        if can_be { Ok(place) } else { Err(Refused::Changed) }
    }

    /// Enters a content as a dependent of its base, or as a candidate for a base.
    fn connect(&mut self, place: u32, base: Option<u32>, encoding: &Encoding<'_>) {
        match (base, &encoding.features) {
            (Some(base), features) => {
                self.depend(place, base);
                if let Some(features) = features {
                    self.signatures.renew(features.signature, base);
                    self.sketches.renew(&features.sketch, base);
                }
            }
            (None, Some(features)) => {
                self.signatures.insert(features.signature, place);
                self.sketches.insert(&features.sketch, place);
            }
            (None, None) => {}
        }
    }

    /// Encodes a block, alone or as a difference.
    fn encode<'a>(&self, encoder: &'a mut Encoder, domain: u32, block: &Block) -> Encoding<'a> {
        let mut choice = encoder.begin(block);
        let mut base = None;
        let mut features = None;
        if self.settings.is_similar_shared {
            let Features { signature, sketch } = *features.insert(Features::new(domain, block));
            if choice.length > TINY {
                let weight =
                    |place: u32| self.weight(place).filter(|_| self.contents[place as usize].domain() == domain);
                let shifted = self.sketches.best(&sketch, weight);
                let in_place = self.signatures.best(signature, weight);
                if let Some((place, better)) = self.against(encoder, block, candidates(in_place, shifted)) {
                    (base, choice) = (Some(self.id(place)), better);
                }
            }
        }
        Encoding { codec: choice.codec, bytes: encoder.bytes(), base, features }
    }

    /// Encodes a block as its difference to one of `candidates`, if that is worth it.
    fn against(
        &self,
        encoder: &mut Encoder,
        block: &Block,
        candidates: impl Iterator<Item = u32>,
    ) -> Option<(u32, Choice)> {
        let mut best = None;
        let mut base = [0; BLOCK_BYTES];
        for place in candidates {
            if self.decode(encoder.codecs(), place, &mut base)
                && let Some(choice) = encoder.against(block, &base)
            {
                best = Some((place, choice));
                if choice.length <= GOOD_MAX {
                    break;
                }
            }
        }
        best
    }

    /// How much a content that is stored alone is worth as a base: one with dependents is in memory for longer.
    fn weight(&self, place: u32) -> Option<u32> {
        // A place may have been used before, and no longer.
        let content = self.contents.get(place as usize)?;
        let can_be = content.is_there() && !content.is_orphan() && content.base().is_none();
        Some(content.dependents()).filter(|&dependents| can_be && dependents < DEPENDENTS_MAX)
    }
}

impl Features {
    /// Those of blocks in different domains are different, so that they do not fill the same buckets.
    fn new(domain: u32, block: &Block) -> Features {
        let salt = mixed(u64::from(domain));
        let signature = (u64::from_le_bytes(signature(block)) ^ salt).to_le_bytes();
        let sketch = sketch(block).map(|feature| if feature == u32::MAX { feature } else { feature ^ salt as u32 });
        Features { signature, sketch }
    }
}
