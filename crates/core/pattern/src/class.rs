//! The classes of accesses, and the counts that decide (section 4.2, figures 5 and 7).
//!
//! The paper names four classes and the parameters of each, period and length, but no thresholds. The thresholds here
//! are those of the works that it builds on, or derived, and each can be set ([`Thresholds`]).

use std::fmt;

/// How the pages of one piece of code are accessed, in the order in which AOIO evicts them (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// In sequence, and not again.
    Seq,
    /// Without a regularity.
    Rand,
    /// In short sequences, again and again.
    Short,
    /// In long sequences, again and again.
    Loop,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 4] = [Class::Seq, Class::Rand, Class::Short, Class::Loop];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Seq => "seq",
            Class::Rand => "rand",
            Class::Short => "short",
            Class::Loop => "loop",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Limits between the classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Code with fewer references to pages is [`Class::Rand`]. UBM, which examines sequences of blocks, and PCC, which
    /// examines those of code, both call a sequence of this length sequential: 20.
    pub least: u32,
    /// Sequences of this mean length in pages or more are long: also 20.
    pub long: f64,
    /// Code loops if its pages are referenced again this often, on average over the pages that came to it: a half.
    pub reuse: f64,
    /// Intervals between references to the same page whose standard deviation is more than this multiple of their mean
    /// are not periods. References at random have a multiple of 1.
    pub irregular: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { least: 20, long: 20.0, reuse: 0.5, irregular: 1.0 }
    }
}

/// When code has made this many references, its counts are halved, so that what it does now weighs more.
const HALVE: u32 = 1 << 16;

/// Counts of one piece of code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// References to pages.
    references: u32,
    /// Those that continue a sequence, or begin a file.
    sequential: u32,
    /// Sequences.
    runs: u32,
    /// Pages that came to this code: that it referenced, and that nobody or other code referenced last.
    arrivals: u32,
    /// References to pages of this code, by any code.
    reused: u32,
    /// Sum and sum of squares of the intervals until then, in references.
    sum: f64,
    squares: f64,
}

impl Counts {
    /// The code references a page. `continues`: it follows the page of its file that was referenced before it, by any
    /// code; `begins`: it is the first page of its file; `arrives`: nobody or other code referenced it last.
    pub fn reference(&mut self, continues: bool, begins: bool, arrives: bool) {
        self.references += 1;
        self.sequential += u32::from(continues || begins);
        self.runs += u32::from(!continues);
        self.arrivals += u32::from(arrives);
        if self.references >= HALVE {
            self.halve();
        }
    }

    /// A page that this code referenced last is referenced again, after `interval` references to pages.
    pub fn again(&mut self, interval: u64) {
        self.reused += 1;
        let length = interval as f64;
        self.sum += length;
        self.squares += length * length;
    }

    fn halve(&mut self) {
        let counts = [&mut self.references, &mut self.sequential, &mut self.runs, &mut self.arrivals, &mut self.reused];
        counts.into_iter().for_each(|count| *count /= 2);
        self.sum /= 2.0;
        self.squares /= 2.0;
    }

    /// References to pages, those of long ago less than once.
    pub fn references(&self) -> u32 {
        self.references
    }

    /// The mean length of a sequence, in pages.
    pub fn run(&self) -> f64 {
        f64::from(self.references) / f64::from(self.runs.max(1))
    }

    /// How often its pages were referenced again, on average over the pages that came to it. Pages that other code had
    /// referenced before come to it, too: to read once what other code has read is no loop.
    pub fn reuse(&self) -> f64 {
        f64::from(self.reused) / f64::from(self.arrivals.max(1))
    }

    /// The mean interval between references to the same page, in references to pages; `None` if there was none
    /// (the paper's period of infinity).
    pub fn period(&self) -> Option<f64> {
        (self.reused > 0).then(|| self.sum / f64::from(self.reused))
    }

    /// The standard deviation of the intervals as a multiple of their mean.
    pub fn variation(&self) -> f64 {
        let count = f64::from(self.reused.max(1));
        let mean = self.sum / count;
        if mean == 0.0 { 0.0 } else { (self.squares / count - mean * mean).max(0.0).sqrt() / mean }
    }

    /// The class by these counts.
    pub fn class(&self, thresholds: &Thresholds) -> Class {
        if self.references < thresholds.least {
            return Class::Rand;
        }
        if self.reused >= thresholds.least && self.reuse() >= thresholds.reuse {
            return match self.run() >= thresholds.long {
                _ if self.variation() > thresholds.irregular => Class::Rand,
                true => Class::Loop,
                false => Class::Short,
            };
        }
        if self.sequential >= self.references.div_ceil(2) { Class::Seq } else { Class::Rand }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(counts: &Counts) -> Class {
        counts.class(&Thresholds::default())
    }

    /// Code that reads files of `pages` pages from their beginning, each `times` times in a row of all files.
    fn reader(pages: u64, files: u64, times: u64) -> Counts {
        let mut counts = Counts::default();
        for time in 0..times {
            for _ in 0..files {
                for page in 0..pages {
                    counts.reference(page > 0, page == 0, time == 0);
                    if time > 0 {
                        counts.again(pages * files);
                    }
                }
            }
        }
        counts
    }

    #[test]
    fn files_that_are_read_once_are_sequential() {
        for (pages, files) in [(1000, 1), (5, 200), (1, 300)] {
            assert_eq!(class(&reader(pages, files, 1)), Class::Seq, "{files} files of {pages} pages");
        }
        assert_eq!(reader(1000, 1, 1).period(), None);
    }

    #[test]
    fn the_length_of_sequences_distinguishes_loops() {
        let (long, short) = (reader(100, 3, 3), reader(5, 60, 3));
        assert_eq!((class(&long), class(&short)), (Class::Loop, Class::Short));
        assert_eq!((long.period(), long.run(), long.variation()), (Some(300.0), 100.0, 0.0));
        assert_eq!((short.period(), short.run()), (Some(300.0), 5.0));
    }

    #[test]
    fn intervals_without_a_period_are_random() {
        let mut counts = Counts::default();
        for at in 0..1000_u64 {
            counts.reference(false, false, at < 100);
            counts.again(if at % 10 == 0 { 10_000 } else { 10 });
        }
        assert!(counts.variation() > 2.0, "{}", counts.variation());
        assert_eq!(class(&counts), Class::Rand);
        assert_eq!(class(&Counts::default()), Class::Rand, "nothing is known");
    }

    #[test]
    fn what_code_does_now_weighs_more_than_what_it_did_long_ago() {
        let mut counts = reader(50_000, 1, 1);
        assert_eq!(class(&counts), Class::Seq);
        let mut more = 0;
        while class(&counts) == Class::Seq {
            counts.reference(true, false, false);
            counts.again(1000);
            more += 1;
        }
        assert!((20_000..40_000).contains(&more), "{more}");
    }
}
