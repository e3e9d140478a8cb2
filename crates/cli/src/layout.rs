//! `nigh trace layout`: the files of a trace on a disk.

use std::collections::HashMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nigh_output::Destination;
use nigh_trace::layout::{self, FileSize, Layout, Order, Placement};
use nigh_trace::write::{WriteOptions, Writer};
use nigh_trace::{Op, Request, Requests};

use crate::args::{LayoutArgs, OrderArg};
use crate::results::grouped;
use crate::size::human_bytes;
use crate::{output, source, written};

pub(crate) fn run(args: &LayoutArgs) -> anyhow::Result<()> {
    let fragmentation = nigh_text::share(&args.fragmentation).with_context(|| {
        format!("--fragmentation {}: expected a share from 0 to 1, such as 0.05 or 5%", args.fragmentation)
    })?;
    let base = nigh_text::bytes(&args.at)
        .with_context(|| format!("--at {}: expected a place on the disk, such as 0 or 2G", args.at))?;
    let listed = args.files.as_deref().map(layout::read_files).transpose()?.unwrap_or_default();

    let read = [Some(&args.from), args.files.as_ref(), args.places.as_ref()].into_iter().flatten();
    let read: Vec<&Path> = read.map(PathBuf::as_path).collect();
    let to = Destination::new(&args.to, args.force, &read)?;
    let extents_to = args.extents.as_deref().map(|to| Destination::new(to, args.force, &read)).transpose()?;
    let is_one = extents_to.as_ref().is_some_and(|extents_to| extents_to.is_same(&to));
    ensure!(!is_one, "--extents {}: the trace is written there", to.path().display());
    let (source, mut requests) = source::open(&args.from, &args.input)?;
    ensure!(base.is_multiple_of(source.block_bytes.into()), "--at {}: expected whole blocks", args.at);
    let mut all: Vec<Request> = Vec::new();
    let mut batch = Vec::new();
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        all.append(&mut batch);
    }
    let files = used(&all, &listed);
    let layout = if let Some(path) = &args.places {
        layout::read_extents(path)?
    } else if args.fiemap {
        layout::fiemap(&files)?
    } else {
        let order = match args.order {
            OrderArg::FirstUse => Order::FirstUse,
            OrderArg::Name => Order::Name,
        };
        Placement { order, base, block_bytes: source.block_bytes, fragmentation, seed: args.seed }.place(&files)?
    };
    let options = WriteOptions {
        format: args.to_format.as_deref().map(str::parse).transpose()?,
        block_bytes: source.block_bytes,
        // A layout turns accesses to files into accesses to a disk, as if there were no page cache.
        taken: None,
    };
    write(&all, &layout, &to, &options, requests.as_ref())?;
    if let Some(to) = &extents_to {
        output::write(to, |out| layout::write_extents(&layout, BufWriter::new(out)))?;
    }
    let extents = layout.extents();
    output::tell(format_args!(
        "nigh: {} files in {} pieces, from {} to {} of the disk",
        grouped(files.len() as u64),
        grouped(extents.len() as u64),
        human_bytes(extents.first().map_or(0, |extent| extent.disk)),
        human_bytes(layout.end()),
    ));
    Ok(())
}

/// The files of the requests in the order of their first use, as long as they are listed to be or are used.
fn used(requests: &[Request], listed: &[FileSize]) -> Vec<FileSize> {
    let listed: HashMap<u32, &FileSize> = listed.iter().map(|file| (file.file, file)).collect();
    let mut at: HashMap<u32, usize> = HashMap::new();
    let mut files: Vec<FileSize> = Vec::new();
    for request in requests.iter().filter(|request| request.op != Op::Flush) {
        let end = request.offset.saturating_add(request.length.into());
        let at = *at.entry(request.volume).or_insert_with(|| {
            let known = listed.get(&request.volume).map(|&known| known.clone());
            files.push(known.unwrap_or(FileSize { file: request.volume, bytes: 0, path: String::new() }));
            files.len() - 1
        });
        files[at].bytes = files[at].bytes.max(end);
    }
    files
}

fn write(
    requests: &[Request],
    layout: &Layout,
    to: &Destination,
    options: &WriteOptions,
    read: &dyn Requests,
) -> anyhow::Result<()> {
    let mut writer = Writer::create(to, options)?;
    let mut placed = Vec::new();
    for some in requests.chunks(1 << 12) {
        for request in some {
            layout.place(request, &mut placed)?;
        }
        writer.push(&placed)?;
        placed.clear();
    }
    written::keep_gaps(&mut writer, read, to);
    written::report(&writer.finish()?, to.path());
    Ok(())
}
