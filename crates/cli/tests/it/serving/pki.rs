//! Authorities and certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Authorities and certificates in a folder: for each client a folder that libnbd and QEMU understand.
pub(crate) struct Pki {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) authority: Issuer<'static, KeyPair>,
    stranger: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let folder = tempfile::tempdir().unwrap();
        let ((authority, ours), (stranger, theirs)) = (authority("ours"), authority("theirs"));
        std::fs::write(folder.path().join("ca.pem"), ours).unwrap();
        std::fs::write(folder.path().join("stranger.pem"), theirs).unwrap();
        let pki = Pki { folder, authority, stranger };
        let mut server = CertificateParams::new(["localhost".to_owned()]).unwrap();
        server.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        pki.write(server, &pki.authority, &pki.path("server.pem"), &pki.path("server.key"));
        pki
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(
        &self,
        params: CertificateParams,
        by: &Issuer<'static, KeyPair>,
        certificate: &Path,
        key: &Path,
    ) {
        let pair = KeyPair::generate().unwrap();
        std::fs::write(certificate, params.signed_by(&pair, by).unwrap().pem()).unwrap();
        std::fs::write(key, pair.serialize_pem()).unwrap();
    }

    /// A folder with the authority's certificate, and a client's of this common name and alternative names.
    pub(crate) fn client(&self, name: &str, alternatives: &[&str], ours: bool) -> PathBuf {
        let folder = self.path(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(self.path("ca.pem"), folder.join("ca-cert.pem")).unwrap();
        let alternatives: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        let by = if ours { &self.authority } else { &self.stranger };
        self.write(params, by, &folder.join("client-cert.pem"), &folder.join("client-key.pem"));
        folder
    }

    /// A folder with the authority's certificate only.
    pub(crate) fn nobody(&self) -> PathBuf {
        let folder = self.path("nobody");
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(self.path("ca.pem"), folder.join("ca-cert.pem")).unwrap();
        folder
    }
}
