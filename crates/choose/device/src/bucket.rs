//! A token bucket in virtual time.

/// A rate per second, with a burst beyond it after a pause.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_s: f64,
    burst_ns: u64,
    /// The time at which everything admitted so far is paid for at the plain rate.
    paid: u64,
}

impl Bucket {
    pub(crate) fn new(per_s: f64, burst_ms: f64) -> Bucket {
        Bucket { per_s, burst_ns: (burst_ms * 1e6).round() as u64, paid: 0 }
    }

    /// The time, from `now` on, at which `amount` may pass.
    pub(crate) fn admit(&mut self, now: u64, amount: u64) -> u64 {
        let at = now.max(self.paid.saturating_sub(self.burst_ns));
        self.paid = self.paid.max(now) + (amount as f64 / self.per_s * 1e9).round() as u64;
        at
    }
}
