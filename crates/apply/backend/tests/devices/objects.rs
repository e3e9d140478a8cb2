//! Disks in an object store in memory, of which requests fail, with and without effect, or get no answer.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use nigh_backend::{Device, ObjectDisk, OpenErrorKind, Options, Target};
use nigh_engine::{Fault, Op};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::host::{Host, config};
use crate::model::{check_extents, exercise};

const SIZE: u64 = (9 << 20) + 4096;
const EIO: Fault = Fault(libc::EIO);

/// The faults of the store.
#[derive(Debug, Default)]
struct Trouble {
    /// Percentage of requests that fail: half of them after they took effect.
    failing: AtomicU64,
    /// Requests that are not answered, if their path has this in it.
    silent: Mutex<Option<&'static str>>,
    /// Manifests are not stored yet, and their puts not answered.
    is_holding: AtomicBool,
    /// Those.
    held: Mutex<Vec<(PutPayload, PutOptions)>>,
    /// The conditions of puts are ignored.
    is_careless: AtomicBool,
    random: Mutex<fastrand::Rng>,
    puts: AtomicU64,
    gets: AtomicU64,
}

/// A store with trouble.
#[derive(Clone, Debug, Default)]
struct Store {
    inner: InMemory,
    trouble: Arc<Trouble>,
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a store with trouble")
    }
}

fn failure() -> Error {
    Error::Generic { store: "test", source: "500: made up".into() }
}

impl Store {
    /// Whether the request fails: before it takes effect, or after.
    async fn meet(&self, path: &Path) -> Option<bool> {
        let silent = *self.trouble.silent.lock().unwrap();
        if silent.is_some_and(|part| path.as_ref().contains(part)) {
            std::future::pending::<()>().await;
        }
        let mut random = self.trouble.random.lock().unwrap();
        let fails = random.u64(0..100) < self.trouble.failing.load(Ordering::Relaxed);
        fails.then(|| random.bool())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let listed = self.inner.list(None).map_ok(|found| found.location.to_string());
        let mut names: Vec<String> = Store::runtime().block_on(listed.try_collect()).unwrap();
        names.sort();
        names
    }

    fn put(&self, path: &str) {
        Store::runtime().block_on(self.inner.put(&Path::from(path), PutPayload::from_static(b"left"))).unwrap();
    }

    fn disk(&self, options: &str) -> ObjectDisk {
        let target: Target = format!("s3://bucket/disk{options}").parse().unwrap();
        ObjectDisk::within(Arc::new(self.clone()), target.objects().unwrap())
    }

    /// A new disk of this store, opened.
    fn open(&self, options: &str) -> Box<dyn Device> {
        let disk = self.disk(options);
        disk.create(SIZE).unwrap();
        disk.open(&Options::default()).unwrap()
    }

    fn open_again(&self, read_only: bool) -> Box<dyn Device> {
        // The one before may live.
        self.disk("").open(&Options { read_only, take_over: true, ..Options::default() }).unwrap()
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        if self.trouble.is_careless.load(Ordering::Relaxed) {
            options.mode = PutMode::Overwrite;
        }
        self.trouble.puts.fetch_add(1, Ordering::Relaxed);
        if path.as_ref().ends_with("manifest") {
            if self.trouble.is_holding.load(Ordering::Relaxed) {
                self.trouble.held.lock().unwrap().push((payload, options));
                return std::future::pending().await;
            }
            // They arrive late, in their order.
            let held = std::mem::take(&mut *self.trouble.held.lock().unwrap());
            for (payload, options) in held {
                let _ = self.inner.put_opts(path, payload, options).await;
            }
        }
        match self.meet(path).await {
            Some(false) => Err(failure()),
            Some(true) => self.inner.put_opts(path, payload, options).await.and(Err(failure())),
            None => self.inner.put_opts(path, payload, options).await,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.trouble.gets.fetch_add(1, Ordering::Relaxed);
        if self.meet(path).await.is_some() {
            return Err(failure());
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// The names of what is beside the parts of the disk, and its folder.
fn parts_in(store: &Store) -> (String, Vec<String>) {
    let names = store.names().into_iter();
    let paths: Vec<(String, String)> = names
        .filter_map(|name| {
            let (folder, name) = name.rsplit_once('/')?;
            folder.starts_with("disk/parts/").then(|| (folder.to_owned(), name.to_owned()))
        })
        .collect();
    let folder = paths.first().map(|(folder, _)| folder.clone()).unwrap_or_default();
    assert!(paths.iter().all(|(other, _)| *other == folder), "{paths:?}");
    (folder, paths.into_iter().map(|(_, name)| name).collect())
}

/// These names.
fn parts(store: &Store) -> Vec<String> {
    parts_in(store).1
}

fn read_all(host: &mut Host) -> Vec<u8> {
    let piece = |at: u64| at..(at + (1 << 20)).min(SIZE);
    let read = |range: Range<u64>| host.read(range.start, range.end - range.start).expect("a read");
    (0..SIZE).step_by(1 << 20).map(piece).flat_map(read).collect()
}

#[test]
fn objects_hold_what_was_written_whatever_fails() {
    for (seed, block, failing) in [(1, 4096, 0), (2, 4096, 20), (3, 512, 40)] {
        let store = Store::default();
        store.trouble.failing.store(failing, Ordering::Relaxed);
        *store.trouble.random.lock().unwrap() = fastrand::Rng::with_seed(seed);
        let disk = store.disk("?staging=16M");
        disk.create(SIZE).unwrap();
        let device = disk.open(&Options { block_bytes: block, ..Options::default() }).unwrap();
        let name = format!("objects, {failing} of 100 fail");
        let (bytes, device) = exercise(&name, seed, device, block, 60, true);
        check_extents(&name, &*device, &bytes);
        assert!(device.geometry().stamp().unwrap().is_some(), "all was flushed");
        drop(device);
        store.trouble.failing.store(0, Ordering::Relaxed);
        let mut reader = Host::new(store.open_again(true), config(4096));
        assert!(read_all(&mut reader) == bytes, "{name}, seed {seed}: other bytes after it was opened again");
        let mut writer = Host::new(store.open_again(false), config(4096));
        assert!(read_all(&mut writer) == bytes);
        let objects = store.disk("").state().unwrap().objects;
        let begin = Instant::now();
        while parts(&store).len() != objects {
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}, and {objects} are named", parts(&store));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_second_writer_ends_the_first() {
    let store = Store::default();
    let mut first = Host::new(store.open(""), config(4096));
    first.write(0, &[1; 4096]).expect("a write");
    first.flush().expect("a flush");
    let mut reader = Host::new(store.open_again(true), config(4096));
    first.write(4096, &[2; 4096]).expect("a write");
    first.flush().expect("a reader takes nothing over");
    first.write(8192, &[3; 4096]).expect("a write");
    let mut second = Host::new(store.open_again(false), config(4096));
    assert_eq!(second.read(4096, 4096), Ok(vec![2; 4096]));
    assert_eq!(second.read(8192, 4096), Ok(vec![0; 4096]), "it was not flushed");
    assert_eq!(reader.write(0, &[9; 4096]), Err(Fault(libc::EROFS)));
    assert_eq!(first.flush(), Err(EIO));
    assert_eq!(first.write(12288, &[4; 4096]), Err(EIO));
    second.write(0, &[5; 4096]).expect("a write");
    second.flush().expect("it is the only writer");
    let first = first.into_device().geometry();
    assert!(first.is_taken_over() && first.stamp().unwrap().is_none());
    assert!(!second.into_device().geometry().is_taken_over());
    let mut third = Host::new(store.open_again(true), config(4096));
    assert_eq!(third.read(0, 8192), Ok([[5; 4096], [2; 4096]].concat()));
    assert_eq!(store.disk("").state().unwrap().epoch, 2);
}

#[test]
fn what_a_dead_writer_left_is_deleted() {
    let store = Store::default();
    let mut first = Host::new(store.open(""), config(4096));
    first.write(0, &[1; 4096]).expect("a write");
    first.flush().expect("a flush");
    drop(first);
    let (folder, named) = parts_in(&store);
    assert_eq!(named, ["00000000-00000001-00000000"]);
    // Of this writer, of a later one, and of nobody.
    let later = "00000001-00000009-00000000";
    for name in ["00000000-00000001-00000007", later, "notes"] {
        store.put(&format!("{folder}/{name}"));
    }
    store.put("disk/readme");
    let before = store.names();
    drop(store.open_again(true));
    assert_eq!(store.names(), before, "a reader deletes nothing");
    let second = store.open_again(false);
    let begin = Instant::now();
    while store.names().iter().any(|name| name.ends_with("00000007")) {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", store.names());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(second);
    assert_eq!(parts(&store), [&named[0], later, "notes"]);
}

#[test]
fn a_reader_sees_one_state_or_an_error() {
    let store = Store::default();
    let mut writer = Host::new(store.open(""), config(4096));
    writer.write(0, &[1; 4096]).expect("a write");
    writer.write(4 << 20, &[1; 4096]).expect("a write");
    writer.flush().expect("a flush");
    let mut reader = Host::new(store.open_again(true), config(4096));
    let before = parts(&store);
    writer.write(0, &[2; 4096]).expect("a write");
    writer.flush().expect("a flush");
    let begin = Instant::now();
    while parts(&store).contains(&before[0]) {
        assert!(begin.elapsed() < Duration::from_secs(10), "a replaced object stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reader.read(4 << 20, 4096), Ok(vec![1; 4096]));
    assert_eq!(reader.read(0, 4096), Err(EIO), "not of a later state");
    let mut again = Host::new(store.open_again(true), config(4096));
    assert_eq!(again.read(0, 4096), Ok(vec![2; 4096]));
}

#[test]
fn requests_to_a_store_that_does_not_answer_fail_in_time() {
    let store = Store::default();
    let mut host = Host::new(store.open("?timeout=1s"), config(4096));
    host.write(0, &[1; 4096]).expect("a write");
    host.flush().expect("a flush");
    host.write(4 << 20, &[2; 4096]).expect("a write");
    *store.trouble.silent.lock().unwrap() = Some("disk/");
    let begin = Instant::now();
    let flush = host.begin(Op::Flush, 0, 0, &[]);
    assert_eq!(host.read(65536, 4096), Err(EIO));
    assert_eq!(host.end(flush), Err(EIO));
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    *store.trouble.silent.lock().unwrap() = None;
    assert_eq!(host.read(4 << 20, 4096), Ok(vec![2; 4096]), "it is still staged");
    host.flush().expect("the store answers again");
    let mut reader = Host::new(store.open_again(true), config(4096));
    assert_eq!(reader.read(4 << 20, 4096), Ok(vec![2; 4096]));
}

/// More is written than may be staged, without a flush: it goes to objects, but no manifest names them.
#[test]
fn what_is_staged_goes_to_objects_before_a_flush() {
    let store = Store::default();
    let disk = store.disk("?staging=16M");
    disk.create(64 << 20).unwrap();
    let mut host = Host::new(disk.open(&Options::default()).unwrap(), config(4096));
    let changed = disk.state().unwrap().changed;
    for at in 0..64 {
        host.write(at << 20, &vec![at as u8 + 1; 1 << 20]).expect("a write");
    }
    let puts = store.trouble.puts.load(Ordering::Relaxed);
    assert!(puts > 10, "{puts} puts");
    assert_eq!(disk.state().unwrap().changed, changed);
    assert_eq!(disk.state().unwrap().objects, 0);
    for at in [0, 20, 63] {
        assert_eq!(host.read((at << 20) + 8192, 4096), Ok(vec![at as u8 + 1; 4096]));
    }
    host.flush().expect("a flush");
    assert_eq!(disk.state().unwrap().objects, 16);
    let gets = store.trouble.gets.load(Ordering::Relaxed);
    host.read(10 << 20, 1 << 20).expect("a read");
    assert_eq!(store.trouble.gets.load(Ordering::Relaxed), gets + 1, "one request for neighbours");
}

#[test]
fn disks_are_made_once_and_found() {
    let store = Store::default();
    let disk = store.disk("");
    let Err(error) = disk.open(&Options::default()) else { panic!("there is none") };
    assert_eq!(error.kind, OpenErrorKind::NotFound);
    let none = "s3://bucket/disk: there is no disk under this prefix; `nigh object create` makes one";
    assert_eq!(error.to_string(), format!("cannot open {none}"));
    assert_eq!(disk.state().unwrap_err().to_string(), format!("cannot read {none}"));
    assert_eq!(disk.create(1000).unwrap_err().kind, OpenErrorKind::Unsuitable);
    disk.create(SIZE).unwrap();
    let error = disk.create(2 * SIZE).unwrap_err();
    let taken = "cannot create s3://bucket/disk: there is a disk under this prefix already";
    assert_eq!((error.kind, error.to_string()), (OpenErrorKind::Busy, taken.to_owned()));
    assert_eq!(disk.state().unwrap().bytes, SIZE);
    Store::runtime().block_on(store.inner.put(&Path::from("disk/manifest"), "<html>".into())).unwrap();
    let error = disk.state().unwrap_err().to_string();
    assert_eq!(error, "cannot read s3://bucket/disk: disk/manifest: it is not the manifest of a disk");
}

#[test]
fn a_store_without_conditions_is_refused() {
    let store = Store::default();
    store.trouble.is_careless.store(true, Ordering::Relaxed);
    let error = store.disk("").create(SIZE).unwrap_err().to_string();
    assert!(error.contains("the store ignores the conditions of puts"), "{error}");
    assert_eq!(store.names(), Vec::<String>::new());
    // A disk that was copied to such a store.
    store.trouble.is_careless.store(false, Ordering::Relaxed);
    store.disk("").create(SIZE).unwrap();
    store.trouble.is_careless.store(true, Ordering::Relaxed);
    let Err(error) = store.disk("").open(&Options::default()) else { panic!("it is opened") };
    assert!(error.to_string().contains("the store ignores the conditions of puts"), "{error}");
    drop(store.open_again(true));
}

/// The manifest of a flush that failed is stored during the next flush: before it, and on the condition that the next one has.
#[test]
fn a_manifest_that_is_stored_late_is_replaced() {
    let store = Store::default();
    let mut host = Host::new(store.open("?timeout=1s"), config(4096));
    host.write(0, &[1; 4096]).expect("a write");
    store.trouble.is_holding.store(true, Ordering::Relaxed);
    assert_eq!(host.flush(), Err(EIO));
    assert!(store.trouble.held.lock().unwrap().len() > 1, "it is tried again");
    host.write(4096, &[2; 4096]).expect("a write");
    store.trouble.is_holding.store(false, Ordering::Relaxed);
    host.flush().expect("the late one is its own");
    let mut reader = Host::new(store.open_again(true), config(4096));
    assert_eq!(reader.read(0, 8192), Ok([[1; 4096], [2; 4096]].concat()));
    assert!(!host.into_device().geometry().is_taken_over());
}

/// Something between the server and the store answers that there is nothing.
#[test]
fn a_manifest_that_is_not_found_is_no_other_writer() {
    let store = Store::default();
    let mut host = Host::new(store.open(""), config(4096));
    let path = Path::from("disk/manifest");
    let runtime = Store::runtime();
    let manifest = runtime.block_on(async { store.inner.get(&path).await?.bytes().await }).unwrap();
    runtime.block_on(store.inner.delete(&path)).unwrap();
    host.write(0, &[1; 4096]).expect("a write");
    assert_eq!(host.flush(), Err(EIO));
    runtime.block_on(store.inner.put(&path, manifest.into())).unwrap();
    host.flush().expect("it is there again");
    assert!(!host.into_device().geometry().is_taken_over());
}

/// The server of a disk that was removed, and made again, does nothing to the new one.
#[test]
fn a_disk_in_place_of_another_is_another() {
    let store = Store::default();
    let mut first = Host::new(store.open(""), config(4096));
    first.write(0, &[1; 4096]).expect("a write");
    first.flush().expect("a flush");
    first.write(0, &[2; 4096]).expect("a write");
    let runtime = Store::runtime();
    for name in store.names() {
        runtime.block_on(store.inner.delete(&Path::from(name))).unwrap();
    }
    let mut second = Host::new(store.open(""), config(4096));
    second.write(0, &[3; 4096]).expect("a write");
    second.flush().expect("a flush");
    assert_eq!(first.flush(), Err(EIO));
    drop(first);
    let mut reader = Host::new(store.open_again(true), config(4096));
    assert_eq!(reader.read(0, 4096), Ok(vec![3; 4096]));
    assert_eq!(second.read(8192, 4096), Ok(vec![0; 4096]), "it reads its object");
    let manifest = store.disk("").state().unwrap();
    assert_eq!((manifest.epoch, manifest.objects), (1, 1));
}
