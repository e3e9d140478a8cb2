//! Several clients of one server: [`UlcClients`] against the naive transcription of section 5.3.2, and figure 5.8.

use nigh_policy::Slot;
use nigh_testkit::naive::ulc;
use nigh_testkit::workload;
use nigh_tier::{Client, Joint, Move, Reply, Server, Tier, Ulc, UlcClient, UlcClients, UniLruClients, Update};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of a client's own levels, and of the server.
const SIZES: [(&[u32], u32); 6] = [(&[8], 16), (&[2, 5], 30), (&[20], 6), (&[1], 1), (&[3, 1, 4], 9), (&[6], 200)];

/// A reference string of each client, and the client of each reference. Clients run at different speeds; `shared` of 8 blocks are those
/// of all clients.
fn references(seed: u64, clients: u16, shared: u64, length: usize) -> Vec<(Client, u32)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let blocks = 48;
    let mut strings: Vec<_> =
        (0..u64::from(clients)).map(|client| workload::mixed(seed * 64 + client, blocks, length).into_iter()).collect();
    let next = |_| {
        let client = random.random_range(0..clients).min(random.random_range(0..clients));
        let block = strings[usize::from(client)].next().expect("strings are as long as all references");
        let of = if block % 8 < shared { 0 } else { u64::from(client) };
        (client, (of * blocks + block) as u32)
    };
    (0..length).map(next).collect()
}

#[test]
fn clients_follow_the_text() {
    let (mut stale, mut shared_hits) = (0, 0);
    for (seed, &(own, shared)) in (0..).zip(SIZES.iter().cycle().take(60)) {
        let clients = 1 + (seed % 5) as u16;
        let mut tested = UlcClients::new(48 * 5, clients, own, shared);
        let own: Vec<usize> = own.iter().map(|&blocks| blocks as usize).collect();
        let mut naive = ulc::UlcClients::new(clients.into(), &own, shared as usize);
        for (at, (client, block)) in references(seed, clients, seed % 4 * 2, 4000).into_iter().enumerate() {
            let found = tested.reference(client, Slot(block));
            let expected = naive.reference(client.into(), block.into());
            let found = (found.from.map(usize::from), found.to.map(usize::from));
            assert_eq!(
                found,
                (expected.from, expected.to),
                "reference {at} of seed {seed}: client {client}, block {block}"
            );
            let level = tested.level(client, Slot(block)).map(usize::from);
            assert_eq!(level, naive.level(client.into(), block.into()));
            assert_eq!(tested.copies(Slot(block)), naive.copies(block.into()), "reference {at} of seed {seed}");
            for client in 0..clients {
                assert_eq!(tested.share(client) as usize, naive.share(client.into()), "reference {at} of seed {seed}");
            }
            if at % 16 == 0 {
                tested.check();
            }
        }
        for client in 0..clients {
            stale += tested.counts(client).stale;
            shared_hits += tested.counts(client).hits[own.len()];
        }
    }
    assert!(
        stale > 100 && shared_hits > 1000,
        "{stale} requests for replaced blocks, {shared_hits} hits at the server"
    );
}

/// Demotions are counted exactly, and no client assumes a block to be in two places.
#[test]
fn demotions_are_counted() {
    for seed in 0..12 {
        let mut tested = UlcClients::new(48 * 5, 3, &[4, 6], 20);
        let mut naive = ulc::UlcClients::new(3, &[4, 6], 20);
        let mut demotions = [[0; 2]; 3];
        for (client, block) in references(seed, 3, 4, 3000) {
            tested.reference(client, Slot(block));
            for (_, from) in naive.reference(client.into(), block.into()).demoted {
                demotions[usize::from(client)][from] += 1;
            }
        }
        for client in 0..3 {
            assert_eq!(tested.counts(client).demotions[..2], demotions[usize::from(client)]);
        }
    }
}

/// Blocks of all clients, counted by hand from the rules of unified LRU.
#[test]
fn unified_lru_has_one_list_at_the_server() {
    for seed in 0..12 {
        let (own, shared) = (5, 12);
        let mut tested = UniLruClients::new(48 * 5, 3, &[own], shared);
        let mut lists = [const { Vec::<u32>::new() }; 3];
        let mut server = Vec::<u32>::new();
        for (client, block) in references(seed, 3, 4, 3000) {
            let list = &mut lists[usize::from(client)];
            let expected = if list.contains(&block) {
                Some(0)
            } else if server.contains(&block) {
                Some(1)
            } else {
                None
            };
            if expected != Some(0) {
                server.retain(|&other| other != block);
            }
            list.retain(|&other| other != block);
            list.insert(0, block);
            if list.len() > own as usize {
                let victim = list.pop().unwrap();
                server.retain(|&other| other != victim);
                server.insert(0, victim);
                server.truncate(shared as usize);
            }
            assert_eq!(tested.reference(client, Slot(block)).from, expected);
            let copies = lists.iter().chain([&server]).filter(|list| list.contains(&block)).count();
            assert_eq!(tested.copies(Slot(block)), copies);
            tested.check();
        }
    }
}

/// Figure 5.8: client 1 directs block 9 to the server, which is full. The bottom of gLRU, block 14 of client 2, is replaced. Client 2
/// is notified with the next block that it retrieves. The share of client 1 grows by one, that of client 2 shrinks by one.
#[test]
fn a_notice_travels_with_the_next_block() {
    let (one, two) = (0, 1);
    let mut server = Server::new(32, 2, 6);
    let mut clients = [UlcClient::new(32, &[2], 6), UlcClient::new(32, &[2], 6)];
    let mut now = 0;
    let mut go = |clients: &mut [UlcClient; 2], client: Client, block: u32| {
        now += 1;
        let of = &mut clients[usize::from(client)];
        let retrieve = of.retrieve(Slot(block));
        let (mut moves, mut notices) = (Vec::new(), Vec::new());
        if of.is_remote(retrieve) {
            let answer = server.retrieve(client, Slot(block), retrieve.to == Some(1), now);
            server.take_notices(client, &mut notices);
            let update = Update { notices: &notices, free: server.free(), oldest: server.oldest() };
            let reply = Reply { found: answer.found, update };
            of.settle(Slot(block), retrieve, Some(reply), now, &mut moves);
        } else {
            of.settle(Slot(block), retrieve, None, now, &mut moves);
        }
        for step in moves {
            if let Move::Demote(victim, 0) = step {
                server.demote(client, victim, of.last(victim));
            }
        }
        (retrieve.to, notices, [server.share(one), server.share(two)])
    };
    // Two blocks at each client, then three of each at the server, 14 first. Block 9 comes when it is full, and is not cached.
    let filling =
        [(two, 12), (two, 13), (one, 1), (one, 2), (two, 14), (two, 15), (two, 16), (one, 3), (one, 4), (one, 5)];
    for (client, block) in filling {
        go(&mut clients, client, block);
    }
    let (to, _, shares) = go(&mut clients, one, 9);
    assert_eq!((to, shares), (None, [3, 3]));
    // Y1 is above block 9 now, and Y2, which is block 3, below it.
    go(&mut clients, one, 1);
    go(&mut clients, one, 2);
    let (to, notices, shares) = go(&mut clients, one, 9);
    assert_eq!((to, notices.len(), shares), (Some(1), 0, [4, 2]));
    assert_eq!(clients[1].level(Slot(14)), Some(1), "the notice is delayed");
    let (_, notices, shares) = go(&mut clients, two, 13);
    assert!(notices.is_empty() && shares == [4, 2], "a hit in its own cache retrieves nothing");
    let (_, notices, shares) = go(&mut clients, two, 16);
    assert_eq!((notices, shares), (vec![Slot(14)], [4, 2]));
    assert_eq!(clients[1].level(Slot(14)), None);
}

/// If a client is notified of a replaced block at once, and is the only one, it is the single client of section 5.3.2.1: what the server
/// replaces is always its yardstick.
#[test]
fn one_client_with_prompt_notices_is_the_single_client() {
    for (seed, &(own, shared)) in (0..).zip(SIZES.iter().cycle().take(36)) {
        let mut server = Server::new(64, 1, shared);
        let mut client = UlcClient::new(64, own, shared);
        let mut single = Ulc::new(64, &[own, &[shared]].concat());
        let (mut moves, mut expected, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for (at, block) in workload::mixed(seed, 64, 4000).into_iter().enumerate() {
            let (slot, now) = (Slot(block as u32), at as u64 + 1);
            moves.clear();
            let retrieve = client.retrieve(slot);
            let reply = client.is_remote(retrieve).then(|| {
                let keep = retrieve.to == Some(client.shared());
                let answer = server.retrieve(0, slot, keep, now);
                answer.found
            });
            notices.clear();
            server.take_notices(0, &mut notices);
            let update = Update { notices: &notices, free: server.free(), oldest: server.oldest() };
            let reply = reply.map(|found| Reply { found, update });
            let found = client.settle(slot, retrieve, reply, now, &mut moves);
            for step in &moves {
                if let Move::Demote(victim, from) = *step
                    && from + 1 == client.shared()
                {
                    server.demote(0, victim, client.last(victim));
                }
            }
            notices.clear();
            server.take_notices(0, &mut notices);
            client.update(Update { notices: &notices, free: server.free(), oldest: server.oldest() });
            assert_eq!(found, single.reference(slot, &mut expected), "reference {at} of seed {seed}");
            (0..64).map(Slot).for_each(|slot| assert_eq!(client.level(slot), single.level(slot)));
        }
        assert_eq!(client.counts().demotions, single.counts().demotions);
    }
}
