//! Exports that are not served yet, or not any more: their devices have to respond first.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use nigh_host::front::lock;
use serde::{Deserialize, Serialize};

use crate::settings::{ExportSettings, is_for};

/// An export that is being opened or removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PendingExport {
    /// Its name.
    pub name: String,
    /// The operation.
    pub state: PendingState,
    /// For how long, in seconds.
    pub seconds: u64,
}

/// The pending operation on an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PendingState {
    /// Its targets are being opened.
    Opening,
    /// It is being removed: its clients are let go, or its dirty blocks written.
    Removing,
}

/// Exports that are being opened, by name: since when, and their settings.
#[derive(Default)]
pub(crate) struct Opening(Mutex<BTreeMap<String, (Instant, ExportSettings)>>);

impl Opening {
    pub(crate) fn add(&self, settings: ExportSettings) {
        lock(&self.0).insert(settings.disk.name.clone(), (Instant::now(), settings));
    }

    /// The export is open, cannot be opened, or is not wanted any more. Returns its settings, if it was being opened.
    pub(crate) fn take(&self, name: &str) -> Option<ExportSettings> {
        lock(&self.0).remove(name).map(|(_, settings)| settings)
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<PendingExport> {
        let opening = lock(&self.0);
        let pending = opening.iter().map(|(name, (since, _))| PendingExport {
            name: name.clone(),
            state: PendingState::Opening,
            seconds: since.elapsed().as_secs(),
        });
        pending.collect()
    }

    /// The settings of all.
    pub(crate) fn all(&self) -> Vec<ExportSettings> {
        lock(&self.0).values().map(|(_, settings)| settings.clone()).collect()
    }

    /// The settings of the one of this name.
    pub(crate) fn find(&self, name: &str) -> Option<ExportSettings> {
        lock(&self.0).get(name).map(|(_, settings)| settings.clone())
    }

    /// The names of those that clients with a certificate of these names may have.
    pub(crate) fn names_for(&self, names: &[String]) -> Vec<String> {
        let opening = lock(&self.0);
        let those = opening.iter().filter(|(_, (_, settings))| is_for(&settings.clients, names));
        those.map(|(name, _)| name.clone()).collect()
    }
}
