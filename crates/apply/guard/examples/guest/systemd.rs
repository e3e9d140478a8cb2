//! The guard as a service of systemd: it sets its units' values by `systemctl`, and what it leaves when it is killed, its unit restores.

use std::process::Command;
use std::time::Instant;

use crate::MIB;
use crate::whole::{WANTED, is_service, low, protected, told, until};

const PROGRAMS: [(&str, &str); 2] = [
    ("box.slice/box-a.slice/first.service", "box.slice/box-a.slice"),
    ("box.slice/box-b.slice/second.service", "box.slice/box-b.slice"),
];

pub(crate) fn run() -> bool {
    for (group, _) in PROGRAMS {
        let [_, slice, unit] = group.split('/').collect::<Vec<_>>()[..] else { unreachable!("it has three parts") };
        let place = [format!("--slice={slice}"), format!("--unit={unit}")];
        say("systemd-run", &[&place[0], &place[1], "--quiet", "/usr/bin/guest", "thrash", &WANTED.to_string()]);
    }
    let begin = Instant::now();
    let seconds = || begin.elapsed().as_secs();
    say("systemctl", &["start", "nigh-guard"]);
    let service = || say("systemctl", &["show", "--property=MainPID", "--value", "nigh-guard"]);
    until("service", || is_service(service().parse().expect("a process")).then_some(()));

    let (group, above) = until("protection", || protected(&PROGRAMS));
    for group in [group, above] {
        let unit = group.rsplit('/').next().expect("a unit");
        let known = || say("systemctl", &["show", "--property=MemoryLow", "--value", unit]);
        // The protection follows the demand: both are read until they agree.
        let bytes =
            until("agreement", || Some(known()).filter(|known| *known == low(group).to_string() && known != "0"));
        let mib = bytes.parse::<u64>().expect("bytes") / MIB;
        println!("guest: protected after {} s: MemoryLow of {unit} {mib} MiB, as the kernel has it", seconds());
    }
    until("release", || (low(group) == 0 && low(above) == 0).then_some(()));
    println!("guest: released after {} s: memory.low of {group} 0, of {above} 0", seconds());

    let (group, _) = until("other protection", || protected(&PROGRAMS));
    let killed = service();
    say("systemctl", &["kill", "--signal=KILL", "nigh-guard"]);
    let is_restored = || PROGRAMS.iter().all(|(group, above)| low(group) == 0 && low(above) == 0);
    until("restoring", || is_restored().then_some(()));
    println!("guest: killed while {group} was protected, restored after {} s", seconds());
    let next = until("restart", || Some(service()).filter(|next| *next != killed && next != "0"));
    println!("guest: process {killed} was followed by {next}");
    until("third protection", || protected(&PROGRAMS));
    say("systemctl", &["stop", "nigh-guard"]);
    println!("guest: stopped after {} s: everything is restored: {}", seconds(), is_restored());
    told().lines().for_each(|line| println!("guest: log: {line}"));
    is_restored()
}

/// The output of a program that succeeds.
fn say(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("systemd is installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
