//! Hints of tenants, each about the files of one of their disks.

use std::sync::Arc;

use nigh_control::{Directive, Event, Saying, When, sidecar};
use nigh_policy::Tenant;

use crate::common::Common;
use crate::disk::Disk;
use crate::error::{ChangeError, HintError};
use crate::extent::FileExtent;
use crate::settings::BLOCK;

impl Common {
    fn hinted<R>(&self, name: &str, hint: impl FnOnce(&Arc<Disk>) -> Result<R, HintError>) -> Result<R, ChangeError> {
        let disk = self.find(name)?;
        let hinted = if self.cache.has_tenants() { hint(&disk) } else { Err(HintError::NoTenants) };
        hinted.map_err(|error| error.of(name))
    }

    /// Does what a directive says.
    pub(crate) fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.hinted(name, |disk| self.cache.direct(disk, directive))
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

    /// From now on `extents` are the files of a disk. Earlier hints for its files are forgotten.
    pub(crate) fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.hinted(name, |disk| self.cache.name_files(disk, extents))
    }

    /// The hints for a disk that hold, as a sidecar.
    pub(crate) fn hints(&self, name: &str) -> Result<String, ChangeError> {
        self.hinted(name, |disk| {
            let (floor, ceiling) = disk.settings().bounds();
            let directives = self.cache.directives(disk)?;
            let bounds = ((floor, ceiling) != (0, 0)).then_some(Saying::Bounds { floor, ceiling });
            let event = |saying| Event { when: When::Request(0), tenant: Tenant(0), saying };
            let events = directives.into_iter().map(Saying::Directive).chain(bounds).map(event);
            Ok(sidecar::write(&events.collect::<Vec<Event>>()))
        })
    }
}
