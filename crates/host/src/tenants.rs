//! Disks as tenants, and which parts of a disk are files.
//!
//! To its user a file has a number below 2^16; the engine's is unique among all disks.

use nigh_control::{Directive, Refusal};
use nigh_engine::{ConfigError, Engine, Piece};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::{HintError, Poisoned};
use crate::extent::FileExtent;
use crate::settings::{BLOCK, FILES_MAX};
use crate::work::Work;

/// What became of the hints of a tenant.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TenantStatistics {
    /// Memory of blocks that it owns: nobody else uses these.
    pub resident_bytes: u64,
    /// References that its list predicted.
    pub predicted: u64,
    /// References that it did not predict.
    pub unpredicted: u64,
    /// Accesses of a list that did not come.
    pub skipped: u64,
    /// Lists that were dropped because they were too often wrong.
    pub lists_dropped: u64,
    /// Blocks that it gave up instead of the one that LRU would have taken.
    pub overruled: u64,
    /// Of these, blocks that it referenced before that one.
    pub mistakes: u64,
}

impl Cache {
    /// Calls the engine of the tenants, and does what that brings about.
    ///
    /// # Panics
    /// If there are no tenants.
    fn tenants<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Result<R, Poisoned> {
        assert!(self.has_tenants() && self.shards() == 1);
        let mut work = Work::default();
        let result = self.with(0, &mut work, |core, _| call(&mut core.engine));
        self.settle(&mut work, None);
        result
    }

    /// A disk comes, as one file, with the least and the most blocks that it has.
    pub(crate) fn admit(&self, disk: &Disk, size: u64, bounds: (u32, u32)) -> Result<Result<(), Refusal>, Poisoned> {
        let (tenant, volume, blocks) = (disk.tenant(), disk.volume, size.div_ceil(BLOCK));
        let whole = Piece { volume, disk: 0, file: file(disk, 0), offset: 0, blocks };
        self.tenants(|engine| {
            engine.name_files(tenant, volume, vec![whole]).expect("a file from first to last fits a disk");
            engine.set_bounds(tenant, bounds.0, bounds.1)
        })
    }

    /// A disk goes.
    pub(crate) fn close_tenant(&self, disk: &Disk) -> Result<(), Poisoned> {
        self.tenants(|engine| engine.close_tenant(disk.tenant()))
    }

    /// What the users of a disk are counted for, where they are a tenant.
    pub(crate) fn tenant_statistics(&self, disk: &Disk) -> Option<TenantStatistics> {
        if !self.has_tenants() {
            return None;
        }
        let tenant = disk.tenant();
        let (of, owned) = self.tenants(|engine| (engine.statistics(tenant), engine.owned(tenant))).ok()?;
        let of = of?;
        Some(TenantStatistics {
            resident_bytes: u64::from(owned?) * BLOCK,
            predicted: of.predicted,
            unpredicted: of.unpredicted,
            skipped: of.skipped,
            lists_dropped: of.lists_dropped,
            overruled: of.overruled,
            mistakes: of.mistakes,
        })
    }

    /// Changes the least and the most blocks that a disk has.
    pub(crate) fn set_bounds(&self, disk: &Disk, bounds: (u32, u32)) -> Result<Result<(), Refusal>, Poisoned> {
        self.tenants(|engine| engine.set_bounds(disk.tenant(), bounds.0, bounds.1))
    }

    /// Does what a directive says.
    pub(crate) fn direct(&self, disk: &Disk, directive: &Directive) -> Result<(), HintError> {
        self.tenants(|engine| {
            let number = |number| match number < FILES_MAX && engine.has_file(file(disk, number)) {
                true => Ok(file(disk, number)),
                false => Err(HintError::NoFile(number)),
            };
            let directive = renumbered(directive, number)?;
            Ok(engine.direct(disk.tenant(), &directive)?)
        })?
    }

    /// The directives that hold.
    pub(crate) fn directives(&self, disk: &Disk) -> Result<Vec<Directive>, HintError> {
        let said = self.tenants(|engine| engine.said(disk.tenant()))?;
        said.iter().map(|directive| renumbered(directive, |number| Ok(number % FILES_MAX))).collect()
    }

    /// From now on `extents` are the files of a disk. Earlier hints for it are forgotten.
    pub(crate) fn name_files(&self, disk: &Disk, extents: &[FileExtent]) -> Result<(), HintError> {
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
        let volume = disk.volume;
        let piece = |extent: &FileExtent| Piece {
            volume,
            disk: extent.disk / BLOCK,
            file: file(disk, extent.file),
            offset: extent.offset / BLOCK,
            blocks: extent.length.div_ceil(BLOCK),
        };
        let pieces = extents.iter().map(piece).collect();
        let named = self.tenants(|engine| engine.name_files(disk.tenant(), volume, pieces))?;
        named.map_err(|_: ConfigError| HintError::Overlap)
    }
}

/// The engine's number of a user's.
fn file(disk: &Disk, number: u32) -> u32 {
    disk.volume.0 << 16 | number
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
