//! State that the requests of the kernel share.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};
use glob::Pattern;
use nigh_host::front::Disk;
use nigh_host::{Session, Stream};
use nigh_service::Service;
use nigh_service::front::Recorder;

use crate::directory::Directory;
use crate::file::{File, Rules, failed};
use crate::files::Files;
use crate::handle::Handle;
use crate::handles::Handles;
use crate::inodes::{Inodes, Name};
use crate::volume::Volume;

/// State that the requests of the kernel share.
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    pub(crate) name: String,
    pub(crate) disk: Arc<Disk>,
    /// For what concerns no open file.
    pub(crate) session: Session,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) volume: Arc<Volume<File>>,
    pub(crate) inodes: Inodes,
    pub(crate) files: Files,
    pub(crate) handles: Handles<Handle>,
    pub(crate) directories: Handles<Directory>,
    pub(crate) rules: Rules,
    pub(crate) uncached: Vec<Pattern>,
    /// Whether the source has ACLs.
    pub(crate) has_acls: bool,
    /// Whether the source never gives the number of a file to another one without a change of its times.
    pub(crate) keeps_numbers: bool,
    pub(crate) notifier: OnceLock<Notifier>,
    /// Wakes the thread that has the kernel forget files.
    pub(crate) too_many: SyncSender<()>,
    /// Whether the kernel reads and writes files that are not cached by itself.
    pub(crate) passes_through: AtomicBool,
}

impl Shared {
    /// A session for an open file, whose number is that of its requests.
    pub(crate) fn new_session(&self, number: u64) -> io::Result<Session> {
        self.service.host().open_as(&self.name, Stream(number)).map_err(failed)
    }

    /// Has the kernel forget the names of some files. It forgets the files, too, unless they are in use.
    pub(crate) fn shrink(&self) {
        for inode in self.inodes.oldest() {
            let Name { folder, last, .. } = inode.name();
            if let Some(notifier) = self.notifier.get() {
                // It may not know the name any more.
                let _ = notifier.inval_entry(INodeNo(folder), &last);
            }
        }
    }

    /// Has the kernel forget the attributes of a file.
    pub(crate) fn invalidate(&self, number: u64) {
        if let Some(notifier) = self.notifier.get() {
            // It may not know the file any more.
            let _ = notifier.inval_inode(INodeNo(number), -1, 0);
        }
    }
}
