//! What is said of an export whose clients are a tenant: directives, and which parts of its disk are files.
//!
//! To whom it is said a file has the number that a user gives it, below 2^16; the engine's is unique among all exports.

use nigh_control::sidecar::{self, SidecarError};
use nigh_control::{Directive, Event, Refusal, Saying, When};
use nigh_engine::{ConfigError, Piece, Volume};
use nigh_policy::Tenant;
use serde::{Deserialize, Serialize};

use crate::admin::ChangeError;
use crate::cache::Cache;
use crate::disk::Disk;
use crate::metrics::TenantStatistics;
use crate::server::Common;
use crate::settings::BLOCK;

/// Files of an export are numbered below this.
const FILES_MAX: u32 = 1 << 16;

/// A part of a file that lies on the disk in one piece. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileExtent {
    /// Which file; below 65,536.
    pub file: u32,
    /// Where it begins in the file; a multiple of 4096.
    pub offset: u64,
    /// Where it begins on the disk; a multiple of 4096.
    pub disk: u64,
    /// How long it is; not 0.
    pub length: u64,
}

/// Why something cannot be said.
#[derive(Debug, thiserror::Error)]
pub enum HintError {
    /// Nobody shares the cache.
    #[error("the server was started without an allocation, so that nobody is heard")]
    NoTenants,
    /// It is about a file that the export does not have.
    #[error("there is no file {0}")]
    NoFile(u32),
    /// A part of a file has no place on the disk.
    #[error("file {}, offset {}: extents begin at multiples of {BLOCK} and lie on the disk; files are below {FILES_MAX}", .0.file, .0.offset)]
    BadExtent(FileExtent),
    /// Parts of files overlap.
    #[error("extents overlap")]
    Overlap,
    /// It goes beyond a limit, or is not possible.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The words are not understood.
    #[error(transparent)]
    Form(#[from] SidecarError),
    /// Something is to be said later, or by another.
    #[error("what is said holds for the export from now on: without 'tenant', 'request' and 'time_ns'")]
    NotNow,
}

impl HintError {
    fn of(self, name: &str) -> ChangeError {
        ChangeError::Hint { name: name.to_owned(), source: Box::new(self) }
    }
}

impl Cache {
    /// An export comes, as one file, with the least and the most blocks that it has.
    pub(crate) fn admit(&self, volume: Volume, size: u64, bounds: (u32, u32)) -> Result<(), Refusal> {
        let blocks = size.div_ceil(BLOCK);
        let whole = Piece { volume, disk: 0, file: file(volume, 0), offset: 0, blocks };
        self.tenants(|engine| {
            engine.name_files(tenant(volume), volume, vec![whole]).expect("a file from first to last fits a disk");
            engine.set_bounds(tenant(volume), bounds.0, bounds.1)
        })
    }

    /// What the clients of an export are counted for, where they are a tenant.
    pub(crate) fn tenant(&self, volume: Volume) -> Option<TenantStatistics> {
        if !self.has_tenants {
            return None;
        }
        let told = self.tenants(|engine| (engine.statistics(tenant(volume)), engine.owned(tenant(volume))));
        let (Some(of), Some(owned)) = told else { return None };
        Some(TenantStatistics {
            resident_bytes: u64::from(owned) * BLOCK,
            predicted: of.predicted,
            unpredicted: of.unpredicted,
            skipped: of.skipped,
            lists_dropped: of.lists_dropped,
            overruled: of.overruled,
            mistakes: of.mistakes,
        })
    }

    /// Changes the least and the most blocks that an export has.
    pub(crate) fn set_bounds(&self, volume: Volume, bounds: (u32, u32)) -> Result<(), Refusal> {
        self.tenants(|engine| engine.set_bounds(tenant(volume), bounds.0, bounds.1))
    }
}

fn tenant(volume: Volume) -> Tenant {
    Tenant(volume.0)
}

/// The engine's number of a user's.
fn file(volume: Volume, number: u32) -> u32 {
    volume.0 << 16 | number
}

/// `directive` with other numbers of files.
fn renumbered(
    directive: &Directive,
    mut number: impl FnMut(u32) -> Result<u32, HintError>,
) -> Result<Directive, HintError> {
    let mut directive = directive.clone();
    match &mut directive {
        Directive::SetPriority { file, .. } | Directive::SetTemporaryPriority { file, .. } => *file = number(*file)?,
        Directive::Predict { accesses } => {
            for chunk in accesses {
                chunk.file = number(chunk.file)?;
            }
        }
        Directive::SetPolicy { .. } => {}
    }
    Ok(directive)
}

impl Common {
    fn hear(&self, name: &str, say: impl FnOnce(&Disk) -> Result<(), HintError>) -> Result<(), ChangeError> {
        let disk = self.find(name)?;
        let said = if self.cache.has_tenants { say(&disk) } else { Err(HintError::NoTenants) };
        said.map_err(|error| error.of(name))
    }

    /// Does what is said on behalf of an export's clients.
    pub(crate) fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.hear(name, |disk| {
            let Disk { volume, .. } = *disk;
            self.cache.tenants(|engine| {
                let number = |number| match number < FILES_MAX && engine.has_file(file(volume, number)) {
                    true => Ok(file(volume, number)),
                    false => Err(HintError::NoFile(number)),
                };
                let directive = renumbered(directive, number)?;
                Ok(engine.direct(tenant(volume), &directive)?)
            })
        })
    }

    /// Names files, if there are any, and does what a sidecar of directives says, one after the other; nothing where it is
    /// not understood.
    pub(crate) fn hint_all(&self, name: &str, files: &[FileExtent], text: &str) -> Result<(), ChangeError> {
        let events = sidecar::parse(text).map_err(|error| HintError::from(error).of(name))?;
        if events.iter().any(|event| (event.when, event.tenant) != (When::Request(0), Tenant(0))) {
            return Err(HintError::NotNow.of(name));
        }
        if !files.is_empty() {
            self.name_files(name, files)?;
        }
        for event in events {
            match event.saying {
                Saying::Directive(directive) => self.hint(name, &directive)?,
                Saying::Bounds { floor, ceiling } => self.set(name, |settings| {
                    (settings.floor, settings.ceiling) = (u64::from(floor) * BLOCK, u64::from(ceiling) * BLOCK);
                })?,
            }
        }
        Ok(())
    }

    /// From now on `extents` are the files of an export. What was said of it before is forgotten.
    pub(crate) fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.hear(name, |disk| {
            let size = disk.size().next_multiple_of(BLOCK);
            let is_good = |extent: &FileExtent| {
                let FileExtent { file, offset, disk, length } = *extent;
                let inside = disk.checked_add(length).is_some_and(|end| end <= size);
                let whole = offset % BLOCK == 0 && disk % BLOCK == 0 && offset.checked_add(length).is_some();
                file < FILES_MAX && length > 0 && whole && inside
            };
            if let Some(bad) = extents.iter().find(|extent| !is_good(extent)) {
                return Err(HintError::BadExtent(*bad));
            }
            let Disk { volume, .. } = *disk;
            let piece = |extent: &FileExtent| Piece {
                volume,
                disk: extent.disk / BLOCK,
                file: file(volume, extent.file),
                offset: extent.offset / BLOCK,
                blocks: extent.length.div_ceil(BLOCK),
            };
            let pieces = extents.iter().map(piece).collect();
            let named = self.cache.tenants(|engine| engine.name_files(tenant(volume), volume, pieces));
            named.map_err(|_: ConfigError| HintError::Overlap)
        })
    }

    /// What was said of an export, as far as it holds, as a sidecar.
    pub(crate) fn hints(&self, name: &str) -> Result<String, ChangeError> {
        let mut text = String::new();
        self.hear(name, |disk| {
            let (floor, ceiling) = disk.settings().bounds();
            let said = self.cache.tenants(|engine| engine.said(tenant(disk.volume)));
            let user = |directive: &Directive| renumbered(directive, |number| Ok(number % FILES_MAX));
            let said = said.iter().map(user).collect::<Result<Vec<_>, _>>()?;
            let bounds = ((floor, ceiling) != (0, 0)).then_some(Saying::Bounds { floor, ceiling });
            let event = |saying| Event { when: When::Request(0), tenant: Tenant(0), saying };
            let events: Vec<Event> = said.into_iter().map(Saying::Directive).chain(bounds).map(event).collect();
            text = sidecar::write(&events);
            Ok(())
        })?;
        Ok(text)
    }
}
