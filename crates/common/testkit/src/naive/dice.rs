//! SplitMix64, as published, for models that choose at random.

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The share of the range of 64 bits, of `sides`.
    pub(crate) fn side(&mut self, sides: usize) -> usize {
        (u128::from(self.roll()) * sides as u128 / (1u128 << 64)) as usize
    }
}
