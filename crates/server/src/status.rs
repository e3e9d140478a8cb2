//! What BLOCK_STATUS reports.

use nigh_engine::BlockState;
use nigh_host::Poisoned;
use nigh_host::front::{Cache, Disk};
use nigh_nbd::wire::EXTENTS_MAX;
use nigh_nbd::{Context, Contexts, Errno, Extent, Framing, Request, cache_state, state};

/// Extents of the device that are asked for at a time.
const DEVICE_EXTENTS: usize = 1024;

/// The whole reply.
pub(crate) fn reply(cache: &Cache, disk: &Disk, framing: Framing, contexts: Contexts, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(chunks) = framing.chunks() else {
        return framing.error(request.tag(), Errno::Inval).to_vec();
    };
    // The cache first: what is written back meanwhile is then seen on the device.
    let Ok(blocks) = blocks(cache, disk, request) else {
        return framing.error(request.tag(), Errno::Io).to_vec();
    };
    let last = contexts.iter().last();
    for context in contexts.iter() {
        let is_last = Some(context) == last;
        match context {
            Context::Cache => chunks.extents(request, context, blocks.iter().copied(), is_last, &mut out),
            Context::Allocation => match allocation(disk, request, &blocks) {
                Ok(extents) => chunks.extents(request, context, extents, is_last, &mut out),
                Err(error) => {
                    tracing::warn!(disk = disk.name(), %error, "the extents cannot be told");
                    out.clear();
                    out.extend_from_slice(&framing.error(request.tag(), Errno::from(error.kind())));
                    return out;
                }
            },
        }
    }
    out
}

/// What the cache has of the request's range, as far as one reply goes; flags of `x-nigh:cache`.
fn blocks(cache: &Cache, disk: &Disk, request: &Request) -> Result<Vec<Extent>, Poisoned> {
    let range = request.offset..request.offset + request.length;
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = range.start;
    for piece in cache.extents(range) {
        let end = piece.end;
        cache.states(disk, piece, |block_end, state| {
            let flags = match state {
                BlockState::Absent => 0,
                BlockState::Clean => cache_state::CACHED,
                BlockState::Dirty => cache_state::CACHED | cache_state::DIRTY,
            };
            let length = block_end.min(end) - at;
            at += length;
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.length += length,
                _ => extents.push(Extent { length, flags }),
            }
        })?;
        if extents.len() > EXTENTS_MAX {
            break;
        }
    }
    Ok(extents)
}

/// The device's extents, with what is dirty in the cache as data; flags of `base:allocation`.
fn allocation(disk: &Disk, request: &Request, blocks: &[Extent]) -> std::io::Result<Vec<Extent>> {
    let known: u64 = blocks.iter().map(|extent| extent.length).sum();
    let end = request.offset + known;
    let mut extents = Vec::new();
    let mut cached = blocks.iter();
    let mut block = cached.next().copied();
    let mut at = request.offset;
    while at < end && extents.len() <= EXTENTS_MAX {
        for device in disk.extents(at..end, DEVICE_EXTENTS)? {
            while let Some(Extent { length, flags }) = &mut block
                && at < device.range.end
            {
                let part = (*length).min(device.range.end - at);
                let hole = device.hole && *flags & cache_state::DIRTY == 0;
                extents.push(Extent { length: part, flags: if hole { state::HOLE | state::ZERO } else { 0 } });
                at += part;
                *length -= part;
                if *length == 0 {
                    block = cached.next().copied();
                }
            }
        }
    }
    Ok(extents)
}
