//! The names in a recording: which code a stream is, in which program, and which file a volume is.

use std::collections::HashMap;

use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type};
use parquet::file::reader::FileReader;

use super::Problem;
use super::pages::CheckedPages;
use super::read::{BATCH, ParquetReader, check_chunk, read_values};
use super::recorder::About;
use crate::{Error, Field, Note, Op, Request, Requests};

/// The most streams, and the most volumes, of which the names are kept.
const MOST: usize = 1 << 20;

/// Names of streams and volumes.
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
const PROGRAM_AND_PATH: [&str; 2] = ["program", "path"];
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

    /// The program of a complete recording.
    pub fn about(&self) -> Option<About> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata();
        About::read(|key| pairs.into_iter().flatten().find(|pair| pair.key == key)?.value.clone())
    }

    /// The requests with their programs; `None` if the file is no recording of programs or disks.
    pub fn by_program(self) -> crate::Result<Option<ByProgram>> {
        match self.text_leaves(PROGRAM_AND_PATH) {
            Ok(leaves) => Ok(leaves.map(|leaves| ByProgram {
                reader: self,
                leaves,
                texts: Vec::new(),
                numbers: HashMap::new(),
                programs: Vec::new(),
                files: HashMap::new(),
            })),
            Err(problem) => Err(Error::Parquet { path: self.path, problem }),
        }
    }

    /// The column of this name and type, if there is one.
    fn leaf(&self, name: &str, kind: Physical) -> Result<Option<usize>, Problem> {
        let metadata = self.file.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let leaf = (0..schema.num_columns()).find(|&leaf| {
            let column = schema.column(leaf);
            let is_flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
            is_flat && column.physical_type() == kind && column.name() == name
        });
        for group in metadata.row_groups() {
            leaf.map_or(Ok(()), |leaf| check_chunk(group.column(leaf), group.num_rows(), self.whole_bytes))?;
        }
        Ok(leaf)
    }

    /// The columns of these names, which are text; `None` if one of them is missing.
    fn text_leaves<const N: usize>(&self, names: [&str; N]) -> Result<Option<[usize; N]>, Problem> {
        let mut leaves = [0; N];
        for (found, name) in leaves.iter_mut().zip(names) {
            let Some(leaf) = self.leaf(name, Physical::BYTE_ARRAY)? else { return Ok(None) };
            *found = leaf;
        }
        Ok(Some(leaves))
    }

    /// The values of a column in a row group.
    fn column<T: DataType>(&self, group: usize, leaf: usize) -> Result<ColumnReaderImpl<T>, Problem> {
        let group = self.file.get_row_group(group)?;
        let descriptor = group.metadata().column(leaf).column_descr_ptr();
        let checked = Box::new(CheckedPages::new(group.get_column_page_reader(leaf)?, &descriptor));
        Ok(ColumnReaderImpl::new(descriptor, checked))
    }

    fn texts(&self, group: usize, leaves: &[usize]) -> Result<Vec<Texts>, Problem> {
        leaves.iter().map(|&leaf| Ok(Texts { reader: self.column(group, leaf)?, values: Vec::new() })).collect()
    }

    fn read_names(&mut self) -> Result<Option<Names>, Problem> {
        let Some(leaves) = self.text_leaves(COLUMNS)? else { return Ok(None) };
        // Older recordings do not have it.
        let device = self.leaf(DEVICE_BYTES, Physical::INT32)?;
        self.columns.retain(|column| matches!(column.field, Field::Volume | Field::Stream | Field::Op | Field::Length));
        let mut names = Names { about: self.about(), ..Names::default() };
        let (mut batch, mut levels) = (Vec::new(), Vec::new());
        for group in 0..self.file.metadata().num_row_groups() {
            let mut texts = self.texts(group, &leaves)?;
            let mut device = device.map(|leaf| self.column::<Int32Type>(group, leaf)).transpose()?;
            let mut device_bytes = Vec::new();
            self.open_group()?;
            while self.left_in_group > 0 {
                let rows = self.left_in_group.min(BATCH);
                batch.clear();
                let mut no_requests = Vec::new();
                batch.resize(rows as usize, Request::default());
                for chunk in &mut self.chunks {
                    chunk.fill(&mut batch, self.rows_read, &mut no_requests, None)?;
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

/// The requests of a recording. The stream of each is the number of its program, counted from 1.
pub struct ByProgram {
    reader: ParquetReader,
    leaves: [usize; 2],
    /// The programs and paths of the row group that is being read.
    texts: Vec<Texts>,
    numbers: HashMap<Vec<u8>, u64>,
    programs: Vec<String>,
    files: HashMap<u32, String>,
}

impl ByProgram {
    /// The names of the programs so far. Beyond a million of them, all have the number of the last.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// The paths of the volumes so far; of a million at most.
    pub fn files(&self) -> &HashMap<u32, String> {
        &self.files
    }

    fn read(&mut self, batch: &mut Vec<Request>) -> Result<(), Problem> {
        let mut levels = Vec::new();
        // A batch of rows that are no requests is not the end.
        while batch.is_empty() {
            let reader = &mut self.reader;
            while reader.left_in_group == 0 {
                if reader.next_group == reader.file.metadata().num_row_groups() {
                    return Ok(());
                }
                self.texts = reader.texts(reader.next_group, &self.leaves)?;
                reader.open_group()?;
            }
            let rows = reader.left_in_group.min(BATCH) as usize;
            reader.read_rows(batch)?;
            for (column, Texts { reader, values }) in PROGRAM_AND_PATH.into_iter().zip(&mut self.texts) {
                read_values(reader, rows, &mut levels, values, column)?;
            }
            let [programs, paths] = &self.texts[..] else { return Ok(()) };
            let mut left_out = reader.no_requests.iter().copied().peekable();
            let requests = (0..rows).filter(|row| left_out.next_if_eq(row).is_none());
            for (row, request) in requests.zip(batch.iter_mut()) {
                let program = programs.values.get(row).ok_or(Problem::Inconsistent("a column ends early"))?;
                request.stream = match self.numbers.get(program.data()) {
                    Some(&number) => number,
                    None if self.programs.len() < MOST => {
                        self.programs.push(text(&programs.values, row));
                        let number = self.programs.len() as u64;
                        self.numbers.insert(program.data().to_vec(), number);
                        number
                    }
                    None => MOST as u64,
                };
                if self.files.len() < MOST && !self.files.contains_key(&request.volume) {
                    self.files.insert(request.volume, text(&paths.values, row));
                }
            }
        }
        Ok(())
    }
}

impl Requests for ByProgram {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> crate::Result<()> {
        batch.clear();
        self.read(batch).map_err(|problem| {
            batch.clear();
            Error::Parquet { path: self.reader.path.clone(), problem }
        })
    }

    fn progress(&self) -> Option<f64> {
        self.reader.progress()
    }

    fn notes(&self) -> Vec<Note> {
        self.reader.notes()
    }
}

fn text(values: &[ByteArray], row: usize) -> String {
    values.get(row).map_or_else(String::new, |value| String::from_utf8_lossy(value.data()).into_owned())
}
