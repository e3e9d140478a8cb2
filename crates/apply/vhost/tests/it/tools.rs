//! Servers for the tests.

use std::path::{Path, PathBuf};

use nigh_service::{ExportSettings, Listen, Service, Settings};
use nigh_testkit::virtio::{Machine, Setup};
use nigh_vhost::{Vhost, VhostSettings};
use tempfile::TempDir;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// A server of one disk, and its socket.
pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) vhost: Vhost,
    pub(crate) socket: PathBuf,
    _folder: Option<TempDir>,
}

/// A server of `target` with `memory` MiB.
pub(crate) fn serve(target: &str, memory: u64) -> Server {
    serve_with(ExportSettings::new("disk", target.parse().unwrap()), memory, |_| ())
}

/// The same with further settings of the socket.
pub(crate) fn serve_with(export: ExportSettings, memory: u64, change: impl FnOnce(&mut VhostSettings)) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("disk.sock");
    let mut server = serve_at(&socket, export, memory, change);
    server._folder = Some(folder);
    server
}

/// The same at a socket.
pub(crate) fn serve_at(
    socket: &Path,
    export: ExportSettings,
    memory: u64,
    change: impl FnOnce(&mut VhostSettings),
) -> Server {
    let mut settings = VhostSettings::new(export.disk.name.clone(), socket);
    change(&mut settings);
    let service = Service::start(Settings::new(memory << 20, "lru".parse().unwrap(), vec![export])).unwrap();
    let vhost = Vhost::new(settings);
    service.listen(vhost.clone(), &Listen::Unix(socket.to_owned()), false).unwrap();
    Server { service, vhost, socket: socket.to_owned(), _folder: None }
}

impl Server {
    pub(crate) fn machine(&self) -> Machine {
        self.machine_with(Setup::default())
    }

    pub(crate) fn machine_with(&self, setup: Setup) -> Machine {
        Machine::connect(&self.socket, setup)
    }

    /// Serves another machine, and ends as it should.
    pub(crate) fn serves_and_ends(self) {
        let mut machine = self.machine();
        machine.write(0, &[5; 4096]);
        drop(machine);
        self.end();
    }

    /// Ends it as it should.
    pub(crate) fn end(self) {
        self.service.shut_down().unwrap();
        self.vhost.end();
    }
}
