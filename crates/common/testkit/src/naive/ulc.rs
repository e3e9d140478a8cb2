//! Unified level-aware caching for several clients of one server, from section 5.3.2 of the dissertation: stacks as vectors, and
//! everything that can be counted is counted anew. One rule is not the text's, as `nigh-tier` declares: a block that was referenced
//! later than the bottom of gLRU belongs to the server at least.

use std::collections::HashMap;

/// A block in a client's *uniLRUstack*, with its level status; `None` is L_out.
type Entry = (u64, Option<usize>);

/// A client: its *uniLRUstack*, the most recently referenced block first.
#[derive(Default)]
struct Client {
    stack: Vec<Entry>,
    /// Free blocks at the server, as far as it knows.
    free: usize,
    /// The last reference to the bottom of gLRU, as far as it knows.
    oldest: Option<u64>,
}

impl Client {
    fn held(&self, level: usize) -> usize {
        self.stack.iter().filter(|&&(_, status)| status == Some(level)).count()
    }

    /// The position of the yardstick of `level`: its block with the largest recency.
    fn yardstick(&self, level: usize) -> Option<usize> {
        self.stack.iter().rposition(|&(_, status)| status == Some(level))
    }
}

/// A block at the server.
#[derive(Clone)]
struct Cached {
    block: u64,
    /// The client that most recently requested that it be cached here, unless that client has it at a higher level now.
    owner: Option<usize>,
    /// The clients that requested that.
    directed: Vec<usize>,
    /// The number of its last reference.
    last: u64,
}

/// Clients with levels of their own, and the server that is the level below them.
pub struct UlcClients {
    clients: Vec<Client>,
    /// Sizes of a client's own levels, in blocks.
    own: Vec<usize>,
    /// *gLRU*, the latest reference first.
    lru: Vec<Cached>,
    /// The last reference of each client to each block.
    last: HashMap<(usize, u64), u64>,
    /// References so far.
    now: u64,
    /// The size of the server, in blocks.
    shared: usize,
    /// For each client, the notices that wait for its next retrieved block.
    notices: Vec<Vec<u64>>,
}

/// The effects of one reference.
#[derive(Debug, PartialEq, Eq)]
pub struct Effects {
    /// The level that had the block.
    pub from: Option<usize>,
    /// The level that has it now.
    pub to: Option<usize>,
    /// Blocks that went one level down, and from which level.
    pub demoted: Vec<(u64, usize)>,
}

impl UlcClients {
    /// All levels are empty.
    pub fn new(clients: usize, own: &[usize], shared: usize) -> UlcClients {
        let client = || Client { stack: Vec::new(), free: shared, oldest: None };
        UlcClients {
            clients: (0..clients).map(|_| client()).collect(),
            own: own.to_vec(),
            lru: Vec::new(),
            last: HashMap::new(),
            now: 0,
            shared,
            notices: vec![Vec::new(); clients],
        }
    }

    /// The level of `block` as `client` knows it.
    pub fn level(&self, client: usize, block: u64) -> Option<usize> {
        self.clients[client].stack.iter().find(|&&(other, _)| other == block).and_then(|&(_, status)| status)
    }

    /// The blocks of the server that `client` owns.
    pub fn share(&self, client: usize) -> usize {
        self.lru.iter().filter(|cached| cached.owner == Some(client)).count()
    }

    /// How many caches have `block`.
    pub fn copies(&self, block: u64) -> usize {
        let has = |client: &usize| self.level(*client, block).is_some_and(|level| level < self.own.len());
        (0..self.clients.len()).filter(has).count() + self.lru.iter().filter(|cached| cached.block == block).count()
    }

    /// `client` wants `block` to be cached at the server: it is the owner. The order of gLRU is that of recencies. The bottom makes
    /// room, and its owner will be notified.
    fn request_caching(&mut self, client: usize, block: u64) {
        let last = self.last[&(client, block)];
        let mut cached = Cached { block, owner: None, directed: Vec::new(), last };
        if let Some(at) = self.lru.iter().position(|other| other.block == block) {
            let before = self.lru.remove(at);
            if let Some(owner) = before.owner.filter(|&owner| owner != client) {
                self.notices[owner].push(block);
            }
            cached = Cached { last: last.max(before.last), ..before };
        }
        cached.owner = Some(client);
        cached.directed.push(client);
        let at = self.lru.iter().position(|other| other.last < cached.last).unwrap_or(self.lru.len());
        self.lru.insert(at, cached);
        if self.lru.len() > self.shared {
            let bottom = self.lru.pop().expect("it is too full");
            if let Some(owner) = bottom.owner {
                self.notices[owner].push(bottom.block);
            }
        }
    }

    /// `client` references `block`.
    pub fn reference(&mut self, client: usize, block: u64) -> Effects {
        let server = self.own.len();
        self.now += 1;
        let earlier = self.last.insert((client, block), self.now);
        let place = self.clients[client].stack.iter().position(|&(other, _)| other == block);
        // Counted before this reference: the last one that found the block in the stack.
        let newer_than_bottom = place.is_some()
            && self.clients[client].oldest.is_some_and(|oldest| earlier.is_some_and(|last| last >= oldest));
        let level_status = place.and_then(|at| self.clients[client].stack[at].1);

        // Recency status: between which yardsticks the block is. A level with room takes any block.
        let of = &self.clients[client];
        let has_room = |level: usize| if level == server { of.free > 0 } else { of.held(level) < self.own[level] };
        let recency_status = (0..=server).find(|&level| {
            has_room(level) || matches!((place, of.yardstick(level)), (Some(at), Some(yardstick)) if at <= yardstick)
        });
        // The bottom of gLRU bounds the server's level too.
        let recency_status = recency_status.or(newer_than_bottom.then_some(server));
        let to = match (level_status, recency_status) {
            (Some(i), Some(j)) => Some(i.min(j)),
            (i, j) => i.or(j),
        };

        // Retrieve(b, i, j), and the reply with its notices.
        let mut from = level_status;
        if level_status.is_none_or(|level| level == server) {
            let cached = self.lru.iter().position(|other| other.block == block);
            from = cached.map(|_| server);
            if to == Some(server) {
                self.request_caching(client, block);
            } else if let Some(at) = cached
                && self.lru[at].owner == Some(client)
            {
                // Cached on the highest level among all the clients' directions: here, if another client directed it here.
                if self.lru[at].directed.iter().any(|&other| other != client) {
                    self.lru[at].owner = None;
                } else {
                    self.lru.remove(at);
                }
            }
            let notices = std::mem::take(&mut self.notices[client]);
            for entry in &mut self.clients[client].stack {
                if notices.contains(&entry.0) {
                    entry.1 = None;
                }
            }
            self.clients[client].free = self.shared - self.lru.len();
            // An empty gLRU bounds nothing.
            self.clients[client].oldest = Some(self.lru.last().map_or(0, |bottom| bottom.last));
        }

        // To the top; then Demote(y, i, i + 1) of the yardsticks of levels that are too full.
        let stack = &mut self.clients[client].stack;
        stack.retain(|&(other, _)| other != block);
        stack.insert(0, (block, to));
        let mut demoted = Vec::new();
        for level in 0..server {
            if self.clients[client].held(level) > self.own[level] {
                let at = self.clients[client].yardstick(level).expect("a level that is too full has blocks");
                let victim = self.clients[client].stack[at].0;
                self.clients[client].stack[at].1 = Some(level + 1);
                demoted.push((victim, level));
                if level + 1 == server {
                    self.request_caching(client, victim);
                    let of = &mut self.clients[client];
                    of.free = of.free.saturating_sub(1);
                }
            }
        }
        let oldest = self.clients[client].oldest;
        let stack = &mut self.clients[client].stack;
        while let Some(&(bottom, None)) = stack.last()
            && oldest.is_none_or(|oldest| self.last[&(client, bottom)] < oldest)
        {
            stack.pop();
        }
        Effects { from, to, demoted }
    }
}
