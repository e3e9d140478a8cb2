//! Every policy against a naive transcription of its paper: the same hits, victims and ghosts, reference by reference.

use nigh_policy::{Spec, registry};
use nigh_testkit::host::{Host, Slots, future};
use nigh_testkit::naive;
use nigh_testkit::runs;
use nigh_testkit::workload::{self, Step};

/// Settings to be compared beside every policy's defaults.
const VARIANTS: &[&str] = &[
    "clock:first=1",
    "dulo:bank=1%:table=0%",
    "dulo:bank=10%:evicting=30%:table=100%",
    "dulo:bank=20%:evicting=80%:first=1",
    "dulo:bank=30%:evicting=40%:table=5%",
    "dulo:bank=50%:evicting=50%:table=30%:position=8ms:transfer=0.5ms",
    "dulo:adapt=1",
    "dulo:adapt=1:bank=2%:evicting=50%:table=20%",
    "dulo:base=lru:bank=20%:evicting=60%:table=20%",
    "dulo:base=lirs:table=20%",
    "dulo:base=lirs:bank=10%:evicting=30%:table=20%",
    "dulo:base=clock-pro:bank=10%:evicting=40%:position=4ms:transfer=0.1ms",
    "gclock:first=0:max=1",
    "gclock:first=3:max=3",
    "lru-2:correlated=3",
    "lru-2:correlated=20:ghosts=3",
    "lru-2:correlated=5000:ghosts=unlimited",
    "lru-2:ghosts=0",
    "random:seed=7",
    "lru-k:k=2",
    "lru-k:k=4:ghosts=unlimited",
    "lru-k:k=4:ghosts=0",
    "lru-k:k=4:ghosts=3",
    "slru:protected=0%",
    "slru:protected=100%",
    "slru:protected=40%",
    "lecar:rate=0:seed=3",
    "lecar:rate=2",
    "cacheus:seed=5",
    "hyperbolic:sample=1",
    "hyperbolic:sample=5:seed=9",
    "2q:in=0%:out=100%",
    "2q:in=100%:out=0%",
    "s3-fifo:small=50%:ghosts=20%",
    "s3-fifo:small=100%:ghosts=0%",
    "s3-fifo:warmup=main",
    "s3-fifo:warmup=main:small=40%:ghosts=30%",
    "lrfu:lambda=0",
    "lrfu:lambda=1",
    "lrfu:lambda=0.05:correlated=4",
    "fbr:new=0:old=100%:cmax=3:amax=2",
    "fbr:new=50%:old=20%:cmax=2:amax=5",
    "eelru:early=3:late=15:reach=500%:age=1000%",
    "mq:queues=3:life=5:out=50%",
    "w-tinylfu:window=30%:protected=50%:sample=3",
    "linux:refault=0",
    "aoio:ghosts=0",
    "aoio:ghosts=50%",
    "ubm:threshold=2",
    "ubm:ghosts=0",
    "ubm:threshold=16",
    "ubm:threshold=6:ghosts=30%",
    "ubm:threshold=5:ghosts=3",
    "amp:ghosts=0",
    "amp:ghosts=50%",
    "amp:ghosts=4",
    "pcc:threshold=1",
    "pcc:threshold=5",
    "pcc:threshold=3:ghosts=0",
    "pcc:threshold=16:ghosts=50%",
    "lirs:hir=1",
    "lirs:hir=10%",
    "lirs:hir=30%",
    "lirs:ghosts=0",
    "lirs:ghosts=50%",
    "lirs:ghosts=1:hir=10%",
    "lirs:ghosts=unlimited",
    "lirs:stack=1.5",
    "lirs:stack=2",
    "lirs:threshold=50%",
    "lirs:threshold=75%:hir=10%",
    "lirs:threshold=125%",
    "lirs:threshold=125%:ghosts=0.5",
    "lirs:threshold=150%:stack=2",
    "lirs:threshold=300%:stack=1.2:hir=30%",
    "lirs:threshold=550%:ghosts=unlimited",
    "lirs:threshold=none",
    "clock-pro:cold=1",
    "clock-pro:cold=10%",
    "clock-pro:cold=50%",
    "clock-pro:ghosts=1",
    "clock-pro:ghosts=0:start=50%",
    "clock-pro:ghosts=unlimited:overtaken=same",
    "clock-pro:ghosts=50%:overtaken=same:start=30%",
];

/// A policy with its defaults, and its variants.
fn specs(policy: &str) -> impl Iterator<Item = &str> {
    [policy].into_iter().chain(VARIANTS.iter().copied().filter(move |spec| spec.split(':').next() == Some(policy)))
}

macro_rules! policies {
    ($($test:ident: $policy:literal,)*) => {
        const POLICIES: &[&str] = &[$($policy),*];

        mod evicts_what_the_model_evicts {
            $(#[test]
            fn $test() {
                super::evicts_what_the_model_evicts($policy);
            })*
        }

        mod sheds_and_resizes_as_the_model_does {
            $(#[test]
            fn $test() {
                super::sheds_and_resizes_as_the_model_does($policy);
            })*
        }

        mod settings_survive_invalidation {
            $(#[test]
            fn $test() {
                super::settings_survive_invalidation($policy);
            })*
        }
    };
}

policies! {
    opt: "opt",
    lru: "lru",
    fifo: "fifo",
    random: "random",
    lfu: "lfu",
    lfu_da: "lfu-da",
    clock: "clock",
    dulo: "dulo",
    gclock: "gclock",
    lru_2: "lru-2",
    lru_k: "lru-k",
    slru: "slru",
    two_q: "2q",
    lrfu: "lrfu",
    fbr: "fbr",
    eelru: "eelru",
    mq: "mq",
    arc: "arc",
    car: "car",
    lirs: "lirs",
    clock_pro: "clock-pro",
    s3_fifo: "s3-fifo",
    sieve: "sieve",
    w_tinylfu: "w-tinylfu",
    lecar: "lecar",
    cacheus: "cacheus",
    hyperbolic: "hyperbolic",
    linux: "linux",
    aoio: "aoio",
    ubm: "ubm",
    pcc: "pcc",
    amp: "amp",
}

#[test]
fn every_policy_and_every_variant_has_tests() {
    let known: Vec<&str> = registry().iter().map(|info| info.name).collect();
    // `auto` decides as one of the others; tests/it/auto.rs has its tests.
    let known: Vec<&str> = known.into_iter().filter(|&name| name != "auto").collect();
    assert_eq!(POLICIES, known);
    let run: usize = POLICIES.iter().map(|policy| specs(policy).count() - 1).sum();
    assert_eq!(run, VARIANTS.len());
}

fn evicts_what_the_model_evicts(policy: &str) {
    for spec in specs(policy) {
        for seed in 0..runs(40, 200) {
            let blocks = 8 + seed % 60;
            let capacity = 1 + (seed * 13 % blocks) as usize;
            let references = workload::mixed(seed, blocks, 1_000);
            let name = spec.parse::<Spec>().expect("a known policy").name().to_owned();
            let offline = registry().iter().any(|info| info.name == name && info.offline);
            let known_future = offline.then(|| future(&references));
            let mut host = Host::new(spec, capacity as u32, blocks as u32, Slots::Forever, known_future);
            let mut model = naive::model(spec, capacity, &references)
                .unwrap_or_else(|| panic!("no naive model of {spec} in nigh-testkit"));
            for (at, &block) in references.iter().enumerate() {
                let place = format!("{spec}, seed {seed}, capacity {capacity}, reference {at} to block {block}");
                assert_eq!(host.access(block), model.access(block), "{place}");
                assert_eq!(*host.ghosts(), model.ghosts(), "ghosts: {place}");
            }
        }
    }
}

/// Policies that distinguish files or code, with several of both. Each of their partitions is used.
#[test]
fn evicts_what_the_model_evicts_with_code_and_files() {
    for spec in [
        "aoio",
        "ubm",
        "ubm:threshold=4",
        "ubm:threshold=8:ghosts=30%",
        "pcc",
        "pcc:threshold=4:ghosts=1",
        "amp",
        "amp:ghosts=3",
    ] {
        let mut used: Vec<usize> = Vec::new();
        for seed in 0..runs(20, 60) {
            let references = workload::coded(seed, 2500);
            let capacity = 5 + (seed * 37 % 300) as u32;
            let mut host = Host::new(spec, capacity, 5 * 300, Slots::Forever, None);
            let mut model = naive::model(spec, capacity as usize, &[]).expect("a model");
            for (at, &reference) in references.iter().enumerate() {
                let place = format!("{spec}, seed {seed}, capacity {capacity}, reference {at}: {reference:?}");
                assert_eq!(host.access_by(reference.code, reference.block), model.reference(reference), "{place}");
                assert_eq!(*host.ghosts(), model.ghosts(), "ghosts: {place}");
                if at % 16 == 0 {
                    host.check();
                }
                let gauges = host.gauges();
                used.resize(gauges.len(), 0);
                used.iter_mut().zip(gauges).for_each(|(used, (_, blocks))| *used += usize::from(blocks > 0));
            }
        }
        assert!(used.iter().all(|&times| times > 100), "{spec}: references with blocks in each partition: {used:?}");
    }
}

/// A reclaim of Linux scans shares of its lists, at most 32 pages of one at a time, which only larger caches show.
#[test]
fn linux_reclaims_as_the_model_does() {
    for seed in 0..12 {
        let blocks = 1_000 + 100 * seed;
        let capacity = (blocks * (3 + seed % 6) / 10) as usize;
        let references = workload::mixed(seed, blocks, 25_000);
        let mut host = Host::new("linux", capacity as u32, blocks as u32, Slots::Forever, None);
        let mut model = naive::model("linux", capacity, &references).expect("a model");
        for (at, &block) in references.iter().enumerate() {
            let place = format!("seed {seed}, capacity {capacity}, reference {at} to block {block}");
            assert_eq!(host.access(block), model.access(block), "{place}");
        }
        assert_eq!(*host.ghosts(), model.ghosts(), "seed {seed}");
    }
}

/// Victims and ghosts are those of the model while the cache becomes smaller and larger.
fn sheds_and_resizes_as_the_model_does(policy: &str) {
    for spec in specs(policy) {
        for seed in 0..runs(20, 100) {
            let blocks = 8 + seed % 60;
            let capacity = 1 + (seed * 13 % blocks) as u32;
            let steps = workload::resized(seed, blocks, 600, capacity);
            let references = workload::blocks(&steps);
            let name = spec.parse::<Spec>().expect("a known policy").name().to_owned();
            let offline = registry().iter().any(|info| info.name == name && info.offline);
            let known_future = offline.then(|| future(&references));
            let mut host = Host::new(spec, capacity, blocks as u32, Slots::Forever, known_future);
            let mut model = naive::model(spec, capacity as usize, &references).expect("a model");
            let mut size = capacity as usize;
            for (at, &step) in steps.iter().enumerate() {
                let place = format!("{spec}, seed {seed}, from capacity {capacity}, step {at}: {step:?}");
                match step {
                    Step::Access(block) => assert_eq!(host.access(block), model.access(block), "{place}"),
                    Step::Shed if host.resident().is_empty() => {}
                    Step::Shed => assert_eq!(host.shed(), model.shed(), "{place}"),
                    Step::Resize { capacity, ghosts } => {
                        size = capacity as usize;
                        host.resize(capacity, ghosts);
                        model.resize(size, ghosts as usize);
                        assert_eq!(*host.ghosts(), model.ghosts(), "ghosts before sheds: {place}");
                    }
                }
                while host.resident().len() > size {
                    assert_eq!(host.shed(), model.shed(), "{place}");
                    assert_eq!(*host.ghosts(), model.ghosts(), "ghosts between sheds: {place}");
                }
                assert_eq!(*host.ghosts(), model.ghosts(), "ghosts: {place}");
            }
        }
    }
}

/// A page that is faulted while as many ghosts are known as can be is in the list (3.3.3) and turns hot: HAND_test, run
/// for the page that HAND_cold just replaced, must not have removed it.
#[test]
fn clock_pro_finds_the_oldest_ghost() {
    let mut host = Host::new("clock-pro:ghosts=1", 2, 8, Slots::Forever, None);
    for block in [1, 2, 3, 4] {
        host.access(block);
    }
    assert_eq!(*host.ghosts(), [2, 3].into());
    assert_eq!(host.access(2).evicted, Some(4));
    assert_eq!(*host.ghosts(), [3, 4].into());
    assert_eq!(host.access(5).evicted, Some(1), "the hot page that turned cold for block 2");
}

/// Blocks can be invalidated at any time, and ghosts have a limit, with any setting.
fn settings_survive_invalidation(policy: &str) {
    for spec in specs(policy).skip(1) {
        for seed in 0..runs(40, 200) {
            let blocks = 8 + seed % 60;
            let capacity = 1 + (seed * 13 % blocks) as u32;
            let references = workload::mixed(seed, blocks, 500);
            let slots = if seed % 2 == 0 { Slots::Forever } else { Slots::Reused { ghosts: seed as u32 % 30 } };
            let mut host = Host::new(spec, capacity, blocks as u32, slots, None);
            for (at, &block) in references.iter().enumerate() {
                host.access(block);
                if at % 7 == 0 {
                    host.remove(references[(at * 5) % references.len()]);
                }
            }
        }
    }
}
