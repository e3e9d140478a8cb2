//! Timed simulation: programs take turns at a cache on modelled devices.

use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use nigh_policy::Spec;
use nigh_sim::rows::ghosts;
use nigh_sim::timed::{
    Devices, Disk, Figures, Program, Recorder, Setup, Subject, Think, Volumes, check, seconds, sweep,
};
use nigh_sim::{Loader, Ops, Options};
use nigh_sweep::table::of_figures;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::references::in_blocks;
use crate::source::Source;
use crate::work::{self, Work};

/// Programs that were read, and their devices.
#[pyclass(frozen, module = "nigh._nigh")]
pub(crate) struct Timed {
    programs: Vec<Program>,
    devices: Devices,
    volumes: Volumes,
    block_bytes: u32,
    distinct: u64,
}

/// The rows, and for each the seconds in which each program ended and which it waited.
type Simulated = (PyArrowType<RecordBatch>, Vec<Vec<(String, f64, f64)>>);

#[pymethods]
impl Timed {
    /// Reads the programs: one for each of `sources`.
    #[new]
    #[pyo3(signature = (sources, device, *, think, ops, limit, progress))]
    fn new(
        py: Python<'_>,
        sources: Vec<Py<Source>>,
        device: &str,
        think: &str,
        ops: &str,
        limit: Option<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Timed> {
        let devices =
            Devices::parse(device).map_err(|error| PyValueError::new_err(format!("device={device}: {error}")))?;
        let think: Think = think.parse().map_err(|error| PyValueError::new_err(format!("think={error}")))?;
        let ops = crate::source::ops_of(ops)?;
        let limit = limit.unwrap_or(u64::MAX);
        let sources: Vec<&Source> = sources.iter().map(Py::get).collect();
        work::run(py, progress.as_ref(), |work| read(&sources, devices, think, ops, limit, work))?
    }

    /// Simulates each of the policies `specs` at each of `sizes`.
    #[pyo3(signature = (specs, sizes, *, readahead, scheduler, seed, threads, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are the settings of a simulation, by name")]
    fn simulate(
        &self,
        py: Python<'_>,
        specs: Vec<String>,
        sizes: Vec<String>,
        readahead: &str,
        scheduler: &str,
        seed: u64,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Simulated> {
        let specs = specs.iter().map(|spec| spec.parse()).collect::<Result<Vec<Spec>, _>>();
        let specs = specs.map_err(|error| error::value(&error))?;
        if let Some(spec) = specs.iter().find(|spec| spec.info().offline) {
            let text = format!("{spec} needs to know the future, which depends on time: use nigh.sim");
            return Err(PyValueError::new_err(text));
        }
        let readahead = readahead.parse().map_err(|error: nigh_prefetch::SpecError| error::value(&error))?;
        let scheduler = scheduler.parse().map_err(|error| error::value(&error))?;
        let devices = self.devices.of(self.volumes.numbers(), &self.programs).map_err(|error| error::value(&error))?;
        let disks: Vec<Disk> = devices.iter().map(|of| Disk { profile: &of.profile, layouts: &[] }).collect();
        let sizes = in_blocks(&sizes, self.distinct, self.block_bytes)?;
        let mut jobs = Vec::new();
        for spec in &specs {
            for &size in &sizes {
                let wrong = |_| PyValueError::new_err(format!("a cache of {size} blocks is too large"));
                jobs.push((spec.clone(), u32::try_from(size).map_err(wrong)?));
            }
        }
        let outcomes = work::run(py, progress.as_ref(), |work| {
            let setup = Setup {
                programs: &self.programs,
                block_bytes: self.block_bytes,
                disks: &disks,
                levels: &[],
                seed,
                readahead: &readahead,
                scheduler,
                tenants: None,
                one_processor: false,
                processor_ns_a_block: 0,
                progress: Some(&work.done),
                stop: Some(&work.stop),
            };
            check(&setup)?;
            sweep(&setup, &jobs, threads)
        })?;
        let outcomes = outcomes.map_err(|error| error::value(&error))?;
        let rows: Vec<Figures> = jobs
            .iter()
            .zip(&outcomes)
            .map(|((spec, size), outcome)| {
                let ghosts = ghosts(spec, u64::from(*size));
                let policy = spec.to_string();
                Figures::new(Subject { policy, size_blocks: *size, block_bytes: self.block_bytes, ghosts }, outcome)
            })
            .collect();
        let programs = outcomes.iter().map(|outcome| {
            let times = outcome.ends_ns.iter().zip(&outcome.waited_ns);
            let names = self.programs.iter().map(|program| program.name.clone());
            names.zip(times).map(|(name, (&end, &waited))| (name, seconds(end), seconds(waited))).collect()
        });
        Ok((PyArrowType(of_figures(&rows)), programs.collect()))
    }

    /// The steps that one run has.
    fn steps(&self) -> usize {
        self.programs.iter().map(|program| program.steps.len()).sum()
    }
}

fn read(sources: &[&Source], devices: Devices, think: Think, ops: Ops, limit: u64, work: &Work) -> PyResult<Timed> {
    let block_bytes = sources.first().map_or(4096, |source| source.block_bytes());
    let options = Options { block_bytes, ops, collapse: false, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    let mut volumes = Volumes::default();
    let mut programs = Vec::new();
    for source in sources {
        let name = source.name();
        if source.block_bytes() != block_bytes {
            let other = source.block_bytes();
            let text =
                format!("{name}: its blocks have {other} bytes, those of the first {block_bytes}: set block_size");
            return Err(PyValueError::new_err(text));
        }
        let mut recorder = Recorder::new(name.to_owned(), think, ops);
        let mut requests = source.open()?;
        let (mut batch, mut left) = (Vec::new(), limit);
        while left > 0 && !work.stop.load(Ordering::Relaxed) {
            requests.next_batch(&mut batch).map_err(error::of_trace)?;
            if batch.is_empty() {
                break;
            }
            batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= batch.len() as u64;
            work.done.fetch_add(batch.len() as u64, Ordering::Relaxed);
            recorder.push(&batch, &mut volumes).map_err(|error| PyValueError::new_err(format!("{name}: {error}")))?;
            loader.push(&batch).map_err(|error| error::value(&error))?;
        }
        let program = recorder.finish();
        if program.steps.is_empty() && !work.stop.load(Ordering::Relaxed) {
            let text = format!("{name}: nothing to replay: no request is what ops asks for");
            return Err(PyValueError::new_err(text));
        }
        programs.push(program);
    }
    let distinct = loader.finish().distinct_in_trace();
    Ok(Timed { programs, devices, volumes, block_bytes, distinct })
}
