//! The functions that are called instead of libc's.
//!
//! A stub keeps the stack and frame pointers of the call for the walk along the stack: in the registers of the fifth and
//! sixth argument, if the function does not have these. Then the original function runs, and the call is recorded.

use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, Ordering};

use nigh_ring::{
    BLOCK_BYTES, Bytes, EXEC_FAILED, EXEC_WITH_LIBRARY, EXEC_WITHOUT_LIBRARY, FOLDER_VARIABLE, FRAMES, Kind, Record,
    Submitted, Unseen,
};

use crate::advice::Advised;
use crate::call::{Call, Errno};
use crate::clock::now_ns;
use crate::kernel;
use crate::limits::{self, Limit};
use crate::stack::roomy;
use crate::thread::{Here, Passed};
use crate::{advice, files, frames, patch, thread};

/// Declares stubs, their hooks' originals, and the table of all. Functions with more than four arguments have the pointers
/// of the call as seventh and eighth, on the stack.
macro_rules! hooks {
    (
        four: $($index:ident $name:literal $stub:ident $hook:ident),* $(,)?;
        six: $($index6:ident $name6:literal $stub6:ident $hook6:ident),* $(,)?;
        plain: $($index0:ident $name0:literal $hook0:ident),* $(,)?;
    ) => {
        #[derive(Clone, Copy)]
        enum Hook { $($index,)* $($index6,)* $($index0,)* }

        const COUNT: usize = [$(stringify!($index),)* $(stringify!($index6),)* $(stringify!($index0),)*].len();
        static ORIGINALS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

        $(global_asm!(
            concat!(".hidden ", stringify!($stub)),
            concat!(".globl ", stringify!($stub)),
            concat!(".type ", stringify!($stub), ", @function"),
            concat!(stringify!($stub), ":"),
            "mov r8, rsp",
            "mov r9, rbp",
            concat!("jmp ", stringify!($hook), "@PLT"),
        );)*

        $(global_asm!(
            concat!(".hidden ", stringify!($stub6)),
            concat!(".globl ", stringify!($stub6)),
            concat!(".type ", stringify!($stub6), ", @function"),
            concat!(stringify!($stub6), ":"),
            ".cfi_startproc",
            "mov rax, rsp",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            concat!("call ", stringify!($hook6), "@PLT"),
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "ret",
            ".cfi_endproc",
        );)*

        unsafe extern "C" { $(fn $stub();)* $(fn $stub6();)* }

        fn stubs() -> [(&'static CStr, Hook, *const c_void); COUNT] {
            [
                $((text(concat!($name, "\0")), Hook::$index, $stub as *const c_void),)*
                $((text(concat!($name6, "\0")), Hook::$index6, $stub6 as *const c_void),)*
                $((text(concat!($name0, "\0")), Hook::$index0, $hook0 as *const c_void),)*
            ]
        }
    };
}

hooks! {
    four:
    Read "read" nigh_stub_read nigh_hook_read,
    ReadNoCancel "__read_nocancel" nigh_stub_read_nocancel nigh_hook_read_nocancel,
    Pread "pread64" nigh_stub_pread nigh_hook_pread,
    PreadNoCancel "__pread64_nocancel" nigh_stub_pread_nocancel nigh_hook_pread_nocancel,
    Readv "readv" nigh_stub_readv nigh_hook_readv,
    Preadv "preadv64" nigh_stub_preadv nigh_hook_preadv,
    Write "write" nigh_stub_write nigh_hook_write,
    WriteNoCancel "__write_nocancel" nigh_stub_write_nocancel nigh_hook_write_nocancel,
    Pwrite "pwrite64" nigh_stub_pwrite nigh_hook_pwrite,
    Writev "writev" nigh_stub_writev nigh_hook_writev,
    Pwritev "pwritev64" nigh_stub_pwritev nigh_hook_pwritev,
    Sendfile "sendfile64" nigh_stub_sendfile nigh_hook_sendfile,
    Fsync "fsync" nigh_stub_fsync nigh_hook_fsync,
    Fdatasync "fdatasync" nigh_stub_fdatasync nigh_hook_fdatasync,
    Fadvise "posix_fadvise" nigh_stub_fadvise nigh_hook_fadvise,
    IoSubmit "io_submit" nigh_stub_io_submit nigh_hook_io_submit;
    six:
    Preadv2 "preadv64v2" nigh_stub_preadv2 nigh_hook_preadv2,
    Pwritev2 "pwritev64v2" nigh_stub_pwritev2 nigh_hook_pwritev2,
    Mmap "mmap64" nigh_stub_mmap nigh_hook_mmap,
    CopyFileRange "copy_file_range" nigh_stub_copy_file_range nigh_hook_copy_file_range,
    Splice "splice" nigh_stub_splice nigh_hook_splice;
    plain:
    Close "close" nigh_hook_close,
    CloseNoCancel "__close_nocancel" nigh_hook_close_nocancel,
    Dup2 "dup2" nigh_hook_dup2,
    Dup3 "dup3" nigh_hook_dup3,
    CloseRange "close_range" nigh_hook_close_range,
    Execve "execve" nigh_hook_execve,
    Dlclose "dlclose" nigh_hook_dlclose,
    Rename "rename" nigh_hook_rename,
    Renameat "renameat" nigh_hook_renameat,
    Renameat2 "renameat2" nigh_hook_renameat2,
    Unlink "unlink" nigh_hook_unlink,
    Unlinkat "unlinkat" nigh_hook_unlinkat,
    Prctl "prctl" nigh_hook_prctl,
    Syscall "syscall" nigh_hook_syscall,
    Siglongjmp "siglongjmp" nigh_hook_siglongjmp,
    LongjmpChecked "__longjmp_chk" nigh_hook_longjmp_checked;
}

fn text(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"")
}

/// Patches libc; false, and nothing is changed, if its main functions cannot be.
pub(crate) fn install() -> bool {
    let Some(read) = patch::function(c"read") else { return false };
    let Some(mut page) = patch::Page::near(read) else { return false };
    let mut main = 0;
    let planned = stubs().map(|(name, hook, stub)| {
        let planned = patch::function(name).and_then(|function| page.plan(function, stub))?;
        ORIGINALS[hook as usize].store(planned.original().cast_mut(), Ordering::Release);
        main += usize::from(matches!(hook, Hook::Read | Hook::Write | Hook::Pread | Hook::Close));
        Some(planned)
    });
    // Jumps lead to the page, so it has to be executable before the first one.
    if main != 4 || !page.seal() {
        return false;
    }
    planned.into_iter().flatten().for_each(patch::Planned::apply);
    true
}

/// The original of `hook`, as a function of this type.
///
/// # Safety
/// The type is that of the function.
unsafe fn original<F: Copy>(hook: Hook) -> F {
    let function = ORIGINALS[hook as usize].load(Ordering::Acquire);
    // SAFETY: hooks run only after their original was stored; a pointer to a function has the size of a pointer.
    unsafe { std::mem::transmute_copy(&function) }
}

impl Call {
    /// Runs the original call and records it.
    #[inline]
    fn run(self, original: impl FnOnce() -> isize) -> isize {
        self.run_with(|_| (), original)
    }

    /// As `run`. `complete` reads what the caller passed, once it is known that the call is one for a file.
    #[inline]
    fn run_with(mut self, complete: impl FnOnce(&mut Call), original: impl FnOnce() -> isize) -> isize {
        let Some((file, advised)) = self.before(complete) else { return original() };
        let begin = now_ns();
        let result = original();
        self.after(file, advised, begin, result);
        result
    }

    /// The number of the file, if the descriptor is one, and the advice that the kernel got for a read.
    fn before(&mut self, complete: impl FnOnce(&mut Call)) -> Option<(u32, Option<Advised>)> {
        thread::writer()?;
        let errno = Errno::save();
        let here = Here::enter();
        let known = here.as_ref().and_then(|here| {
            let file = files::number(here, self.fd)?;
            complete(self);
            let advised = if let Kind::Read = self.kind { advice::before(here, self) } else { None };
            Some((file, advised))
        });
        drop(here);
        errno.restore();
        known
    }

    fn after(self, file: u32, advised: Option<Advised>, begin: u64, result: isize) {
        let errno = Errno::save();
        if let Some(here) = Here::enter() {
            let latency_ns = now_ns().saturating_sub(begin);
            let device_bytes = thread::device_bytes(latency_ns);
            if let Some(advised) = &advised {
                advised.count(result.max(0) as u64, device_bytes);
            }
            if file != files::QUIET {
                self.record(&here, file, begin, result, errno.value(), latency_ns, device_bytes);
            }
        }
        errno.restore();
    }

    #[allow(clippy::too_many_arguments)]
    fn record(
        self,
        here: &Here,
        file: u32,
        begin: u64,
        result: isize,
        errno: c_int,
        latency_ns: u64,
        device_bytes: u64,
    ) {
        let transferred = if self.offset.is_none() { result.max(0) as u64 } else { 0 };
        let transfers = result >= 0 && matches!(self.kind, Kind::Read | Kind::Write);
        let is_known = |&offset: &u64| offset != UNREADABLE || !transfers;
        let Some(offset) = self.offset().filter(is_known) else { return here.lose() };
        let offset = offset.saturating_sub(transferred);
        let mut frames = [0; FRAMES];
        let frames_used = frames::walk(&here.writer, self.rsp, self.rbp, &mut frames);
        here.write(&[Record {
            time_ns: begin,
            offset,
            result: match self.kind {
                // It returns its error.
                Kind::Advise => -(result as i64),
                _ if result < 0 => -i64::from(errno),
                _ => result as i64,
            },
            latency_ns: u32::try_from(latency_ns).unwrap_or(u32::MAX),
            asked: u32::try_from(self.asked).unwrap_or(u32::MAX),
            tid: here.tid(),
            file,
            depth: thread::depth(self.rsp),
            kind: self.kind as u8,
            frames_used,
            device_pages: u16::try_from(device_bytes.div_ceil(4096)).unwrap_or(u16::MAX),
            frames,
        }]);
    }
}

/// Bytes of a vector of buffers; 0 if it cannot be read.
fn total(vector: *const libc::iovec, count: c_int) -> u64 {
    const PARTS_MOST: c_int = 1024;
    if !(0..=PARTS_MOST).contains(&count) {
        return 0;
    }
    let mut passed = Passed::default();
    let mut length = |part: u64| {
        let at = part * size_of::<libc::iovec>() as u64 + offset_of!(libc::iovec, iov_len) as u64;
        passed.word((vector as u64).wrapping_add(at))
    };
    (0..count as u64).try_fold(0_u64, |total, part| Some(total.saturating_add(length(part)?))).unwrap_or(0)
}

/// A position that cannot be read.
const UNREADABLE: u64 = u64::MAX;

/// The position in a file at a pointer that the caller passed; `None` for null: at the descriptor's position.
fn position(at: *mut i64) -> Option<u64> {
    (!at.is_null()).then(|| Passed::default().word(at as u64).unwrap_or(UNREADABLE))
}

type Transfer = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type TransferAt = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, i64) -> isize;
type Vectored = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int) -> isize;
type VectoredAt = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int, i64) -> isize;
type One = unsafe extern "C-unwind" fn(c_int) -> c_int;

macro_rules! transfers {
    ($($hook:ident $index:ident $kind:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int, buffer: *mut c_void, length: usize, _: u64, rsp: u64, rbp: u64) -> isize {
            let call = Call { kind: Kind::$kind, fd, asked: length as u64, offset: None, rsp, rbp };
            // SAFETY: the caller's arguments, passed on to the function that it called.
            call.run(|| unsafe { original::<Transfer>(Hook::$index)(fd, buffer, length) })
        }
    )* };
}

macro_rules! transfers_at {
    ($($hook:ident $index:ident $kind:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int, buffer: *mut c_void, length: usize, at: i64, rsp: u64, rbp: u64) -> isize {
            let call = Call { kind: Kind::$kind, fd, asked: length as u64, offset: Some(at as u64), rsp, rbp };
            // SAFETY: as in `transfers`.
            call.run(|| unsafe { original::<TransferAt>(Hook::$index)(fd, buffer, length, at) })
        }
    )* };
}

macro_rules! vectored {
    ($($hook:ident $index:ident $kind:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int, parts: *const libc::iovec, count: c_int, _: u64, rsp: u64, rbp: u64) -> isize {
            let call = Call { kind: Kind::$kind, fd, asked: 0, offset: None, rsp, rbp };
            // SAFETY: as in `transfers`.
            call.run_with(|call| call.asked = total(parts, count), || unsafe { original::<Vectored>(Hook::$index)(fd, parts, count) })
        }
    )* };
}

macro_rules! vectored_at {
    ($($hook:ident $index:ident $kind:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int, parts: *const libc::iovec, count: c_int, at: i64, rsp: u64, rbp: u64) -> isize {
            let call = Call { kind: Kind::$kind, fd, asked: 0, offset: Some(at as u64), rsp, rbp };
            // SAFETY: as in `transfers`.
            call.run_with(|call| call.asked = total(parts, count), || unsafe { original::<VectoredAt>(Hook::$index)(fd, parts, count, at) })
        }
    )* };
}

macro_rules! syncs {
    ($($hook:ident $index:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int, _: u64, _: u64, _: u64, rsp: u64, rbp: u64) -> c_int {
            let call = Call { kind: Kind::Sync, fd, asked: 0, offset: Some(0), rsp, rbp };
            // SAFETY: as in `transfers`.
            call.run(|| unsafe { original::<One>(Hook::$index)(fd) } as isize) as c_int
        }
    )* };
}

macro_rules! closes {
    ($($hook:ident $index:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(fd: c_int) -> c_int {
            advice::closes(fd);
            // Before it, because another thread may get the number at once.
            files::forget(fd);
            // SAFETY: as in `transfers`.
            unsafe { original::<One>(Hook::$index)(fd) }
        }
    )* };
}

transfers!(nigh_hook_read Read Read, nigh_hook_read_nocancel ReadNoCancel Read);
transfers!(nigh_hook_write Write Write, nigh_hook_write_nocancel WriteNoCancel Write);
transfers_at!(nigh_hook_pread Pread Read, nigh_hook_pread_nocancel PreadNoCancel Read, nigh_hook_pwrite Pwrite Write);
vectored!(nigh_hook_readv Readv Read, nigh_hook_writev Writev Write);
vectored_at!(nigh_hook_preadv Preadv Read, nigh_hook_pwritev Pwritev Write);
syncs!(nigh_hook_fsync Fsync, nigh_hook_fdatasync Fdatasync);
closes!(nigh_hook_close Close, nigh_hook_close_nocancel CloseNoCancel);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_sendfile(
    to: c_int,
    from: c_int,
    at: *mut i64,
    length: usize,
    rsp: u64,
    rbp: u64,
) -> isize {
    type Sendfile = unsafe extern "C-unwind" fn(c_int, c_int, *mut i64, usize) -> isize;
    let call = Call { kind: Kind::Read, fd: from, asked: length as u64, offset: None, rsp, rbp };
    // SAFETY: as in `transfers`.
    call.run_with(
        |call| call.offset = position(at),
        || unsafe { original::<Sendfile>(Hook::Sendfile)(to, from, at, length) },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_fadvise(
    fd: c_int,
    offset: i64,
    length: i64,
    advice: c_int,
    rsp: u64,
    rbp: u64,
) -> c_int {
    type Fadvise = unsafe extern "C-unwind" fn(c_int, i64, i64, c_int) -> c_int;
    let call = Call { kind: Kind::Advise, fd, asked: length as u64, offset: Some(offset as u64), rsp, rbp };
    // SAFETY: as in `transfers`.
    call.run(|| unsafe { original::<Fadvise>(Hook::Fadvise)(fd, offset, length, advice) } as isize) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_dup2(old: c_int, new: c_int) -> c_int {
    type Dup2 = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
    files::forget(new);
    // SAFETY: as in `transfers`.
    let result = unsafe { original::<Dup2>(Hook::Dup2)(old, new) };
    files::forget(new);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
    files::forget(new);
    // SAFETY: as in `transfers`.
    let result = unsafe { original::<Dup3>(Hook::Dup3)(old, new, flags) };
    files::forget(new);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_close_range(first: u32, last: u32, flags: c_int) -> c_int {
    type CloseRange = unsafe extern "C-unwind" fn(u32, u32, c_int) -> c_int;
    files::forget_range(first, last);
    // SAFETY: as in `transfers`.
    unsafe { original::<CloseRange>(Hook::CloseRange)(first, last, flags) }
}

macro_rules! vectored_at_with_flags {
    ($($hook:ident $index:ident $kind:ident),*) => { $(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C-unwind" fn $hook(
            fd: c_int, parts: *const libc::iovec, count: c_int, at: i64, flags: c_int, _: u64, rsp: u64, rbp: u64,
        ) -> isize {
            type Flagged = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int, i64, c_int) -> isize;
            // At -1, it is the descriptor's position.
            let call = Call { kind: Kind::$kind, fd, asked: 0, offset: u64::try_from(at).ok(), rsp, rbp };
            // SAFETY: as in `transfers`.
            call.run_with(|call| call.asked = total(parts, count), || unsafe { original::<Flagged>(Hook::$index)(fd, parts, count, at, flags) })
        }
    )* };
}

vectored_at_with_flags!(nigh_hook_preadv2 Preadv2 Read, nigh_hook_pwritev2 Pwritev2 Write);

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn nigh_hook_mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    rsp: u64,
    rbp: u64,
) -> *mut c_void {
    type Mmap = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    // SAFETY: as in `transfers`.
    let run = || unsafe { original::<Mmap>(Hook::Mmap)(address, length, protection, flags, fd, offset) };
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
        return run();
    }
    // The offset at which the kernel maps the requests of io_uring.
    const RING_REQUESTS: i64 = 0x1000_0000;
    if offset == RING_REQUESTS && roomy(|| files::is_ring(fd)) {
        thread::writer().inspect(|writer| writer.miss(Unseen::Ring));
    }
    let call = Call { kind: Kind::Map, fd, asked: length as u64, offset: Some(offset as u64), rsp, rbp };
    call.run(|| run() as isize) as *mut c_void
}

macro_rules! copies {
    ($($hook:ident $index:ident),*) => { $(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C-unwind" fn $hook(
            from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, length: usize, flags: u32, rsp: u64, rbp: u64,
        ) -> isize {
            type Copy = unsafe extern "C-unwind" fn(c_int, *mut i64, c_int, *mut i64, usize, u32) -> isize;
            let read = Call { kind: Kind::Read, fd: from, asked: length as u64, offset: None, rsp, rbp };
            let write = Call { kind: Kind::Write, fd: to, asked: length as u64, offset: None, rsp, rbp };
            // SAFETY: as in `transfers`.
            let copy = || unsafe { original::<Copy>(Hook::$index)(from, from_at, to, to_at, length, flags) };
            let write = || write.run_with(|call| call.offset = position(to_at), copy);
            read.run_with(|call| call.offset = position(from_at), write)
        }
    )* };
}

// One side of `splice` is a pipe, and no file.
copies!(nigh_hook_copy_file_range CopyFileRange, nigh_hook_splice Splice);

/// Requests of one `io_submit` that are looked at before it. Those behind them are looked at after it, when the program may have changed
/// them.
const SUBMITTED: usize = 32;

/// Runs a call that submits `count` requests, by an array of pointers to them, and returns how many the kernel took. These are recorded as
/// if they ended at once and transferred all.
fn submits(count: i64, blocks: u64, rsp: u64, rbp: u64, original: impl FnOnce() -> i64) -> i64 {
    // libaio may make the call by `syscall`.
    if thread::writer().is_none() || thread::is_submitting() {
        return original();
    }
    let mut first = [None; SUBMITTED];
    let errno = Errno::save();
    for (at, place) in (0..count.max(0) as u64).zip(&mut first) {
        *place = Some(submitted(blocks, at));
    }
    errno.restore();
    let begin = now_ns();
    thread::set_submitting(true);
    let taken = original();
    thread::set_submitting(false);
    let errno = Errno::save();
    let here = if taken > 0 { Here::enter() } else { None };
    if let Some(here) = here {
        for at in 0..taken as u64 {
            let known = first.get(at as usize).copied().flatten();
            match known.unwrap_or_else(|| submitted(blocks, at)) {
                Ok(Some(one)) => record_submitted(&here, &one, begin, rsp, rbp),
                Ok(None) => {}
                Err(()) => here.lose(),
            }
        }
    }
    errno.restore();
    taken
}

/// Request number `at`: nothing if it is not for a file, and an error if it cannot be read.
fn submitted(blocks: u64, at: u64) -> Result<Option<Submitted>, ()> {
    let mut passed = Passed::default();
    let place = passed.word(blocks.wrapping_add(at * 8)).ok_or(())?;
    let mut block = [0; BLOCK_BYTES];
    for (word, to) in (0..).zip(block.chunks_exact_mut(8)) {
        to.copy_from_slice(&passed.word(place.wrapping_add(word * 8)).ok_or(())?.to_ne_bytes());
    }
    Ok(Submitted::parse(&block))
}

fn record_submitted(here: &Here, one: &Submitted, begin: u64, rsp: u64, rbp: u64) {
    let fd = one.descriptor as c_int;
    let Some(file) = files::number(here, fd).filter(|&file| file != files::QUIET) else { return };
    let asked = match one.bytes {
        Bytes::Of(bytes) => bytes,
        Bytes::OfVector { at, parts } => total(at as *const libc::iovec, c_int::try_from(parts).unwrap_or(0)),
    };
    let call = Call { kind: one.kind, fd, asked, offset: Some(one.offset), rsp, rbp };
    call.record(here, file, begin, asked as isize, 0, 0, 0);
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_io_submit(
    context: Word,
    count: libc::c_long,
    blocks: *mut *mut c_void,
    _: u64,
    rsp: u64,
    rbp: u64,
) -> c_int {
    type Submit = unsafe extern "C-unwind" fn(Word, libc::c_long, *mut *mut c_void) -> c_int;
    // SAFETY: as in `transfers`.
    let run = || unsafe { original::<Submit>(Hook::IoSubmit)(context, count, blocks) };
    submits(count, blocks as u64, rsp, rbp, || run().into()) as c_int
}

/// The kernel does not report whether the program loads the library: the recorder inspects its file.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_execve(
    path: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> c_int {
    type Execve = unsafe extern "C-unwind" fn(
        *const libc::c_char,
        *const *const libc::c_char,
        *const *const libc::c_char,
    ) -> c_int;
    let errno = Errno::save();
    if let Some(here) = Here::enter()
        && let Some(path) = string(path)
    {
        let how = if has_library(environment) { EXEC_WITH_LIBRARY } else { EXEC_WITHOUT_LIBRARY };
        files::executes(&here, path, how);
    }
    errno.restore();
    // SAFETY: as in `transfers`.
    let result = unsafe { original::<Execve>(Hook::Execve)(path, arguments, environment) };
    // It returns if the program cannot be executed.
    let errno = Errno::save();
    if let Some(here) = Here::enter() {
        files::executes(&here, c"/", EXEC_FAILED);
    }
    errno.restore();
    result
}

/// A path that the caller passed; `None` if it cannot be read, or is too long for the kernel.
fn string<'a>(path: *const libc::c_char) -> Option<&'a CStr> {
    let mut passed = Passed::default();
    let end = (0..libc::PATH_MAX as u64).map(|at| passed.byte((path as u64).wrapping_add(at)));
    let is_string = end.take_while(Option::is_some).any(|byte| byte == Some(0));
    // SAFETY: it can be read up to its end.
    is_string.then(|| unsafe { CStr::from_ptr(path) })
}

/// Whether a program with this environment, an array of strings that ends in a null pointer, loads the recording library.
fn has_library(environment: *const *const libc::c_char) -> bool {
    let (mut slots, mut strings) = (Passed::default(), Passed::default());
    let variables = (0..).map_while(|number: u64| {
        let at = (environment as u64).wrapping_add(number * size_of::<*const libc::c_char>() as u64);
        slots.word(at).filter(|&variable| variable != 0)
    });
    let name = || FOLDER_VARIABLE.bytes().chain([b'=']);
    let mut begins =
        |variable: u64| (0..).zip(name()).all(|(at, byte)| strings.byte(variable.wrapping_add(at)) == Some(byte));
    variables.into_iter().any(&mut begins)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_dlclose(handle: *mut c_void) -> c_int {
    type Dlclose = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    // SAFETY: as in `transfers`.
    let result = unsafe { original::<Dlclose>(Hook::Dlclose)(handle) };
    // Another library may get its addresses.
    frames::forget_all();
    result
}

/// Runs a call that changes the names of the files at these paths, and reports them to the recorder.
fn names<const N: usize>(paths: [(c_int, Path); N], original: impl FnOnce() -> c_int) -> c_int {
    if thread::writer().is_none() {
        return original();
    }
    let errno = Errno::save();
    if !kernel::may(libc::SYS_openat) {
        thread::miss_limited();
    }
    let named = paths.map(|(folder, path)| files::Named::open(folder, path));
    errno.restore();
    let result = original();
    let errno = Errno::save();
    let here = if result == 0 { Here::enter() } else { None };
    for named in named.iter().flatten() {
        here.iter().for_each(|here| roomy(|| named.changed(here)));
        named.close();
    }
    drop(here);
    errno.restore();
    result
}

type Path = *const libc::c_char;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_rename(old: Path, new: Path) -> c_int {
    type Rename = unsafe extern "C-unwind" fn(Path, Path) -> c_int;
    // The one that is replaced may have no name any more.
    // SAFETY: as in `transfers`.
    names([(libc::AT_FDCWD, new), (libc::AT_FDCWD, old)], || unsafe { original::<Rename>(Hook::Rename)(old, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_renameat(from: c_int, old: Path, to: c_int, new: Path) -> c_int {
    type Renameat = unsafe extern "C-unwind" fn(c_int, Path, c_int, Path) -> c_int;
    // SAFETY: as in `transfers`.
    names([(to, new), (from, old)], || unsafe { original::<Renameat>(Hook::Renameat)(from, old, to, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_renameat2(from: c_int, old: Path, to: c_int, new: Path, flags: u32) -> c_int {
    type Renameat2 = unsafe extern "C-unwind" fn(c_int, Path, c_int, Path, u32) -> c_int;
    // SAFETY: as in `transfers`.
    names([(to, new), (from, old)], || unsafe { original::<Renameat2>(Hook::Renameat2)(from, old, to, new, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_unlink(path: Path) -> c_int {
    type Unlink = unsafe extern "C-unwind" fn(Path) -> c_int;
    // SAFETY: as in `transfers`.
    names([(libc::AT_FDCWD, path)], || unsafe { original::<Unlink>(Hook::Unlink)(path) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_unlinkat(folder: c_int, path: Path, flags: c_int) -> c_int {
    type Unlinkat = unsafe extern "C-unwind" fn(c_int, Path, c_int) -> c_int;
    // SAFETY: as in `transfers`.
    names([(folder, path)], || unsafe { original::<Unlinkat>(Hook::Unlinkat)(folder, path, flags) })
}

type Word = libc::c_ulong;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_prctl(
    option: c_int,
    first: Word,
    second: Word,
    third: Word,
    fourth: Word,
) -> c_int {
    type Prctl = unsafe extern "C-unwind" fn(c_int, Word, Word, Word, Word) -> c_int;
    // SAFETY: as in `transfers`.
    let run = || unsafe { original::<Prctl>(Hook::Prctl)(option, first, second, third, fourth) };
    let limit = match (option, first as u32) {
        (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) => Limit::Strict,
        (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER) => Limit::Filter(second),
        _ => return run(),
    };
    limits::limited(limit, || run().into()) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nigh_hook_syscall(
    number: libc::c_long,
    first: Word,
    second: Word,
    third: Word,
    fourth: Word,
    fifth: Word,
    sixth: Word,
) -> libc::c_long {
    type Syscall = unsafe extern "C-unwind" fn(libc::c_long, Word, Word, Word, Word, Word, Word) -> libc::c_long;
    // SAFETY: as in `transfers`.
    let run = || unsafe { original::<Syscall>(Hook::Syscall)(number, first, second, third, fourth, fifth, sixth) };
    let limit = match (number, first as u32) {
        (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_STRICT) => Limit::Strict,
        (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER) => Limit::Filter(third),
        // Its code is not known: the call that `syscall` makes has no frame.
        (libc::SYS_io_submit, _) => return submits(second as i64, third, 0, 0, run),
        (libc::SYS_io_uring_setup, _) => {
            thread::writer().inspect(|writer| writer.miss(Unseen::Ring));
            return run();
        }
        _ => return run(),
    };
    limits::limited(limit, run)
}

macro_rules! jumps {
    ($($hook:ident $index:ident),*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $hook(to: *mut c_void, value: c_int) {
            type Jump = unsafe extern "C-unwind" fn(*mut c_void, c_int);
            thread::jumps();
            // SAFETY: as in `transfers`. It does not return.
            unsafe { original::<Jump>(Hook::$index)(to, value) }
        }
    )* };
}

// `longjmp` and `_longjmp` are other names of the first one.
jumps!(nigh_hook_siglongjmp Siglongjmp, nigh_hook_longjmp_checked LongjmpChecked);
