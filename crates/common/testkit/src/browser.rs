//! Pages as headless Chromium sees them.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An installed Chromium; without one, prints that `test` is skipped.
pub fn chromium(test: &str) -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = programs.find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: {test}: chromium is not installed");
    }
    found
}

/// Opens the page at `url` with a profile in the folder `profile` and these `arguments`, and returns what it writes to standard
/// output.
///
/// # Panics
/// With its errors, if it fails.
pub fn open(program: &Path, profile: &Path, arguments: &[String], url: &str) -> String {
    let output = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .expect("the program is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a page is text")
}

/// The text that a probe left in `dom`: in a hidden element with the id `probe`, encoded by JavaScript's `encodeURIComponent`.
///
/// # Panics
/// With the page, if no probe ran.
pub fn probed(dom: &str) -> String {
    let found = dom.split_once(r#"id="probe" hidden="">"#).unwrap_or_else(|| panic!("the probe did not run: {dom}")).1;
    let encoded = found.split_once('<').expect("the element ends").0;
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b'%' {
            let digits = std::str::from_utf8(&tail[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &tail[2..];
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).expect("a probe leaves text")
}
