//! Timed simulation: programs take turns at a cache on modelled devices.

use std::fmt::Display;

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use nigh_sim::Warmup;
use nigh_sim::rows::ghosts;
use nigh_sim::timed::{
    Devices, Disk, Figures, Loaded, NoPacing, NoThink, Pacing, Processors, Program, ProgramError, Programs, Recorded,
    Setup, Subject, Think, TimedError, Volumes, check, seconds, sweep,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::references::{in_blocks, specs_of};
use crate::source::Source;
use crate::work::{self, Work};
use crate::{error, figures};

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
    #[pyo3(signature = (sources, device, *, shared, pace, think, ops, limit, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are the settings of a simulation, by name")]
    fn new(
        py: Python<'_>,
        sources: Vec<Py<Source>>,
        device: &str,
        shared: bool,
        pace: Option<&str>,
        think: Option<&str>,
        ops: &str,
        limit: Option<u64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Timed> {
        let devices =
            Devices::parse(device).map_err(|error| PyValueError::new_err(format!("device={device}: {error}")))?;
        let wrong = |name: &str, error: &dyn Display| PyValueError::new_err(format!("{name}={error}"));
        let pacing: Option<Pacing> =
            pace.map(|pace| pace.parse().map_err(|error: NoPacing| wrong("pace", &error))).transpose()?;
        if let (Some(Pacing::Open { .. }), Some(_)) = (pacing, think) {
            return Err(PyValueError::new_err(
                "think does not go with such a pace: only a closed loop waits for replies",
            ));
        }
        let think: Option<Think> =
            think.map(|think| think.parse().map_err(|error: NoThink| wrong("think", &error))).transpose()?;
        let ops = crate::source::ops_of(ops)?;
        let limit = limit.unwrap_or(u64::MAX);
        let sources: Vec<&Source> = sources.iter().map(Py::get).collect();
        let block_bytes = sources.first().map_or(4096, |source| source.block_bytes());
        let programs = Programs::new(pacing, think, ops, block_bytes, limit);
        let programs = if shared { programs.sharing_disks() } else { programs };
        work::run(py, progress.as_ref(), |work| read(&sources, devices, programs, block_bytes, work))?
    }

    /// Simulates each of the policies `specs` at each of `sizes`.
    #[pyo3(signature = (specs, sizes, *, readahead, scheduler, warmup, seed, threads, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are the settings of a simulation, by name")]
    fn simulate(
        &self,
        py: Python<'_>,
        specs: Vec<String>,
        sizes: Vec<String>,
        readahead: &str,
        scheduler: &str,
        warmup: &str,
        seed: u64,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Simulated> {
        let specs = specs_of(&specs)?;
        if let Some(spec) = specs.iter().find(|spec| spec.info().offline) {
            let text = format!("{spec} needs to know the future, which depends on time: use nigh.sim");
            return Err(PyValueError::new_err(text));
        }
        let readahead = readahead.parse().map_err(|error: nigh_prefetch::SpecError| error::value(&error))?;
        let scheduler = scheduler.parse().map_err(|error| error::value(&error))?;
        let warmup: Warmup = warmup.parse().map_err(|error| PyValueError::new_err(format!("warmup={error}")))?;
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
            let mut setup = Setup {
                programs: &self.programs,
                block_bytes: self.block_bytes,
                disks: &disks,
                levels: &[],
                encoded: None,
                seed,
                readahead: &readahead,
                scheduler,
                tenants: None,
                processors: Processors::Each,
                processor_ns_a_block: 0,
                warmup: 0,
                progress: Some(&work.done),
                stop: Some(&work.stop),
            };
            let references = usize::try_from(setup.references()).unwrap_or(usize::MAX);
            setup.warmup = warmup.references(references).map_err(TimedError::Warmup)? as u64;
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
        Ok((PyArrowType(figures::table(&rows)), programs.collect()))
    }

    /// The steps that one run has.
    fn steps(&self) -> usize {
        self.programs.iter().map(|program| program.steps.len()).sum()
    }
}

fn read(
    sources: &[&Source],
    devices: Devices,
    mut programs: Programs,
    block_bytes: u32,
    work: &Work,
) -> PyResult<Timed> {
    for source in sources {
        let mut requests = source.open()?;
        let recorded = Recorded {
            name: source.name(),
            format: source.format(),
            block_bytes: source.block_bytes(),
            requests: requests.as_mut(),
            says: Vec::new(),
        };
        programs.read(recorded, |requests, _| work.did(requests)).map_err(|error| match error {
            ProgramError::Trace(error) => error::of_trace(error),
            ProgramError::Blocks { .. } => PyValueError::new_err(format!("{error}: set block_size")),
            ProgramError::Nothing { .. } => PyValueError::new_err(format!("{error}: no request is what ops asks for")),
            ProgramError::Times { .. } => {
                PyValueError::new_err(format!("{error}: set pace to closed, or leave it out"))
            }
            error => error::value(&error),
        })?;
    }
    let Loaded { programs, volumes, references } = programs.finish();
    let distinct = references.distinct_in_trace();
    Ok(Timed { programs, devices, volumes, block_bytes, distinct })
}
