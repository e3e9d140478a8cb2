//! A trace decoded once, and its replay.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_pyarrow::PyArrowType;
use nigh_policy::{Room, Spec, SpecError};
use nigh_sim::levels::{self, Scheme};
use nigh_sim::replay::{Series, Watch, drive};
use nigh_sim::rows::{Plan, Row, at_corners, replayed_sizes, row};
use nigh_sim::threads::in_threads;
use nigh_sim::{Sizes, Warmup};
use nigh_sweep::table::of_rows;
use nigh_tier::LEVELS_MAX;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::policy::{Fault, Hosted};
use crate::{error, work};

/// The references of a trace, to blocks numbered in the order of their first reference.
#[pyclass(frozen, module = "nigh._nigh")]
pub(crate) struct References {
    inner: Arc<nigh_sim::References>,
    /// Notes from reading the trace.
    #[pyo3(get)]
    notes: Vec<String>,
}

/// Result of replaying a policy written in Python: rows, its internals, seconds of processor time.
type ReplayedPolicy = (PyArrowType<RecordBatch>, PyArrowType<RecordBatch>, f64);

/// Result of a replay: rows, LRU's hits at all sizes, the policies' internals, seconds of processor time.
type Replayed = (PyArrowType<RecordBatch>, Option<PyArrowType<RecordBatch>>, PyArrowType<RecordBatch>, f64);

/// Result of one scheme of levels.
type OfScheme = (String, Vec<u64>, u64, Vec<u64>, u64, Option<f64>);

impl References {
    pub(crate) fn new(inner: nigh_sim::References, notes: Vec<String>) -> References {
        References { inner: Arc::new(inner), notes }
    }

    /// The sizes in blocks, in order, each once.
    fn sizes(&self, sizes: &[String]) -> PyResult<Vec<u64>> {
        in_blocks(sizes, self.inner.distinct_in_trace(), self.inner.block_bytes)
    }

    /// The size at which internals are read, one of `sizes`, and how often.
    fn gauges(&self, sizes: &[u64], internals: Option<(String, usize)>) -> PyResult<Option<(u64, usize)>> {
        let Some((size, points)) = internals else { return Ok(None) };
        let &[size] = &self.sizes(&[size])?[..] else {
            return Err(PyValueError::new_err("internals takes one size, not a range"));
        };
        if !sizes.contains(&size) {
            let text = format!("internals: {size} blocks is not among the sizes that are replayed");
            return Err(PyValueError::new_err(text));
        }
        Ok(Some((size, points)))
    }

    /// How many references warm the cache.
    fn warmup(&self, warmup: &str) -> PyResult<usize> {
        let wrong = |error| PyValueError::new_err(format!("warmup={error}"));
        warmup.parse::<Warmup>().and_then(|warmup| warmup.references(self.inner.ids.len())).map_err(wrong)
    }
}

#[pymethods]
impl References {
    /// Description of the trace, by name.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let totals = &self.inner.totals;
        let (first, last) = totals.time_ns;
        let info = PyDict::new(py);
        info.set_item("requests", totals.requests)?;
        info.set_item("reads", totals.reads)?;
        info.set_item("writes", totals.writes)?;
        info.set_item("bytes", totals.bytes)?;
        info.set_item("references", totals.references)?;
        info.set_item("distinct_blocks", self.inner.distinct_in_trace())?;
        info.set_item("block_bytes", self.inner.block_bytes)?;
        info.set_item("duration_s", (last > first).then(|| (last - first) as f64 / 1e9))?;
        info.set_item("sample", self.inner.sample.map(|sample| sample.rate()))?;
        info.set_item("replayed_references", self.inner.ids.len())?;
        Ok(info)
    }

    /// Replays each of the policies `specs` at each of `sizes`.
    #[pyo3(signature = (specs, sizes, *, warmup, threads, exact_lru, internals, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are the settings of a replay, by name")]
    fn replay(
        &self,
        py: Python<'_>,
        specs: Vec<String>,
        sizes: Vec<String>,
        warmup: &str,
        threads: usize,
        exact_lru: bool,
        internals: Option<(String, usize)>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Replayed> {
        let specs = specs_of(&specs)?;
        if self.inner.sample.is_some()
            && let Some(spec) = specs.iter().find(|spec| spec.info().spatial)
        {
            return Err(PyValueError::new_err(format!(
                "policy '{spec}' looks at which blocks are neighbours on disk, and a sample has hardly any"
            )));
        }
        let sizes = self.sizes(&sizes)?;
        let gauges = self.gauges(&sizes, internals)?;
        let warmup = self.warmup(warmup)?;
        let plan = Plan { specs, sizes, exact_lru, gauges, shards: 1, threads };
        let references = Arc::clone(&self.inner);
        let replayed = work::run(py, progress.as_ref(), |work| {
            let watch = Watch { warmup, progress: Some(&work.done), stop: Some(&work.stop), gauges: 0 };
            plan.replay(&references, watch)
        })?;
        let replayed = replayed.map_err(|error| error::value(&error))?;
        let of_curve = replayed.curve.as_ref().map_or(0.0, |curve| curve.cpu_s);
        let cpu_s = of_curve + replayed.rows.iter().filter_map(|row| row.cpu_s).sum::<f64>();
        let curve = replayed.curve.map(|curve| PyArrowType(of_curve_rows(at_corners(&self.inner, &curve))));
        Ok((PyArrowType(of_rows(&replayed.rows)), curve, PyArrowType(of_series(&replayed.internals)), cpu_s))
    }

    /// Replays a policy written in Python at each of `sizes`: what `factory` returns for a capacity.
    #[pyo3(signature = (factory, name, sizes, *, warmup, internals, progress))]
    fn replay_policy(
        &self,
        factory: &Bound<'_, PyAny>,
        name: &str,
        sizes: Vec<String>,
        warmup: &str,
        internals: Option<(String, usize)>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<ReplayedPolicy> {
        let sizes = self.sizes(&sizes)?;
        let gauges = self.gauges(&sizes, internals)?;
        let warmup = self.warmup(warmup)?;
        let mut done = 0;
        let (mut rows, mut series) = (Vec::new(), Vec::new());
        for &size in &sizes {
            let mut runs = Vec::new();
            for (at, capacity) in replayed_sizes(&self.inner, size).into_iter().enumerate() {
                let gauges = gauges.filter(|&(of, _)| at == 0 && of == size).map_or(0, |(_, points)| points);
                let room = Room { capacity, slots: self.inner.distinct(), ghosts: 0 };
                let fault = Arc::new(Fault::default());
                let mut policy = Hosted::new(factory, name, String::new(), room, Arc::clone(&fault))?;
                policy.report(progress.as_ref(), done);
                let watch = Watch { warmup, progress: None, stop: Some(&fault.stop), gauges };
                runs.push(drive(&self.inner, &mut policy, capacity, watch));
                fault.raised()?;
                done += self.inner.ids.len() as u64;
            }
            rows.push(row(&self.inner, name, size, None, &runs));
            let of_size = runs.into_iter().next().map(|run| run.series);
            series.extend(of_size.filter(|of| !of.points.is_empty()).map(|of| (name.to_owned(), size, of)));
        }
        let cpu_s = rows.iter().filter_map(|row| row.cpu_s).sum();
        Ok((PyArrowType(of_rows(&rows)), PyArrowType(of_series(&series)), cpu_s))
    }

    /// Replays each of `schemes` over cache levels of these sizes: name, hits by level, misses, demotions by boundary,
    /// hits in transit, and with `costs_ms`, of a hit at each level and of a miss, the mean of these.
    #[pyo3(signature = (schemes, levels, *, costs_ms, warmup, threads, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are the settings of a replay, by name")]
    fn levels(
        &self,
        py: Python<'_>,
        schemes: Vec<String>,
        levels: Vec<String>,
        costs_ms: Option<Vec<f64>>,
        warmup: &str,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<OfScheme>> {
        let schemes = schemes.iter().map(|scheme| scheme.parse()).collect::<Result<Vec<Scheme>, _>>();
        let schemes = schemes.map_err(|error| error::value(&error))?;
        for scheme in &schemes {
            scheme.check().map_err(|error| error::value(&error))?;
        }
        if !(1..=LEVELS_MAX).contains(&levels.len()) {
            return Err(PyValueError::new_err(format!("levels: expected 1 to {LEVELS_MAX} sizes")));
        }
        let mut capacities = Vec::new();
        for level in levels {
            let &[blocks] = &self.sizes(&[level])?[..] else {
                return Err(PyValueError::new_err("levels: expected one size for each level, not a range"));
            };
            let wrong = |_| PyValueError::new_err(format!("levels: {blocks} blocks are too many"));
            capacities.push(u32::try_from(blocks).map_err(wrong)?);
        }
        let warmup = self.warmup(warmup)?;
        let references = Arc::clone(&self.inner);
        let runs = work::run(py, progress.as_ref(), |work| {
            let watch = Watch { warmup, progress: Some(&work.done), stop: Some(&work.stop), gauges: 0 };
            in_threads(&schemes, threads, |scheme| levels::replay(&references, scheme, &capacities, watch))
        })?;
        let of_scheme = |(scheme, run): (&Scheme, Result<levels::Run, SpecError>)| {
            let counts = run.map_err(|error| error::value(&error))?.counts;
            let count = capacities.len();
            let hits = counts.hits[..count].to_vec();
            let demotions = counts.demotions[..count - 1].to_vec();
            let mean_ms = costs_ms.as_ref().map(|costs_ms| counts.mean_time(costs_ms));
            Ok((scheme.to_string(), hits, counts.misses(), demotions, counts.transit, mean_ms))
        };
        schemes.iter().zip(runs).map(of_scheme).collect()
    }

    /// The steps that the replay of `specs` has, and that of one policy written in Python.
    fn steps(&self, specs: Vec<String>, sizes: Vec<String>, exact_lru: bool) -> PyResult<(u64, u64)> {
        let specs = specs_of(&specs)?;
        let plan = Plan { specs, sizes: self.sizes(&sizes)?, exact_lru, gauges: None, shards: 1, threads: 1 };
        let passes: usize = plan.sizes.iter().map(|&size| replayed_sizes(&self.inner, size).len()).sum();
        Ok((plan.steps(&self.inner), passes as u64 * self.inner.ids.len() as u64))
    }
}

/// Sizes in blocks, in order, each once, for a trace of `distinct` blocks.
pub(crate) fn in_blocks(sizes: &[String], distinct: u64, block_bytes: u32) -> PyResult<Vec<u64>> {
    if sizes.is_empty() {
        return Err(PyValueError::new_err("sizes: there are none"));
    }
    let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<Sizes>, _>>();
    let blocks = sizes.and_then(|sizes| nigh_sim::sizes::in_blocks(&sizes, distinct, block_bytes));
    blocks.map_err(|error| error::value(&error))
}

/// Policies that are called so.
pub(crate) fn specs_of(names: &[String]) -> PyResult<Vec<Spec>> {
    names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(|error: SpecError| error::value(&error))
}

/// The columns of a curve at all its sizes.
fn of_curve_rows(rows: impl Iterator<Item = Row>) -> RecordBatch {
    let table = of_rows(&rows.collect::<Vec<_>>());
    let names = ["size_blocks", "references", "hits", "hit_ratio", "miss_ratio", "error"];
    let columns = names.map(|name| table.schema().index_of(name).expect("a column of rows"));
    table.project(&columns).expect("the columns are there")
}

/// A row for each point of each quantity.
fn of_series(internals: &[(String, u64, Series)]) -> RecordBatch {
    let (mut policies, mut sizes, mut ats) = (Vec::new(), Vec::new(), Vec::new());
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (policy, size, series) in internals {
        for (at, point) in &series.points {
            for (name, value) in series.names.iter().zip(point) {
                policies.push(policy.as_str());
                sizes.push(*size);
                ats.push(*at);
                names.push(*name);
                values.push(*value);
            }
        }
    }
    let columns = [
        ("policy", Arc::new(StringArray::from(policies)) as ArrayRef),
        ("size_blocks", Arc::new(UInt64Array::from(sizes))),
        ("references", Arc::new(UInt64Array::from(ats))),
        ("quantity", Arc::new(StringArray::from(names))),
        ("value", Arc::new(UInt64Array::from(values))),
    ];
    let columns = columns.map(|(name, column)| (name, column, false));
    RecordBatch::try_from_iter_with_nullable(columns).expect("the columns are equally long")
}
