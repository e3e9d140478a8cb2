//! The identity of the issuing code (section 4.1).

/// The identity of the code with these return addresses, innermost first: their sum, as in section 4.1, where five are
/// enough in most programs. Addresses are tokens that are equal in every run: a module and an offset within it.
///
/// With `depth`, the bytes of stack below the call, calls from different depths have different identities. The paper
/// has no such term. Databases need it: the five innermost frames of SQLite mix 14 % of its reads with those of other
/// contexts, and with the depth none.
pub fn pc(frames: &[u64], depth: Option<u64>) -> u64 {
    let sum = frames.iter().fold(0u64, |sum, &frame| sum.wrapping_add(frame));
    depth.map_or(sum, |depth| sum ^ mix(depth))
}

/// The token of a module, by its name without the folder.
pub fn module_token(name: &[u8]) -> u64 {
    hash(name)
}

/// The token of a return address: `module` is that of its module, and `offset` where it is in it.
pub fn token(module: u64, offset: u64) -> u64 {
    hash(&(module ^ offset).to_le_bytes())
}

/// FNV-1a, with its bits spread: tokens are part of recordings and profiles, so it never changes.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A permutation of 64-bit numbers in which each input bit changes half of the output bits.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_sum_of_the_addresses() {
        assert_eq!(pc(&[5, 7, u64::MAX], None), 11);
        assert_eq!(pc(&[7, 5], None), pc(&[5, 7], None), "a sum does not know the order");
        assert_eq!(pc(&[], None), 0);
    }

    #[test]
    fn the_depth_distinguishes_calls_with_equal_frames() {
        let at = |depth| pc(&[5, 7], Some(depth));
        assert_eq!(at(96), at(96));
        assert_ne!(at(96), at(112));
        assert_ne!(at(96), pc(&[5, 7], None));
    }
}
