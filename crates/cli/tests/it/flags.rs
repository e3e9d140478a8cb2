//! Every pair of flags of `sim`, `plan` and `serve`: a flag that changes nothing beside another one is refused, with the reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::command::{nigh, printed};
use super::serving::Folder;

/// The arguments of a command: flags with their values, and what comes before them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    before: Vec<String>,
    flags: BTreeMap<&'static str, Option<String>>,
}

/// A flag with a value that changes something, and the flags without which it means nothing.
struct Flag {
    name: &'static str,
    value: Option<String>,
    with: Vec<(&'static str, Option<String>)>,
    /// The trace or disk, if not the usual one.
    of: Of,
    /// Instead of nothing, where the flag is left out.
    otherwise: Option<&'static str>,
}

/// The input of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Usual,
    Nothing,
    Two,
    File(&'static str),
}

fn flag(name: &'static str, value: &str, with: &[(&'static str, &str)]) -> Flag {
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let with = with.iter().map(|&(name, value)| (name, text(value))).collect();
    Flag { name, value: text(value), with, of: Of::Usual, otherwise: None }
}

impl Flag {
    fn of(self, of: Of) -> Flag {
        Flag { of, ..self }
    }

    fn or(self, otherwise: &'static str) -> Flag {
        Flag { otherwise: Some(otherwise), ..self }
    }
}

/// Everything that a command printed; `None` if it refused.
type Outcome = Option<String>;

struct Walk<'a> {
    flags: &'a [Flag],
    before: &'a (dyn Fn(&[Of]) -> Vec<String> + Sync),
    run: &'a (dyn Fn(&Line, usize) -> Outcome + Sync),
    /// Flags that change nothing beside others although both are accepted, and why.
    allowed: &'a [(&'static str, &'static [&'static str], &'static str)],
}

impl Walk<'_> {
    /// Fails with all flags that are silently ignored.
    fn go(&self) {
        self.go_in_part(0, 1);
    }

    /// As `go`, for one of `parts` parts of all pairs.
    fn go_in_part(&self, part: usize, parts: usize) {
        let (known, next) = (Mutex::new(HashMap::<Line, Outcome>::new()), AtomicUsize::new(0));
        let run = |line: &Line| {
            if let Some(outcome) = known.lock().unwrap().get(line) {
                return outcome.clone();
            }
            let outcome = (self.run)(line, next.fetch_add(1, Ordering::Relaxed));
            known.lock().unwrap().insert(line.clone(), outcome.clone());
            outcome
        };
        let pairs = (0..self.flags.len()).flat_map(|one| (0..=one).map(move |other| (one, other)));
        let pairs: Vec<(usize, usize)> = pairs.skip(part).step_by(parts).collect();
        let (at, silent) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(&(one, other)) = pairs.get(at.fetch_add(1, Ordering::Relaxed)) {
                        let (one, other) = (&self.flags[one], &self.flags[other]);
                        let Some(both) = run(&self.line(one, other, None)) else {
                            if one.name == other.name {
                                silent.lock().unwrap().insert(format!("{} alone is refused", one.name));
                            }
                            continue;
                        };
                        for (flag, beside) in [(one, other), (other, one)] {
                            let is_allowed = self.allowed.iter().any(|(name, others, _)| {
                                *name == flag.name && (others.is_empty() || others.contains(&beside.name))
                            });
                            if !is_allowed && run(&self.line(one, other, Some(flag))).as_ref() == Some(&both) {
                                silent.lock().unwrap().insert(format!("{} beside {}", flag.name, beside.name));
                            }
                        }
                    }
                });
            }
        });
        let silent = silent.into_inner().unwrap();
        assert!(silent.is_empty(), "these change nothing and are accepted:\n{silent:#?}");
    }

    /// The command with both flags, or without one of them.
    fn line(&self, one: &Flag, other: &Flag, without: Option<&Flag>) -> Line {
        let mut flags: BTreeMap<&'static str, Option<String>> = other.with.iter().chain(&one.with).cloned().collect();
        flags.insert(other.name, other.value.clone());
        flags.insert(one.name, one.value.clone());
        let mut of = vec![one.of, other.of];
        if let Some(without) = without {
            flags.remove(without.name);
            flags.extend(without.otherwise.map(|value| (without.name, Some(value.to_owned()))));
            if without.of == Of::Nothing && without.otherwise.is_none() {
                of = vec![Of::Usual];
            }
        }
        Line { before: (self.before)(&of), flags }
    }
}

/// All flags in the help of a command are walked, or named with the reason why not.
fn check_all(command: &str, flags: &[Flag], others: &[(&str, &str)]) {
    let help = printed(&[command, "--help"]);
    let listed = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.strip_prefix("--").or_else(|| line.strip_prefix('-')?.get(1..)?.strip_prefix(", --"))?;
        long.split(|c: char| c != '-' && !c.is_ascii_lowercase()).next().map(|name| format!("--{name}"))
    });
    let listed: BTreeSet<String> = listed.filter(|name| name != "--help").collect();
    let walked = flags.iter().map(|flag| flag.name).chain(others.iter().map(|(name, _)| *name));
    assert_eq!(listed, walked.map(str::to_owned).collect());
}

fn arguments(command: &str, line: &Line) -> Vec<String> {
    let flags = line.flags.iter().flat_map(|(name, value)| std::iter::once((*name).to_owned()).chain(value.clone()));
    std::iter::once(command.to_owned()).chain(line.before.iter().cloned()).chain(flags).collect()
}

/// Results without what differs from run to run.
fn without_times(text: &str) -> String {
    fn remove(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                ["cpu_s", "peak_memory_bytes"].iter().for_each(|name| drop(fields.remove(*name)));
                fields.values_mut().for_each(remove);
            }
            Value::Array(values) => values.iter_mut().for_each(remove),
            _ => {}
        }
    }
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        remove(&mut value);
        return value.to_string();
    }
    let column = text.lines().next().and_then(|names| names.split(',').position(|name| name == "cpu_s"));
    let lines = text.lines().filter(|line| !line.contains("references/s")).map(|line| match column {
        Some(column) => line
            .split(',')
            .enumerate()
            .filter(|(at, _)| *at != column)
            .map(|(_, cell)| cell)
            .collect::<Vec<_>>()
            .join(","),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Traces of a few hundred requests, in a folder.
fn traces(folder: &Folder) {
    let mut seed = 5_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let header = "time_ns,op,tenant,stream,volume,offset,length,latency_ns\n";
    let (mut rows, mut bad, mut time) = (header.to_owned(), header.to_owned(), 0);
    let mut program = "t_us,pid,app,op,file_id,off,len,pc5,pc8,pc16,ra0,sp_dist,nframes\n".to_owned();
    for at in 0..240_u64 {
        time += 1000 + random(3_000_000);
        // A loop, a sequence and random requests take turns.
        let block = [at * 7 % 60, at / 3 % 90, random(90).min(random(90))][at as usize % 3];
        let op = if random(3) == 0 { "write" } else { "read" };
        let length = [4096, 4096, 8192, 512][random(4) as usize];
        let row = format!("{time},{op},{},{},0,{},{length},1000\n", at % 2, at % 3, block * 4096);
        let again = if at % 9 == 0 { 2 } else { 1 };
        rows += &row.repeat(again);
        bad += &row;
        if at == 50 {
            bad += "x,y\n";
        }
        let [two, three, four, five] = [2, 3, 4, 5].map(|parts| at % parts);
        let offset = block * 4096;
        program += &format!("{},{},cc,read,5,{offset},4096,{two},{three},{four},{five},0,9\n", at * 10, 9 + two);
    }
    folder.image("t.csv", rows.as_bytes());
    folder.image("bad.csv", bad.as_bytes());
    folder.image("program.csv", program.as_bytes());
    let numbers: Vec<u8> = (0..400_u64).flat_map(|_| random(60).to_le_bytes()).collect();
    folder.image("t.bin", &numbers);
    let object = |at: u32| {
        let id = u64::from(at) * 7 % 40 * u64::from(at % 3);
        let bytes = 9000 + id as u32 * 100;
        [&at.to_le_bytes()[..], &id.to_le_bytes(), &bytes.to_le_bytes(), &(-1_i64).to_le_bytes()].concat()
    };
    folder.image("t.oracleGeneral", &(0..400).flat_map(object).collect::<Vec<u8>>());
    let mut events = String::new();
    for at in 0..400_u64 {
        let sector = random(60) * 8;
        // One in three is not complete.
        for action in ["Q", "C"].into_iter().take(if at % 3 == 0 { 1 } else { 2 }) {
            let (second, nanosecond) = (at / 1000, at % 1000 * 1_000_000 + if action == "C" { 400_000 } else { 0 });
            events +=
                &format!("  8,0    1 {at:>8} {second:>5}.{nanosecond:09}   700  {action}   R {sector} + 8 [fio]\n");
        }
    }
    folder.image("t.blkparse", events.as_bytes());
}

fn trace(folder: &Folder, of: &[Of]) -> Vec<String> {
    if of.contains(&Of::Nothing) {
        return Vec::new();
    }
    let file = of.iter().find_map(|of| if let Of::File(name) = of { Some(*name) } else { None });
    let file = folder.text(file.unwrap_or("t.csv"));
    if of.contains(&Of::Two) { vec![file.clone(), file] } else { vec![file] }
}

/// Runs a command that prints results, and perhaps writes a page.
fn results(command: &str, folder: &Folder, line: &Line, number: usize) -> Outcome {
    let page = folder.path(&format!("{number}.html"));
    let mut line = line.clone();
    if let Some(html) = line.flags.get_mut("--html") {
        *html = Some(page.to_str().unwrap().to_owned());
        if line.flags.contains_key("--force") {
            std::fs::write(&page, "x").unwrap();
        }
    }
    if !line.flags.contains_key("--csv") {
        line.flags.insert("--json", None);
    }
    let arguments = arguments(command, &line);
    let output = nigh(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let page = std::fs::read_to_string(&page).map(|page| {
        page.split("cpu_s").map(|part| part.split_once(',').map_or("", |(_, rest)| rest)).collect::<String>()
    });
    let errors = String::from_utf8_lossy(&output.stderr).replace(&number.to_string(), "");
    let text = without_times(&String::from_utf8_lossy(&output.stdout));
    output.status.success().then(|| format!("{text}{errors}{}", page.unwrap_or_default()))
}

#[test]
fn settings_of_a_trace_change_what_is_read() {
    let folder = Folder::new();
    traces(&folder);
    for (file, setting) in [("t.blkparse", "action=complete"), ("t.oracleGeneral", "recorded-sizes")] {
        let path = folder.text(file);
        let info = |argument: &str| {
            let output = nigh(&["trace", "info", "--json", argument]);
            assert!(output.status.success(), "{argument}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().replace(&format!(",{setting}"), "")
        };
        assert_ne!(info(&format!("{path},{setting}")), info(&path), "{file}");
    }
}

const GENERATED: (&str, &str) = ("--generate", "loop:blocks=60+zipf:blocks=100");
const REQUESTS: (&str, &str) = ("--requests", "300");
const WRITES: (&str, &str) = ("--writes", "30%");
const DEVICE: (&str, &str) = ("--device", "hdd-7200");
/// Simulations of devices take longer than replays.
const FEW: (&str, &str) = ("--policy", "lru,lirs");

/// The pairs of `sim` are many: in parts, other tests run beside them.
mod flags_8_of_sim_are_refused_or_change_something {
    #[test]
    fn part_1() {
        super::walk_sim(0);
    }

    #[test]
    fn part_2() {
        super::walk_sim(1);
    }

    #[test]
    fn part_3() {
        super::walk_sim(2);
    }

    #[test]
    fn part_4() {
        super::walk_sim(3);
    }
}

fn walk_sim(part: usize) {
    let folder = Folder::new();
    traces(&folder);
    let contents = folder.image("contents.toml", b"seed = 1\n[generated]\nmachines = 2\nblocks = 1000\n");
    let control = "[[at]]\nset_policy = [{ priority = 0, policy = \"mru\" }]\npredict = [{ file = 0, offset = 0, length = 245760 }]\n";
    let control = folder.image("control.toml", control.as_bytes());
    let places: String = (0..14).map(|file| format!("{file},0,{},{}\n", file * 28672, 28672)).collect();
    let places = folder.image("places.csv", format!("file,offset,disk,length\n{places}").as_bytes());
    let other = folder.text("t.csv");
    let tenants = [DEVICE, FEW, ("--allocate", "lru-sp"), ("--control", &control)];
    let aoio = ("--policy", "aoio");
    let flags = [
        flag("--join", "", &[]).of(Of::Two),
        flag("--against", "fifo", &[("--policy", "lru,fifo")]).of(Of::Two),
        flag(GENERATED.0, GENERATED.1, &[REQUESTS]).or("zipf:blocks=50").of(Of::Nothing),
        flag(REQUESTS.0, REQUESTS.1, &[GENERATED]).or("250").of(Of::Nothing),
        flag("--seed", "7", &[GENERATED, REQUESTS]).or("8").of(Of::Nothing),
        flag("--writes", "50%", &[GENERATED, REQUESTS]).or("10%").of(Of::Nothing),
        flag("--arrivals", "poisson:900us", &[GENERATED, REQUESTS, WRITES, DEVICE, FEW]).or("300us").of(Of::Nothing),
        flag("--format", "raw-u32", &[]).of(Of::File("t.bin")),
        flag("--columns", "offset=offset,length=latency_ns,op=op,offset-unit=bytes,length-unit=bytes", &[]),
        flag("--stream", "pc8", &[("--policy", "pcc")]).of(Of::File("program.csv")),
        flag("--skip-bad", "", &[]).of(Of::File("bad.csv")),
        flag("--block-size", "8K", &[]),
        flag("--limit", "200", &[]),
        flag("--policy", "lirs", &[]),
        flag("--size", "10b,20b,30b,40b", &[]),
        flag("--levels", "20b,40b", &[]),
        flag("--costs", "0,1ms,9ms", &[("--levels", "20b,40b")]),
        flag("--clients", "", &[("--levels", "20b,40b")]),
        flag("--contents", &contents, &[]),
        flag("--content", "dedup", &[("--contents", &contents)]),
        flag(
            "--content-cpu",
            "1%",
            &[
                ("--contents", &contents),
                ("--content", "dedup+zstd"),
                ("--generate", "uniform:blocks=2000"),
                ("--requests", "2000"),
                ("--device", "ssd-nvme"),
                ("--think", "0ms"),
                ("--policy", "lru"),
                ("--size", "300b"),
            ],
        )
        .of(Of::Nothing),
        flag("--ops", "reads", &[]),
        flag("--collapse", "", &[]),
        flag("--sample", "50%", &[]),
        flag("--shards", "2", &[("--size", "20b")]),
        flag("--warmup", "100", &[]),
        flag("--patterns", &other, &[aoio]),
        flag("--patterns-part", "30%", &[aoio, ("--patterns", &other)]),
        flag(DEVICE.0, DEVICE.1, &[FEW]),
        flag("--level", "ssd-nvme:64K", &[DEVICE, FEW]),
        flag("--readahead", "linux", &[FEW]),
        flag("--scheduler", "first-come", &[DEVICE, FEW, ("--think", "0ms")]).of(Of::Two),
        flag("--think", "3ms", &[DEVICE, FEW]),
        flag("--pace", "2x", &[DEVICE, FEW]),
        flag("--extents", &places, &[DEVICE, FEW]),
        flag("--shared", "", &[DEVICE, FEW]).of(Of::Two),
        flag("--allocate", "static", &[DEVICE, FEW]),
        flag("--control", &control, &[DEVICE, FEW, ("--allocate", "lru-sp")]),
        flag("--prefetch", "batch=2", &tenants),
        flag("--json", "", &[]),
        flag("--csv", "", &[]),
        flag("--html", "", &[]),
        flag("--force", "", &[("--html", "")]),
    ];
    let others = [
        ("--threads", "results are the same with any number"),
        ("--svg", "it needs a browser, and the charts are those of --html; `tables` has a test of it"),
    ];
    check_all("sim", &flags, &others);
    Walk {
        flags: &flags,
        before: &|of| trace(&folder, of),
        run: &|line, number| results("sim", &folder, line, number),
        allowed: &[
            ("--json", &[], "all results are compared as JSON, or as CSV"),
            ("--extents", &["--content-cpu"], "the workload reads no runs of these files"),
            ("--ops", &["--content-cpu"], "the workload has no writes"),
            ("--force", &[], "there is no earlier page; `destroys` has tests of it"),
        ],
    }
    // A sixth of the pairs, and all before a release: they take minutes of processor time.
    .go_in_part(part, 4 * nigh_testkit::runs(6, 1) as usize);
}

#[test]
fn flags_8_of_plan_are_refused_or_change_something() {
    let folder = Folder::new();
    traces(&folder);
    let flags = [
        flag("--have", "30b", &[]),
        flag("--add", "20b", &[]),
        flag("--target", "50%", &[]),
        flag("--cost", "3/GiB", &[]),
        flag("--policy", "lirs,lru", &[]),
        flag("--format", "raw-u32", &[]).of(Of::File("t.bin")),
        flag("--columns", "offset=offset,length=latency_ns,op=op,offset-unit=bytes,length-unit=bytes", &[]),
        flag("--stream", "pc8", &[("--policy", "pcc,lru")]).of(Of::File("program.csv")),
        flag("--skip-bad", "", &[]).of(Of::File("bad.csv")),
        flag("--block-size", "8K", &[]),
        flag("--limit", "200", &[]),
        flag("--ops", "reads", &[]),
        flag("--sample", "50%", &[]),
        flag(DEVICE.0, DEVICE.1, &[]),
        flag("--level", "ssd-nvme:60b", &[DEVICE]),
        flag("--level-cost", "1/GiB", &[DEVICE, ("--level", "ssd-nvme:60b"), ("--cost", "3/GiB")]),
        flag("--readahead", "none", &[]),
        flag("--scheduler", "first-come", &[DEVICE, ("--think", "0ms")]),
        flag("--think", "3ms", &[DEVICE]),
        flag("--pace", "2x", &[DEVICE]),
        flag("--json", "", &[]),
        flag("--html", "", &[]),
        flag("--force", "", &[("--html", "")]),
    ];
    let others = [
        ("--threads", "results are the same with any number"),
        ("--control", "it asks a server; `agreement` has tests of it, and clap refuses it beside the others"),
    ];
    check_all("plan", &flags, &others);
    Walk {
        flags: &flags,
        before: &|of| trace(&folder, of),
        run: &|line, number| results("plan", &folder, line, number),
        allowed: &[
            ("--json", &[], "all results are compared as JSON"),
            ("--force", &[], "there is no earlier page; `destroys` has tests of it"),
        ],
    }
    .go();
}

#[test]
fn flags_8_of_serve_are_refused_or_change_what_check_prints() {
    let folder = Folder::new();
    let (image, config) = (folder.empty_image("image", 4 << 20), folder.image("nigh.toml", b"depth = 9\n"));
    let (disk, level) = (format!("disk={image}"), format!("file:{}:4M", folder.text("level")));
    let (socket, home) = (format!("unix:{}", folder.text("socket")), Path::new(&image).parent().unwrap());
    let (unix, tcp) = (("--listen", &*socket), ("--listen", "tcp:localhost:0"));
    let tenants = ("--allocate", "lru-sp");
    let record = folder.text("record.parquet");
    let machine = format!("disk={}", folder.text("machine.socket"));
    let flags = [
        flag(unix.0, unix.1, &[]),
        flag("--vhost-user", &machine, &[]),
        flag("--ublk", "disk", &[]),
        flag("--socket-mode", "0660", &[unix]),
        flag("--socket-group", "root", &[unix]),
        flag("--stdio", "", &[]),
        flag("--record", &record, &[]),
        flag("--memory", "64M", &[]),
        flag("--memory-max", "3G", &[]),
        flag("--content", "dedup", &[]),
        flag("--content-cpu", "5%", &[("--content", "dedup")]),
        flag("--level", &level, &[]),
        flag("--warm", &folder.text("warm"), &[]),
        flag("--policy", "arc", &[]),
        flag("--allocate", "static", &[]),
        flag("--prefetch", "batch=4", &[tenants]),
        flag("--write-mode", "through", &[]),
        flag("--readahead", "none", &[]),
        flag("--scheduler", "deadline", &[]),
        flag("--depth", "3", &[]),
        flag("--fail-after", "9s", &[]),
        flag("--stop-within", "9s", &[]),
        flag("--curves", "100", &[]),
        Flag { name: "--verify=false", ..flag("--verify=false", "", &[]) },
        flag("--set", "disk:iops=5", &[]),
        flag("--read-only", "", &[]),
        flag("--shards", "3", &[]),
        flag("--connections", "5", &[]),
        flag("--metrics", "127.0.0.1:9", &[]),
        flag("--slow", "100ms", &[]),
        flag("--tls", "certificate=a.pem,key=a.key", &[]),
        flag("--insecure-tcp", "", &[tcp]),
        flag("--core-dumps", "", &[]),
        flag("--user", "nobody", &[]),
        flag("--sandbox-allow", home.to_str().unwrap(), &[]),
        flag("--no-sandbox", "", &[]),
        flag("--control", &folder.text("control"), &[]),
        flag("--config", &config, &[]),
    ];
    let others = [
        ("--take-over", "it needs a disk in an object store; `objects` has tests of it"),
        ("--replace", "it needs a server that runs; `replace` has tests of it"),
        ("--accept-loss", "it needs a server that was killed; `replace` has tests of it"),
        ("--check", "each command has it"),
        ("--print-config", "it ends the command"),
        ("--log", "it chooses messages"),
        ("--verify", "walked with its value"),
    ];
    let named: Vec<Flag> = flags.iter().filter(|of| !of.name.contains('=')).map(|of| flag(of.name, "", &[])).collect();
    check_all("serve", &named, &others);
    let run = |line: &Line, _: usize| {
        let mut arguments = arguments("serve", line);
        arguments.push("--check".to_owned());
        let output = nigh(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        // It explains first, and then looks for files that are not there.
        (!output.stdout.is_empty()).then(|| String::from_utf8(output.stdout).unwrap())
    };
    Walk {
        flags: &flags,
        before: &|_| vec![disk.clone()],
        run: &run,
        allowed: &[
            ("--insecure-tcp", &["--listen", "--tls"], "it concerns passed sockets, too"),
            ("--depth", &["--config"], "flags go before the file"),
            ("--config", &["--depth"], "flags go before the file"),
        ],
    }
    .go();
}

/// The ways to record differ in what they can do.
#[test]
fn flags_8_of_record_are_refused_where_they_do_nothing() {
    let program: &[&str] = &["--", "true"];
    for (mode, ignored) in [
        (&["--disk", "vda"][..], &["--lossy", "--faults", "--ptrace", "--private", "--export=a", "--sample=1%"][..]),
        (&["--ptrace"], &["--lossy", "--faults", "--export=a", "--sample=1%"]),
        (&["--pid", "1"], &["--lossy", "--faults", "--ptrace", "--export=a", "--sample=1%"]),
        (&[], &["--export=a", "--sample=1%"]),
    ] {
        for flag in ignored {
            let after = if mode.first().is_none_or(|mode| *mode == "--ptrace") { program } else { &[] };
            let output = nigh(&[&["record", "-o", "/no-such-folder/a.parquet"], mode, &[flag], after].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let name = flag.split('=').next().unwrap();
            assert!(!output.status.success() && said.contains(name), "{mode:?} {flag}: {said}");
        }
    }
}
