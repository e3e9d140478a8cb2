//! Disks in object stores: making, opening and describing them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nigh_objects::{Disk, Limits, Manifest};
use object_store::ObjectStore;
use object_store::UpdateVersion;
use object_store::path::Path;
use tokio::runtime::Runtime;

use super::ObjectDiskState;
use super::connect::{connect, hint};
use super::desk::Desk;
use super::owner::Owner;
use super::store::{Failure, Store};
use super::target::{ObjectTarget, Provider};
use super::worker::Worker;
use crate::device::{Completion, Device, Geometry, Job};
use crate::error::{OpenError, OpenErrorKind};
use crate::open::Options;

/// The most parts with staged changes: what a flush has to write at most.
const PARTS_STAGED: usize = 1024;
/// The most replaced objects, before a manifest is stored without a flush.
const REPLACED: usize = 1024;

/// A writer that stored something within this time may still run.
const ALIVE: Duration = Duration::from_secs(60);

/// How long a request may take that makes or describes a disk.
const GLANCE: Duration = Duration::from_secs(10);
/// Address of the credentials of virtual machines.
const METADATA: &str = "//169.254.169.254/";

/// A disk in an object store.
#[derive(Clone, Debug)]
pub struct ObjectDisk {
    target: ObjectTarget,
    store: Arc<dyn ObjectStore>,
}

fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(u128::from_le_bytes(bytes))
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

impl ObjectDisk {
    /// The disk of a target, by the settings of the environment. No request is made yet.
    pub fn connect(target: &ObjectTarget) -> Result<ObjectDisk, OpenError> {
        let store = connect(target).map_err(|error| OpenError {
            kind: OpenErrorKind::Unsuitable,
            action: "use",
            path: target.to_string().into(),
            source: io::Error::new(io::ErrorKind::InvalidInput, error.to_string()),
        })?;
        Ok(ObjectDisk { target: target.clone(), store })
    }

    /// The disk that a target would have in another store, of whatever kind.
    pub fn within(store: Arc<dyn ObjectStore>, target: &ObjectTarget) -> ObjectDisk {
        ObjectDisk { target: target.clone(), store }
    }

    /// The objects of the disk with this number.
    fn store(&self, disk: u128, timeout: Duration) -> Store {
        Store::new(self.store.clone(), &Path::from(self.target.prefix.as_str()), disk, timeout)
    }

    /// The manifest, for commands that somebody waits for.
    fn glance(&self) -> Store {
        self.store(0, self.target.timeout.min(GLANCE))
    }

    /// Makes requests until this is done.
    fn wait<T>(
        &self,
        action: &'static str,
        requests: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, OpenError> {
        let runtime = runtime().map_err(|error| self.system(error))?;
        let result = runtime.block_on(requests);
        // A name that is being resolved may take long.
        runtime.shutdown_background();
        result.map_err(|failure| self.error(action, &failure))
    }

    fn error(&self, action: &'static str, failure: &Failure) -> OpenError {
        let (kind, text) = match failure {
            Failure::Missing(reason) if reason.contains("NoSuchBucket") => {
                (OpenErrorKind::NotFound, format!("there is no bucket `{}`", self.target.bucket))
            }
            Failure::Missing(_) => (
                OpenErrorKind::NotFound,
                "there is no disk under this prefix; `nigh object create` makes one".to_owned(),
            ),
            Failure::Conflict(_) => (OpenErrorKind::Busy, "there is a disk under this prefix already".to_owned()),
            Failure::Denied(reason) => {
                (OpenErrorKind::Denied, format!("access is denied{}: {reason}", hint(self.target.provider)))
            }
            Failure::TakenOver(reason) => (OpenErrorKind::Busy, reason.clone()),
            // It asked the machine, as a virtual machine of the provider, for credentials.
            Failure::Other(reason) if reason.contains(METADATA) => {
                (OpenErrorKind::Denied, format!("there are no credentials{}: {reason}", hint(self.target.provider)))
            }
            Failure::Other(reason) => (OpenErrorKind::System, reason.clone()),
        };
        OpenError { kind, action, path: self.target.to_string().into(), source: io::Error::other(text) }
    }

    fn system(&self, source: io::Error) -> OpenError {
        OpenError { kind: OpenErrorKind::System, action: "open", path: self.target.to_string().into(), source }
    }

    /// Makes a disk of this many bytes, all zeros. There must be none.
    pub fn create(&self, bytes: u64) -> Result<(), OpenError> {
        let number = random().map_err(|error| self.system(error))?;
        let manifest = Manifest::new(number, bytes).ok_or_else(|| OpenError {
            kind: OpenErrorKind::Unsuitable,
            action: "create",
            path: self.target.to_string().into(),
            source: io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a disk has a multiple of 4096 bytes, at most 16T, not {bytes}"),
            ),
        })?;
        self.wait("create", self.create_in(&self.glance(), &manifest))
    }

    async fn create_in(&self, store: &Store, manifest: &Manifest) -> Result<(), Failure> {
        store.create(manifest).await?;
        let checked = self.check_conditions(store, manifest).await;
        if checked.is_err() {
            // If it stays, its next opening finds the same.
            let _ = store.remove().await;
        }
        checked
    }

    /// The error if the store ignores the conditions of puts. `manifest` is the stored one.
    async fn check_conditions(&self, store: &Store, manifest: &Manifest) -> Result<(), Failure> {
        // Google and Microsoft have had conditions from the beginning; what speaks the protocol of S3 may not.
        if self.target.provider != Provider::S3 || store.has_conditions(manifest).await? {
            return Ok(());
        }
        let reason = "the store ignores the conditions of puts (If-Match, If-None-Match), so it could not keep a second writer out";
        Err(Failure::Other(reason.to_owned()))
    }

    /// Takes the disk over, for `writer`.
    async fn claim(&self, store: &Store, writer: u128) -> Result<(Manifest, UpdateVersion), Failure> {
        let (manifest, version) = store.claim(writer).await?;
        // It may have been copied here from a store that has them.
        self.check_conditions(store, &manifest).await?;
        Ok((manifest, version))
    }

    /// The state that its manifest describes.
    pub fn state(&self) -> Result<ObjectDiskState, OpenError> {
        let (manifest, _) = self.wait("read", self.glance().load())?;
        Ok(ObjectDiskState {
            bytes: manifest.bytes,
            objects: manifest.objects(),
            parts: manifest.bytes.div_ceil(nigh_objects::PART) as usize,
            epoch: manifest.epoch,
            changed: manifest.changed,
        })
    }

    /// Opens it. Unless it is only read, every other writer fails from then on.
    pub fn open(&self, options: &Options) -> Result<Box<dyn Device>, OpenError> {
        let (sender, opened) = sync_channel(1);
        let (disk, options) = (self.clone(), options.clone());
        let serve = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                // Nobody waits any more if it took too long.
                Err(error) => return drop(sender.send(Err(disk.system(error)))),
            };
            runtime.block_on(async {
                match disk.begin(&options).await {
                    Ok((desk, worker)) => {
                        if sender.send(Ok(desk)).is_ok() {
                            worker.run().await;
                        }
                    }
                    Err(error) => drop(sender.send(Err(error))),
                }
            });
            // A name that is being resolved may take long.
            runtime.shutdown_background();
        };
        let thread = Builder::new().name("nigh-objects".to_owned()).spawn(serve).map_err(|error| self.system(error))?;
        let opened = opened.recv().unwrap_or_else(|_| Err(self.system(io::Error::other("its thread ended"))));
        Ok(Box::new(ObjectDevice { desk: opened?, thread: Some(thread) }))
    }

    /// The error if another writer may be alive, unless its disk is to be taken over. Returns who that is.
    async fn check_owner(&self, store: &Store, writer: u128, take_over: bool) -> Result<Option<String>, OpenError> {
        let fail = |failure: Failure| self.error("open", &failure);
        let (manifest, _) = store.load().await.map_err(fail)?;
        let owner = store.owner().await.map_err(fail)?.filter(|owner| owner.is(manifest.writer));
        if manifest.epoch == 0 || owner.as_ref().is_some_and(Owner::is_gone) {
            return Ok(None);
        }
        let who = owner.map_or_else(|| "a writer that is not known".to_owned(), |owner| owner.to_string());
        let age = if take_over { ALIVE } else { store.age(writer).await.map_err(fail)? };
        if age < ALIVE {
            let (age, wait) = (age.as_secs(), (ALIVE - age).as_secs() + 1);
            let reason = format!(
                "{who} wrote the disk {age} s ago, and may be alive: end it first; if it is gone, wait for {wait} s, or take the disk over \
                 (--take-over), which ends its writes"
            );
            return Err(self.error("open", &Failure::TakenOver(reason)));
        }
        Ok(Some(who))
    }

    async fn begin(&self, options: &Options) -> Result<(Arc<Desk>, Worker), OpenError> {
        let store = self.store(0, self.target.timeout);
        let writer = random().map_err(|error| self.system(error))?;
        let target = self.target.to_string();
        let opened = if options.read_only {
            store.load().await.map(|(manifest, _)| (manifest, None))
        } else {
            let before = self.check_owner(&store, writer, options.take_over).await?;
            let claimed = self.claim(&store, writer).await;
            if let (Ok(_), Some(before)) = (&claimed, before) {
                tracing::warn!(
                    disk = options.name,
                    target,
                    before,
                    "took the disk over: the writes of the one before fail from now on"
                );
            }
            claimed.map(|(manifest, version)| (manifest, Some(version)))
        };
        let (manifest, version) = opened.map_err(|failure| self.error("open", &failure))?;
        if version.is_some()
            && let Err(failure) = store.note_owner(&Owner::this(writer)).await
        {
            // It matters for the next start only, which then waits, or asks.
            let reason = failure.reason();
            tracing::warn!(disk = options.name, target, reason, "cannot note who writes the disk");
        }
        let Manifest { disk, epoch, bytes, .. } = manifest;
        let store = Arc::new(self.store(disk, self.target.timeout));
        tracing::info!(
            disk = options.name,
            target,
            epoch,
            bytes,
            read_only = options.read_only,
            "opened a disk in an object store"
        );
        let limits = Limits { bytes: self.target.staging as usize, parts: PARTS_STAGED, replaced: REPLACED };
        let desk = Desk::new(Disk::new(manifest, limits), version.is_some()).map_err(|error| self.system(error))?;
        let desk = Arc::new(desk);
        let worker = Worker::new(desk.clone(), store, options.name.clone(), target, version);
        Ok((desk, worker))
    }
}

/// The device.
struct ObjectDevice {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Device for ObjectDevice {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.desk.clone()
    }

    fn submit(&mut self, job: Job) {
        self.desk.submit(job);
    }

    fn poll(&mut self, _: Instant, done: &mut Vec<Completion>) {
        self.desk.poll(done);
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(self.desk.signal())
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        self.desk.close();
        if let Some(thread) = self.thread.take() {
            // A panic was reported on its thread.
            let _ = thread.join();
        }
    }
}
