//! Flags of the rights that a server drops before clients come.

use std::path::PathBuf;

use clap::Args;

// No doc comment: clap would head the help of commands with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HardeningArgs {
    /// Let core dumps and debuggers of the same user see the server's memory, which has the contents of disks
    #[arg(long)]
    pub(crate) core_dumps: bool,
    /// Switch to this user, with its groups and no other privileges, when everything is open
    #[arg(long, value_name = "NAME[:GROUP]")]
    pub(crate) user: Option<String>,
    /// A folder with files that commands of 'nigh ctl' or a reload may open, besides the folders of disks, levels and sockets
    #[arg(long, value_name = "FOLDER")]
    pub(crate) sandbox_allow: Vec<PathBuf>,
    /// Do not restrict access to other files (Landlock), nor to system calls that no server needs (seccomp)
    #[arg(long, conflicts_with = "sandbox_allow")]
    pub(crate) no_sandbox: bool,
}
