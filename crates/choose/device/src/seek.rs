//! The seek curve of a disk: `a + b·√d` while the arm speeds up, then linear at the same slope.

/// Points of the quadrature over distances. The integrand is smooth in √d, so few suffice.
const POINTS: u32 = 512;

/// Time of a seek by its distance in cylinders.
#[derive(Clone, Debug, PartialEq)]
pub struct SeekCurve {
    a_ms: f64,
    b_ms: f64,
    /// Distance at which the curve becomes linear, in cylinders.
    bend: f64,
}

impl SeekCurve {
    /// The curve with this bend, from a distance of one to the longest distance.
    fn bent_at(bend: f64, next_ms: f64, full_ms: f64, cylinders: u32) -> SeekCurve {
        // The curve's value at the longest distance is linear in `b`, and `a = next - b`.
        let (root, longest) = (bend.sqrt(), f64::from(cylinders - 1));
        let b_ms = (full_ms - next_ms) / (root - 1.0 + (longest - bend) / (2.0 * root));
        SeekCurve { a_ms: next_ms - b_ms, b_ms, bend }
    }

    /// The least and the greatest average of a curve between the two other figures: nearly straight, and square root
    /// only.
    pub(crate) fn averages_ms(next_ms: f64, full_ms: f64, cylinders: u32) -> (f64, f64) {
        let average = |bend| SeekCurve::bent_at(bend, next_ms, full_ms, cylinders).average_ms(cylinders);
        (average(1.0), average(f64::from(cylinders - 1)))
    }

    /// The curve through three published figures of a disk with this many cylinders (at least 3): the seek to the next
    /// cylinder, the average over all pairs of different cylinders, and the seek across all of them.
    ///
    /// # Errors
    /// The least and the greatest average that such a curve can have between the two other figures.
    pub fn through(next_ms: f64, average_ms: f64, full_ms: f64, cylinders: u32) -> Result<SeekCurve, (f64, f64)> {
        let possible = SeekCurve::averages_ms(next_ms, full_ms, cylinders);
        // If all three are equal, rounding must not cause an error.
        let slack = full_ms * 1e-9;
        if !(possible.0 - slack..=possible.1 + slack).contains(&average_ms) {
            return Err(possible);
        }
        // The later it bends, the more it bulges above the chord, and the greater is the average.
        let (mut low, mut high) = (1.0, f64::from(cylinders - 1));
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            match SeekCurve::bent_at(middle, next_ms, full_ms, cylinders).average_ms(cylinders) < average_ms {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(SeekCurve::bent_at(low, next_ms, full_ms, cylinders))
    }

    /// The curve of a disk with `after` cylinders instead of `before` and the same three figures.
    pub(crate) fn stretched(&self, before: u32, after: u32) -> SeekCurve {
        let (next_ms, full_ms) = (self.ms(1), self.ms(before - 1));
        // The possible averages of such a curve depend slightly on the number of cylinders.
        let (least, most) = SeekCurve::averages_ms(next_ms, full_ms, after);
        let average_ms = self.average_ms(before).clamp(least, most.max(least));
        SeekCurve::through(next_ms, average_ms, full_ms, after).expect("the average lies between its limits")
    }

    /// The curve that best fits seeks over these numbers of cylinders that took these milliseconds; flat if there are
    /// none.
    pub(crate) fn fitted(seeks: &[(f64, f64)], cylinders: u32) -> SeekCurve {
        let longest = f64::from(cylinders - 1).max(2.0);
        let mut best = (f64::INFINITY, SeekCurve { a_ms: 0.0, b_ms: 0.0, bend: longest });
        for step in (1..64).filter(|_| !seeks.is_empty()) {
            // For a given bend the curve is a line over its own shape: least squares.
            let bend = longest.powf(f64::from(step) / 64.0);
            let shape = SeekCurve { a_ms: 0.0, b_ms: 1.0, bend };
            let count = seeks.len() as f64;
            let mean = |of: &dyn Fn(&(f64, f64)) -> f64| seeks.iter().map(of).sum::<f64>() / count;
            let (x, y) = (mean(&|seek| shape.at(seek.0)), mean(&|seek| seek.1));
            let xx = mean(&|seek| (shape.at(seek.0) - x).powi(2));
            let xy = mean(&|seek| (shape.at(seek.0) - x) * (seek.1 - y));
            let b_ms = if xx > 0.0 { (xy / xx).max(0.0) } else { 0.0 };
            let curve = SeekCurve { a_ms: y - b_ms * x, b_ms, bend };
            let error = mean(&|seek| (curve.at(seek.0) - seek.1).powi(2));
            if error < best.0 {
                best = (error, curve);
            }
        }
        best.1
    }

    /// Time to move by `cylinders`, in milliseconds.
    pub fn ms(&self, cylinders: u32) -> f64 {
        if cylinders == 0 { 0.0 } else { self.at(f64::from(cylinders)) }
    }

    fn at(&self, distance: f64) -> f64 {
        let root = distance.min(self.bend).sqrt();
        let beyond = (distance - self.bend).max(0.0);
        self.a_ms + self.b_ms * (root + beyond / (2.0 * self.bend.sqrt()))
    }

    /// Mean over all pairs of different cylinders: of `n` cylinders, `n - d` pairs are `d` apart.
    pub fn average_ms(&self, cylinders: u32) -> f64 {
        let longest = f64::from(cylinders - 1);
        let (mut sum, mut weights) = (0.0, 0.0);
        for point in 0..POINTS {
            // Midpoints in the square root of the distance, from 1 to the longest.
            let root = 1.0 + (longest.sqrt() - 1.0) * (f64::from(point) + 0.5) / f64::from(POINTS);
            let weight = root * (longest + 1.0 - root * root);
            sum += weight * self.at(root * root);
            weights += weight;
        }
        sum / weights
    }
}
