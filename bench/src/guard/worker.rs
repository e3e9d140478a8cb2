//! The programs that compete: the same touches of the same pages in every run, whatever memory is there.
//!
//! A touch reads a page whole, several times over, as work, and writes to it. The number done is printed on standard output ten times a
//! second.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Times that a touch goes over its page: some microseconds of work.
pub(super) const ROUNDS: usize = 16;
/// Pages that a buffer grows and shrinks by.
const CHUNK: usize = 256;

#[derive(Clone)]
#[repr(align(4096))]
struct Page([u64; 512]);

/// Runs one program: `kind` with at most `mib` MiB for `touches` touches, on one processor of the machine. Each touch goes `rounds` times
/// over its page.
pub(crate) fn run(kind: &str, mib: usize, touches: u64, rounds: usize) -> anyhow::Result<()> {
    // Ends with the bench, however that ends.
    set_pdeathsig(Signal::SIGKILL)?;
    let mut processor = CpuSet::new();
    processor.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &processor)?;
    if kind == "used" {
        return used(mib << 8);
    }
    let step = match kind {
        "gz" => gz,
        "vx" => vx,
        "cc" => cc,
        "slow" => slow,
        other => bail!("there is no program {other}"),
    };
    let random = fastrand::Rng::with_seed(mib as u64);
    Program { chunks: Vec::new(), random, done: 0, rounds }.run(touches, step, mib << 8)
}

/// A program that someone uses: touches 1 MiB of its pages at random twenty times a second, for ever, and prints how many
/// milliseconds each time took.
fn used(pages: usize) -> anyhow::Result<()> {
    const STEP: usize = 256;
    let mut program = Program { chunks: Vec::new(), random: fastrand::Rng::with_seed(1), done: 0, rounds: ROUNDS };
    program.resize(pages);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        for _ in 0..STEP {
            let page = program.random.usize(..program.pages());
            program.touch(page);
        }
        println!("{:.3}", start.elapsed().as_secs_f64() * 1e3);
    }
}

struct Program {
    chunks: Vec<Vec<Page>>,
    random: fastrand::Rng,
    done: u64,
    rounds: usize,
}

/// A growing buffer: sequential passes over what there is, and a window behind its end. It is whole after 40,000 touches.
fn gz(program: &mut Program, most: usize) {
    let at = program.done as usize;
    program.resize((most * at / 40_000).clamp(64, most));
    let length = program.pages();
    let window = 256.min(length);
    let behind = program.random.usize(..window);
    program.touch(if at.is_multiple_of(4) { length - 1 - behind } else { (at - at / 4) % length });
}

/// Skewed random touches, as of a database: a tenth of the pages get about half of them. It is whole after 40,000 touches.
fn vx(program: &mut Program, most: usize) {
    program.resize((most * program.done as usize / 40_000).clamp(64, most));
    vx_touch(program);
}

fn vx_touch(program: &mut Program) {
    let length = program.pages();
    let rank = (program.random.f64().powi(3) * length as f64) as usize;
    // Hot pages lie everywhere.
    program.touch(rank * 7919 % length);
}

/// As vx, but whole only after 250,000 touches.
fn slow(program: &mut Program, most: usize) {
    program.resize((most * program.done as usize / 250_000).clamp(64, most));
    vx_touch(program);
}

/// A third of its memory touched at random, and spikes up to all of it: grown, gone through ten times, and given back.
fn cc(program: &mut Program, most: usize) {
    let base = most / 3;
    let phase = program.done as usize % (most * 14);
    if phase < most * 4 {
        program.resize(base);
        let page = program.random.usize(..base);
        return program.touch(page);
    }
    program.resize((base + (phase - most * 4) / 2).min(most));
    program.touch(phase % program.pages());
}

impl Program {
    fn run(mut self, touches: u64, step: fn(&mut Program, usize), pages: usize) -> anyhow::Result<()> {
        let mut told = Instant::now();
        while self.done < touches {
            step(&mut self, pages);
            self.done += 1;
            if told.elapsed() > Duration::from_millis(100) {
                println!("{}", self.done);
                told = Instant::now();
            }
        }
        println!("{}", self.done);
        std::io::stdout().flush().context("standard output")
    }

    fn pages(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// To this many pages, in whole chunks. New pages are written to.
    fn resize(&mut self, pages: usize) {
        let wanted = pages.div_ceil(CHUNK);
        self.chunks.truncate(wanted);
        while self.chunks.len() < wanted {
            let seed = self.chunks.len() as u64;
            let page = Page(std::array::from_fn(|word| (seed << 20 | word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            self.chunks.push(vec![page; CHUNK]);
        }
    }

    fn touch(&mut self, page: usize) {
        let words = &mut self.chunks[page / CHUNK][page % CHUNK].0;
        let mut sum = 0u64;
        for _ in 0..self.rounds {
            for word in black_box(&*words) {
                sum = sum.rotate_left(5).wrapping_add(word.wrapping_mul(0x0100_0000_01b3));
            }
        }
        words[sum as usize % words.len()] ^= sum;
    }
}
