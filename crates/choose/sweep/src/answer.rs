//! The table of a job, and back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use nigh_sim::{Row, TraceSummary};
use serde::{Deserialize, Serialize};

use crate::Key;
use crate::table::of_rows;

/// The key of the metadata of a job's table: [`About`] as JSON.
pub(crate) const METADATA: &str = "nigh";

/// Description of a job beside its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// All that the rows depend on, as JSON.
    pub job: String,
    /// The trace.
    pub trace: TraceSummary,
    /// Remarks on the figures.
    pub notes: Vec<String>,
}

/// The rows of one job: those of [`of_rows`] with the columns `trace` in front and `key` behind, and [`About`] as metadata.
pub(crate) fn of_job(about: &About, key: &Key, rows: &[Row]) -> RecordBatch {
    let of_rows = of_rows(rows);
    let (schema, columns, count) = of_rows.into_parts();
    let text = |text: &str| Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, count))) as ArrayRef;
    let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8, false));
    let fields = [field("trace")].into_iter().chain(schema.fields().iter().cloned()).chain([field("key")]);
    let columns = [text(&about.trace.name)].into_iter().chain(columns).chain([text(&key.to_string())]);
    let about = serde_json::to_string(about).expect("text and numbers are JSON");
    // One entry: the order of several would be random.
    let metadata = HashMap::from([(METADATA.to_owned(), about)]);
    let schema = Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata);
    RecordBatch::try_new(Arc::new(schema), columns.collect())
        .expect("the columns are as long and of the types of the schema")
}

impl About {
    /// The description beside the rows of a job's `table`, if it is one.
    pub fn of(table: &RecordBatch) -> Option<About> {
        serde_json::from_str(table.schema_ref().metadata().get(METADATA)?).ok()
    }
}

/// The rows of a job's `table`, if it is one.
pub fn to_rows(table: &RecordBatch) -> Option<Vec<Row>> {
    let count = |name: &str| table.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
    let real = |name: &str| table.column_by_name(name)?.as_primitive_opt::<Float64Type>();
    let policies = table.column_by_name("policy")?.as_string_opt::<i32>()?;
    let (size_blocks, size_bytes) = (count("size_blocks")?, count("size_bytes")?);
    let (references, hits, misses) = (count("references")?, count("hits")?, count("misses")?);
    let (hit_ratio, miss_ratio) = (real("hit_ratio")?, real("miss_ratio")?);
    let (writes, write_hits) = (count("writes")?, count("write_hits")?);
    let (read_hit_ratio, write_hit_ratio) = (real("read_hit_ratio")?, real("write_hit_ratio")?);
    let (bytes_missed, evictions, error) = (count("bytes_missed")?, count("evictions")?, real("error")?);
    let ghosts = table.column_by_name("ghosts")?.as_primitive_opt::<UInt32Type>()?;
    let row = |at: usize| Row {
        policy: policies.value(at).to_owned(),
        size_blocks: size_blocks.value(at),
        size_bytes: size_bytes.value(at),
        references: references.value(at),
        hits: hits.value(at),
        misses: misses.value(at),
        hit_ratio: hit_ratio.value(at),
        miss_ratio: miss_ratio.value(at),
        writes: writes.value(at),
        write_hits: write_hits.value(at),
        read_hit_ratio: read_hit_ratio.is_valid(at).then(|| read_hit_ratio.value(at)),
        write_hit_ratio: write_hit_ratio.is_valid(at).then(|| write_hit_ratio.value(at)),
        bytes_missed: bytes_missed.value(at),
        evictions: evictions.is_valid(at).then(|| evictions.value(at)),
        cpu_s: None,
        references_per_s: None,
        error: error.is_valid(at).then(|| error.value(at)),
        ghosts: ghosts.is_valid(at).then(|| ghosts.value(at)),
        prefetch_issued: None,
        prefetch_used: None,
    };
    Some((0..table.num_rows()).map(row).collect())
}
