//! A job's table as a Parquet file that shows whether it is whole.
//!
//! Between the columns and the footer lies a hash of all other bytes and of the key, where no reader of Parquet looks. A file
//! that was cut short or damaged, or that has the name of another job, is therefore found before it is decoded.

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use twox_hash::XxHash3_128;

use crate::Key;
use crate::answer::METADATA;

/// The end of a Parquet file: the length of its footer, and this.
const MAGIC: &[u8; 4] = b"PAR1";
const END: usize = 4 + MAGIC.len();

/// The bytes of the hash.
const SEAL: usize = 16;

/// The table of the job `key` as a file. The same table gives the same bytes.
///
/// # Panics
/// If a column's type cannot be written; those of a job's table can.
pub fn encode(key: &Key, table: &RecordBatch) -> Vec<u8> {
    let about = table.schema_ref().metadata().get(METADATA).cloned();
    let level = ZstdLevel::try_new(3).expect("there is a level 3");
    let properties = WriterProperties::builder()
        .set_created_by(concat!("nigh ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_key_value_metadata(Some(vec![KeyValue::new(METADATA.to_owned(), about)]))
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let written = ArrowWriter::try_new_with_options(Vec::new(), table.schema(), options).and_then(|mut writer| {
        writer.write(table)?;
        writer.into_inner()
    });
    let mut bytes = written.expect("a vector takes all bytes, and the columns have types of Parquet");
    let footer = footer(&bytes).expect("the writer ends with a footer");
    let seal = seal(key, &bytes[..footer], &bytes[footer..]);
    bytes.splice(footer..footer, seal);
    bytes
}

/// The table of the job `key`, if the file is whole.
pub fn decode(key: &Key, bytes: Vec<u8>) -> Option<RecordBatch> {
    let footer = footer(&bytes)?;
    let (columns, found) = bytes.get(..footer)?.split_last_chunk::<SEAL>()?;
    if seal(key, columns, bytes.get(footer..)?) != *found {
        return None;
    }
    let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).ok()?;
    let rows = usize::try_from(builder.metadata().file_metadata().num_rows()).ok()?;
    // The reader's tables come without metadata.
    let schema = builder.schema().clone();
    let table = builder.with_batch_size(rows.max(1)).build().ok()?.next()?.ok()?;
    table.with_schema(schema).ok()
}

/// Beginning of the footer.
fn footer(bytes: &[u8]) -> Option<usize> {
    let end: &[u8; END] = bytes.last_chunk()?;
    let (length, magic) = end.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    (magic == MAGIC).then(|| (bytes.len() - END).checked_sub(length)).flatten()
}

fn seal(key: &Key, columns: &[u8], footer: &[u8]) -> [u8; SEAL] {
    let mut hasher = XxHash3_128::new();
    hasher.write(key.to_string().as_bytes());
    hasher.write(columns);
    hasher.write(footer);
    hasher.finish_128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{About, of_job, to_rows};
    use nigh_sim::{Row, TraceSummary};

    fn table(key: &Key) -> (RecordBatch, Vec<Row>) {
        let row = Row {
            policy: "lru".to_owned(),
            size_blocks: 10,
            size_bytes: 40_960,
            references: 100,
            hits: 40,
            misses: 60,
            hit_ratio: 0.4,
            miss_ratio: 0.6,
            writes: 0,
            write_hits: 0,
            read_hit_ratio: Some(0.4),
            write_hit_ratio: None,
            bytes_missed: 60 * 4096,
            evictions: Some(50),
            cpu_s: None,
            references_per_s: None,
            error: None,
            ghosts: Some(0),
            prefetch_issued: None,
            prefetch_used: None,
        };
        let rows = vec![row.clone(), Row { policy: "opt".to_owned(), evictions: None, error: Some(0.01), ..row }];
        let trace = TraceSummary {
            name: "x.csv".to_owned(),
            format: "csv".to_owned(),
            requests: 100,
            reads: 100,
            writes: 0,
            bytes: 409_600,
            references: 100,
            distinct_blocks: 60,
            block_bytes: 4096,
            duration_s: Some(1.5),
            sample: None,
        };
        let about = About { job: "{}".to_owned(), trace, notes: vec!["a note".to_owned()] };
        (of_job(&about, key, &rows), rows)
    }

    #[test]
    fn what_is_written_is_read() {
        let key = Key::parse("0123456789abcdef0123456789abcdef").unwrap();
        let (table, rows) = table(&key);
        let bytes = encode(&key, &table);
        assert_eq!(encode(&key, &table), bytes);
        let read = decode(&key, bytes.clone()).unwrap();
        assert_eq!(read, table);
        assert_eq!(to_rows(&read), Some(rows));
        let about = About::of(&read).unwrap();
        assert_eq!((about.trace.name.as_str(), about.notes.as_slice()), ("x.csv", &["a note".to_owned()][..]));
        // As any other reader of Parquet sees it, without the hash.
        let plain = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
        assert_eq!(plain.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2);
    }

    #[test]
    fn every_damage_is_noticed() {
        let key = Key::parse("0123456789abcdef0123456789abcdef").unwrap();
        let other = Key::parse("1123456789abcdef0123456789abcdef").unwrap();
        let whole = encode(&key, &table(&key).0);
        assert!(decode(&other, whole.clone()).is_none());
        for length in 0..whole.len() {
            assert!(decode(&key, whole[..length].to_vec()).is_none(), "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(decode(&key, damaged).is_none(), "byte {at}");
        }
    }
}
