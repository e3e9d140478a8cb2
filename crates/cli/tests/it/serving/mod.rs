//! Servers of the real binary, each with a folder of its own. Not every test needs all of it.

pub(crate) mod pki;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_testkit::tools::run;

/// How long a line of the log is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with files, sockets and the servers on them.
pub(crate) struct Folder(tempfile::TempDir);

/// A running server, killed when dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) socket: PathBuf,
    /// Its lines until it listened.
    said: Vec<String>,
    /// Its lines since.
    later: Arc<Mutex<Vec<String>>>,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn image(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.text(name)
    }

    pub(crate) fn empty_image(&self, name: &str, length: u64) -> String {
        std::fs::File::create(self.path(name)).unwrap().set_len(length).unwrap();
        self.text(name)
    }

    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_under(&[], arguments)
    }

    /// The result of `nigh ctl status` for the server at the socket `control`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let output = self.ctl(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The end of `nigh ctl` for the server at the socket `control`.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_nigh"));
        ctl.args(["ctl", "--control", &self.text("control")]).args(arguments).output().unwrap()
    }

    /// As `serve`, with this program and its first arguments before those of the server.
    pub(crate) fn serve_under(&self, program: &[&str], arguments: &[&str]) -> Server {
        let socket = self.path("socket");
        let listen = format!("unix:{}", socket.display());
        let mut command = nigh(&["--listen", &listen], arguments);
        if let [first, more @ ..] = program {
            let alone = command;
            command = Command::new(first);
            command.args(more).arg(alone.get_program()).args(alone.get_args()).stdin(Stdio::null());
        }
        let process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Server { process, socket, said: Vec::new(), later: Arc::default() };
        // All of its lines, so that it never waits for a reader.
        let mut lines = BufReader::new(server.process.stderr.take().unwrap()).lines();
        server.said = until_listening(&mut lines);
        let later = server.later.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| later.lock().unwrap().push(line)));
        server
    }
}

/// Waits for as long as for a line of the log.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn nigh(first: &[&str], more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.arg("serve").args(first).args(more).stdin(Stdio::null());
    if !more.contains(&"--memory") {
        command.args(["--memory", "16M"]);
    }
    command
}

/// The lines of a server until it listens.
pub(crate) fn until_listening(lines: impl Iterator<Item = std::io::Result<String>>) -> Vec<String> {
    let mut said = Vec::new();
    for line in lines.map_while(Result::ok) {
        said.push(line);
        if said.last().unwrap().contains("listening") {
            return said;
        }
    }
    panic!("the server does not listen; it said: {said:#?}");
}

/// The address in the first of these lines that contains `what`.
pub(crate) fn address(said: &[String], what: &str) -> String {
    let line = said.iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {said:#?}"));
    line.split(" on ").nth(1).unwrap().to_owned()
}

impl Server {
    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// The address of its statistics, started with `--metrics 127.0.0.1:0`.
    pub(crate) fn metrics(&self) -> String {
        address(&self.said, "metrics")
    }

    /// These statistics, for Prometheus.
    pub(crate) fn metrics_page(&self) -> String {
        let mut scrape = TcpStream::connect(self.metrics()).unwrap();
        scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        scrape.read_to_string(&mut page).unwrap();
        page
    }

    /// The lines with `what` since it listens.
    pub(crate) fn later(&self, what: &str) -> Vec<String> {
        self.later.lock().unwrap().iter().filter(|line| line.contains(what)).cloned().collect()
    }

    /// The lines with `what` so far.
    pub(crate) fn all(&self, what: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.said.iter().filter(|line| line.contains(what)).cloned().collect();
        lines.extend(self.later(what));
        lines
    }

    /// The lines with `what`, as soon as there are any.
    pub(crate) fn logged(&self, what: &str) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let lines = self.later(what);
            if !lines.is_empty() {
                return lines;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not log '{what}'");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The memory that it has, in MiB.
    pub(crate) fn resident_mib(&self) -> u64 {
        self.memory_mib("VmRSS:")
    }

    /// The most memory that it had, in MiB.
    pub(crate) fn peak_mib(&self) -> u64 {
        self.memory_mib("VmHWM:")
    }

    fn memory_mib(&self, kind: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    pub(crate) fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.process.id().to_string()]);
    }

    /// Has it end in order.
    pub(crate) fn end(mut self) {
        self.signal("-TERM");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        assert!(!self.socket.exists(), "the socket is left behind");
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
