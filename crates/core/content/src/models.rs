//! All orders of the steps of a thread that changes an area and threads that read it (`cargo xtask loom`): what is released,
//! re-used or damaged meanwhile is never decoded to other bytes, and whole encodings are always right.

use loom::sync::{Arc, Mutex, RwLock};
use loom::thread;

use crate::{
    Area, BLOCK_BYTES, Block, Codec, Codecs, ContentId, Copied, Encoder, Refused, Rules, Scheme, Settings, Store,
};

/// The version of the block at a place, if it can be read.
type Held = Option<u8>;

/// A block with bytes of its own, and blocks that differ in few of them.
fn block(version: u8) -> Box<Block> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0] ^ (at >> 4) as u8;
    }
    block[100] = version;
    block
}

struct Shared {
    area: RwLock<Area>,
    /// Contents that a reader found to be damaged.
    damaged: Mutex<Vec<ContentId>>,
}

impl Shared {
    /// As a host decodes: it copies with a lock, and decodes without.
    fn read(&self, place: u32) -> Held {
        let mut copied = Copied::new();
        let id = self.area.read().unwrap().copy(0, place, &mut copied)?;
        let mut found = Box::new([0; BLOCK_BYTES]);
        if copied.decode(&mut Codecs::new(), &mut found) {
            let version = found[100];
            assert!(found == block(version), "bytes that were never stored");
            return Some(version);
        }
        self.damaged.lock().unwrap().push(id);
        None
    }

    /// As the thread that encodes stores: it plans beside readers, and excludes them to change the store.
    fn store(&self, encoder: &mut Encoder, place: u32, version: u8) -> bool {
        self.area.write().unwrap().release(0, place);
        loop {
            // Nobody else changes the store between the two locks.
            let plan = self.area.read().unwrap().store.plan(encoder, 0, &block(version));
            let mut area = self.area.write().unwrap();
            match area.store.apply(&plan) {
                Ok(id) => {
                    area.put(0, place, id);
                    return true;
                }
                Err(Refused::Changed) => {}
                Err(Refused::Full) => return false,
            }
        }
    }
}

/// A store that keeps blocks raw or as differences, and room for three pages of them.
fn shared() -> (Arc<Shared>, Encoder) {
    let rules = Rules { alone: Codec::Raw, ..Rules::default() };
    let settings = Settings { pages: 3, contents: 6, ..Settings::default() };
    let mut area = Area::new(Scheme::Dedup, 0, 0, 1);
    area.begin_anew(Store::new(settings));
    (Arc::new(Shared { area: RwLock::new(area), damaged: Mutex::new(Vec::new()) }), Encoder::new(rules))
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn what_is_released_and_used_again_is_read_as_it_was_or_not_at_all() {
    check(|| {
        let (shared, mut encoder) = shared();
        assert!(shared.store(&mut encoder, 0, 1) && shared.store(&mut encoder, 1, 2));
        let is_difference = |place| {
            let area = shared.area.read().unwrap();
            area.store.encoding(area.id(0, place).unwrap()).unwrap().0.has_base()
        };
        assert!(!is_difference(0) && is_difference(1));
        let readers: Vec<_> = [0, 1]
            .into_iter()
            .map(|place| {
                let shared = shared.clone();
                thread::spawn(move || shared.read(place))
            })
            .collect();
        // The base leaves, and its dependent with it: their memory is used for another block.
        shared.area.write().unwrap().release(0, 0);
        shared.area.write().unwrap().release(0, 1);
        assert!(shared.store(&mut encoder, 0, 3));
        let found: Vec<Held> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!([None, Some(1), Some(3)].contains(&found[0]) && [None, Some(2)].contains(&found[1]), "{found:?}");
        assert!(shared.damaged.lock().unwrap().is_empty(), "nothing was damaged");
    });
}

#[test]
fn what_is_damaged_is_not_read_and_leaves() {
    check(|| {
        let (shared, mut encoder) = shared();
        assert!(shared.store(&mut encoder, 0, 1) && shared.store(&mut encoder, 1, 2));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || (shared.read(1), shared.read(1)))
        };
        let flipped = {
            let mut area = shared.area.write().unwrap();
            let id = area.id(0, 0).unwrap();
            area.store.flip_bit(id, 8 * 50)
        };
        assert!(flipped);
        let damaged = std::mem::take(&mut *shared.damaged.lock().unwrap());
        damaged.into_iter().for_each(|id| shared.area.write().unwrap().store.damaged(id));
        let (first, second) = reader.join().unwrap();
        assert!([None, Some(2)].contains(&first) && [None, Some(2)].contains(&second));
        assert!(first.is_some() || second.is_none(), "it is not right again");
        for id in std::mem::take(&mut *shared.damaged.lock().unwrap()) {
            shared.area.write().unwrap().store.damaged(id);
        }
        assert_eq!(shared.read(1), None, "its base is damaged");
    });
}
