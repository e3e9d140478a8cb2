//! Compiles the recording library with a nested cargo, in a folder of its own, so that the two do not wait for each other.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for folder in ["../../apply/advise", "../../core/pattern", "../preload", "../ring"] {
        println!("cargo::rerun-if-changed={}", own.join(folder).display());
    }
    let supported = ["CARGO_CFG_TARGET_ARCH=x86_64", "CARGO_CFG_TARGET_OS=linux", "CARGO_CFG_TARGET_ENV=gnu"];
    let is_supported = supported.iter().filter_map(|pair| pair.split_once('='));
    let library = out.join("libnigh_preload.so");
    if !is_supported.into_iter().all(|(name, value)| std::env::var(name).as_deref() == Ok(value)) {
        std::fs::write(library, b"").expect("the folder can be written");
        return;
    }
    let cargo = std::env::var_os("CARGO").expect("cargo sets it");
    let folder = out.join("preload");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--profile", "preload", "--quiet", "--locked", "--manifest-path"])
        .arg(own.join("../preload/Cargo.toml"));
    command.arg("--target-dir").arg(&folder);
    // Flags and wrappers are for the crates around this one (clippy, sanitizers, coverage), not for foreign programs.
    for name in
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"]
    {
        command.env_remove(name);
    }
    let status = command.status().expect("cargo starts");
    assert!(status.success(), "the recording library does not compile");
    std::fs::copy(folder.join("preload/libnigh_preload.so"), library).expect("the library was compiled");
}
