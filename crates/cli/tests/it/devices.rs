//! `nigh devices`: what is listed, what is printed, and what is fitted to a file.

use std::process::{Command, Output};

use nigh_device::{Model, Profile};

use crate::command::refused;

fn devices(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nigh")).arg("devices").args(args).output().unwrap()
}

fn said(args: &[&str]) -> String {
    let output = devices(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_device_is_listed_and_printed() {
    let list = said(&["--all"]);
    let json: serde_json::Value = serde_json::from_str(&said(&["--json"])).unwrap();
    for (name, line) in Profile::names().zip(list.lines()) {
        assert!(line.starts_with(name), "{line}");
        let text = said(&[name]);
        assert_eq!(Profile::parse(&text), Profile::named(name));
        assert!(text.lines().any(|line| line.starts_with("# ")), "{name} names no source");
        let found = json["devices"].as_array().unwrap().iter().find(|device| device["name"] == name).expect(name);
        assert_eq!(found["bytes"], Profile::named(name).unwrap().bytes());
        assert_eq!(said(&[name, "--json"]).matches("\"name\"").count(), 1);
    }
    let today = said(&[]);
    assert!(Profile::names_of_today().all(|name| today.contains(&format!("{name} "))), "{today}");
    assert!(!today.contains("hdd-10k") && today.contains("--all lists the disks of the papers"), "{today}");
    let line = list.lines().find(|line| line.starts_with("hdd-10k")).unwrap();
    assert!(line.contains("seek 5.4 ms, half a turn 2.99 ms, 21.7 MB/s"), "{line}");
    let costs = |name: &str| said(&[name]).lines().last().unwrap().to_owned();
    for name in Profile::names() {
        let spec = costs(name).rsplit(' ').next().unwrap().to_owned();
        assert!(spec.parse::<nigh_policy::Spec>().is_ok() && spec.contains(":position="), "{name}: {spec}");
    }
    assert_eq!(
        refused(&["devices", "hdd-10"]),
        "nigh: there is no profile 'hdd-10': 'nigh devices' lists them. Did you mean 'hdd-10k'?\n"
    );
    let array = said(&["raid5-4x-hdd-7200"]);
    assert!(array.contains("members = 4") && Profile::parse(&array) == Profile::named("raid5-4x-hdd-7200"), "{array}");
    assert_eq!(
        refused(&["devices", "raid5-2x-hdd-7200"]),
        "nigh: 'members' is 2: expected the number of members, 3 to 64\n"
    );
}

/// Reads with their latencies, of two disks: the busier one is fitted, or the one that is named.
#[test]
fn a_profile_is_fitted_to_the_latencies_of_a_recording() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut rows = "time_us,volume,op,offset,length,latency_us\n".to_owned();
    for n in 0..400u64 {
        let (latency, place) = (300 + n * 7919 % 100, n * 7919 % 1000 * 4096);
        rows += &format!("{},7,R,{place},4096,{latency}\n", n * 1000);
        if n % 2 == 0 {
            rows += &format!("{},8,R,{place},4096,{}\n", n * 1000, 10 * latency);
        }
    }
    std::fs::write(path("t.csv"), rows).unwrap();
    let columns = "columns=time=0,time-unit=us,volume=1,op=2,offset=3,length=4,latency=5,latency-unit=us,offset-unit=bytes,length-unit=bytes";
    let trace = format!("{},{columns}", path("t.csv"));
    let fitted = |more: &[&str]| {
        let output = devices(&[&["fit", "--recording", &trace], more].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        (Profile::parse(&String::from_utf8(output.stdout).unwrap()).unwrap(), told)
    };
    let read_us = |profile: &Profile| {
        let Model::Volume(volume) = profile.model() else { panic!("a volume") };
        volume.read_us + volume.jitter_us
    };
    let (busier, told) = fitted(&[]);
    assert!((300.0..400.0).contains(&read_us(&busier)), "{told}");
    assert!(
        told.contains("of 2 disks, disk 7 has the most requests") && told.contains("the limit is higher"),
        "{told}"
    );
    let (other, _) = fitted(&["--volume", "8"]);
    assert!((3000.0..4000.0).contains(&read_us(&other)));
    assert!(refused(&["devices", "fit", "--recording", &trace, "--volume", "9"]).contains("no request of disk 9"));
    // Without a column of latencies there is nothing to fit to.
    let columns = "columns=offset=3,length=4,offset-unit=bytes,length-unit=bytes";
    let refusal = refused(&["devices", "fit", "--recording", &format!("{},{columns}", path("t.csv"))]);
    assert!(refusal.contains("t.csv: no request has a latency: record a block device"), "{refusal}");
    assert!(refused(&["devices", "fit", "/dev/null", "--volume", "8"]).contains("--recording"));
}

#[test]
fn a_profile_is_fitted_to_a_file_that_is_not_changed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let image = path("image");
    let content: Vec<u8> = (0..24u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    std::fs::write(&image, &content).unwrap();
    std::fs::File::open(&image).unwrap().sync_all().unwrap();
    let modified = std::fs::metadata(&image).unwrap().modified().unwrap();
    let output = devices(&["fit", &image, "--seconds", "1", "-o", &path("mine.toml")]);
    let error = String::from_utf8(output.stderr).unwrap();
    if error.contains("O_DIRECT") {
        println!("skipped: a_profile_is_fitted_to_a_file_that_is_not_changed: {error}");
        return;
    }
    assert!(output.status.success(), "{error}");
    let findings = String::from_utf8(output.stdout).unwrap();
    assert!(findings.contains("after a nearby read") && findings.contains("matter"), "{findings}");
    let fitted = Profile::parse(&std::fs::read_to_string(path("mine.toml")).unwrap()).unwrap();
    assert_eq!((fitted.bytes(), fitted.title()), (content.len() as u64, image.as_str()));
    // The output without a file is a profile, too, and all of it.
    Profile::parse(&said(&["fit", &image, "--seconds", "1"])).unwrap();
    assert!(std::fs::read(&image).unwrap() == content);
    assert_eq!(std::fs::metadata(&image).unwrap().modified().unwrap(), modified);

    std::fs::write(path("small"), [0; 4096]).unwrap();
    let error = refused(&["devices", "fit", &path("small")]);
    assert!(
        error.ends_with("small: a target of 4096 bytes is too small to measure: expected at least 16777216 bytes\n"),
        "{error}"
    );
    assert!(refused(&["devices", "fit", &path("missing")]).contains("missing: No such file"));
    assert!(
        refused(&["devices", "fit", "/dev/null"]).ends_with("/dev/null: neither a regular file nor a block device\n")
    );
    assert!(refused(&["devices", "fit", &image, "--seconds", "0"]).contains("1..=3600"));
}
