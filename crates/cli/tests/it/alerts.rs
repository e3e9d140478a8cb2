//! The alert rules and the dashboard of the package: by promtool, on a live Prometheus, and that all they name exists.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nigh_nbd::client::Client;
use nigh_testkit::tools::{installed, run};
use serde_json::Value;

use crate::metrics::Prometheus;
use crate::serving::{Folder, Server, until};

fn packaged(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaged(name)).unwrap()
}

const RULES: &str = "prometheus/nigh.rules.yml";
const DASHBOARD: &str = "grafana/nigh.json";

/// The names of metrics in a text, without what Prometheus adds to the name of a histogram.
fn named(text: &str) -> BTreeSet<String> {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let names = text.split(|letter: char| !letters(letter)).filter(|word| word.starts_with("nigh_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

/// The expressions of the dashboard, with values for its variables.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let values = [("$job", "nigh"), ("$instance", ".*"), ("$export", ".*"), ("$__rate_interval", "1m")];
    expressions.map(|text| values.iter().fold(text, |text, (name, value)| text.replace(name, value))).collect()
}

/// Everything that has metrics, on two servers, since some of it does not go together.
fn servers(folders: &[Folder; 2]) -> [Server; 2] {
    let level = format!("file:{}:4M", folders[0].text("level"));
    let common = ["disk=memory:16M", "--policy", "auto", "--metrics", "127.0.0.1:0"];
    let away = ["--allocate", "utility", "--level", "tcp:127.0.0.1:9:4M", "--level", "tcp:127.0.0.1:19:4M"];
    let small = ["--memory", "1M", "--curves", "64"];
    let other = ["--content", "dedup", "--level", &level, "--memory", "8M"];
    let servers =
        [folders[0].serve(&[&common[..], &other].concat()), folders[1].serve(&[&common[..], &away, &small].concat())];
    // Curves are known after some references.
    let mut client = connect(&servers[1], "disk");
    (0..20_000u64).for_each(|at| _ = client.read(at * at % 400 * 4096, 4096).unwrap());
    servers
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_exists() {
    let folders = [Folder::new(), Folder::new()];
    let servers = servers(&folders);
    let exposed: BTreeSet<String> = servers.iter().flat_map(|server| named(&server.metrics_page())).collect();
    assert!(exposed.len() > 90, "{}", exposed.len());
    for file in [RULES, DASHBOARD] {
        let wanted = named(&read(file));
        assert!(wanted.len() > 10, "{file}: {wanted:?}");
        let unknown: Vec<_> = wanted.difference(&exposed).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, which no server has");
    }
    servers.into_iter().for_each(Server::end);
}

#[test]
fn the_dashboard_says_what_each_panel_shows() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels: Vec<_> = dashboard["panels"].as_array().unwrap().iter().filter(|of| of["type"] != "row").collect();
    assert!(panels.len() > 25);
    let mut places = BTreeSet::new();
    for panel in panels {
        let (title, grid) = (panel["title"].as_str().unwrap(), &panel["gridPos"]);
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
        assert!(places.insert((grid["y"].as_u64(), grid["x"].as_u64())), "{title} lies on another panel");
        assert!(grid["x"].as_u64().unwrap() + grid["w"].as_u64().unwrap() <= 24, "{title} is beyond the edge");
    }
}

#[test]
fn promtool_finds_that_each_rule_fires_and_that_none_fires_without_reason() {
    if !installed("promtool_finds_that_each_rule_fires_and_that_none_fires_without_reason", "promtool") {
        return;
    }
    run("promtool", &["check", "rules", packaged(RULES).to_str().unwrap()]);
    run("promtool", &["test", "rules", packaged("prometheus/nigh.rules.test.yml").to_str().unwrap()]);
    // No rule is without a test.
    let (rules, tests) = (read(RULES), read("prometheus/nigh.rules.test.yml"));
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\", severity=")), "{alert} fires in no test");
        assert!(tests.contains(&format!("alertname: {alert}}}")), "{alert} is quiet in no test");
    }
}

/// A small file system that is unmounted when it is dropped.
struct Small(String);

impl Small {
    /// `None` if this user cannot mount.
    fn mount(test: &str, place: String) -> Option<Small> {
        std::fs::create_dir(&place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "small", &place]).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            println!("skipped: {test}: the full disk, because this user cannot mount");
            return None;
        }
        Some(Small(place))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", &self.0]).status();
    }
}

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), export, &[]).unwrap()
}

/// A server with a device that hangs, one that fails, one that is full, and a level that is away.
#[test]
fn alerts_fire_on_a_live_prometheus() {
    let test = "alerts_fire_on_a_live_prometheus";
    if !installed(test, "prometheus") {
        return;
    }
    let folder = Folder::new();
    let small = Small::mount(test, folder.text("small"));
    let mut exports = vec!["hung=delay:600s:memory:1M".to_owned(), "bad=fault:read=1:memory:1M".to_owned()];
    if let Some(Small(place)) = &small {
        exports.push(format!("full={}", folder.empty_image("small/disk.img", 1 << 20)));
        assert!(exports[2].starts_with(&format!("full={place}")));
    }
    let flags =
        ["--readahead", "none", "--metrics", "127.0.0.1:0", "--level", "tcp:127.0.0.1:9:4M", "--stop-within", "1s"];
    let exports: Vec<&str> = exports.iter().map(String::as_str).collect();
    let server = folder.serve(&[&exports[..], &flags].concat());

    // Waits of a minute and more are left out, and nothing else is changed.
    let rules = read(RULES)
        .replace("    for: 1m\n", "")
        .replace("nigh_device_silent_seconds > 30", "nigh_device_silent_seconds > 2");
    let rules = folder.image("nigh.rules.yml", rules.as_bytes());
    let prometheus = Prometheus::start(&folder, &server, &format!("rule_files: ['{rules}']\n"));

    let firing = || -> BTreeSet<String> {
        let answer = prometheus.api("/api/v1/alerts");
        let alerts =
            answer.as_ref().and_then(|answer| answer["data"]["alerts"].as_array().cloned()).unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let name = |alert: &Value| {
            let labels = &alert["labels"];
            format!("{} {}", labels["alertname"].as_str().unwrap(), labels["export"].as_str().unwrap_or("-"))
        };
        firing.map(name).collect()
    };
    // Counters have to be known before they grow.
    until("Prometheus has the server's statistics", || {
        prometheus.query("nigh_uptime_seconds").is_some_and(|of| of["data"]["result"][0].is_object())
    });
    until("the level is away", || firing().contains("NighLevelOff -"));
    let before = firing();
    assert!(
        !before.iter().any(|alert| alert.contains("hung") || alert.contains("bad") || alert.contains("full")),
        "{before:?}"
    );

    // Nobody waits for its reply.
    let mut hung = connect(&server, "hung");
    let waiting = std::thread::spawn(move || _ = hung.read(0, 4096));
    assert!(connect(&server, "bad").read(0, 4096).is_err());
    let mut wanted = vec!["NighDeviceHung hung", "NighDeviceFaults bad"];
    if small.is_some() {
        let mut full = connect(&server, "full");
        // Random enough that each block takes room.
        (0..200u64).for_each(|at| _ = full.write(4096 * at, &[at as u8 + 1; 4096]));
        let _ = full.flush();
        wanted.extend(["NighDiskFull full", "NighDeviceFaults full"]);
    }
    for alert in wanted {
        until(&format!("{alert} fires; only {:?} do", firing()), || firing().contains(alert));
    }

    // Prometheus understands what the dashboard asks.
    for expression in expressions() {
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    drop(prometheus);
    server.kill();
    waiting.join().unwrap();
}
