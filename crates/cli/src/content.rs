//! `nigh content`: which blocks of images are equal, similar or compressible, and what each scheme would keep of them.

mod images;
mod report;
mod study;

use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use nigh_content::BLOCK_BYTES;

use crate::args::ContentArgs;
use crate::{asked, output, progress, results};

use images::{EXTENT_BLOCKS, Images};
use report::Found;
use study::Study;

/// Most bytes of data that are read unless --sample is given.
const READ_MOST: u64 = 4 << 30;

pub(crate) fn run(args: &ContentArgs) -> anyhow::Result<()> {
    let memory = args.memory.as_deref().map(parse_memory).transpose()?;
    let rate = args.sample.as_deref().map(|text| asked::parse_rate("--sample", text)).transpose()?;
    let images = Images::open(&args.files)?;
    let data = images.data_bytes();
    let rate = rate.unwrap_or_else(|| (READ_MOST as f64 / data.max(1) as f64).min(1.0));
    let extents = images.sampled(rate);
    ensure!(
        !extents.is_empty(),
        "--sample {}: no extent of 1 MiB was chosen; sample more",
        args.sample.as_deref().unwrap_or("")
    );
    let threads = asked::threads(args.threads);
    let done = AtomicU64::new(0);
    let bar = progress::blocks("reading", extents.len() as u64 * EXTENT_BLOCKS as u64);
    let study = progress::follow(bar, &done, || Study::of(&images, &extents, threads, &done))?;
    let found = Found::new(&images, &study, rate, memory);
    output::print(&if args.json { results::json(&found)? } else { found.table().into_bytes() })
}

fn parse_memory(text: &str) -> anyhow::Result<u64> {
    let bytes = nigh_text::bytes(text).filter(|&bytes| bytes >= BLOCK_BYTES as u64);
    bytes.with_context(|| format!("--memory {text}: expected a size of at least 4K, such as 4G"))
}
