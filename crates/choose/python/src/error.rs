//! Errors as Python's exceptions.

use std::error::Error;
use std::io;
use std::path::Path;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A ValueError with the text of `error` and its sources.
pub(crate) fn value(error: &dyn Error) -> PyErr {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    PyValueError::new_err(text)
}

/// An error of a trace: of the system an OSError, and else a ValueError.
pub(crate) fn of_trace(error: nigh_trace::Error) -> PyErr {
    match error {
        nigh_trace::Error::Io { path, source } => of_io(&path, &source),
        error => value(&error),
    }
}

/// An error of a file: of the system an OSError, and else a ValueError.
pub(crate) fn of_io(path: &Path, error: &io::Error) -> PyErr {
    let path = path.display();
    match error.raw_os_error() {
        // Python makes FileNotFoundError, PermissionError and so on of the number.
        Some(number) => PyOSError::new_err((number, error.to_string(), path.to_string())),
        None => PyValueError::new_err(format!("{path}: {error}")),
    }
}
