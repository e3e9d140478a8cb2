//! Compiled programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_testkit::tools;
use tempfile::TempDir;

/// A folder of this crate.
pub(crate) fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The folder with the library that was built with these tests.
pub(crate) fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libnigh.so").exists(), "{} has no libnigh.so", folder.display());
    folder
}

/// Whether the programs exist; otherwise prints that `test` is skipped.
pub(crate) fn installed(test: &str, programs: &[&str]) -> bool {
    programs.iter().all(|program| tools::installed(test, program))
}

/// Runs a command, which succeeds, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A folder with compiled programs and the library, under the name by which they look for it.
pub(crate) struct Built {
    pub(crate) folder: TempDir,
}

impl Built {
    pub(crate) fn new() -> Built {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libnigh.so", "libnigh.so.0"] {
            std::os::unix::fs::symlink(library().join("libnigh.so"), folder.path().join(name)).unwrap();
        }
        Built { folder }
    }

    /// Compiles `tests/c/SOURCE` with these flags; returns the program.
    pub(crate) fn compile(&self, source: &str, flags: &[&str]) -> PathBuf {
        let is_plus = source.ends_with(".cc");
        let program = self.folder.path().join(source.split('.').next().unwrap());
        let mut command = Command::new(if is_plus { "g++" } else { "gcc" });
        command.arg(if is_plus { "-std=c++17" } else { "-std=c99" });
        command.args(["-pedantic", "-Wall", "-Wextra", "-Werror", "-g"]).args(flags);
        command.arg("-I").arg(own("include")).arg(own("tests/c").join(source)).arg("-o").arg(&program);
        command.arg("-L").arg(self.folder.path()).arg(format!("-Wl,-rpath,{}", self.folder.path().display()));
        run(command.args(["-lnigh", "-lpthread"]));
        program
    }

    /// Compiles a program with the address sanitizer, whose reports end it, and runs it.
    pub(crate) fn check(&self, source: &str) {
        let program = self.compile(source, &["-fsanitize=address"]);
        run(Command::new(program).arg(self.folder.path()));
    }
}
