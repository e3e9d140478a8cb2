//! The classifier of section 4.2 over a stream of references, with bounded memory.
//!
//! The paper keeps lists of page ranges for each code and file (figure 8), in which a page that another code references
//! moves to that code. Here each known page has the code that referenced it last, which is the same for pages that are
//! referenced one by one, and needs no joining and splitting of ranges. If there are more pages than fit, a share of
//! them that a hash chooses is kept, as in SHARDS (Waldspurger et al., FAST 2015); sequences are seen in full.

use std::collections::HashMap;

use crate::{Counts, Pattern, Table, Thresholds};

/// The limits of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that are kept: 48 bytes each. Beyond them, half of all pages are dropped.
    pub pages: usize,
    /// Pieces of code; further ones are not classified, and counted as [`Code::OTHERS`].
    pub codes: usize,
    /// Pairs of code and file; further ones have no pattern of their own.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { pages: 1 << 21, codes: 1 << 14, files: 1 << 16 }
    }
}

/// Observations of one piece of code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    /// Its identity.
    pub code: u64,
    /// Its counts.
    pub counts: Counts,
    /// References to pages.
    pub references: u64,
    /// Pages that it was the first to reference, an estimate if pages were dropped.
    pub pages: u64,
    /// Files, as far as they were kept.
    pub files: u32,
    /// Of pages that were kept: how many came to it, from nobody or from other code, and how many of these were referenced
    /// again, by any code.
    arrived: u64,
    returned: u64,
}

impl Code {
    /// The identity of code beyond the limit.
    pub const OTHERS: u64 = 0;

    /// The share of its pages that were referenced again, by any code. A page that came to it twice is two.
    pub fn read_again(&self) -> f64 {
        self.returned as f64 / self.arrived.max(1) as f64
    }
}

/// A page that was referenced.
struct Page {
    /// The code that referenced it last, by its place, and that code in this file.
    code: u32,
    file: Option<u32>,
    /// When.
    time: u64,
    /// Whether it was referenced again since it came to this code.
    returned: bool,
}

/// Classifies code from the references that it makes.
pub struct Classifier {
    limits: Limits,
    thresholds: Thresholds,
    codes: Vec<Code>,
    code_of: HashMap<u64, u32>,
    files: Vec<(u64, u32, Counts)>,
    file_of: HashMap<(u32, u32), u32>,
    /// The last page referenced in each file.
    last: HashMap<u32, u64>,
    pages: HashMap<(u32, u64), Page>,
    /// Pages whose hash has this many zeros at its end are kept.
    zeros: u32,
    time: u64,
}

impl Classifier {
    /// A classifier that has seen nothing.
    pub fn new(limits: Limits, thresholds: Thresholds) -> Classifier {
        Classifier {
            limits,
            thresholds,
            codes: Vec::new(),
            code_of: HashMap::new(),
            files: Vec::new(),
            file_of: HashMap::new(),
            last: HashMap::new(),
            pages: HashMap::new(),
            zeros: 0,
            time: 0,
        }
    }

    /// `code` references `page` of `file`.
    pub fn reference(&mut self, code: u64, file: u32, page: u64) {
        self.time += 1;
        let place = self.place(code);
        let continues = self.follows(file, page);
        let own = self.own(place, file, code);
        // A page that is not kept neither arrives nor is referenced again; both are counted for others alike.
        let is_kept = hash(file, page).trailing_zeros() >= self.zeros;
        let before = if is_kept { self.pages.get(&(file, page)) } else { None };
        let is_first = is_kept && before.is_none();
        let arrives = is_kept && before.is_none_or(|before| before.code != place);
        if let Some(&Page { code, file: in_file, time, returned }) = before {
            let interval = self.time - time;
            let owner = &mut self.codes[code as usize];
            owner.counts.again(interval);
            owner.returned += u64::from(!returned);
            if let Some(in_file) = in_file {
                self.files[in_file as usize].2.again(interval);
            }
        }
        if is_kept {
            let page_of = Page { code: place, file: own, time: self.time, returned: !arrives };
            self.pages.insert((file, page), page_of);
        }
        let seen = &mut self.codes[place as usize];
        seen.references += 1;
        seen.pages += u64::from(is_first) << self.zeros;
        seen.arrived += u64::from(arrives);
        seen.counts.reference(continues, page == 0, arrives);
        if let Some(own) = own {
            self.files[own as usize].2.reference(continues, page == 0, arrives);
        }
        if self.pages.len() > self.limits.pages {
            self.zeros += 1;
            let zeros = self.zeros;
            self.pages.retain(|&(file, page), _| hash(file, page).trailing_zeros() >= zeros);
        }
    }

    /// The place of `code`.
    fn place(&mut self, code: u64) -> u32 {
        let known = self.codes.len();
        let code = if known < self.limits.codes || self.code_of.contains_key(&code) { code } else { Code::OTHERS };
        let place = *self.code_of.entry(code).or_insert(known as u32);
        if place as usize == known {
            self.codes.push(Code { code, ..Code::default() });
        }
        place
    }

    /// The place of code in a file.
    fn own(&mut self, place: u32, file: u32, code: u64) -> Option<u32> {
        let known = self.files.len();
        if known >= self.limits.files {
            return self.file_of.get(&(place, file)).copied();
        }
        let own = *self.file_of.entry((place, file)).or_insert(known as u32);
        if own as usize == known {
            self.files.push((code, file, Counts::default()));
            self.codes[place as usize].files += 1;
        }
        Some(own)
    }

    /// Whether `page` follows the last one of `file`, and is the last one from now on.
    fn follows(&mut self, file: u32, page: u64) -> bool {
        if self.last.len() >= self.limits.files && !self.last.contains_key(&file) {
            // Files that were read long ago are as likely to be dropped as others: it costs each a sequence.
            self.last.clear();
        }
        self.last.insert(file, page).is_some_and(|last| page == last.wrapping_add(1))
    }

    /// References so far.
    pub fn references(&self) -> u64 {
        self.time
    }

    /// Observations of each piece of code, the most referenced first.
    pub fn codes(&self) -> Vec<Code> {
        let mut codes = self.codes.clone();
        codes.sort_by_key(|code| (std::cmp::Reverse(code.references), code.code));
        codes
    }

    /// The PC table. Code has a pattern of its own in a file in which it has another class, and in which it was seen
    /// often enough.
    pub fn table(&self) -> Table {
        let mut table = Table::default();
        for code in &self.codes {
            table.set(code.code, Pattern::of(&code.counts, &self.thresholds));
        }
        for (code, file, counts) in &self.files {
            let pattern = Pattern::of(counts, &self.thresholds);
            let differs = table.get(*code, *file).is_none_or(|general| general.class != pattern.class);
            if differs && counts.references() >= self.thresholds.least && pattern.class != crate::Class::Rand {
                table.set_file(*code, *file, pattern);
            }
        }
        table
    }
}

/// A number in which each bit depends on all bits of the page.
fn hash(file: u32, page: u64) -> u64 {
    crate::pc::mix(page ^ crate::pc::mix(file.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    fn classifier(pages: usize) -> Classifier {
        Classifier::new(Limits { pages, ..Limits::default() }, Thresholds::default())
    }

    /// Code 1 scans a file once, code 2 reads one five times, code 3 small files five times, code 4 at random.
    fn four(classifier: &mut Classifier) {
        let mut state = 1_u64;
        for round in 0..5_u64 {
            for page in 0..500 {
                classifier.reference(1, 10, round * 500 + page);
            }
            for page in 0..400 {
                classifier.reference(2, 20, page);
            }
            for file in 0..80 {
                (0..5).for_each(|page| classifier.reference(3, 100 + file, page));
            }
            for _ in 0..300 {
                state = crate::pc::mix(state + 1);
                classifier.reference(4, 30, state % 1_000_000);
            }
        }
    }

    #[test]
    fn each_class_is_found() {
        let mut classifier = classifier(1 << 20);
        four(&mut classifier);
        let table = classifier.table();
        let class = |code, file| table.get(code, file).unwrap().class;
        assert_eq!(
            [class(1, 10), class(2, 20), class(3, 100), class(4, 30)],
            [Class::Seq, Class::Loop, Class::Short, Class::Rand]
        );
        assert_eq!((table.get(2, 20).unwrap().period, table.get(2, 20).unwrap().run), (1600.0, 400.0));
        assert_eq!(class(3, 5_000_000), Class::Short, "a file that is not known");
        assert_eq!(table.get(77, 1), None);
        let seen = classifier.codes();
        assert_eq!((seen[0].code, seen[0].references, seen[0].pages, seen[0].files), (1, 2500, 2500, 1));
        assert_eq!((seen[2].code, seen[2].references, seen[2].pages, seen[2].files), (3, 2000, 400, 80));
    }

    /// With a fraction of the pages, the classes are the same.
    #[test]
    fn memory_is_bounded_and_classes_remain() {
        let mut small = classifier(500);
        four(&mut small);
        assert!(small.pages.len() <= 500 && small.zeros > 0);
        let table = small.table();
        let classes: Vec<_> = (1..=4).map(|code| table.get(code, 1 << 30).unwrap().class).collect();
        assert_eq!(classes, [Class::Seq, Class::Loop, Class::Short, Class::Rand]);
        let estimate = small.codes().iter().find(|code| code.code == 1).unwrap().pages;
        assert!((1500..4000).contains(&estimate), "{estimate}");

        let limits = Limits { pages: 10, codes: 2, files: 2 };
        let mut tiny = Classifier::new(limits, Thresholds::default());
        four(&mut tiny);
        assert!(tiny.codes.len() <= 3 && tiny.files.len() <= 2 && tiny.last.len() <= 2 && tiny.pages.len() <= 11);
        assert_eq!(tiny.references(), 5 * (500 + 400 + 400 + 300));
    }

    /// Departure from figure 8's ownership: a loop that different code reads in turns is one.
    #[test]
    fn reuse_counts_whichever_code_it_is_by() {
        let mut classifier = classifier(1 << 20);
        for round in 0..6 {
            (0..300).for_each(|page| classifier.reference(round % 2, 7, page));
        }
        let table = classifier.table();
        assert_eq!((table.get(0, 7).unwrap().class, table.get(1, 7).unwrap().class), (Class::Loop, Class::Loop));
        assert_eq!(table.get(0, 7).unwrap().period, 300.0);
    }

    /// Code 2 reads once what code 1 read before; of that, code 1 reads a tenth again.
    #[test]
    fn what_code_reads_once_is_no_loop_though_other_code_read_it_before() {
        let mut classifier = classifier(1 << 20);
        (0..400).for_each(|page| classifier.reference(1, 7, page));
        (0..400).for_each(|page| classifier.reference(2, 7, page));
        (0..40).for_each(|page| classifier.reference(1, 7, page * 10));
        let [first, second] = [1, 2].map(|code| classifier.codes().into_iter().find(|seen| seen.code == code).unwrap());
        assert_eq!((first.pages, second.pages), (400, 0));
        assert_eq!(classifier.table().get(2, 7).unwrap().class, Class::Seq);
        assert_eq!((first.read_again(), second.read_again()), (400.0 / 440.0, 0.1));
    }

    /// Ten of a hundred pages are read 20 times: a tenth is read again, although there are two further references a page.
    #[test]
    fn a_page_that_is_read_often_is_one_page_that_is_read_again() {
        let mut classifier = classifier(1 << 20);
        (0..100).for_each(|page| classifier.reference(1, 7, page));
        (0..200).for_each(|at| classifier.reference(1, 7, at % 10));
        assert_eq!(classifier.codes()[0].read_again(), 0.1);
        assert_eq!(classifier.codes()[0].counts.reuse(), 2.0);
    }

    #[test]
    fn code_that_does_something_else_in_a_file_has_a_pattern_there() {
        let mut classifier = classifier(1 << 20);
        for round in 0..10 {
            (0..100).for_each(|page| classifier.reference(5, 1, page));
            (0..1000).for_each(|page| classifier.reference(5, 2, round * 1000 + page));
        }
        let table = classifier.table();
        assert_eq!((table.get(5, 3).unwrap().class, table.get(5, 1).unwrap().class), (Class::Seq, Class::Loop));
    }
}
