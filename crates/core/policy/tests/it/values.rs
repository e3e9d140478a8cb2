//! Values of parameters: every value in its range is accepted, every other one refused with the range.

use nigh_policy::{Setup, Spec, SpecError, Values, build, registry};

/// Values at the ends of `values`, and values beyond them.
fn ends(values: &Values) -> (Vec<String>, Vec<String>) {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let whole = |least: u64, most: u64| {
        let below = if least == 0 { "-1".to_owned() } else { (least - 1).to_string() };
        (vec![least.to_string(), most.to_string()], vec![below, (most + 1).to_string()])
    };
    let (good, mut bad) = match *values {
        Values::Whole { least, most } => {
            let (good, bad) = whole(least, most);
            (good, [bad, texts(&["1.5", "10%"])].concat())
        }
        Values::Real { least, most } => {
            (vec![least.to_string(), most.to_string()], vec![(least - 0.001).to_string(), (most + 0.001).to_string()])
        }
        Values::Portion { share_least, share_most, count_least, .. } => {
            let (mut good, mut bad) = whole(count_least.into(), u32::MAX.into());
            good.pop();
            good.extend([format!("{share_least}%"), format!("{share_most}%"), (count_least.max(1)).to_string()]);
            bad.extend([format!("{}%", share_least - 0.1), format!("{}%", share_most + 0.1)]);
            bad.extend(texts(&["900000%", "nan%", "inf%"]));
            (good, bad)
        }
        Values::Size => (texts(&["1", "4K", "1M", "0.1%", "100%"]), texts(&["0", "0%", "0M", "100.1%", "-1%", "nan%"])),
        Values::Bytes => (texts(&["0", "1M", "0%", "100%"]), texts(&["-1", "100.1%", "-0.1%", "nan%"])),
        Values::Time { least_ms, most_ms } => (
            vec![format!("{least_ms}ms"), format!("{}us", most_ms * 1000.0)],
            vec![format!("{}ms", least_ms - 0.001), format!("{}ms", most_ms + 1.0), "5".to_owned(), "nanms".to_owned()],
        ),
        Values::Factor { least, most } => (
            vec![least.to_string(), most.to_string(), format!("{}%", 100.0 * most)],
            vec![(least - 0.001).to_string(), (most + 0.001).to_string(), "nan".to_owned(), "inf".to_owned()],
        ),
        Values::Policies => {
            let good = texts(&["lru", "lirs+mq", "dulo+s3-fifo"]);
            (good, texts(&["auto", "opt", "lru+ulc", "lru+lru", "lru+", "+lru", "lirs,mq"]))
        }
        Values::Words(words) => (texts(words), texts(&["0", "no-such-word"])),
        Values::Or(word, values) => {
            let (mut good, bad) = ends(values);
            good.push(word.to_owned());
            (good, bad)
        }
    };
    bad.extend(texts(&["x", "1x", "%", "none-such"]));
    (good, bad)
}

#[test]
fn parameters_10_have_ranges() {
    let mut parameters = 0;
    for info in registry() {
        for param in info.params {
            parameters += 1;
            let (good, bad) = ends(&param.values);
            for value in [param.default.to_owned()].into_iter().chain(good) {
                let text = format!("{}:{}={value}", info.name, param.key);
                let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
                // With what else is set, or in a cache of this size, it may not fit; then that is the error.
                for capacity in [1, 2, 1000] {
                    let setup =
                        Setup { capacity, slots: 4000, block_bytes: 4096, ghosts: 2000, future: None, patterns: None };
                    match build(&spec, &setup) {
                        Ok(_) | Err(SpecError::TooLarge { .. }) => {}
                        Err(SpecError::BadValue { key, .. }) if key == param.key => {}
                        Err(error) => panic!("{text}, {capacity} blocks: {error}"),
                    }
                }
            }
            for value in bad {
                let text = format!("{}:{}={value}", info.name, param.key);
                let error = text.parse::<Spec>().expect_err(&text).to_string();
                assert!(error.contains(&param.values.to_string()) && error.lines().count() == 1, "{text}: {error}");
            }
        }
    }
    assert!(parameters > 30);
    let error = "lirs:hir=900%".parse::<Spec>().unwrap_err().to_string();
    assert_eq!(
        error,
        "policy 'lirs': hir=900% is not possible: expected a share from 0% to 100%, or blocks from 1 to one less than the \
         cache"
    );
    assert!("gclock:first=6".parse::<Spec>().is_ok_and(|spec| {
        let setup = Setup { capacity: 9, slots: 20, block_bytes: 4096, ghosts: 0, future: None, patterns: None };
        build(&spec, &setup).err().is_some_and(|error| error.to_string().contains("at most max, which is 5"))
    }));
}

#[test]
fn opt_has_other_names() {
    for name in ["min", "belady", "MIN"] {
        let spec: Spec = name.parse().unwrap();
        assert_eq!((spec.name(), spec.to_string().as_str()), ("opt", "opt"));
    }
}
