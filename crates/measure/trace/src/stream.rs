//! Which of the recorded identities of the issuing code is a request's stream.

use std::str::FromStr;

use crate::error::{Error, unknown_name};

/// An identity of the issuing code, or the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Over the 5 innermost return addresses.
    Pc5,
    /// Over the 8 innermost return addresses.
    Pc8,
    /// Over the 16 innermost return addresses.
    Pc16,
    /// The innermost return address.
    Ra0,
    /// The file.
    File,
}

impl Stream {
    /// Every choice.
    pub const ALL: [Stream; 5] = [Stream::Pc5, Stream::Pc8, Stream::Pc16, Stream::Ra0, Stream::File];

    /// The name users write, and that of the column in nigh's recordings.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Pc5 => "pc5",
            Stream::Pc8 => "pc8",
            Stream::Pc16 => "pc16",
            Stream::Ra0 => "ra0",
            Stream::File => "file",
        }
    }
}

impl FromStr for Stream {
    type Err = Error;

    fn from_str(given: &str) -> Result<Stream, Error> {
        let found = Self::ALL.into_iter().find(|stream| stream.name() == given);
        found.ok_or_else(|| unknown_name("stream", given, &Self::ALL.map(Stream::name)))
    }
}
