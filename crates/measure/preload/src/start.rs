//! Start of the library when it is loaded, and after `fork`.

use std::ffi::CStr;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use nigh_ring::{BOARD_VARIABLE, FILTERS_VARIABLE, FOLDER_VARIABLE, NAME_BYTES, Unseen, Writer};

use crate::clock::now_ns;
use crate::stack::roomy;
use crate::{advice, board, files, frames, hooks, kernel, limits, stack, thread};

/// The longest path of a shared file.
const PATH_MOST: usize = 512;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // System calls of this library could end a program that is limited further than the recorder is, which misses its file.
    if keep_folder().is_none() || !limits::is_as_recorder(variable(FILTERS_VARIABLE).map(CStr::to_bytes)) {
        return;
    }
    // The recorder misses its file.
    let Some(writer) = create() else { return };
    let board = variable(BOARD_VARIABLE);
    board::begin(board);
    if board.is_some() && board::get().is_none() {
        // It is another user's process: it gets no advice, and nobody may read what it records.
        return writer.miss(Unseen::Process);
    }
    advice::forked();
    thread::prepare();
    thread::begin(Some(writer));
    if thread::watch_for_fork(forked).is_none() || !hooks::install() {
        thread::writer().inspect(|writer| writer.miss(Unseen::Process));
        thread::begin(None);
    }
}

/// The system calls that create a shared file.
const CREATES: [libc::c_long; 7] = [
    libc::SYS_close,
    libc::SYS_ftruncate,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_openat,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
];

/// The child of `fork` is a process of its own. It has one thread.
fn forked() {
    let parent = thread::writer();
    stack::forked();
    thread::begin(None);
    files::forget_all();
    frames::forget_all();
    advice::forked();
    let own = if CREATES.into_iter().all(kernel::may) { roomy(create) } else { None };
    if own.is_none() {
        parent.inspect(|parent| parent.miss(Unseen::Process));
    }
    thread::begin(own);
}

/// The recorder's folder with a zero behind it. It is written once, while the process has one thread.
static FOLDER: [AtomicU8; PATH_MOST] = [const { AtomicU8::new(0) }; PATH_MOST];

/// Keeps the folder, which the program may remove from its environment; `None` if nothing is to be recorded.
fn keep_folder() -> Option<()> {
    let folder = variable(FOLDER_VARIABLE)?.to_bytes();
    let (_, place) = FOLDER.split_last()?;
    place.get(..folder.len())?.iter().zip(folder).for_each(|(to, &byte)| to.store(byte, Ordering::Relaxed));
    Some(())
}

/// Creates the shared file of this process in the recorder's folder.
fn create() -> Option<Writer> {
    // SAFETY: a plain call.
    let pid = unsafe { kernel::call(libc::SYS_getpid, []) } as u32;
    let mut program = [0u8; NAME_BYTES];
    // SAFETY: the name is a C string, and the buffer has this room.
    let length = unsafe {
        let link = c"/proc/self/exe".as_ptr() as i64;
        let arguments = [libc::AT_FDCWD.into(), link, program.as_mut_ptr() as i64, NAME_BYTES as i64];
        kernel::call(libc::SYS_readlinkat, arguments)
    };
    let program = program.get(..usize::try_from(length).unwrap_or(0))?;
    frames::set_program(program);
    let mut path = [0u8; PATH_MOST];
    let mut rest = &mut path[..];
    for byte in FOLDER.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|&byte| byte != 0) {
        rest.write_all(&[byte]).ok()?;
    }
    // A process has a file for each program that it executes.
    write!(rest, "/{pid}-{}\0", now_ns()).ok()?;
    Writer::create(CStr::from_bytes_until_nul(&path).ok()?, pid, program)
}

/// A variable of the environment. Called while the process has one thread.
fn variable(name: &str) -> Option<&'static CStr> {
    let mut buffer = [0; 64];
    buffer.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&buffer).ok()?;
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value of the environment is a C string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
