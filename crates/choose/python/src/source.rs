//! Sources of requests: a file, a file object of Python, columns in memory, or a generator.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_pyarrow::{FromPyArrow, PyArrowType};
use nigh_sim::{Loader, Ops, Options, ReadError, Sample};
use nigh_trace::generate::{Arrivals, Common, Generator};
use nigh_trace::{ReadOptions, Requests};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{Columns, Reader};
use crate::references::References;
use crate::work::{self, Work};
use crate::{error, requests};

/// Requests in a batch of a table.
const TABLE_BATCH: usize = 1 << 20;

/// A source of requests. It can be read again and again.
#[pyclass(frozen, module = "nigh._nigh")]
pub(crate) struct Source {
    /// In errors and tables.
    #[pyo3(get)]
    name: String,
    /// The format, in a word.
    #[pyo3(get)]
    format: String,
    /// Bytes in a block.
    #[pyo3(get)]
    block_bytes: u32,
    kind: Kind,
}

enum Kind {
    File(PathBuf, ReadOptions),
    /// A function that opens a file object.
    Opener(Py<PyAny>, ReadOptions),
    Columns(Arc<Columns>),
    Generated(String, Common),
}

#[pymethods]
impl Source {
    /// The trace in a file.
    #[staticmethod]
    fn file(path: PathBuf, settings: Settings) -> PyResult<Source> {
        let options = settings.options()?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Source::detected(name, Kind::File(path, options))
    }

    /// The trace in the binary file object that `open()` returns each time it is called.
    #[staticmethod]
    fn opener(open: Py<PyAny>, name: String, settings: Settings) -> PyResult<Source> {
        let options = settings.options()?;
        Source::detected(name, Kind::Opener(open, options))
    }

    /// The requests in the columns of an Arrow stream, which are read in place.
    #[staticmethod]
    fn columns(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        name: String,
        block_bytes: u32,
        offset_unit: Option<&str>,
    ) -> PyResult<Source> {
        check_block(block_bytes, &name)?;
        let offset_unit = offset_unit.map(|unit| match unit {
            "bytes" => Ok(1),
            "sectors" => Ok(512),
            "blocks" => Ok(u64::from(block_bytes)),
            unit => {
                Err(PyValueError::new_err(format!("offset_unit='{unit}': expected 'bytes', 'sectors' or 'blocks'")))
            }
        });
        let offset_unit = offset_unit.transpose()?;
        let reader = RecordBatchStreamReader::from_pyarrow_bound(stream)?;
        let columns = py.detach(|| {
            let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(|error| error::value(&error))?;
            Columns::new(&batches, block_bytes, offset_unit).map_err(|problem| error::value(&problem))
        })?;
        Ok(Source { name, format: "arrow".to_owned(), block_bytes, kind: Kind::Columns(columns) })
    }

    /// A note on how columns are read.
    fn note(&self) -> Option<String> {
        match &self.kind {
            Kind::Columns(columns) => columns.note().map(|note| note.to_string()),
            _ => None,
        }
    }

    /// A generated workload.
    #[staticmethod]
    #[pyo3(signature = (spec, *, requests, block_bytes, seed, writes, gap_us, poisson))]
    fn generated(
        spec: String,
        requests: u64,
        block_bytes: u32,
        seed: u64,
        writes: f64,
        gap_us: f64,
        poisson: bool,
    ) -> PyResult<Source> {
        check_block(block_bytes, &spec)?;
        if !(0.0..=1.0).contains(&writes) {
            return Err(PyValueError::new_err(format!("writes={writes}: expected a share from 0 to 1")));
        }
        if !(0.0..=1e12).contains(&gap_us) {
            return Err(PyValueError::new_err(format!("gap_us={gap_us}: expected microseconds from 0 to 1e12")));
        }
        let arrivals = if poisson { Arrivals::Exponential } else { Arrivals::Constant };
        let gap_ns = (gap_us * 1_000.0).round() as u64;
        let common = Common { requests, block_bytes, seed, writes, gap_ns, arrivals };
        Generator::parse(&spec, &common).map_err(|error| error::value(&error))?;
        let kind = Kind::Generated(spec.clone(), common);
        Ok(Source { name: spec, format: "generated".to_owned(), block_bytes, kind })
    }

    /// The first `limit` requests in Arrow batches.
    fn requests<'py>(
        &self,
        py: Python<'py>,
        limit: u64,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<PyArrowType<RecordBatch>>> {
        let batches = work::run(py, progress.as_ref(), |work| {
            let mut source = self.open()?;
            let (mut tables, mut waiting, mut batch) = (Vec::new(), Vec::new(), Vec::new());
            let mut left = limit;
            while left > 0 {
                source.next_batch(&mut batch).map_err(error::of_trace)?;
                batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                if batch.is_empty() {
                    break;
                }
                left -= batch.len() as u64;
                let goes_on = work.did(batch.len());
                waiting.append(&mut batch);
                if waiting.len() >= TABLE_BATCH {
                    tables.push(requests::table(&waiting));
                    waiting.clear();
                }
                if !goes_on {
                    break;
                }
            }
            tables.push(requests::table(&waiting));
            Ok::<_, PyErr>(tables)
        })??;
        Ok(batches.into_iter().map(PyArrowType).collect())
    }

    /// The references, decoded and numbered.
    #[pyo3(signature = (*, ops, collapse, sample, limit, progress))]
    fn load(
        &self,
        py: Python<'_>,
        ops: &str,
        collapse: bool,
        sample: Option<f64>,
        limit: Option<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<References> {
        let ops = ops_of(ops)?;
        let wrong = |rate| PyValueError::new_err(format!("sample={rate}: expected a rate above 0 and up to 1"));
        let sample = sample.map(|rate| Sample::new(rate).ok_or_else(|| wrong(rate))).transpose()?;
        let requests_most = limit.unwrap_or(u64::MAX);
        let options = Options { block_bytes: self.block_bytes, ops, collapse, sample, requests_most };
        let (references, mut notes) = work::run(py, progress.as_ref(), |work| self.gather(options, work))??;
        if references.ids.is_empty() {
            let what =
                if sample.is_some() { "refers to a block of the sample" } else { "reads or writes what ops asks for" };
            let requests = references.totals.requests;
            let name = &self.name;
            return Err(PyValueError::new_err(format!(
                "{name}: nothing to replay: none of its {requests} requests {what}"
            )));
        }
        notes.extend(references.note_on_sample());
        Ok(References::new(references, notes))
    }
}

impl Source {
    fn detected(name: String, kind: Kind) -> PyResult<Source> {
        let opened = open(&name, &kind)?;
        let (format, block_bytes) = (opened.format.to_string(), opened.block_bytes);
        check_block(block_bytes, &name)?;
        Ok(Source { name, format, block_bytes, kind })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn format(&self) -> &str {
        &self.format
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The requests from the first.
    pub(crate) fn open(&self) -> PyResult<Box<dyn Requests + Send>> {
        match &self.kind {
            Kind::Columns(columns) => Ok(Box::new(Reader::new(Arc::clone(columns), PathBuf::from(&self.name)))),
            Kind::Generated(spec, common) => Generator::parse(spec, common)
                .map_err(|error| error::value(&error))
                .map(|generator| generator as Box<_>),
            kind => Ok(open(&self.name, kind)?.requests),
        }
    }

    fn gather(&self, options: Options, work: &Work) -> PyResult<(nigh_sim::References, Vec<String>)> {
        let mut source = self.open()?;
        let mut loader = Loader::new(options);
        let read = loader.read(source.as_mut(), |requests, _| work.did(requests));
        read.map_err(|error| match error {
            ReadError::Trace(error) => error::of_trace(error),
            error => error::value(&error),
        })?;
        let notes = source.notes().iter().map(ToString::to_string).collect();
        Ok((loader.finish(), notes))
    }
}

fn open(name: &str, kind: &Kind) -> PyResult<nigh_trace::Opened> {
    match kind {
        Kind::File(path, options) => nigh_trace::open(path, options).map_err(error::of_trace),
        Kind::Opener(open, options) => {
            let file = Python::attach(|py| open.call0(py))?;
            nigh_trace::from_reader(PyFile { file }, Path::new(name), options).map_err(error::of_trace)
        }
        Kind::Columns(_) | Kind::Generated(..) => unreachable!("these have no format to detect"),
    }
}

/// Which requests count.
pub(crate) fn ops_of(name: &str) -> PyResult<Ops> {
    name.parse().map_err(|error| PyValueError::new_err(format!("ops='{name}': {error}")))
}

fn check_block(bytes: u32, name: &str) -> PyResult<()> {
    if bytes.is_power_of_two() && bytes <= nigh_trace::BLOCK_BYTES_MAX {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{name}: a block of {bytes} bytes: expected a power of two up to 1 GiB; set block_size"
    )))
}

/// How a file is read: a dictionary with all of these.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    format: Option<String>,
    columns: Option<String>,
    block_bytes: Option<u32>,
    stream: Option<String>,
    action: Option<String>,
    recorded_sizes: bool,
    skip_bad: bool,
}

impl Settings {
    fn options(&self) -> PyResult<ReadOptions> {
        fn parsed<T: FromStr<Err = nigh_trace::Error>>(text: Option<&str>) -> PyResult<Option<T>> {
            text.map(str::parse).transpose().map_err(error::of_trace)
        }
        Ok(ReadOptions {
            format: parsed(self.format.as_deref())?,
            columns: parsed(self.columns.as_deref())?,
            block_bytes: self.block_bytes,
            stream: parsed(self.stream.as_deref())?,
            action: parsed(self.action.as_deref())?,
            recorded_sizes: self.recorded_sizes,
            skip_bad: self.skip_bad,
            limit: None,
        })
    }
}

/// A binary file object of Python.
pub(crate) struct PyFile {
    pub(crate) file: Py<PyAny>,
}

impl Read for PyFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let read = self.file.call_method1(py, "read", (buffer.len(),)).map_err(io::Error::other)?;
            let bytes =
                read.cast_bound::<PyBytes>(py).map_err(|_| io::Error::other("read() gave no bytes"))?.as_bytes();
            let Some(part) = buffer.get_mut(..bytes.len()) else {
                return Err(io::Error::other("read() gave more bytes than it was asked for"));
            };
            part.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}
