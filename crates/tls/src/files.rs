//! Certificates and keys in PEM files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has no PEM of the kind that it should have.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What the system says, if that is it.
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
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, "private key", error))?;
    let private = provider.key_provider.load_private_key(private).map_err(|error| unfit_key(key, &error))?;
    let certified = CertifiedKey::new(chain, private);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(source) => Err(TlsError::Certificate { certificate: certificate.to_owned(), key: key.to_owned(), source }),
    }
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
