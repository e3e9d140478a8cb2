extern crate std;

use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;

const MIB: u64 = 1 << 20;
const SHORT: Class = Class::Short { run: u64::MAX };

fn read(file: u64, size: u64, offset: u64, class: Class) -> Read {
    Read { reader: file, file, size, offset, length: 64 << 10, class }
}

/// The hints of one pass over a file in reads of 64 KiB, with what is resident, and at its close.
fn pass(adviser: &mut Adviser, file: u64, size: u64, class: Class, resident: &[Range<u64>]) -> Vec<Hint> {
    let mut hints = Vec::new();
    for offset in (0..size).step_by(64 << 10) {
        let is_resident = |range: Range<u64>| resident.iter().any(|part| part.contains(&range.start));
        adviser.read(&read(file, size, offset, class), is_resident, |hint| hints.push(hint));
    }
    adviser.close(file, size, |hint| hints.push(hint));
    hints
}

fn dropped(hints: &[Hint]) -> u64 {
    let length = |hint: &Hint| if let Hint::Drop(range) = hint { range.end - range.start } else { 0 };
    hints.iter().map(length).sum()
}

#[test]
fn a_sequential_reader_leaves_nothing_but_what_was_there() {
    let mut adviser = Box::new(Adviser::new());
    let all = pass(&mut adviser, 1, 101 * MIB, Class::Sequential, &[]);
    assert_eq!(dropped(&all), 101 * MIB, "every byte once");
    let starts: BTreeSet<u64> =
        all.iter().map(|hint| if let Hint::Drop(range) = hint { range.start } else { 1 }).collect();
    assert!(starts.len() == all.len() && starts.iter().all(|start| start % CHUNK == 0), "{all:?}");

    let resident = [10 * MIB..20 * MIB, 60 * MIB..61 * MIB];
    let some = pass(&mut adviser, 1, 101 * MIB, Class::Sequential, &resident);
    assert_eq!(dropped(&some), 101 * MIB - 12 * MIB, "chunks that begin with resident data stay");
}

#[test]
fn residency_is_looked_up_before_read_ahead_gets_there() {
    let mut adviser = Box::new(Adviser::new());
    for offset in (0..64 * MIB).step_by(64 << 10) {
        let mut nearest = u64::MAX;
        let look = |range: Range<u64>| {
            nearest = nearest.min(range.start - offset);
            false
        };
        adviser.read(&read(1, 100 * MIB, offset, Class::Sequential), look, |_| {});
        assert!(offset == 0 || nearest > 16 * MIB, "{nearest} bytes ahead of {offset}");
    }
}

#[test]
fn a_loop_keeps_what_fits_the_budget() {
    let mut adviser = Box::new(Adviser::new());
    assert_eq!(pass(&mut adviser, 1, 84 * MIB, Class::Loop, &[]), [], "no budget, no hints");
    adviser.set_budget(41 * MIB);
    for _ in 0..4 {
        let hints = pass(&mut adviser, 1, 84 * MIB, Class::Loop, &[]);
        let drops = |hint: &Hint| matches!(hint, Hint::Drop(range) if range.start >= 40 * MIB);
        assert!(hints.iter().all(drops) && dropped(&hints) == 44 * MIB, "{hints:?}");
        assert_eq!(adviser.kept_bytes(), 40 * MIB);
    }
    adviser.set_budget(10 * MIB);
    assert_eq!(adviser.kept_bytes(), 10 * MIB);
}

#[test]
fn files_share_the_budget() {
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(MIB);
    for _ in 0..3 {
        let kept: Vec<u64> =
            (0..50).filter(|&file| pass(&mut adviser, file, 40_000, Class::Loop, &[]).is_empty()).collect();
        assert!(kept.iter().copied().eq(0..25), "25 files of 10 pages fit: {kept:?}");
    }
}

#[test]
fn loops_that_have_ended_are_given_up() {
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(20 * MIB);
    pass(&mut adviser, 1, 20 * MIB, Class::Loop, &[]);
    // A chunk is looked at once in as many reads as there are sets.
    let passes = (0..200).find(|_| dropped(&pass(&mut adviser, 2, 30 * MIB, Class::Loop, &[])) == 10 * MIB);
    assert!(passes.is_some_and(|passes| passes > 4), "{passes:?}");
    assert!(adviser.kept_bytes() <= 20 * MIB);
}

#[test]
fn short_files_are_fetched_at_their_first_read() {
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(MIB);
    assert_eq!(pass(&mut adviser, 1, 300_000, SHORT, &[]), [Hint::Fetch(0..300_000)]);
    assert_eq!(adviser.kept_bytes(), 74 * 4096);
    let long = pass(&mut adviser, 2, 5 * MIB, SHORT, &[]);
    assert!(pass(&mut adviser, 3, 9 * MIB, SHORT, &[]).iter().all(|hint| matches!(hint, Hint::Drop(_))), "too long");
    assert_eq!(long[..3], [Hint::Fetch(0..2 * MIB), Hint::Fetch(2 * MIB..4 * MIB), Hint::Fetch(4 * MIB..5 * MIB)]);
}

#[test]
fn short_runs_are_fetched_and_kept_without_the_rest_of_the_file() {
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(MIB);
    let mut hints = Vec::new();
    let class = Class::Short { run: 60_000 };
    for file in 0..20 {
        let read = Read { length: 4096, ..read(file, MIB, 8192, class) };
        adviser.read(&read, |_| false, |hint| hints.push(hint));
        adviser.read(&Read { offset: 12_288, ..read }, |_| false, |hint| hints.push(hint));
        adviser.close(file, MIB, |hint| hints.push(hint));
    }
    let fetched = hints.iter().filter(|hint| **hint == Hint::Fetch(8192..68_192)).count();
    assert_eq!((fetched, adviser.kept_bytes()), (20, 17 * 15 * 4096), "17 runs of 15 pages fit");
    assert_eq!(hints.len(), 20 + 3, "the other files are dropped: {hints:?}");
}

#[test]
fn random_reads_get_no_hints() {
    let mut adviser = Box::new(Adviser::new());
    for offset in [5 * MIB, 0, 70 * MIB] {
        adviser.read(&read(1, 100 * MIB, offset, Class::Random), |_| false, |hint| panic!("{hint:?}"));
    }
}

#[test]
fn long_reads_are_not_dropped_before_they_are_made() {
    let mut adviser = Box::new(Adviser::new());
    let mut hints = Vec::new();
    for offset in [0, 16 * MIB, 32 * MIB] {
        let whole = Read { length: 16 * MIB, ..read(1, 100 * MIB, offset, Class::Sequential) };
        let before = hints.len();
        adviser.read(&whole, |_| false, |hint| hints.push(hint));
        let is_behind = |hint: &Hint| matches!(hint, Hint::Drop(range) if range.end <= offset);
        assert!(hints[before..].iter().all(is_behind), "{offset}: {hints:?}");
    }
    assert!(!hints.is_empty());
}

#[test]
fn hints_are_within_the_file_whatever_the_read() {
    let mut adviser = Box::new(Adviser::new());
    adviser.set_budget(4 * MIB);
    let classes = [Class::Sequential, Class::Loop, SHORT, Class::Random];
    let mut state = 1_u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..200_000 {
        let size = [0, 1, 4096, 3 * MIB, 50 * MIB, u64::MAX][next(6) as usize];
        let offset = [0, 4095, 2 * MIB - 1, 49 * MIB, u64::MAX - 5][next(5) as usize];
        let length = [0, 1, 100_000, 4 * MIB][next(4) as usize];
        let class = classes[next(4) as usize];
        let check = |hint: Hint| {
            let (Hint::Drop(range) | Hint::Fetch(range)) = hint;
            let length = range.end.checked_sub(range.start);
            assert!(
                length.is_some_and(|length| (1..=CHUNK).contains(&length)) && range.end <= size,
                "{range:?} of {size}"
            );
        };
        let file = next(100);
        if next(10) == 0 {
            adviser.close(file, size, check);
        } else {
            let resident = next(2) == 0;
            adviser.read(&Read { reader: file, file, size, offset, length, class }, |_| resident, check);
        }
        assert!(adviser.kept_bytes() <= 4 * MIB);
    }
}

#[test]
fn budgets_leave_room() {
    assert_eq!(budget(64 * MIB, 2 * MIB, 8 * MIB, u64::MAX), 42 * MIB);
    assert_eq!(budget(44 * MIB, 2 * MIB, 8 * MIB, 100_000), 42 * MIB - 100_000);
    assert_eq!(budget(10 * MIB, 2 * MIB, 8 * MIB, u64::MAX), 0);
}
