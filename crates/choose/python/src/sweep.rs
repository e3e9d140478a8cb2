//! Jobs of a sweep, and the folder of their results.

use std::io;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use nigh_sweep::{Content, Error, Found, Job, Key, List, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::source::PyFile;
use crate::{error, work};

fn of_sweep(error: Error) -> PyErr {
    match error {
        Error::Trace(error) => error::of_trace(error),
        Error::Io { path, source } => error::of_io(&path, &source),
        error => error::value(&error),
    }
}

/// Paths, patterns and URIs of traces, each with settings as JSON.
type Traces = Vec<(String, String)>;

/// The list of a sweep in a file: its traces, the folder that they are relative to; and the
/// folder of results.
#[pyfunction]
pub(crate) fn sweep_list(path: PathBuf) -> PyResult<(Traces, PathBuf, PathBuf)> {
    let list = List::read(&path).map_err(of_sweep)?;
    let traces = list.traces.into_iter().map(|(trace, settings)| (trace, settings.to_json()));
    Ok((traces.collect(), list.folder, list.results))
}

/// Whether a trace is named by a URI, and not by a path.
#[pyfunction]
pub(crate) fn is_uri(trace: &str) -> bool {
    nigh_sweep::is_uri(trace)
}

/// The files in `folder` that match a pattern, as absolute paths.
#[pyfunction]
pub(crate) fn expand(py: Python<'_>, folder: PathBuf, pattern: &str) -> PyResult<Vec<String>> {
    py.detach(|| nigh_sweep::expand(&folder, pattern)).map_err(of_sweep)
}

/// A job for each trace with its settings, as JSON.
#[pyfunction]
pub(crate) fn jobs(traces: Traces) -> PyResult<Vec<String>> {
    let parsed = |(trace, settings): (String, String)| Ok((trace, Settings::parse(&settings).map_err(of_sweep)?));
    let traces = traces.into_iter().map(parsed).collect::<PyResult<_>>()?;
    Ok(nigh_sweep::jobs(traces).iter().map(Job::to_json).collect())
}

/// Path or URI of a job's trace, and its name.
#[pyfunction]
pub(crate) fn job_trace(job: &str) -> PyResult<(String, String)> {
    let job = Job::parse(job).map_err(of_sweep)?;
    Ok((job.trace, job.name))
}

/// The job with the content of its trace, and its key. Without `content`, the trace is a file, which is read.
#[pyfunction]
#[pyo3(signature = (job, content))]
pub(crate) fn identify(py: Python<'_>, job: &str, content: Option<&str>) -> PyResult<(String, String)> {
    let mut job = Job::parse(job).map_err(of_sweep)?;
    let content = match content {
        Some(text) => parse_content(text)?,
        None => py.detach(|| job.read_content()).map_err(of_sweep)?,
    };
    let key = job.key(&content);
    job.content = Some(content);
    Ok((job.to_json(), key.to_string()))
}

/// The parts of a trace of `length` bytes that identify its content.
#[pyfunction]
pub(crate) fn content_parts(length: u64) -> Vec<(u64, u64)> {
    Content::parts(length).into_iter().map(|part| (part.start, part.end)).collect()
}

/// The identity of a content of `length` bytes with these parts.
#[pyfunction]
pub(crate) fn content_of_parts(length: u64, parts: Vec<Bound<'_, PyBytes>>) -> String {
    Content::of_parts(length, parts.iter().map(|part| part.as_bytes())).to_string()
}

/// Runs a job: its key, and its table as a file. A trace that is named by a URI is given by what opens it as a binary file
/// object, and its content.
#[pyfunction]
#[pyo3(signature = (job, *, remote, threads, progress))]
pub(crate) fn run_job<'py>(
    py: Python<'py>,
    job: &str,
    remote: Option<(Py<PyAny>, String)>,
    threads: usize,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let job = Job::parse(job).map_err(of_sweep)?;
    let remote = remote.map(|(open, content)| Ok::<_, PyErr>((open, parse_content(&content)?))).transpose()?;
    let ran = work::run(py, progress.as_ref(), |work| {
        let (key, table) = match remote {
            Some((open, content)) => job.run_on(&content, threads, &work.done, &work.stop, |options| {
                let name = Path::new(&job.name);
                let failed = |error| Error::Io { path: PathBuf::from(&job.trace), source: io::Error::other(error) };
                let file = Python::attach(|py| open.call0(py)).map_err(|error: PyErr| failed(error))?;
                Ok(nigh_trace::from_reader(PyFile { file }, name, options)?)
            }),
            None => job.run(threads, &work.done, &work.stop),
        }?;
        let bytes = nigh_sweep::encode(&key, &table);
        Ok((key, bytes))
    })?;
    let (key, bytes) = ran.map_err(of_sweep)?;
    Ok((key.to_string(), PyBytes::new(py, &bytes)))
}

/// The table in a file that [`run_job`] gave; nothing if the file is not whole, or not that of the job `key`.
#[pyfunction]
pub(crate) fn decode(py: Python<'_>, key: &str, file: &[u8]) -> PyResult<Option<PyArrowType<RecordBatch>>> {
    let key = parse_key(key)?;
    Ok(py.detach(|| nigh_sweep::decode(&key, file.to_vec())).map(PyArrowType))
}

/// Tables of jobs as CSV.
#[pyfunction]
pub(crate) fn tables_csv(tables: Vec<PyArrowType<RecordBatch>>) -> String {
    nigh_sweep::text::csv(&tables.into_iter().map(|table| table.0).collect::<Vec<_>>())
}

/// Tables of jobs, and errors by trace, as JSON.
#[pyfunction]
pub(crate) fn tables_json(tables: Vec<PyArrowType<RecordBatch>>, errors: Vec<(String, String)>) -> String {
    nigh_sweep::text::json(&tables.into_iter().map(|table| table.0).collect::<Vec<_>>(), &errors)
}

fn parse_key(text: &str) -> PyResult<Key> {
    Key::parse(text).ok_or_else(|| PyValueError::new_err(format!("'{text}' is no key of a job")))
}

fn parse_content(text: &str) -> PyResult<Content> {
    Content::parse(text).ok_or_else(|| PyValueError::new_err(format!("'{text}' is no content: expected LENGTH-HASH")))
}

/// A folder of results.
#[pyclass(frozen, module = "nigh._nigh")]
pub(crate) struct Folder(nigh_sweep::Folder);

#[pymethods]
impl Folder {
    /// The folder at `path`; with `create`, it is created if there is none.
    #[new]
    fn new(path: PathBuf, create: bool) -> PyResult<Folder> {
        let folder = if create { nigh_sweep::Folder::create(&path) } else { nigh_sweep::Folder::open(&path) };
        folder.map(Folder).map_err(of_sweep)
    }

    /// The result of the job `key`, and whether it is there but damaged.
    fn find(&self, py: Python<'_>, key: &str) -> PyResult<(Option<PyArrowType<RecordBatch>>, bool)> {
        let key = parse_key(key)?;
        match py.detach(|| self.0.find(&key)).map_err(of_sweep)? {
            Found::Nothing => Ok((None, false)),
            Found::Damaged => Ok((None, true)),
            Found::Table(table) => Ok((Some(PyArrowType(table)), false)),
        }
    }

    /// Stores a file that `run_job` gave.
    fn put(&self, py: Python<'_>, key: &str, file: &[u8]) -> PyResult<()> {
        let key = parse_key(key)?;
        py.detach(|| self.0.put(&key, file)).map_err(of_sweep)
    }

    /// Path of the result of the job `key`, whether or not it exists.
    fn path(&self, key: &str) -> PyResult<PathBuf> {
        Ok(self.0.path(&parse_key(key)?))
    }

    /// The keys of all results.
    fn keys(&self) -> PyResult<Vec<String>> {
        Ok(self.0.keys().map_err(of_sweep)?.iter().map(Key::to_string).collect())
    }
}
