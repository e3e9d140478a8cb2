//! Memory for long replies that serves again: from the system, each of its pages costs a fault.

use std::sync::Mutex;

use crate::sync::lock;

/// Shorter ones are not given back to the system at once.
const SHORTEST: usize = 128 << 10;
const LONGEST: usize = 2 << 20;
/// The most memory that is kept.
const KEPT: usize = 4 << 20;

/// Memory that was used for replies.
#[derive(Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Memory of this length. It may contain what other replies contained.
    pub fn take(&self, length: usize) -> Vec<u8> {
        if (SHORTEST..=LONGEST).contains(&length) {
            let mut kept = lock(&self.0);
            if let Some(at) = kept.iter().position(|buffer| buffer.capacity() >= length) {
                let mut buffer = kept.swap_remove(at);
                drop(kept);
                buffer.resize(length, 0);
                return buffer;
            }
        }
        vec![0; length]
    }

    /// `buffer` is not needed any more.
    pub fn give(&self, buffer: Vec<u8>) {
        if !(SHORTEST..=LONGEST).contains(&buffer.capacity()) {
            return;
        }
        let mut kept = lock(&self.0);
        if kept.iter().map(Vec::capacity).sum::<usize>() + buffer.capacity() <= KEPT {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_serves_again_up_to_a_limit() {
        let buffers = Buffers::default();
        let all: Vec<Vec<u8>> = (0..6).map(|_| buffers.take(1 << 20)).collect();
        let first = all[0].as_ptr();
        all.into_iter().for_each(|buffer| buffers.give(buffer));
        assert_eq!(lock(&buffers.0).len(), 4);
        let again = buffers.take(200 << 10);
        assert_eq!((again.as_ptr(), again.len()), (first, 200 << 10));
        buffers.give(vec![0; 32 << 20]);
        assert_eq!(lock(&buffers.0).len(), 3);
    }
}
