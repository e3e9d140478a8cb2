//! Several clients of one server: the shapes of figure 5.13 of the dissertation, on references made up to be like its traces
//! (section 5.4.2), which are not published.

use nigh_sim::levels::{Scheme, clients, replay_clients};
use nigh_sim::replay::Watch;
use nigh_sim::{Loader, Ops, Options, References};
use nigh_tier::Counts;
use nigh_trace::Request;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Milliseconds of a hit at the client and at the server, and of a miss (section 5.4.4).
const TIMES: [f64; 3] = [0.0, 0.4, 10.4];
const SCHEMES: [&str; 4] = ["ulc", "unilru", "indlru", "ind:lru/mq"];

/// References, each of a client to a volume's block.
fn references(of: impl Iterator<Item = (u32, u32, u64)>) -> References {
    let options = Options { block_bytes: 8192, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    let request = |(tenant, volume, block): (u32, u32, u64)| Request {
        tenant,
        volume,
        offset: block * 8192,
        length: 8192,
        ..Request::default()
    };
    let requests: Vec<Request> = of.map(request).collect();
    loader.push(&requests).unwrap();
    loader.finish()
}

const SERVERS: [u32; 5] = [500, 1000, 2000, 4000, 8000];

/// By the size of the server, the mean access times of ulc, unilru, indlru and ind:lru/mq, of all clients and after a tenth of the references.
fn rows(references: &References, client: u32) -> Vec<(u32, [f64; 4])> {
    let watch = Watch { warmup: references.ids.len() / 10, ..Watch::default() };
    let row = |server: u32| {
        let times = SCHEMES.map(|scheme| {
            let scheme: Scheme = scheme.parse().unwrap();
            let run = replay_clients(references, &scheme, &[client, server], watch).unwrap();
            let mut all = Counts::default();
            run.clients.iter().for_each(|counts| all += counts);
            assert_eq!(all.references, (references.ids.len() - watch.warmup) as u64);
            let share = |count: u64| 100.0 * count as f64 / all.references as f64;
            let ([own, shared, ..], demoted) = (all.hits.map(share), share(all.demotions[0]));
            let ms = all.mean_time(&TIMES);
            println!("{server} {scheme}: {own:.2} {shared:.2}, {demoted:.2} demoted, {} stale, {ms:.3} ms", all.stale);
            ms
        });
        (server, times)
    };
    SERVERS.map(row).to_vec()
}

/// By skew: block 0 is the most frequent one.
fn skewed(random: &mut Xoshiro256PlusPlus, blocks: u64) -> u64 {
    let share: f64 = random.random();
    ((blocks as f64).powf(share) - 1.0) as u64
}

/// Web servers that serve the same files.
fn httpd() -> References {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    references((0..400_000).map(|_| {
        let client = random.random_range(0..7);
        (client, 0, skewed(&mut random, 16_000))
    }))
}

/// Mail servers, each with disks of its own.
fn openmail() -> References {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    references((0..400_000).map(|_| {
        let client = random.random_range(0..6);
        let block = if random.random_bool(0.5) { skewed(&mut random, 8000) } else { random.random_range(0..8000) };
        (client, client, block)
    }))
}

/// Database nodes that scan tables again and again: each loops over one of its three tables for a while.
fn db2() -> References {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut at = [(0, 0); 8];
    references((0..400_000).map(move |_| {
        let client = random.random_range(0..8);
        if random.random_bool(0.1) {
            return (client, client, 8000 + skewed(&mut random, 2000));
        }
        let (table, block) = &mut at[client as usize];
        *block += 1;
        if *block == 600 * (*table + 1) {
            (*table, *block) = (if random.random_bool(0.3) { random.random_range(0..3) } else { *table }, 0);
        }
        (client, client, *table * 2000 + *block)
    }))
}

/// "For all the workloads ULC achieves the best performance", and "uniLRU beats MQ by eliminating data redundancy". Of these, the
/// second is not reproduced: with few hits at the server, the demotions cost more than they gain.
#[test]
fn clients_with_blocks_of_their_own() {
    for (server, [ulc, unilru, indlru, mq]) in rows(&openmail(), 500) {
        assert!(ulc < unilru && ulc < indlru && ulc < mq, "a server of {server} blocks");
    }
}

/// Loops: "indLRU beats uniLRU" with small servers; with larger ones uniLRU is ahead of indLRU, but not of MQ unless the server holds
/// most loops. ULC is ahead everywhere.
#[test]
fn clients_with_loops() {
    for (server, [ulc, unilru, indlru, mq]) in rows(&db2(), 300) {
        assert!(ulc < 0.85 * unilru && ulc < 0.85 * indlru && ulc < 0.9 * mq, "a server of {server} blocks");
        assert_eq!(unilru > indlru, server <= 2000, "a server of {server} blocks");
    }
}

/// All clients choose the same blocks with the same probabilities, which never change. ULC is ahead of both LRU schemes. It is not ahead of
/// MQ here, as it is on the paper's httpd: what matters for the server is how often all clients together reference a block, and each
/// client knows its own references only.
#[test]
fn clients_with_the_same_blocks() {
    for (server, [ulc, unilru, indlru, mq]) in rows(&httpd(), 500) {
        assert!(ulc < 0.85 * unilru && ulc < 0.95 * indlru && ulc < 1.1 * mq, "a server of {server} blocks");
    }
}

/// A client that goes idle gives its share to one that begins to loop.
#[test]
fn shares_follow_working_sets() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let busy = (0..60_000).map(|_| (0, 0, random.random_range(0..3000)));
    let references = references(busy.chain((0..100_000).map(|at| (1, 1, at % 800))));
    let watch = Watch { warmup: 60_000, ..Watch::default() };
    let run = replay_clients(&references, &"ulc".parse::<Scheme>().unwrap(), &[200, 1500], watch).unwrap();
    let hits: u64 = run.clients[1].hits.iter().sum();
    assert_eq!(clients(&references), Ok(2));
    assert!(hits > 97_000, "{hits} of 100,000 references: its loop fits");
}
