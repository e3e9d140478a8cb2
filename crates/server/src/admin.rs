//! Changes of a server while it runs: memory and policy, its exports and their settings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::{Device, OpenError, Options};
use nigh_control::Refusal;
use nigh_engine::{ConfigError, Fault, Volume};
use nigh_nbd::{Exports, InvalidExport};
use nigh_policy::Spec;

use crate::disk::{DISKS_MAX, Disk, Opening};
use crate::hints::HintError;
use crate::server::{Client, Common, machine_memory};
use crate::settings::{BLOCK, ExportSettings, TlsSettings};
use crate::sync::lock;
use crate::tls::TlsError;

/// How long the clients of an export that is removed have to take their replies.
const FAREWELL: Duration = Duration::from_secs(20);
/// How often the writing of dirty blocks is tried when an export is closed.
const CLOSING_TRIES: u32 = 3;

/// Why an export cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Its name cannot be offered.
    #[error(transparent)]
    Offer(#[from] InvalidExport),
    /// There are as many as can be served.
    #[error("more than {DISKS_MAX} exports cannot be served")]
    TooMany,
    /// Its target cannot be opened.
    #[error("export {name}: {source}")]
    Open {
        /// The export.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// The size of its target cannot be told, or is 0.
    #[error("export {name}: {reason}")]
    Size {
        /// The export.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The engines cannot serve it.
    #[error("export {name}: {source}")]
    Config {
        /// The export.
        name: String,
        /// Why.
        source: ConfigError,
    },
    /// It is for certain clients, and nobody is asked for a certificate.
    #[error("export {0} is for certain clients, which takes TLS with an authority for client certificates")]
    NoClientCa(String),
    /// It is to have so much of the cache, which nobody shares.
    #[error("export {0}: a floor or ceiling takes an allocation, such as lru-sp")]
    NoTenants(String),
    /// It cannot have so much of the cache.
    #[error("export {name}: {source}")]
    Bounds {
        /// The export.
        name: String,
        /// Why.
        source: Refusal,
    },
}

/// Why a running server cannot be changed so.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no export of this name.
    #[error("there is no export {0}")]
    NoExport(String),
    /// It was opened for reading.
    #[error("export {0} was opened for reading only: remove it and add it again")]
    OpenedReadOnly(String),
    /// An export cannot be served.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// There is less memory in the machine.
    #[error("{asked} MiB of memory were asked for, and the machine has {there} MiB")]
    Memory {
        /// In MiB.
        asked: u64,
        /// In MiB.
        there: u64,
    },
    /// Not even one block would fit.
    #[error("less than {BLOCK} bytes of memory were asked for")]
    MemoryMin,
    /// More memory than address space was reserved for.
    #[error("{asked} MiB of memory were asked for, and the server was started for at most {most} MiB")]
    MemoryMax {
        /// In MiB.
        asked: u64,
        /// In MiB.
        most: u64,
    },
    /// The cache cannot be set up so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What is dirty cannot be written: the export stays.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// Tenants share the cache.
    #[error("a cache with tenants keeps its allocation and its batches, and has no policy but what they say")]
    Tenants,
    /// Something cannot be said.
    #[error("export {name}: {source}")]
    Hint {
        /// Of which export.
        name: String,
        /// Why.
        source: Box<HintError>,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS is for all clients over TCP or for none.
    #[error("TLS cannot be switched on or off while the server runs")]
    TlsOnOff,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopping,
}

/// An export with dirty blocks that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {name}: not everything is written: {fault}")]
pub struct Unwritten {
    /// Its name.
    pub name: String,
    /// What its device said last.
    pub fault: Fault,
}

impl Common {
    /// Changes memory and policy. Another policy does not remember which blocks were evicted.
    pub(crate) fn change(&self, memory: Option<u64>, policy: Option<&Spec>) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        let settings = lock(&self.settings).clone();
        let most = settings.memory_max.max(settings.memory);
        let memory = memory.unwrap_or(settings.memory);
        let policy = policy.filter(|policy| **policy != settings.policy);
        if policy.is_some() && settings.allocate.is_some() {
            return Err(ChangeError::Tenants);
        }
        if memory < BLOCK {
            return Err(ChangeError::MemoryMin);
        }
        let there = machine_memory();
        if memory > there {
            return Err(ChangeError::Memory { asked: memory >> 20, there: there >> 20 });
        }
        if memory > most {
            return Err(ChangeError::MemoryMax { asked: memory >> 20, most: most >> 20 });
        }
        if policy.is_some() || memory != settings.memory {
            self.cache.change(policy, settings.blocks_per_shard(memory))?;
            let mut settings = lock(&self.settings);
            settings.memory = memory;
            settings.policy = policy.cloned().unwrap_or(settings.policy.clone());
        }
        Ok(())
    }

    /// Serves another export.
    pub(crate) fn add(&self, export: ExportSettings) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        Ok(self.add_one(export)?)
    }

    pub(crate) fn add_one(&self, export: ExportSettings) -> Result<(), ExportError> {
        check_clients(&export, lock(&self.settings).tls.as_ref())?;
        self.check_bounds(&export)?;
        let number = self.cache.disks.free_number().ok_or(ExportError::TooMany)?;
        let (name, mode, bounds) = (export.name.clone(), export.write_mode, export.bounds());
        if self.cache.disks.named(&name).is_some() {
            return Err(InvalidExport::Duplicate(name).into());
        }
        let (disk, device) = open(number, export)?;
        Exports::new(vec![disk.offer()])?;
        let disk = Arc::new(disk);
        self.handle.attach(disk.port, device);
        self.cache.disks.add(disk.clone());
        let opened = self.cache.open(&disk, disk.size(), mode);
        let opened = opened.map_err(|source| ExportError::Config { name: name.clone(), source });
        let admitted = opened.and_then(|()| match self.cache.has_tenants {
            true => {
                self.cache.admit(number, disk.size(), bounds).map_err(|source| ExportError::Bounds { name, source })
            }
            false => Ok(()),
        });
        if let Err(error) = admitted {
            let _ = self.cache.close(number, true);
            self.drop_disk(&disk);
            return Err(error);
        }
        disk.set_leaving(false);
        Ok(())
    }

    /// Removes an export: its clients are let go, and its dirty blocks written, or dropped if `discard`.
    pub(crate) fn remove(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        self.remove_one(name, discard)
    }

    fn remove_one(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        let disk = self.find(name)?;
        disk.set_leaving(true);
        // Nobody waits for its turn.
        disk.throttle.set(0, 0);
        self.dismiss(|client| client.has(&disk), FAREWELL);
        let closed = {
            let _one = lock(&disk.changing);
            disk.set_opening(Opening::Changing);
            let closed = self.close(&disk, discard);
            if closed.is_err() {
                let settings = disk.settings();
                disk.throttle.set(settings.iops, settings.bandwidth);
                // Some shards may have closed it.
                self.cache.open(&disk, disk.size(), settings.write_mode)?;
            }
            disk.set_opening(if closed.is_ok() { Opening::Closed } else { Opening::Open });
            closed
        };
        if let Err(unwritten) = closed {
            disk.set_leaving(false);
            return Err(unwritten.into());
        }
        self.drop_disk(&disk);
        Ok(())
    }

    /// Has the engines close a disk; says what its device said where that does not succeed.
    pub(crate) fn close(&self, disk: &Disk, discard: bool) -> Result<(), Unwritten> {
        let mut result = Ok(());
        for _ in 0..CLOSING_TRIES {
            result = self.cache.close(disk.volume, discard);
            if result.is_ok() {
                break;
            }
        }
        result.map_err(|fault| Unwritten { name: disk.name.clone(), fault })
    }

    /// A disk that no engine has any more.
    fn drop_disk(&self, disk: &Disk) {
        // An error says the same: the device is gone.
        let _ = self.handle.detach(disk.port).recv();
        self.cache.detach(disk.port);
        disk.forget_device();
        self.cache.disks.remove(disk.volume);
    }

    /// Changes the settings of an export while its clients work.
    pub(crate) fn set(&self, name: &str, change: impl FnOnce(&mut ExportSettings)) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        let disk = self.find(name)?;
        let mut settings = disk.settings();
        change(&mut settings);
        self.set_one(&disk, settings)
    }

    fn set_one(&self, disk: &Arc<Disk>, settings: ExportSettings) -> Result<(), ChangeError> {
        check_clients(&settings, lock(&self.settings).tls.as_ref())?;
        if !settings.read_only && !disk.writable {
            return Err(ChangeError::OpenedReadOnly(settings.name));
        }
        let changing = lock(&disk.changing);
        self.check_bounds(&settings)?;
        if self.cache.has_tenants {
            let set = self.cache.set_bounds(disk.volume, settings.bounds());
            set.map_err(|source| ExportError::Bounds { name: settings.name.clone(), source })?;
        }
        match self.cache.set_mode(disk.volume, settings.write_mode) {
            // It is closed for good only when it is removed.
            Ok(()) | Err(nigh_engine::Refusal::NoVolume) => {}
            Err(refusal) => unreachable!("{refusal:?}"),
        }
        disk.set(settings);
        drop(changing);
        // Nothing more is done for those who lost it.
        let withdrawn = |client: &Client| client.has(disk) && !disk.is_for(&client.names);
        lock(&self.clients).values().filter(|client| withdrawn(client)).for_each(|client| client.stream.dismiss());
        self.dismiss(withdrawn, FAREWELL);
        Ok(())
    }

    /// Writes back what is dirty, of one export or of all, and flushes the devices.
    pub(crate) fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        let disks = match name {
            Some(name) => vec![self.find(name)?],
            None => self.cache.disks.all(),
        };
        let mut result = Ok(());
        for disk in disks {
            let written = loop {
                match self.cache.write_back(disk.volume) {
                    Ok(written) => break written,
                    Err(_) if disk.wait_for_opening() => {}
                    Err(_) => return Err(ChangeError::NoExport(disk.name.clone())),
                }
            };
            result = result.and(written.map_err(|fault| Unwritten { name: disk.name.clone(), fault }));
        }
        Ok(result?)
    }

    /// Makes the exports those of `wanted`: adds, changes and removes. What does not succeed is told, and the rest done.
    pub(crate) fn reconcile(&self, wanted: &[ExportSettings]) -> Result<(), Vec<ChangeError>> {
        let _one = self.administrate().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let changes = self.cache.disks.all().into_iter().map(|disk| {
            let now = disk.settings();
            let same = |export: &&ExportSettings| {
                export.name == now.name && export.target == now.target && (export.read_only || disk.writable)
            };
            (wanted.iter().find(same), now, disk)
        });
        let mut changes: Vec<_> = changes.collect();
        // Floors become lower before others become higher, since there is room for so much.
        let rises =
            |wanted: Option<&ExportSettings>, now: &ExportSettings| wanted.is_some_and(|at| at.floor > now.floor);
        changes.sort_by_key(|(wanted, now, _)| rises(*wanted, now));
        for (wanted, now, disk) in changes {
            let done = match wanted {
                Some(export) if *export == now => Ok(()),
                Some(export) => self.set_one(&disk, export.clone()),
                None => self.remove_one(&now.name, false),
            };
            errors.extend(done.err());
        }
        for export in wanted {
            if self.cache.disks.named(&export.name).is_none() {
                errors.extend(self.add_one(export.clone()).err().map(ChangeError::from));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Disk>, ChangeError> {
        self.cache.disks.named(name).ok_or_else(|| ChangeError::NoExport(name.to_owned()))
    }

    fn check_bounds(&self, export: &ExportSettings) -> Result<(), ExportError> {
        match self.cache.has_tenants || (export.floor, export.ceiling) == (0, 0) {
            true => Ok(()),
            false => Err(ExportError::NoTenants(export.name.clone())),
        }
    }

    /// The right to change the server, one at a time.
    fn administrate(&self) -> Result<std::sync::MutexGuard<'_, ()>, ChangeError> {
        let one = lock(&self.administration);
        match self.stopping.load(Ordering::Acquire) {
            true => Err(ChangeError::Stopping),
            false => Ok(one),
        }
    }

    /// Takes notice of targets whose size changed.
    pub(crate) fn look_at_sizes(&self) {
        for disk in self.cache.disks.all() {
            if disk.is_leaving() {
                continue;
            }
            let _one = lock(&disk.changing);
            match disk.present_size() {
                Ok(size) if size != disk.size() && size > 0 && !disk.is_leaving() => self.resize(&disk, size),
                Ok(_) => {}
                Err(error) => tracing::warn!(disk = disk.name, %error, "its size cannot be told"),
            }
        }
    }

    fn resize(&self, disk: &Disk, size: u64) {
        disk.set_opening(Opening::Changing);
        let closed = self.cache.close(disk.volume, false);
        let size = match closed {
            Ok(()) => size,
            Err(fault) => {
                tracing::error!(disk = disk.name, %fault, "its size changed, but its dirty blocks cannot be written");
                disk.size()
            }
        };
        match self.cache.open(disk, size, disk.settings().write_mode) {
            Ok(()) => {
                if closed.is_ok()
                    && self.cache.has_tenants
                    && let Err(error) = self.cache.admit(disk.volume, size, disk.settings().bounds())
                {
                    // Others were given floors meanwhile.
                    tracing::error!(disk = disk.name, %error, "it has no floor and no ceiling any more");
                }
                tracing::info!(disk = disk.name, before = disk.size(), size, "its size changed");
                disk.set_size(size);
                disk.set_opening(Opening::Open);
            }
            Err(error) => {
                tracing::error!(disk = disk.name, %error, "it cannot be opened with its new size");
                disk.set_opening(Opening::Closed);
            }
        }
    }

    /// Lets the clients go that are `chosen`: they get their replies if they take them within `patience`.
    pub(crate) fn dismiss(&self, chosen: impl Fn(&Client) -> bool, patience: Duration) {
        let begin = Instant::now();
        let mut clients = lock(&self.clients);
        let chosen = |client: &&Client| chosen(client);
        clients.values().filter(chosen).for_each(|client| client.stream.stop_reading());
        while clients.values().any(|client| chosen(&client)) {
            let pipes = clients.values().filter(chosen).all(|client| client.stream.is_deaf());
            let most = if pipes { patience.min(FAREWELL_PIPES) } else { patience };
            let Some(left) = most.checked_sub(begin.elapsed()) else { break };
            (clients, _) = self.left.wait_timeout(clients, left).expect("nobody panics with a lock");
        }
        clients.values().filter(chosen).for_each(|client| client.stream.shut_down());
    }
}

/// Whether clients can be told apart, if that matters for `export`.
pub(crate) fn check_clients(export: &ExportSettings, tls: Option<&TlsSettings>) -> Result<(), ExportError> {
    match export.clients.is_empty() || tls.is_some_and(|tls| tls.client_ca.is_some()) {
        true => Ok(()),
        false => Err(ExportError::NoClientCa(export.name.clone())),
    }
}

/// How long those have who cannot be told to leave.
const FAREWELL_PIPES: Duration = Duration::from_millis(500);

fn open(number: Volume, export: ExportSettings) -> Result<(Disk, Box<dyn Device>), ExportError> {
    let name = export.name.clone();
    let options = Options { read_only: export.read_only, block_bytes: BLOCK as u32, ..Options::default() };
    let device = export.target.open(&options).map_err(|source| ExportError::Open { name: name.clone(), source })?;
    let geometry = device.geometry();
    let wrong = |reason| ExportError::Size { name: name.clone(), reason };
    let size = geometry.size().map_err(|error| wrong(format!("its size cannot be told: {error}")))?;
    if size == 0 {
        return Err(wrong(format!("{} is empty", export.target)));
    }
    Ok((Disk::new(number, export, geometry, size), device))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    use nigh_nbd::client::Handshake;

    use super::*;
    use crate::{Server, Settings};

    #[test]
    fn an_export_is_not_seen_before_it_is_open() {
        let export = |name| ExportSettings::new(name, "memory:1M".parse().unwrap());
        let server = Server::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![export("old")])).unwrap();
        let cache = &server.common.cache;
        let greet = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            server.attach(theirs.try_clone().unwrap().into(), theirs.into(), || ());
            Handshake::begin(ours).unwrap()
        };
        let names = |handshake: &mut Handshake<UnixStream>| {
            handshake.list().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let (go_on, wait) = channel::<()>();
            let (held, holds) = channel();
            // Nothing can be opened while a shard is held.
            scope.spawn(move || {
                let old = cache.disks.named("old").unwrap();
                cache.states(old.volume, 0..BLOCK, |_, _| {
                    held.send(()).unwrap();
                    // Fails when it is to go on.
                    let _ = wait.recv();
                });
            });
            holds.recv().unwrap();
            let adding = scope.spawn(|| server.add(export("new")));
            while cache.disks.named("new").is_none() {
                std::thread::yield_now();
            }
            let mut early = greet();
            assert_eq!(names(&mut early), ["old"]);
            assert!(early.info("new").is_err() && early.go("new").is_err());
            drop(go_on);
            adding.join().unwrap().unwrap();
        });
        let mut late = greet();
        assert_eq!(names(&mut late), ["old", "new"]);
        late.go("new").unwrap().read(0, 4096).unwrap();
        server.shut_down().unwrap();
    }
}
