//! Hits that the policy `auto` loses against the policies that it chooses among, and against all others: on recorded traces, the same ones repeated,
//! phases, and loads that flip.

use nigh_policy::{Spec, registry};
use nigh_sim::replay::Watch;
use nigh_sim::{Job, Loader, Ops, Options, References, sweep};
use nigh_testkit::workload::Phases;
use nigh_trace::{ReadOptions, Request};

use crate::history::recorded_traces;

/// The default candidates of `auto`.
const CANDIDATES: [&str; 4] = ["lirs", "s3-fifo", "w-tinylfu", "mq"];
/// Besides the defaults of all policies.
const VARIANTS: [&str; 3] = ["lirs:hir=10%", "clock-pro:cold=1%", "w-tinylfu:window=20%"];
/// Sizes of the cache as shares of the distinct blocks.
const SHARES: [f64; 5] = [0.02, 0.05, 0.1, 0.2, 0.4];
/// A cell of fewer cache sizes of references is short.
const LONG: f64 = 50.0;
/// Traces run on to this many references.
const RUN_ON: usize = 2_000_000;

/// One trace at one size; hits of the references.
struct Cell {
    trace: String,
    capacity: u32,
    references: f64,
    auto: f64,
    changes: u64,
    /// The best of those that `auto` chooses among.
    candidate: (Spec, f64),
    /// The best of all.
    fixed: (Spec, f64),
    /// Of LIRS and of LRU.
    usual: [f64; 2],
}

impl Cell {
    /// Hits lost against the best candidate, in sizes of the cache.
    fn lost(&self) -> f64 {
        (self.candidate.1 - self.auto) / f64::from(self.capacity)
    }

    /// How many sizes of the cache are referenced.
    fn length(&self) -> f64 {
        self.references / f64::from(self.capacity)
    }

    fn points(&self, hits: f64) -> f64 {
        100.0 * hits / self.references
    }

    /// Points that `hits` are below the best of all.
    fn behind(&self, hits: f64) -> f64 {
        self.points(self.fixed.1.max(self.auto) - hits)
    }
}

/// The policies to compare with; with `few`, the candidates, LRU and ARC only.
fn policies(few: bool) -> anyhow::Result<Vec<Spec>> {
    let apart = |name: &str| CANDIDATES.contains(&name) || ["lru", "arc"].contains(&name);
    let info = registry().iter().filter(|info| !info.offline && !info.streams && info.name != "auto");
    let names = info.map(|info| info.name).filter(|name| !few || apart(name));
    let specs = names.chain(VARIANTS.into_iter().filter(|_| !few)).map(|name| Ok(name.parse()?));
    specs.collect()
}

/// The cells of a trace.
fn cells(
    trace: &str,
    references: &References,
    capacities: &[u32],
    auto: &Spec,
    few: bool,
) -> anyhow::Result<Vec<Cell>> {
    let threads = std::thread::available_parallelism()?.get();
    let fixed = policies(few)?;
    let specs: Vec<&Spec> = [auto].into_iter().chain(&fixed).collect();
    let mut jobs = Vec::new();
    for &capacity in capacities {
        jobs.extend(specs.iter().map(|&spec| Job { spec: spec.clone(), capacity, gauges: usize::from(spec == auto) }));
    }
    let runs = sweep(references, &jobs, threads, Watch::default())?;
    let mut cells = Vec::new();
    for (runs, &capacity) in runs.chunks(specs.len()).zip(capacities) {
        let hits = |at: usize| runs[at].counts.hits as f64;
        let best = |of: &dyn Fn(&Spec) -> bool| {
            let numbers = (1..specs.len()).filter(|&at| of(specs[at]));
            let at =
                numbers.max_by(|&one, &other| hits(one).total_cmp(&hits(other)).then(other.cmp(&one))).expect("one is");
            (specs[at].clone(), hits(at))
        };
        let of = |name: &str| best(&|spec| spec.to_string() == name).1;
        let series = &runs[0].series;
        let changes = series.names.iter().position(|&name| name == "changes").expect("it reports changes");
        cells.push(Cell {
            trace: trace.to_owned(),
            capacity,
            references: runs[0].counts.references as f64,
            auto: hits(0),
            changes: series.points.last().map_or(0, |(_, values)| values[changes]),
            candidate: best(&|spec| CANDIDATES.contains(&&*spec.to_string())),
            fixed: best(&|_| true),
            usual: [of("lirs"), of("lru")],
        });
    }
    Ok(cells)
}

/// Reads of single blocks, a repeat of the last one left out.
fn load(requests: &mut dyn nigh_trace::Requests, block_bytes: u32) -> anyhow::Result<References> {
    let options = Options { block_bytes, ops: Ops::Reads, collapse: true, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    loader.read(requests, |_, _| true)?;
    Ok(loader.finish())
}

fn of_blocks(blocks: &[u32]) -> anyhow::Result<References> {
    let options = Options { block_bytes: 4096, ops: Ops::Reads, collapse: true, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    let request = |&block: &u32| Request { offset: 4096 * u64::from(block), length: 4096, ..Request::default() };
    for part in blocks.chunks(1 << 16) {
        loader.push(&part.iter().map(request).collect::<Vec<Request>>())?;
    }
    Ok(loader.finish())
}

/// Blocks of the cache of generated loads.
const CAPACITY: u32 = 2_000;

/// Prints the tables. With `each`, each cell.
pub(crate) fn run(auto: &Spec, each: bool) -> anyhow::Result<()> {
    println!("{auto} among {}; reads, repeats left out; C is the size of the cache", CANDIDATES.join(", "));
    let (mut all, mut running) = (Vec::new(), Vec::new());
    for path in recorded_traces()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let opened = nigh_trace::open(&path, &ReadOptions::default())?;
        let block_bytes = opened.block_bytes.next_power_of_two().max(4096);
        let mut references = load(&mut *{ opened.requests }, block_bytes)?;
        let of = |share: f64| (f64::from(references.distinct()) * share).round().max(1.0) as u32;
        let capacities = SHARES.map(of);
        all.extend(cells(&name, &references, &capacities, auto, false)?);
        references.ids = references.ids.repeat(RUN_ON.div_ceil(references.ids.len()));
        running.extend(cells(&name, &references, &capacities, auto, false)?);
    }
    for (title, cells) in [("recorded traces", &all), ("the same, repeated to 2 M references", &running)] {
        println!("\n{title}: {} cells", cells.len());
        summary(cells, each);
    }
    println!("\nphases of zigzag, loop, Zipf and scan in turn, C = {CAPACITY}: hit ratios in %");
    println!("{:>8} {:>8} {:>8} {:>10} {:>8}", "length", "auto", "best", "", "changes");
    for length in [5, 10, 20, 50, 100, 200] {
        print_generated(length, &Phases::rounds(CAPACITY, length, 200 / length), auto)?;
    }
    for whole in [400, 4_000] {
        println!("\nflips between zigzag and loop, {whole} C in all: hit ratios in %");
        println!("{:>8} {:>8} {:>8} {:>10} {:>8}", "period", "auto", "best", "", "changes");
        for period in [1, 2, 4, 5, 8, 10, 15, 20] {
            print_generated(period, &Phases::flips(CAPACITY, period, whole), auto)?;
        }
    }
    Ok(())
}

fn print_generated(length: u32, phases: &Phases, auto: &Spec) -> anyhow::Result<()> {
    let references = of_blocks(&phases.blocks)?;
    let cell = cells("", &references, &[CAPACITY], auto, true)?.remove(0);
    let (of_auto, best) = (cell.points(cell.auto), cell.points(cell.fixed.1));
    println!(
        "{length:>6} C {of_auto:>8.1} {best:>8.1} {:>10} {:>8}  {:+.1}",
        cell.fixed.0,
        cell.changes,
        of_auto - best
    );
    Ok(())
}

fn summary(cells: &[Cell], each: bool) {
    if each {
        let [auto, candidate, fixed] = ["auto", "best candidate", "best"];
        println!("{:30} {:>8} {:>8} {auto:>6} {candidate:>16} {fixed:>30} {:>8}", "trace", "C", "length", "lost");
        for cell in cells {
            let (candidate, fixed) = (&cell.candidate, &cell.fixed);
            println!(
                "{:30} {:>8} {:>6.0} C {:>6.1} {:>6.1} {:>9} {:>6.1} {:>23} {:>6.2} C {:>3}",
                cell.trace,
                cell.capacity,
                cell.length(),
                cell.points(cell.auto),
                cell.points(candidate.1),
                candidate.0,
                cell.points(fixed.1),
                fixed.0,
                cell.lost(),
                cell.changes
            );
        }
    }
    let count = cells.len() as f64;
    let lost = || cells.iter().map(Cell::lost);
    let worst = lost().fold(0.0, f64::max);
    println!("lost against the best candidate: mean {:.2} C, most {worst:.2} C", lost().sum::<f64>() / count);
    let within = |points: f64, least: f64| {
        let long = || cells.iter().filter(|cell| cell.length() >= least);
        100.0 * long().filter(|cell| cell.behind(cell.auto) <= points).count() as f64 / long().count().max(1) as f64
    };
    println!(
        "below the best of all: within 1 point in {:.1} % of the cells, within 2 in {:.1} %; of those of {LONG} C or more {:.1} and {:.1} %",
        within(1.0, 0.0),
        within(2.0, 0.0),
        within(1.0, LONG),
        within(2.0, LONG)
    );
    let regret = |of: &dyn Fn(&Cell) -> f64| {
        let all = || cells.iter().map(|cell| cell.behind(of(cell)));
        format!("{:.2} ({:.1})", all().sum::<f64>() / count, all().fold(0.0, f64::max))
    };
    let of = [regret(&|cell| cell.auto), regret(&|cell| cell.usual[0]), regret(&|cell| cell.usual[1])];
    println!("points below the best of all, mean (most): auto {}, lirs {}, lru {}", of[0], of[1], of[2]);
}
