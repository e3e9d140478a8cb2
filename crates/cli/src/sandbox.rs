//! Rights that a server drops before clients come: files that it does not need, privileges, and system calls that only an
//! intruder would make.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nigh_backend::Target;
use nigh_service::{ClientTlsSettings, TlsSettings};
use nix::unistd::{Gid, Group, Uid, User, geteuid, initgroups, setresgid, setresuid};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};

/// Version of Landlock; older kernels do less.
const KNOWN: ABI = ABI::V5;

/// How long targets are waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Read by the system's libraries: to resolve names of hosts, users and groups.
const OF_LIBRARIES: [&str; 14] = [
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/usr",
];

/// Certificates of authorities, which clients of object stores read.
const OF_CERTIFICATES: [&str; 2] = ["/etc/pki", "/etc/ssl"];

/// Read to learn about processors, block devices and locks of files.
const OF_SYSTEM: [&str; 3] = ["/dev/null", "/proc", "/sys"];

/// Files and folders, each with what may be done to it, or to all below it.
#[derive(Default)]
pub(crate) struct Rules(BTreeMap<PathBuf, BitFlags<AccessFs>>);

/// The same, opened.
type Opened = Vec<(PathFd, BitFlags<AccessFs>)>;

/// Changes to files, and new ones.
pub(crate) fn change() -> BitFlags<AccessFs> {
    let files = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    files | AccessFs::ReadDir | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer
}

pub(crate) fn read() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// A Unix socket, and its removal.
pub(crate) fn socket() -> BitFlags<AccessFs> {
    AccessFs::MakeSock | AccessFs::RemoveFile
}

impl Rules {
    fn add(&mut self, path: PathBuf, access: BitFlags<AccessFs>) {
        *self.0.entry(path).or_insert(BitFlags::empty()) |= access;
    }

    /// Whatever is in the folder of `path`, because files are replaced by others. In the root folder, only the file.
    pub(crate) fn beside(&mut self, path: &Path, access: BitFlags<AccessFs>) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        for path in [path.canonicalize().ok(), Some(path)].into_iter().flatten() {
            match path.parent() {
                Some(folder) if folder.parent().is_some() => self.add(folder.to_owned(), access),
                _ => self.add(path, access),
            }
        }
    }

    pub(crate) fn target(&mut self, target: &Target) {
        for path in target.profiles() {
            self.beside(path, read());
        }
        if let Some(disk) = target.objects() {
            OF_CERTIFICATES.iter().for_each(|path| self.add(path.into(), read()));
            // Tokens are replaced by others.
            for path in disk.files() {
                match path.is_dir() {
                    true => self.add(path, read()),
                    false => self.beside(&path, read()),
                }
            }
        }
        let Some(path) = target.path() else { return };
        let metadata = std::fs::metadata(path);
        if metadata.is_ok_and(|file| file.file_type().is_block_device()) {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            self.add(path.canonicalize().unwrap_or_else(|_| path.to_owned()), access);
        } else {
            self.beside(path, change());
        }
    }

    /// Certificates, which are read again.
    pub(crate) fn certificates(&mut self, tls: &TlsSettings) {
        let TlsSettings { certificate, key, client_ca } = tls;
        [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().for_each(|path| {
            self.beside(path, read());
        });
    }

    /// Those of a client.
    pub(crate) fn client_certificates(&mut self, tls: &ClientTlsSettings) {
        let ClientTlsSettings { ca, certificate, key } = tls;
        [ca, certificate, key].into_iter().for_each(|path| self.beside(path, read()));
    }

    /// A character device, which is opened for another time.
    pub(crate) fn device(&mut self, path: &Path) {
        self.add(path.to_owned(), AccessFs::ReadFile | AccessFs::WriteFile);
    }

    /// All in a folder that the user allows.
    pub(crate) fn allow(&mut self, folder: &Path) {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        self.add(folder, change() | socket() | AccessFs::IoctlDev);
    }

    /// Files that libraries and the system need to read.
    pub(crate) fn new() -> Rules {
        let mut rules = Rules::default();
        OF_LIBRARIES.iter().chain(&OF_SYSTEM).for_each(|path| rules.add(path.into(), read()));
        rules
    }

    /// The files and folders, opened: what is not there cannot be used, and what is created later is in a folder that is there.
    fn open(self) -> Opened {
        let open = |(path, access): (PathBuf, BitFlags<AccessFs>)| {
            let file = PathFd::new(&path).ok()?;
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
            Some((file, access))
        };
        self.0.into_iter().filter_map(open).collect()
    }
}

/// Limits this thread, and all that it starts, to these files.
fn apply(opened: Opened) -> anyhow::Result<RulesetStatus> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    let add = |ruleset: RulesetCreated, (file, access)| ruleset.add_rule(PathBeneath::new(file, access));
    Ok(opened.into_iter().try_fold(ruleset.create()?, add)?.restrict_self()?.ruleset)
}

/// Result of limiting files.
pub(crate) enum Confined {
    /// Files can be changed in these folders only.
    To(String),
    /// There are none, for this reason.
    Not(&'static str),
}

/// From now on, this thread and all that it starts can open only the files of the rules that `rules` returns, and start no
/// program. There must be no other thread yet.
pub(crate) fn confine(rules: impl FnOnce() -> anyhow::Result<Rules> + Send + 'static) -> anyhow::Result<Confined> {
    rustix::thread::set_no_new_privs(true).context("cannot give up new privileges")?;
    let (done, prepared) = channel();
    let prepare = move || {
        let prepared = rules().map(|rules| {
            let changed = rules.0.iter().filter(|(_, access)| access.contains(AccessFs::WriteFile));
            let folders = changed.map(|(path, _)| path.display().to_string()).collect::<Vec<_>>().join(", ");
            (rules.open(), folders)
        });
        // Nobody waits any more if it took long.
        let _ = done.send(prepared);
    };
    std::thread::Builder::new().name("sandbox".into()).spawn(prepare)?;
    let Ok(prepared) = prepared.recv_timeout(PATIENCE) else { return Ok(Confined::Not("a target does not respond")) };
    let (opened, folders) = prepared?;
    let status =
        apply(opened).context("cannot limit the files that can be opened (--no-sandbox starts without limits)")?;
    Ok(match status {
        RulesetStatus::NotEnforced => Confined::Not("this kernel has no Landlock"),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Confined::To(folders),
    })
}

impl Confined {
    /// Logs it.
    pub(crate) fn report(&self) {
        match self {
            Confined::To(folders) => {
                tracing::info!(folders, "sandboxed: files elsewhere cannot be changed; --sandbox-allow adds folders");
            }
            Confined::Not(reason) => tracing::warn!("the sandbox does not limit files: {reason}"),
        }
    }
}

/// System calls that no server needs: to run programs, to look into other processes, to change the system, and parts of
/// the kernel that are new or known for their errors.
const DENIED: [libc::c_long; 58] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_settimeofday,
    libc::SYS_setuid,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// On x86, the same calls have further numbers: with this bit, and some of them from 512 on.
const X32: i64 = 0x4000_0000;

/// When everything has started: calls of `DENIED` fail with EPERM, in all threads.
pub(crate) fn filter() -> anyhow::Result<()> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        tracing::warn!("system calls are not filtered on this processor");
        return Ok(());
    };
    let numbers = DENIED.iter().copied();
    let mut rules: BTreeMap<i64, _> = numbers.clone().map(|call| (call, vec![])).collect();
    if matches!(arch, TargetArch::x86_64) {
        rules.extend(numbers.chain(512..=547).map(|call| (X32 | call, vec![])));
    }
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?;
    let program: BpfProgram = filter.try_into()?;
    match apply_filter_all_threads(&program) {
        // The kernel cannot, or the server's parent does not let it.
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) =>
        {
            tracing::warn!(%error, "system calls are not filtered");
            Ok(())
        }
        result => result.context("cannot filter system calls (--no-sandbox starts without)"),
    }
}

/// Whether core dumps have what is in memory.
pub(crate) fn allow_core_dumps(allowed: bool) -> anyhow::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let behavior = if allowed { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    set_dumpable_behavior(behavior).context("cannot exclude memory from core dumps")
}

/// A user, and a group beside its own, if there is to be another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// As it was given.
    pub(crate) text: String,
    user: (CString, Uid),
    group: Gid,
}

impl std::str::FromStr for Account {
    type Err = anyhow::Error;

    /// `NAME` or `NAME:GROUP`; the group by name or number.
    fn from_str(text: &str) -> anyhow::Result<Account> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let user = User::from_name(name)?.with_context(|| format!("there is no user `{name}`"))?;
        let group = match group {
            None => user.gid,
            Some(name) => match Group::from_name(name)? {
                Some(group) => group.gid,
                None => name.parse().map(Gid::from_raw).map_err(|_| anyhow!("there is no group `{name}`"))?,
            },
        };
        Ok(Account { text: text.to_owned(), user: (CString::new(name)?, user.uid), group })
    }
}

impl Account {
    /// Makes it the owner of a file.
    pub(crate) fn own(&self, path: &Path) -> anyhow::Result<()> {
        let (uid, gid) = (self.user.1.as_raw(), self.group.as_raw());
        std::os::unix::fs::chown(path, Some(uid), Some(gid))
            .with_context(|| format!("--user {}: cannot give it {}", self.text, path.display()))
    }

    /// Whether this process has it already, and not as root.
    pub(crate) fn is_own(&self) -> bool {
        geteuid() == self.user.1 && !self.user.1.is_root()
    }

    /// Whether it can remove files of `folder`, as far as permissions of files show.
    pub(crate) fn can_change(&self, folder: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let Ok(folder) = std::fs::metadata(folder) else { return false };
        let bits = match () {
            () if folder.uid() == self.user.1.as_raw() => folder.mode() >> 6,
            () if folder.gid() == self.group.as_raw() => folder.mode() >> 3,
            () => folder.mode(),
        };
        self.user.1.is_root() || bits & 0o3 == 0o3
    }

    /// Makes it that of this process and all of its threads, with its further groups.
    pub(crate) fn assume(&self) -> anyhow::Result<()> {
        let (name, uid) = &self.user;
        if self.is_own() {
            return Ok(());
        }
        ensure!(geteuid().is_root(), "--user {}: only root can become another user", self.text);
        let cannot = || format!("cannot become user {}", self.text);
        initgroups(name, self.group).with_context(cannot)?;
        setresgid(self.group, self.group, self.group).with_context(cannot)?;
        setresuid(*uid, *uid, *uid).with_context(cannot)?;
        let is_final = uid.is_root() || setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_err();
        ensure!(is_final, "{}: the system would let it become root again", cannot());
        tracing::info!(user = self.text, "gave up the privileges of root");
        Ok(())
    }
}
