//! The library as it is installed.

use std::path::Path;
use std::process::Command;

use crate::built::{installed, library, own, run};

/// The words that pkg-config prints about the library below a prefix.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("nigh");
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_program_is_compiled_by_pkg_config() {
    if !installed("a_program_is_compiled_by_pkg_config", &["g++", "pkg-config", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    let mut install = Command::new("sh");
    run(install.arg(own("install.sh")).arg(library()).arg(&prefix));
    assert_eq!(pkg_config(&prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let compile = |name: &str, flags: Vec<String>| {
        let program = folder.path().join(name);
        let mut command = Command::new("g++");
        command.arg("-std=c++17").arg(own("tests/c/plus.cc")).arg("-o").arg(&program).args(flags);
        run(&mut command);
        program
    };
    // The shared library, which programs find by the name with the version of its interface.
    let shared = compile("shared", pkg_config(&prefix, &["--cflags", "--libs"]));
    std::fs::remove_file(prefix.join("lib/libnigh.so")).unwrap();
    run(Command::new(&shared).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert!(!Command::new(&shared).env_remove("LD_LIBRARY_PATH").output().unwrap().status.success());
    // The static one, which needs no other file.
    let flags = pkg_config(&prefix, &["--static", "--cflags", "--libs"]).into_iter();
    let archive = prefix.join("lib/libnigh.a").display().to_string();
    let flags = flags.map(|flag| if flag == "-lnigh" { archive.clone() } else { flag }).collect();
    run(&mut Command::new(compile("static", flags)));
}
