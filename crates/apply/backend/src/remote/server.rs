//! The known state of an NBD server's export, and whether it is still the same.

use nigh_nbd::Features;
use nigh_nbd::client::ExportInfo;

/// An export as its server described it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Bytes.
    pub(super) size: u64,
    pub(super) features: Features,
    /// Longest part of a read or write, in bytes: whole blocks.
    pub(super) payload: u64,
    /// The number of the metadata context `base:allocation`, where the server knows it.
    pub(super) allocation: Option<u32>,
}

impl Server {
    /// The export that was described so, or why it cannot be used for blocks of `block` bytes.
    pub(super) fn new(export: &ExportInfo, allocation: Option<u32>, block: u32) -> Result<Server, String> {
        let (size, minimum, maximum) = (export.size, export.blocks.minimum, export.blocks.maximum);
        if !minimum.is_power_of_two() {
            return Err(format!("its smallest request of {minimum} bytes is not a power of two"));
        }
        if minimum > block {
            return Err(format!("it takes requests of {minimum} bytes and more, and blocks here have {block}"));
        }
        if maximum < block {
            return Err(format!("it takes requests of up to {maximum} bytes, and blocks here have {block}"));
        }
        if !size.is_multiple_of(minimum.into()) {
            return Err(format!(
                "its size of {size} bytes is not a multiple of {minimum}, its smallest request: change the size there"
            ));
        }
        if size > i64::MAX.unsigned_abs() {
            return Err(format!("its size of {size} bytes is beyond 2^63 - 1"));
        }
        let payload = u64::from(maximum / block * block);
        Ok(Server { size, features: export.features, payload, allocation })
    }

    /// Why a server that came back is another one than before; none if it is the same.
    pub(super) fn change(&self, now: &Server) -> Option<String> {
        if now.size != self.size {
            return Some(format!("its size is now {} bytes, and was {}", now.size, self.size));
        }
        let important = |server: &Server| {
            let Features { read_only, flush, fua, trim, write_zeroes, fast_zero, .. } = server.features;
            [
                ("read-only", read_only),
                ("FLUSH", flush),
                ("FUA", fua),
                ("TRIM", trim),
                ("WRITE_ZEROES", write_zeroes),
                ("FAST_ZERO", fast_zero),
            ]
        };
        let mut both = important(self).into_iter().zip(important(now));
        let changed = both.find(|((_, before), (_, now))| before != now);
        changed.map(|((name, before), _)| {
            let (before, now) = if before { ("set", "not set") } else { ("not set", "set") };
            format!("its flag {name} was {before}, and is now {now}")
        })
    }

    /// Whether it may lose what it acknowledged until it flushes that.
    pub(super) fn keeps_unflushed(&self) -> bool {
        self.features.flush
    }

    /// Whether each change asks for stable storage, since the server has no other way to it.
    pub(super) fn fua_always(&self) -> bool {
        self.features.fua && !self.features.flush
    }
}
