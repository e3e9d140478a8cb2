//! The native half of the Python package `nigh`: sources of requests, references and their replay. What users see is in
//! `python/nigh`, which checks types and gives defaults.

mod columns;
mod error;
mod references;
mod requests;
mod source;
mod work;

use pyo3::prelude::*;

/// The native half of nigh.
#[pymodule]
mod _nigh {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::references::References;
    #[pymodule_export]
    use crate::source::Source;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
