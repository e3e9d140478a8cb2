//! One stream under the rules of Linux's on-demand read-ahead; see this crate's README for their source.

use std::ops::Range;

/// The window of a stream, in blocks. Blocks before the marker are being read, those from the marker on are ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    size: u64,
    /// The number of blocks of `size` that are ahead; at least 1.
    ahead: u64,
}

/// The size of a first window, for a request of `blocks` (`get_init_ra_size`).
fn first_size(blocks: u64, most: u64) -> u64 {
    let size = blocks.next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// The size of the window after one of `size` (`get_next_ra_size`).
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        4 * size
    } else if size <= most / 2 {
        2 * size
    } else {
        most
    }
}

impl Window {
    /// The first window of a stream, for a miss of `request`; it extends at least to the end of the request.
    pub(crate) fn begin(request: &Range<u64>, most: u64) -> Window {
        let blocks = request.end - request.start;
        let size = first_size(blocks, most);
        let ahead = if size > blocks { size - blocks } else { size };
        let mut window = Window { start: request.start, size, ahead };
        window.lengthen_at(request.start, most);
        window.reach(request.end, most);
        window
    }

    /// The first window for a miss of `request` behind `cached` blocks without a gap. It is twice as long if they are
    /// cached from the beginning of the file. Its last block is the marker.
    pub(crate) fn after(cached: u64, request: &Range<u64>, most: u64) -> Window {
        let history = if cached == request.start { 2 * cached } else { cached };
        let size = (history + request.end - request.start).min(most);
        let mut window = Window { start: request.start, size, ahead: 1 };
        window.reach(request.end, most);
        window
    }

    /// The window of one-block look-ahead after a request that ended at `block`.
    pub(crate) fn one(block: u64) -> Window {
        Window { start: block, size: 1, ahead: 1 }
    }

    /// The first block after the window.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size
    }

    /// The first block that is ahead: a reference to it triggers the next window.
    pub(crate) fn marker(&self) -> u64 {
        self.end() - self.ahead
    }

    /// Moves to the next window, because of a reference to `block`.
    pub(crate) fn advance(&mut self, block: u64, most: u64) {
        self.start = self.end();
        self.size = next_size(self.size, most);
        self.ahead = self.size;
        self.lengthen_at(block, most);
    }

    /// If all of a window is ahead, its marker is its first block. If that is `block`, which has just been referenced,
    /// the next window is appended to this one.
    fn lengthen_at(&mut self, block: u64, most: u64) {
        if block == self.start && self.size == self.ahead {
            let more = next_size(self.size, most);
            if self.size + more <= most {
                self.ahead = more;
                self.size += more;
            } else {
                self.size = most;
                self.ahead = (most / 2).max(1);
            }
        }
    }

    /// Moves on until the blocks before `end` are no longer ahead: a request of this length finds its next window after
    /// it.
    pub(crate) fn reach(&mut self, end: u64, most: u64) {
        while self.marker() < end {
            let at = self.marker();
            self.advance(at, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the usual 32 pages.
    #[test]
    fn sizes_are_the_kernels() {
        let first: Vec<u64> = [1, 2, 3, 4, 8, 9, 16, 32, 64].iter().map(|&blocks| first_size(blocks, 32)).collect();
        assert_eq!(first, [4, 4, 8, 8, 16, 32, 32, 32, 32]);
        let next: Vec<u64> = [1, 2, 4, 8, 16, 17, 32].iter().map(|&size| next_size(size, 32)).collect();
        assert_eq!(next, [4, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn the_smallest_windows_work() {
        for most in 1..9 {
            let mut window = Window::begin(&(10..11), most);
            for _ in 0..20 {
                let marker = window.marker();
                assert!(window.start <= marker && marker < window.end(), "{window:?}");
                window.advance(marker, most);
                assert!(window.size <= most, "{window:?}");
            }
        }
    }
}
