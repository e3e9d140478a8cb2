use super::*;
use crate::encode::{Encoder, Rules};

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

/// Threads share it.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Store>();
};

fn encoder() -> Encoder {
    Encoder::new(Rules::default())
}

/// Copies a content and decodes it, as a reader does, who reports what is damaged.
fn read(store: &mut Store, id: ContentId, out: &mut Block) -> bool {
    let mut copied = Copied::new();
    let is_there = store.copy(id, &mut copied);
    assert_eq!(is_there, store.encoding(id).is_some());
    if is_there && !copied.decode(&mut Codecs::new(), out) {
        store.damaged(id);
        assert!(store.encoding(id).is_none());
        return false;
    }
    is_there
}

/// Counts everything again.
fn check(store: &Store) {
    let live = || store.contents.iter().enumerate().filter(|(_, content)| content.is_there());
    store.pool.check(live().map(|(_, content)| content.handle));
    let mut counts = StoreCounts { rebased: store.counts.rebased, ..StoreCounts::default() };
    (counts.dropped, counts.damaged) = (store.counts.dropped, store.counts.damaged);
    for (place, content) in live() {
        counts.contents += 1;
        counts.owners += u64::from(content.owners());
        assert!(store.pool.read(content.handle).is_some());
        let found = store.identities.find(content.hash(), |found| found as usize == place);
        assert_eq!(found, Some(place as u32));
        if let Some(base) = content.base() {
            counts.differences += 1;
            let base = store.contents[base as usize];
            assert!(base.is_there() && base.base().is_none(), "depth 1");
            assert_eq!(base.domain(), content.domain());
            assert!(content.dependents() == 0 && !content.is_orphan());
            continue;
        }
        if content.is_orphan() {
            assert!(content.dependents() > 0);
            counts.orphans += 1;
            counts.orphan_bytes += content.handle.bytes() as u64;
        }
        let mut dependents = 0;
        let mut at = content.link;
        while at != NONE {
            assert_eq!(store.contents[at as usize].base(), Some(place as u32));
            dependents += 1;
            at = store.contents[at as usize].next;
        }
        assert_eq!(dependents, content.dependents());
        assert!(dependents <= DEPENDENTS_MAX);
    }
    assert_eq!(counts, store.counts);
    assert_eq!(store.identities.len(), counts.contents as usize);
}

/// With 4 owners for each page and 2 for each content, which is less than a store of virtual machines has.
#[test]
fn metadata_takes_29_bytes_for_each_owner() {
    let pages = 1 << 12;
    let (owners, contents) = (4 * pages, 2 * pages);
    let store = Store::new(Settings { pages, contents, ..Settings::default() });
    let bytes = store.metadata_bytes() as f64;
    let (of_page, of_content) = (16.0, 32.0 + 5.0 + 1.0 + 12.0);
    let expected = f64::from(pages) * of_page + f64::from(contents) * of_content;
    assert!((bytes / expected - 1.0).abs() < 0.001, "{bytes} for {expected}");
    assert!(bytes / f64::from(owners) <= 29.1, "{}", bytes / f64::from(owners));
    let alone = Store::new(Settings { pages, contents, is_similar_shared: false, ..Settings::default() });
    assert!(alone.metadata_bytes() as f64 <= expected - f64::from(contents) * 12.0);
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
    let ids = [first, edited, moved, first].map(|block| store.insert(&mut encoder(), 0, &block).unwrap());
    assert_eq!(ids[0], ids[3]);
    let encodings = ids.map(|id| store.encoding(id).unwrap());
    assert_eq!(encodings[..2], [(Codec::Raw, 4096), (Codec::Line, 64)]);
    assert!(encodings[2].0 == Codec::ZstdDelta && encodings[2].1 <= 128, "{encodings:?}");
    check(&store);
    let mut out = [0; BLOCK_BYTES];
    for (id, block) in ids.into_iter().zip([first, edited, moved, first]) {
        assert!(read(&mut store, id, &mut out) && out == block);
    }
    let alone = Settings { is_similar_shared: false, ..settings(64) };
    let mut store = Store::new(alone);
    let ids = [first, edited, first].map(|block| store.insert(&mut encoder(), 0, &block).unwrap());
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
    let [base_id, edited_id] = [base, edited].map(|block| store.insert(&mut encoder(), 0, &block).unwrap());
    store.release(base_id);
    assert_eq!((store.counts().orphans, store.counts().orphan_bytes), (1, 4096));
    check(&store);
    let mut out = [0; BLOCK_BYTES];
    assert!(read(&mut store, edited_id, &mut out) && out == edited);
    // No new difference is to an orphan.
    let mut other = base;
    other[11] ^= 1;
    let other_id = store.insert(&mut encoder(), 0, &other).unwrap();
    assert_eq!(store.encoding(other_id).unwrap().0, Codec::Raw);
    assert_eq!(store.insert(&mut encoder(), 0, &base), Ok(base_id));
    assert_eq!(store.counts().orphans, 0);
    check(&store);
    store.release(base_id);
    store.release(edited_id);
    assert_eq!((store.counts().orphans, store.counts().contents), (0, 1));
    assert!(!read(&mut store, base_id, &mut out) && store.encoding(base_id).is_none());
    check(&store);
}

#[test]
fn a_base_has_a_limited_number_of_dependents() {
    let mut store = Store::new(settings(1000));
    let base = Blocks::new(3).families[1];
    for number in 0..1000u64 {
        let mut block = base;
        block[..8].copy_from_slice(&number.to_le_bytes());
        store.insert(&mut encoder(), 0, &block).unwrap();
    }
    check(&store);
    assert_eq!(store.counts().contents - store.counts().differences, 1000u32.div_ceil(DEPENDENTS_MAX + 1));
}

#[test]
fn domains_share_nothing() {
    let blocks = Blocks::new(4);
    let mut store = Store::new(settings(1000));
    let mut encoder = encoder();
    let base = blocks.families[1];
    let mut edited = base;
    edited[9] ^= 1;
    let mut add = |store: &mut Store, domain, block| store.insert(&mut encoder, domain, block).unwrap();
    let ids = [1, 2].map(|domain| [add(&mut store, domain, &base), add(&mut store, domain, &base)]);
    assert!(ids[0][0] == ids[0][1] && ids[1][0] == ids[1][1] && ids[0][0] != ids[1][0]);
    assert_eq!((store.counts().contents, store.counts().owners), (2, 4));
    // A domain without the base has no difference to it.
    let alone = add(&mut store, 3, &edited);
    assert_eq!(store.encoding(alone).unwrap().0, Codec::Raw);
    let edited_ids = [1, 2].map(|domain| add(&mut store, domain, &edited));
    assert_eq!(edited_ids.map(|id| store.encoding(id).unwrap().0), [Codec::Line; 2]);
    check(&store);
    // One domain leaves; the others have what they had.
    [ids[0][0], ids[0][1], edited_ids[0]].into_iter().for_each(|id| store.release(id));
    store.rebase(&mut Encoder::new(Rules::default()));
    check(&store);
    let mut out = [0; BLOCK_BYTES];
    assert!(!read(&mut store, ids[0][0], &mut out) && !read(&mut store, edited_ids[0], &mut out));
    assert!(read(&mut store, ids[1][0], &mut out) && out == base);
    assert!(read(&mut store, edited_ids[1], &mut out) && out == edited);
    assert!(read(&mut store, alone, &mut out) && out == edited);
}

#[test]
fn owners_are_charged_equal_parts() {
    let blocks = Blocks::new(5);
    let mut store = Store::new(settings(1000));
    let mut encoder = encoder();
    let base = blocks.families[1];
    let mut edited = base;
    edited[9] ^= 1;
    let base_id = [&base; 4].map(|block| store.insert(&mut encoder, 0, block).unwrap())[0];
    let edited_id = [&edited; 2].map(|block| store.insert(&mut encoder, 0, block).unwrap())[0];
    assert_eq!((store.owners(base_id), store.charge(base_id)), (4, 1024.0));
    assert_eq!((store.owners(edited_id), store.charge(edited_id)), (2, 32.0));
    // The dependents of an orphan are charged for it.
    (0..4).for_each(|_| store.release(base_id));
    assert_eq!((store.owners(base_id), store.charge(edited_id)), (0, 2048.0 + 32.0));
    (0..2).for_each(|_| store.release(edited_id));
    assert_eq!((store.owners(edited_id), store.charge(edited_id)), (0, 0.0));
}

#[test]
fn fewer_pages_are_used_once_enough_was_released() {
    let mut random = fastrand::Rng::with_seed(6);
    let mut block = || {
        let mut block = [0; BLOCK_BYTES];
        random.fill(&mut block);
        block
    };
    let mut store = Store::new(settings(10));
    let mut encoder = encoder();
    let ids: Vec<ContentId> = (0..10).map(|_| store.insert(&mut encoder, 0, &block()).unwrap()).collect();
    assert_eq!(store.insert(&mut encoder, 0, &block()), Err(Full));
    store.allow(8);
    assert_eq!(store.pool().frames, 10);
    for &id in &ids[..2] {
        store.release(id);
        assert_eq!(store.insert(&mut encoder, 0, &block()), Err(Full));
    }
    store.release(ids[2]);
    assert!(store.insert(&mut encoder, 0, &block()).is_ok());
    // A present content needs no room; a short one needs a page.
    let mut short = [0; BLOCK_BYTES];
    assert_eq!(store.insert(&mut encoder, 0, &short), Err(Full));
    store.release(ids[3]);
    let short_id = store.insert(&mut encoder, 0, &short).unwrap();
    assert_eq!(store.insert(&mut encoder, 0, &short), Ok(short_id));
    short[0] = 1;
    assert!(store.insert(&mut encoder, 0, &short).is_ok(), "there is room in the page with the other one");
    assert_eq!(store.pool().frames + store.pool().run_pages, 8);
    store.allow(10);
    assert!(store.insert(&mut encoder, 0, &block()).is_ok());
    check(&store);
}

#[test]
fn a_plan_is_applied_to_the_store_that_it_was_made_for() {
    let blocks = Blocks::new(7);
    let mut store = Store::new(settings(1000));
    let mut encoders = [encoder(), encoder()];
    let base = blocks.families[1];
    let mut edited = base;
    edited[9] ^= 1;
    let base_id = store.insert(&mut encoders[0], 0, &base).unwrap();
    let [one, other] = &mut encoders;
    let (plan, again) = (store.plan(one, 0, &edited), store.plan(other, 0, &edited));
    assert_eq!(plan.encoded().unwrap().codec, Codec::Line);
    let edited_id = store.apply(&plan).unwrap();
    assert_eq!(store.apply(&again), Err(Refused::Changed), "the content was added twice");
    let plan = store.plan(one, 0, &edited);
    assert_eq!(plan.encoded(), None);
    store.release(edited_id);
    assert_eq!(store.apply(&plan), Err(Refused::Changed), "it left");
    let plan = store.plan(one, 0, &edited);
    store.release(base_id);
    assert_eq!(store.apply(&plan), Err(Refused::Changed), "its base left");
    let plan = store.plan(one, 0, &edited);
    assert_eq!(plan.encoded().unwrap().codec, Codec::Raw);
    assert!(store.apply(&plan).is_ok());
    check(&store);
}

/// The oldest blocks leave for new ones, for long, in a small store: all can be read, and the limits hold.
#[test]
fn churn_keeps_contents_right() {
    for seed in 0..3 {
        let mut blocks = Blocks::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new(Settings { seed, ..settings(60) });
        let mut encoders = [encoder(), encoder()];
        let mut queue = std::collections::VecDeque::new();
        let mut out = [0; BLOCK_BYTES];
        for step in 0..10_000 {
            let block = blocks.next();
            let [encoder, rebaser] = &mut encoders;
            let mut plan = store.plan(encoder, 0, &block);
            let id = loop {
                match store.apply(&plan) {
                    Ok(id) => break id,
                    Err(Refused::Changed) => plan = store.plan(encoder, 0, &block),
                    Err(Refused::Full) => store.release(queue.pop_front().map(|(id, _)| id).unwrap()),
                }
                store.rebase(rebaser);
                assert!(store.counts.orphan_bytes <= store.orphan_bytes_max);
            };
            queue.push_back((id, block));
            let (asked, block) = queue[random.usize(..queue.len())];
            let is_there = read(&mut store, asked, &mut out);
            assert!(is_there && out == block || !is_there && store.counts().dropped > 0);
            if step % 200 == 0 {
                check(&store);
            }
        }
        assert!(store.counts().rebased > 0 && store.counts().damaged == 0, "{:?}", store.counts());
        queue.into_iter().for_each(|(id, _)| store.release(id));
        is_empty(&store);
    }
}

fn is_empty(store: &Store) {
    check(store);
    assert_eq!((store.counts().contents, store.pool().free), (0, store.settings.pages));
    assert!(store.contents.iter().all(|content| content.owners == 0 && !content.is_there()));
}

/// Outcomes of the random operations: each is to be reached.
#[derive(Debug, Default)]
struct Reached {
    shared: u64,
    full: u64,
    changed: u64,
    late: u64,
    gone: u64,
    caught: u64,
    rebased: u64,
    dropped: u64,
    damaged: u64,
}

/// Random operations of a writer and of readers, and bits that flip, beside a model that has the bytes of every owner.
fn random_operations(seed: u64, encoders: &mut [Encoder; 2], reached: &mut Reached) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blocks = Blocks::new(random.u64(..50));
    blocks.random = random.fork();
    let flips = random.bool();
    let pages = random.u32(4..20);
    let contents = if random.u8(..4) == 0 { pages } else { pages * 8 };
    let mut store = Store::new(Settings { pages, contents, seed, orphans_max: 0.2, ..Settings::default() });
    let mut owners: Vec<(ContentId, u32, Block)> = Vec::new();
    let mut copies: Vec<(ContentId, Copied, Block)> = Vec::new();
    let mut codecs = Codecs::new();
    let mut out = [0; BLOCK_BYTES];
    for _ in 0..150 {
        match random.u8(..100) {
            0..50 => {
                let (block, domain) = (blocks.next(), random.u32(..2) * 7);
                let plan = store.plan(&mut encoders[0], domain, &block);
                reached.shared += u64::from(plan.encoded().is_none());
                // Owners may leave until the plan is applied.
                while !owners.is_empty() && random.u8(..4) == 0 {
                    store.release(owners.swap_remove(random.usize(..owners.len())).0);
                }
                match store.apply(&plan) {
                    Ok(id) => {
                        for (other, _, there) in owners.iter().filter(|(other, ..)| *other == id) {
                            assert!(*there == block, "seed {seed}: {other:?} has two contents");
                        }
                        owners.push((id, domain, block));
                    }
                    Err(Refused::Full) => {
                        reached.full += 1;
                        if !owners.is_empty() {
                            store.release(owners.swap_remove(random.usize(..owners.len())).0);
                        }
                    }
                    Err(Refused::Changed) => reached.changed += 1,
                }
            }
            50..60 if !owners.is_empty() => {
                store.release(owners.swap_remove(random.usize(..owners.len())).0);
            }
            60..75 if !owners.is_empty() => {
                let (id, _, block) = owners[random.usize(..owners.len())];
                let mut copied = Copied::new();
                let is_there = store.copy(id, &mut copied);
                assert!(is_there || flips || store.counts().dropped > 0, "seed {seed}: {id:?} is missing");
                if is_there {
                    copies.push((id, copied, block));
                } else {
                    reached.gone += 1;
                }
            }
            75..85 if !copies.is_empty() => {
                let (id, copied, block) = copies.swap_remove(random.usize(..copies.len()));
                reached.late += u64::from(store.live(id).is_none());
                if copied.decode(&mut codecs, &mut out) {
                    assert!(out == block, "seed {seed}: {id:?} has wrong bytes");
                } else {
                    assert!(flips, "seed {seed}: {id:?} was damaged");
                    reached.caught += 1;
                    store.damaged(id);
                }
            }
            85..92 => {
                if let Some(rebase) = store.plan_rebase(&mut encoders[1]) {
                    if !owners.is_empty() && random.bool() {
                        store.release(owners.swap_remove(random.usize(..owners.len())).0);
                    }
                    store.apply_rebase(&rebase);
                }
            }
            92..94 => store.allow(random.u32(pages / 2..=pages)),
            94..98 if flips => {
                let there: Vec<Handle> =
                    store.contents.iter().filter(|content| content.is_there()).map(|content| content.handle).collect();
                if !there.is_empty() {
                    let bytes = store.pool.bytes_mut(there[random.usize(..there.len())]);
                    let at = random.usize(..bytes.len().min(80));
                    bytes[at] ^= 1 << random.u8(..8);
                }
            }
            _ => {}
        }
    }
    check(&store);
    // Equal blocks of a domain are one content, unless one was damaged or dropped.
    for (at, (id, domain, block)) in owners.iter().enumerate() {
        for (other, of, there) in &owners[..at] {
            let is_same = (domain, block) == (of, there);
            assert!((id == other) == is_same || flips || store.counts().dropped > 0, "seed {seed}: {id:?} {other:?}");
        }
    }
    store.rebase(&mut encoders[1]);
    for &(id, _, block) in &owners {
        let is_there = read(&mut store, id, &mut out);
        assert!(!is_there || out == block, "seed {seed}: {id:?} has wrong bytes");
        assert!(is_there || flips || store.counts().dropped > 0, "seed {seed}: {id:?} is missing");
    }
    owners.into_iter().for_each(|(id, ..)| store.release(id));
    is_empty(&store);
    reached.rebased += store.counts().rebased;
    reached.dropped += store.counts().dropped;
    reached.damaged += store.counts().damaged;
}

fn seeds(seeds: std::ops::Range<u64>) {
    let mut encoders = [encoder(), encoder()];
    let mut reached = Reached::default();
    seeds.for_each(|seed| random_operations(seed, &mut encoders, &mut reached));
    let Reached { shared, full, changed, late, gone, caught, rebased, dropped, damaged } = reached;
    let all = [shared, full, changed, late, gone, caught, rebased, dropped, damaged];
    assert!(all.iter().all(|count| *count > 0), "{reached:?}");
    println!("{reached:?}");
}

#[test]
fn random_operations_read_nothing_wrong() {
    seeds(0..300);
}

/// `cargo test -p nigh-content --lib ten_thousand -- --ignored --nocapture`
#[test]
#[ignore = "takes a minute"]
fn ten_thousand_seeds() {
    seeds(0..10_000);
}

/// A thread that changes the store, and threads that read what is in it or was a moment ago.
#[test]
fn threads_read_while_contents_leave() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Mutex, RwLock};
    let store = RwLock::new(Store::new(settings(60)));
    let known: Mutex<Vec<(ContentId, Block)>> = Mutex::default();
    let is_over = AtomicBool::new(false);
    let (right, gone) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for seed in 0..2 {
            let (store, known, is_over, right, gone) = (&store, &known, &is_over, &right, &gone);
            threads.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let (mut copied, mut codecs, mut out) = (Copied::new(), Codecs::new(), [0; BLOCK_BYTES]);
                while !is_over.load(Ordering::Relaxed) {
                    let known = known.lock().unwrap();
                    let asked = known.get(random.usize(..known.len().max(1))).copied();
                    drop(known);
                    let Some((id, block)) = asked else { continue };
                    std::thread::yield_now();
                    if store.read().unwrap().copy(id, &mut copied) {
                        assert!(copied.decode(&mut codecs, &mut out) && out == block);
                        right.fetch_add(1, Ordering::Relaxed);
                    } else {
                        gone.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut blocks = Blocks::new(8);
        let mut encoders = [encoder(), encoder()];
        let mut step = 0;
        let enough = |step| step > 3000 && gone.load(Ordering::Relaxed) > 0 && right.load(Ordering::Relaxed) > 0;
        while !enough(step) && step < 100_000 {
            step += 1;
            let block = blocks.next();
            let [encoder, rebaser] = &mut encoders;
            let plan = store.read().unwrap().plan(encoder, 0, &block);
            let applied = store.write().unwrap().apply(&plan);
            match applied {
                Ok(id) => known.lock().unwrap().push((id, block)),
                Err(_) => {
                    let at = step % known.lock().unwrap().len();
                    let id = known.lock().unwrap()[at].0;
                    store.write().unwrap().release(id);
                    known.lock().unwrap().swap_remove(at);
                    store.write().unwrap().rebase(rebaser);
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    check(&store.into_inner().unwrap());
    assert!(right.into_inner() > 0 && gone.into_inner() > 0);
}
