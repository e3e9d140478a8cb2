//! ptrace and wait, with signals as numbers: real-time signals have no names in the libraries around these calls.

#![allow(unsafe_code)]

use std::io;

/// A thread, by its number.
pub(crate) type Thread = i32;

/// Why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Exited {
        code: i32,
    },
    Killed {
        signal: i32,
    },
    /// A system call begins or ends.
    Call,
    /// `PTRACE_EVENT_*`.
    Event {
        event: i32,
        signal: i32,
    },
    /// It is about to get a signal.
    Signal {
        signal: i32,
    },
}

/// The next thread that stopped; `None` if there is none yet, unless `waits`.
pub(crate) fn wait(waits: bool) -> io::Result<Option<(Thread, Stop)>> {
    let mut status = 0;
    let options = libc::__WALL | if waits { 0 } else { libc::WNOHANG };
    // SAFETY: `status` has room for the answer.
    match unsafe { libc::waitpid(-1, &mut status, options) } {
        0 => Ok(None),
        thread if thread > 0 => Ok(Some((thread, stop(status)))),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stop(status: i32) -> Stop {
    const CALL: i32 = libc::SIGTRAP | 0x80;
    if libc::WIFEXITED(status) {
        return Stop::Exited { code: libc::WEXITSTATUS(status) };
    }
    if libc::WIFSIGNALED(status) {
        return Stop::Killed { signal: libc::WTERMSIG(status) };
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (0, CALL) => Stop::Call,
        (0, signal) => Stop::Signal { signal },
        (event, signal) => Stop::Event { event, signal },
    }
}

fn request(request: libc::c_uint, thread: Thread, data: libc::c_long) -> io::Result<()> {
    // SAFETY: these requests take numbers only.
    let done = unsafe { libc::ptrace(request, thread, 0_usize, data) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Traces a thread, and the threads and processes that it begins.
pub(crate) fn seize(thread: Thread) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC;
    request(libc::PTRACE_SEIZE, thread, options.into())
}

/// Makes it stop.
pub(crate) fn interrupt(thread: Thread) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0)
}

/// Lets it go on up to its next system call, with a signal or 0.
pub(crate) fn resume(thread: Thread, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, thread, signal.into())
}

/// Leaves it stopped, as `SIGSTOP` did, until it is continued.
pub(crate) fn listen(thread: Thread) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, thread, 0)
}

/// Traces it no more.
pub(crate) fn detach(thread: Thread, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, signal.into())
}

/// The thread or process that it began, after such an event.
pub(crate) fn begun(thread: Thread) -> Option<Thread> {
    let mut number: libc::c_ulong = 0;
    // SAFETY: `number` has room for the answer.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread, 0_usize, &raw mut number) };
    (done != -1).then(|| i32::try_from(number).ok()).flatten()
}

/// Its registers while it is stopped.
pub(crate) fn registers(thread: Thread) -> io::Result<libc::user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: there is room for the answer.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0_usize, registers.as_mut_ptr()) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, and zeros are valid.
    Ok(unsafe { registers.assume_init() })
}

/// Reads its memory from `address` on, and returns how many bytes could be read.
pub(crate) fn read(thread: Thread, address: u64, buffer: &mut [u8]) -> usize {
    let own = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let other = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the kernel writes into `buffer` only, and checks the address in the other process.
    let read = unsafe { libc::process_vm_readv(thread, &own, 1, &other, 1, 0) };
    usize::try_from(read).unwrap_or(0).min(buffer.len())
}
