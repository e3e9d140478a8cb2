//! Whether a guest may go on after its server ended.
//!
//! A virtual machine whose server is gone connects to the next one, if its VMM does that, and goes on with its queues. It relies on what was
//! acknowledged. That is lost if the server was killed with blocks that it had not written, and the guest could not know. Therefore, a server that has
//! written everything back leaves a file beside its socket, and the next one removes it. Without that file, no guest goes on.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file's name is that of the socket and this.
const ENDED: &str = ".ended";

/// The state of the guests of a socket.
#[derive(Debug)]
pub(crate) struct Resume {
    may: bool,
}

fn file(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(ENDED);
    path.into()
}

impl Resume {
    /// A server begins.
    pub(crate) fn begin(socket: &Path) -> Resume {
        let file = file(socket);
        let may = match std::fs::remove_file(&file) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "cannot be removed: no guest goes on where it was");
                false
            }
        };
        Resume { may }
    }

    /// Whether a guest may go on where it was.
    pub(crate) fn may_resume(&self) -> bool {
        self.may
    }

    /// A frontend left. If its queues `ran`, and it was not one that may not go on, its guest can connect again.
    pub(crate) fn note(&mut self, ran: bool, failed: bool) {
        if failed {
            self.may = false;
        } else if ran {
            self.may = true;
        }
    }

    /// The server has ended, and has written everything back.
    pub(crate) fn end(&self, socket: &Path) {
        if !self.may {
            return;
        }
        let file = file(socket);
        // The folder may be others', too.
        if let Err(error) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file) {
            tracing::warn!(file = %file.display(), %error, "cannot be made: no guest will go on where it was");
        }
    }
}
