//! The return addresses of a call, by the tables for exceptions (`.eh_frame`).
//!
//! The rule at a return address, where the caller's stack pointer and return address are, is looked up once and cached
//! by address. Rules that a cache of five words cannot hold end the walk, as does code without tables.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use nigh_ring::{MODULE_SHIFT, NAME_BYTES, PROGRAM, Writer};

use crate::stack::roomy;
use crate::thread;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RA: Register = Register(16);

/// Entries of the cache, a power of two.
const RULES: usize = 1 << 14;
/// How many entries are tried for an address.
const PROBES: usize = 8;

/// A frame that is longer is a misunderstanding.
const FRAME_BYTES_MOST: u64 = 1 << 20;

/// Bits of a packed rule.
const BY_RBP: u64 = 1 << 63;
const RBP_SAVED: u64 = 1 << 62;
const END: u64 = 1 << 61;

/// One address. It is written once for each value of `TURN`: `state` is lower, then twice that plus 1 while it is written,
/// then plus 2.
struct Entry {
    state: AtomicU32,
    address: AtomicU64,
    /// The module and the offset, as recorded.
    frame: AtomicU64,
    /// Flags, 24 bits for where rbp is saved below the caller's stack pointer, and 32 for the distance of that from the
    /// register that it is counted from.
    rule: AtomicU64,
}

static CACHE: [Entry; RULES] = [const {
    Entry { state: AtomicU32::new(0), address: AtomicU64::new(0), frame: AtomicU64::new(0), rule: AtomicU64::new(0) }
}; RULES];

/// Modules by the address at which they begin, and their numbers in the recorder's table, plus 1.
static MODULES: [(AtomicU64, AtomicU32); nigh_ring::MODULES] =
    [const { (AtomicU64::new(0), AtomicU32::new(0)) }; nigh_ring::MODULES];

/// The token of each module in the recorder's table, and of the program.
static TOKENS: [AtomicU64; nigh_ring::MODULES] = [const { AtomicU64::new(0) }; nigh_ring::MODULES];
static PROGRAM_TOKEN: AtomicU64 = AtomicU64::new(0);

/// The program is the one at `path`.
pub(crate) fn set_program(path: &[u8]) {
    PROGRAM_TOKEN.store(module_token(path), Ordering::Relaxed);
}

/// The token of a module, by its name without the folder, as the recorder computes it.
fn module_token(path: &[u8]) -> u64 {
    let path = path.get(..NAME_BYTES).unwrap_or(path);
    nigh_pattern::module_token(path.rsplit(|&byte| byte == b'/').next().unwrap_or(path))
}

/// The token of a return address, as the recorder computes it.
pub(crate) fn token(frame: u64) -> u64 {
    let module = TOKENS.get((frame >> MODULE_SHIFT) as usize).map_or(0, |token| token.load(Ordering::Relaxed));
    nigh_pattern::token(module, frame & ((1 << MODULE_SHIFT) - 1))
}

/// How often everything was forgotten.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Addresses may belong to other modules from now on, and modules are announced anew: after `fork` and `dlclose`.
pub(crate) fn forget_all() {
    TURN.fetch_add(1, Ordering::Relaxed);
    for (begin, number) in &MODULES {
        number.store(0, Ordering::Relaxed);
        begin.store(0, Ordering::Release);
    }
}

/// The return addresses of a function whose stack pointer was `rsp` at its first instruction, innermost first, as the
/// recorder knows them.
pub(crate) fn walk(writer: &Writer, rsp: u64, rbp: u64, frames: &mut [u64]) -> u8 {
    let (mut rsp, mut rbp) = (rsp, rbp);
    for (at, frame) in frames.iter_mut().enumerate() {
        let Some(address) = thread::stack_word(rsp) else { return at as u8 };
        // After the return, the caller's stack pointer is above the address.
        rsp += 8;
        let Some((found, rule)) = rule(writer, address) else { return at as u8 };
        *frame = found;
        if rule & END != 0 {
            return at as u8 + 1;
        }
        let base = if rule & BY_RBP != 0 { rbp } else { rsp };
        let cfa = base.wrapping_add_signed(i64::from(rule as u32 as i32));
        if cfa < rsp || cfa - rsp > FRAME_BYTES_MOST {
            return at as u8 + 1;
        }
        if rule & RBP_SAVED != 0 {
            let saved = cfa.wrapping_sub((rule >> 32) & 0xff_ffff);
            if saved >= rsp.wrapping_sub(8)
                && let Some(word) = thread::stack_word(saved)
            {
                rbp = word;
            }
        }
        rsp = cfa.wrapping_sub(8);
    }
    frames.len() as u8
}

/// The frame and the rule at return address `address`; `None` if it belongs to no module.
fn rule(writer: &Writer, address: u64) -> Option<(u64, u64)> {
    let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    let turn = TURN.load(Ordering::Relaxed).wrapping_mul(2);
    let (written, done) = (turn.wrapping_add(1), turn.wrapping_add(2));
    for probe in 0..PROBES {
        let entry = &CACHE[(first + probe) % RULES];
        let state = entry.state.load(Ordering::Acquire);
        if state == done {
            if entry.address.load(Ordering::Relaxed) == address {
                return Some((entry.frame.load(Ordering::Relaxed), entry.rule.load(Ordering::Relaxed)));
            }
        } else if state != written {
            let (frame, rule) = roomy(|| look(writer, address))?;
            if entry.state.compare_exchange(state, written, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                entry.address.store(address, Ordering::Relaxed);
                entry.frame.store(frame, Ordering::Relaxed);
                entry.rule.store(rule, Ordering::Relaxed);
                entry.state.store(done, Ordering::Release);
            }
            return Some((frame, rule));
        }
    }
    roomy(|| look(writer, address))
}

/// `struct dl_find_object` of glibc.
#[repr(C)]
struct Object {
    flags: u64,
    begin: *mut c_void,
    end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *const u8,
    reserved: [u64; 7],
}

/// The beginning of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const libc::c_char,
}

unsafe extern "C" {
    /// Finds the module of an address without a lock; for any context.
    fn _dl_find_object(address: *const c_void, result: *mut Object) -> libc::c_int;
}

fn look(writer: &Writer, address: u64) -> Option<(u64, u64)> {
    let mut object = std::mem::MaybeUninit::<Object>::zeroed();
    // SAFETY: the result has the layout of the C library, which is 2.35 or later, because this symbol was linked.
    if unsafe { _dl_find_object(address as *const c_void, object.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: it was filled, and zeros are valid.
    let object = unsafe { object.assume_init() };
    let begin = object.begin as u64;
    let module = module(writer, begin, &object)?;
    let frame = (u64::from(module) << MODULE_SHIFT) | (address - begin);
    Some((frame, unwind(&object, address).unwrap_or(END)))
}

/// The recorder's number of a module.
fn module(writer: &Writer, begin: u64, object: &Object) -> Option<u16> {
    let announce = || {
        // SAFETY: the C library's own structure, of a module that is loaded because code of it is running.
        let name = unsafe { object.link_map.as_ref().map(|map| CStr::from_ptr(map.name)) };
        let name = name.map(CStr::to_bytes).filter(|name| !name.is_empty());
        let number = writer.module(name.unwrap_or(PROGRAM))?;
        let token = name.map_or_else(|| PROGRAM_TOKEN.load(Ordering::Relaxed), module_token);
        TOKENS.get(usize::from(number))?.store(token, Ordering::Relaxed);
        Some(number)
    };
    for (known, number) in &MODULES {
        let mut seen = known.load(Ordering::Acquire);
        if seen == 0 {
            match known.compare_exchange(0, begin, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let own = announce()?;
                    // Above 0, which means that it is not known yet.
                    number.store(u32::from(own) + 1, Ordering::Release);
                    return Some(own);
                }
                Err(other) => seen = other,
            }
        }
        if seen == begin {
            return match number.load(Ordering::Acquire) {
                // Another thread announces it just now. It gets the same number.
                0 => announce(),
                number => u16::try_from(number - 1).ok(),
            };
        }
    }
    None
}

type Slice = EndianSlice<'static, NativeEndian>;

struct Fixed;

impl UnwindContextStorage<usize> for Fixed {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// The packed rule at `address`; `None` if there is none that can be packed.
fn unwind(object: &Object, address: u64) -> Option<u64> {
    if object.eh_frame.is_null() {
        return None;
    }
    let (begin, end) = (object.begin as u64, object.end as u64);
    let header = object.eh_frame as u64;
    let bytes = |from: u64| -> &'static [u8] {
        // SAFETY: the table and what it points to are in the module, which is mapped from `begin` to `end`. The bytes behind
        // the table are read by its own lengths only.
        unsafe { std::slice::from_raw_parts(from as *const u8, end.saturating_sub(from) as usize) }
    };
    let bases = BaseAddresses::default().set_eh_frame_hdr(header);
    let parsed = EhFrameHdr::new(bytes(header), NativeEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(frames) = parsed.eh_frame_ptr() else { return None };
    if !(begin..end).contains(&frames) {
        return None;
    }
    let section: EhFrame<Slice> = EhFrame::new(bytes(frames), NativeEndian);
    let bases = bases.set_eh_frame(frames);
    let mut context = UnwindContext::<usize, Fixed>::new_in();
    // The call is before the return address, which may be the next function's.
    let row =
        parsed.table()?.unwind_info_for_address(&section, &bases, &mut context, address - 1, EhFrame::cie_from_offset);
    let row = row.ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let by_rbp = match register {
        RSP => 0,
        RBP => BY_RBP,
        _ => return None,
    };
    // The beginning of a program or thread has no caller.
    let end = if matches!(row.register(RA), Some(RegisterRule::Undefined)) { END } else { 0 };
    let saved = match row.register(RBP) {
        Some(RegisterRule::Offset(offset)) => RBP_SAVED | (u64::try_from(-offset).ok()? << 32),
        _ => 0,
    };
    Some(by_rbp | end | saved | u64::from(i32::try_from(offset).ok()? as u32))
}
