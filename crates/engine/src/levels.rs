//! The levels, and what they have in common.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::level::LevelState;
use crate::record::Carry;
use crate::request::Volume;
use crate::slots::Key;

/// The levels of an engine.
#[derive(Default)]
pub(crate) struct Levels {
    /// The highest first.
    pub(crate) all: Vec<LevelState>,
    /// Blocks on their way to levels.
    pub(crate) storing: u32,
    /// Whether the policy decides for levels, too.
    pub(crate) unified: bool,
    /// Then: blocks that passed through, and their frames, the first to leave first, and those that were prefetched. Entries can be
    /// out of date.
    pub(crate) transit: VecDeque<(Key, u32)>,
    pub(crate) ahead: VecDeque<(Key, u32)>,
    /// Blocks that levels are about to pass on.
    pub(crate) carries: Vec<Carry>,
    /// The number of times that volumes were opened.
    pub(crate) openings: u32,
    /// If there are levels: the volume of each opening, and the last opening of each volume.
    pub(crate) volume_of: HashMap<u32, Volume>,
    pub(crate) opening_of: HashMap<Volume, u32>,
}
