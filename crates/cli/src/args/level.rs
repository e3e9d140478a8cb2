//! Flags of `nigh level`.

use std::path::PathBuf;

use clap::Args;

use super::{MetricsArg, RightsArgs, TlsArg};

#[derive(Clone, Debug, Args)]
pub(crate) struct LevelArgs {
    /// Address for servers, such as tcp:10.0.0.5:10810
    #[arg(long, value_name = "tcp:HOST:PORT")]
    pub(crate) listen: String,
    /// Memory for blocks, such as 64G
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: String,
    /// A file for blocks that memory has no room for, such as file:/ssd/level.cache:1T. It is created if absent. After a restart, clients that kept
    /// running find their blocks in it again
    #[arg(long, value_name = "file:PATH:SIZE")]
    pub(crate) level: Option<String>,
    /// The most that one client may have, in memory and in the file together [default: all]
    #[arg(long, value_name = "SIZE")]
    pub(crate) client_size: Option<String>,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) connections: u16,
    /// This server's certificate (followed by any intermediate ones) and its private key: all connections use TLS. Only clients with a certificate
    /// of the authority are accepted, and the name in it is that of the client (PEM)
    #[arg(long, value_name = "certificate=FILE,key=FILE,client-ca=FILE")]
    pub(crate) tls: Option<TlsArg>,
    /// Without TLS, listen on an address that is not a loopback address; let other machines read --metrics without a token
    #[arg(long)]
    pub(crate) insecure_tcp: bool,
    /// Serve statistics over HTTP here: /metrics for Prometheus, /json. With token=FILE, which addresses of other than this machine need, only to
    /// clients that send the token in that file ('Authorization: Bearer TOKEN')
    #[arg(long, value_name = "HOST:PORT[,token=FILE]")]
    pub(crate) metrics: Option<MetricsArg>,
    /// Accept 'nigh ctl status' and 'nigh ctl reload' on this Unix socket, accessible to its owner only
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Lines to log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
}
