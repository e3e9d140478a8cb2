//! Compiles the program in C that `src/c.rs` calls.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

fn main() {
    println!("cargo::rerun-if-changed=src/pins.c");
    println!("cargo::rerun-if-changed=../../crates/apply/capi/include/nigh.h");
    cc::Build::new().file("src/pins.c").include("../../crates/apply/capi/include").compile("pins");
}
