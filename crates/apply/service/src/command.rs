//! Commands of control clients.

use std::fmt;

use nigh_host::FileExtent;
use serde::{Deserialize, Serialize};

use crate::options::{ExportOptions, amount};
use crate::recording::Recording;

/// A request of a control client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Tell what the server did and holds.
    Status {},
    /// Change the cache.
    Set {
        /// Memory for blocks, in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<u64>,
        /// Which block leaves.
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
        /// The prefetcher.
        #[serde(skip_serializing_if = "Option::is_none")]
        readahead: Option<String>,
        /// The time beyond which requests are slow, such as `100ms`, or `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slow: Option<String>,
    },
    /// Change the settings of an export.
    SetExport {
        /// Its name.
        name: String,
        /// The options to change.
        options: ExportOptions,
    },
    /// Serve another export.
    AddExport {
        /// Its name.
        name: String,
        /// Its target.
        target: String,
        /// Options that differ from the default.
        #[serde(default)]
        options: ExportOptions,
        /// Whether a disk in an object store is taken from another writer that seems to live.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        take_over: bool,
    },
    /// Serve an export no more.
    RemoveExport {
        /// Its name.
        name: String,
        /// Whether dirty blocks are dropped.
        #[serde(default)]
        discard: bool,
    },
    /// Apply directives on behalf of an export's clients.
    Hint {
        /// The export.
        name: String,
        /// Its files from now on; as before if none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<FileExtent>,
        /// A sidecar of directives (docs/control.md).
        #[serde(default)]
        directives: String,
    },
    /// Report the directives in force.
    Hints {
        /// Of which export.
        name: String,
    },
    /// Write back what is dirty.
    Flush {
        /// Of this export; of all if none.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Write everything in the write log of an export to its target.
    Drain {
        /// The export.
        name: String,
    },
    /// Have writes of an export wait, once its targets have those of before.
    Freeze {
        /// The export.
        name: String,
        /// For this long at most.
        seconds: f64,
    },
    /// Have the writes of a frozen export go on.
    Thaw {
        /// The export.
        name: String,
    },
    /// Record the requests of clients from now on.
    Record {
        /// The selection of requests, and the file.
        recording: Recording,
    },
    /// End the recording.
    StopRecording {},
    /// Do what SIGHUP does.
    Reload {},
    /// Serve clients that may rely on writes that the server before this one lost.
    AcceptLoss {},
    /// Send the listening sockets to a server that is to take the place of this one.
    Offer {},
    /// End for the server that has them.
    HandOver {},
    /// The server that took the place of this one serves.
    Succeed {},
}

impl fmt::Display for Command {
    /// The command in words, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Status {} => f.write_str("report the status"),
            Command::Set { memory, policy, readahead, slow } => {
                let memory = memory.map(|bytes| format!("memory to {}", amount(bytes)));
                let policy = policy.as_ref().map(|policy| format!("policy to {policy}"));
                let readahead = readahead.as_ref().map(|readahead| format!("readahead to {readahead}"));
                let slow = slow.as_ref().map(|limit| format!("the limit of slow requests to {limit}"));
                let changes: Vec<String> = [memory, policy, readahead, slow].into_iter().flatten().collect();
                write!(f, "set {}", changes.join(", "))
            }
            Command::SetExport { name, options } => write!(f, "set export {name}: {options}"),
            Command::AddExport { name, target, options, take_over } => {
                let comma = if *options == ExportOptions::default() { "" } else { "," };
                let taken = if *take_over { ", taken over" } else { "" };
                write!(f, "add export {name}={target}{comma}{options}{taken}")
            }
            Command::RemoveExport { name, discard: false } => write!(f, "remove export {name}"),
            Command::RemoveExport { name, discard: true } => {
                write!(f, "remove export {name} and discard its dirty blocks")
            }
            Command::Hint { name, .. } => write!(f, "take a hint for export {name}"),
            Command::Hints { name } => write!(f, "report the hints of export {name}"),
            Command::Flush { name: Some(name) } => write!(f, "flush export {name}"),
            Command::Flush { name: None } => f.write_str("flush all exports"),
            Command::Drain { name } => write!(f, "drain the write log of export {name}"),
            Command::Freeze { name, seconds } => write!(f, "freeze export {name} for at most {seconds} s"),
            Command::Thaw { name } => write!(f, "thaw export {name}"),
            Command::Record { recording } => write!(f, "record {}", recording.file.display()),
            Command::StopRecording {} => f.write_str("stop recording"),
            Command::Reload {} => f.write_str("reload"),
            Command::AcceptLoss {} => f.write_str("accept the loss of writes"),
            Command::Offer {} => f.write_str("offer its sockets"),
            Command::HandOver {} => f.write_str("hand over"),
            Command::Succeed {} => f.write_str("note its successor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_words() {
        let words = |json: &str| serde_json::from_str::<Command>(json).unwrap().to_string();
        assert_eq!(words(r#"{"command":"set","memory":67108864,"policy":"lru"}"#), "set memory to 64M, policy to lru");
        let options = r#"{"read_only":true,"iops":500,"bandwidth":0,"clients":[],"next":["b.img"]}"#;
        assert_eq!(
            words(&format!(r#"{{"command":"set-export","name":"d","options":{options}}}"#)),
            "set export d: next=b.img,read-only=yes,client=any,iops=500,bandwidth=none"
        );
        assert_eq!(words(r#"{"command":"add-export","name":"d","target":"a.img"}"#), "add export d=a.img");
        assert_eq!(
            words(r#"{"command":"add-export","name":"d","target":"a.img","options":{"floor":1025}}"#),
            "add export d=a.img,floor=1025"
        );
        assert!(words(r#"{"command":"remove-export","name":"d","discard":true}"#).contains("discard"));
        assert_eq!(words(r#"{"command":"flush"}"#), "flush all exports");
    }
}
