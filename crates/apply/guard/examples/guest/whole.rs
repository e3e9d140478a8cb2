//! The whole guard: two programs thrash within a limit; `nigh guard` protects one and lets it go, and then the values are what they
//! were. The next guard restores the changes of one that was killed.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::{MIB, file, fill, groups, ready, start};

const LIMIT: u64 = 100 * MIB;
/// Memory of each of the two programs.
pub(crate) const WANTED: u64 = 70 * MIB;
/// The group of each program, and the one above it, which shares the limit.
const PROGRAMS: [(&str, &str); 2] = [("box/a/first", "box/a"), ("box/b/second", "box/b")];
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const LOG: &str = "/run/guard.log";
/// The program that `nigh guard` runs if it is installed.
const SERVICE: &str = "/usr/bin/nigh-guard";

pub(crate) fn run() -> bool {
    groups(LIMIT);
    let programs = PROGRAMS.map(|(group, _)| Ended(start("thrash", group, WANTED)));
    let begin = Instant::now();
    let seconds = || begin.elapsed().as_secs();

    let mut guard = guard();
    until("service", || is_service(guard.0.id()).then_some(()));
    println!("guest: nigh guard is {SERVICE}");
    let (group, above) = until("protection", || protected(&PROGRAMS));
    let [promised, bound] = [group, above].map(|group| low(group) / MIB);
    println!("guest: protected after {} s: memory.low of {group} {promised} MiB, of {above} {bound} MiB", seconds());
    assert!(bound > 0, "a group above bounds what is promised");
    until("release", || (low(group) == 0 && low(above) == 0).then_some(()));
    println!("guest: released after {} s: memory.low of {group} 0, of {above} 0", seconds());

    let (group, above) = until("other protection", || protected(&PROGRAMS));
    guard.0.kill().and_then(|()| guard.0.wait()).expect("it ran");
    drop(programs);
    std::thread::sleep(Duration::from_secs(2));
    assert!(low(group) > 0 && low(above) > 0, "nobody is left to take it back");
    println!("guest: killed after {} s: memory.low of {group} stays {} MiB", seconds(), low(group) / MIB);
    let guard = self::guard();
    let all = PROGRAMS.iter().flat_map(|(group, above)| [group, above]);
    until("restoring", || all.clone().all(|group| low(group) == 0).then_some(()));
    println!("guest: restored by the next start after {} s", seconds());
    drop(guard);
    told().lines().for_each(|line| println!("guest: log: {line}"));
    true
}

/// Goes through its memory at random, forever, with a pause after some touches: what is never still defends its pages by itself.
pub(crate) fn thrash(bytes: usize) -> ! {
    let mut memory = fill(bytes);
    ready();
    let mut state = 88_172_645_463_325_252u64;
    loop {
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % bytes;
            memory[at] = memory[at].wrapping_add(1);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn guard() -> Ended {
    let log = fs::File::options().create(true).append(true).open(LOG).expect("room");
    let mut command = Command::new("/usr/bin/nigh");
    command.args(["guard", "--log", "debug"]).stderr(log);
    Ended(command.spawn().expect("nigh starts"))
}

pub(crate) fn is_service(process: u32) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program.as_os_str() == SERVICE)
}

pub(crate) fn told() -> String {
    fs::read_to_string(LOG).unwrap_or_default()
}

/// The guard's status.
fn status() -> String {
    let output = Command::new("/usr/bin/nigh").args(["guard", "status", "--json"]).output().expect("nigh starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The one of `programs` whose group is protected.
pub(crate) fn protected(programs: &[(&'static str, &'static str)]) -> Option<(&'static str, &'static str)> {
    programs.iter().copied().find(|(group, _)| low(group) > 0)
}

pub(crate) fn low(group: &str) -> u64 {
    let file = file(group, "memory.low");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.trim().parse().expect("the guard promises numbers")
}

pub(crate) fn until<T>(what: &str, reached: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = reached() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "no {what} in {} s:\n{}{}", PATIENCE.as_secs(), status(), told());
        std::thread::sleep(Duration::from_millis(100));
    }
}
