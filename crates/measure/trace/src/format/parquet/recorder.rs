//! A recording: the canonical form with the columns that only nigh's own recorders know.
//!
//! | column | type | contents |
//! |---|---|---|
//! | `program` | string | the program's name |
//! | `path` | string | the file, disk or export with the number `volume`, when it was first seen |
//! | `tid` | uint32 | the thread; `tenant` is the process |
//! | `asked` | uint32, bytes | the length asked for; `length` is what was transferred |
//! | `result` | int64 | what the call returned, or -errno |
//! | `ra0`, `pc5`, `pc8`, `pc16` | uint64 | identities of the issuing code, over 1, 5, 8 and 16 return addresses |
//! | `depth` | uint32, bytes | the depth of the stack |
//! | `stack` | string | the return addresses, innermost first: `libc.so.6+0x1c2f4;program+0x51a0` |
//! | `device_bytes` | uint32, bytes | what devices read for the thread, read-ahead included, since its last call that waited for one |
//!
//! Values that the recorder does not know are 0 or empty.
//!
//! A recording grows under the name `FILE.part`. Each row group is followed by a footer for all groups so far, so that
//! whatever ends the recorder, the file is complete up to some checkpoint; a reader ignores what follows the last footer.

// There is no parsing here, and `push` checks the numbers of its rows.
#![allow(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_output::{Destination, Draft};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::groups::Groups;
use super::prefix::is_without_rows;
use super::write::{COLUMNS, io_error, pairs, properties, write_column, write_fields};
use super::{FAULT, LEFT_OUT};
use crate::{Error, Gaps, Op, Request, Result, Taken};

const MORE_COLUMNS: &str = "
    required binary program (STRING);
    required binary path (STRING);
    required int32 tid (INTEGER(32, false));
    required int32 asked (INTEGER(32, false));
    required int64 result (INTEGER(64, true));
    required int64 ra0 (INTEGER(64, false));
    required int64 pc5 (INTEGER(64, false));
    required int64 pc8 (INTEGER(64, false));
    required int64 pc16 (INTEGER(64, false));
    required int32 depth (INTEGER(32, false));
    required binary stack (STRING);
    required int32 device_bytes (INTEGER(32, false));
";

const PROGRAM_KEY: &str = "nigh.program";
const DEVICE_BYTES_KEY: &str = "nigh.device_bytes";
const MODULES_KEY: &str = "nigh.modules";

/// The most rows of a row group: about 24 MiB until it is full.
const GROUP_ROWS: usize = 1 << 18;

/// Programs with thousands of call stacks need a larger dictionary than the default of 1 MiB.
const STACKS_BYTES: usize = 8 << 20;

/// Effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// The operation of the request.
    Request(Op),
    /// A page of a mapping was touched and not accessible yet (a page fault). It is replayed as a read.
    Fault,
    /// It mapped `length` bytes from `offset` on. Accesses through the mapping are not recorded.
    Map,
    /// It announced its reads to the kernel (`posix_fadvise`).
    Advise,
}

impl Did {
    fn word(self) -> &'static str {
        let [map, advise] = LEFT_OUT;
        match self {
            Did::Request(op) => op.name(),
            Did::Fault => FAULT,
            Did::Map => map,
            Did::Advise => advise,
        }
    }
}

/// The code that issued a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The identities over 1, 5, 8 and 16 return addresses.
    pub pcs: [u64; 4],
    /// Bytes of stack.
    pub depth: u32,
    /// The return addresses, innermost first: `module+0xoffset`, separated by `;`.
    pub stack: String,
}

/// One recorded call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The request that `nigh sim` replays. Its volume is a number of [`Recorder::file`]. Its `op` does not count unless `did` is a
    /// request.
    pub request: Request,
    /// Effect of the call.
    pub did: Did,
    /// The number of the program, from [`Recorder::program`].
    pub program: u32,
    /// The number of the issuing code, from [`Recorder::context`].
    pub context: u32,
    /// The thread.
    pub tid: u32,
    /// The length that was asked for, in bytes.
    pub asked: u32,
    /// Result of the call, or -errno.
    pub result: i64,
    /// Bytes that devices read for it.
    pub device_bytes: u32,
}

/// The program of a recording, for a profile of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its path.
    pub program: String,
    /// Bytes that devices read for it and its children, programs and libraries included.
    pub device_bytes: u64,
    /// The paths of programs and libraries whose code called, and their build ids.
    pub modules: Vec<(String, String)>,
}

impl About {
    fn pairs(&self) -> [(&'static str, String); 3] {
        let modules: Vec<String> = self.modules.iter().map(|(path, id)| format!("{id} {path}")).collect();
        [
            (PROGRAM_KEY, self.program.clone()),
            (DEVICE_BYTES_KEY, self.device_bytes.to_string()),
            (MODULES_KEY, modules.join("\n")),
        ]
    }

    /// Reads the metadata of a file; `None` if it has none.
    pub(super) fn read(value: impl Fn(&str) -> Option<String>) -> Option<About> {
        let modules = value(MODULES_KEY)?;
        let modules = modules.lines().filter_map(|line| line.split_once(' '));
        Some(About {
            program: value(PROGRAM_KEY)?,
            device_bytes: value(DEVICE_BYTES_KEY)?.parse().ok()?,
            modules: modules.map(|(id, path)| (path.to_owned(), id.to_owned())).collect(),
        })
    }
}

/// Writes a recording. Dropped before [`Recorder::finish`], it leaves `FILE.part`, which can be read.
pub struct Recorder {
    path: PathBuf,
    draft: Draft,
    writer: SerializedFileWriter<File>,
    /// Since the last full group.
    rows: Vec<Call>,
    groups: Groups,
    /// The end of the last footer.
    whole_bytes: u64,
    programs: Names,
    files: Vec<ByteArray>,
    contexts: Vec<Context>,
    stacks: Vec<ByteArray>,
    about: Option<About>,
    gaps: Gaps,
    /// Whether the last footer has other gaps.
    is_stale: bool,
}

/// Distinct names, numbered from 0.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<ByteArray>,
}

impl Recorder {
    /// Begins a recording, with the block size that `nigh sim` shall use.
    pub fn create(to: &Destination, taken: Taken, block_bytes: u32) -> Result<Recorder> {
        let path = to.path().to_owned();
        let draft = to.grow(is_without_rows)?;
        let file = draft.file().ok_or_else(|| nigh_output::Error::NotRegular(path.clone()))?;
        let begin = || -> io::Result<_> {
            let file = file.try_clone()?;
            let text = format!("message recording {{ {COLUMNS} {MORE_COLUMNS} }}");
            let schema = Arc::new(parse_message_type(&text).map_err(io_error)?);
            let properties = properties(block_bytes, Some(taken)).map_err(io_error)?;
            let properties = properties
                .set_column_dictionary_page_size_limit(ColumnPath::from("stack"), STACKS_BYTES)
                .set_offset_index_disabled(true)
                .build();
            SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(io_error)
        };
        let writer = begin().map_err(|source| Error::Io { path: path.clone(), source })?;
        let mut recorder = Recorder {
            path,
            draft,
            writer,
            rows: Vec::new(),
            groups: Groups::default(),
            whole_bytes: 0,
            programs: Names::default(),
            files: Vec::new(),
            contexts: Vec::new(),
            stacks: Vec::new(),
            about: None,
            gaps: Gaps::default(),
            is_stale: false,
        };
        recorder.footer().map_err(|source| recorder.io(source))?;
        Ok(recorder)
    }

    /// The new name of another recording that was found at `FILE.part`.
    pub fn set_aside(&self) -> Option<&Path> {
        self.draft.set_aside()
    }

    /// The number of the program called `name`.
    pub fn program(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.programs.numbers.get(name) {
            return number;
        }
        let number = self.programs.names.len() as u32;
        self.programs.numbers.insert(name.to_owned(), number);
        self.programs.names.push(ByteArray::from(name));
        number
    }

    /// The number of one more file: the `volume` of its requests.
    pub fn file(&mut self, path: &str) -> u32 {
        self.files.push(ByteArray::from(path));
        (self.files.len() - 1) as u32
    }

    /// The number of one more issuing code.
    pub fn context(&mut self, context: Context) -> u32 {
        self.stacks.push(ByteArray::from(&context.stack[..]));
        self.contexts.push(context);
        (self.contexts.len() - 1) as u32
    }

    /// Appends `call`.
    ///
    /// # Panics
    ///
    /// If its program, context or volume has no such number.
    pub fn push(&mut self, call: Call) -> Result<()> {
        let known = |number: u32, count: usize| (number as usize) < count;
        assert!(known(call.program, self.programs.names.len()), "program {} is numbered", call.program);
        assert!(known(call.context, self.contexts.len()), "context {} is numbered", call.context);
        assert!(known(call.request.volume, self.files.len()), "file {} is numbered", call.request.volume);
        self.rows.push(call);
        if self.rows.len() == GROUP_ROWS { self.checkpoint() } else { Ok(()) }
    }

    /// Completes the file up to here: what was pushed can be read whatever happens next, unless the machine loses
    /// power.
    pub fn checkpoint(&mut self) -> Result<()> {
        let is_grown = self.rows.len() > self.groups.rows_small();
        let written = if is_grown { self.write_group().map_err(io_error) } else { Ok(()) };
        let footer = |()| if is_grown || self.is_stale { self.footer() } else { Ok(()) };
        written.and_then(footer).map_err(|source| self.io(source))
    }

    /// Says which program was recorded, in footers from now on.
    pub fn describe(&mut self, about: About) -> Result<()> {
        self.about = Some(about);
        self.footer().map_err(|source| self.io(source))
    }

    /// Sets what is missing up to here, for footers from now on.
    pub fn set_gaps(&mut self, gaps: Gaps) {
        self.is_stale |= self.gaps != gaps;
        self.gaps = gaps;
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Calls that were pushed.
    pub fn calls(&self) -> u64 {
        self.groups.rows_full() + self.rows.len() as u64
    }

    /// Files that were numbered.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Completes the file, makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<()> {
        self.checkpoint()?;
        self.keep()
    }

    /// After an error: drops what was pushed since the last complete footer, keeps the rest under the file's name, and
    /// returns the number of calls in it.
    pub fn salvage(self) -> Result<u64> {
        let calls = self.groups.rows_whole();
        self.keep()?;
        Ok(calls)
    }

    /// Removes the file: nothing was recorded that is worth keeping.
    pub fn discard(self) -> Result<()> {
        Ok(self.draft.discard()?)
    }

    fn keep(self) -> Result<()> {
        let Recorder { path, draft, writer, whole_bytes, .. } = self;
        // Its buffer may hold the beginning of a group that there was no room for, and goes to the file when dropped.
        drop(writer);
        let cut = draft.file().map_or(Ok(()), |file| file.set_len(whole_bytes));
        cut.map_err(|source| Error::Io { path, source })?;
        Ok(draft.commit()?)
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let (programs, files, stacks) = (&self.programs.names, &self.files, &self.stacks);
        let context = |row: &Call| &self.contexts[row.context as usize];
        let words = |row: &Call| ByteArray::from(row.did.word());
        let rows = &self.rows[self.groups.begin(self.rows.len())..];
        let mut group = self.writer.next_row_group()?;
        write_fields(&mut group, rows, |row| &row.request, words)?;
        write_column::<ByteArrayType, _, _>(&mut group, rows, |row| programs[row.program as usize].clone())?;
        write_column::<ByteArrayType, _, _>(&mut group, rows, |row| files[row.request.volume as usize].clone())?;
        write_column::<Int32Type, _, _>(&mut group, rows, |row| row.tid as i32)?;
        write_column::<Int32Type, _, _>(&mut group, rows, |row| row.asked as i32)?;
        write_column::<Int64Type, _, _>(&mut group, rows, |row| row.result)?;
        for depth in 0..4 {
            write_column::<Int64Type, _, _>(&mut group, rows, |row| context(row).pcs[depth] as i64)?;
        }
        write_column::<Int32Type, _, _>(&mut group, rows, |row| context(row).depth as i32)?;
        write_column::<ByteArrayType, _, _>(&mut group, rows, |row| stacks[row.context as usize].clone())?;
        write_column::<Int32Type, _, _>(&mut group, rows, |row| row.device_bytes as i32)?;
        let is_full = rows.len() == GROUP_ROWS;
        self.groups.add(rows.len(), group.close()?, is_full);
        if is_full {
            self.rows.clear();
        }
        Ok(())
    }

    /// Writes a footer for the groups so far.
    fn footer(&mut self) -> io::Result<()> {
        let about = self.about.iter().flat_map(About::pairs).chain(self.gaps.pairs());
        self.groups.write_footer(&mut self.writer, pairs(about)).map_err(io_error)?;
        self.is_stale = false;
        self.whole_bytes = self.writer.bytes_written() as u64;
        Ok(())
    }
}
