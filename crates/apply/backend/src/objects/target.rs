//! Disks in object stores as a user writes them.
//!
//! ```text
//! s3://BUCKET/PREFIX[?timeout=TIME][&staging=SIZE]     also gs://BUCKET/PREFIX and az://CONTAINER/PREFIX
//! ```

use std::fmt;
use std::time::Duration;

use nigh_text::nearest;

use crate::error::TargetError;
use crate::units::{show_size, show_time, size, time};

/// How a target is written.
pub(crate) const FORM: &str = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";
const TAKES: &str = "timeout=TIME and staging=SIZE";
const TIMEOUT: Duration = Duration::from_secs(60);
const STAGING: u64 = 256 << 20;

/// Whose object store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    /// With the scheme of its URLs.
    pub(crate) const ALL: [(&str, Provider); 3] =
        [("s3", Provider::S3), ("gs", Provider::Google), ("az", Provider::Azure)];

    fn scheme(self) -> &'static str {
        Provider::ALL.into_iter().find(|(_, of)| *of == self).expect("each has a scheme").0
    }
}

/// A disk in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTarget {
    /// Whose store it is.
    pub provider: Provider,
    /// The bucket, or the container.
    pub bucket: String,
    /// Prefix of its objects' names, before a `/`.
    pub prefix: String,
    /// How long a request to the store may take, with all attempts.
    pub timeout: Duration,
    /// The most memory for changes that no object has yet, in bytes.
    pub staging: u64,
}

impl ObjectTarget {
    /// Identity of the disk: equal for two targets of the same one.
    pub fn place(&self) -> (Provider, &str, &str) {
        (self.provider, &self.bucket, &self.prefix)
    }

    /// None if `text` does not begin with the scheme of a store.
    pub(crate) fn parse(text: &str) -> Option<Result<ObjectTarget, TargetError>> {
        let (scheme, rest) = text.split_once("://")?;
        let (_, provider) = Provider::ALL.into_iter().find(|(name, _)| *name == scheme)?;
        Some(ObjectTarget::parse_rest(scheme, provider, rest))
    }

    fn parse_rest(scheme: &str, provider: Provider, rest: &str) -> Result<ObjectTarget, TargetError> {
        let form = || TargetError::Form { kind: scheme_word(scheme), form: FORM };
        let (place, options) = rest.split_once('?').map_or((rest, None), |(place, options)| (place, Some(options)));
        let (bucket, prefix) = place.split_once('/').ok_or_else(form)?;
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if bucket.is_empty() || prefix.is_empty() {
            return Err(form());
        }
        let wrong = |text: &str, what| Err(TargetError::Value { text: text.to_owned(), what });
        let of_bucket = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !bucket.chars().all(of_bucket) {
            return wrong(bucket, "the name of a bucket or a container");
        }
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.=+".contains(c);
        let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && name.chars().all(of_name);
        if !prefix.split('/').all(is_name) {
            return wrong(
                prefix,
                "a prefix of names of letters, digits, `-`, `_`, `.`, `=` and `+`, with `/` between them",
            );
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        let mut target = ObjectTarget { provider, bucket, prefix, timeout: TIMEOUT, staging: STAGING };
        for option in options.into_iter().flat_map(|options| options.split('&')) {
            match option.split_once('=') {
                Some(("timeout", value)) => target.timeout = time(value)?,
                Some(("staging", value)) => target.staging = size(value)?,
                _ => {
                    let word = option.split('=').next().unwrap_or_default();
                    let (kind, nearest) = (scheme_word(scheme), nearest(word, ["timeout", "staging"]));
                    return Err(TargetError::Option { kind, word: word.to_owned(), nearest, takes: TAKES });
                }
            }
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&target.timeout) {
            return wrong(&show_time(target.timeout), "a time from 1s to 3600s, such as `timeout=60s`");
        }
        if !(16 << 20..=64 << 30).contains(&target.staging) {
            return wrong(&show_size(target.staging), "a size from 16M to 64G, such as `staging=256M`");
        }
        Ok(target)
    }
}

/// For errors.
fn scheme_word(scheme: &str) -> &'static str {
    Provider::ALL.into_iter().find(|(name, _)| *name == scheme).map_or("s3", |(name, _)| name)
}

/// As it is parsed.
impl fmt::Display for ObjectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectTarget { provider, bucket, prefix, timeout, staging } = self;
        write!(f, "{}://{bucket}/{prefix}", provider.scheme())?;
        let timeout = (*timeout != TIMEOUT).then(|| format!("timeout={}", show_time(*timeout)));
        let staging = (*staging != STAGING).then(|| format!("staging={}", show_size(*staging)));
        let options: Vec<String> = timeout.into_iter().chain(staging).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}
