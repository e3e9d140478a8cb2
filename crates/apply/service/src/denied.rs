//! Errors that mean denied access.

use std::error::Error;
use std::io;

use rustix::io::Errno;

/// Whether the system denied access to a file, according to `error` or one of its causes.
pub fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let denied = |error: &io::Error| error.raw_os_error() == Some(Errno::ACCESS.raw_os_error());
    std::iter::successors(Some(error), |&error| error.source())
        .any(|error| error.downcast_ref::<io::Error>().is_some_and(denied))
}
