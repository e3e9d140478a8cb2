//! Room for what needs more of the stack than a program may have: signal handlers may have 8 KiB, and threads 16.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel;

const STACKS: usize = 16;
const STACK_BYTES: usize = 64 << 10;

/// It takes no memory until it is used.
#[repr(C, align(64))]
struct Stack {
    bytes: UnsafeCell<[u8; STACK_BYTES]>,
    taken: AtomicBool,
}

// SAFETY: the thread that has taken it uses the bytes alone.
unsafe impl Sync for Stack {}

static ALL: [Stack; STACKS] =
    [const { Stack { bytes: UnsafeCell::new([0; STACK_BYTES]), taken: AtomicBool::new(false) } }; STACKS];

/// After `fork`: the threads that had them are not in this process.
pub(crate) fn forked() {
    ALL.iter().for_each(|stack| stack.taken.store(false, Ordering::Relaxed));
}

/// Runs `run` on a stack of its own, if one is free. Signals wait for its end, so that no handler runs there or jumps out of it.
pub(crate) fn roomy<R>(run: impl FnOnce() -> R) -> R {
    const SET_MASK: i64 = 2;
    const SET_BYTES: i64 = 8;
    let (all, mut before) = (u64::MAX, 0_u64);
    let is_free =
        |stack: &&Stack| stack.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let set = |new: &u64, old: *mut u64| {
        let arguments = [SET_MASK, std::ptr::from_ref(new) as i64, old as i64, SET_BYTES];
        // SAFETY: both are sets of signals, or null.
        unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) }
    };
    if set(&all, &raw mut before) != 0 {
        return run();
    }
    let result = match ALL.iter().find(is_free) {
        Some(stack) => {
            // SAFETY: the end of the array, which this thread has alone.
            let result = unsafe { on(stack.bytes.get().cast::<u8>().add(STACK_BYTES), run) };
            stack.taken.store(false, Ordering::Release);
            result
        }
        None => run(),
    };
    set(&before, std::ptr::null_mut());
    result
}

/// Runs `run` on the stack that ends at `end`.
///
/// # Safety
/// The memory below `end` is free, and `end` is a multiple of 16.
unsafe fn on<R, F: FnOnce() -> R>(end: *mut u8, run: F) -> R {
    struct Task<R, F>(Option<F>, Option<R>);
    extern "C" fn start<R, F: FnOnce() -> R>(task: *mut c_void) {
        // SAFETY: `on` passes its task, and does nothing else meanwhile.
        let task = unsafe { &mut *task.cast::<Task<R, F>>() };
        task.1 = task.0.take().map(|run| run());
    }
    let mut task = Task(Some(run), None);
    // SAFETY: `r12` is kept by functions of C, so the stack is as before afterwards.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {end}",
            "call {start}",
            "mov rsp, r12",
            end = in(reg) end,
            start = in(reg) start::<R, F> as *const () as usize,
            in("rdi") &raw mut task,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    let Task(_, Some(result)) = task else { std::process::abort() };
    result
}
