//! Certificates and keys in PEM files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has no PEM of the kind that it should have.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// The system's error, if that is the reason.
        source: Option<io::Error>,
    },
    /// The certificate and the key do not go together, or cannot be used.
    #[error("{certificate} and {key}: {source}")]
    Certificate {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// The certificate of this side, with those that lead to its authority's, and its private key.
pub(crate) fn identity(provider: &CryptoProvider, certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    check_version(certificate, &chain)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match is_encrypted(key) {
        true => wrong(key, ENCRYPTED.to_owned()),
        false => unusable(key, "private key", error),
    })?;
    let private = provider.key_provider.load_private_key(private).map_err(|error| unfit_key(key, &error))?;
    let certified = CertifiedKey::new(chain, private);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(source) => Err(TlsError::Certificate { certificate: certificate.to_owned(), key: key.to_owned(), source }),
    }
}

const ENCRYPTED: &str = "the private key is encrypted, and nobody enters its passphrase here: decrypt it, such as with openssl pkey -in KEY -out NEW";

/// Whether the key in the file at `path` needs a passphrase, by what stands before it.
fn is_encrypted(path: &Path) -> bool {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// The error if the other side would reject the first certificate for its version.
fn check_version(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    let own = chain.first().and_then(|der| Certificate::from_der(der).ok());
    let version = match own.map(|certificate| certificate.tbs_certificate.version) {
        Some(Version::V1) => 1,
        Some(Version::V2) => 2,
        Some(Version::V3) | None => return Ok(()),
    };
    let reason = format!(
        "it is an X.509 certificate of version {version}, and TLS needs version 3: make it with an extension, such as with openssl \
         x509 -req -extfile, or openssl req -x509 -addext subjectAltName=DNS:HOST"
    );
    Err(wrong(path, reason))
}

/// The authorities in the file at `path`.
pub(crate) fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| wrong(path, error.to_string()))?;
    }
    Ok(roots.into())
}

pub(crate) fn wrong(path: &Path, reason: String) -> TlsError {
    TlsError::File { path: path.to_owned(), reason, source: None }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => {
            Err(TlsError::File { path: path.to_owned(), reason: "has no certificate in PEM form".into(), source: None })
        }
        read => read.map_err(|error| unusable(path, "certificate", error)),
    }
}

fn unusable(path: &Path, what: &str, error: rustls::pki_types::pem::Error) -> TlsError {
    use rustls::pki_types::pem::Error;
    let reason = match error {
        Error::Io(error) => {
            let (path, reason) = (path.to_owned(), error.to_string());
            return TlsError::File { path, reason, source: Some(error) };
        }
        Error::NoItemsFound => format!("has no {what} in PEM form"),
        other => other.to_string(),
    };
    TlsError::File { path: path.to_owned(), reason, source: None }
}

fn unfit_key(path: &Path, error: &rustls::Error) -> TlsError {
    let reason = match error {
        rustls::Error::General(reason) => reason.clone(),
        other => other.to_string(),
    };
    let reason = format!("the private key cannot be used: {reason} (RSA keys need 2048 to 4096 bits)");
    TlsError::File { path: path.to_owned(), reason, source: None }
}
