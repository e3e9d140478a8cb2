//! The administration of `nigh serve` as its users meet it: the real binary, encrypted, limited and changed while clients
//! work.

mod changes;
mod control;
mod tenants;
mod tls;
mod top;

use crate::serving;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nigh_testkit::tools::run;

use crate::command::refusal;

const MIB: u64 = 1 << 20;

/// A running server, killed when dropped; and its lines until it listened.
struct Server(Child, Vec<String>);

fn nigh(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(arguments).stdin(Stdio::null());
    command
}

impl Server {
    /// Serves, and returns when everything listens.
    fn start(arguments: &[&str]) -> Server {
        let mut process = nigh(&["serve", "--memory", "16M"]).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        // All of its lines, so that it never waits for a reader.
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let said = serving::until_listening(&mut lines);
        std::thread::spawn(move || lines.for_each(drop));
        Server(process, said)
    }

    /// The port that it listens on, started with `--listen tcp:localhost:0`.
    fn port(&self) -> u16 {
        serving::address(&self.1, "listening").rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.0.id().to_string()]);
    }

    /// Has it end in order.
    fn end(mut self) {
        self.signal("-TERM");
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn empty_image(folder: &Path, name: &str, length: u64) -> PathBuf {
    let path = folder.join(name);
    std::fs::File::create(&path).unwrap().set_len(length).unwrap();
    path
}
