//! Flags of levels on other hosts: of the server, and of `serve`, its client.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LevelArgs {
    /// Where servers connect, such as tcp:10.0.0.5:10810. Connections are not encrypted, and clients not authenticated
    #[arg(long, value_name = "tcp:HOST:PORT")]
    pub(crate) listen: String,
    /// Memory for blocks, such as 64G
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: String,
    /// Most memory that one client has [default: all]
    #[arg(long, value_name = "SIZE")]
    pub(crate) client_memory: Option<String>,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) connections: u16,
    /// Listen on an address that is not a loopback address
    #[arg(long)]
    pub(crate) insecure_tcp: bool,
    /// What to log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

// No doc comment: clap would head the help of `serve` with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoteLevelArgs {
    /// The name by which a level on another host knows this server; no two servers may have the same [default: HOSTNAME/EXPORT of
    /// the first export]
    #[arg(long, value_name = "NAME")]
    pub(crate) level_name: Option<String>,
    /// Do not start if the level on another host cannot be reached; otherwise it is used as soon as it can be
    #[arg(long)]
    pub(crate) level_required: bool,
}
