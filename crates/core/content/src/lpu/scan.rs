//! The scan that selects reference blocks and associates blocks with them (sections 3.1 and 3.3).

use std::cmp::Reverse;

use nigh_policy::Slot;

use super::{Contents, Lpu, SUB_BLOCKS, Signature, State, similarity};
use crate::Content;

/// A selected reference block, as it is during a scan.
#[derive(Clone, Copy)]
struct Selected {
    slot: Slot,
    signature: Signature,
    /// The content of its data block.
    base: Content,
}

/// Memory of scans, all of it empty between them.
#[derive(Default)]
pub(super) struct Scan {
    warm: Vec<Slot>,
    /// For each warm block, whether it was selected.
    is_selected: Vec<bool>,
    /// Popularity and place among the warm blocks.
    candidates: Vec<(u64, usize)>,
    selected: Vec<Selected>,
    /// The paper's `reference_index[8][256]`: the selected blocks with each sub-signature, by their numbers.
    index: Vec<Vec<u32>>,
}

impl Scan {
    fn clear(&mut self) {
        self.warm.clear();
        self.is_selected.clear();
        self.candidates.clear();
        self.selected.clear();
        self.index.iter_mut().for_each(Vec::clear);
        self.index.resize(SUB_BLOCKS * 256, Vec::new());
    }

    fn select(&mut self, selected: Selected) {
        let number = self.selected.len() as u32;
        for (row, &value) in selected.signature.iter().enumerate() {
            self.index[row * 256 + usize::from(value)].push(number);
        }
        self.selected.push(selected);
    }

    /// The selected block most similar to one with this signature and content, if at least `least` sub-signatures
    /// match: an identical one if there is one, among equals the one selected first.
    fn most_similar(&self, signature: &Signature, content: Content, least: usize) -> Option<Selected> {
        // A block that matches in `least` rows matches in one of any `SUB_BLOCKS + 1 - least` rows. Those with the
        // shortest lists are searched.
        let mut lists: [&[u32]; SUB_BLOCKS] =
            std::array::from_fn(|row| &self.index[row * 256 + usize::from(signature[row])][..]);
        lists.sort_unstable_by_key(|list| list.len());
        let numbers = lists[..SUB_BLOCKS + 1 - least].iter().flat_map(|list| list.iter());
        let rated = numbers.filter_map(|&number| {
            let selected = &self.selected[number as usize];
            let matches = similarity(signature, &selected.signature);
            (matches >= least).then_some((selected.base == content, matches, Reverse(number)))
        });
        rated.max().map(|(_, _, Reverse(number))| self.selected[number as usize])
    }
}

impl Lpu {
    pub(super) fn scan(&mut self, contents: &mut impl Contents) {
        let mut scan = std::mem::take(&mut self.scan);
        scan.clear();
        self.select_references(&mut scan);
        self.associate_similar(&scan, contents);
        self.scan = scan;
        self.counts.scans += 1;
    }

    /// "LPU picks up 20,000 warm blocks in the LPU queue and groups them to ensure reference blocks are sufficiently
    /// different from each other." (3.1)
    fn select_references(&self, scan: &mut Scan) {
        let cached = self.queue.iter(&self.queue_links).filter(|&slot| self.is_cached(slot));
        scan.warm.extend(cached.take(self.settings.warm_blocks));
        scan.is_selected.resize(scan.warm.len(), false);
        for place in 0..scan.warm.len() {
            let slot = scan.warm[place];
            let of = self.of(slot);
            match of.state {
                State::Reference => scan.select(Selected { slot, signature: of.signature, base: of.base }),
                State::Independent => scan.candidates.push((self.heatmap.popularity(&of.signature), place)),
                _ => {}
            }
        }
        let mut candidates = std::mem::take(&mut scan.candidates);
        candidates.sort_by_key(|&(popularity, _)| Reverse(popularity));
        for &(_, place) in &candidates {
            let slot = scan.warm[place];
            let of = self.of(slot);
            // "The candidate reference block is discarded if 7 or more sub-block signatures match those of any one of
            // other reference blocks." (3.1)
            if scan.most_similar(&of.signature, of.content, self.settings.similarity).is_none() {
                scan.select(Selected { slot, signature: of.signature, base: of.content });
                scan.is_selected[place] = true;
            }
        }
        scan.candidates = candidates;
    }

    /// "For each candidate associate block, LPU tries to find the most similar reference block." (3.3)
    fn associate_similar(&mut self, scan: &Scan, contents: &mut impl Contents) {
        // The last associate block with a delta that was passed: a new one follows it in the list of those.
        let mut passed: Option<Slot> = None;
        for (&slot, &is_selected) in scan.warm.iter().zip(&scan.is_selected) {
            let of = *self.of(slot);
            if of.state == State::Associate && of.delta_blocks > 0 {
                passed = Some(slot);
            }
            if of.state != State::Independent || !of.data || is_selected {
                continue;
            }
            let found = scan.most_similar(&of.signature, of.content, self.settings.similarity);
            let Some(Selected { slot: reference, base, .. }) = found else { continue };
            let Some(blocks) = self.encode(of.content, base, self.settings.delta_bytes_most, contents) else {
                self.counts.false_positives += 1;
                continue;
            };
            if !self.reserve_delta(blocks) {
                continue;
            }
            self.refer(slot, reference, blocks);
            if blocks > 0 {
                self.insert_delta(slot, passed);
                passed = Some(slot);
            }
        }
    }

    /// Adds an associate block to the list of those with a delta, behind `passed`.
    fn insert_delta(&mut self, slot: Slot, passed: Option<Slot>) {
        let Some(passed) = passed else { return self.with_delta.push_front(&mut self.links, slot) };
        let of = self.of(passed);
        let is_listed = of.state == State::Associate && of.delta_blocks > 0;
        // If `passed` was replaced for its delta, so were all behind it.
        match is_listed.then(|| self.with_delta.after(&self.links, passed)).flatten() {
            Some(next) => self.with_delta.insert_before(&mut self.links, slot, next),
            None => self.with_delta.push_back(&mut self.links, slot),
        }
    }
}
