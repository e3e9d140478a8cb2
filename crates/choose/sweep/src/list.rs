//! Definition of a sweep: `SWEEP.toml`, patterns of files, and the names of traces.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::keys::{Entry, Keys};
use crate::settings::{self, Settings};
use crate::{Error, Job};

/// The folder of results where none is named, beside the list.
const RESULTS_DEFAULT: &str = "results";

/// A list of traces, and what is to be done with each.
#[derive(Clone, Debug)]
pub struct List {
    /// Paths, patterns of paths, and URIs, and how each is read and replayed.
    pub traces: Vec<(String, Settings)>,
    /// Folder that paths and patterns are relative to.
    pub folder: PathBuf,
    /// The folder of results.
    pub results: PathBuf,
}

impl List {
    /// The list in the file `path`. Paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<List, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(io)?;
        let folder = std::path::absolute(path).map_err(io)?;
        List::parse(&text, folder.parent().unwrap_or(Path::new("/")))
    }

    fn parse(text: &str, folder: &Path) -> Result<List, Error> {
        let mut keys = Keys::toml(text)?;
        keys.check(&["traces", "results"].into_iter().chain(settings::keys()).collect::<Vec<_>>())?;
        let entries = keys.entries("traces")?;
        let results = folder.join(keys.text("results")?.as_deref().unwrap_or(RESULTS_DEFAULT));
        let common = Settings::take(&mut keys.clone())?;
        let trace = |entry| match entry {
            Entry::Text(trace) => Ok((trace, common.clone())),
            Entry::Table(mut own) => {
                own.check(&["path"].into_iter().chain(settings::READING).collect::<Vec<_>>())?;
                let trace = own.text("path")?.ok_or_else(|| own.missing("path"))?;
                Ok((trace, Settings::take(&mut keys.with(own))?))
            }
        };
        let traces = entries.into_iter().map(trace).collect::<Result<_, Error>>()?;
        Ok(List { traces, folder: folder.to_owned(), results })
    }
}

/// Whether a trace is named by a URI, such as `s3://bucket/trace.zst`, and not by a path.
pub fn is_uri(trace: &str) -> bool {
    trace.split_once("://").is_some_and(|(scheme, _)| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | ':');
        !scheme.is_empty() && scheme.chars().all(is_part)
    })
}

/// The files that match a pattern (`*`, `?`, `[...]`, and `**` for folders of any depth) in `folder`, in alphabetical order, as
/// absolute paths. A text that has none of these characters, or is the name of a file, stands for itself, whether it is there or not.
/// The name of `folder` is no part of the pattern.
pub fn expand(folder: &Path, pattern: &str) -> Result<Vec<String>, Error> {
    let text = |path: PathBuf| path.into_os_string().into_string().map_err(|path| Error::Name(path.into()));
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| Error::Io { path: path.to_owned(), source }).and_then(text)
    };
    let path = folder.join(pattern);
    if !pattern.contains(['*', '?', '[']) || path.exists() {
        return Ok(vec![absolute(&path)?]);
    }
    let problem =
        |error: glob::PatternError| Error::Pattern { pattern: pattern.to_owned(), problem: error.to_string() };
    let escaped = Path::new(&glob::Pattern::escape(&text(folder.to_owned())?)).join(pattern);
    let mut found = Vec::new();
    for path in glob::glob(&text(escaped)?).map_err(problem)? {
        let path = path.map_err(|error| Error::Io { path: error.path().to_owned(), source: error.into() })?;
        if !path.is_dir() {
            found.push(absolute(&path)?);
        }
    }
    if found.is_empty() { Err(Error::NoMatch(text(path)?)) } else { Ok(found) }
}

/// A job for each of `traces`, paths or URIs with settings, each path once, with the first settings that it comes with. Traces
/// are named by the ends of their paths, by as many parts as it takes to distinguish them.
pub fn jobs(mut traces: Vec<(String, Settings)>) -> Vec<Job> {
    let mut seen = HashSet::new();
    traces.retain(|(trace, _)| seen.insert(trace.clone()));
    let names = names(&traces.iter().map(|(trace, _)| trace.as_str()).collect::<Vec<_>>());
    let named = traces.into_iter().zip(names);
    named.map(|((trace, settings), name)| Job { trace, name, content: None, settings }).collect()
}

/// The shortest ends of `traces` that differ.
fn names(traces: &[&str]) -> Vec<String> {
    let parts: Vec<Vec<&str>> =
        traces.iter().map(|trace| trace.split('/').filter(|part| !part.is_empty()).collect()).collect();
    let end = |at: usize, length: usize| &parts[at][parts[at].len().saturating_sub(length)..];
    let mut lengths = vec![1; traces.len()];
    let mut open: Vec<usize> = (0..traces.len()).collect();
    while !open.is_empty() {
        let mut counts: HashMap<&[&str], usize> = HashMap::new();
        open.iter().for_each(|&at| *counts.entry(end(at, lengths[at])).or_default() += 1);
        open.retain(|&at| counts[end(at, lengths[at])] > 1 && lengths[at] < parts[at].len());
        open.iter().for_each(|&at| lengths[at] += 1);
    }
    (0..traces.len()).map(|at| end(at, lengths[at]).join("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list() {
        let text = "traces = ['a/*.csv', '/b/c.zst', 's3://bucket/x.zst']\npolicies = ['lru', 'min']\nsizes = ['1%..50%']\n\
                    block-size = '64K'\nsample = 0.1\n";
        let list = List::parse(text, Path::new("/here")).unwrap();
        let named = |list: &List| list.traces.iter().map(|(trace, _)| trace.clone()).collect::<Vec<_>>();
        assert_eq!(named(&list), ["a/*.csv", "/b/c.zst", "s3://bucket/x.zst"]);
        assert_eq!(list.folder.to_str(), Some("/here"));
        assert_eq!((list.results.to_str().unwrap(), list.traces[0].1.specs.len()), ("/here/results", 2));
        let list = List::parse(&format!("{text}results = '/there'\n"), Path::new("/here")).unwrap();
        assert_eq!(list.results.to_str(), Some("/there"));
    }

    #[test]
    fn a_trace_is_read_by_settings_of_its_own() {
        let text = "policies = ['lru']\nsizes = ['5%']\nblock-size = '64K'\nlimit = 7\n\
                    traces = ['a', { path = 'b', format = 'raw-u32', block-size = 4096 }]\n";
        let list = List::parse(text, Path::new("/")).unwrap();
        let read: Vec<_> = list.traces.iter().map(|(trace, settings)| (trace.as_str(), settings.to_json())).collect();
        let common = r#"{"policies":["lru"],"sizes":["5%"],"block_size":65536,"limit":7}"#;
        let own = r#"{"policies":["lru"],"sizes":["5%"],"format":"raw-u32","block_size":4096,"limit":7}"#;
        assert_eq!(read, [("a", common.to_owned()), ("b", own.to_owned())]);
        // A section for each is the same, and the job has its settings.
        let sections =
            "policies = ['lru']\nsizes = ['5%']\n[[traces]]\npath = 'b'\nformat = 'csv'\n[[traces]]\npath = 'c'\n";
        let jobs = jobs(List::parse(sections, Path::new("/")).unwrap().traces);
        let formats: Vec<_> = jobs.iter().map(|job| (job.trace.as_str(), job.settings.read.format.is_some())).collect();
        assert_eq!(formats, [("b", true), ("c", false)]);

        let wrong = |table: &str| {
            let text = format!("policies = ['lru']\nsizes = ['5%']\ntraces = [{table}]\n");
            List::parse(&text, Path::new("/")).unwrap_err().to_string()
        };
        assert_eq!(wrong("{ format = 'csv' }"), "`path` is missing");
        assert!(wrong("{ path = 'b', policies = ['arc'] }").starts_with("unknown key `policies`"));
        assert!(wrong("{ path = 'b', block-size = 3 }").starts_with("block-size = 3: expected a power of two"));
        assert_eq!(wrong("3"), "traces = 3: expected a list of texts and tables");
    }

    #[test]
    fn slips() {
        let wrong = |text: &str| List::parse(text, Path::new("/")).unwrap_err().to_string();
        assert!(wrong("polices = ['lru']").ends_with(". Did you mean 'policies'?"), "{}", wrong("polices = ['lru']"));
        assert!(wrong("block_size = 4096").ends_with(". Did you mean 'block-size'?"), "{}", wrong("block_size = 1"));
        assert!(wrong("traces = [\n").starts_with("line "), "{}", wrong("traces = [\n"));
        assert_eq!(wrong("policies = ['lru']"), "`traces` is missing");
        assert_eq!(wrong("traces = []\n"), "traces = []: expected a list of texts and tables");
        let text = "traces = ['x']\npolicies = ['lru']\nsizes = ['5%']\nblock-size = 3";
        assert!(wrong(text).starts_with("block-size = 3: "));
        assert_eq!(wrong("sample = nan\n"), "sample = NaN: expected a finite number");
        assert_eq!(wrong("sample = -inf\n"), "sample = -inf: expected a finite number");
    }

    #[test]
    fn patterns() {
        let folder = tempfile::tempdir().unwrap();
        // Whose name is no pattern.
        let folder = folder.path().join("[x]*");
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let expand = |pattern: &str| expand(&folder, pattern);
        std::fs::create_dir_all(path("a.csv")).unwrap();
        for name in ["c.csv", "b.csv", "a.csv/d.csv", "x[1].csv"] {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(expand("?.csv").unwrap(), [path("b.csv"), path("c.csv")]);
        assert_eq!(expand("*/*.csv").unwrap(), [path("a.csv/d.csv")]);
        assert_eq!(expand("x[1].csv").unwrap(), [path("x[1].csv")]);
        assert_eq!(expand("none.csv").unwrap(), [path("none.csv")]);
        assert_eq!(expand(&path("b.csv")).unwrap(), [path("b.csv")]);
        assert_eq!(expand("/none.csv").unwrap(), ["/none.csv"]);
        assert!(matches!(expand("*.zst"), Err(Error::NoMatch(pattern)) if pattern == path("*.zst")));
        assert!(matches!(expand("["), Err(Error::Pattern { .. })));
    }

    #[test]
    fn names_tell_traces_apart() {
        let of = names;
        assert_eq!(of(&["/a/x.csv", "/b/y.csv"]), ["x.csv", "y.csv"]);
        assert_eq!(of(&["/a/x.csv", "/b/x.csv", "/b/y.csv"]), ["a/x.csv", "b/x.csv", "y.csv"]);
        assert_eq!(of(&["/1/a/x", "/2/a/x", "/2/b/x"]), ["1/a/x", "2/a/x", "b/x"]);
        assert_eq!(of(&["/x", "/a/x"]), ["x", "a/x"]);
        assert_eq!(of(&["s3://bucket/x", "/data/x"]), ["bucket/x", "data/x"]);
        assert!(is_uri("s3://bucket/x") && is_uri("simplecache::s3://x") && !is_uri("/a/b") && !is_uri("a/b://c"));
    }
}
