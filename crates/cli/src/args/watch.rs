//! Flags by which servers are watched.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

// No doc comment: clap would head the help of commands with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WatchArgs {
    /// Serve statistics over HTTP here: a page with the last hour at /, /metrics for Prometheus, /json. With token=FILE, which addresses of other
    /// than this machine need, only to clients that send the token in that file ('Authorization: Bearer TOKEN', or as the password that browsers
    /// ask for)
    #[arg(long, value_name = "HOST:PORT[,token=FILE]")]
    pub(crate) metrics: Option<MetricsArg>,
    /// Count requests that take longer, such as 100ms, and log them with what they waited for: up to ten a second, from 1ms to 1h or
    /// none [default: none]
    #[arg(long, value_name = "TIME")]
    pub(crate) slow: Option<String>,
}

/// An address for statistics, and the file of their token.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MetricsArg {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<PathBuf>,
}

impl FromStr for MetricsArg {
    type Err = String;

    /// `HOST:PORT`, or `HOST:PORT,token=FILE`.
    fn from_str(text: &str) -> Result<MetricsArg, String> {
        let (address, token) = match text.split_once(',') {
            Some((address, option)) => {
                let file = option.strip_prefix("token=");
                (address, Some(file.ok_or_else(|| format!("'{option}': expected token=FILE"))?.into()))
            }
            None => (text, None),
        };
        let address =
            address.parse().map_err(|_| format!("'{address}': expected HOST:PORT, such as 127.0.0.1:9469"))?;
        Ok(MetricsArg { address, token })
    }
}

impl TryFrom<String> for MetricsArg {
    type Error = String;

    fn try_from(text: String) -> Result<MetricsArg, String> {
        text.parse()
    }
}

impl From<MetricsArg> for String {
    fn from(MetricsArg { address, token }: MetricsArg) -> String {
        token.map_or_else(|| address.to_string(), |token| format!("{address},token={}", token.display()))
    }
}

/// A trace that a server writes, and the share of the blocks in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordArg {
    pub(crate) file: PathBuf,
    pub(crate) sample: Option<String>,
}

impl FromStr for RecordArg {
    type Err = Infallible;

    /// `FILE`, or `FILE,sample=RATE`.
    fn from_str(text: &str) -> Result<RecordArg, Infallible> {
        let (file, sample) = text.rsplit_once(",sample=").map_or((text, None), |(file, rate)| (file, Some(rate)));
        Ok(RecordArg { file: file.into(), sample: sample.map(str::to_owned) })
    }
}
