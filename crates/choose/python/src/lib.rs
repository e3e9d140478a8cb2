//! The native half of the Python package `nigh`: sources of requests, references and their replay, policies
//! written in Python, and caches. The interface for users is in `python/nigh`, which checks types and gives defaults.

mod cache;
mod check;
mod columns;
mod error;
mod figures;
mod policy;
mod references;
mod requests;
mod source;
mod store;
mod sweep;
mod timed;
mod work;

use pyo3::prelude::*;

/// The native half of nigh.
#[pymodule]
mod _nigh {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::cache::CacheBase;
    #[pymodule_export]
    use crate::check::check_policy;
    #[pymodule_export]
    use crate::policy::{Access, PolicyError};
    #[pymodule_export]
    use crate::references::References;
    #[pymodule_export]
    use crate::source::Source;
    #[pymodule_export]
    use crate::sweep::{
        Folder, content_of_parts, content_parts, decode, expand, identify, is_uri, job_trace, jobs, run_job,
        sweep_list, tables_csv, tables_json,
    };
    #[pymodule_export]
    use crate::timed::Timed;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("RESULTS", nigh_sweep::RESULTS)
    }

    /// Every policy: name, summary, paper, whether it needs the future, whether it uses neighbours on disk, and its
    /// parameters: key, default, values, meaning.
    #[pyfunction]
    #[expect(clippy::type_complexity, reason = "it is a table for Python")]
    fn policies() -> Vec<(
        &'static str,
        &'static str,
        &'static str,
        bool,
        bool,
        Vec<(&'static str, &'static str, String, &'static str)>,
    )> {
        let params = |info: &nigh_policy::Info| {
            info.params.iter().map(|param| (param.key, param.default, param.values.to_string(), param.doc)).collect()
        };
        let row =
            |info: &nigh_policy::Info| (info.name, info.summary, info.paper, info.offline, info.spatial, params(info));
        nigh_policy::registry().iter().map(row).collect()
    }

    /// A number of bytes with its unit, such as `64K`; nothing if it is none.
    #[pyfunction]
    fn parse_bytes(text: &str) -> Option<u64> {
        nigh_text::bytes(text)
    }

    /// The names of the profiles of modelled devices that come with nigh.
    #[pyfunction]
    fn devices() -> Vec<(&'static str, String, u64)> {
        let row = |name| {
            let profile = nigh_device::Profile::named(name).expect("what comes with nigh is a profile");
            (name, profile.title().to_owned(), profile.bytes())
        };
        nigh_device::Profile::names().map(row).collect()
    }
}
