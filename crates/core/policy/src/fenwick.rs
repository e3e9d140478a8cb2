//! Sums of the first entries of an array that changes (Fenwick 1994).

/// An array of numbers whose sum is at most `u32::MAX`.
pub(crate) struct Fenwick {
    /// The entry `i` is the sum of the `i & -i` numbers that end with number `i`, counted from 1.
    sums: Vec<u32>,
}

impl Fenwick {
    /// These numbers.
    pub(crate) fn new(numbers: impl IntoIterator<Item = u32>) -> Fenwick {
        let mut sums = vec![0];
        sums.extend(numbers);
        for at in 1..sums.len() {
            let parent = at + (at & at.wrapping_neg());
            if parent < sums.len() {
                sums[parent] += sums[at];
            }
        }
        Fenwick { sums }
    }

    /// Adds `more` to the number `at`.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, more: u32) {
        self.change(at, more);
    }

    /// Takes `less` from the number `at`.
    #[inline]
    pub(crate) fn subtract(&mut self, at: usize, less: u32) {
        self.change(at, less.wrapping_neg());
    }

    #[inline]
    fn change(&mut self, at: usize, by: u32) {
        let mut at = at + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the numbers before `at`.
    #[inline]
    pub(crate) fn before(&self, mut at: usize) -> u32 {
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }

    /// The place at which the sum of the numbers up to it first exceeds `sum`, which is less than that of all.
    pub(crate) fn exceeds(&self, mut sum: u32) -> usize {
        let (mut at, mut step) = (0, self.sums.len().next_power_of_two() / 2);
        while step > 0 {
            if let Some(&next) = self.sums.get(at + step)
                && next <= sum
            {
                at += step;
                sum -= next;
            }
            step /= 2;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_numbers() {
        for len in 1..70 {
            let mut numbers: Vec<u32> = (0..len).map(|at| at * 7 % 5).collect();
            let mut fenwick = Fenwick::new(numbers.iter().copied());
            for step in 0..200 {
                let at = (step * 31 % len) as usize;
                if step % 3 == 0 && numbers[at] > 0 {
                    numbers[at] -= 1;
                    fenwick.subtract(at, 1);
                } else {
                    numbers[at] += step % 4;
                    fenwick.add(at, step % 4);
                }
                let sum: u32 = numbers[..at].iter().sum();
                assert_eq!(fenwick.before(at), sum);
                for (inside, expected) in [(sum, Some(at).filter(|_| numbers[at] > 0)), (sum + numbers[at], None)] {
                    if let Some(expected) = expected {
                        assert_eq!(fenwick.exceeds(inside), expected);
                    } else if inside < numbers.iter().sum() {
                        let after = numbers.iter().scan(0, |sum, number| {
                            *sum += number;
                            Some(*sum)
                        });
                        assert_eq!(Some(fenwick.exceeds(inside)), after.into_iter().position(|sum| sum > inside));
                    }
                }
            }
        }
    }
}
