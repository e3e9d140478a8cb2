//! The device of the virtual disk: it reads blocks from the files that have them, and does nothing else.
//!
//! **Invariant:** it never writes. Writes reach the source before the cache gets their bytes, so there is nothing left to write, and a block can
//! neither extend a file nor overwrite what another program wrote beside it.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use nigh_host::{CustomAction, CustomDevice, CustomRequest};
use rustix::io::Errno;

use crate::file::File;
use crate::volume::{BYTES, Volume};

fn read(volume: &Volume<File>, range: &Range<u64>, slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let (file, at) = volume.find(range).ok_or(Errno::STALE)?;
    file.load(at, slices)
}

impl CustomDevice for Volume<File> {
    fn size(&self) -> io::Result<u64> {
        Ok(BYTES)
    }

    fn perform(&self, mut request: CustomRequest) {
        let range = request.range();
        let result = match request.action() {
            CustomAction::Read(mut slices) => read(self, &range, &mut slices),
            CustomAction::Write(_) | CustomAction::Flush | CustomAction::Discard | CustomAction::Zero => Ok(()),
        };
        request.finish(result);
    }
}
