//! A trace decoded once, and its replay.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_pyarrow::PyArrowType;
use nigh_policy::Spec;
use nigh_sim::replay::{Series, Watch};
use nigh_sim::rows::{Plan, corners};
use nigh_sim::{Sizes, Warmup};
use nigh_sweep::table::of_rows;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, work};

/// The references of a trace, to blocks numbered in the order of their first reference.
#[pyclass(frozen, module = "nigh._nigh")]
pub(crate) struct References {
    pub(crate) inner: Arc<nigh_sim::References>,
    /// What reading the trace gave rise to.
    #[pyo3(get)]
    notes: Vec<String>,
}

/// What a replay gave: rows, LRU's hits at all sizes, the policies' internals, seconds of processor time.
type Replayed = (PyArrowType<RecordBatch>, Option<PyArrowType<RecordBatch>>, PyArrowType<RecordBatch>, f64);

impl References {
    pub(crate) fn new(inner: nigh_sim::References, notes: Vec<String>) -> References {
        References { inner: Arc::new(inner), notes }
    }

    /// The sizes in blocks, in order, each once.
    pub(crate) fn sizes(&self, sizes: &[String]) -> PyResult<Vec<u64>> {
        in_blocks(sizes, self.inner.distinct_in_trace(), self.inner.block_bytes)
    }

    /// How many references warm the cache.
    pub(crate) fn warmup(&self, warmup: &str) -> PyResult<usize> {
        let wrong = |error| PyValueError::new_err(format!("warmup={error}"));
        warmup.parse::<Warmup>().and_then(|warmup| warmup.references(self.inner.ids.len())).map_err(wrong)
    }
}

#[pymethods]
impl References {
    /// What was read, by name.
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
        let specs = specs.iter().map(|spec| spec.parse()).collect::<Result<Vec<Spec>, _>>();
        let specs = specs.map_err(|error| error::value(&error))?;
        if self.inner.sample.is_some()
            && let Some(spec) = specs.iter().find(|spec| spec.info().spatial)
        {
            return Err(PyValueError::new_err(format!(
                "policy '{spec}' looks at which blocks are neighbours on disk, and a sample has hardly any"
            )));
        }
        let sizes = self.sizes(&sizes)?;
        let gauges = match internals {
            Some((size, points)) => {
                let &[size] = &self.sizes(&[size])?[..] else {
                    return Err(PyValueError::new_err("internals takes one size, not a range"));
                };
                if !sizes.contains(&size) {
                    let text = format!("internals: {size} blocks is not among the sizes that are replayed");
                    return Err(PyValueError::new_err(text));
                }
                Some((size, points))
            }
            None => None,
        };
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
        let curve = replayed.curve.map(|curve| {
            let (sizes, hits) = corners(&self.inner, &curve);
            let references = vec![curve.references; sizes.len()];
            let column = |values: Vec<u64>| Arc::new(UInt64Array::from(values)) as ArrayRef;
            let columns = [("size_blocks", column(sizes)), ("hits", column(hits)), ("references", column(references))];
            PyArrowType(batch(columns))
        });
        Ok((PyArrowType(of_rows(&replayed.rows)), curve, PyArrowType(of_series(&replayed.internals)), cpu_s))
    }

    /// The steps that such a replay has.
    fn steps(&self, specs: Vec<String>, sizes: Vec<String>, exact_lru: bool) -> PyResult<u64> {
        let specs = specs.iter().map(|spec| spec.parse()).collect::<Result<Vec<Spec>, _>>();
        let specs = specs.map_err(|error| error::value(&error))?;
        let plan = Plan { specs, sizes: self.sizes(&sizes)?, exact_lru, gauges: None, shards: 1, threads: 1 };
        Ok(plan.steps(&self.inner))
    }
}

/// Sizes in blocks, in order, each once, for a trace of `distinct` blocks.
pub(crate) fn in_blocks(sizes: &[String], distinct: u64, block_bytes: u32) -> PyResult<Vec<u64>> {
    let mut blocks = Vec::new();
    for text in sizes {
        let size: Sizes = text.parse().map_err(|error| error::value(&error))?;
        blocks.extend(size.blocks(distinct, block_bytes).map_err(|error| error::value(&error))?);
    }
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.is_empty() { Err(PyValueError::new_err("sizes: there are none")) } else { Ok(blocks) }
}

/// A row for each point of each quantity.
pub(crate) fn of_series(internals: &[(String, u64, Series)]) -> RecordBatch {
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
    batch([
        ("policy", Arc::new(StringArray::from(policies)) as ArrayRef),
        ("size_blocks", Arc::new(UInt64Array::from(sizes))),
        ("references", Arc::new(UInt64Array::from(ats))),
        ("quantity", Arc::new(StringArray::from(names))),
        ("value", Arc::new(UInt64Array::from(values))),
    ])
}

fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    let columns = columns.map(|(name, column)| (name, column, false));
    RecordBatch::try_from_iter_with_nullable(columns).expect("the columns are equally long")
}
