//! Arguments: pointers of the program become references, or errors.

use std::ffi::c_char;
use std::ops::Range;

use crate::error::Error;

const NULL: Error = Error::invalid(c"a pointer is NULL");
const EMPTY: Error = Error::invalid(c"the length is 0");
const LONG: Error = Error::invalid(c"the length is too large");

/// The value that `pointer` points to.
///
/// # Safety
/// It is null, or points to a valid `T` that lives and is not written during `'a`.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or(NULL)
}

/// The place that `pointer` points to, for a result.
///
/// # Safety
/// It is null, or points to memory for a `T` with some contents, which nobody else uses during `'a`. Any contents are a valid `T`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's.
    unsafe { pointer.as_mut() }.ok_or(NULL)
}

/// The value in a box that the library gave away.
///
/// # Safety
/// `pointer` is null, or was returned by `Box::into_raw` and not passed to this function before.
pub(crate) unsafe fn owned<T>(pointer: *mut T) -> Result<Box<T>, Error> {
    if pointer.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's.
    Ok(unsafe { Box::from_raw(pointer) })
}

fn check(pointer: *const u8, length: usize) -> Result<(), Error> {
    match () {
        () if pointer.is_null() => Err(NULL),
        () if length == 0 => Err(EMPTY),
        () if isize::try_from(length).is_err() => Err(LONG),
        () => Ok(()),
    }
}

/// Bytes of the program.
///
/// # Safety
/// `pointer` is null, or there are `length` bytes, which nobody writes during `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize) -> Result<&'a [u8], Error> {
    check(pointer, length)?;
    // SAFETY: the caller's; the length fits.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// Memory of the program, to be filled.
///
/// # Safety
/// `pointer` is null, or there are `length` bytes, which nobody else uses during `'a`.
pub(crate) unsafe fn buffer<'a>(pointer: *mut u8, length: usize) -> Result<&'a mut [u8], Error> {
    check(pointer, length)?;
    // SAFETY: the caller's; the length fits. Memory of a foreign language has some contents.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}

/// A text of the program.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, length: usize) -> Result<&'a str, Error> {
    // SAFETY: the caller's.
    let bytes = unsafe { bytes(pointer.cast(), length) }?;
    std::str::from_utf8(bytes).map_err(|_| Error::invalid(c"a text is not UTF-8"))
}

/// The range of a request.
pub(crate) fn range(offset: u64, length: u64) -> Result<Range<u64>, Error> {
    if length == 0 {
        return Err(EMPTY);
    }
    let end = offset.checked_add(length);
    end.map(|end| offset..end).ok_or(Error::fixed(libc::ERANGE, c"the range passes the end of the disk"))
}

/// An error if `flags` has others than `known`.
pub(crate) fn flags(flags: u32, known: u32) -> Result<(), Error> {
    if flags & !known == 0 {
        Ok(())
    } else {
        Err(Error::invalid(c"a flag is unknown, or has no meaning for this call"))
    }
}
