//! A client as its front sees it.

use std::fmt::Display;
use std::sync::Arc;

use nigh_host::Host;
use rustls::ServerConfig;

use crate::clients::Common;
use crate::error::Refused;
use crate::export::Export;
use crate::listen::Listen;
use crate::recording::Recorder;
use crate::stream::Stream;

/// A protocol that clients speak on their connections.
pub trait Front: Send + Sync + 'static {
    /// The URI by which clients call `export` at an address, over TCP with TLS if `tls`; `None` if it is not to be had there.
    fn uri(&self, address: &Listen, export: &str, tls: bool) -> Option<String>;

    /// Serves a client until it leaves or its stream is shut down, on a thread of the connection's own.
    fn serve(&self, guest: &Guest<'_>);
}

/// A client that is let in, and how.
pub struct Guest<'a> {
    common: &'a Common,
    stream: Arc<Stream>,
    /// The number of its connection.
    pub id: u64,
    /// With this, it has to start TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Guest<'_> {
    /// The client of this number, which is registered.
    pub(crate) fn new(common: &Common, id: u64, tls: Option<Arc<ServerConfig>>) -> Guest<'_> {
        Guest { common, stream: common.stream_of(id), id, tls }
    }

    /// The bytes of its connection.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The cache.
    pub fn host(&self) -> &Host {
        &self.common.host
    }

    /// Records its requests, under the number of its connection.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.common.recorder
    }

    /// The exports that a client with a certificate of these names may see.
    pub fn exports(&self, names: &[String]) -> Vec<Arc<Export>> {
        let mut exports = self.common.exports();
        exports.retain(|export| export.is_for(names));
        exports
    }

    /// The names of further ones that are being opened.
    pub fn opening(&self, names: &[String]) -> Vec<String> {
        self.common.opening.names_for(names)
    }

    /// The client, whose certificate has these names, chose an export. It may be that it cannot have it, or not any more.
    pub fn enter(&self, export: &Arc<Export>, names: &[String]) -> Result<(), Refused> {
        self.common.enter(self.id, export, names)
    }

    /// It is a device itself, of the export that it chose, with this URI.
    pub fn announce(&self, uri: String) {
        self.common.announce(self.id, uri);
    }

    /// The error if it may rely on writes of `export` that the server before this one lost, and its protocol does not notice that.
    pub fn check_loss(&self, export: &Export) -> Result<(), Refused> {
        self.common.check_loss(&self.stream, export)
    }

    /// Its connection ended with an error: counts that, and logs it once a minute.
    pub fn note_failed(&self, error: &dyn Display) {
        self.common.note_failed(self.id, error);
    }
}
