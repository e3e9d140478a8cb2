//! A server's certificate, as flags and files write it.

use std::path::PathBuf;
use std::str::FromStr;

use nigh_service::TlsSettings;

/// A server's certificate, and the authority of its clients.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TlsArg {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
}

impl FromStr for TlsArg {
    type Err = String;

    /// `certificate=FILE,key=FILE`, and perhaps `client-ca=FILE`, in any order.
    fn from_str(text: &str) -> Result<TlsArg, String> {
        let (mut certificate, mut key, mut client_ca) = (None, None, None);
        for part in text.split(',') {
            let (at, file) = match part.split_once('=') {
                Some(("certificate", file)) => (&mut certificate, file),
                Some(("key", file)) => (&mut key, file),
                Some(("client-ca", file)) => (&mut client_ca, file),
                _ => return Err(format!("'{part}': expected certificate=FILE, key=FILE or client-ca=FILE")),
            };
            if at.replace(PathBuf::from(file)).is_some() {
                return Err(format!("'{part}': it is given twice"));
            }
        }
        let needed = "it needs certificate=FILE and key=FILE";
        Ok(TlsArg { certificate: certificate.ok_or(needed)?, key: key.ok_or(needed)?, client_ca })
    }
}

impl From<TlsArg> for TlsSettings {
    fn from(TlsArg { certificate, key, client_ca }: TlsArg) -> TlsSettings {
        TlsSettings { certificate, key, client_ca }
    }
}

impl From<TlsSettings> for TlsArg {
    fn from(TlsSettings { certificate, key, client_ca }: TlsSettings) -> TlsArg {
        TlsArg { certificate, key, client_ca }
    }
}
