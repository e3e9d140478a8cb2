//! Replaces the first instructions of a function by a jump, and keeps them where they can still be called.
//!
//! A jump takes 5 bytes. The instructions that it replaces, all of kinds listed in [`instruction`], are copied to a page
//! near the function, followed by a jump back. No known function jumps into its first 5 bytes.

use std::ffi::{CStr, c_void};
use std::ptr;

use crate::kernel;

const JUMP_BYTES: usize = 5;
const PAGE_BYTES: usize = 4096;

/// The most bytes of a copied beginning with its jump back.
const COPY_BYTES: usize = 32;

/// A page for copied beginnings, within 2 GiB of libc.
pub(crate) struct Page {
    begin: *mut u8,
    used: usize,
}

/// A function whose first instructions are copied, and which a jump will be written to.
pub(crate) struct Planned {
    function: *mut u8,
    copy: *const u8,
    /// The distance of the jump.
    distance: i32,
}

/// The length of an instruction at the beginning of `code`, and where in it 4 bytes are relative to its end; `None` if it
/// is none of those that begin libc's functions.
fn instruction(code: &[u8]) -> Option<(usize, Option<usize>)> {
    Some(match code {
        // endbr64
        [0xf3, 0x0f, 0x1e, 0xfa, ..] => (4, None),
        // cmpb $imm8, disp32(%rip)
        [0x80, 0x3d, ..] => (7, Some(2)),
        // mov disp32(%rip), %rdx
        [0x48, 0x8b, 0x15, ..] => (7, Some(3)),
        // mov %fs:disp32, %eax
        [0x64, 0x8b, 0x04, 0x25, ..] => (8, None),
        // xor %eax, %eax; test %eax, %eax; syscall
        [0x31, 0xc0, ..] | [0x85, 0xc0, ..] | [0x0f, 0x05, ..] => (2, None),
        // cmp $imm32, %rax
        [0x48, 0x3d, ..] => (6, None),
        // mov $imm32, %eax
        [0xb8, ..] => (5, None),
        // mov %ecx, %r10d
        [0x41, 0x89, 0xca, ..] => (3, None),
        // test %r8d, %r8d
        [0x45, 0x85, 0xc0, ..] => (3, None),
        // test $imm32, %r9d
        [0x41, 0xf7, 0xc1, ..] => (7, None),
        // push %rax to %rdi
        [0x50..=0x57, ..] => (1, None),
        // mov between two registers of 64 bits
        [0x48 | 0x49 | 0x4c | 0x4d, 0x89, 0xc0..=0xff, ..] => (3, None),
        // sub $imm8, %rsp
        [0x48, 0x83, 0xec, ..] => (4, None),
        // push %r8 to %r15
        [0x41, 0x50..=0x57, ..] => (2, None),
        // mov %edx, %r15d
        [0x41, 0x89, 0xd7, ..] => (3, None),
        _ => return None,
    })
}

impl Page {
    /// A page near `place`.
    pub(crate) fn near(place: *const c_void) -> Option<Page> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let around = place as usize & !(PAGE_BYTES - 1);
        // Above libc is what was loaded before it, below it what comes later; both have gaps.
        for distance in (1..500).map(|step| step * 0x40_0000) {
            for address in [around.wrapping_sub(distance), around.wrapping_add(distance)] {
                // SAFETY: a new mapping, at an address that is not in use.
                let mapped = unsafe {
                    kernel::call(
                        libc::SYS_mmap,
                        [address as i64, PAGE_BYTES as i64, protection.into(), flags.into(), -1, 0],
                    )
                };
                if mapped as usize == address {
                    return Some(Page { begin: address as *mut u8, used: 0 });
                }
            }
        }
        None
    }

    /// Copies the beginning of `function`, which is to jump to `hook`; `None` if that is not possible.
    pub(crate) fn plan(&mut self, function: *mut c_void, hook: *const c_void) -> Option<Planned> {
        let function = function.cast::<u8>();
        // SAFETY: a function of libc is followed by others; its code can be read.
        let code = unsafe { std::slice::from_raw_parts(function, COPY_BYTES) };
        if self.used + 2 * COPY_BYTES > PAGE_BYTES {
            return None;
        }
        // SAFETY: the page has room for both.
        let (copy, island) = unsafe { (self.begin.add(self.used), self.begin.add(self.used + COPY_BYTES)) };
        let mut length = 0;
        while length < JUMP_BYTES {
            let (bytes, relative) = instruction(code.get(length..)?)?;
            let bytes_of = code.get(length..length + bytes)?;
            // SAFETY: copies are at most `COPY_BYTES` long with the jump back: 4 + 8 + 14.
            unsafe { ptr::copy_nonoverlapping(bytes_of.as_ptr(), copy.add(length), bytes) };
            if let Some(at) = relative {
                let old = i32::from_le_bytes(bytes_of.get(at..at + 4)?.try_into().ok()?);
                let moved = old as i64 + (function as i64 - copy as i64);
                let moved = i32::try_from(moved).ok()?.to_le_bytes();
                // SAFETY: within the instruction that was just copied.
                unsafe { ptr::copy_nonoverlapping(moved.as_ptr(), copy.add(length + at), 4) };
            }
            length += bytes;
        }
        // SAFETY: both parts are within the page. `length` is at most 12.
        unsafe {
            jump(copy.add(length), function.add(length));
            jump(island, hook.cast());
        }
        let distance = i32::try_from(island as i64 - (function as i64 + JUMP_BYTES as i64)).ok()?;
        self.used += 2 * COPY_BYTES;
        Some(Planned { function, copy, distance })
    }

    /// Makes the page executable, and no longer writable.
    pub(crate) fn seal(self) -> bool {
        // SAFETY: the page is ours.
        unsafe { libc::mprotect(self.begin.cast(), PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC) == 0 }
    }
}

impl Planned {
    /// The original function.
    pub(crate) fn original(&self) -> *const c_void {
        self.copy.cast()
    }

    /// Writes the jump. If libc's code cannot be changed, the function stays as it is.
    pub(crate) fn apply(self) {
        let mut near = [0xe9, 0, 0, 0, 0];
        near[1..].copy_from_slice(&self.distance.to_le_bytes());
        let first = self.function as usize & !(PAGE_BYTES - 1);
        let bytes = (self.function as usize + JUMP_BYTES).next_multiple_of(PAGE_BYTES) - first;
        let both = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: libc's code becomes writable, is changed while no other thread runs, and is as before but for the jump.
        unsafe {
            if libc::mprotect(first as *mut c_void, bytes, both) == 0 {
                ptr::copy_nonoverlapping(near.as_ptr(), self.function, JUMP_BYTES);
                libc::mprotect(first as *mut c_void, bytes, libc::PROT_READ | libc::PROT_EXEC);
            }
        }
    }
}

/// Writes a jump to `target`, at any distance: 14 bytes.
///
/// # Safety
/// There is room at `place`.
unsafe fn jump(place: *mut u8, target: *const u8) {
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[6..].copy_from_slice(&(target as u64).to_le_bytes());
    // SAFETY: by the contract of this function.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), place, code.len()) };
}

/// Functions of other libraries that are loaded with the program.
const OTHERS: [&CStr; 1] = [c"io_submit"];

/// The function of libc called `name`: another library may have one of the same name (AddressSanitizer).
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: both names are C strings. The library is loaded, and stays so.
    let found = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if libc.is_null() {
            return None;
        }
        libc::dlsym(if OTHERS.contains(&name) { libc::RTLD_DEFAULT } else { libc }, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}
