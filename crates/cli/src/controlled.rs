//! A running server, reached by its control socket.

use anyhow::Context;
use nigh_service::ControlClient;

use crate::args::ControlArgs;

/// A connection to the server, and what it is called in errors.
pub(crate) fn connect(server: &ControlArgs) -> anyhow::Result<(ControlClient, String)> {
    let path =
        server.control.as_ref().context("which server? say --control PATH, as to 'nigh serve', or NIGH_CONTROL")?;
    let shown = path.display().to_string();
    Ok((ControlClient::connect(path).with_context(|| shown.clone())?, shown))
}
