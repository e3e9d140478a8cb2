//! vhost-user-blk as a front of the service: disks in the memory of virtual machines.

#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod dry;
mod features;
mod machine;
mod mail;
mod memory;
mod request;
mod resume;
mod ring;
mod slot;
mod worker;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nigh_host::front::lock;
use nigh_service::Listen;
use nigh_service::front::{Front, Guest, Refused};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::machine::Machine;
use crate::memory::{REGIONS_MAX, Table};
use crate::resume::Resume;
use crate::worker::Common;

/// How long a frontend waits for another one to leave, whose requests may be in progress.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked at meanwhile.
const GLANCE: Duration = Duration::from_millis(100);

/// A socket for the frontend of one virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostSettings {
    /// The export that it serves.
    pub export: String,
    /// The Unix socket.
    pub socket: PathBuf,
    /// Queues at most, each with a thread while it is used; 1 to 64.
    pub queues: usize,
    /// How long a queue is polled after its last request before its thread sleeps.
    pub poll: Duration,
    /// Maps memory of files that can become shorter, or whose pages can run out. Their owner can end the server.
    pub unsealed: bool,
    /// Bytes of the guest's memory at most.
    pub memory_max: u64,
}

impl VhostSettings {
    /// Default number of queues.
    pub const QUEUES: usize = 4;
    /// Most queues of a socket.
    pub const QUEUES_MAX: usize = 64;
    /// Default limit of a guest's memory: 1 TiB.
    pub const MEMORY_MAX: u64 = 1 << 40;

    /// `export` at `socket`.
    pub fn new(export: impl Into<String>, socket: impl Into<PathBuf>) -> VhostSettings {
        VhostSettings {
            export: export.into(),
            socket: socket.into(),
            queues: VhostSettings::QUEUES,
            poll: Duration::ZERO,
            unsealed: false,
            memory_max: VhostSettings::MEMORY_MAX,
        }
    }

    /// Descriptors that its frontend can need: for its memory, and for each queue the kick, the call, the error, the thread's wake-up call, and
    /// what it waits with; the first and the last are there twice for a moment.
    pub fn descriptors(&self) -> usize {
        REGIONS_MAX + 32 + 8 * self.queues + 4
    }
}

/// vhost-user-blk at one socket: [`Service::listen`](nigh_service::Service::listen) takes it.
#[derive(Clone)]
pub struct Vhost {
    inner: Arc<Inner>,
}

struct Inner {
    settings: VhostSettings,
    /// A frontend has the disk.
    taken: Mutex<bool>,
    left: Condvar,
    resume: Mutex<Resume>,
}

impl Vhost {
    /// A front at its socket, where nobody listens yet.
    pub fn new(settings: VhostSettings) -> Vhost {
        let resume = Mutex::new(Resume::begin(&settings.socket));
        Vhost { inner: Arc::new(Inner { settings, taken: Mutex::new(false), left: Condvar::new(), resume }) }
    }

    /// The export that it serves.
    pub fn export(&self) -> &str {
        &self.inner.settings.export
    }

    /// The server has ended, and everything that was acknowledged is on the device: the guest can go on with the next server.
    pub fn end(&self) {
        if !*lock(&self.inner.taken) {
            lock(&self.inner.resume).end(&self.inner.settings.socket);
        }
    }
}

/// A frontend has the disk.
struct Taken<'a>(&'a Inner);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) = false;
        self.0.left.notify_one();
    }
}

impl Front for Vhost {
    fn uri(&self, address: &Listen, export: &str, _: bool) -> Option<String> {
        match address {
            Listen::Unix(path) if export == self.inner.settings.export => {
                Some(format!("vhost-user:{}", path.display()))
            }
            _ => None,
        }
    }

    fn serve(&self, guest: &Guest<'_>) {
        let (id, export) = (guest.id, &self.inner.settings.export);
        match self.inner.serve(guest) {
            Ok(()) => tracing::debug!(id, export, "left"),
            Err(error) => guest.note_failed(&error),
        }
    }
}

/// Why a connection ended before its frontend closed it.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("another frontend has the disk: a socket has one at a time")]
    Taken,
    #[error("the disk is not there")]
    NoExport,
    #[error("the disk cannot be chosen: {0:?}")]
    Refused(Refused),
    #[error(transparent)]
    System(#[from] std::io::Error),
    #[error("{0}")]
    Protocol(Error),
}

impl Inner {
    /// Waits until no other frontend has the disk.
    fn take(&self, guest: &Guest<'_>) -> Option<Taken<'_>> {
        let begin = Instant::now();
        let mut taken = lock(&self.taken);
        while *taken {
            drop(taken);
            if begin.elapsed() > PATIENCE || guest.stream().has_left() {
                return None;
            }
            let waited = self.left.wait_timeout_while(lock(&self.taken), GLANCE, |taken| *taken);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken = true;
        Some(Taken(self))
    }

    /// Serves a frontend until it leaves.
    fn serve(&self, guest: &Guest<'_>) -> Result<(), Ended> {
        let _taken = self.take(guest).ok_or(Ended::Taken)?;
        let export = guest.exports(&[]).into_iter().find(|export| export.name() == self.settings.export);
        let export = export.ok_or(Ended::NoExport)?;
        guest.enter(&export, &[]).map_err(Ended::Refused)?;
        let common = Common {
            cache: guest.host().cache().clone(),
            export: export.clone(),
            id: guest.id,
            recorder: guest.recorder().clone(),
            stream: Some(guest.stream().clone()),
            writeback: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            poll: self.settings.poll,
        };
        let table = Table::new(self.settings.unsealed, self.settings.memory_max);
        let may_resume = lock(&self.resume).may_resume();
        let machine = Machine::new(Arc::new(common), table, self.settings.queues, may_resume);
        let machine = Arc::new(Mutex::new(machine));
        let socket = UnixStream::from(guest.stream().try_clone_socket()?);
        let mut frontend = BackendReqHandler::from_stream(socket, machine.clone());
        let result = loop {
            match frontend.handle_request() {
                Ok(()) => {}
                Err(Error::Disconnected) => break Ok(()),
                Err(error) => break Err(Ended::Protocol(error)),
            }
        };
        let mut machine = lock(&machine);
        machine.stop_all();
        lock(&self.resume).note(machine.ran, machine.has_failed());
        drop(machine);
        // The frontend sees the end when all it asked for is done.
        guest.stream().shut_down();
        result
    }
}
