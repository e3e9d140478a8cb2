//! `nigh guard` as its users meet it: the real binary, on a kernel made of files.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use nigh_guard::Version;

#[path = "../../../apply/guard/tests/guard/common.rs"]
#[allow(dead_code, reason = "shared with the tests of the library, which use more of it")]
mod common;

use common::{MIB, Machine};

/// A running guard, killed when dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nigh(machine: &Machine, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.arg("guard").args(arguments).stdin(Stdio::null());
    command.arg("--cgroupfs").arg(machine.cgroups()).arg("--procfs").arg(machine.proc());
    command.arg("--state").arg(machine.journal().parent().unwrap());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("nigh starts")
}

/// The one line that a failing command prints.
fn complaint(command: &mut Command) -> String {
    let output = output(command);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    text
}

/// A guard that has protected vx, the lines that it prints from then on, and the machine.
fn protecting(machine: &mut Machine, more: &[&str]) -> (Service, BufReader<std::process::ChildStderr>) {
    let mut process = nigh(machine, more).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(process.stderr.take().unwrap());
    let service = Service(process);
    for _ in 0..600 {
        machine.second(&[(10, 333), (11, 340)]);
        std::thread::sleep(Duration::from_millis(100));
        if machine.read("box/vx/memory.low") != "0" {
            return (service, stderr);
        }
    }
    panic!("nothing is protected");
}

#[test]
fn it_protects_tells_and_restores_when_it_is_stopped() {
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let (mut service, mut stderr) = protecting(&mut machine, &["--metrics", "127.0.0.1:0"]);
    assert_eq!(machine.read("box/vx/memory.low"), (116 * MIB).to_string());
    let program = std::fs::read_link(format!("/proc/{}/exe", service.0.id())).unwrap();
    assert_eq!(program.file_name().unwrap(), "nigh-guard", "a service is the small program");

    let json = output(&mut nigh(&machine, &["status", "--json"]));
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&status["protections"], &status["controller"]), (&1.into(), &"v2".into()), "{status}");
    let scope = &status["scopes"][0];
    assert_eq!(
        (&scope["scope"], &scope["state"], &scope["protected"], &scope["mechanism"]),
        (&"box".into(), &"protection".into(), &"box/vx".into(), &"low".into()),
        "{status}"
    );
    let text = String::from_utf8(output(&mut nigh(&machine, &["status"])).stdout).unwrap();
    assert!(text.contains("/box (256 MiB, 2 groups): protection, box/vx protected by low"), "{text}");
    let second = complaint(&mut nigh(&machine, &[]));
    assert!(second.contains("another guard is running"), "{second}");

    let stopped = Command::new("kill").arg(service.0.id().to_string()).status().unwrap();
    assert!(stopped.success() && service.0.wait().unwrap().success());
    assert_eq!(machine.values(), before);
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    for said in [
        "no pressure files",
        "it needs the least additional memory",
        "group=\"box/vx\"",
        "why=\"the guard is stopping\"",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    let nobody = complaint(&mut nigh(&machine, &["status"]));
    assert!(nobody.contains("no guard is running"), "{nobody}");
}

/// The lines that a guard prints up to the first with `last` in it.
fn lines_to(stderr: &mut impl BufRead, last: &str) -> Vec<String> {
    let mut told = Vec::new();
    for line in stderr.lines() {
        told.push(line.unwrap());
        if told[told.len() - 1].contains(last) {
            return told;
        }
    }
    panic!("it never said '{last}': {told:?}");
}

#[test]
fn while_all_is_well_it_does_not_even_look() {
    let machine = Machine::thrashing(Version::V2);
    // The files of a disk never report pressure.
    for name in ["memory", "io"] {
        std::fs::write(machine.proc().join("pressure").join(name), "").unwrap();
    }
    let mut process = nigh(&machine, &["--log", "debug"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let service = Service(process);
    lines_to(&mut stderr, "asleep until there is pressure");
    let told = std::fs::read_to_string(machine.proc().join("pressure/memory")).unwrap();
    assert!(told.starts_with("some "), "{told}");
    let reads = || {
        let text = std::fs::read_to_string(format!("/proc/{}/io", service.0.id())).ok()?;
        text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse::<u64>().ok())
    };
    let Some(before) = reads() else {
        println!("skipped: while_all_is_well_it_does_not_even_look: the kernel does not count reads");
        return;
    };
    // More than two ticks.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(reads(), Some(before));
}

#[test]
fn what_is_missing_or_refused_is_told_in_one_line_each() {
    let mut machine = Machine::thrashing(Version::V2);
    for group in ["box/gz", "box/vx"] {
        // A folder in place of the file refuses every write, to root as well.
        std::fs::remove_file(machine.memory(&format!("{group}/memory.low"))).unwrap();
        std::fs::create_dir(machine.memory(&format!("{group}/memory.low"))).unwrap();
    }
    let before = machine.values();
    let mut process = nigh(&machine, &["--mechanism", "low"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let _service = Service(process);
    let ready = lines_to(&mut stderr, "no pressure files");
    assert_eq!(ready.len(), 2, "{ready:?}");
    assert!(ready[1].contains("pressure/memory: No such file") && ready[1].contains("pressure/io"), "{ready:?}");
    let (stop, stopped) = std::sync::mpsc::channel();
    let thrashing = &mut machine;
    let told = std::thread::scope(|threads| {
        threads.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(100)).is_err() {
                thrashing.second(&[(10, 333), (11, 340)]);
            }
        });
        let told = lines_to(&mut stderr, "run fewer programs");
        stop.send(()).unwrap();
        told
    });
    // On a machine that is busy with other tests, the thrashing can pause, and it is reported again when it goes on.
    let (_, refused) = told.split_last().unwrap();
    assert!(refused.len() >= 2 && refused.len().is_multiple_of(2), "{told:?}");
    for (line, group) in refused.iter().zip(["box/vx", "box/gz"].into_iter().cycle()) {
        let file = machine.memory(&format!("{group}/memory.low"));
        assert!(line.contains("not protected") && line.contains(&file.display().to_string()), "{line}");
    }
    assert_eq!(machine.values(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn after_a_kill_restore_undoes_everything() {
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let (service, _) = protecting(&mut machine, &[]);
    drop(service);
    assert_ne!(machine.values(), before);
    let restored = output(&mut nigh(&machine, &["restore"]));
    let text = String::from_utf8(restored.stdout).unwrap();
    assert!(text.ends_with("box/vx/memory.low = 0\n") && restored.status.success(), "{text}");
    assert_eq!(machine.values(), before);
    let again = output(&mut nigh(&machine, &["restore"]));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "nothing to restore\n");
}

#[test]
fn prometheus_reads_its_metrics() {
    let machine = Machine::thrashing(Version::V1);
    let mut command = nigh(&machine, &["--dry-run", "--log", "info", "--metrics", "127.0.0.1:0"]);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let _service = Service(process);
    let address = lines.find_map(|line| Some(line.split_once("metrics address=")?.1.to_owned()));
    let address = address.expect("it says where its metrics are");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let names = [
        "protections_total 0",
        "protected_seconds_total 0.0",
        "saved_seconds_total 0.0",
        "refusals_total 0",
        "faults_total 0",
        "load_controls_total 0",
    ];
    for name in names {
        assert!(answer.contains(&format!("\nnigh_guard_{name}\n")), "{name}: {answer}");
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_command_runs_in_a_group_of_its_own_and_its_end_is_ours() {
    let machine = Machine::new(Version::V2);
    let state = "0::/\n";
    std::fs::create_dir(machine.proc().join("self")).unwrap();
    std::fs::write(machine.proc().join("self/cgroup"), state).unwrap();
    std::fs::write(machine.memory("cgroup.subtree_control"), "cpu").unwrap();
    // A folder does not get the files that the kernel puts into a new cgroup: the one to be entered is there before.
    machine.group("jobs", None);
    machine.group("jobs/one", None);
    std::fs::write(machine.memory("jobs/cgroup.subtree_control"), "memory").unwrap();
    let script = format!("cat {}; exit 7", machine.memory("jobs/one/cgroup.procs").display());
    let run = output(nigh(&machine, &["run", "--within", "jobs", "--name", "one"]).args(["--", "sh", "-c", &script]));
    assert_eq!((run.status.code(), String::from_utf8_lossy(&run.stdout).trim()), (Some(7), "0"), "{run:?}");
    assert_eq!(last_line(&run), "nigh: nothing thrashed in 0 s; no protection was needed");
    assert_eq!(machine.read("cgroup.subtree_control"), "+memory");
    assert_eq!(machine.read("cgroup.procs"), "0", "the parent has gone back");
    let killed =
        output(nigh(&machine, &["run", "--within", "jobs", "--name", "one"]).args(["--", "sh", "-c", "kill -9 $$"]));
    assert_eq!(killed.status.code(), Some(128 + 9));
    let missing =
        complaint(nigh(&machine, &["run", "--within", "jobs", "--name", "one"]).args(["--", "/no/such/program"]));
    assert!(missing.contains("/no/such/program"), "{missing}");
}

#[test]
fn status_10_silent_connections_delay_nobody() {
    let machine = Machine::new(Version::V2);
    let state = machine.journal().parent().unwrap().to_owned();
    let mut process = nigh(&machine, &["--metrics", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let _service = Service(process);
    let told = lines_to(&mut stderr, "metrics address=");
    let address = told.last().and_then(|line| line.split_once("metrics address=")).unwrap().1.to_owned();
    let _local: Vec<_> = (0..300).map(|_| UnixStream::connect(state.join("guard.sock")).unwrap()).collect();
    let _tcp: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let answer = output(&mut nigh(&machine, &["status"]));
    assert!(answer.status.success(), "{answer:?}");
    // A request may come in parts.
    let mut slow = TcpStream::connect(&address).unwrap();
    for part in ["GET /met", "rics HTTP/1.1\r\n", "Host: x\r\n\r\n"] {
        slow.write_all(part.as_bytes()).unwrap();
        assert!(output(&mut nigh(&machine, &["status"])).status.success());
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn savings_11_limits_of_the_kernel_are_told_at_the_start() {
    let told = "only memory that can be swapped is protected, not pages of files";
    for (version, expected) in [(Version::V1, true), (Version::V2, false)] {
        let machine = Machine::thrashing(version);
        let mut process = nigh(&machine, &[]).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let service = Service(process);
        let log = lines_to(&mut stderr, "no pressure files").join("\n");
        drop(service);
        assert_eq!(log.contains(told), expected, "{log}");
        let ran = output(&mut command(&machine, 0));
        let lines = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(lines.lines().next().is_some_and(|line| line.contains(told)), expected, "{lines}");
        let mut dry = nigh(&machine, &["--dry-run"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(dry.stdout.take().unwrap());
        let _dry = Service(dry);
        assert_eq!(lines_to(&mut stdout, " s  ").join("\n").contains(told), expected);
    }
}

/// The last line that a dry run prints while groups have these numbers of major faults a second.
fn dry_report(machine: &mut Machine, faults: &[(u32, u64)]) -> String {
    let mut process = nigh(machine, &["--dry-run"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let _service = Service(process);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                machine.second(faults);
            }
        });
        let told = lines_to(&mut stdout, "   6 s  ");
        drop(stop);
        told.last().cloned().unwrap_or_default()
    })
}

#[test]
fn savings_11_a_dry_run_does_not_contradict_itself() {
    let mut machine = Machine::thrashing(Version::V2);
    let calm = dry_report(&mut machine, &[]);
    assert!(calm.ends_with(": nothing thrashes"), "{calm}");
    let one = dry_report(&mut machine, &[(10, 900)]);
    assert!(
        one.ends_with(": only box/gz lost pages that it needs, and a group cannot be protected from itself"),
        "{one}"
    );
    // Of a process that is in none of the groups.
    let other = dry_report(&mut machine, &[(99, 900)]);
    assert!(other.contains(": they are of programs in no group that competes, or in one made"), "{other}");
    let mut machine = Machine::new(Version::V2);
    let none = dry_report(&mut machine, &[(99, 900)]);
    assert!(none.ends_with(": no two groups compete for memory, so none can be protected from another"), "{none}");
}

/// Folders of `group` in the hierarchies of memory and the freezer.
fn real_groups(group: &str) -> Vec<std::path::PathBuf> {
    let all =
        ["memory", "freezer"].map(|controller| std::path::Path::new("/sys/fs/cgroup").join(controller).join(group));
    all.into_iter().filter(|folder| folder.exists()).collect()
}

#[test]
fn groups_10_a_run_leaves_neither_groups_nor_files() {
    let test = "groups_10_a_run_leaves_neither_groups_nor_files";
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let within = format!("nigh-test-{}", std::process::id());
    let root = std::path::Path::new("/sys/fs/cgroup/memory").join(&within);
    if !rustix::process::geteuid().is_root() || std::fs::create_dir(&root).is_err() {
        println!("skipped: {test}: root on cgroup v1 can make groups, and nobody else");
        return;
    }
    std::fs::remove_dir(&root).unwrap();
    let run = |name: &str, script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["guard", "run", "--within", &format!("{within}/inner"), "--name", name, "--state"]).arg(&state);
        command.args(["--", "sh", "-c", script]).stdin(Stdio::null());
        command
    };
    let ran = output(&mut run("one", "exit 7"));
    assert_eq!((ran.status.code(), real_groups(&within), state.exists()), (Some(7), vec![], false), "{ran:?}");
    // A group that was there before stays, and so does one in which a process still runs.
    std::fs::create_dir(&root).unwrap();
    let ran = output(&mut run("two", "sleep 1000 >/dev/null 2>&1 & echo $!"));
    let left = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(real_groups(&format!("{within}/inner/two")).len(), 2);
    assert!(Command::new("kill").arg(left.trim()).status().unwrap().success());
    // A run that is killed leaves all it made to the next one.
    let mut killed = run("three", "echo; exec sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let entered = std::fs::read_to_string(root.join("inner/three/cgroup.procs")).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The run itself may still have been in its group.
    let (run_itself, entered) = (killed.id().to_string(), entered.split_whitespace());
    assert!(Command::new("kill").args(entered.filter(|process| *process != run_itself)).status().unwrap().success());
    let is_clean = || {
        assert!(output(&mut run("four", "true")).status.success());
        real_groups(&format!("{within}/inner")).is_empty() && !state.exists()
    };
    // The processes that were killed end soon.
    assert!((0..100).any(|_| is_clean()), "{:?}", real_groups(&within));
    assert_eq!(real_groups(&within), std::slice::from_ref(&root));
    std::fs::remove_dir(root).unwrap();
}

#[test]
fn stderr_12_a_guarded_command_runs_to_its_end_where_nothing_can_be_reported() {
    let machine = Machine::new(Version::V2);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = output(command(&machine, 0).stderr(full()));
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

/// Lets the machine thrash while `work` is done, which may read its state.
fn while_thrashing<T>(machine: &mut Machine, work: impl FnOnce() -> T) -> T {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                machine.second(&[(10, 333), (11, 340)]);
            }
        });
        let done = work();
        drop(stop);
        done
    })
}

/// A command that takes this many seconds, in a group for which there is everything that the kernel would make.
fn command(machine: &Machine, seconds: u32) -> Command {
    machine.group("jobs", None);
    machine.group("jobs/one", None);
    let mut command = nigh(machine, &["run", "--within", "jobs", "--name", "one"]);
    command.args(["--", "sleep", &seconds.to_string()]);
    command
}

#[test]
fn guard_5_protects_a_command_where_no_guard_runs_and_its_last_line_says_so() {
    let mut machine = Machine::thrashing(Version::V2);
    let mut command = command(&machine, 7);
    // The kernel would do without these.
    std::fs::write(machine.memory("cgroup.subtree_control"), "memory").unwrap();
    std::fs::write(machine.memory("jobs/cgroup.subtree_control"), "memory").unwrap();
    let before = values_of_box(&machine);
    let cgroups = machine.cgroups();
    let (ran, was_protected) = while_thrashing(&mut machine, || {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut was_protected = false;
        while process.try_wait().unwrap().is_none() {
            was_protected |= std::fs::read_to_string(cgroups.join("box/vx/memory.low")).unwrap().trim() != "0";
            std::thread::sleep(Duration::from_millis(100));
        }
        (process.wait_with_output().unwrap(), was_protected)
    });
    let line = last_line(&ran);
    assert!(was_protected && ran.status.success(), "{ran:?}");
    assert!(line.starts_with("nigh: programs thrashed; protected once for "), "{line}");
    // Its processes compute as little as before.
    assert!(line.ends_with(" s in all, never this command; whether that saved time is not known"), "{line}");
    assert_eq!(String::from_utf8_lossy(&ran.stderr).lines().count(), 1, "{ran:?}");
    assert_eq!(values_of_box(&machine), before);
    assert!(!machine.journal().exists());
}

fn values_of_box(machine: &Machine) -> Vec<(std::path::PathBuf, String)> {
    machine.values().into_iter().filter(|(file, _)| file.starts_with(machine.memory("box"))).collect()
}

#[test]
fn beside_a_guard_a_command_leaves_protection_to_it_and_takes_over_when_it_ends() {
    let mut machine = Machine::thrashing(Version::V2);
    let (mut service, _stderr) = protecting(&mut machine, &[]);
    let mut command = command(&machine, 8);
    let state = machine.journal().parent().unwrap().to_owned();
    let (ran, took_over) = while_thrashing(&mut machine, || {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert!(process.try_wait().unwrap().is_none());
        let stopped = Command::new("kill").arg(service.0.id().to_string()).status().unwrap();
        assert!(stopped.success() && service.0.wait().unwrap().success());
        let mut took_over = false;
        while process.try_wait().unwrap().is_none() {
            took_over |= UnixStream::connect(state.join("guard.sock")).is_ok();
            std::thread::sleep(Duration::from_millis(100));
        }
        (process.wait_with_output().unwrap(), took_over)
    });
    let line = last_line(&ran);
    assert!(took_over && line.contains("protected") && line.ends_with("(another guard was running)"), "{ran:?}");
    assert!(!machine.journal().exists());
}

/// A command of another user than root, if that can be had here.
fn as_nobody(test: &str, machine: &Machine, arguments: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {test}: not being root is tested as root only");
        return None;
    }
    std::fs::set_permissions(machine.cgroups().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let mut command = nigh(machine, arguments);
    command.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR");
    match Command::new(command.get_program()).arg("--version").uid(65534).gid(65534).output() {
        Ok(_) => Some(command),
        Err(error) => {
            println!("skipped: {test}: as another user: {error}");
            None
        }
    }
}

#[test]
fn a_normal_user_runs_a_command_below_the_delegated_group() {
    let test = "a_normal_user_runs_a_command_below_the_delegated_group";
    let machine = Machine::thrashing(Version::V2);
    let state = machine.journal().parent().unwrap().to_owned();
    std::fs::create_dir(machine.proc().join("self")).unwrap();
    std::fs::write(machine.proc().join("self/cgroup"), "0::/mine/shell\n").unwrap();
    let run = ["run", "--name", "one"];
    // Nothing is delegated.
    let Some(mut refused) = as_nobody(test, &machine, &run) else { return };
    let said = complaint(refused.args(["--", "true"]));
    assert!(said.starts_with("nigh: no memory cgroup is delegated to this user"), "{said}");
    assert_eq!(said.matches("Permission denied").count(), 0, "{said}");
    // A group that may not be written to is named once.
    machine.group("other", None);
    let mut refused = as_nobody(test, &machine, &["run", "--within", "other", "--name", "one"]).unwrap();
    let said = complaint(refused.args(["--", "true"]));
    assert_eq!(said.matches("Permission denied").count(), 1, "{said}");

    for group in ["mine", "mine/shell", "mine/nigh", "mine/nigh/one"] {
        machine.group(group, None);
        let files = ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.controllers"];
        std::fs::write(machine.memory(group).join("cgroup.controllers"), "memory").unwrap();
        std::fs::write(machine.memory(group).join("cgroup.subtree_control"), "memory").unwrap();
        for file in files {
            std::os::unix::fs::chown(machine.memory(group).join(file), Some(65534), Some(65534)).unwrap();
        }
    }
    std::fs::write(machine.memory("cgroup.subtree_control"), "memory").unwrap();
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65534), Some(65534)).unwrap();
    let mut run = as_nobody(test, &machine, &run).unwrap();
    let entered = machine.memory("mine/nigh/one/cgroup.procs");
    let ran = output(run.args(["--", "cat"]).arg(&entered));
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), &b"0"[..]), "{ran:?}");
    assert!(last_line(&ran).starts_with("nigh: nothing thrashed in "), "{ran:?}");
}

#[test]
fn guard_5_dry_run_needs_no_root_and_reports_every_few_seconds_also_after_a_run_as_root() {
    let test = "guard_5_dry_run_needs_no_root_and_reports_every_few_seconds_also_after_a_run_as_root";
    let mut machine = Machine::thrashing(Version::V2);
    // A run as root has left its files behind, and others may not write there.
    drop(protecting(&mut machine, &[]));
    assert!(machine.journal().exists());
    let left = machine.values();
    let Some(mut dry) = as_nobody(test, &machine, &["--dry-run"]) else { return };
    let mut process = dry.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut service = Service(process);
    let told = while_thrashing(&mut machine, || lines_to(&mut stdout, "would protect "));
    let text = told.join("\n");
    for part in ["groups compete within: /box (256 MiB, 2 groups)", "major faults/s", "would protect box/vx by low"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(machine.values(), left);
    // The reader hangs up.
    drop(stdout);
    let mut stderr = String::new();
    service.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(service.0.wait().unwrap().success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn every_user_can_ask_for_the_status() {
    let mut machine = Machine::thrashing(Version::V2);
    let (_service, _stderr) = protecting(&mut machine, &[]);
    let Some(mut ask) = as_nobody("every_user_can_ask_for_the_status", &machine, &["status"]) else { return };
    let answer = output(&mut ask);
    assert!(String::from_utf8_lossy(&answer.stdout).contains("box/vx protected by low"), "{answer:?}");
}

#[test]
fn everything_is_restored_before_ctrl_z_stops_it() {
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let (service, _stderr) = protecting(&mut machine, &[]);
    let signal = |name: &str| Command::new("kill").arg(name).arg(service.0.id().to_string()).status().unwrap();
    assert!(signal("-TSTP").success());
    let stat = format!("/proc/{}/stat", service.0.id());
    for _ in 0..100 {
        if std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(std::fs::read_to_string(&stat).unwrap().contains(") T "), "it has not stopped");
    assert_eq!(machine.values(), before);
    assert!(signal("-CONT").success());
    let vx = machine.memory("box/vx/memory.low");
    let is_protected = || {
        (0..150).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            std::fs::read_to_string(&vx).unwrap().trim() != "0"
        })
    };
    assert!(while_thrashing(&mut machine, is_protected), "it goes on");
}

#[test]
fn it_has_a_man_page() {
    let page = output(Command::new(env!("CARGO_BIN_EXE_nigh")).args(["man", "guard"]));
    let text = String::from_utf8(page.stdout).unwrap();
    for part in [".TH NIGH-GUARD 1", "\\-\\-dry\\-run", "nigh\\-guard\\-restore(1)", "SIGTERM"] {
        assert!(page.status.success() && text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_guard_that_hangs_up_is_no_answer() {
    let state = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(state.path().join("guard.sock")).unwrap();
    // It hangs up before it is asked or after: which, nobody decides.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for _ in 0..50 {
        let mut ask = Command::new(env!("CARGO_BIN_EXE_nigh"));
        let said = complaint(ask.args(["guard", "status", "--state"]).arg(state.path()).stdin(Stdio::null()));
        assert!(said.contains("no guard is running"), "{said}");
    }
}

#[test]
fn trouble_is_one_line() {
    let machine = Machine::thrashing(Version::V2);
    let told = |arguments: &[&str], expected: &str| {
        let said = complaint(&mut nigh(&machine, arguments));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    };
    told(&["--freeze", "3.5"], "--freeze is at most 3 seconds");
    told(&["--profile", "brave"], "expected default or dissertation");
    told(&["--below", "no/such"], "there is no such cgroup");
    told(&["--below", "../box"], "is no group");
    told(&["--log", "loud"], "'loud' is no level");
    told(&["run", "--within", "a", "--name", "b/c", "--", "true"], "'b/c' is no name of a group");
    let empty = tempfile::tempdir().unwrap();
    let mut nothing = Command::new(env!("CARGO_BIN_EXE_nigh"));
    nothing.args(["guard", "--state"]).arg(empty.path()).arg("--cgroupfs").arg(empty.path());
    assert!(complaint(&mut nothing).contains("no memory controller"));
    assert!(std::fs::read_dir(empty.path()).unwrap().next().is_none(), "nothing is left behind");

    if !rustix::process::geteuid().is_root() {
        println!("skipped: trouble_is_one_line: not being root is tested as root only");
        return;
    }
    let mut as_nobody = nigh(&machine, &[]);
    match as_nobody.uid(65534).gid(65534).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.starts_with("nigh: protection needs root") && said.lines().count() == 1, "{output:?}");
        }
        Err(error) => println!("skipped: trouble_is_one_line: as another user: {error}"),
    }
}
