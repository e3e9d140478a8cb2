//! The names in a recording: which code a stream is, in which program, and which file a volume is.

use std::collections::HashMap;

use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::reader::FileReader;

use super::Problem;
use super::pages::CheckedPages;
use super::read::{BATCH, ParquetReader, check_chunk, read_values};
use super::recorder::About;
use crate::{Error, Field, Op, Request};

/// The most streams, and the most volumes, of which the names are kept.
const MOST: usize = 1 << 20;

/// What streams and volumes are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The code of each stream, as it was first seen.
    pub codes: HashMap<u64, Code>,
    /// The path of each volume.
    pub files: HashMap<u32, String>,
    /// The program, if the recording is complete.
    pub about: Option<About>,
}

/// A piece of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The program that runs it.
    pub program: String,
    /// Its return addresses, innermost first: `module+0xoffset`, separated by `;`.
    pub stack: String,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that devices read for its calls.
    pub device_bytes: u64,
}

const COLUMNS: [&str; 3] = ["program", "stack", "path"];
const DEVICE_BYTES: &str = "device_bytes";

/// One of these columns, in the row group that is being read.
struct Texts {
    reader: ColumnReaderImpl<ByteArrayType>,
    values: Vec<ByteArray>,
}

impl ParquetReader {
    /// The names in the file; `None` if it is no recording of programs or disks.
    pub fn names(mut self) -> crate::Result<Option<Names>> {
        self.read_names().map_err(|problem| Error::Parquet { path: self.path.clone(), problem })
    }

    fn read_names(&mut self) -> Result<Option<Names>, Problem> {
        let metadata = self.file.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let leaf_of = |name: &str, kind: Physical| {
            (0..schema.num_columns()).find(|&leaf| {
                let column = schema.column(leaf);
                let is_flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
                is_flat && column.physical_type() == kind && column.name() == name
            })
        };
        let texts_of = |name| leaf_of(name, Physical::BYTE_ARRAY);
        let [Some(program), Some(stack), Some(path)] = COLUMNS.map(texts_of) else { return Ok(None) };
        let leaves = [program, stack, path];
        // Older recordings do not have it.
        let device = leaf_of(DEVICE_BYTES, Physical::INT32);
        for group in metadata.row_groups() {
            leaves
                .iter()
                .chain(&device)
                .try_for_each(|&leaf| check_chunk(group.column(leaf), group.num_rows(), self.whole_bytes))?;
        }
        self.columns.retain(|column| matches!(column.field, Field::Volume | Field::Stream | Field::Op | Field::Length));
        let pairs = self.file.metadata().file_metadata().key_value_metadata();
        let value = |key: &str| pairs.into_iter().flatten().find(|pair| pair.key == key)?.value.clone();
        let mut names = Names { about: About::read(value), ..Names::default() };
        let (mut batch, mut levels) = (Vec::new(), Vec::new());
        for group in 0..self.file.metadata().num_row_groups() {
            let mut texts = Vec::new();
            for leaf in leaves {
                let group = self.file.get_row_group(group)?;
                let descriptor = group.metadata().column(leaf).column_descr_ptr();
                let checked = Box::new(CheckedPages::new(group.get_column_page_reader(leaf)?, &descriptor));
                texts.push(Texts { reader: ColumnReaderImpl::new(descriptor, checked), values: Vec::new() });
            }
            let mut device = match device {
                Some(leaf) => {
                    let group = self.file.get_row_group(group)?;
                    let descriptor = group.metadata().column(leaf).column_descr_ptr();
                    let checked = Box::new(CheckedPages::new(group.get_column_page_reader(leaf)?, &descriptor));
                    Some(ColumnReaderImpl::<Int32Type>::new(descriptor, checked))
                }
                None => None,
            };
            let mut device_bytes = Vec::new();
            self.open_group()?;
            while self.left_in_group > 0 {
                let rows = self.left_in_group.min(BATCH);
                batch.clear();
                let mut no_requests = Vec::new();
                batch.resize(rows as usize, Request::default());
                for chunk in &mut self.chunks {
                    chunk.fill(&mut batch, self.rows_read, &mut no_requests)?;
                }
                for (column, Texts { reader, values }) in COLUMNS.into_iter().zip(&mut texts) {
                    read_values(reader, batch.len(), &mut levels, values, column)?;
                }
                if let Some(reader) = &mut device {
                    read_values(reader, batch.len(), &mut levels, &mut device_bytes, DEVICE_BYTES)?;
                }
                self.left_in_group -= rows;
                self.rows_read += rows;
                let [programs, stacks, paths] = &texts[..] else { return Ok(None) };
                for (row, request) in batch.iter().enumerate() {
                    if names.codes.len() < MOST && !names.codes.contains_key(&request.stream) {
                        let (program, stack) = (text(&programs.values, row), text(&stacks.values, row));
                        names.codes.insert(request.stream, Code { program, stack, ..Code::default() });
                    }
                    if let Some(code) = names.codes.get_mut(&request.stream)
                        && request.op == Op::Read
                        && no_requests.binary_search(&row).is_err()
                    {
                        code.read_bytes += u64::from(request.length);
                        code.device_bytes += device_bytes.get(row).map_or(0, |&bytes| u64::from(bytes as u32));
                    }
                    if names.files.len() < MOST && !names.files.contains_key(&request.volume) {
                        names.files.insert(request.volume, text(&paths.values, row));
                    }
                }
            }
        }
        Ok(Some(names))
    }
}

fn text(values: &[ByteArray], row: usize) -> String {
    values.get(row).map_or_else(String::new, |value| String::from_utf8_lossy(value.data()).into_owned())
}
