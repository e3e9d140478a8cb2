//! The note beside the manifest of a disk in an object store that names its writer: for people, and to distinguish a writer that has
//! ended from one that runs. Only the manifest decides which writer may write.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::process::{has_ended, state};

/// A process that opened the disk for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// As in its manifest, in hexadecimal digits.
    writer: String,
    host: String,
    process: u32,
    /// When the process began, in ticks since the machine did.
    began: u64,
    /// The start of the machine, and where its numbers of processes count: others have other processes of this number.
    boot: String,
    namespace: String,
    /// It closed the disk.
    closed: bool,
}

impl Owner {
    /// This process, as `writer`.
    pub(super) fn this(writer: u128) -> Owner {
        let (boot, namespace) = here().unwrap_or_default();
        Owner {
            writer: in_digits(writer),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            process: std::process::id(),
            began: state("self").map_or(0, |(_, began)| began),
            boot,
            namespace,
            closed: false,
        }
    }

    /// The same, after it closed the disk.
    pub(super) fn closed(self) -> Owner {
        Owner { closed: true, ..self }
    }

    /// Whether it is the writer of a manifest.
    pub(super) fn is(&self, writer: u128) -> bool {
        self.writer == in_digits(writer)
    }

    /// Whether it certainly writes no more: it closed the disk, or was a process of this machine that has ended.
    pub(super) fn is_gone(&self) -> bool {
        if self.closed {
            return true;
        }
        let is_here = here().is_some_and(|(boot, namespace)| (&boot, &namespace) == (&self.boot, &self.namespace));
        is_here
            && match state(&self.process.to_string()) {
                Ok((state, began)) => has_ended(state) || began != self.began,
                // Processes may be hidden, but then the first one is, too.
                Err(error) => error.kind() == io::ErrorKind::NotFound && state("1").is_ok(),
            }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of host {}", self.process, self.host)
    }
}

fn in_digits(writer: u128) -> String {
    format!("{writer:032x}")
}

/// The start of this machine, and where this process's number counts.
fn here() -> Option<(String, String)> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some((boot.trim().to_owned(), namespace.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_6_a_process_that_ended_is_gone_and_others_may_live() {
        let this = Owner::this(7);
        assert!(this.is(7) && !this.is(8) && !this.is_gone());
        assert!(this.clone().closed().is_gone());
        assert!(Owner { began: this.began + 1, ..this.clone() }.is_gone(), "another process has its number");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        let ended = Owner { process, ..this };
        assert!(ended.is_gone());
        assert!(!Owner { boot: "another".into(), ..ended.clone() }.is_gone(), "a process of another machine");
        assert!(!Owner { namespace: "pid:[1]".into(), ..ended }.is_gone(), "a process of another container");
    }
}
