//! How many ghosts a policy remembers: what it reports to hosts is all that it can use.

use nigh_policy::{Spec, ghosts, registry};
use nigh_testkit::host::{Host, Slots, future};
use nigh_testkit::workload;

/// Settings beside every policy's defaults.
const VARIANTS: &[&str] = &[
    "linux:refault=0",
    "ubm:threshold=16",
    "pcc:threshold=16",
    "lirs:ghosts=0",
    "lirs:ghosts=1.5",
    "lirs:ghosts=unlimited",
    "lirs:stack=1.5",
    "lirs:stack=3:ghosts=1:hir=30%",
    "lirs:threshold=150%:stack=2",
    "lru-2:ghosts=3",
    "lru-k:k=2:ghosts=2",
    "s3-fifo:ghosts=20%",
    "2q:out=5",
    "mq:out=50%",
    "eelru:late=0",
    "eelru:early=3:late=15:reach=500%",
    "clock-pro:ghosts=1:overtaken=same",
    "dulo:base=lru",
    "dulo:base=lirs",
    "dulo:base=clock-pro",
];

fn parse(spec: &str) -> Spec {
    spec.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn more_room_changes_nothing() {
    for spec in registry().iter().map(|info| info.name).chain(VARIANTS.iter().copied()) {
        let mut most_used = 0.0_f64;
        for seed in 0..30 {
            let blocks = 20 + seed % 200;
            let capacity = 2 + (seed * 13 % (blocks / 3)) as u32;
            let references = workload::mixed(seed, blocks, 2_000);
            let future = (spec == "opt").then(|| future(&references));
            let room = ghosts(&parse(spec), capacity).unwrap().min(blocks as u32);
            let bounded = Slots::Reused { ghosts: room };
            let mut bounded = Host::new(spec, capacity, blocks as u32, bounded, future.clone());
            let mut free = Host::new(spec, capacity, blocks as u32, Slots::Forever, future);
            for (at, &block) in references.iter().enumerate() {
                let place = format!("{spec}, seed {seed}, capacity {capacity}, reference {at} to block {block}");
                assert_eq!(bounded.access(block), free.access(block), "{place}");
                assert_eq!(bounded.ghosts(), free.ghosts(), "ghosts: {place}");
                most_used = most_used.max(free.ghosts().len() as f64 / f64::from(room.max(1)));
            }
        }
        let any = ghosts(&parse(spec), 100).unwrap() > 0;
        assert!(
            !any || spec == "eelru:late=0" || most_used > 0.8,
            "{spec} uses {most_used:.2} of the room it asks for"
        );
    }
}

#[test]
fn multiples_of_the_cache_size() {
    for (spec, expected) in [
        ("lru", 0),
        ("opt", 0),
        ("w-tinylfu", 0),
        ("clock-pro", 2000),
        ("arc", 1000),
        ("car", 1000),
        ("2q", 500),
        ("aoio", 3000),
        ("aoio:ghosts=0", 0),
        ("pcc", 3000),
        ("amp", 1000),
        ("ubm", 1000),
        ("ubm:ghosts=50%", 500),
        ("linux", 1000),
        ("linux:refault=0", 0),
        ("mq", 4000),
        ("s3-fifo", 900),
        ("lru-2", 1000),
        ("lru-k", 1000),
        ("lecar", 1000),
        ("cacheus", 1000),
        ("hyperbolic", 0),
        ("lru-2:ghosts=2.5", 2500),
        ("lru-2:ghosts=250%", 2500),
        ("lru-2:ghosts=0.0014", 1),
        ("lru-2:ghosts=1000", 1_000_000),
        ("lirs:ghosts=0", 0),
        ("lirs:ghosts=unlimited", u32::MAX),
        ("lirs:ghosts=unlimited:stack=150%:hir=10", 510),
        ("dulo", 0),
        ("dulo:base=lru", 0),
    ] {
        assert_eq!(ghosts(&parse(spec), 1000).unwrap(), expected, "{spec}");
    }
    assert_eq!(ghosts(&parse("lirs:ghosts=1000"), u32::MAX).unwrap(), u32::MAX);
}

#[test]
fn errors_name_the_range() {
    for value in ["-1", "1000.1", "nan", "inf", "none", "two", "-5%", "100001%"] {
        for policy in ["lirs", "clock-pro", "lru-2", "s3-fifo"] {
            let error = format!("{policy}:ghosts={value}").parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains("unlimited, or a factor from 0 to 1000 such as 1.5 or 150%"), "{error}");
        }
    }
}
