//! An instruction that loads a line of memory before it is needed.

#![allow(unsafe_code)]

/// Starts loading `items[index]` into the processor's cache without waiting for it. It is a hint: any index is allowed.
#[inline(always)]
pub fn prefetch<T>(items: &[T], index: usize) {
    let item = items.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes anything, whatever address it is given.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(item.cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}
