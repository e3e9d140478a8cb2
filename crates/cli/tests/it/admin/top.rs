//! `nigh top`, in a pipe and in a terminal.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nigh_testkit::tools::installed;
use serde_json::Value;

use super::control::Controlled;
use super::{nigh, refusal, text};

/// Reads until `over`, three hits for each miss.
fn busy(nigh: &Controlled, over: &AtomicBool) {
    let mut client = nigh.connect("busy");
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        (0..4).for_each(|_| drop(client.read(at % (60 << 20), 4096).unwrap()));
        at += 4096;
    }
}

#[test]
fn a_pipe_gets_one_table_or_one_object() {
    let arguments = ["busy=memory:64M", "idle=memory:1M", "--readahead=none"];
    let server = Controlled::start(tempfile::tempdir().unwrap(), &arguments);
    let control = server.path("control");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&server, &over));
        let look = |arguments: &[&str]| {
            let output =
                nigh(&["top", "--control", text(&control), "--interval", "0.3"]).args(arguments).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let looks = [look(&[]), look(&["--once", "--sort", "name"])];
        let json: Value = serde_json::from_str(&look(&["--json"])).unwrap();
        over.store(true, Ordering::Relaxed);
        for table in looks {
            let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
            assert_eq!(rows[2][0], "EXPORT", "{table}");
            assert_eq!((rows[3][0], rows[4][0], rows[5][0]), ("busy", "idle", "total"), "{table}");
            assert_eq!(rows[4][1..3], ["-", "0"], "{table}");
            let ratio: f64 = rows[3][1].parse().unwrap();
            assert!((70.0..80.0).contains(&ratio) && !table.contains('\u{1b}'), "{table}");
        }
        assert_eq!((&json["schema"], &json["exports"][0]["name"]), (&1.into(), &"busy".into()));
        assert!(json["total"]["requests_per_s"].as_f64().unwrap() > 0.0 && json["total"]["p99_us"].is_u64(), "{json}");
    });
    let fails = |arguments: &[&str]| refusal(&nigh(arguments).env_remove("NIGH_CONTROL").output().unwrap());
    assert!(fails(&["top"]).contains("--control"));
    assert!(fails(&["top", "--control", "/nowhere/control"]).contains("/nowhere/control"));
    assert!(fails(&["top", "--control", text(&control), "--interval", "0"]).contains("--interval"));
    server.server.end();
}

/// A terminal of its own, ended when dropped.
struct Terminal(String);

impl Terminal {
    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.0, "-f", "/dev/null"]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen has all of `parts`.
    fn shows(&self, parts: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if parts.iter().all(|part| screen.contains(part)) {
                return screen;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{parts:?} are not all in\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_terminal_gets_a_live_screen() {
    if !installed("a_terminal_gets_a_live_screen", "tmux") {
        return;
    }
    let server = Controlled::start(tempfile::tempdir().unwrap(), &["busy=memory:64M", "idle=memory:1M"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&server, &over));
        let terminal = Terminal(format!("nigh-test-{}", std::process::id()));
        let control = server.path("control");
        let nigh = format!(
            "{} top --control {} --interval 0.2; echo ended; sleep 60",
            env!("CARGO_BIN_EXE_nigh"),
            text(&control)
        );
        terminal.run(&["new-session", "-d", "-x", "100", "-y", "16", &nigh]);
        let screen =
            terminal.shows(&["EXPORT", "REQ/S", "busy", "idle", "total", "cache", "sort by: requests", "lirs"]);
        println!("{screen}");
        terminal.run(&["send-keys", "s"]);
        terminal.shows(&["sort by: bytes"]);
        terminal.run(&["send-keys", "p"]);
        let still = terminal.shows(&["paused"]);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(terminal.run(&["capture-pane", "-p"]), still, "it goes on while paused");
        terminal.run(&["resize-window", "-x", "60", "-y", "9"]);
        terminal.run(&["send-keys", "p"]);
        terminal.shows(&["EXPORT", "busy"]);
        terminal.run(&["send-keys", "q"]);
        terminal.shows(&["ended"]);
        over.store(true, Ordering::Relaxed);
    });
    server.server.end();
}
