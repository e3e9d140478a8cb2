//! Binary records described by [`Columns`]: of equal length, little-endian unless the type of a column ends in `be`,
//! after a header of any length.

use crate::columns::{Columns, Frame, LENGTH, OFFSET, OP, Place, ROLES, TIME};
use crate::error::Bad;
use crate::input::Input;
use crate::records::{Binary, Strides};
use crate::skip::Bounds;
use crate::text::EXTENT;
use crate::units::{self, Row, Stamp, Units};
use crate::{Error, Note, Op, Request, Requests, Result};

/// The size of the sample from which missing settings are detected.
const SAMPLE_BYTES: usize = 64 << 10;

struct Decoder {
    stride: usize,
    /// The place of the number of each role.
    places: [Option<Place>; ROLES],
    /// The numbers of the operations.
    ops: Vec<(u64, Op)>,
    units: Units,
    notes: Vec<Note>,
    block_bytes: u32,
}

/// The records of `input`, which is at its beginning; `columns` describe the records as `frame`.
pub(crate) fn reader(
    mut input: Input,
    columns: &Columns,
    frame: Frame,
    block_bytes: u32,
    bounds: Bounds,
) -> Result<Box<dyn Requests + Send>> {
    if !input.fill_to(frame.header_bytes)? {
        return Err(Error::Empty { path: input.path().to_owned() });
    }
    input.consume(frame.header_bytes);
    input.fill_to(SAMPLE_BYTES)?;
    let mut places = [None; ROLES];
    for (place, column) in places.iter_mut().zip(columns.columns()) {
        if let Some(crate::columns::Column::Bytes(at)) = column {
            *place = Some(*at);
        }
    }
    let ops = columns.words.iter().filter_map(|(word, op)| Some((word.parse().ok()?, *op))).collect();
    let mut decoder =
        Decoder { stride: frame.record_bytes, places, ops, units: Units::OWN, notes: Vec::new(), block_bytes };
    let records = input.data().chunks_exact(frame.record_bytes).take(units::ROWS);
    let rows: Vec<Row> = records.map(|record| decoder.row(record)).collect();
    (decoder.units, decoder.notes) =
        units::find(columns.stated, &rows, block_bytes).map_err(|unknown| unknown.of(input.path()))?;
    Ok(Box::new(Binary::new(input, decoder, bounds)))
}

/// A number of a record.
#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    Float(f64),
}

impl Place {
    /// The number here; `None` if the record is too short.
    fn number(self, record: &[u8]) -> Option<Number> {
        let field = record.get(self.at..self.at.checked_add(self.bytes)?)?;
        let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let whole = if self.is_big_endian { field.iter().fold(0, append) } else { field.iter().rev().fold(0, append) };
        Some(match (self.is_float, self.bytes) {
            (false, _) => Number::Whole(whole),
            (true, 4) => Number::Float(f32::from_bits(u32::try_from(whole).ok()?).into()),
            (true, _) => Number::Float(f64::from_bits(whole)),
        })
    }

    /// The whole number here.
    fn whole(self, record: &[u8]) -> Option<u64> {
        match self.number(record)? {
            Number::Whole(whole) => Some(whole),
            Number::Float(_) => None,
        }
    }
}

impl Decoder {
    fn place(&self, role: usize) -> Option<Place> {
        self.places.get(role).copied().flatten()
    }

    fn whole(&self, role: usize, record: &[u8]) -> Option<u64> {
        self.place(role)?.whole(record)
    }

    fn row(&self, record: &[u8]) -> Row {
        let time = self.place(TIME).and_then(|place| place.number(record)).map(|number| match number {
            Number::Whole(whole) => Stamp::Whole(whole),
            Number::Float(float) => Stamp::Fraction(float as u64),
        });
        Row { time, offset: self.whole(OFFSET, record), length: self.whole(LENGTH, record) }
    }

    fn time_ns(&self, record: &[u8]) -> Option<u64> {
        let unit_ns = self.units.time_ns.unwrap_or(1);
        match self.place(TIME).map(|place| place.number(record)) {
            None => Some(0),
            Some(Some(Number::Whole(whole))) => whole.checked_mul(unit_ns),
            Some(Some(Number::Float(float))) => {
                let ns = float * unit_ns as f64;
                (ns >= 0.0 && ns < u64::MAX as f64).then_some(ns as u64)
            }
            Some(None) => None,
        }
    }
}

impl Strides for Decoder {
    fn stride(&self) -> usize {
        self.stride
    }

    fn request(&self, record: &[u8]) -> Result<Option<Request>, Bad> {
        let bad = |found: String, expected| Bad { found, expected };
        let op = match self.whole(OP, record) {
            None => Op::Read,
            Some(number) => match self.ops.iter().find(|(known, _)| *known == number) {
                Some(&(_, op)) => op,
                None => {
                    return Err(bad(
                        format!("operation {number}"),
                        "one of the numbers that the columns give for operations",
                    ));
                }
            },
        };
        let time_ns = self
            .time_ns(record)
            .ok_or_else(|| bad("a later or negative time".to_owned(), "a time from 0 to 2^64 ns"))?;
        let narrow = |role| {
            let number = self.whole(role, record).unwrap_or(0);
            u32::try_from(number).map_err(|_| bad(format!("number {number}"), "tenants and volumes below 2^32"))
        };
        let [.., tenant, stream, volume, latency, content] = std::array::from_fn::<usize, ROLES, _>(|role| role);
        let request = Request {
            time_ns,
            op,
            tenant: narrow(tenant)?,
            volume: narrow(volume)?,
            stream: self.whole(stream, record).unwrap_or(0),
            latency_ns: self.whole(latency, record).unwrap_or(0).saturating_mul(self.units.latency_ns),
            content: self.whole(content, record).unwrap_or(0),
            ..Request::default()
        };
        if op == Op::Flush {
            return Ok(Some(request));
        }
        let first = self.whole(OFFSET, record).unwrap_or(0);
        let count = self.whole(LENGTH, record);
        let extent = || {
            let offset = first.checked_mul(self.units.offset_bytes)?;
            let length = count.map_or(Some(self.block_bytes), |count| {
                u32::try_from(count.checked_mul(self.units.length_bytes)?).ok()
            })?;
            offset.checked_add(length.into())?;
            Some((offset, length))
        };
        let found = || format!("offset {first} and length {}", count.unwrap_or(self.block_bytes.into()));
        let (offset, length) = extent().ok_or_else(|| bad(found(), EXTENT))?;
        Ok(Some(Request { offset, length, ..request }))
    }

    fn notes(&self) -> Vec<Note> {
        self.notes.clone()
    }
}
