//! The seek curve of a disk: `a + b·√d` while the arm speeds up, then linear at the same slope.

/// Points of the quadrature over distances. The integrand is smooth in √d, so that few suffice.
const POINTS: u32 = 512;

/// Time of a seek by its distance in cylinders.
#[derive(Clone, Debug, PartialEq)]
pub struct SeekCurve {
    a_ms: f64,
    b_ms: f64,
    /// Where the curve becomes linear, in cylinders.
    bend: f64,
}

impl SeekCurve {
    /// The curve through three published figures of a disk of so many cylinders (at least 3): to the next cylinder, on
    /// average over all pairs of different cylinders, and across all of them.
    ///
    /// # Errors
    /// The least and the greatest average that such a curve has between the two other figures.
    pub fn through(next_ms: f64, average_ms: f64, full_ms: f64, cylinders: u32) -> Result<SeekCurve, (f64, f64)> {
        let longest = f64::from(cylinders - 1);
        let bent_at = |bend: f64| {
            // The curve's value at `longest` is linear in `b`, and `a = next - b`.
            let root = bend.sqrt();
            let b_ms = (full_ms - next_ms) / (root - 1.0 + (longest - bend) / (2.0 * root));
            SeekCurve { a_ms: next_ms - b_ms, b_ms, bend }
        };
        // The later it bends, the more it bulges above the chord, and the greater the average.
        let (mut low, mut high) = (1.0, longest);
        let possible = (bent_at(low).average_ms(cylinders), bent_at(high).average_ms(cylinders));
        // Where all three are equal, rounding must not refuse them.
        let slack = full_ms * 1e-9;
        if !(possible.0 - slack..=possible.1 + slack).contains(&average_ms) {
            return Err(possible);
        }
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            match bent_at(middle).average_ms(cylinders) < average_ms {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(bent_at(low))
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
