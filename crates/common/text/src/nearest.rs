//! Names that were written wrong.

/// The one of `names` that `given` is most like, if any is like it at all.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = given.to_ascii_lowercase();
    // A name is like what was given as a whole, or in a word or a beginning of it; shorter ones are in too many names.
    const PART_LEAST: usize = 3;
    let parts = |name: &'a str| {
        let beginning = name.get(..lower.len());
        beginning.into_iter().chain(name.split('-')).filter(|part| part.len() >= PART_LEAST).map(|part| (part, true))
    };
    names
        .into_iter()
        .flat_map(|name| std::iter::once((name, false)).chain(parts(name)).map(move |(text, part)| (text, part, name)))
        .map(|(text, part, name)| (strsim::damerau_levenshtein(text, &lower), part, name, text.len()))
        .filter(|&(distance, _, _, length)| distance <= length.div_ceil(3))
        .min()
        .map(|(_, _, name, _)| name)
}

/// The sentence that suggests the nearest name behind one that reports a wrong name, and the full stop of that one; empty where
/// no name is near.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(". Did you mean '{name}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let names = ["lru", "lirs", "clock-pro", "w-tinylfu", "s3-fifo", "hdd-7200"];
        for (given, expected) in [
            ("lur", Some("lru")),
            ("LIRS", Some("lirs")),
            ("lrs", Some("lirs")),
            ("clockpro", Some("clock-pro")),
            ("tinylfu", Some("w-tinylfu")),
            ("fifo", Some("s3-fifo")),
            ("hdd-72", Some("hdd-7200")),
            ("rbd", None),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), expected, "{given}");
        }
        assert_eq!(did_you_mean(nearest("nothing", names)), "");
    }
}
