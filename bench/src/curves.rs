//! Hit ratios at several sizes, as a server estimates them from sampled blocks, beside those of a simulation of all blocks: how far they are apart, and how often the error
//! that is shown is enough.

use nigh_policy::curve::{Curve, Measured, QUARTERS};
use nigh_policy::{Access, Block, Kind, Spec, Stream, Tenant};
use nigh_sim::{Loader, Ops, Options, References};
use nigh_trace::ReadOptions;

use crate::history::recorded_traces;

/// Sizes of the cache as shares of the distinct blocks.
const SHARES: [f64; 5] = [0.02, 0.05, 0.1, 0.2, 0.4];
/// Traces with more references are long.
const LONG: usize = 500_000;
/// Curves are compared after this share of the references, too.
const HALF: usize = 2;

/// Differences in points.
#[derive(Clone, Copy, Debug, Default)]
struct Differences {
    count: f64,
    sum: f64,
    most: f64,
    covered: f64,
    /// Of the errors that are shown.
    errors: f64,
    /// Of gains: cells that the error covers.
    gains_covered: f64,
}

impl Differences {
    fn note(&mut self, measured: &Measured, exact: &Measured) {
        for (one, other) in measured.points.iter().zip(&exact.points) {
            let difference = (one.hit_ratio - other.hit_ratio).abs();
            self.count += 1.0;
            self.sum += 100.0 * difference;
            self.most = self.most.max(100.0 * difference);
            self.errors += 100.0 * one.error;
            self.covered += f64::from(difference <= one.error);
            self.gains_covered += f64::from((one.gain - other.gain).abs() <= one.gain_error);
        }
    }

    fn add(&mut self, other: Differences) {
        let Differences { count, sum, most, covered, errors, gains_covered } = other;
        self.count += count;
        self.sum += sum;
        self.most = self.most.max(most);
        self.covered += covered;
        self.errors += errors;
        self.gains_covered += gains_covered;
    }

    fn print(&self, name: &str) {
        let of = |sum: f64| sum / self.count.max(1.0);
        println!(
            "{name:40} {:>6} {:>6.2} {:>6.2} {:>6.2} {:>8.1} {:>8.1}",
            self.count,
            of(self.sum),
            self.most,
            of(self.errors),
            100.0 * of(self.covered),
            100.0 * of(self.gains_covered)
        );
    }
}

/// The curve after half of the references and after all. Another `sample` takes other blocks.
fn measured(
    references: &References,
    spec: &Spec,
    capacity: u32,
    least: u32,
    sample: u32,
) -> anyhow::Result<Vec<Measured>> {
    let mut curve = Curve::new(spec, false, capacity, least, references.block_bytes)?;
    let mut found = Vec::new();
    let parts = references.ids.chunks(references.ids.len().div_ceil(HALF).max(1));
    for (part, first) in parts.zip((0..).step_by(references.ids.len().div_ceil(HALF).max(1))) {
        for (&id, tick) in part.iter().zip(first..) {
            let Block { volume, index } = references.blocks[id as usize];
            let block = Block { volume: volume + 1_000 * sample, index };
            if curve.takes(block) {
                curve.reference(&Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick });
            }
        }
        found.push(curve.measured());
    }
    Ok(found)
}

/// Prints the table.
pub(crate) fn run(policies: &[Spec], least: u32, samples: u32, each: bool) -> anyhow::Result<()> {
    println!(
        "hit ratios at {} quarters of the size, from {least} sampled blocks or more, and from all: points apart",
        QUARTERS.map(|of| of.to_string()).join(", ")
    );
    let [cells, mean, most, shown, covered, gains] = ["cells", "mean", "most", "error", "within %", "gains %"];
    println!("{:40} {cells:>6} {mean:>6} {most:>6} {shown:>6} {covered:>8} {gains:>8}", "trace");
    let (mut long, mut all) = (Differences::default(), Differences::default());
    for path in recorded_traces()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let opened = nigh_trace::open(&path, &ReadOptions::default())?;
        let block_bytes = opened.block_bytes.next_power_of_two().max(4096);
        let options = Options { block_bytes, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        loader.read(&mut *{ opened.requests }, |_, _| true)?;
        let references = loader.finish();
        let mut of_trace = Differences::default();
        for share in SHARES {
            let capacity = (f64::from(references.distinct()) * share).round().max(1.0) as u32;
            // Smaller caches are simulated as a whole.
            if capacity < 2 * least {
                continue;
            }
            for spec in policies {
                let exact = measured(&references, spec, capacity, 1 << 30, 0)?;
                let mut of_cell = Differences::default();
                for sample in 0..samples {
                    let sampled = measured(&references, spec, capacity, least, sample)?;
                    sampled.iter().zip(&exact).for_each(|(sampled, exact)| of_cell.note(sampled, exact));
                }
                if each {
                    of_cell.print(&format!("{name} {capacity} {spec}"));
                }
                of_trace.add(of_cell);
            }
        }
        if of_trace.count > 0.0 {
            of_trace.print(&format!("{name}, {} references", references.ids.len()));
            all.add(of_trace);
            if references.ids.len() > LONG {
                long.add(of_trace);
            }
        }
    }
    long.print(&format!("all of more than {LONG} references"));
    all.print("all");
    Ok(())
}
