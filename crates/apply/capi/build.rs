//! Names the shared library by the version of its interface: programs that were linked with it find that one. And hides functions of C that crates
//! below it have.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnigh.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
