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
    let names: Vec<&str> = first.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    let mut text = names.join(",") + "\n";
    for table in tables {
        for at in 0..table.num_rows() {
            let cells: Vec<String> = table.columns().iter().map(|column| cell(column, at)).collect();
            text.push_str(&(cells.join(",") + "\n"));
        }
    }
    text
}

fn cell(column: &ArrayRef, at: usize) -> String {
    match value(column, at) {
        Value::Null => String::new(),
        Value::Count(count) => count.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) if text.contains([',', '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::Text(text) => text.to_owned(),
    }
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
        _ => Value::Null,
    }
}
