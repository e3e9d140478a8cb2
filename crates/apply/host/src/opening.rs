//! The start of a host opens its disks at the same time: one whose device does not respond delays no other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::admin::Opened;
use crate::common::Common;
use crate::disk::Disk;
use crate::error::{ChangeError, DiskError};
use crate::settings::DiskSettings;

/// After an error, how long the others are waited for.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// The targets of a disk, by its number.
type Result = (usize, std::result::Result<Vec<Opened>, DiskError>);

/// Disks whose targets could not be opened in time.
pub struct Late {
    common: Arc<Common>,
    /// By number; `None` if they are open.
    disks: Vec<Option<DiskSettings>>,
    results: Receiver<Result>,
}

impl Late {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.disks.iter().flatten().map(|settings| settings.name.as_str())
    }

    /// Waits until the targets of a disk are open, or cannot be opened, and opens the disk; `None` if there is none left.
    pub fn next_disk(&mut self) -> Option<(String, std::result::Result<Arc<Disk>, ChangeError>)> {
        let (at, opened) = self.results.recv().ok()?;
        let settings = self.disks[at].take()?;
        let name = settings.name.clone();
        let opened = opened.map_err(ChangeError::from);
        Some((name, opened.and_then(|opened| self.common.add_in_use(settings, opened))))
    }
}

impl Common {
    /// Opens the first disks, before the host is in use. Those whose targets are not open within `limit` are returned.
    pub(crate) fn open_first(
        self: &Arc<Self>,
        disks: Vec<DiskSettings>,
        limit: Option<Duration>,
    ) -> std::result::Result<Late, DiskError> {
        let (sender, results) = channel();
        let mut threads = Vec::new();
        let all: Arc<[DiskSettings]> = disks.clone().into();
        for (at, settings) in disks.iter().enumerate() {
            let (common, of, results, others) = (self.clone(), settings.clone(), sender.clone(), all.clone());
            // Nobody waits any more if another one could not be opened.
            let run = move || _ = results.send((at, common.open_targets(&of, &others)));
            let thread = Builder::new().name("opening".into()).spawn(run).ok();
            if thread.is_none() {
                let _ = sender.send((at, self.open_targets(settings, &all)));
            }
            threads.push(thread);
        }
        drop(sender);
        let mut until = limit.map(|limit| Instant::now() + limit);
        let mut opened: Vec<Option<Result>> = disks.iter().map(|_| None).collect();
        let mut left = disks.len();
        while left > 0 {
            let result = match until {
                None => results.recv().ok(),
                Some(until) => results.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
            };
            let Some(result) = result else { break };
            let at = result.0;
            if result.1.is_err() {
                let soon = Instant::now() + AFTER_ERROR;
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
            // It has nothing left to do.
            let _ = threads[at].take().map(|thread| thread.join());
            opened[at] = Some(result);
            left -= 1;
        }
        let mut late = Late { common: self.clone(), disks: disks.into_iter().map(Some).collect(), results };
        let opened: Vec<(usize, Vec<Opened>)> = opened
            .into_iter()
            .flatten()
            .map(|(at, opened)| Ok((at, opened?)))
            .collect::<std::result::Result<_, DiskError>>()?;
        for (at, opened) in opened {
            let settings = late.disks[at].take().expect("it is opened once");
            self.add_opened(settings, opened)?;
        }
        Ok(late)
    }
}
