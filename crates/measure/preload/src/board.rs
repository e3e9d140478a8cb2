//! The board of an advised program, where there is one.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use nigh_advise::Table;
use nigh_ring::Board;

/// The board, or null.
static BOARD: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Begins with the board at `path`.
pub(crate) fn begin(path: Option<&CStr>) {
    let board = path.and_then(Board::open).filter(|board| Table::new(board.table()).is_ok());
    BOARD.store(board.map_or(std::ptr::null_mut(), Board::into_raw), Ordering::Release);
}

pub(crate) fn get() -> Option<Board> {
    // SAFETY: it is null, or was a board, which is never unmapped.
    unsafe { Board::from_raw(BOARD.load(Ordering::Acquire)) }
}
