//! The line: volumes with requests that wait for frames or for the limit of dirty blocks. Each is in the line once.

use std::collections::VecDeque;

use crate::cleaner::Cleaner;
use crate::fair::Recent;
use crate::request::Volume;
use crate::volumes::Volumes;

/// Requests that wait in line for frames or for the limit of dirty blocks.
#[derive(Default)]
pub(crate) struct Line {
    /// Volumes with reads or writes that wait in line, the next first.
    pub(crate) waiting: VecDeque<Volume>,
    /// Volumes of `waiting`, from its front, that were not tried since something changed.
    pub(crate) untried: usize,
    /// The number of these requests.
    pub(crate) queueing: u32,
    /// Whether the line is being served.
    pub(crate) serving: bool,
    /// Blocks that devices wrote.
    recent: Recent,
}

impl Line {
    /// The part of `most` blocks for `volume`: in proportion to what its devices wrote recently.
    pub(crate) fn written_part(&self, volumes: &Volumes, volume: Volume, most: u32) -> u32 {
        volumes.state(volume).recent.part_of(self.recent, most)
    }

    /// Devices wrote `blocks` blocks of `volume`.
    pub(crate) fn count_written(
        &mut self,
        cleaner: &mut Cleaner,
        volumes: &mut Volumes,
        volume: Volume,
        blocks: u64,
        now: u64,
    ) {
        volumes.state_mut(volume).recent.add(now, blocks);
        self.recent.add(now, blocks);
        cleaner.look_again();
    }
}
