//! The page that `--metrics` serves: as HTTP clients see it, and in headless Chromium.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_testkit::browser::{self, chromium};
use serde_json::Value;

use crate::metrics::{ask, get};
use crate::serving::{Folder, Server, until};

const PROBE: &str = include_str!("page/probe.js");
/// A name that would do something if it were markup.
const HOSTILE: &str =
    "\"><img src=x onerror=document.body.dataset.hacked=1><script>document.body.dataset.hacked=2</script>";

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(&server.socket).unwrap();
    Client::connect(stream, export, &[]).unwrap()
}

/// Reads and writes for a while.
fn load(server: &Server, export: &str, time: Duration) {
    let (mut client, begin, mut at) = (connect(server, export), Instant::now(), 0);
    while begin.elapsed() < time {
        client.read(at % 200 * 4096, 4096).unwrap();
        client.write((at + 7) % 200 * 4096, &[at as u8; 4096]).unwrap();
        at += 13;
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn history(server: &Server, query: &str) -> Value {
    serde_json::from_str(&get(&server.metrics(), &format!("/history.json{query}"), "").1).unwrap()
}

#[test]
fn the_page_is_for_those_who_may_read_statistics_and_does_nothing_else() {
    let folder = Folder::new();
    let token = folder.image("token", b"secret\n");
    let server = folder.serve(&["disk=memory:1M", "--metrics", &format!("127.0.0.1:0,token={token}")]);
    let address = server.metrics();
    for path in ["/", "/history.json", "/json", "/metrics"] {
        let (head, body) = get(&address, path, "");
        assert!(head.starts_with("HTTP/1.0 401") && !body.contains("disk"), "{path}: {head}");
        assert!(head.contains("WWW-Authenticate: Basic realm=\"nigh\""), "{path}: {head}");
        // "nigh:secret" and "nigh:wrong"
        let allowed = get(&address, path, "Authorization: Basic bmlnaDpzZWNyZXQ=\r\n").0;
        assert!(allowed.starts_with("HTTP/1.0 200"), "{path}: {allowed}");
        let denied = get(&address, path, "Authorization: Basic bmlnaDp3cm9uZw==\r\n").0;
        assert!(denied.starts_with("HTTP/1.0 401"), "{path}: {denied}");
    }
    let authorized =
        |request: &str| ask(&address, &format!("{request} HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n"));
    let (head, page) = authorized("GET /");
    let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none';") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(page.contains(&format!("<script nonce=\"{nonce}\">")) && !page.contains("disk=memory"), "{nonce}");
    assert!(!authorized("GET /").1.contains(nonce), "another page has another nonce");
    for part in
        ["text/html", "X-Content-Type-Options: nosniff", "Cache-Control: no-store", "Referrer-Policy: no-referrer"]
    {
        assert!(head.contains(part), "no {part}: {head}");
    }
    let (head, body) = authorized("HEAD /");
    assert!(head.starts_with("HTTP/1.0 200") && body.is_empty() && !head.contains("Content-Length: 0"), "{head}");
    for request in ["POST /", "PUT /history.json", "DELETE /", "OPTIONS /"] {
        assert!(authorized(request).0.contains("405"), "{request}");
    }
    for path in ["/history.json?export=other", "/index.html", "/../json", "//"] {
        assert!(authorized(&format!("GET {path}")).0.contains("404"), "{path}");
    }
    server.end();
}

#[test]
fn the_history_has_what_clients_did() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:1M", "a b&c=memory:1M", "--metrics", "127.0.0.1:0"]);
    until("there is a point", || history(&server, "")["spans"][0]["times_ms"].as_array().unwrap().len() > 1);
    let mut client = connect(&server, "disk");
    (0..100).for_each(|at| _ = client.read(4096 * at, 4096).unwrap());
    client.write(0, &[1; 8192]).unwrap();
    // A rate is that of a second, more or less.
    let sum = |name: &str, query: &str| -> f64 {
        let of = history(&server, query);
        let (times, values) = (&of["spans"][0]["times_ms"], &of["spans"][0]["columns"][name]);
        let times: Vec<f64> = times.as_array().unwrap().iter().map(|time| time.as_f64().unwrap() / 1e3).collect();
        let rates = values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap_or(0.0));
        rates.skip(1).zip(times.windows(2)).map(|(rate, pair)| rate * (pair[1] - pair[0])).sum()
    };
    until("all reads are in the history", || sum("reads_per_s", "") > 98.0);
    for (name, query, expected) in [
        ("reads_per_s", "", 100.0),
        ("reads_per_s", "?export=disk", 100.0),
        ("reads_per_s", "?export=a%20b%26c", 0.0),
        ("read_bytes_per_s", "?export=disk", 409_600.0),
        ("writes_per_s", "", 1.0),
        ("written_bytes_per_s", "", 8192.0),
    ] {
        let found = sum(name, query);
        assert!((found - expected).abs() <= 0.03 * expected, "{name}{query}: {found}, not {expected}");
    }
    let of = history(&server, "?export=a+b%26c");
    assert_eq!(of["exports"], serde_json::json!(["disk", "a b&c"]));
    assert_eq!((&of["schema"], &of["export"]), (&1.into(), &"a b&c".into()));
    server.end();
}

/// Passes requests on to a server, and adds the probe to the page; its address.
fn with_probe(server: &Server) -> String {
    let (listener, to) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.metrics());
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, to) = (client.unwrap(), to.clone());
            std::thread::spawn(move || pass(client, &to));
        }
    });
    address
}

fn pass(mut client: TcpStream, to: &str) -> Option<()> {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let bytes = client.read(&mut part).ok().filter(|bytes| *bytes > 0)?;
        request.extend_from_slice(&part[..bytes]);
    }
    let target = String::from_utf8_lossy(&request).split(' ').nth(1)?.to_owned();
    let (head, body) = get(to, &target, "");
    let body = match head.split("'nonce-").nth(1) {
        Some(rest) => {
            let nonce = rest.split('\'').next()?;
            body.replace("</body>", &format!("<script nonce=\"{nonce}\">{PROBE}</script></body>"))
        }
        None => body,
    };
    let fields: String =
        head.lines().filter(|line| !line.starts_with("Content-Length")).map(|line| format!("{line}\r\n")).collect();
    write!(client, "{fields}Content-Length: {}\r\n\r\n{body}", body.len()).ok()
}

/// The probe's findings on the page, with a picture of it.
fn look(program: &Path, url: &str, name: &str, width: u32, is_dark: bool) -> Value {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&folder).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let image = folder.join(format!("{name}.png"));
    let arguments = [
        format!("--blink-settings=preferredColorScheme={}", if is_dark { 0 } else { 1 }),
        format!("--window-size={width},1900"),
        format!("--screenshot={}", image.display()),
        "--virtual-time-budget=12000".to_owned(),
        "--dump-dom".to_owned(),
    ];
    let dom = browser::open(program, profile.path(), &arguments, url);
    assert!(fs::metadata(&image).unwrap().len() > 10_000, "{name}: the picture shows something");
    serde_json::from_str(&browser::probed(&dom)).unwrap()
}

#[test]
fn the_page_is_drawn_in_light_and_dark_at_every_width() {
    let Some(program) = chromium("the_page_is_drawn_in_light_and_dark_at_every_width") else { return };
    let folder = Folder::new();
    let level = format!("file:{}:4M", folder.text("level"));
    let config = format!("[[export]]\nname = {}\ntarget = \"memory:1M\"\n", serde_json::to_string(HOSTILE).unwrap());
    let config = folder.image("nigh.toml", config.as_bytes());
    let server = folder.serve(&[
        "disk=delay:1ms:memory:64M",
        "--config",
        &config,
        "--policy",
        "auto",
        "--level",
        &level,
        "--slow",
        "100ms",
        "--metrics",
        "127.0.0.1:0",
        "--memory",
        "1M",
    ]);
    std::thread::scope(|scope| {
        scope.spawn(|| load(&server, "disk", Duration::from_secs(4)));
        scope.spawn(|| load(&server, HOSTILE, Duration::from_secs(4)));
    });
    let address = with_probe(&server);
    let views =
        [("light-500", 500, false), ("dark-500", 500, true), ("light-1400", 1400, false), ("dark-1400", 1400, true)];
    for (name, width, is_dark) in views {
        let found = look(&program, &format!("http://{address}/"), name, width, is_dark);
        println!("{name}: {found}");
        assert_eq!(found["problems"], serde_json::json!([]), "{name}");
        assert_eq!((&found["state"], &found["hacked"]), (&"".into(), &"".into()), "{name}");
        assert_eq!((&found["overflow"], &found["foreign"]), (&0.into(), &0.into()), "{name}");
        assert_eq!(found["paper"], if is_dark { "rgb(22, 24, 28)" } else { "rgb(255, 255, 255)" }, "{name}");
        assert_eq!(found["options"], serde_json::json!(["all", "disk", HOSTILE]), "{name}");
        let exports = found["exports"].as_array().unwrap();
        assert!(
            exports.len() == 2 && exports.iter().any(|row| row[0] == HOSTILE && row[1] == "ok"),
            "{name}: {exports:?}"
        );
        assert_eq!(found["levels"][0][1], "on", "{name}");
        assert!(found["now"]["Policy"].as_str().unwrap().starts_with("auto: "), "{name}: {}", found["now"]);
        let plots = found["plots"].as_array().unwrap();
        let drawn: Vec<_> = plots.iter().map(|plot| plot["id"].as_str().unwrap()).collect();
        for id in ["hits", "requests", "latency", "clients", "devices", "dirty", "loads"] {
            let at = drawn
                .iter()
                .position(|drawn| *drawn == format!("plot-{id}"))
                .unwrap_or_else(|| panic!("{id} in {drawn:?}"));
            assert!(
                plots[at]["points"].as_u64() > Some(3) && plots[at]["painted"].as_u64() > Some(500),
                "{name}: {}",
                plots[at]
            );
        }
        let sections: Vec<_> = found["sections"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        assert!(
            ["time", "exports", "levels", "policies"].iter().all(|id| sections.contains(id)),
            "{name}: {sections:?}"
        );
    }
    // One export alone.
    let found = look(&program, &format!("http://{address}/#disk"), "one", 1000, false);
    assert_eq!((&found["chosen"], &found["problems"]), (&"disk".into(), &serde_json::json!([])));
    server.end();
}

/// With tenants, there are their shares and curves.
#[test]
fn the_page_shows_tenants_and_what_more_memory_would_bring() {
    let Some(program) = chromium("the_page_shows_tenants_and_what_more_memory_would_bring") else { return };
    let folder = Folder::new();
    let tenants = ["one=memory:16M,tenant=web", "two=memory:16M,tenant=mail"];
    let flags = ["--allocate", "utility", "--curves", "64", "--metrics", "127.0.0.1:0", "--memory", "1M"];
    let server = folder.serve(&[&tenants[..], &flags].concat());
    for export in ["one", "two"] {
        let mut client = connect(&server, export);
        (0..20_000u64).for_each(|at| _ = client.read(at * at % 400 * 4096, 4096).unwrap());
    }
    until("there is a point", || history(&server, "")["spans"][0]["times_ms"].as_array().unwrap().len() > 2);
    let found = look(&program, &format!("http://{}/", with_probe(&server)), "tenants", 1400, false);
    println!("{found}");
    assert_eq!(found["problems"], serde_json::json!([]));
    let tenants = found["tenants"].as_array().unwrap();
    assert!(
        ["web", "mail"].iter().all(|name| tenants.iter().any(|row| row[0] == *name && row[2] != "–")),
        "{tenants:?}"
    );
    let memory = found["memory"].as_array().unwrap();
    let row = memory.iter().find(|row| row[0] == "web").unwrap_or_else(|| panic!("{memory:?}"));
    assert!(row.as_array().unwrap()[1..].iter().any(|cell| cell.as_str().unwrap().contains('±')), "{row}");
    let plots = found["plots"].as_array().unwrap();
    assert!(plots.iter().any(|plot| plot["id"] == "memory-plot" && plot["points"].as_u64() > Some(4)), "{plots:?}");
    server.end();
}
