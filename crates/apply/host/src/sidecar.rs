//! Hints as text: sidecars of directives.

use nigh_control::{Event, Saying, When, sidecar};
use nigh_policy::Tenant;

use crate::common::Common;
use crate::error::{ChangeError, HintError};
use crate::extent::FileExtent;
use crate::settings::BLOCK;

impl Common {
    /// Names files, if there are any, and applies the directives of a sidecar, one after the other; none of them if the
    /// sidecar is invalid.
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

    /// The hints for a disk that are in effect, as a sidecar.
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
