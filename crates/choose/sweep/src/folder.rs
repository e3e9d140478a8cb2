//! The folder of results: a file `KEY.parquet` for each job.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use arrow_array::RecordBatch;

use crate::{Error, Key, decode};

/// The end of the names of results.
const SUFFIX: &str = ".parquet";
/// The beginning and the end of the names of files that are being written.
const UNFINISHED: [&str; 2] = [".nigh-", ".unfinished"];
/// A file that is still unfinished after this time was left by a sweep that was killed: to write one takes milliseconds.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder of results. Several sweeps may use it at a time.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// State of a job in a folder.
#[derive(Debug)]
pub enum Found {
    /// No result.
    Nothing,
    /// A file that is not whole.
    Damaged,
    /// The result.
    Table(RecordBatch),
}

impl Folder {
    /// The folder `path`, which is created if there is none. Leftovers of killed sweeps are removed.
    pub fn create(path: &Path) -> Result<Folder, Error> {
        let folder = Folder(path.to_owned());
        fs::create_dir_all(path).map_err(|error| folder.error(error))?;
        // Before long work, not after it.
        folder.temporary().map_err(|error| folder.error(error))?;
        folder.tidy().map_err(|error| folder.error(error))?;
        Ok(folder)
    }

    /// The folder `path`, which must be there.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let folder = Folder(path.to_owned());
        fs::read_dir(path).map_err(|error| folder.error(error))?;
        Ok(folder)
    }

    /// Path of the result of the job `key`, whether or not it exists.
    pub fn path(&self, key: &Key) -> PathBuf {
        self.0.join(format!("{key}{SUFFIX}"))
    }

    /// The result of the job `key`.
    pub fn find(&self, key: &Key) -> Result<Found, Error> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(bytes) => Ok(decode(key, bytes).map_or(Found::Damaged, Found::Table)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(source) => Err(Error::Io { path, source }),
        }
    }

    /// Stores the result of the job `key`, which [`encode`](crate::encode) gave, whole or not at all.
    pub fn put(&self, key: &Key, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(key);
        let store = || {
            let mut file = self.temporary()?;
            file.write_all(bytes)?;
            // A temporary file is its owner's alone; results have the usual mode.
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        };
        store().map_err(|source| Error::Io { path: path.clone(), source })
    }

    /// The keys of all results, in order.
    pub fn keys(&self) -> Result<Vec<Key>, Error> {
        let names = self.names().map_err(|error| self.error(error))?;
        let mut keys: Vec<Key> = names.iter().filter_map(|name| Key::parse(name.strip_suffix(SUFFIX)?)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.0)?;
        entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
    }

    fn temporary(&self) -> io::Result<tempfile::NamedTempFile> {
        let [begin, end] = UNFINISHED;
        tempfile::Builder::new().prefix(begin).suffix(end).tempfile_in(&self.0)
    }

    fn tidy(&self) -> io::Result<()> {
        let [begin, end] = UNFINISHED;
        let unfinished = |name: &String| name.starts_with(begin) && name.ends_with(end);
        for name in self.names()?.into_iter().filter(unfinished) {
            let path = self.0.join(name);
            // Another sweep may finish or remove it meanwhile.
            let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
            if age.is_some_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Io { path: self.0.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_killed_sweeps_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/results");
        let folder = Folder::create(&path).unwrap();
        let key = Key::parse("0123456789abcdef0123456789abcdef").unwrap();
        folder.put(&key, b"half").unwrap();
        assert!(matches!(folder.find(&key), Ok(Found::Damaged)));
        let [old, new, other] =
            [".nigh-abc", ".nigh-def", ".mine"].map(|name| path.join(name.to_owned() + ".unfinished"));
        for path in [&old, &new, &other] {
            fs::write(path, "half").unwrap();
        }
        let long_ago = SystemTime::now() - 2 * ABANDONED;
        for path in [&old, &other] {
            File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let folder = Folder::create(&path).unwrap();
        assert_eq!(folder.keys().unwrap(), [key]);
        let names = folder.names().unwrap();
        assert_eq!((old.exists(), new.exists(), other.exists(), names.len()), (false, true, true, 4));
    }

    #[test]
    fn no_folder() {
        let parent = tempfile::tempdir().unwrap();
        assert!(Folder::open(&parent.path().join("none")).is_err());
        fs::write(parent.path().join("file"), "").unwrap();
        assert!(Folder::create(&parent.path().join("file")).is_err());
    }
}
