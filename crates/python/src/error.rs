//! Errors as Python's exceptions.

use std::error::Error;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A ValueError that says what `error` and its sources do.
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
    let nigh_trace::Error::Io { path, source } = &error else { return value(&error) };
    match source.raw_os_error() {
        // Python makes FileNotFoundError, PermissionError and so on of the number.
        Some(number) => PyOSError::new_err((number, source.to_string(), path.display().to_string())),
        None => value(&error),
    }
}
