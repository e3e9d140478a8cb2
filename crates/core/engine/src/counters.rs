//! The counters of the engine.

/// Declares a struct of sums with `AddAssign`, `Sub` and `each`, so that no field can be forgotten in one.
macro_rules! sums {
    ($(#[$about:meta])* $name:ident: $of:ty { $($(#[$note:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$note])* pub $field: $of,)*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }

        impl std::ops::Sub for $name {
            type Output = $name;

            fn sub(self, earlier: $name) -> $name {
                $name { $($field: self.$field - earlier.$field,)* }
            }
        }

        impl $name {
            /// Reports the name and value of each.
            pub fn each(&self, mut report: impl FnMut(&'static str, u64)) {
                $(report(stringify!($field), u64::from(self.$field));)*
            }
        }
    };
}

sums! {
/// The counters of a volume since it was opened. A block is counted once for each request that references it.
Counters: u64 {
    /// Read requests.
    reads,
    /// Write requests.
    writes,
    /// Bytes of read requests.
    read_bytes,
    /// Bytes of write requests.
    written_bytes,
    /// Referenced blocks that were resident.
    hits,
    /// Referenced blocks that were not resident.
    misses,
    /// Of the misses, blocks whose frame was still present, so that the device was not read.
    adopted,
    /// Referenced blocks that were resident but still being loaded; neither hits nor misses.
    joined,
    /// Of the referenced blocks: those that were written.
    write_references,
    /// Of these, blocks that were resident.
    write_hits,
    /// Blocks that left to make room.
    evictions,
    /// Blocks for which a prefetch was issued.
    prefetch_issued,
    /// Prefetched blocks that were referenced later, while they were resident.
    prefetch_used,
    /// Of these, blocks that were still being loaded then.
    prefetch_late,
    /// Prefetched blocks that left unreferenced, or whose load failed.
    prefetch_wasted,
    /// Blocks of prefetch requests that were already present or beyond the limit.
    prefetch_dropped,
    /// Read operations given to the device.
    device_reads,
    /// Bytes of these.
    device_read_bytes,
    /// Write operations given to the device.
    device_writes,
    /// Bytes of these.
    device_written_bytes,
    /// Blocks that were found to be damaged in memory.
    damaged,
    /// Flushes given to the device.
    device_flushes,
    /// Operations that the device failed.
    device_faults,
    /// Blocks that were loaded from the first level.
    level_1_hits,
    /// Blocks that were loaded from the second level.
    level_2_hits,
}
}

sums! {
/// The counters of a level since it was added, in blocks.
LevelCounters: u64 {
    /// Blocks that were loaded from it.
    hits,
    /// Blocks that were stored in it.
    stores,
    /// Of these, blocks that came from the level above.
    carried,
    /// Blocks that were offered but not stored, because too many were on their way.
    drops,
    /// Blocks that it held, or was about to store, when their contents changed.
    invalidations,
    /// Blocks evicted to make room for others.
    evictions,
    /// Blocks whose contents differed when they were read back.
    mismatches,
    /// Read operations given to its device.
    reads,
    /// Bytes of these.
    read_bytes,
    /// Write operations given to its device.
    writes,
    /// Bytes of these.
    written_bytes,
    /// Operations that its device failed.
    faults,
    /// Times that its device took too long for an operation.
    late,
    /// Times that it was left out for a volume, because reads took longer there than at the devices of the volume.
    left_out,
}
}

sums! {
/// The present contents of an engine.
Gauges: u32 {
    /// Blocks that the policy keeps.
    resident,
    /// Blocks that the policy remembers.
    ghosts,
    /// Dirty blocks.
    dirty,
    /// Frames in use: resident, on their way out, or being filled.
    frames,
    /// Blocks being loaded.
    loading,
    /// Requests in progress, including those that wait.
    requests,
    /// Of these, requests that wait for frames or for the dirty limit.
    waiting,
    /// Operations waiting for a device.
    queued,
}
}
