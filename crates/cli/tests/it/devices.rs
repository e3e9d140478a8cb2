//! `nigh devices`: what is listed, what is printed, and what is fitted to a file.

use std::process::{Command, Output};

use nigh_device::Profile;

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
    let list = said(&[]);
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
    let line = list.lines().find(|line| line.starts_with("hdd-10k")).unwrap();
    assert!(line.contains("seek 5.4 ms, half a turn 2.99 ms, 21.7 MB/s"), "{line}");
    let costs = |name: &str| said(&[name]).lines().last().unwrap().to_owned();
    for name in Profile::names() {
        let spec = costs(name).rsplit(' ').next().unwrap().to_owned();
        assert!(spec.parse::<nigh_policy::Spec>().is_ok() && spec.contains(":position="), "{name}: {spec}");
    }
    assert_eq!(refused(&["devices", "hdd-10"]), "nigh: there is no profile 'hdd-10'. Did you mean 'hdd-10k'?\n");
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
