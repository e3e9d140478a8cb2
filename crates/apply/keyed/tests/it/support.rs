//! Policies, and hash functions that tests choose.

use std::hash::{BuildHasherDefault, Hasher};

use nigh_policy::{Info, registry};

/// Every policy that works with keys.
pub(crate) fn policies() -> impl Iterator<Item = &'static Info> {
    registry().iter().filter(|info| !info.offline && !info.spatial)
}

/// A whole number is its own hash, modulo `MODULUS` if that is not 0.
#[derive(Default)]
pub(crate) struct Plain<const MODULUS: u64>(u64);

impl<const MODULUS: u64> Hasher for Plain<MODULUS> {
    fn finish(&self) -> u64 {
        self.0.checked_rem(MODULUS).unwrap_or(self.0)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are whole numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Hashes are keys.
pub(crate) type Distinct = BuildHasherDefault<Plain<0>>;
/// Many keys share a hash.
pub(crate) type Colliding = BuildHasherDefault<Plain<5>>;

/// A number that looks random, of at least 40 bits.
pub(crate) fn scattered(key: u64) -> u64 {
    let z = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
}
