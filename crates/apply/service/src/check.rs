//! Reasons why a server would not start, found without starting it.

use nigh_tls::TlsSettings;

use crate::admin;
use crate::error::StartError;
use crate::settings::Settings;

impl Settings {
    /// Why a server with these settings would not start, as far as that is found without taking anything from a server that runs: names,
    /// certificates, targets and levels. Neither locks nor addresses are looked at. Empty if nothing is found.
    pub fn problems(&self) -> Vec<StartError> {
        let agreed = match self.agreed().map_err(nigh_host::StartError::from) {
            Ok(agreed) => agreed,
            Err(error) => return vec![error.into()],
        };
        let Settings { mut host, exports, metrics, tls, .. } = agreed;
        let mut problems: Vec<StartError> = Vec::new();
        if exports.is_empty() {
            problems.push(StartError::NoExports);
        }
        problems.extend(admin::check(&exports, tls.as_ref()).err().map(StartError::from));
        problems.extend(tls.as_ref().map(TlsSettings::configure).transpose().err().map(StartError::from));
        problems.extend(metrics.as_ref().map(|metrics| metrics.token()).transpose().err());
        host.disks = exports.iter().map(|export| export.disk.clone()).collect();
        problems.extend(nigh_host::problems(&host).into_iter().map(StartError::from));
        problems
    }
}
