//! LPU and De-Dup (Ren and Yang) as their text has them, over the bytes of blocks. If the text is silent, they
//! follow the readings that `nigh-content` lists.

/// The type of a virtual block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It refers to no other block.
    Independent,
    /// Associate blocks refer to it.
    Reference,
    /// It refers to the reference block with this address.
    Associate(u64),
}

/// A virtual block: an entry of the LPU queue.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The block.
    pub address: u64,
    /// Its type.
    pub kind: Kind,
    /// Its sub-signatures.
    pub signature: Vec<u8>,
    /// The data block, if it has one.
    pub data: Option<Vec<u8>>,
    /// Its 64-byte delta blocks.
    pub delta_blocks: usize,
    /// Bytes that a client reads.
    bytes: Vec<u8>,
    /// Of a reference block: what its data block has, or would have.
    base: Vec<u8>,
}

/// Sizes and thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Data blocks.
    pub data_blocks: usize,
    /// Delta blocks.
    pub delta_blocks: usize,
    /// Entries of the queue.
    pub virtual_blocks: usize,
    /// Requests between scans.
    pub scan_every: usize,
    /// Blocks that a scan takes.
    pub warm_blocks: usize,
    /// Whether identical blocks are associated when they are read or written.
    pub identical: bool,
}

/// The length of the difference between the first block and the second, its reference.
pub type DeltaBytes<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> usize;

/// LPU with a similarity threshold of 7 and a delta threshold of 768 bytes.
pub struct Lpu {
    settings: Settings,
    /// The LPU queue, its head first.
    pub queue: Vec<Entry>,
    /// Accesses by sub-block and signature.
    pub heatmap: Vec<Vec<u64>>,
    requests: usize,
}

/// Section 2.1: one byte for each of 8 sub-blocks, the sum of 4 bytes.
fn signature(bytes: &[u8]) -> Vec<u8> {
    let sum = |sub: &[u8]| (u32::from(sub[0]) + u32::from(sub[16]) + u32::from(sub[32]) + u32::from(sub[64])) % 256;
    bytes.chunks(512).map(|sub| sum(sub) as u8).collect()
}

fn matches(one: &[u8], other: &[u8]) -> usize {
    (0..8).filter(|&at| one[at] == other[at]).count()
}

impl Lpu {
    /// An empty cache.
    pub fn new(settings: Settings) -> Lpu {
        Lpu { settings, queue: Vec::new(), heatmap: vec![vec![0; 256]; 8], requests: 0 }
    }

    fn at(&self, address: u64) -> usize {
        self.queue.iter().position(|entry| entry.address == address).unwrap()
    }

    fn entry(&mut self, address: u64) -> &mut Entry {
        let at = self.at(address);
        &mut self.queue[at]
    }

    fn move_to_head(&mut self, address: u64) {
        let at = self.at(address);
        let entry = self.queue.remove(at);
        self.queue.insert(0, entry);
    }

    fn has_associates(&self, address: u64) -> bool {
        self.queue.iter().any(|entry| entry.kind == Kind::Associate(address))
    }

    /// A data block for `address`, with these bytes.
    fn allocate_data(&mut self, address: u64, bytes: Vec<u8>) {
        if self.queue.iter().filter(|entry| entry.data.is_some()).count() == self.settings.data_blocks {
            self.queue.iter_mut().rfind(|entry| entry.data.is_some()).unwrap().data = None;
        }
        self.entry(address).data = Some(bytes);
    }

    /// Whether `blocks` more delta blocks can be had.
    fn allocate_delta(&mut self, blocks: usize) -> bool {
        loop {
            let used: usize = self.queue.iter().map(|entry| entry.delta_blocks).sum();
            if used + blocks <= self.settings.delta_blocks {
                return true;
            }
            let victim =
                self.queue.iter().rposition(|entry| entry.delta_blocks > 0 && matches!(entry.kind, Kind::Associate(_)));
            let Some(victim) = victim else { return false };
            self.queue.remove(victim);
        }
    }

    /// One request; returns whether it was a hit.
    pub fn access(&mut self, address: u64, write: bool, bytes: &[u8], delta_bytes: DeltaBytes<'_>) -> bool {
        let is_known = self.queue.iter().any(|entry| entry.address == address);
        if !is_known {
            if self.queue.len() == self.settings.virtual_blocks {
                let victim = self.queue.iter().rposition(|entry| entry.kind != Kind::Reference).unwrap();
                self.queue.remove(victim);
            }
            let (signature, base) = (signature(bytes), bytes.to_vec());
            let kind = Kind::Independent;
            let entry = Entry { address, kind, signature, data: None, delta_blocks: 0, bytes: bytes.to_vec(), base };
            self.queue.insert(0, entry);
        }
        self.move_to_head(address);
        let kind = self.entry(address).kind;
        let has_the_data = if let Kind::Associate(reference) = kind {
            self.move_to_head(reference);
            reference
        } else {
            address
        };
        let hit = self.entry(has_the_data).data.is_some();
        if !hit {
            let bytes = if kind == Kind::Independent { bytes.to_vec() } else { self.entry(has_the_data).base.clone() };
            self.allocate_data(has_the_data, bytes);
        }
        match kind {
            Kind::Independent => {
                self.be_independent(address, bytes);
                if write || !hit {
                    self.associate_identical(address);
                }
            }
            _ if !write => {}
            Kind::Reference => {
                let base = self.entry(address).base.clone();
                self.entry(address).bytes = bytes.to_vec();
                self.entry(address).delta_blocks = 0;
                let length = if base == bytes { 0 } else { delta_bytes(bytes, &base).min(4096) };
                if self.allocate_delta(length.div_ceil(64)) {
                    self.entry(address).delta_blocks = length.div_ceil(64);
                } else {
                    for entry in self.queue.iter_mut().filter(|entry| entry.kind == Kind::Associate(address)) {
                        entry.kind = Kind::Independent;
                        entry.delta_blocks = 0;
                    }
                }
            }
            Kind::Associate(reference) => {
                let base = self.entry(reference).base.clone();
                self.entry(address).delta_blocks = 0;
                let length = if base == bytes { 0 } else { delta_bytes(bytes, &base) };
                if length <= 768 && self.allocate_delta(length.div_ceil(64)) {
                    let entry = self.entry(address);
                    (entry.signature, entry.bytes) = (signature(bytes), bytes.to_vec());
                    entry.delta_blocks = length.div_ceil(64);
                } else {
                    self.entry(address).kind = Kind::Independent;
                    self.move_to_head(address);
                    self.allocate_data(address, bytes.to_vec());
                    self.be_independent(address, bytes);
                    self.associate_identical(address);
                }
            }
        }
        let signature = self.entry(address).signature.clone();
        for (row, value) in self.heatmap.iter_mut().zip(signature) {
            row[value as usize] += 1;
        }
        self.end_references();
        self.requests += 1;
        if self.requests.is_multiple_of(self.settings.scan_every) {
            self.scan(delta_bytes);
            self.end_references();
        }
        hit
    }

    fn be_independent(&mut self, address: u64, bytes: &[u8]) {
        let entry = self.entry(address);
        (entry.signature, entry.bytes, entry.base) = (signature(bytes), bytes.to_vec(), bytes.to_vec());
        entry.data = Some(bytes.to_vec());
    }

    fn associate_identical(&mut self, address: u64) {
        let bytes = self.entry(address).bytes.clone();
        let same = |entry: &&Entry| entry.address != address && entry.data.is_some() && entry.base == bytes;
        let holder = self.queue.iter().filter(same).map(|entry| entry.address).min();
        if let Some(holder) = holder.filter(|_| self.settings.identical) {
            self.entry(address).kind = Kind::Associate(holder);
            self.entry(address).data = None;
            self.entry(holder).kind = Kind::Reference;
            self.move_to_head(holder);
        }
    }

    /// Reference blocks that no block refers to are independent, with what was written to them.
    fn end_references(&mut self) {
        for at in 0..self.queue.len() {
            if self.queue[at].kind == Kind::Reference && !self.has_associates(self.queue[at].address) {
                let entry = &mut self.queue[at];
                entry.kind = Kind::Independent;
                entry.delta_blocks = 0;
                if entry.data.is_some() {
                    let (address, bytes) = (entry.address, entry.bytes.clone());
                    self.be_independent(address, &bytes);
                }
            }
        }
    }

    /// Sections 3.1 and 3.3.
    fn scan(&mut self, delta_bytes: DeltaBytes<'_>) {
        let has_data =
            |queue: &[Entry], address| queue.iter().any(|e: &Entry| e.address == address && e.data.is_some());
        let is_cached = |entry: &&Entry| match entry.kind {
            Kind::Associate(reference) => has_data(&self.queue, reference),
            _ => entry.data.is_some(),
        };
        let warm: Vec<Entry> = self.queue.iter().filter(is_cached).take(self.settings.warm_blocks).cloned().collect();
        let mut references: Vec<Entry> = warm.iter().filter(|entry| entry.kind == Kind::Reference).cloned().collect();
        let popularity =
            |entry: &Entry| -> u64 { (0..8).map(|row| self.heatmap[row][entry.signature[row] as usize]).sum() };
        let mut candidates: Vec<Entry> = warm.iter().filter(|entry| entry.kind == Kind::Independent).cloned().collect();
        candidates.sort_by_key(|entry| std::cmp::Reverse(popularity(entry)));
        for candidate in candidates {
            if references.iter().all(|other| matches(&candidate.signature, &other.signature) < 7) {
                references.push(candidate);
            }
        }
        for candidate in warm {
            if candidate.kind != Kind::Independent || references.iter().any(|other| other.address == candidate.address)
            {
                continue;
            }
            let rate = |other: &Entry| (other.base == candidate.bytes, matches(&candidate.signature, &other.signature));
            let mut best = &references[0];
            for other in &references[1..] {
                let are_similar = matches(&candidate.signature, &other.signature) >= 7;
                if (are_similar && rate(other) > rate(best)) || matches(&candidate.signature, &best.signature) < 7 {
                    best = other;
                }
            }
            if matches(&candidate.signature, &best.signature) < 7 {
                continue;
            }
            let length = if best.base == candidate.bytes { 0 } else { delta_bytes(&candidate.bytes, &best.base) };
            if length > 768 || !self.allocate_delta(length.div_ceil(64)) {
                continue;
            }
            self.entry(best.address).kind = Kind::Reference;
            let entry = self.entry(candidate.address);
            entry.kind = Kind::Associate(best.address);
            entry.data = None;
            entry.delta_blocks = length.div_ceil(64);
            self.move_to_head(best.address);
        }
    }
}

/// De-Dup: LRU over contents, and the addresses that point to them.
pub struct Dedup {
    capacity: usize,
    /// Contents, the least recently used last.
    pub contents: Vec<Vec<u8>>,
    /// Addresses and what they point to.
    pub pointers: Vec<(u64, Vec<u8>)>,
}

impl Dedup {
    /// An empty cache.
    pub fn new(capacity: usize) -> Dedup {
        Dedup { capacity, contents: Vec::new(), pointers: Vec::new() }
    }

    /// One request, read or write; returns whether it was a hit.
    pub fn access(&mut self, address: u64, bytes: &[u8]) -> bool {
        let hit = self.pointers.iter().any(|&(other, _)| other == address);
        self.pointers.retain(|&(other, _)| other != address);
        // A data block that nothing points to any more is free.
        self.contents.retain(|content| content == bytes || self.pointers.iter().any(|(_, other)| other == content));
        if !self.contents.iter().any(|content| content == bytes) && self.contents.len() == self.capacity {
            let evicted = self.contents.pop().unwrap();
            self.pointers.retain(|(_, content)| *content != evicted);
        }
        self.contents.retain(|content| content != bytes);
        self.contents.insert(0, bytes.to_vec());
        self.pointers.push((address, bytes.to_vec()));
        hit
    }
}
