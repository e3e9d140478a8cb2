//! The contents of BLOCK_STATUS.

use std::io::ErrorKind;
use std::ops::Range;

use nigh_backend::Extent as DeviceExtent;
use nigh_host::front::{Cache, Disk, Presence};
use nigh_host::{BLOCK, Poisoned};
use nigh_nbd::wire::EXTENTS_MAX;
use nigh_nbd::{Command, Context, Contexts, Errno, Extent, Framing, Request, cache_state, state};

/// Extents of the device that are asked for at a time.
const DEVICE_EXTENTS: usize = 1024;

/// More than the headers of a reply, and the message of an error.
const HEADERS: usize = 4096;
/// Bytes that one reply covers at most: clients ask for the rest.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes that are looked at first; if that does not suffice, four times as many, and so on.
const STEP: u64 = 16 << 20;

/// The most extents of a reply where memory is scarce, for each context: it fits into the memory that each export has for itself.
pub(crate) const EXTENTS_FEW: usize = 8192;

/// The most extents of a reply, for each context.
pub(crate) fn extents_most(request: &Request) -> usize {
    // Few devices have shorter holes.
    let extents = (request.length.min(BYTES_MAX) / 512 + 2).min(EXTENTS_MAX as u64) as usize;
    match request.command {
        Command::BlockStatus { one: true } => extents.min((STEP / BLOCK) as usize),
        _ => extents,
    }
}

/// Memory that is taken for a `reply` of `most` extents for each context: of what is found out, and of the reply.
pub(crate) fn memory(contexts: Contexts, most: usize) -> usize {
    let each = size_of::<Extent>();
    // The extents in the cache, and those of each context twice: in the reply with a header.
    HEADERS + most * each * (1 + 2 * contexts.iter().count())
}

/// The whole reply of `most` extents for each context, without more memory than it needs. Between two questions to the device, it ends if the
/// client `has_left`.
pub(crate) fn reply(
    cache: &Cache,
    disk: &Disk,
    has_left: &dyn Fn() -> bool,
    framing: Framing,
    contexts: Contexts,
    request: &Request,
    most: usize,
) -> Vec<u8> {
    let Some(chunks) = framing.chunks() else {
        return framing.error(request.tag(), Errno::Inval).to_vec();
    };
    let one = matches!(request.command, Command::BlockStatus { one: true });
    let enough = if one { 1 } else { most };
    let end = request.offset + request.length.min(BYTES_MAX);
    let mut lists: Vec<(Context, Vec<Extent>)> = contexts.iter().map(|context| (context, Vec::new())).collect();
    let asks_for_cache = contexts.iter().any(|context| context == Context::Cache);
    let (mut at, mut step) = (request.offset, STEP);
    while at < end && lists.iter().any(|(_, list)| list.len() <= enough) {
        if has_left() {
            return framing.error(request.tag(), Errno::Shutdown).to_vec();
        }
        let range = at..end.min(at.saturating_add(step));
        // The cache first: what is written back meanwhile is then seen on the device.
        let found = if asks_for_cache { blocks(cache, disk, range, most) } else { dirty(cache, disk, range, most) };
        let Ok(blocks) = found else {
            return framing.error(request.tag(), Errno::Io).to_vec();
        };
        for (context, list) in lists.iter_mut().filter(|(_, list)| list.len() <= enough) {
            match context {
                Context::Cache => blocks.iter().for_each(|&extent| push(list, extent)),
                Context::Allocation => {
                    if let Err(error) = allocation(disk, has_left, at, &blocks, most, list) {
                        if has_left() {
                            return framing.error(request.tag(), Errno::Shutdown).to_vec();
                        }
                        tracing::debug!(disk = disk.name(), %error, "the extents cannot be told");
                        return framing.error(request.tag(), Errno::from(error.kind())).to_vec();
                    }
                }
            }
        }
        at += length(&blocks);
        step *= 4;
    }
    let mut out = Vec::new();
    let last = contexts.iter().last();
    for (context, mut list) in lists {
        // Clients ask for the rest.
        list.truncate(most);
        chunks.extents(request, context, list, Some(context) == last, &mut out);
    }
    out.shrink_to_fit();
    out
}

fn length(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.length).sum()
}

fn push(list: &mut Vec<Extent>, extent: Extent) {
    match list.last_mut() {
        Some(last) if last.flags == extent.flags => last.length += extent.length,
        _ => list.push(extent),
    }
}

/// The cached blocks of `range`, or of its beginning if that has more than `most` extents; flags of `x-nigh:cache`.
fn blocks(cache: &Cache, disk: &Disk, range: Range<u64>, most: usize) -> Result<Vec<Extent>, Poisoned> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = range.start;
    for piece in cache.extents(range) {
        let end = piece.end;
        cache.states(disk, piece, |block_end, state| {
            let flags = match state {
                Presence::Absent => 0,
                Presence::Encoded { is_shared: false } => cache_state::ENCODED,
                Presence::Encoded { is_shared: true } => cache_state::ENCODED | cache_state::SHARED,
                Presence::Clean => cache_state::CACHED,
                Presence::Dirty => cache_state::CACHED | cache_state::DIRTY,
            };
            let length = block_end.min(end) - at;
            at += length;
            push(&mut extents, Extent { length, flags });
        })?;
        if extents.len() > most {
            break;
        }
    }
    Ok(extents)
}

/// As `blocks`, but clean blocks are not distinguished from absent ones. It takes time for dirty blocks only.
fn dirty(cache: &Cache, disk: &Disk, range: Range<u64>, most: usize) -> Result<Vec<Extent>, Poisoned> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = range.start;
    for piece in cache.extents(range) {
        let end = piece.end;
        let mut until = |to: u64, flags| {
            if to > at {
                push(&mut extents, Extent { length: to - at, flags });
                at = to;
            }
        };
        cache.dirty_blocks(disk, piece, |block| {
            until(block, 0);
            until(end.min(block + BLOCK), cache_state::CACHED | cache_state::DIRTY);
        })?;
        until(end, 0);
        if extents.len() > most {
            break;
        }
    }
    Ok(extents)
}

/// Appends the device's extents at `offset`, with what is dirty in the cache as data; flags of `base:allocation`. They are as
/// long as `blocks`, or more than `most`, unless the client `has_left`.
fn allocation(
    disk: &Disk,
    has_left: &dyn Fn() -> bool,
    offset: u64,
    blocks: &[Extent],
    most: usize,
    extents: &mut Vec<Extent>,
) -> std::io::Result<()> {
    let end = offset + length(blocks);
    let mut cached = blocks.iter();
    let mut block = cached.next().copied();
    let mut at = offset;
    while at < end && extents.len() <= most {
        if has_left() {
            return Err(ErrorKind::Interrupted.into());
        }
        let found = match disk.extents(at..end, DEVICE_EXTENTS) {
            // A range that is not known in time may be data.
            Err(error) if error.kind() == ErrorKind::TimedOut => vec![DeviceExtent { range: at..end, hole: false }],
            found => found?,
        };
        for device in found {
            while let Some(Extent { length, flags }) = &mut block
                && at < device.range.end
            {
                let part = (*length).min(device.range.end - at);
                let hole = device.hole && *flags & cache_state::DIRTY == 0;
                push(extents, Extent { length: part, flags: if hole { state::HOLE | state::ZERO } else { 0 } });
                at += part;
                *length -= part;
                if *length == 0 {
                    block = cached.next().copied();
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::FileExt;

    use nigh_service::{ExportSettings, Service, Settings};

    use super::*;

    #[test]
    fn cancel_8_a_device_is_not_asked_on_for_a_client_that_left() {
        // Every other block has data: so many extents are more than a device is asked for twice.
        const EXTENTS: u64 = 3 * DEVICE_EXTENTS as u64;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(EXTENTS * BLOCK).unwrap();
        for block in (0..EXTENTS).step_by(2) {
            file.write_all_at(&[1; BLOCK as usize], block * BLOCK).unwrap();
        }
        let export = ExportSettings::new("disk", path.to_str().unwrap().parse().unwrap());
        let server = Service::start(Settings::new(8 << 20, "lru".parse().unwrap(), vec![export])).unwrap();
        let host = server.host();
        let disk = host.disk("disk").unwrap();
        for (stays_for, asked) in [(u32::MAX, 3), (1, 2)] {
            let looked = Cell::new(0);
            let has_left = || looked.replace(looked.get() + 1) >= stays_for;
            let blocks = dirty(host.cache(), &disk, 0..EXTENTS * BLOCK, EXTENTS as usize).unwrap();
            let mut extents = Vec::new();
            let done = allocation(&disk, &has_left, 0, &blocks, EXTENTS as usize, &mut extents);
            assert_eq!((done.is_err(), looked.get()), (stays_for == 1, asked), "{}", extents.len());
        }
        server.shut_down().unwrap();
    }
}
