//! The processor that programs share: who computes, and for how long.

use std::collections::VecDeque;

/// How long a program computes while others are ready, in ns. 4.3BSD looks for another one as often (`roundrobin`).
const SLICE_NS: u64 = 100_000_000;

/// Processors of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// A processor for each program.
    #[default]
    Each,
    /// One for all: programs take turns of 100 ms, and a program that has waited for a device is the last in line.
    Turns,
    /// One for all, with the scheduler of 4.3BSD: a program that has waited for a device computes at once. Every 100 ms, a program
    /// of the best priority is next: one that has computed little, as far as it is not forgotten.
    ///
    /// From S. Leffler, M. McKusick, M. Karels, J. Quarterman, "The Design and Implementation of the 4.3BSD UNIX Operating
    /// System" (1989), section 4.4: a program's priority is 50 + its ticks / 4, where ticks are counted in 10 ms up to 255
    /// and multiplied by 2 l / (2 l + 1) every second, l being the load. Four priorities share a queue. Simplified: the load
    /// is the number of programs that have not ended, not a mean over a minute, and no program is nice.
    Decay,
}

/// A shared processor.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    decays: bool,
    /// The program that has it, since when, and until when it computes, in ns.
    running: Option<(u32, u64, u64)>,
    /// Those that are ready to compute, and for how long, in ns.
    ready: VecDeque<(u32, u64)>,
    /// Processor time of each program, as far as it is not forgotten, in ns.
    used_ns: Vec<f64>,
    /// Seconds of which that holds.
    seconds: u64,
}

impl Processor {
    /// One that this many programs share; none if each has its own.
    pub(super) fn new(processors: Processors, programs: usize) -> Option<Processor> {
        let decays = match processors {
            Processors::Each => return None,
            Processors::Turns => false,
            Processors::Decay => true,
        };
        Some(Processor { decays, running: None, ready: VecDeque::new(), used_ns: vec![0.0; programs], seconds: 0 })
    }

    /// Whether this program has it.
    pub(super) fn has(&self, number: u32) -> bool {
        self.running.is_some_and(|(running, ..)| running == number)
    }

    /// A program that waited computes for this time, once it has the processor. Returns whether it has it now.
    pub(super) fn wake(&mut self, number: u32, think_ns: u64, now_ns: u64) -> bool {
        if let Some((other, _, until_ns)) = self.running {
            if !self.decays {
                self.ready.push_back((number, think_ns));
                return false;
            }
            self.stop(now_ns);
            self.ready.push_back((other, until_ns - now_ns));
        }
        self.run(number, think_ns, now_ns);
        true
    }

    /// The program that has the processor waits, or is at its end. Gives who has it now, and for how long it computes.
    pub(super) fn leave(&mut self, now_ns: u64, running: usize) -> Option<(u32, u64)> {
        self.stop(now_ns);
        let next = if self.decays { self.best(now_ns, running) } else { 0 };
        let (number, think_ns) = self.ready.remove(next)?;
        self.run(number, think_ns, now_ns);
        Some((number, think_ns))
    }

    /// The program that has the processor computes for this time. Returns the program that has it next, and for how long that one computes.
    pub(super) fn go_on(&mut self, think_ns: u64, now_ns: u64, running: usize) -> (u32, u64) {
        let (number, since_ns, _) = self.running.expect("a program computes");
        let is_over = match self.decays {
            true => now_ns / SLICE_NS != since_ns / SLICE_NS,
            false => now_ns - since_ns >= SLICE_NS,
        };
        if is_over && !self.ready.is_empty() {
            self.ready.push_back((number, think_ns));
            return self.leave(now_ns, running).expect("one is ready");
        }
        self.running = Some((number, since_ns, now_ns.saturating_add(think_ns)));
        (number, think_ns)
    }

    fn run(&mut self, number: u32, think_ns: u64, now_ns: u64) {
        self.running = Some((number, now_ns, now_ns.saturating_add(think_ns)));
    }

    fn stop(&mut self, now_ns: u64) {
        if let Some((number, since_ns, _)) = self.running.take() {
            self.used_ns[number as usize] += (now_ns - since_ns) as f64;
        }
    }

    /// The place in line of the first of the programs with the best priority, of `running` ones that have not ended.
    fn best(&mut self, now_ns: u64, running: usize) -> usize {
        let load = running as f64;
        let seconds = now_ns / 1_000_000_000;
        let passed = i32::try_from(seconds - self.seconds).unwrap_or(i32::MAX);
        let kept = (2.0 * load / (2.0 * load + 1.0)).powi(passed);
        self.seconds = seconds;
        self.used_ns.iter_mut().for_each(|used_ns| *used_ns *= kept);
        let queue = |&(number, _): &(u32, u64)| {
            let ticks = (self.used_ns[number as usize] / 1e7).min(255.0) as u64;
            (50 + ticks / 4) / 4
        };
        let places = self.ready.iter().enumerate();
        places.min_by_key(|(_, ready)| queue(ready)).map_or(0, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn each_program_has_its_own() {
        assert!(Processor::new(Processors::Each, 2).is_none());
    }

    #[test]
    fn turns_follow_each_other() {
        let mut processor = Processor::new(Processors::Turns, 3).unwrap();
        assert!(processor.wake(0, 60 * MS, 0));
        assert!(!processor.wake(1, 10 * MS, 5 * MS));
        assert!(!processor.wake(2, 20 * MS, 6 * MS));
        assert_eq!(processor.go_on(60 * MS, 60 * MS, 3), (0, 60 * MS), "its turn is not over");
        assert_eq!(processor.go_on(7 * MS, 120 * MS, 3), (1, 10 * MS));
        assert_eq!(processor.leave(130 * MS, 3), Some((2, 20 * MS)));
        assert_eq!(processor.leave(150 * MS, 2), Some((0, 7 * MS)));
        assert_eq!(processor.leave(157 * MS, 1), None);
    }

    #[test]
    fn whoever_wakes_computes_at_once_and_the_other_goes_on_later() {
        let mut processor = Processor::new(Processors::Decay, 2).unwrap();
        assert!(processor.wake(0, 60 * MS, 0));
        assert!(processor.wake(1, 10 * MS, 20 * MS));
        assert_eq!(processor.leave(30 * MS, 2), Some((0, 40 * MS)));
        assert_eq!(processor.leave(70 * MS, 2), None);
    }

    /// One computes for a second and is then interrupted by two others, of which the first computes for long.
    fn interrupted() -> Processor {
        let mut processor = Processor::new(Processors::Decay, 3).unwrap();
        assert!(processor.wake(0, 1010 * MS, 0));
        assert!(processor.wake(1, 500 * MS, 1000 * MS));
        assert!(processor.wake(2, 10 * MS, 1010 * MS));
        processor
    }

    #[test]
    fn who_has_computed_little_is_next() {
        // 100 ticks are 25 priorities. The first in line has them, the second none.
        assert_eq!(interrupted().leave(1020 * MS, 3), Some((1, 490 * MS)));
        // Once a minute has passed, both have as few, and the first in line is next.
        assert_eq!(interrupted().leave(60_000 * MS, 3), Some((0, 10 * MS)));
    }

    #[test]
    fn turns_end_at_multiples_of_a_slice() {
        let mut processor = interrupted();
        assert_eq!(processor.go_on(20 * MS, 1020 * MS, 3), (2, 20 * MS), "no turn is over");
        assert_eq!(processor.go_on(90 * MS, 1040 * MS, 3), (2, 90 * MS));
        // The one that computed for 10 ms is now before the one with 100 ms and the one with a second.
        assert_eq!(processor.go_on(5 * MS, 1130 * MS, 3), (1, 490 * MS));
    }
}
