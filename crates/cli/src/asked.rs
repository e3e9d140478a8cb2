//! Replays as a user writes them: policies, sizes, limits and threads.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use nigh_policy::Spec;
use nigh_sim::{Sample, Sizes};

use crate::front;

/// Policies unless others are named.
pub(crate) const POLICIES: &str = "lru,clock,2q,arc,lirs,clock-pro,s3-fifo,sieve,w-tinylfu,opt";

/// The policy of tenants, and of a simulation with contents, unless one is named.
pub(crate) const PLAIN_POLICY: &str = "lru";

/// The sizes unless any are given, in shares of the distinct blocks.
const SIZES: &[&str] = &["1%", "2%", "5%", "10%", "20%", "30%", "40%", "60%", "80%"];

/// The sizes unless any are given, where several traces are compared.
const FEW_SIZES: &[&str] = &["1%", "10%", "40%"];

/// The threads that replay: one a processor unless a number is given.
pub(crate) fn threads(given: Option<NonZeroUsize>) -> usize {
    given.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// The sizes unless any are given.
pub(crate) fn default_sizes() -> Vec<Sizes> {
    SIZES.iter().map(|size| size.parse().expect("the default sizes are sizes")).collect()
}

/// The sizes unless any are given, where several traces are compared.
pub(crate) fn few_sizes() -> Vec<Sizes> {
    FEW_SIZES.iter().map(|size| size.parse().expect("the default sizes are sizes")).collect()
}

/// The policies named on a command line, for a cache without levels.
pub(crate) fn parse_policies(names: &[String]) -> anyhow::Result<Vec<Spec>> {
    let specs = parse_policies_and_schemes(names)?;
    match specs.iter().find(|spec| spec.is_unified()) {
        Some(spec) => bail!(
            "{spec} decides at which level of a cache a block belongs, so it needs levels: nigh sim has --levels, and --level with --device"
        ),
        None => Ok(specs),
    }
}

/// As `parse_policies`, for a cache that may have levels.
pub(crate) fn parse_policies_and_schemes(names: &[String]) -> anyhow::Result<Vec<Spec>> {
    Ok(nigh_policy::parse_list(names.iter().map(String::as_str)).map_err(|(_, error)| error)?)
}

/// Whether these are the policies that are replayed unless any are named.
pub(crate) fn are_usual(names: &[String]) -> bool {
    names.iter().map(String::as_str).eq(POLICIES.split(','))
}

pub(crate) fn parse_sizes(texts: &[String]) -> anyhow::Result<Option<Vec<Sizes>>> {
    let sizes = texts.iter().map(|text| text.parse::<Sizes>()).collect::<Result<Vec<_>, _>>()?;
    Ok((!sizes.is_empty()).then_some(sizes))
}

/// The values of `names`, each once; those of `usual` if there are none.
pub(crate) fn each_once<T: PartialEq>(
    names: &[String],
    usual: &str,
    parse: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut found = Vec::new();
    let names: Vec<&str> =
        if names.is_empty() { usual.split(',').collect() } else { names.iter().map(String::as_str).collect() };
    for name in names {
        let one = parse(name)?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(found)
}

/// The sample of blocks that `flag` asks for.
pub(crate) fn parse_sample(flag: &str, text: &str) -> anyhow::Result<Sample> {
    let sample = nigh_text::share(text).and_then(Sample::new);
    sample.with_context(|| rate_expected(flag, text))
}

/// A share above 0.
pub(crate) fn parse_rate(flag: &str, text: &str) -> anyhow::Result<f64> {
    nigh_text::share(text).filter(|&rate| rate > 0.0).with_context(|| rate_expected(flag, text))
}

fn rate_expected(flag: &str, text: &str) -> String {
    format!("{flag} {text}: expected a rate above 0 and up to 1, such as 0.1 or 1%")
}

pub(crate) fn parse_limit(text: &str) -> anyhow::Result<u64> {
    let limit = nigh_text::count(text).filter(|&limit| limit > 0);
    limit.with_context(|| format!("--limit {text}: expected a number of requests above 0, such as 100k"))
}

/// Reads a file of settings.
pub(crate) fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).map_err(|error| at_line(path, &text, error.span(), error.message()))
}

/// An error at a place in the file at `path`, whose contents are `text`.
pub(crate) fn at_line(path: &Path, text: &str, place: Option<Range<usize>>, message: &str) -> anyhow::Error {
    let line = place.map_or(0, |place| text[..place.start].matches('\n').count() + 1);
    anyhow!("{}:{line}: {}", path.display(), message.replace('\n', " "))
}

/// The error for a key that is written in another way now.
pub(crate) fn moved(key: &str) -> Option<String> {
    Some(format!("{key} is now written as in {}", front::instead_of(&format!("--{key}"))?))
}
