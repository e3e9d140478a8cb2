//! Values of flags by which servers are watched.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address for statistics, and the file of their token.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for MetricsArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.token.iter().try_for_each(|token| write!(f, ",token={}", token.display()))
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
