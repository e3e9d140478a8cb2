//! Acts as the program that asked: what it creates belongs to it, and its umask counts.
//!
//! The kernel has checked its permissions (`default_permissions`), and knows groups of the program that a request does not name. The
//! thread therefore takes over user and group for new files, and keeps the right to bypass permissions.

use std::cell::Cell;
use std::io;

use fuser::Request;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

thread_local! {
    /// Whether this thread has a umask of its own.
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// The rights that creating a file as another user needs, after the kernel's check.
const KEPT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

/// Calls `create` on this thread as the caller of `request`, with its `mask`. A server that is not root creates files as its own user.
pub(crate) fn as_caller<R>(request: &Request, mask: u32, create: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    if !APART.get() {
        unshare(CloneFlags::CLONE_FS)?;
        APART.set(true);
    }
    umask(Mode::from_raw_mode(mask & 0o777));
    if !geteuid().is_root() || (request.uid() == 0 && request.gid() == 0) {
        return create();
    }
    // Restores the thread, also if `create` panics.
    let _back = Back;
    setfsgid(Gid::from_raw(request.gid()));
    setfsuid(Uid::from_raw(request.uid()));
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: sets.permitted.intersection(KEPT), ..sets })?;
    create()
}

struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(0));
        setfsgid(Gid::from_raw(0));
        if let Ok(sets) = capabilities(None) {
            // They are permitted, and so cannot be refused.
            let _ = set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets });
        }
    }
}
