use std::collections::HashMap;

use super::*;

/// Blocks of a few families: edited in place, moved, compressible and not.
struct Blocks {
    random: fastrand::Rng,
    families: Vec<Block>,
}

impl Blocks {
    fn new(seed: u64) -> Blocks {
        let mut random = fastrand::Rng::with_seed(seed);
        let families = (0..20)
            .map(|family| {
                let mut block = [0; BLOCK_BYTES];
                let end = if family % 3 == 0 { 900 } else { BLOCK_BYTES };
                random.fill(&mut block[..end]);
                block
            })
            .collect();
        Blocks { random, families }
    }

    fn next(&mut self) -> Block {
        let random = &mut self.random;
        let mut block = self.families[random.usize(..self.families.len())];
        if random.u8(..8) == 0 {
            let by = random.usize(1..600);
            block.copy_within(..BLOCK_BYTES - by, by);
        }
        for _ in 0..random.usize(..4) {
            let at = random.usize(..4000);
            block[at..at + 8].copy_from_slice(&(random.u64(..30)).to_le_bytes());
        }
        block
    }
}

fn settings(pages: u32) -> Settings {
    Settings { pages, contents: pages * 8, ..Settings::default() }
}

/// Counts everything again.
fn check(store: &Store) {
    store.pool.check();
    let live = || store.contents.iter().enumerate().filter(|(_, content)| content.owners != NONE);
    let mut counts = StoreCounts { rebased: store.counts.rebased, ..StoreCounts::default() };
    (counts.dropped, counts.damaged) = (store.counts.dropped, store.counts.damaged);
    let mut bytes = 0;
    for (place, content) in live() {
        counts.contents += 1;
        counts.owners += u64::from(content.owners);
        bytes += content.handle.bytes();
        assert!(store.pool.read(content.handle).is_some());
        assert_eq!(content.handle.codec().has_base(), content.base != NONE);
        if content.base != NONE {
            counts.differences += 1;
            let base = store.contents[content.base as usize];
            assert!(base.owners != NONE && base.base == NONE, "depth 1");
        } else if content.owners == 0 {
            assert!(content.dependents > 0);
            counts.orphans += 1;
            counts.orphan_bytes += content.handle.bytes() as u64;
        }
        let mut dependents = 0;
        let mut at = content.first_dependent;
        while at != NONE {
            assert_eq!(store.contents[at as usize].base as usize, place);
            dependents += 1;
            at = store.contents[at as usize].next;
        }
        assert_eq!(dependents, content.dependents);
        assert!(dependents <= DEPENDENTS_MAX);
    }
    assert_eq!(counts, store.counts);
    assert!(counts.orphan_bytes <= store.orphan_bytes_max);
    let pool = store.pool();
    assert_eq!(bytes as u64, u64::from(pool.frames) * BLOCK_BYTES as u64 + pool.lines * LINE_BYTES as u64);
    assert_eq!(store.identities.len(), counts.contents as usize);
}

#[test]
fn similar_blocks_take_little() {
    let blocks = Blocks::new(1);
    let mut store = Store::new(settings(64));
    let first = blocks.families[1];
    let mut edited = first;
    edited[100] ^= 1;
    let mut moved = first;
    moved.copy_within(..4000, 96);
    moved[..96].fill(7);
    let ids = [first, edited, moved, first].map(|block| store.insert(&block).unwrap());
    assert_eq!(ids[0], ids[3]);
    let encodings = ids.map(|id| store.encoding(id).unwrap());
    assert_eq!(encodings[..2], [(Codec::Raw, 4096), (Codec::Line, 64)]);
    assert!(encodings[2].0 == Codec::ZstdDelta && encodings[2].1 <= 128, "{encodings:?}");
    check(&store);
    let mut out = [0; BLOCK_BYTES];
    for (id, block) in ids.into_iter().zip([first, edited, moved, first]) {
        assert!(store.read(id, &mut out) && out == block);
    }
    let alone = Settings { is_similar_shared: false, ..settings(64) };
    let mut store = Store::new(alone);
    let ids = [first, edited, first].map(|block| store.insert(&block).unwrap());
    assert_eq!(ids.map(|id| store.encoding(id).unwrap().0), [Codec::Raw; 3]);
    assert_eq!(store.counts().contents, 2);
    ids.into_iter().for_each(|id| store.release(id));
    assert_eq!((store.counts(), store.pool().free), (StoreCounts::default(), 64));
}

#[test]
fn an_orphan_stays_for_its_dependents_and_finds_owners_again() {
    let blocks = Blocks::new(2);
    let mut store = Store::new(settings(1000));
    let base = blocks.families[1];
    let mut edited = base;
    edited[9] ^= 1;
    let [base_id, edited_id] = [base, edited].map(|block| store.insert(&block).unwrap());
    store.release(base_id);
    assert_eq!((store.counts().orphans, store.counts().orphan_bytes), (1, 4096));
    check(&store);
    let mut out = [0; BLOCK_BYTES];
    assert!(store.read(edited_id, &mut out) && out == edited);
    // No new difference is to an orphan.
    let mut other = base;
    other[11] ^= 1;
    let other_id = store.insert(&other).unwrap();
    assert_eq!(store.encoding(other_id).unwrap().0, Codec::Raw);
    assert_eq!(store.insert(&base), Ok(base_id));
    assert_eq!(store.counts().orphans, 0);
    check(&store);
    store.release(base_id);
    store.release(edited_id);
    assert_eq!((store.counts().orphans, store.counts().contents), (0, 1));
    assert!(!store.read(base_id, &mut out) && store.encoding(base_id).is_none());
    check(&store);
}

#[test]
fn a_base_has_a_limited_number_of_dependents() {
    let mut store = Store::new(settings(1000));
    let base = Blocks::new(3).families[1];
    for number in 0..1000u64 {
        let mut block = base;
        block[..8].copy_from_slice(&number.to_le_bytes());
        store.insert(&block).unwrap();
    }
    check(&store);
    assert_eq!(store.counts().contents - store.counts().differences, 1000u32.div_ceil(DEPENDENTS_MAX + 1));
}

/// The oldest blocks leave for new ones, for long, in a small store: nothing is wrong, and the limits hold.
fn churn(seed: u64, flips: bool) -> StoreCounts {
    let mut blocks = Blocks::new(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut store = Store::new(Settings { seed, ..settings(60) });
    let mut queue = std::collections::VecDeque::new();
    let mut contents: HashMap<ContentId, Block> = HashMap::new();
    let mut out = [0; BLOCK_BYTES];
    for step in 0..20_000 {
        let block = blocks.next();
        let id = loop {
            match store.insert(&block) {
                Ok(id) => break id,
                Err(Full) => store.release(queue.pop_front().unwrap()),
            }
        };
        assert!(contents.insert(id, block).is_none_or(|before| before == block), "another content has the same name");
        queue.push_back(id);
        if queue.len() > 20 && random.u8(..10) == 0 {
            store.release(queue.remove(random.usize(..queue.len())).unwrap());
        }
        let asked = queue[random.usize(..queue.len())];
        let is_there = store.read(asked, &mut out);
        assert!(!is_there || out == contents[&asked], "wrong bytes");
        assert!(is_there || flips || store.counts().dropped > 0);
        if flips && random.u8(..20) == 0 {
            let live: Vec<Handle> =
                store.contents.iter().filter(|content| content.owners != NONE).map(|content| content.handle).collect();
            let bytes = store.pool.bytes_mut(live[random.usize(..live.len())]);
            let at = random.usize(..bytes.len().min(80));
            bytes[at] ^= 1 << random.u8(..8);
        }
        if step % 100 == 0 {
            check(&store);
        }
    }
    let counts = store.counts();
    queue.into_iter().for_each(|id| store.release(id));
    check(&store);
    assert_eq!((store.counts().contents, store.pool().free), (0, 60));
    counts
}

#[test]
fn churn_keeps_contents_right() {
    for seed in 0..4 {
        let counts = churn(seed, false);
        assert_eq!(counts.damaged, 0);
        assert!(counts.rebased > 0, "{counts:?}");
    }
}

#[test]
fn flipped_bits_are_misses() {
    for seed in 10..14 {
        let counts = churn(seed, true);
        assert!(counts.damaged > 50, "{counts:?}");
    }
}
