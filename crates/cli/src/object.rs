//! `nigh object`: disks in object stores.

use std::fmt::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use nigh_backend::{ObjectDisk, ObjectTarget, Target};
use serde_json::json;

use crate::output;
use crate::size::human_bytes;

/// The help after the flags.
pub(crate) const HELP: &str = "\
Targets: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Credentials and addresses come from the environment: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL; GOOGLE_SERVICE_ACCOUNT; AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY;
docs/objects.md has more.";

#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    #[command(subcommand)]
    command: ObjectCommand,
}

#[derive(Debug, Subcommand)]
enum ObjectCommand {
    /// Make a disk, all zeros, where there is none
    Create {
        /// The disk, such as s3://bucket/disks/vm
        #[arg(value_name = "TARGET")]
        target: String,
        /// The size of the disk, such as 20G: a multiple of 4096 bytes, at most 16T
        #[arg(long, value_name = "SIZE")]
        size: String,
    },
    /// Show what the manifest of a disk says
    Show {
        /// The disk, such as s3://bucket/disks/vm
        #[arg(value_name = "TARGET")]
        target: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &ObjectArgs) -> anyhow::Result<()> {
    match &args.command {
        ObjectCommand::Create { target, size } => {
            let bytes =
                nigh_text::bytes(size).with_context(|| format!("--size: '{size}' is not a size, such as 20G"))?;
            let target = parse(target)?;
            ObjectDisk::connect(&target)?.create(bytes)?;
            output::print(format!("{target}: a disk of {}\n", human_bytes(bytes)).as_bytes())
        }
        ObjectCommand::Show { target, json } => show(&parse(target)?, *json),
    }
}

fn parse(text: &str) -> anyhow::Result<ObjectTarget> {
    match text.parse::<Target>()? {
        Target::Objects(target) => Ok(target),
        _ => anyhow::bail!(
            "'{text}' is not in an object store: expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        ),
    }
}

fn show(target: &ObjectTarget, json: bool) -> anyhow::Result<()> {
    let state = ObjectDisk::connect(target)?.state()?;
    let mut text = String::new();
    if json {
        let object = json!({
            "schema": 1,
            "target": target.to_string(),
            "bytes": state.bytes,
            "parts": state.parts,
            "objects": state.objects,
            "epoch": state.epoch,
            "changed": state.changed,
        });
        let _ = writeln!(text, "{object:#}");
    } else {
        let _ = writeln!(text, "size      {}", human_bytes(state.bytes));
        let _ = writeln!(text, "objects   {} of {} parts", state.objects, state.parts);
        let _ = writeln!(text, "epoch     {}, which is how often it was opened for writing", state.epoch);
        let _ = writeln!(text, "changed   in revision {}", state.changed);
    }
    output::print(text.as_bytes())
}
