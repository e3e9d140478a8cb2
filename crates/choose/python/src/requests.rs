//! Requests as Arrow tables, in the columns of nigh's own form.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use nigh_trace::{Field, Op, Request};

/// The requests as a table.
pub(crate) fn table(requests: &[Request]) -> RecordBatch {
    let u64s = |of: fn(&Request) -> u64| Arc::new(UInt64Array::from_iter_values(requests.iter().map(of))) as ArrayRef;
    let u32s = |of: fn(&Request) -> u32| Arc::new(UInt32Array::from_iter_values(requests.iter().map(of))) as ArrayRef;
    let column = |field: Field| -> ArrayRef {
        match field {
            Field::Time => u64s(|request| request.time_ns),
            Field::Op => {
                let keys = Int8Array::from_iter_values(requests.iter().map(|request| request.op as i8));
                let words = StringArray::from_iter_values(Op::ALL.map(Op::name));
                Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(words)))
            }
            Field::Volume => u32s(|request| request.volume),
            Field::Offset => u64s(|request| request.offset),
            Field::Length => u32s(|request| request.length),
            Field::Tenant => u32s(|request| request.tenant),
            Field::Stream => u64s(|request| request.stream),
            Field::Latency => u64s(|request| request.latency_ns),
            Field::Content => u64s(|request| request.content),
        }
    };
    let columns = Field::ALL.map(|field| (field.name(), column(field), false));
    RecordBatch::try_from_iter_with_nullable(columns).expect("the columns are equally long")
}
