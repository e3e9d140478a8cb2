//! Statistics as those read them who made the formats: promtool, Prometheus, and Python's parsers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_testkit::tools::{fio_speaks_nbd, installed, run};
use serde_json::Value;

use crate::serving::{Folder, Server, until};

const OPEN: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

/// The reply of an HTTP server: its head and its body.
pub(crate) fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(crate) fn get(address: &str, path: &str, fields: &str) -> (String, String) {
    ask(address, &format!("GET {path} HTTP/1.0\r\n{fields}\r\n"))
}

/// A server with everything that has statistics, and one client's requests.
fn serve(folder: &Folder) -> Server {
    let level = format!("file:{}:4M", folder.text("level"));
    let more = ["--content", "dedup", "--level", &level, "--metrics", "127.0.0.1:0", "--memory", "8M"];
    let server = folder.serve(&[&["a b\"\\=memory:16M", "other=memory:1M"][..], &more].concat());
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, "other", &[]).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    server
}

#[test]
fn a_choice_of_policies_is_that_of_the_cache_or_of_a_tenant() {
    for (tenant, more) in [("", ["--shards", "1"]), ("other", ["--allocate", "static"])] {
        let folder = Folder::new();
        let flags = ["other=memory:1M", "--policy", "auto", "--metrics", "127.0.0.1:0"];
        let server = folder.serve(&[&flags[..], &more].concat());
        let stream = UnixStream::connect(&server.socket).unwrap();
        Client::connect(stream, "other", &[]).unwrap().read(0, 4096).unwrap();
        let (_, body) = get(&server.metrics(), "/metrics", "");
        for line in [
            format!("nigh_policy_changes_total{{tenant=\"{tenant}\"}} 0\n"),
            format!("nigh_policy_shards{{tenant=\"{tenant}\",policy=\"lirs\"}} 1.0\n"),
            format!("nigh_policy_shards{{tenant=\"{tenant}\",policy=\"mq\"}} 0.0\n"),
        ] {
            assert!(body.contains(&line), "no {line}in {body}");
        }
    }
}

#[test]
fn the_share_of_a_tenant_is_told_where_the_allocation_gives_one() {
    for (allocation, has_share) in [("utility", true), ("lru-sp", false)] {
        let folder = Folder::new();
        let server = folder.serve(&["one=memory:1M", "--allocate", allocation, "--metrics", "127.0.0.1:0"]);
        let (_, body) = get(&server.metrics(), "/metrics", "");
        assert_eq!(body.contains("nigh_share_bytes{tenant=\"one\"}"), has_share, "{body}");
        assert!(body.contains("nigh_owned_bytes{tenant=\"one\"}"), "{body}");
    }
}

#[test]
fn metrics_8_requests_have_a_form_a_query_and_perhaps_no_body() {
    let folder = Folder::new();
    let server = serve(&folder);
    let address = server.metrics();
    for (accept, kind, counter, end) in [
        ("", "text/plain; version=0.0.4", "# TYPE nigh_hits_total counter", false),
        ("Accept: */*\r\n", "text/plain; version=0.0.4", "# TYPE nigh_hits_total counter", false),
        (OPEN, "application/openmetrics-text; version=1.0.0", "# TYPE nigh_hits counter", true),
    ] {
        let (head, body) = get(&address, "/metrics?name[]=nigh_hits", accept);
        assert!(head.starts_with("HTTP/1.0 200") && head.contains(&format!("Content-Type: {kind}")), "{head}");
        assert!(body.contains(counter) && body.ends_with("# EOF\n") == end, "{body}");
        assert!(body.contains("nigh_hits_total{export=\"other\"} 1"), "{body}");
        let named = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let parts = |name: &str| name.split('_').any(|part| ["us", "ms", "ns", "microseconds"].contains(&part));
        assert_eq!(named.filter(|name| parts(name)).collect::<Vec<_>>(), [""; 0]);
        let (head, body) = ask(&address, &format!("HEAD /metrics HTTP/1.1\r\n{accept}\r\n"));
        assert!(head.contains(&format!("Content-Type: {kind}")) && head.contains("Content-Length: "), "{head}");
        assert!(!head.contains("Content-Length: 0\r\n") && body.is_empty(), "{body}");
    }
    assert!(get(&address, "/json?pretty", "").1.starts_with('{'));
    assert!(get(&address, "/metricsx", "").0.contains("404") && get(&address, "/x?/metrics", "").0.contains("404"));
    let (head, _) = ask(&address, "POST /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains("405") && head.contains("Allow: GET, HEAD"), "{head}");
    server.end();
}

/// The messages of a program about this input.
fn filter(program: &str, arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn metrics_8_promtool_and_pythons_parsers_accept_the_page() {
    let test = "metrics_8_promtool_and_pythons_parsers_accept_the_page";
    let folder = Folder::new();
    let server = serve(&folder);
    let (classic, open) = (get(&server.metrics(), "/metrics", "").1, get(&server.metrics(), "/metrics", OPEN).1);
    server.end();
    if installed(test, "promtool") {
        assert_eq!(filter("promtool", &["check", "metrics"], &classic), (true, String::new()), "{classic}");
    }
    let parse = |module: &str| {
        format!(
            "import sys\nfrom {module} import text_string_to_metric_families as parse\nfamilies = list(parse(sys.stdin.read()))\n\
             assert all(family.documentation for family in families)\nprint(len(families))\n"
        )
    };
    if !filter("python3", &["-c", "import prometheus_client"], "").0 {
        println!("skipped: {test}: Python has no prometheus_client");
        return;
    }
    for (module, page) in [("prometheus_client.parser", &classic), ("prometheus_client.openmetrics.parser", &open)] {
        let (is_parsed, said) = filter("python3", &["-c", &parse(module)], page);
        assert!(
            is_parsed && said.trim().parse::<u32>().is_ok_and(|families| families > 50),
            "{module}: {said}\n{page}"
        );
    }
}

/// A Prometheus, killed when it is dropped.
pub(crate) struct Prometheus {
    process: Child,
    address: String,
}

impl Prometheus {
    /// One that asks `server` twice a second. `rules` is a line of its configuration, or empty.
    pub(crate) fn start(folder: &Folder, server: &Server, rules: &str) -> Prometheus {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let config = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n{rules}scrape_configs:\n- job_name: nigh\n  \
             static_configs:\n  - targets: ['{}']\n",
            server.metrics()
        );
        let config = folder.image("prometheus.yml", config.as_bytes());
        let mut command = Command::new("prometheus");
        command.args([&format!("--config.file={config}"), &format!("--storage.tsdb.path={}", folder.text("tsdb"))]);
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        Prometheus { process: command.spawn().unwrap(), address }
    }

    /// Its answer to a query; `None` if it does not answer.
    pub(crate) fn query(&self, query: &str) -> Option<Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.api(&format!("/api/v1/query?query={escaped}"))
    }

    /// The value at `path` of its interface; `None` if it does not answer.
    pub(crate) fn api(&self, path: &str) -> Option<Value> {
        TcpStream::connect(&self.address).ok()?;
        serde_json::from_str(&get(&self.address, path, "").1).ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server whose statistics a Prometheus has.
struct Watched {
    folder: Folder,
    server: Server,
    prometheus: Prometheus,
}

impl Watched {
    /// With a disk that is so slow that the time of a busy machine does not matter. `None` if there is no Prometheus.
    fn start(test: &str) -> Option<Watched> {
        if !installed(test, "prometheus") {
            return None;
        }
        let folder = Folder::new();
        let disk = "disk=delay:180ms,jitter=180ms:memory:64M";
        let server = folder.serve(&[disk, "--readahead", "none", "--memory", "64M", "--metrics", "127.0.0.1:0"]);
        let prometheus = Prometheus::start(&folder, &server, "");
        Some(Watched { folder, server, prometheus })
    }

    fn query(&self, query: &str) -> Option<f64> {
        self.prometheus.query(query)?["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Once Prometheus has `all` reads, its quantiles are within 10 % of those that clients saw: shares, and seconds.
    fn agrees(self, all: u64, seen: &[(f64, f64)]) {
        let what = "Prometheus has all reads";
        until(what, || self.query("nigh_latency_seconds_count{kind=\"miss\"}") == Some(all as f64));
        for &(share, seen) in seen {
            let quantile = format!("histogram_quantile({share},nigh_latency_seconds_bucket{{kind=\"miss\"}})");
            let computed = self.query(&quantile).unwrap();
            println!("quantile {share}: {seen:.4} s seen by clients, {computed:.4} s computed by Prometheus");
            assert!((computed / seen - 1.0).abs() < 0.1, "quantile {share}: {computed} s, and clients saw {seen} s");
        }
        let Watched { folder, server, prometheus, .. } = self;
        drop(prometheus);
        server.end();
        drop(folder);
    }
}

/// The latency that clients see is the one that Prometheus computes.
#[test]
fn metrics_8_prometheus_computes_the_latency_that_clients_see() {
    const CLIENTS: u64 = 8;
    const READS: u64 = 50;
    let Some(watched) = Watched::start("metrics_8_prometheus_computes_the_latency_that_clients_see") else { return };
    let mut latencies: Vec<Duration> = std::thread::scope(|scope| {
        let read = |client: u64| {
            let stream = UnixStream::connect(&watched.server.socket).unwrap();
            let mut connection = Client::connect(stream, "disk", &[]).unwrap();
            let block = move |at: u64| (client * READS + at) * 8192;
            scope.spawn(move || {
                let timed = (0..READS).map(|at| {
                    let begin = Instant::now();
                    connection.read(block(at), 4096).unwrap();
                    begin.elapsed()
                });
                timed.collect::<Vec<_>>()
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(read).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    latencies.sort();
    let seen =
        [0.5, 0.99].map(|share| (share, latencies[(latencies.len() as f64 * share).ceil() as usize - 1].as_secs_f64()));
    watched.agrees(CLIENTS * READS, &seen);
}

/// fio's latencies are those, too.
#[test]
fn metrics_8_prometheus_computes_the_latency_that_fio_measures() {
    const READS: u64 = 400;
    let test = "metrics_8_prometheus_computes_the_latency_that_fio_measures";
    if !fio_speaks_nbd(test) {
        return;
    }
    let Some(watched) = Watched::start(test) else { return };
    let uri = format!("--uri={}", watched.server.uri("disk"));
    let reads = format!("--number_ios={READS}");
    let percentiles = "--percentile_list=50:99";
    let load = ["--name=load", "--ioengine=nbd", &uri, "--rw=randread", "--bs=4k", "--iodepth=8", "--size=64m", &reads];
    let text = run("fio", &[&load[..], &[percentiles, "--output-format=json"]].concat());
    let seen: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let read = &seen["jobs"][0]["read"];
    assert_eq!(read["total_ios"].as_u64(), Some(READS));
    let percentile = |name: &str| read["clat_ns"]["percentile"][name].as_f64().unwrap() / 1e9;
    watched.agrees(READS, &[(0.5, percentile("50.000000")), (0.99, percentile("99.000000"))]);
}
