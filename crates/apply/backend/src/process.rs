//! Whether processes still run, from procfs.

use std::io;

/// The state of a process and when it began, in ticks since the machine did. An error of the kind `NotFound` if there is none.
pub(crate) fn state(process: &str) -> io::Result<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in parentheses, may have anything in it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().and_then(|state| state.chars().next());
    let began = fields.nth(18).and_then(|began| began.parse().ok());
    state.zip(began).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a process in this state has ended: one that was not waited for is a zombie.
pub(crate) fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}
