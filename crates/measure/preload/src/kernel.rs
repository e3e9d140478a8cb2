//! System calls of this library: they leave errno as it is, and the program may forbid them.
//!
//! A program that limits its system calls (seccomp) may be killed by one that it does not make itself. `limits.rs` finds out which ones, and they are not
//! made from then on.

use std::ffi::c_long;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const CACHESTAT: c_long = 451;

/// The calls that this library makes while the program runs.
pub(crate) const OWN: [c_long; 21] = [
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getpid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_openat,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
    libc::SYS_rt_sigprocmask,
    libc::SYS_statx,
    libc::SYS_tkill,
    CACHESTAT,
];

/// Those that the process may not make, as bits by their position in `OWN`.
static DENIED: AtomicU32 = AtomicU32::new(0);

/// Those that the process may not make, as bits by their position in `OWN`.
pub(crate) fn denied() -> u32 {
    DENIED.load(Ordering::Relaxed)
}

/// From now on, only `denied` are not made.
pub(crate) fn deny(denied: u32) {
    DENIED.store(denied, Ordering::Relaxed);
}

/// Whether this call may be made.
pub(crate) fn may(number: c_long) -> bool {
    let denied = denied();
    denied == 0 || OWN.iter().position(|&own| own == number).is_some_and(|at| denied >> at & 1 == 0)
}

/// Makes a system call, unless it is forbidden. Returns its result, or -errno.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe fn call<const N: usize>(number: c_long, arguments: [i64; N]) -> i64 {
    if !may(number) {
        return -i64::from(libc::EPERM);
    }
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    let result;
    // SAFETY: the kernel's convention; the arguments are right by the contract of this function.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") argument(0), in("rsi") argument(1), in("rdx") argument(2),
            in("r10") argument(3), in("r8") argument(4), in("r9") argument(5),
            lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    result
}
