//! Hints of tenants, each about the files of one of their disks.

use std::sync::Arc;

use nigh_control::Directive;

use crate::common::Common;
use crate::disk::Disk;
use crate::error::{ChangeError, HintError};
use crate::extent::FileExtent;

impl Common {
    pub(crate) fn hinted<R>(
        &self,
        name: &str,
        hint: impl FnOnce(&Arc<Disk>) -> Result<R, HintError>,
    ) -> Result<R, ChangeError> {
        let disk = self.find(name)?;
        let hinted = if self.cache.has_tenants() { hint(&disk) } else { Err(HintError::NoTenants) };
        hinted.map_err(|error| error.of(name))
    }

    /// Applies a directive.
    pub(crate) fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.hinted(name, |disk| self.cache.direct(disk, directive))
    }

    /// From now on `extents` are the files of a disk. Earlier hints for its files are forgotten.
    pub(crate) fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.hinted(name, |disk| self.cache.name_files(disk, extents))
    }
}
