//! What happens when the library is loaded, and after `fork`.

use std::ffi::CStr;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use nigh_ring::{BOARD_VARIABLE, FOLDER_VARIABLE, NAME_BYTES, Writer};

use crate::clock::now_ns;
use crate::{advice, board, files, frames, hooks, thread};

/// The longest path of a shared file.
const PATH_MOST: usize = 512;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if keep_folder().is_none() {
        return;
    }
    // The recorder misses its file.
    let Some(writer) = create() else { return };
    board::begin(variable(BOARD_VARIABLE));
    advice::forked();
    thread::prepare();
    thread::begin(Some(writer));
    if thread::watch_for_fork(forked).is_none() || !hooks::install() {
        thread::writer().inspect(Writer::miss);
        thread::begin(None);
    }
}

/// The child of `fork` is a process of its own. It has one thread.
fn forked() {
    let parent = thread::writer();
    thread::begin(None);
    files::forget_all();
    frames::forget_all();
    advice::forked();
    let own = create();
    if own.is_none() {
        parent.inspect(Writer::miss);
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
    let pid = unsafe { libc::syscall(libc::SYS_getpid) } as u32;
    let mut program = [0u8; NAME_BYTES];
    // SAFETY: the name is a C string, and the buffer has this room.
    let length = unsafe {
        let link = c"/proc/self/exe".as_ptr();
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, program.as_mut_ptr(), NAME_BYTES)
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
