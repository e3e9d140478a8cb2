//! Limits that the program sets for its system calls (seccomp): each filter is evaluated for the calls that this library makes, and those that it refuses or
//! that would end the program are not made from then on.

use std::ffi::c_long;

use crate::kernel::{self, OWN, call, may};
use crate::thread::{self, Passed};
use crate::{clock, files};

/// A limit that the program sets.
pub(crate) enum Limit {
    /// Only `read`, `write`, `exit` and `sigreturn`.
    Strict,
    /// The filter at this address (`struct sock_fprog`).
    Filter(u64),
}

/// Runs `set`, which limits the system calls of this process, and returns 0 if it does. Calls that it forbids are not made any more,
/// not even during it.
pub(crate) fn limited(limit: Limit, set: impl FnOnce() -> i64) -> i64 {
    if thread::writer().is_none() {
        return set();
    }
    let mut denied = kernel::denied();
    let before = denied;
    let program = match limit {
        Limit::Strict => {
            clock::stop();
            None
        }
        Limit::Filter(at) => Program::at(at),
    };
    for (at, &number) in OWN.iter().enumerate() {
        // A filter may check arguments: it must not refuse the simplest ones, and not end the program for any.
        let action = |arguments| program.as_ref().and_then(|program| program.run(number as u32, arguments));
        let is_possible = action(0).is_some_and(succeeds) && action(u64::MAX).is_some_and(returns);
        denied |= u32::from(!is_possible) << at;
    }
    if denied == before {
        return set();
    }
    let is_denied = |number: c_long| OWN.iter().position(|&own| own == number).is_none_or(|at| denied >> at & 1 == 1);
    if [libc::SYS_fstat, libc::SYS_readlinkat, libc::SYS_madvise].into_iter().any(is_denied) {
        // As long as that is possible.
        files::look_at_all();
    }
    kernel::deny(denied);
    let result = set();
    if result != 0 {
        kernel::deny(before);
        clock::go_on();
        return result;
    }
    if !may(libc::SYS_madvise) {
        nigh_ring::forbid_memory();
    }
    result
}

/// Whether a call with this action of a filter is made.
fn succeeds(action: u32) -> bool {
    const LOG: u32 = 0x7ffc_0000;
    const ALLOW: u32 = 0x7fff_0000;
    matches!(action & 0xffff_0000, LOG | ALLOW)
}

/// Whether it returns, be it with an error.
fn returns(action: u32) -> bool {
    const ERRNO: u32 = 0x0005_0000;
    succeeds(action) || action & 0xffff_0000 == ERRNO
}

/// A filter of seccomp, in the memory of the program.
struct Program {
    /// Instructions, and the address of the first one.
    count: u64,
    first: u64,
}

/// The architecture that filters see: x86-64.
const ARCHITECTURE: u32 = 0xc000_003e;

impl Program {
    fn at(address: u64) -> Option<Program> {
        let mut passed = Passed::default();
        let (count, first) = (passed.word(address)? & 0xffff, passed.word(address.wrapping_add(8))?);
        Some(Program { count, first })
    }

    /// Its result for a system call whose arguments are all `arguments`; `None` if it is not valid.
    fn run(&self, number: u32, arguments: u64) -> Option<u32> {
        let mut passed = Passed::default();
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
        let data = |at: u32| match at {
            0 => Some(number),
            4 => Some(ARCHITECTURE),
            // The address of the instruction.
            8 | 12 => Some(0),
            at if at < 64 && at.is_multiple_of(4) => {
                Some(if at.is_multiple_of(8) { arguments as u32 } else { (arguments >> 32) as u32 })
            }
            _ => None,
        };
        let mut at = 0;
        while at < self.count {
            let [code, _, if_true, if_false, value @ ..] = passed.word(self.first.wrapping_add(at * 8))?.to_le_bytes();
            let k = u32::from_le_bytes(value);
            at += 1;
            let operand = if code & 8 != 0 { x } else { k };
            // The classes and modes of linux/bpf_common.h.
            match code & 7 {
                0 => {
                    a = match code & 0xe0 {
                        0x00 => k,
                        0x20 => data(k)?,
                        0x60 => *memory.get(k as usize)?,
                        0x80 => 64,
                        _ => return None,
                    }
                }
                1 => {
                    x = match code & 0xe0 {
                        0x00 => k,
                        0x60 => *memory.get(k as usize)?,
                        0x80 => 64,
                        _ => return None,
                    }
                }
                2 => *memory.get_mut(k as usize)? = a,
                3 => *memory.get_mut(k as usize)? = x,
                4 => {
                    a = match code & 0xf0 {
                        0x00 => a.wrapping_add(operand),
                        0x10 => a.wrapping_sub(operand),
                        0x20 => a.wrapping_mul(operand),
                        0x30 => a.checked_div(operand)?,
                        0x40 => a | operand,
                        0x50 => a & operand,
                        0x60 => a.checked_shl(operand).unwrap_or(0),
                        0x70 => a.checked_shr(operand).unwrap_or(0),
                        0x80 => a.wrapping_neg(),
                        0xa0 => a ^ operand,
                        _ => return None,
                    }
                }
                5 => {
                    let holds = match code & 0xf0 {
                        0x00 => {
                            at += u64::from(k);
                            continue;
                        }
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        0x40 => a & operand != 0,
                        _ => return None,
                    };
                    at += u64::from(if holds { if_true } else { if_false });
                }
                6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
                _ if code & 0xf8 == 0x80 => a = x,
                _ => x = a,
            }
        }
        None
    }
}

/// How many filters this process has, as far as the kernel reports it, read while it starts.
fn filters() -> Option<u64> {
    const STATUS_BYTES: usize = 4096;
    let mut text = [0_u8; STATUS_BYTES];
    let path = c"/proc/self/status".as_ptr() as i64;
    let mut length = 0;
    // SAFETY: the path is a C string, and the buffer has this room.
    unsafe {
        let fd = call(libc::SYS_openat, [i64::from(libc::AT_FDCWD), path, i64::from(libc::O_CLOEXEC)]);
        if fd >= 0 {
            let read = call(libc::SYS_read, [fd, text.as_mut_ptr() as i64, STATUS_BYTES as i64]);
            length = usize::try_from(read).unwrap_or(0);
            call(libc::SYS_close, [fd]);
        }
    }
    nigh_ring::filters(text.get(..length)?)
}

/// Whether the recorder, which has as many filters as `known`, is limited as this process is.
pub(crate) fn is_as_recorder(known: Option<&[u8]>) -> bool {
    let known = known.and_then(|known| std::str::from_utf8(known).ok()?.parse().ok()).unwrap_or(0);
    filters().is_none_or(|own| own <= known)
}
