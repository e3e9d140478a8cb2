//! Flags by which servers are watched.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

// No doc comment: clap would head the help of commands with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WatchArgs {
    /// Serve statistics over HTTP here: a page with the last hour at /, /metrics for Prometheus, /json; addresses of other than this
    /// machine need --metrics-token
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Serve statistics only to clients that send the token in this file ('Authorization: Bearer TOKEN', or as the password that browsers
    /// ask for)
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_token: Option<PathBuf>,
    /// Count requests that take longer, such as 100ms, and log them with what they waited for: up to ten a second, from 1ms to 1h or
    /// none [default: none]
    #[arg(long, value_name = "TIME")]
    pub(crate) slow: Option<String>,
}
