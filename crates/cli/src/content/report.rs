//! The findings as a table and as JSON.

use std::fmt::Write;

use nigh_content::{BLOCK_BYTES, Codec, LINE_BYTES};
use serde::Serialize;

use crate::results::{counted, grouped, peak_memory_bytes};
use crate::size::human_bytes;
use crate::table::Table;

use super::images::Images;
use super::study::{Costs, Distinct, Study};

/// The version of the JSON.
const SCHEMA: u32 = 1;

/// Bytes of the run of an encoding besides it, and of what a store has for each content: without and with the indices of
/// similar ones (crates/core/content/README.md).
const HEADER: u64 = 2;
const CONTENT: u64 = 37;
const CONTENT_SIMILAR: u64 = CONTENT + 13;

/// A scheme that keeps at least so much of what the best one keeps is as good, and the fastest of these is named.
const AS_GOOD: f64 = 0.98;

#[derive(Serialize)]
pub(super) struct Found {
    schema: u32,
    images: Vec<ImageRow>,
    /// The share of the extents that was read.
    sample: f64,
    block_bytes: usize,
    blocks: Blocks,
    schemes: Vec<Scheme>,
    /// With --memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    notes: Vec<String>,
    peak_memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct ImageRow {
    name: String,
    bytes: u64,
}

/// Blocks by what they are; each is in one of the classes after `total`.
#[derive(Serialize)]
struct Blocks {
    total: u64,
    zero: u64,
    /// To an earlier block.
    equal: u64,
    /// Stored as a difference to a block with the same signature.
    similar_in_place: u64,
    /// Stored as a difference to a block with a similar sketch.
    similar_shifted: u64,
    compressible: u64,
    other: u64,
}

#[derive(Serialize)]
struct Scheme {
    scheme: &'static str,
    /// Bytes of the blocks that are not zero, divided by the memory that they take.
    factor: f64,
    /// The same for distinct blocks alone, by the bytes of the encodings.
    factor_distinct: f64,
    /// Memory of the blocks that were read and are not zero, with all metadata.
    stored_bytes: u64,
    /// Processor time to store a block that is not zero, and to read one.
    encode_us: f64,
    decode_us: f64,
    /// With --memory: the share of the data that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<f64>,
}

#[derive(Serialize)]
struct Memory {
    bytes: u64,
    /// Bytes of all blocks that are not zero, estimated from the sample.
    data_bytes: u64,
    best: &'static str,
}

impl Found {
    pub(super) fn new(images: &Images, study: &Study, rate: f64, memory: Option<u64>) -> Found {
        let blocks = Blocks::of(study);
        let mut schemes = schemes(study);
        let read = blocks.total - blocks.zero;
        let data_bytes = (read as f64 * BLOCK_BYTES as f64 / rate) as u64;
        for scheme in &mut schemes {
            let kept = |memory: u64| (memory as f64 * scheme.factor / data_bytes.max(1) as f64).min(1.0);
            scheme.kept = memory.map(kept);
        }
        let best = best(&schemes);
        let rows = images.images.iter().map(|image| ImageRow { name: image.name(), bytes: image.bytes });
        let mut notes = Vec::new();
        if rate < 1.0 {
            notes.push(
                "the sample finds fewer equal and similar blocks than there are: the shares of these, and the factors, \
                 are at least so high"
                    .to_owned(),
            );
        }
        if read == 0 {
            notes.push("all blocks are zero".to_owned());
        }
        Found {
            schema: SCHEMA,
            images: rows.collect(),
            sample: rate,
            block_bytes: BLOCK_BYTES,
            memory: memory.map(|bytes| Memory { bytes, data_bytes, best }),
            blocks,
            schemes,
            notes,
            peak_memory_bytes: peak_memory_bytes(),
        }
    }

    pub(super) fn table(&self) -> String {
        let bytes = self.images.iter().map(|image| image.bytes).sum();
        let mut text = format!("{} of {}", counted(self.images.len() as u64, "image"), human_bytes(bytes));
        if self.sample < 1.0 {
            let _ = write!(text, ", of which {:.1} % were read", self.sample * 100.0);
        }
        let Blocks { total, zero, equal, similar_in_place, similar_shifted, compressible, other } = self.blocks;
        let _ = writeln!(text, ": {} blocks of 4 KiB", grouped(total));
        let share = |blocks: u64| 100.0 * blocks as f64 / total.max(1) as f64;
        for (blocks, class) in [
            (zero, "zero"),
            (equal, "equal to another block"),
            (similar_in_place, "similar to another block, edited in place"),
            (similar_shifted, "similar to another block, with content that moved"),
            (compressible, "compressible"),
            (other, "neither"),
        ] {
            let _ = writeln!(text, "{:6.2} %  {class}", share(blocks));
        }
        let kept =
            self.memory.as_ref().map_or(String::new(), |memory| format!("kept in {}", human_bytes(memory.bytes)));
        let mut table = Table::new(&["scheme", "factor", "of distinct", "store", "read", &kept]);
        for scheme in &self.schemes {
            table.row([
                scheme.scheme.to_owned(),
                format!("{:.2}", scheme.factor),
                format!("{:.2}", scheme.factor_distinct),
                format!("{:.1} µs", scheme.encode_us),
                format!("{:.1} µs", scheme.decode_us),
                scheme.kept.map_or(String::new(), |kept| format!("{:.1} %", kept * 100.0)),
            ]);
        }
        // Without --memory, the last column is empty.
        let table = table.to_string();
        table.lines().for_each(|line| {
            let _ = writeln!(text, "{}", line.trim_end());
        });
        if let Some(Memory { bytes, data_bytes, best }) = self.memory {
            let scheme = self.schemes.iter().find(|scheme| scheme.scheme == best);
            let kept = scheme.and_then(|scheme| scheme.kept).unwrap_or_default();
            let _ = writeln!(
                text,
                "best in {}: {best}, which keeps {:.1} % of {}",
                human_bytes(bytes),
                kept * 100.0,
                human_bytes(data_bytes)
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

impl Blocks {
    fn of(study: &Study) -> Blocks {
        let (mut in_place, mut shifted, mut compressible, mut other) = (0, 0, 0, 0);
        for distinct in &study.distinct {
            *match distinct.codec {
                codec if codec.has_base() && distinct.in_place => &mut in_place,
                codec if codec.has_base() => &mut shifted,
                Codec::Raw => &mut other,
                _ => &mut compressible,
            } += 1;
        }
        Blocks {
            total: study.blocks,
            zero: study.zero,
            equal: study.blocks - study.zero - study.distinct.len() as u64,
            similar_in_place: in_place,
            similar_shifted: shifted,
            compressible,
            other,
        }
    }
}

/// The memory of an encoding: raw blocks have a page, others a run of lines.
fn run_bytes(length: u16) -> u64 {
    if usize::from(length) == BLOCK_BYTES {
        return BLOCK_BYTES as u64;
    }
    (u64::from(length) + HEADER).next_multiple_of(LINE_BYTES as u64)
}

fn schemes(study: &Study) -> Vec<Scheme> {
    let Costs { hash, lz4, zstd, sketch, delta, lz4_decode, zstd_decode, decode } = study.costs;
    let read: u64 = study.blocks - study.zero;
    let distinct = study.distinct.len() as u64;
    // Of the blocks that are stored, this share is not there yet.
    let new = distinct as f64 / read.max(1) as f64;
    let scheme = |scheme, once: bool, content: u64, length: fn(&Distinct) -> u16, encode_us: f64, decode_us: f64| {
        let copies = |of: &Distinct| if once { 1 } else { u64::from(of.copies) };
        let stored = study.distinct.iter().map(|of| copies(of) * (run_bytes(length(of)) + content));
        let encoded = study.distinct.iter().map(|of| u64::from(length(of)));
        let (stored_bytes, encoded) = (stored.sum::<u64>(), encoded.sum::<u64>());
        let factor = |blocks: u64, bytes: u64| match blocks {
            0 => 1.0,
            blocks => blocks as f64 * BLOCK_BYTES as f64 / bytes as f64,
        };
        Scheme {
            scheme,
            factor: factor(read, stored_bytes),
            factor_distinct: factor(distinct, encoded),
            stored_bytes,
            encode_us,
            decode_us,
            kept: None,
        }
    };
    let raw = |_: &Distinct| BLOCK_BYTES as u16;
    let (by_lz4, by_zstd) = (|of: &Distinct| of.lz4, |of: &Distinct| of.zstd);
    let similar = |of: &Distinct| of.length;
    let [hash, lz4, zstd, similarity] = [hash.us(), lz4.us(), zstd.us(), sketch.us() + delta.us()];
    vec![
        scheme("none", false, 0, raw, 0.0, 0.0),
        scheme("dedup", true, CONTENT, raw, hash, 0.0),
        scheme("lz4", false, CONTENT, by_lz4, lz4, lz4_decode.us()),
        scheme("zstd", false, CONTENT, by_zstd, zstd, zstd_decode.us()),
        scheme("dedup+lz4", true, CONTENT, by_lz4, hash + new * lz4, lz4_decode.us()),
        scheme("dedup+zstd", true, CONTENT, by_zstd, hash + new * zstd, zstd_decode.us()),
        scheme("sketch", true, CONTENT_SIMILAR, similar, hash + new * (lz4 + similarity), decode.us()),
    ]
}

/// Of the schemes that keep most, the one with the fastest reads, then the fastest stores.
fn best(schemes: &[Scheme]) -> &'static str {
    let kept = |scheme: &Scheme| scheme.kept.unwrap_or(scheme.factor);
    let most = schemes.iter().map(kept).fold(0.0, f64::max);
    let good = schemes.iter().filter(|scheme| kept(scheme) >= most * AS_GOOD);
    let time = |scheme: &&Scheme| scheme.decode_us + scheme.encode_us / 1e3;
    let best = good.min_by(|one, other| time(one).total_cmp(&time(other)));
    best.map_or("none", |scheme| scheme.scheme)
}
