//! A level of encoded blocks, in whose memory bits flip.

use nigh_content::{BLOCK_BYTES, Block, Codecs, ContentId, Copied, Encoder, Refused, Scheme, Store};
use nigh_engine::{Action, Engine};
use rand::RngExt;

use crate::simulation::{InFlight, Random};

/// As the host has it: contents, and which place has which.
pub(crate) struct Encoded {
    scheme: Scheme,
    pages: u32,
    store: Store,
    encoder: Encoder,
    ids: Vec<Option<ContentId>>,
    /// Places whose blocks found no room.
    rejected: Vec<u32>,
    /// How likely a bit flips after each operation.
    flip_rate: f64,
    pub(crate) flipped: u64,
}

impl Encoded {
    pub(crate) fn new(random: &mut Random, places: u32, calm: bool) -> Encoded {
        let scheme = Scheme::ALL[random.random_range(0..Scheme::ALL.len())];
        let pages = random.random_range(1..=places);
        let flip_rate = if !calm && random.random_bool(0.5) { random.random_range(0.0..0.3) } else { 0.0 };
        Encoded {
            scheme,
            pages,
            store: Store::new(scheme.settings(pages, places, 1)),
            encoder: Encoder::new(scheme.rules()),
            ids: vec![None; places as usize],
            rejected: Vec::new(),
            flip_rate,
            flipped: 0,
        }
    }

    /// Nothing is left of it, as after the end of its process.
    pub(crate) fn clear(&mut self) {
        self.store = Store::new(self.scheme.settings(self.pages, self.ids.len() as u32, 1));
        self.ids.fill(None);
    }

    /// Fetches or stores blocks from the place `first` on.
    pub(crate) fn apply(
        &mut self,
        engine: &mut Engine,
        level: usize,
        first: u32,
        flight: &mut InFlight,
        random: &mut Random,
    ) {
        let volumes = std::mem::take(&mut flight.operation.volumes);
        match &mut flight.operation.action {
            Action::Read(frames) => {
                let (mut copied, mut codecs) = (Copied::new(), Codecs::new());
                for (place, frame) in (first..).zip(frames.slices_mut()) {
                    let id = self.ids[place as usize].filter(|&id| self.store.copy(id, &mut copied));
                    let frame: &mut Block = frame.try_into().expect("whole blocks");
                    match id {
                        Some(id) if !copied.decode(&mut codecs, frame) => self.store.damaged(id),
                        Some(_) => {}
                        None => frame.fill(0xe1),
                    }
                }
            }
            Action::Write(frames) => {
                for ((place, volume), frame) in (first..).zip(volumes).zip(frames.slices()) {
                    // If no place is free, a store replaces a block.
                    self.ids[place as usize].take().into_iter().for_each(|id| self.store.release(id));
                    let block: &Block = frame.try_into().expect("whole blocks");
                    self.ids[place as usize] = self.insert(engine, level, volume.0 % 2, block);
                    if self.ids[place as usize].is_none() {
                        self.rejected.push(place);
                    }
                }
            }
            _ => panic!("a level is read and written"),
        }
        if random.random_bool(self.flip_rate) {
            let live: Vec<ContentId> = self.ids.iter().copied().flatten().collect();
            if !live.is_empty() {
                let id = live[random.random_range(0..live.len())];
                self.flipped += u64::from(self.store.flip_bit(id, random.random_range(0..8 * BLOCK_BYTES)));
            }
        }
    }

    fn insert(&mut self, engine: &mut Engine, level: usize, domain: u32, block: &Block) -> Option<ContentId> {
        for _ in 0..8 {
            let plan = self.store.plan(&mut self.encoder, domain, block);
            match self.store.apply(&plan) {
                Ok(id) => return Some(id),
                Err(Refused::Changed) => {}
                Err(Refused::Full) => {
                    engine.shed_level(level, 3);
                    self.settle(engine, level);
                }
            }
        }
        None
    }

    /// The operation is complete.
    pub(crate) fn complete(&mut self, engine: &mut Engine, level: usize) {
        for place in self.rejected.drain(..) {
            engine.reject_place(level, place);
        }
        self.settle(engine, level);
        self.store.rebase(&mut self.encoder);
    }

    fn settle(&mut self, engine: &mut Engine, level: usize) {
        let places = engine.take_left_places(level, usize::MAX);
        for &place in &places {
            if let Some(id) = self.ids[place as usize].take() {
                self.store.release(id);
            }
        }
        engine.return_places(level, &places);
    }
}
