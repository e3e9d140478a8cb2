//! What the engine counts.

/// What one volume did since it was opened. Blocks are counted once for each request that references them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes asked for by read requests.
    pub read_bytes: u64,
    /// Bytes of write requests.
    pub written_bytes: u64,
    /// Referenced blocks that were resident.
    pub hits: u64,
    /// Referenced blocks that were not resident.
    pub misses: u64,
    /// Of the misses: blocks whose frame was still there, so that the device was not asked.
    pub adopted: u64,
    /// Referenced blocks that were resident but still being loaded; neither hits nor misses.
    pub joined: u64,
    /// Blocks that left to make room.
    pub evictions: u64,
    /// Blocks for which a prefetch was issued.
    pub prefetch_issued: u64,
    /// Prefetched blocks that were referenced later, while they were resident.
    pub prefetch_used: u64,
    /// Of these, blocks that were still being loaded then.
    pub prefetch_late: u64,
    /// Prefetched blocks that left unreferenced, or whose load failed.
    pub prefetch_wasted: u64,
    /// Blocks of prefetch requests that were there already or beyond the budget.
    pub prefetch_dropped: u64,
    /// Read operations given to the device.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Write operations given to the device.
    pub device_writes: u64,
    /// Bytes of these.
    pub device_written_bytes: u64,
    /// Flushes given to the device.
    pub device_flushes: u64,
    /// Operations that the device failed.
    pub device_faults: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.hits += other.hits;
        self.misses += other.misses;
        self.adopted += other.adopted;
        self.joined += other.joined;
        self.evictions += other.evictions;
        self.prefetch_issued += other.prefetch_issued;
        self.prefetch_used += other.prefetch_used;
        self.prefetch_late += other.prefetch_late;
        self.prefetch_wasted += other.prefetch_wasted;
        self.prefetch_dropped += other.prefetch_dropped;
        self.device_reads += other.device_reads;
        self.device_read_bytes += other.device_read_bytes;
        self.device_writes += other.device_writes;
        self.device_written_bytes += other.device_written_bytes;
        self.device_flushes += other.device_flushes;
        self.device_faults += other.device_faults;
    }
}

/// What an engine holds at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Blocks that the policy keeps.
    pub resident: u32,
    /// Blocks that the policy remembers.
    pub ghosts: u32,
    /// Dirty blocks.
    pub dirty: u32,
    /// Frames in use: resident, on their way out, or being filled.
    pub frames: u32,
    /// Blocks being loaded.
    pub loading: u32,
    /// Requests in progress, those waiting included.
    pub requests: u32,
    /// Of these, requests that wait for frames or for the dirty limit.
    pub waiting: u32,
    /// Operations waiting for a device.
    pub queued: u32,
}
