//! How a server is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nigh_backend::Target;
use nigh_host::{DiskError, DiskSettings, agree_in_tenants};
use nigh_policy::Spec;
use nigh_tls::TlsSettings;

/// A disk that is served.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// The disk. Clients choose it by its name.
    pub disk: DiskSettings,
    /// Names of certificates, one of which a client needs to see it; everybody sees it if there are none.
    pub clients: Vec<String>,
    /// Clients at a time; 0 for no limit of its own.
    pub connections: u64,
    /// Requests in progress of each client, at most and without this 512.
    pub requests: u64,
}

impl ExportSettings {
    /// `target` as `name`: written back, for everybody, without limits.
    pub fn new(name: impl Into<String>, target: Target) -> ExportSettings {
        ExportSettings::from(DiskSettings::new(name, target))
    }
}

/// Whether an export for these `clients` is for one with a certificate of these names.
pub(crate) fn is_for(clients: &[String], names: &[String]) -> bool {
    clients.is_empty() || clients.iter().any(|client| names.contains(client))
}

impl From<DiskSettings> for ExportSettings {
    fn from(disk: DiskSettings) -> ExportSettings {
        ExportSettings { disk, clients: Vec::new(), connections: 0, requests: 0 }
    }
}

/// Users that may connect to the Unix sockets that a server creates for clients. The control socket is always its owner's alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// Permissions of the socket, at most 0o777. Without this 0o600, or 0o660 with `group`.
    pub mode: Option<u32>,
    /// The group of the socket, by name or number.
    pub group: Option<String>,
}

/// Statistics over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address of the statistics.
    pub address: SocketAddr,
    /// A file with the token that clients have to send (`Authorization: Bearer TOKEN`); without this, they send none.
    pub token: Option<PathBuf>,
    /// Whether an address that other machines can reach needs no token.
    pub insecure: bool,
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cache, without disks.
    pub host: nigh_host::Settings,
    /// The exports at the start, at least one.
    pub exports: Vec<ExportSettings>,
    /// Connections at a time; more are closed at once.
    pub connections_max: usize,
    /// File descriptors that fronts need in addition to the sockets of connections.
    pub front_descriptors: usize,
    /// Statistics over HTTP.
    pub metrics: Option<MetricsSettings>,
    /// Requests that take longer are counted and logged.
    pub slow: Option<Duration>,
    /// Access to Unix sockets.
    pub sockets: SocketSettings,
    /// With this, clients over TCP have to start TLS.
    pub tls: Option<TlsSettings>,
    /// The server before this one may have lost writes that its clients rely on: a disk that is written back is served only to clients whose process began later than
    /// this, in the kernel's ticks since the boot ([`beginning`](crate::beginning)).
    pub after_loss: Option<u64>,
    /// How long its end may take: what is not written then is lost.
    pub stop_within: Duration,
    /// Whether the process can open only some files (Landlock), so that errors may be due to that.
    pub sandboxed: bool,
}

impl Settings {
    /// Default of `stop_within`: less than the 10 s after which container engines kill.
    pub const STOP_WITHIN: Duration = Duration::from_secs(8);

    /// `exports` in `memory` bytes under `policy`.
    pub fn new(memory: u64, policy: Spec, exports: Vec<ExportSettings>) -> Settings {
        let host = nigh_host::Settings::new(memory, policy, Vec::new());
        Settings {
            host,
            exports,
            connections_max: 1024,
            front_descriptors: 0,
            metrics: None,
            slow: None,
            sockets: SocketSettings::default(),
            tls: None,
            after_loss: None,
            stop_within: Settings::STOP_WITHIN,
            sandboxed: false,
        }
    }

    /// The same with what one export of a tenant gives in all of them ([`DiskSettings::floor`]). An error where two of them
    /// differ.
    pub fn agreed(&self) -> Result<Settings, DiskError> {
        let mut settings = self.clone();
        agree_in_tenants(settings.exports.iter_mut().map(|export| &mut export.disk))?;
        Ok(settings)
    }
}
