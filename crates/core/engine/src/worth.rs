//! Whether reads of a volume go to a level, by how long they take there and at the volume's own devices.
//!
//! 1. The level is used, and compared with what earlier reads took at home.
//! 2. If it takes much longer, it is doubted: one of [`ONE_OF`] reads goes home, until home was measured by reads of blocks that the level has. Others
//!    do not tell: a disk reads sequences, which levels hardly get, much faster.
//! 3. If the level still takes longer, it is left out for a while: no read and no store of the volume goes there.
//! 4. Then it is tried: stores go there, and one of `ONE_OF` reads. It is used again, or left out for twice as long.
//! 5. If it was doubted in vain, it is not doubted again for `FIRST_PAUSE_US`.

use crate::request::Volume;

/// Operations whose times are remembered.
const TIMES: usize = 32;
/// Operations that suffice for a comparison at home, or if they took `LONG_US` together.
const FEW: u64 = 8;
const LONG_US: u64 = 1_000_000;
/// While a level is doubted or tried, one of this many reads goes elsewhere.
const ONE_OF: u32 = 8;
/// A level is left out if its reads take more than this many times as long as those at home, plus `MARGIN_US` (docs/adr/0026). It is used
/// again from three quarters of that on.
const TIMES_HOME: u64 = 3;
const MARGIN_US: u64 = 1_000;
/// How long a level is left out for the first time, and at most.
const FIRST_PAUSE_US: u64 = 10_000_000;
const MOST_PAUSE_US: u64 = 320_000_000;

/// The times that the last operations took at a device, in µs.
#[derive(Default)]
pub(crate) struct Times {
    last: [u32; TIMES],
    count: u64,
}

impl Times {
    pub(crate) fn note(&mut self, us: u64) {
        self.last[self.count as usize % TIMES] = u32::try_from(us).unwrap_or(u32::MAX);
        self.count += 1;
    }

    fn known(&self) -> &[u32] {
        &self.last[..TIMES.min(self.count as usize)]
    }

    fn median(&self) -> Option<u64> {
        let mut sorted = [u32::MAX; TIMES];
        let known = self.known();
        let sorted = &mut sorted[..known.len()];
        sorted.copy_from_slice(known);
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map(|&us| us.into())
    }

    /// Unlike the median, it has what a disk takes for a sequence: most blocks come from its memory, and the first one takes the seek.
    fn mean(&self) -> Option<u64> {
        let known = self.known();
        known.iter().map(|&us| u64::from(us)).sum::<u64>().checked_div(known.len() as u64)
    }

    /// Whether there are enough to doubt a device.
    fn tells(&self) -> bool {
        let sum = || self.known().iter().map(|&us| u64::from(us)).sum::<u64>();
        self.count >= TIMES as u64 || self.count >= FEW && sum() >= LONG_US
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Used,
    Doubted,
    Out { until: u64 },
    Tried,
}

/// A level is left out for a volume, or used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The level.
    pub level: usize,
    /// The volume.
    pub volume: Volume,
    /// For how long, in µs; 0 if it is used again.
    pub for_us: u64,
    /// The median of what reads take from the level, in µs.
    pub level_us: u64,
    /// The mean of what reads take from the devices of the volume, in µs.
    pub home_us: u64,
}

/// The measurements of a level by a volume.
pub(crate) struct Worth {
    state: State,
    times: Times,
    /// Since the level is doubted or tried: of reads at home of blocks that it has.
    instead: Times,
    /// It is not doubted before.
    trusted_until: u64,
    /// Reads since the level is doubted or tried.
    reads: u32,
    pause_us: u64,
    /// When it was used again last.
    used_at: u64,
}

impl Worth {
    pub(crate) fn new() -> Worth {
        let (times, instead) = (Times::default(), Times::default());
        Worth { state: State::Used, times, instead, trusted_until: 0, reads: 0, pause_us: FIRST_PAUSE_US, used_at: 0 }
    }

    /// Whether the next read goes to the level.
    pub(crate) fn takes_read(&mut self, now: u64) -> bool {
        if let State::Out { until } = self.state
            && now >= until
        {
            (self.state, self.times, self.instead, self.reads) = (State::Tried, Times::default(), Times::default(), 0);
        }
        self.reads = self.reads.wrapping_add(1);
        match self.state {
            State::Used => true,
            State::Doubted => !self.reads.is_multiple_of(ONE_OF),
            State::Out { .. } => false,
            State::Tried => self.reads.is_multiple_of(ONE_OF),
        }
    }

    /// Whether blocks are stored in the level.
    pub(crate) fn takes_stores(&self) -> bool {
        !matches!(self.state, State::Out { .. })
    }

    /// Notes the time of a read from the level.
    pub(crate) fn note(&mut self, us: u64) {
        self.times.note(us);
    }

    /// Notes the time of a read at home of blocks that the level has.
    pub(crate) fn note_instead(&mut self, us: u64) {
        self.instead.note(us);
    }

    /// Looks at what was measured. `home` are the times at the devices of the volume. Returns whether the level is left out from now
    /// on, or used again: for how long it is left out, and the times of both.
    pub(crate) fn judge(&mut self, home: &Times, now: u64) -> Option<(u64, u64, u64)> {
        let level_us = self.times.median()?;
        let most_us = |home_us: u64| TIMES_HOME * home_us + MARGIN_US;
        let is_slower = |home_us: u64| level_us > most_us(home_us);
        match self.state {
            State::Used => {
                if now >= self.trusted_until && self.times.tells() && is_slower(home.mean().unwrap_or(0)) {
                    (self.state, self.instead, self.reads) = (State::Doubted, Times::default(), 0);
                }
                None
            }
            State::Doubted if self.instead.count >= FEW => {
                let home_us = self.instead.mean()?;
                if !is_slower(home_us) {
                    (self.state, self.trusted_until) = (State::Used, now + FIRST_PAUSE_US);
                    return None;
                }
                if now.saturating_sub(self.used_at) > MOST_PAUSE_US {
                    self.pause_us = FIRST_PAUSE_US;
                }
                self.leave_out(level_us, home_us, now)
            }
            State::Tried if self.times.count >= FEW => {
                let home_us = if self.instead.count >= FEW { self.instead.mean() } else { home.mean() }?;
                self.pause_us = (2 * self.pause_us).min(MOST_PAUSE_US);
                if 4 * level_us > 3 * most_us(home_us) {
                    return self.leave_out(level_us, home_us, now);
                }
                (self.state, self.used_at) = (State::Used, now);
                Some((0, level_us, home_us))
            }
            State::Doubted | State::Tried | State::Out { .. } => None,
        }
    }

    fn leave_out(&mut self, level_us: u64, home_us: u64, now: u64) -> Option<(u64, u64, u64)> {
        self.state = State::Out { until: now + self.pause_us };
        Some((self.pause_us, level_us, home_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads, one after the other, of blocks that the level has. Returns those that went there, and what was judged.
    fn reads(
        worth: &mut Worth,
        home: &mut Times,
        now: &mut u64,
        count: u32,
        level_us: u64,
        home_us: u64,
    ) -> (u32, Vec<u64>) {
        let (mut there, mut judged) = (0, Vec::new());
        for _ in 0..count {
            let us = if worth.takes_read(*now) {
                there += 1;
                worth.note(level_us);
                level_us
            } else {
                home.note(home_us);
                worth.note_instead(home_us);
                home_us
            };
            *now += us;
            judged.extend(worth.judge(home, *now).map(|(for_us, ..)| for_us));
        }
        (there, judged)
    }

    #[test]
    fn slow_7_levels_are_left_out_and_tried() {
        let (mut worth, mut home, mut now) = (Worth::new(), Times::default(), 0);
        (0..32).for_each(|_| home.note(400));
        assert_eq!(reads(&mut worth, &mut home, &mut now, 100, 2100, 400), (100, vec![]), "not by much");
        // 32 of them, and then 56 until 8 went home.
        let (there, judged) = reads(&mut worth, &mut home, &mut now, 120, 50_000, 400);
        assert_eq!(judged, [FIRST_PAUSE_US]);
        assert!((50..100).contains(&there), "{there}");
        assert_eq!(reads(&mut worth, &mut home, &mut now, 1000, 50_000, 400), (0, vec![]));
        assert!(!worth.takes_stores());
        now += FIRST_PAUSE_US;
        assert_eq!(reads(&mut worth, &mut home, &mut now, 1, 50_000, 400), (0, vec![]));
        assert!(worth.takes_stores());
        assert_eq!(reads(&mut worth, &mut home, &mut now, 1000, 50_000, 400), (8, vec![2 * FIRST_PAUSE_US]));
        now += 2 * FIRST_PAUSE_US;
        let (there, judged) = reads(&mut worth, &mut home, &mut now, 1000, 300, 400);
        assert_eq!((there, judged), (1000 - 56, vec![0]), "as soon as 8 were fast");
    }

    #[test]
    fn slow_7_a_disk_that_became_slow_is_measured_anew() {
        let (mut worth, mut home, mut now) = (Worth::new(), Times::default(), 0);
        (0..32).for_each(|_| home.note(400));
        let (there, judged) = reads(&mut worth, &mut home, &mut now, 500, 12_000, 4_000);
        assert_eq!((there, judged), (500 - 8, vec![]));
    }

    /// A disk reads sequences that the level has, too: in a burst, both have a queue, and the disk answers most from its memory.
    #[test]
    fn a_level_is_compared_with_all_that_a_sequence_takes() {
        let (mut worth, mut home, mut now) = (Worth::new(), Times::default(), 0);
        (0..32).for_each(|_| home.note(60));
        let sequence = [6_165, 250, 734, 5_243, 57, 57, 57, 57];
        let (mut there, mut at) = (0, 0);
        for _ in 0..500 {
            if worth.takes_read(now) {
                there += 1;
                worth.note(1_850);
            } else {
                worth.note_instead(sequence[at % 8]);
                home.note(sequence[at % 8]);
                at += 1;
            }
            now += 1_850;
            assert_eq!(worth.judge(&home, now), None);
        }
        assert_eq!(there, 500 - 8, "doubted once in 10 s");
    }

    /// Of a disk in a sequence that the level does not have.
    #[test]
    fn a_level_is_not_compared_with_reads_of_other_blocks() {
        let (mut worth, mut home, mut now) = (Worth::new(), Times::default(), 0);
        let mut there = 0;
        for _ in 0..1000 {
            let takes = worth.takes_read(now);
            there += u32::from(takes);
            if takes {
                worth.note(1_400)
            } else {
                worth.note_instead(8_000)
            }
            for us in [if takes { 1_400 } else { 8_000 }, 40, 40, 40] {
                if us != 1_400 {
                    home.note(us);
                }
                now += us;
                assert_eq!(worth.judge(&home, now), None);
            }
        }
        assert_eq!(there, 1000 - 8, "doubted once in 10 s");
    }

    #[test]
    fn slow_7_few_reads_that_take_long_are_enough() {
        let (mut worth, mut home, mut now) = (Worth::new(), Times::default(), 0);
        let (there, judged) = reads(&mut worth, &mut home, &mut now, 200, 2_000_000, 100);
        assert_eq!((there, judged), (8 + 56, vec![FIRST_PAUSE_US]));
    }
}
