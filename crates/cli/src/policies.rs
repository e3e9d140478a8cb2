//! `nigh policies`.

use std::fmt::Write;

use nigh_policy::{Info, Spec, registry, unified};
use serde_json::json;

use crate::args::PoliciesArgs;
use crate::output;

pub(crate) fn run(args: &PoliciesArgs) -> anyhow::Result<()> {
    let chosen: Vec<&Info> = if args.names.is_empty() || args.names == ["all"] {
        registry().iter().chain(unified()).collect()
    } else {
        let find = |name: &String| -> anyhow::Result<&Info> { Ok(name.parse::<Spec>()?.info()) };
        args.names.iter().map(find).collect::<anyhow::Result<_>>()?
    };
    let text = if args.json {
        let list: Vec<_> = chosen.iter().map(|info| as_json(info)).collect();
        format!("{:#}\n", json!({ "schema": 1, "policies": list }))
    } else if args.names.is_empty() {
        list(&chosen)
    } else {
        chosen.iter().map(|info| detail(info)).collect::<Vec<_>>().join("\n")
    };
    output::print(text.as_bytes())
}

fn list(chosen: &[&Info]) -> String {
    let name_width = chosen.iter().map(|info| info.name.len()).max().unwrap_or(0);
    let summary_width = chosen.iter().map(|info| info.summary.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for info in chosen {
        let _ = writeln!(text, "{:name_width$}  {:summary_width$}  {}", info.name, info.summary, info.paper);
    }
    text
}

fn detail(info: &Info) -> String {
    let mut text = format!("{}: {}\n  {}\n", info.name, info.summary, info.paper);
    if info.is_unified() {
        text.push_str("  decides for all levels of a cache: nigh serve with --level, nigh sim with --levels, or with --device and --level\n");
    }
    if info.offline {
        text.push_str("  needs to know the future: runs in replay only\n");
    }
    if info.spatial {
        text.push_str("  looks at which blocks are neighbours on disk: not with nigh sim --sample\n");
    }
    for param in info.params {
        let _ = writeln!(text, "  {}={}  {}", param.key, param.default, param.doc);
        let _ = writeln!(text, "    {}", param.values);
        if let Some(published) = param.published {
            let _ = writeln!(text, "    published: {published}");
        }
    }
    text
}

fn as_json(info: &Info) -> serde_json::Value {
    let params: Vec<_> = info
        .params
        .iter()
        .map(|param| json!({ "key": param.key, "default": param.default, "published": param.published, "values": param.values.to_string(), "doc": param.doc }))
        .collect();
    json!({
        "name": info.name,
        "summary": info.summary,
        "paper": info.paper,
        "offline": info.offline,
        "levels": info.is_unified(),
        "spatial": info.spatial,
        "params": params,
    })
}
