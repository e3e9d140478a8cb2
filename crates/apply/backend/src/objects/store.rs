//! Requests to an object store: limited in time, and tried again.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use nigh_objects::{MANIFEST_MAX, Manifest, Object};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion};

use super::owner::Owner;

/// The first pause before a request is tried again; later ones are twice as long each.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often a manifest is tried to be stored after another attempt of the same writer took effect.
const ATTEMPTS: usize = 5;
/// The most deletions under way.
pub(super) const DELETES: usize = 8;
/// The longest note about a writer that is read, in bytes.
const OWNER_MAX: u64 = 4096;
/// The most bytes of an error that are reported.
const ERROR_MAX: usize = 400;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is no such object, or no bucket.
    Missing(String),
    /// The condition of a put is not met.
    Conflict(String),
    /// The credentials are missing or wrong, or do not allow it.
    Denied(String),
    /// Somebody else writes the disk now.
    TakenOver(String),
    /// Something else; it was tried again until the time was over, if that made sense.
    Other(String),
}

impl Failure {
    pub(super) fn reason(&self) -> &str {
        match self {
            Failure::Missing(reason)
            | Failure::Conflict(reason)
            | Failure::Denied(reason)
            | Failure::TakenOver(reason)
            | Failure::Other(reason) => reason,
        }
    }
}

/// The objects of one disk.
pub(super) struct Store {
    inner: Arc<dyn ObjectStore>,
    manifest: Path,
    /// The note about its writer.
    owner: Path,
    /// The folder of objects by which the store's clock is read.
    clock: Path,
    /// The folder of the parts.
    parts: Path,
    /// How long a request may take, with all attempts.
    timeout: Duration,
}

/// The error, and its innermost cause if that is not among its words: why a certificate is not accepted, for instance.
fn whole(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let innermost = std::iter::successors(error.source(), |error| error.source()).last().map(ToString::to_string);
    match innermost {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

/// `text` in one line, of a limited length.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut line = words.collect::<Vec<_>>().join(" ");
    if line.len() > ERROR_MAX {
        let end = (0..=ERROR_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line += "...";
    }
    line
}

/// The meaning of `error`, or its text if a new attempt may succeed.
fn judge(error: &Error) -> Result<Failure, String> {
    let line = one_line(&whole(error));
    Ok(match error {
        Error::NotFound { .. } => Failure::Missing(line),
        Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotModified { .. } => Failure::Conflict(line),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Failure::Denied(line),
        Error::Generic { .. } | Error::JoinError { .. } => return Err(line),
        _ => Failure::Other(line),
    })
}

impl Store {
    /// The objects of the disk with this number. A disk that is made where another one was removed has another number: a server
    /// that still has the removed one does not touch it. For the manifest alone, the number may be any.
    pub(super) fn new(inner: Arc<dyn ObjectStore>, prefix: &Path, disk: u128, timeout: Duration) -> Store {
        let parts = prefix.clone().join("parts").join(format!("{disk:032x}"));
        let [manifest, owner, clock] = ["manifest", "owner", "clock"].map(|name| prefix.clone().join(name));
        Store { inner, manifest, owner, clock, parts, timeout }
    }

    fn path(&self, object: Object) -> Path {
        self.parts.clone().join(object.to_string())
    }

    /// Makes a request, again and again until it succeeds, fails for good, or the time is over. Each attempt has half of the
    /// time: after it, the connection is given up.
    async fn patiently<T>(&self, request: impl AsyncFn() -> Result<T, Error>) -> Result<T, Failure> {
        let (since, mut pause) = (Instant::now(), PAUSE);
        loop {
            let left = self.timeout.saturating_sub(since.elapsed());
            let reason = match tokio::time::timeout(left.min(self.timeout / 2), request()).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => match judge(&error) {
                    Ok(failure) => return Err(failure),
                    Err(reason) => reason,
                },
                Err(_) => "no answer".to_owned(),
            };
            let rest = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            if since.elapsed() + rest >= self.timeout {
                let seconds = self.timeout.as_secs_f64();
                return Err(Failure::Other(format!("{reason} (tried for {seconds:.0} s)")));
            }
            tracing::debug!(reason, "a request to the object store is tried again");
            tokio::time::sleep(rest).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Bytes of an object.
    pub(super) async fn get(&self, object: Object, range: Range<u64>) -> Result<Bytes, Failure> {
        let path = self.path(object);
        let bytes = self.patiently(async || self.inner.get_range(&path, range.clone()).await).await?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => Err(Failure::Other(format!("the object {path} is shorter than its part of the disk"))),
        }
    }

    /// Makes an object. Whether it existed does not matter: a name always means the same bytes.
    pub(super) async fn put(&self, object: Object, bytes: Bytes) -> Result<(), Failure> {
        let path = self.path(object);
        let payload = PutPayload::from_bytes(bytes);
        self.patiently(async || self.inner.put(&path, payload.clone()).await).await.map(drop)
    }

    /// The manifest, and its version for [`Store::replace`].
    pub(super) async fn load(&self) -> Result<(Manifest, UpdateVersion), Failure> {
        let path = &self.manifest;
        let load = async || {
            let found = self.inner.get(path).await?;
            let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
            let is_long = found.meta.size > MANIFEST_MAX as u64;
            let bytes = if is_long { None } else { Some(found.bytes().await?) };
            Ok((bytes, version))
        };
        let (bytes, version) = self.patiently(load).await?;
        let bytes =
            bytes.ok_or_else(|| Failure::Other(format!("{path} is not the manifest of a disk: it is too long")))?;
        let manifest = Manifest::decode(&bytes).map_err(|error| Failure::Other(format!("{path}: {error}")))?;
        if version.e_tag.is_none() && version.version.is_none() {
            return Err(Failure::Other("the store has no ETags, which a disk needs".to_owned()));
        }
        Ok((manifest, version))
    }

    async fn put_manifest(&self, manifest: &Manifest, mode: PutMode) -> Result<UpdateVersion, Failure> {
        let payload = PutPayload::from(manifest.encode());
        let put = async || self.inner.put_opts(&self.manifest, payload.clone(), mode.clone().into()).await;
        let PutResult { e_tag, version, .. } = self.patiently(put).await?;
        Ok(UpdateVersion { e_tag, version })
    }

    /// Stores the first manifest of a disk.
    pub(super) async fn create(&self, manifest: &Manifest) -> Result<(), Failure> {
        match self.put_manifest(manifest, PutMode::Create).await {
            // The reply to an attempt that took effect may have been lost.
            Err(Failure::Conflict(_)) if self.load().await.is_ok_and(|(found, _)| found == *manifest) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Whether the store refuses to replace a manifest on a condition that is not met. One that ignores conditions would keep no
    /// second writer out.
    pub(super) async fn has_conditions(&self, manifest: &Manifest) -> Result<bool, Failure> {
        let wrong = UpdateVersion { e_tag: Some("\"00000000000000000000000000000000\"".to_owned()), version: None };
        for mode in [PutMode::Create, PutMode::Update(wrong)] {
            match self.put_manifest(manifest, mode).await {
                Err(Failure::Conflict(_)) => {}
                result => return result.map(|_| false),
            }
        }
        Ok(true)
    }

    /// The last writer of the disk, if a note names one.
    pub(super) async fn owner(&self) -> Result<Option<Owner>, Failure> {
        let load = async || {
            let found = self.inner.get(&self.owner).await?;
            let is_long = found.meta.size > OWNER_MAX;
            Ok(if is_long { None } else { Some(found.bytes().await?) })
        };
        match self.patiently(load).await {
            // Another version of nigh may note something else.
            Ok(bytes) => Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
            Err(Failure::Missing(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Notes who writes the disk.
    pub(super) async fn note_owner(&self, owner: &Owner) -> Result<(), Failure> {
        let payload = PutPayload::from(serde_json::to_vec(owner).expect("it is plain data"));
        self.patiently(async || self.inner.put(&self.owner, payload.clone()).await).await.map(drop)
    }

    /// How long ago the manifest was stored, by the store's own clock. `name` is that of an object of its own, which is made for that.
    pub(super) async fn age(&self, name: u128) -> Result<Duration, Failure> {
        let now = self.clock.clone().join(format!("{name:032x}"));
        let empty = PutPayload::new();
        self.patiently(async || self.inner.put(&now, empty.clone()).await).await?;
        let times = async || Ok((self.inner.head(&self.manifest).await?, self.inner.head(&now).await?));
        let found = self.patiently(times).await;
        // If it stays, it is in nobody's way.
        let _ = self.patiently(async || self.inner.delete(&now).await).await;
        let (stored, now) = found?;
        Ok(now.last_modified.signed_duration_since(stored.last_modified).to_std().unwrap_or_default())
    }

    /// Deletes the manifest.
    pub(super) async fn remove(&self) -> Result<(), Failure> {
        self.patiently(async || self.inner.delete(&self.manifest).await).await
    }

    /// Stores `manifest` in place of the one with this version, and returns its own version.
    pub(super) async fn replace(
        &self,
        mut version: UpdateVersion,
        manifest: &Manifest,
    ) -> Result<UpdateVersion, Failure> {
        let mut conflict = None;
        for _ in 0..ATTEMPTS {
            match self.put_manifest(manifest, PutMode::Update(version)).await {
                Err(failure @ Failure::Conflict(_)) => conflict = Some(failure),
                result => return result,
            }
            let (found, found_version) = match self.load().await {
                // That is no other writer: something in between may answer for the store.
                Err(Failure::Missing(_)) => return Err(Failure::Other("the manifest of the disk is gone".to_owned())),
                loaded => loaded?,
            };
            if !found.has_writer_of(manifest) {
                return Err(self.taken_over(&found, manifest).await);
            }
            if found.revision == manifest.revision {
                return Ok(found_version);
            }
            // An earlier attempt took effect after all.
            version = found_version;
        }
        Err(conflict.expect("there was an attempt"))
    }

    /// Why the writer of `own` is none any more: the disk has the manifest `found`.
    pub(super) async fn taken_over(&self, found: &Manifest, own: &Manifest) -> Failure {
        let who = self.owner().await.ok().flatten().filter(|owner| owner.is(found.writer));
        let who = who.map_or_else(|| "another writer".to_owned(), |owner| format!("another writer, {owner},"));
        let (epoch, own) = (found.epoch, own.epoch);
        Failure::TakenOver(format!("{who} opened the disk: it is in epoch {epoch}, and this is the writer of {own}"))
    }

    /// Makes `writer` the only one that may change the disk.
    pub(super) async fn claim(&self, writer: u128) -> Result<(Manifest, UpdateVersion), Failure> {
        let (since, mut pause) = (Instant::now(), PAUSE);
        loop {
            let (manifest, version) = self.load().await?;
            let claimed = manifest.claimed_by(writer);
            let claimed = claimed.ok_or_else(|| {
                Failure::Other("it was opened too often for its format: copy it to a new disk".to_owned())
            })?;
            match self.replace(version, &claimed).await {
                // It was flushed, or opened, at the same time.
                Err(Failure::TakenOver(_)) if since.elapsed() + pause < self.timeout => {
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                Err(Failure::TakenOver(_)) => {
                    return Err(Failure::Other("others flush or open the disk again and again".to_owned()));
                }
                result => return Ok((claimed, result?)),
            }
        }
    }

    /// Deletes objects, until one cannot be. Those that are gone are fine.
    pub(super) async fn delete(&self, objects: &[Object]) -> Result<(), Failure> {
        let delete = |object: Object| async move {
            let path = self.path(object);
            match self.patiently(async || self.inner.delete(&path).await).await {
                Err(Failure::Missing(_)) => Ok(()),
                result => result,
            }
        };
        // One request for each: not every store knows how to delete several at once.
        futures_util::stream::iter(objects).map(|object| delete(*object)).buffer_unordered(DELETES).try_collect().await
    }

    /// Objects that earlier writers left: those that the writer of `manifest` may delete, at most `most`, and whether there may
    /// be more.
    pub(super) async fn leftovers(&self, manifest: &Manifest, most: usize) -> Result<(Vec<Object>, bool), Failure> {
        let mut left = Vec::new();
        let mut listed = self.inner.list(Some(&self.parts));
        loop {
            let next = tokio::time::timeout(self.timeout, listed.try_next()).await;
            let next = next.map_err(|_| Failure::Other("no answer".to_owned()))?;
            let next = next.map_err(|error| judge(&error).unwrap_or_else(Failure::Other))?;
            let Some(found) = next else { return Ok((left, false)) };
            let object = found.location.filename().and_then(|name| name.parse().ok());
            left.extend(object.filter(|object| manifest.is_leftover(*object)));
            if left.len() >= most {
                return Ok((left, true));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_short_line() {
        assert_eq!(one_line("a\n  b\tc \u{1b}[31m"), "a b c [31m");
        let long = one_line(&"ä ".repeat(1000));
        assert!(long.ends_with("...") && long.len() <= ERROR_MAX + 3, "{long}");
    }
}
