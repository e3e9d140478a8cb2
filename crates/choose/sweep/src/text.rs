//! The tables of jobs as CSV and as JSON (docs/json.md).

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::About;

/// The version of the JSON.
const SCHEMA: u32 = 1;

/// The rows of the tables, under a line with the names of the columns.
pub fn csv(tables: &[RecordBatch]) -> String {
    let Some(first) = tables.first() else { return String::new() };
    let write = || {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(first.schema_ref().fields().iter().map(|field| field.name()))?;
        for table in tables {
            for at in 0..table.num_rows() {
                let row: Vec<Value<'_>> = table.columns().iter().map(|column| value(column, at)).collect();
                writer.serialize(row)?;
            }
        }
        writer.into_inner().map_err(csv::IntoInnerError::into_error).map_err(csv::Error::from)
    };
    let bytes = write().expect("a vector takes all bytes, and the tables have the same columns");
    String::from_utf8(bytes).expect("text and numbers are UTF-8")
}

/// The rows of the tables, the notes on them, and the traces whose jobs failed with the reasons.
pub fn json(tables: &[RecordBatch], errors: &[(String, String)]) -> String {
    let rows = tables.iter().flat_map(|table| (0..table.num_rows()).map(move |at| Row { table, at }));
    let abouts: Vec<About> = tables.iter().filter_map(About::of).collect();
    let notes = abouts
        .iter()
        .flat_map(|about| about.notes.iter().map(|note| Note { trace: about.trace.name.clone(), note: note.clone() }));
    let errors = errors.iter().map(|(trace, error)| Failure { trace, error });
    let whole = Whole { schema: SCHEMA, results: rows.collect(), notes: notes.collect(), errors: errors.collect() };
    serde_json::to_string(&whole).expect("text and numbers are JSON") + "\n"
}

#[derive(Serialize)]
struct Whole<'a> {
    schema: u32,
    results: Vec<Row<'a>>,
    notes: Vec<Note>,
    errors: Vec<Failure<'a>>,
}

#[derive(Serialize)]
struct Note {
    trace: String,
    note: String,
}

#[derive(Serialize)]
struct Failure<'a> {
    trace: &'a str,
    error: &'a str,
}

struct Row<'a> {
    table: &'a RecordBatch,
    at: usize,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.table.num_columns()))?;
        for (field, column) in self.table.schema_ref().fields().iter().zip(self.table.columns()) {
            map.serialize_entry(field.name(), &value(column, self.at))?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Null,
    Count(u64),
    Real(f64),
    Text(&'a str),
}

fn value(column: &ArrayRef, at: usize) -> Value<'_> {
    match column.data_type() {
        _ if column.is_null(at) => Value::Null,
        DataType::UInt64 => Value::Count(column.as_primitive::<UInt64Type>().value(at)),
        DataType::UInt32 => Value::Count(column.as_primitive::<UInt32Type>().value(at).into()),
        DataType::Float64 => Value::Real(column.as_primitive::<Float64Type>().value(at)),
        DataType::Utf8 => Value::Text(column.as_string::<i32>().value(at)),
        other => unreachable!("no column of a job's table has values of the type {other}"),
    }
}
