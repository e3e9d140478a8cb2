//! The configuration of a server.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

use crate::files::{TlsError, authorities, identity, wrong};

/// Certificates for clients over TCP, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate, and those that lead to its authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of which a client needs a certificate; without this, clients need none.
    pub client_ca: Option<PathBuf>,
}

impl TlsSettings {
    /// Reads the files.
    pub fn configure(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let TlsSettings { certificate, key, client_ca } = self;
        let provider = Arc::new(ring::default_provider());
        let certified = identity(&provider, certificate, key)?;
        let verifier = match client_ca {
            None => Arc::new(NoClientAuth),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider.clone());
                verifier.build().map_err(|error| wrong(path, error.to_string()))?
            }
        };
        let unfit = |source| TlsError::Certificate { certificate: certificate.clone(), key: key.clone(), source };
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unfit)?;
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        // Clients do not come back with tickets.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}
