//! The workloads that can be generated, for the help.

use std::fmt::Write;

use nigh_trace::generate::{Param, component_params, generators};

/// Generators, as the last part of the help.
pub(crate) fn generators_help() -> String {
    let mut text = String::from(
        "A workload is one generator with parameters, NAME:KEY=VALUE:KEY=VALUE; several joined by '+', which take turns \
         by their weights, each with its own region of the disk and as its own tenant; or several of these joined by \
         ',', one after the other, each for the number of requests after its '@', and then again from the first:\n\n    \
         zipf:blocks=1M:alpha=0.9\n    loop:blocks=2k:weight=3+uniform:blocks=50k@200k,scan:blocks=100k@100k\n\n\
         Generators:\n",
    );
    for info in generators() {
        let _ = writeln!(text, "  {:10} {}", info.name, info.summary);
        params(&mut text, info.params);
    }
    text.push_str("\nParameters of every generator:\n");
    params(&mut text, component_params());
    text
}

fn params(text: &mut String, params: &[Param]) {
    for param in params {
        let _ = writeln!(text, "      {}={}  {}", param.key, param.default, param.doc);
    }
}
