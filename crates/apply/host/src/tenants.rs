//! Tenants: their disks, their bounds, and the files on their disks.
//!
//! To its user a file has a number below 2^16; the engine's number is unique among all disks.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_control::{Directive, Refusal};
use nigh_engine::{ConfigError, Engine, Piece};
use nigh_policy::Tenant;

use crate::cache::Cache;
use crate::curve::CurveStatistics;
use crate::disk::Disk;
use crate::error::{DiskError, HintError, Poisoned};
use crate::extent::FileExtent;
use crate::settings::{BLOCK, DiskSettings, FILES_MAX};
use crate::statistics::ChoiceStatistics;
use crate::work::Work;

/// The state of a tenant at one moment: its blocks, and the outcome of its hints.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct TenantStatistics {
    /// Its name.
    pub name: String,
    /// The names of its disks.
    pub disks: Vec<String>,
    /// Bytes that it always keeps.
    pub floor: u64,
    /// The most bytes of the full cache that it can have; 0 for no limit.
    pub ceiling: u64,
    /// The most bytes that it can have of the full cache at present, if the allocation gives it a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
    /// The policy that chooses among its blocks, unless its hints chose another one.
    pub policy: String,
    /// Memory of blocks that it owns and no other tenant uses.
    pub resident_bytes: u64,
    /// References that its list predicted.
    pub predicted: u64,
    /// References that it did not predict.
    pub unpredicted: u64,
    /// Predicted accesses that did not happen.
    pub skipped: u64,
    /// Lists that were dropped because they were too often wrong.
    pub lists_dropped: u64,
    /// Blocks that it lost instead of the one that LRU would have taken.
    pub overruled: u64,
    /// Of these, blocks that it referenced before that one.
    pub mistakes: u64,
    /// The choice of a policy that chooses among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChoiceStatistics>,
    /// The hit ratio with less and with more memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveStatistics>,
}

/// Gives all disks of each tenant the floor, the ceiling and the policy of those that have one. An error if two of them differ.
pub fn agree_in_tenants<'a>(disks: impl IntoIterator<Item = &'a mut DiskSettings>) -> Result<(), DiskError> {
    let mut tenants: BTreeMap<String, Vec<&mut DiskSettings>> = BTreeMap::new();
    for disk in disks {
        tenants.entry(disk.tenant().to_owned()).or_default().push(disk);
    }
    for (tenant, members) in &mut tenants {
        let bound = |bytes| Some(bytes).filter(|&bytes| bytes > 0);
        let floor = agreed(tenant, members, "floor", |disk| bound(disk.floor))?;
        let ceiling = agreed(tenant, members, "ceiling", |disk| bound(disk.ceiling))?;
        let policy = agreed(tenant, members, "policy", |disk| disk.policy.clone())?;
        for disk in members {
            (disk.floor, disk.ceiling) = (floor.unwrap_or(0), ceiling.unwrap_or(0));
            disk.policy.clone_from(&policy);
        }
    }
    Ok(())
}

/// The setting that disks of `tenant` have, if any of them has it.
fn agreed<T: PartialEq>(
    tenant: &str,
    disks: &[&mut DiskSettings],
    what: &'static str,
    setting: impl Fn(&DiskSettings) -> Option<T>,
) -> Result<Option<T>, DiskError> {
    let mut given = disks.iter().filter_map(|disk| Some((&disk.name, setting(disk)?)));
    let Some((first, value)) = given.next() else { return Ok(None) };
    match given.find(|(_, other)| *other != value) {
        Some((other, _)) => {
            Err(DiskError::Disagree { tenant: tenant.to_owned(), disks: [first.clone(), other.clone()], what })
        }
        None => Ok(Some(value)),
    }
}

impl Cache {
    /// Calls the engine of the tenants, and does the resulting work.
    ///
    /// # Panics
    /// If there are no tenants.
    fn tenants<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Result<R, Poisoned> {
        assert!(self.has_tenants() && self.shards() == 1);
        let mut work = Work::default();
        let result = self.with(0, &mut work, |core, _| call(&mut core.engine));
        self.dispatch(&mut work, None);
        result
    }

    /// A disk that was opened is one file of its tenant.
    pub(crate) fn name_whole(&self, disk: &Disk, size: u64) -> Result<(), Poisoned> {
        let whole =
            Piece { volume: disk.volume, disk: 0, file: file(disk, 0), offset: 0, blocks: size.div_ceil(BLOCK) };
        self.tenants(|engine| {
            let named = engine.name_files(disk.tenant, disk.volume, vec![whole]);
            named.expect("a file from first to last fits a disk");
        })
    }

    /// A disk was closed: hints of its tenant about its files are forgotten.
    pub(crate) fn forget_files(&self, disk: &Disk) -> Result<(), Poisoned> {
        self.tenants(|engine| {
            let named = engine.name_files(disk.tenant, disk.volume, Vec::new());
            named.expect("a disk without files is possible");
        })
    }

    /// A tenant leaves with its last disk.
    pub(crate) fn close_tenant(&self, tenant: Tenant) -> Result<(), Poisoned> {
        self.tenants(|engine| engine.close_tenant(tenant))
    }

    /// The tenants, in the order of their first disks that are not hidden.
    pub(crate) fn tenant_statistics(&self) -> Vec<TenantStatistics> {
        if !self.has_tenants() {
            return Vec::new();
        }
        let mut tenants: Vec<(Tenant, Vec<Arc<Disk>>)> = Vec::new();
        let mut places = BTreeMap::new();
        for disk in self.disks.all().into_iter().filter(|disk| !disk.is_hidden()) {
            let place = *places.entry(disk.tenant).or_insert(tenants.len());
            if place == tenants.len() {
                tenants.push((disk.tenant, Vec::new()));
            }
            tenants[place].1.push(disk);
        }
        tenants.into_iter().filter_map(|(tenant, disks)| self.statistics_of(tenant, &disks)).collect()
    }

    fn statistics_of(&self, tenant: Tenant, disks: &[Arc<Disk>]) -> Option<TenantStatistics> {
        let read = |engine: &mut Engine| {
            let (of, owned, policy) = (engine.statistics(tenant), engine.owned(tenant), engine.policy_of(tenant));
            (of, owned, policy, engine.chosen(tenant), engine.curve(tenant), engine.share_of(tenant))
        };
        let (of, owned, policy, chosen, curve, share) = self.tenants(read).ok()?;
        let (of, settings) = (of?, disks.first()?.settings());
        Some(TenantStatistics {
            name: settings.tenant().to_owned(),
            disks: disks.iter().map(|disk| disk.name().to_owned()).collect(),
            floor: settings.floor,
            ceiling: settings.ceiling,
            share: share.map(|blocks| u64::from(blocks) * BLOCK),
            policy: policy?,
            resident_bytes: u64::from(owned?) * BLOCK,
            predicted: of.predicted,
            unpredicted: of.unpredicted,
            skipped: of.skipped,
            lists_dropped: of.lists_dropped,
            overruled: of.overruled,
            mistakes: of.mistakes,
            chosen: ChoiceStatistics::of(chosen.as_slice()),
            curve: CurveStatistics::of(curve.into_iter().collect()),
        })
    }

    /// Gives `tenant` the floor, the ceiling and the policy that the settings of one of its disks have.
    pub(crate) fn set_tenant(
        &self,
        tenant: Tenant,
        settings: &DiskSettings,
    ) -> Result<Result<(), DiskError>, Poisoned> {
        let (floor, ceiling) = settings.bounds();
        let set = self.tenants(|engine| {
            settings.policy.iter().try_for_each(|policy| engine.try_out(policy))?;
            engine.set_bounds(tenant, floor, ceiling)?;
            engine.set_policy_of(tenant, settings.policy.as_ref())
        })?;
        Ok(set.map_err(|source: Refusal| DiskError::Tenant { name: settings.name.clone(), source }))
    }

    /// Applies a directive.
    pub(crate) fn direct(&self, disk: &Disk, directive: &Directive) -> Result<(), HintError> {
        self.tenants(|engine| {
            let number = |number| match number < FILES_MAX && engine.has_file(file(disk, number)) {
                true => Ok(file(disk, number)),
                false => Err(HintError::NoFile(number)),
            };
            let directive = renumbered(directive, number)?;
            Ok(engine.direct(disk.tenant, &directive)?)
        })?
    }

    /// The directives in effect for a disk: those of its tenant about priority levels and about its files.
    pub(crate) fn directives(&self, disk: &Disk) -> Result<Vec<Directive>, HintError> {
        let mut said = self.tenants(|engine| engine.said(disk.tenant))?;
        let is_own = |number: u32| number / FILES_MAX == disk.volume.0;
        said.retain_mut(|directive| match directive {
            Directive::SetPriority { file, .. } | Directive::SetTemporaryPriority { file, .. } => is_own(*file),
            Directive::Predict { accesses } => {
                accesses.retain(|chunk| is_own(chunk.file));
                !accesses.is_empty()
            }
            Directive::SetPolicy { .. } => true,
        });
        said.iter().map(|directive| renumbered(directive, |number| Ok(number % FILES_MAX))).collect()
    }

    /// From now on `extents` are the files of a disk. Hints about its previous files are forgotten.
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
        let named = self.tenants(|engine| engine.name_files(disk.tenant, volume, pieces))?;
        named.map_err(|_: ConfigError| HintError::Overlap)
    }
}

/// The engine's number for a user's file number.
fn file(disk: &Disk, number: u32) -> u32 {
    disk.volume.0 << 16 | number
}

/// `directive` with the file numbers translated.
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
