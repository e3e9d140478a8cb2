//! A model that is measured and fitted gives a profile that behaves as it does.

use std::convert::Infallible;

use nigh_device::{
    Batch, Device, Kind, MeasureError, Model, Profile, Purpose, Recorded, Request, Timed, fit, fit_recorded, measure,
    run_on,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SECOND: u64 = 1_000_000_000;

/// The figures to compare: batches of reads, each by its time in sum, in ms.
fn behaviour(profile: &Profile) -> Vec<(&'static str, f64)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut within = |bytes: u64, size: u64, count: u64| -> Vec<(u64, u64)> {
        (0..count).map(|_| (random.random_range(0..(bytes - size) / 4096) * 4096, size)).collect()
    };
    let bytes = profile.bytes();
    let cases = [
        ("random reads alone", 1, within(bytes, 4096, 2000)),
        ("random reads, 32 outstanding", 32, within(bytes, 4096, 8000)),
        ("random reads nearby", 1, within(bytes / 100, 4096, 2000)),
        ("in sequence", 1, (0..256).map(|n| (n << 18, 1 << 18)).collect()),
        ("large reads, 8 outstanding", 8, within(bytes, 4 << 20, 64)),
    ];
    let run = |(name, outstanding, reads)| {
        let batch = Batch { purpose: Purpose::Distance, reads, outstanding };
        (name, run_on(&mut Device::new(profile, 5), &mut 0, &batch).total_ns as f64 / 1e6)
    };
    cases.map(run).to_vec()
}

/// Each model, measured as it is, and where one read in fifty takes three times as long and all vary by a twentieth:
/// what is fitted takes as long, within an eighth.
#[test]
fn a_fitted_model_behaves_as_the_one_that_was_measured() {
    // Memory behind `nigh level` is no device that could be measured. Fitted, 32 reads of it at a time take 14 % too long.
    for name in Profile::names().filter(|name| *name != "net-memory") {
        let profile = Profile::named(name).expect(name);
        let models = behaviour(&profile);
        for noisy in [false, true] {
            let mut device = Device::new(&profile, 1);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
            let mut now = 0;
            let run = |batch: &Batch| {
                let mut timed = run_on(&mut device, &mut now, batch);
                for ns in timed.each_ns.iter_mut().filter(|_| noisy) {
                    let more = if random.random_range(0..50) == 0 { 2.0 } else { random.random_range(0.0..0.05) };
                    let more = (*ns as f64 * more) as u64;
                    *ns += more;
                    timed.total_ns += more / batch.outstanding as u64;
                }
                Ok::<Timed, Infallible>(timed)
            };
            let measured = measure(profile.bytes(), 20 * SECOND, run).expect("no read fails");
            assert!(now < 25 * SECOND, "{name} was measured for {now} ns");
            let fitted = fit(&measured, name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let disk = matches!(profile.model(), Model::Disk(_));
            assert_eq!(fitted.distance_matters, disk, "{name}: {:?}", fitted.findings);
            for (&(what, model), (_, fitted)) in models.iter().zip(behaviour(&fitted.profile)) {
                let off = fitted / model - 1.0;
                println!(
                    "{name:<16} noise {noisy:<5} {what:<30} {model:>10.2} {fitted:>10.2} ms {:>+6.1} %",
                    off * 100.0
                );
                assert!(off.abs() <= 0.125, "{name}, {what}: {model} ms and {fitted} ms");
            }
        }
    }
}

/// Whatever the times are, there is a profile that parses.
#[test]
fn any_times_give_a_profile() {
    let mut outcomes = std::collections::BTreeMap::new();
    for seed in 0..100 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let bytes = 1 << random.random_range(22..50);
        let scale = 1u64 << random.random_range(10..28);
        let far = if random.random() { scale } else { 0 };
        let mut before = 0;
        let run = |batch: &Batch| {
            let each = batch.reads.iter().map(|&(offset, _)| {
                let distance = offset.abs_diff(std::mem::replace(&mut before, offset));
                random.random_range(0..=scale) + if distance > bytes / 4 { far } else { 0 }
            });
            let each_ns: Vec<u64> = each.collect();
            let total_ns = each_ns.iter().sum::<u64>() / batch.outstanding as u64;
            assert!(batch.reads.iter().all(|(offset, size)| offset + size <= bytes));
            if random.random_range(0..2000) == 0 { Err("unreadable") } else { Ok(Timed { each_ns, total_ns }) }
        };
        match measure(bytes, 20 * SECOND, run) {
            Ok(measured) => match fit(&measured, "any\n\"thing\\") {
                Ok(fitted) => {
                    assert_eq!(Profile::parse(&fitted.text).as_ref(), Ok(&fitted.profile));
                    let kind = fitted.text.lines().nth(1).unwrap_or_default();
                    *outcomes.entry(kind.to_owned()).or_insert(0) += 1;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            },
            Err(error) => *outcomes.entry(error.to_string()).or_insert(0) += 1,
        }
    }
    println!("{outcomes:?}");
    for kind in ["disk", "flash", "volume", "store"] {
        assert!(outcomes[&format!("kind = \"{kind}\"")] > 2, "{outcomes:?}");
    }
    assert!(outcomes["unreadable"] > 2, "{outcomes:?}");
}

#[test]
fn what_cannot_be_measured_is_explained() {
    let run = |batch: &Batch| {
        let each_ns = vec![SECOND; batch.reads.len()];
        Ok::<Timed, Infallible>(Timed { total_ns: SECOND * each_ns.len() as u64, each_ns })
    };
    let error = measure(1 << 20, SECOND, run).expect_err("small");
    assert!(matches!(error, MeasureError::TooSmall { bytes: 1_048_576 }));
    assert_eq!(
        error.to_string(),
        "a target of 1048576 bytes is too small to measure: expected at least 16777216 bytes"
    );
    let error = measure(1 << 30, SECOND, run).expect_err("slow");
    assert_eq!(error.to_string(), "only 15 reads completed in the time, too few to fit a profile: allow more time");
}

/// Requests that arrive at random on a modelled volume, each with its latency. The fitted profile serves them as fast.
#[test]
fn a_recording_gives_the_latency_and_the_rates_that_it_shows() {
    let profile = Profile::named("aws-gp3").expect("shipped");
    let requests = |load: f64, count: usize| -> Vec<(u64, Request)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        let mut now = 0.0;
        let requests = (0..count).map(|_| {
            now += -random.random_range(f64::MIN_POSITIVE..1.0f64).ln() * 1e9 / (load * 3000.0);
            let kind = if random.random_range(0..4) == 0 { Kind::Write } else { Kind::Read };
            let offset_bytes = random.random_range(0..1u64 << 20) * 4096;
            (now as u64, Request { kind, offset_bytes, bytes: 4096 })
        });
        requests.collect()
    };
    let served = |profile: &Profile, requests: &[(u64, Request)]| -> Vec<Recorded> {
        let mut device = Device::new(profile, 5);
        let served = requests.iter().map(|&(start_ns, request)| {
            let latency_ns = device.start(start_ns, request).expect("on the volume") - start_ns;
            Recorded { request, start_ns, latency_ns }
        });
        served.collect()
    };
    let mean = |recorded: &[Recorded], kind: Kind| {
        let times = recorded.iter().filter(|one| one.request.kind == kind).map(|one| one.latency_ns as f64);
        let (count, sum) = times.fold((0.0, 0.0), |(count, sum), time| (count + 1.0, sum + time));
        sum / count / 1e3
    };
    let arrivals = requests(0.3, 40_000);
    let recorded = served(&profile, &arrivals);
    let fitted = fit_recorded(recorded.clone(), "a \"volume\"").expect("many reads");
    assert_eq!(fitted.profile.title(), "a ?volume?");
    assert!(!fitted.distance_matters && fitted.findings[0].contains("met no other request"), "{:?}", fitted.findings);
    let again = served(&fitted.profile, &arrivals);
    for kind in [Kind::Read, Kind::Write] {
        let ratio = mean(&again, kind) / mean(&recorded, kind);
        assert!((0.9..1.1).contains(&ratio), "{kind:?}: {ratio}, {}", fitted.text);
    }
    // A busy volume shows its limit.
    let busy = fit_recorded(served(&profile, &requests(1.5, 40_000)), "busy").expect("many reads");
    let Model::Volume(volume) = busy.profile.model() else { panic!("a volume") };
    assert!((2900.0..3400.0).contains(&volume.iops), "{}", busy.text);
    assert!(busy.findings[0].contains("with the time in queues"), "{:?}", busy.findings);

    let few = fit_recorded(recorded[..50].to_vec(), "few").expect_err("too few").to_string();
    assert!(few.ends_with("or a table with a column of latencies") && few.contains("reads of at most 16 KiB"), "{few}");
}

/// Near reads that are faster than distant ones are reported, because a volume has no distances.
#[test]
fn a_recording_of_a_disk_shows_that_distance_matters() {
    let mut disk = Device::new(&Profile::named("hdd-7200").expect("shipped"), 1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut now, mut place) = (0, 0u64);
    let recorded = (0..4000).map(|_| {
        place = match random.random() {
            true => random.random_range(0..disk.bytes() / 4096) * 4096,
            false => (place + random.random_range(0..1u64 << 12) * 4096).min(disk.bytes() - 4096),
        };
        let request = Request { kind: Kind::Read, offset_bytes: place, bytes: 4096 };
        let end = disk.start(now, request).expect("on the disk");
        let start_ns = std::mem::replace(&mut now, end);
        Recorded { request, start_ns, latency_ns: end - start_ns }
    });
    let fitted = fit_recorded(recorded.collect(), "disk").expect("many reads");
    assert!(fitted.distance_matters, "{:?}", fitted.findings);
    assert!(
        fitted.findings.last().is_some_and(|line| line.contains("nigh devices fit DEVICE")),
        "{:?}",
        fitted.findings
    );
}
