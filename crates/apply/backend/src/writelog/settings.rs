//! A write log, as a user asks for it.

use std::fmt;
use std::str::FromStr;

use crate::error::TargetError;
use crate::target::Target;
use crate::units::{show_size, size};

const FORM: TargetError = TargetError::Form { kind: "write-log", form: "TARGET:SIZE, such as /ssd/disk.log:8G" };

/// The log of a disk's writes: TARGET:SIZE.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteLogSettings {
    /// A file, which is made if it does not exist, or a block device.
    pub target: Target,
    /// Its size in bytes.
    pub bytes: u64,
}

impl FromStr for WriteLogSettings {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<WriteLogSettings, TargetError> {
        let (target, bytes) = text.rsplit_once(':').ok_or(FORM)?;
        let (target, bytes) = (target.parse::<Target>()?, size(bytes)?);
        match target.path() {
            Some(_) if bytes >= WriteLogSettings::LEAST => Ok(WriteLogSettings { target, bytes }),
            Some(_) => Err(TargetError::Value { text: text.to_owned(), what: "a log of at least 1M" }),
            None => Err(TargetError::Value { text: text.to_owned(), what: "a file or block device, and a size" }),
        }
    }
}

impl WriteLogSettings {
    /// The smallest log, in bytes.
    pub const LEAST: u64 = 1 << 20;
}

impl fmt::Display for WriteLogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.target, show_size(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_shown_as_they_are_parsed_and_slips_are_explained() {
        for text in ["/ssd/disk.log:8G", "delay:1ms:disk.log:1M", "unlocked:/dev/nvme0n1p3:100G"] {
            assert_eq!(text.parse::<WriteLogSettings>().expect(text).to_string(), text);
        }
        let wrong = |text: &str| text.parse::<WriteLogSettings>().expect_err(text).to_string();
        assert!(wrong("disk.log").contains("TARGET:SIZE"));
        assert!(wrong("disk.log:big").contains("`big` is not a size"));
        assert!(wrong("disk.log:100K").contains("at least 1M"));
        assert!(wrong("memory:1G:1G").contains("a file or block device"));
    }
}
