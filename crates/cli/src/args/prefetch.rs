//! How predicted blocks are prefetched, as flags and files write it.

use std::fmt;
use std::str::FromStr;

use nigh_service::HostSettings;

/// How the blocks that tenants predict are prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefetchArg {
    /// Most blocks at a time.
    pub(crate) batch: u32,
    /// Most blocks of a tenant that are prefetched and not used; 0 for no limit.
    pub(crate) window: u32,
    /// Whether single blocks are prefetched where batches do not save time.
    pub(crate) adapts: bool,
}

impl PrefetchArg {
    const BATCH_MAX: u32 = 4096;
}

impl Default for PrefetchArg {
    fn default() -> PrefetchArg {
        PrefetchArg { batch: HostSettings::BATCH, window: HostSettings::PREFETCH_WINDOW, adapts: false }
    }
}

impl FromStr for PrefetchArg {
    type Err = String;

    /// `batch=BLOCKS`, `window=BLOCKS` and `adapt`, separated by commas; those that are absent have their defaults.
    fn from_str(text: &str) -> Result<PrefetchArg, String> {
        let mut found = PrefetchArg::default();
        for part in text.split(',') {
            let wrong = || {
                let most = PrefetchArg::BATCH_MAX;
                format!("'{part}': expected batch=BLOCKS from 1 to {most}, window=BLOCKS or adapt, separated by commas")
            };
            let number = |text: &str| text.parse::<u32>().ok();
            match part.split_once('=') {
                Some(("batch", text)) => {
                    let batch = number(text).filter(|batch| (1..=PrefetchArg::BATCH_MAX).contains(batch));
                    found.batch = batch.ok_or_else(wrong)?;
                }
                Some(("window", text)) => found.window = number(text).ok_or_else(wrong)?,
                None if part == "adapt" => found.adapts = true,
                _ => return Err(wrong()),
            }
        }
        Ok(found)
    }
}

impl fmt::Display for PrefetchArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrefetchArg { batch, window, adapts } = self;
        write!(f, "batch={batch},window={window}{}", if *adapts { ",adapt" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_printed_as_it_is_read() {
        for text in ["batch=64,window=0,adapt", "batch=1,window=4096"] {
            assert_eq!(text.parse::<PrefetchArg>().unwrap().to_string(), text);
        }
        assert_eq!("adapt".parse(), Ok(PrefetchArg { adapts: true, ..PrefetchArg::default() }));
        for text in ["", "batch=0", "batch=4097", "window=-1", "adapt=1", "batch=1;adapt"] {
            assert!(text.parse::<PrefetchArg>().is_err(), "{text}");
        }
    }
}
