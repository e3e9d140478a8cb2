//! `nigh serve --allocate` and `nigh ctl hint`.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::control::Controlled;
use super::{MIB, nigh, refusal, text};

const BLOCK: u64 = 4096;

fn start(arguments: &[&str]) -> Controlled {
    let own = ["loop=memory:32M", "other=memory:32M", "--allocate", "lru-sp", "--prefetch", "batch=8"];
    Controlled::start_as(tempfile::tempdir().unwrap(), &[&own, arguments].concat())
}

fn export(nigh: &Controlled, at: usize) -> Value {
    nigh.status()["exports"][at].clone()
}

#[test]
fn hints_are_heard_and_told_again() {
    let nigh = start(&["--readahead", "linux"]);
    let sidecar = nigh.path("hints.toml");
    // Twice as much as fits, twice.
    std::fs::write(
        &sidecar,
        "[[at]]\nset_policy = [{ priority = 0, policy = \"mru\" }]\npredict = [{ file = 0 }, { file = 0 }]\n",
    )
    .unwrap();
    nigh.does(&["hint", "loop", text(&sidecar)]);
    let said = nigh.does(&["hint", "loop"]);
    assert!(
        said.contains("policy = \"mru\"") && said.contains("predict = [{ file = 0, offset = 0, length ="),
        "{said}"
    );
    assert_eq!(nigh.does(&["hint", "other"]), "");
    let mut client = nigh.connect("loop");
    for at in (0..32 * MIB).step_by(64 << 10).cycle().take(2 * 512) {
        client.read(at, 64 << 10).unwrap();
    }
    let of = export(&nigh, 0);
    assert_eq!(nigh.status()["tenants"][0]["predicted"], 2 * 8192);
    let number = |name: &str| of[name].as_u64().unwrap();
    assert!(number("prefetch_used") > 0 && number("prefetch_late") <= number("prefetch_used"), "{of}");
    assert_eq!(number("prefetch_issued"), number("prefetch_used") + number("prefetch_wasted"), "all were referenced");
    assert!(number("misses") + number("prefetch_issued") < 2 * 8192, "nothing was still there in the second round");

    // Directives that it reported can be sent again, by standard input.
    let control = nigh.path("control");
    let mut hint = super::nigh(&["ctl", "--control", text(&control), "hint", "other", "-"]);
    let mut hint = hint.stdin(Stdio::piped()).spawn().unwrap();
    hint.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    assert!(hint.wait().unwrap().success());
    assert_eq!(nigh.does(&["hint", "other"]), said);
    client.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn what_cannot_be_said_is_one_line() {
    let nigh = start(&[]);
    let sidecar = nigh.path("hints.toml");
    for (said, why) in [
        ("[[at]]\npredict = [{ file = 3 }]", "disk loop: there is no file 3"),
        ("[[at]]\nset_policy = [{ priority = 0, policy = \"opt\" }]", "needs to know the future"),
        ("[[at]]\nrequest = 5\npredict = []", "take effect at once"),
        ("[[at]]\ntenant = 1\npredict = []", "take effect at once"),
        ("[[at]]\nbounds = { floor = 9, ceiling = 5 }", "expected a floor up to the ceiling"),
        ("[[at]]\nprdict = []", "hints.toml: line 2: unknown field"),
    ] {
        std::fs::write(&sidecar, said).unwrap();
        let told = nigh.refuses(&["hint", "loop", text(&sidecar)]);
        assert!(told.contains(why), "{told}");
    }
    let long = "{ file = 0, offset = 4096, length = 4096 }, ".repeat(50_000);
    std::fs::write(&sidecar, format!("[[at]]\npredict = [{long}]")).unwrap();
    assert!(nigh.refuses(&["hint", "loop", text(&sidecar)]).contains("longer than 1 MiB"));
    assert!(nigh.refuses(&["hint", "loop", "/nowhere/hints"]).contains("/nowhere/hints"));
    assert!(nigh.refuses(&["hint", "lop"]).contains("no export lop"));
    assert!(nigh.refuses(&["set", "policy", "ulc"]).contains("policy ulc does not go with tenants"));
    nigh.does(&["set", "memory", "2M"]);
    nigh.does(&["set", "memory", "8M"]);
    nigh.server.end();
    let without = Controlled::start(tempfile::tempdir().unwrap(), &["disk=memory:1M"]);
    assert!(without.refuses(&["hint", "disk"]).contains("need an allocation"));
    assert!(without.refuses(&["set", "export", "disk", "floor=100K"]).contains("needs an allocation"));
    without.server.end();
}

#[test]
fn ranges_of_an_export_are_files_by_a_list_of_extents() {
    let nigh = start(&[]);
    let (extents, sidecar) = (nigh.path("extents.csv"), nigh.path("hints.toml"));
    std::fs::write(&extents, "file,offset,disk,length\n7,0,0,409600\n8,0,1048576,32505856\n").unwrap();
    std::fs::write(&sidecar, "[[at]]\nset_priority = [{ file = 7, priority = 1 }]\n").unwrap();
    nigh.does(&["hint", "loop", text(&sidecar), "--extents", text(&extents)]);
    let mut client = nigh.connect("loop");
    let read = |client: &mut nigh_nbd::client::Client<_>, blocks: std::ops::Range<u64>| {
        blocks.for_each(|block| drop(client.read(block * BLOCK, BLOCK as usize).unwrap()));
    };
    read(&mut client, 0..100);
    read(&mut client, 256..8192);
    let before = export(&nigh, 0)["misses"].clone();
    read(&mut client, 0..100);
    assert_eq!(export(&nigh, 0)["misses"], before, "the file of higher priority was given up");
    assert!(nigh.refuses(&["hint", "loop", "--extents", "/nowhere/list"]).contains("/nowhere/list"));
    // Invalid directives change no files either.
    std::fs::write(&sidecar, "[[at]]\nrequest = 5\npredict = []\n").unwrap();
    nigh.refuses(&["hint", "other", text(&sidecar), "--extents", text(&extents)]);
    std::fs::write(&sidecar, "[[at]]\npredict = [{ file = 0 }]\n").unwrap();
    nigh.does(&["hint", "other", text(&sidecar)]);
    client.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn floors_and_ceilings_come_by_file_signal_and_command() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nigh.toml");
    let write = |floor: &str, more: &str| {
        let export = format!("[[export]]\nname = \"disk\"\ntarget = \"memory:4M\"\nfloor = \"{floor}\"\n");
        std::fs::write(&config, format!("allocate = \"static\"\nprefetch = \"batch=4\"\n{more}{export}")).unwrap();
    };
    write("1M", "");
    let path = text(&config).to_owned();
    let nigh = Controlled::start_as(folder, &["--config", &path]);
    let floor = || export(&nigh, 0)["options"]["floor"].clone();
    assert_eq!((nigh.status()["policy"].clone(), floor()), ("static".into(), MIB.into()));
    nigh.does(&["set", "export", "disk", "floor=2M,ceiling=3M"]);
    assert_eq!(floor(), 2 * MIB);
    let sidecar = nigh.path("bounds.toml");
    std::fs::write(&sidecar, "[[at]]\nbounds = { floor = 3, ceiling = 4 }\n").unwrap();
    nigh.does(&["hint", "disk", text(&sidecar)]);
    assert_eq!(floor(), 3 * BLOCK);
    assert!(nigh.does(&["hint", "disk"]).contains("bounds = { floor = 3, ceiling = 4 }"));
    write("3M", "");
    nigh.does(&["reload"]);
    assert_eq!(floor(), 3 * MIB);
    write("3M", "shards = 2\n");
    assert!(nigh.refuses(&["reload"]).contains("shards does not go with allocate"));
    write("17M", "");
    assert!(nigh.refuses(&["reload"]).contains("disk disk: expected a floor up to"));
    assert_eq!(floor(), 3 * MIB);
    nigh.server.end();
}

#[test]
fn an_allocation_leaves_no_choice_of_size_and_shards() {
    for more in [["--policy", "ulc"], ["--shards", "2"], ["--memory-max", "64M"], ["--prefetch", "batch=0"]] {
        let output = nigh(&["serve", "disk=memory:1M", "--allocate", "lru-sp"]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let check = |arguments: &[&str]| nigh(&["serve", "disk=memory:1M", "--check"]).args(arguments).output().unwrap();
    let explained = check(&["--allocate", "global", "--set", "disk:floor=1M,ceiling=5M"]);
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("allocate global, predicted blocks in batches of 16"), "{explained}");
    assert!(explained.contains("keeps 1 MiB of the cache, has at most 5 MiB of the cache"), "{explained}");
    for impossible in [["--allocate=lru-sp", "--set=disk:policy=opt"], ["--allocate=global", "--policy=lirs"]] {
        assert_eq!(check(&impossible).status.code(), Some(2), "{impossible:?}");
    }
    let floor = nigh(&["serve", "disk=memory:1M", "--set", "disk:floor=1M", "--stdio"]).output().unwrap();
    assert!(
        refusal(&floor).contains("disk disk: a tenant, a floor, a ceiling or a policy of its own needs an allocation")
    );
}

#[test]
fn tenants_have_the_policy_of_the_cache_or_their_own() {
    let set = ["--policy", "lirs", "--set", "other:policy=clock-pro", "--readahead", "none"];
    let nigh = start(&set);
    let policies = || [0, 1].map(|at| nigh.status()["tenants"][at]["policy"].as_str().unwrap().to_owned());
    assert_eq!(nigh.status()["policy"], "lru-sp/lirs");
    assert_eq!(policies(), ["lirs", "clock-pro"]);
    // A loop over more than fits, for which LRU hits nothing.
    let mut client = nigh.connect("loop");
    let misses = || export(&nigh, 0)["misses"].as_u64().unwrap();
    let mut round = || {
        let before = misses();
        (0..24 * MIB).step_by(64 << 10).for_each(|at| drop(client.read(at, 64 << 10).unwrap()));
        misses() - before
    };
    let (blocks, cache) = (24 * MIB / BLOCK, 16 * MIB / BLOCK);
    assert_eq!(round(), blocks);
    let lirs = (0..4).map(|_| round()).last().unwrap();
    assert!(lirs < blocks - cache * 9 / 10, "{lirs} of {blocks} with room for {cache}");
    nigh.does(&["set", "policy", "lru"]);
    assert_eq!(
        (policies(), nigh.status()["policy"].clone()),
        (["lru", "clock-pro"].map(str::to_owned), "lru-sp".into())
    );
    round();
    assert_eq!(round(), blocks);
    nigh.does(&["set", "export", "loop", "policy=arc"]);
    nigh.does(&["set", "export", "other", "policy=none"]);
    assert_eq!(policies(), ["arc", "lru"]);
    assert!(nigh.does(&["status"]).lines().any(|line| line.starts_with("loop ") && line.contains(" arc ")));
    assert!(nigh.refuses(&["set", "export", "loop", "policy=lrs"]).contains("lirs"));
    assert!(nigh.refuses(&["set", "export", "loop", "policy=opt"]).contains("disk loop: policy 'opt'"));
    client.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn exports_of_one_tenant_share_a_floor_a_list_and_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let image = |name: &str| super::empty_image(folder.path(), name, 4 * MIB);
    let (one, two) = (image("one"), image("two"));
    let one = format!("one={},tenant=vm,floor=1M", text(&one));
    let two = format!("two={},tenant=vm", text(&two));
    let nigh = Controlled::start_as(folder, &[&one, &two, "other=memory:32M", "--allocate", "lru-sp"]);
    let tenants = || nigh.status()["tenants"].clone();
    assert_eq!(tenants()[0]["disks"], serde_json::json!(["one", "two"]));
    assert_eq!((tenants()[0]["floor"].clone(), tenants()[1]["name"].clone()), (MIB.into(), "other".into()));
    assert_eq!(nigh.status()["exports"][1]["options"]["floor"], MIB, "the floor is of both");
    let (mut first, mut second, mut other) = (nigh.connect("one"), nigh.connect("two"), nigh.connect("other"));
    // One list, which goes from one disk to the other and back.
    first.cache(0, 64 << 10).unwrap();
    second.cache(0, 64 << 10).unwrap();
    first.cache(1 << 20, 64 << 10).unwrap();
    for (client, offset) in [(&mut first, 0), (&mut second, 0)] {
        client.read(offset, 64 << 10).unwrap();
    }
    assert_eq!(tenants()[0]["predicted"], 32);
    first.read(2 << 20, 480 << 10).unwrap();
    second.read(2 << 20, 416 << 10).unwrap();
    for at in (0..32 * MIB).step_by(256 << 10) {
        other.read(at, 256 << 10).unwrap();
    }
    assert_eq!(tenants()[0]["resident_bytes"], MIB, "what others need stays above the floor");
    let shown = nigh.does(&["status"]);
    let line = shown.lines().find(|line| line.starts_with("vm ")).unwrap();
    assert!(line.contains("1 MiB") && line.ends_with("one two"), "{shown}");

    let control = nigh.path("control");
    let top = super::nigh(&["top", "--control", text(&control), "--once", "--interval", "0.1"]).output().unwrap();
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(top.lines().any(|line| line.starts_with("vm ") && line.contains("1 MiB")), "{top}");
    assert!(
        nigh.refuses(&["set", "export", "two", "tenant=other"]).contains("the tenant of disk two, vm, cannot change")
    );
    assert!(
        nigh.refuses(&["export", "add", "three=memory:1M,tenant=vm", "floor=2M"])
            .contains("disks one and three of tenant vm give different values of floor")
    );
    nigh.does(&["set", "export", "one", "policy=lirs"]);
    assert_eq!(nigh.status()["exports"][1]["options"]["policy"], "lirs", "the policy is of both");
    second.disconnect().unwrap();
    nigh.does(&["export", "remove", "two"]);
    assert_eq!(tenants()[0]["disks"], serde_json::json!(["one"]));
    first.disconnect().unwrap();
    nigh.does(&["export", "remove", "one"]);
    assert_eq!(tenants().as_array().unwrap().len(), 1);
    nigh.does(&["export", "add", "three=memory:1M,tenant=vm,floor=2M"]);
    assert_eq!((tenants()[0]["name"].clone(), tenants()[0]["floor"].clone()), ("vm".into(), (2 * MIB).into()));
    other.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn a_reload_moves_an_export_to_another_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nigh.toml");
    let write = |tenants: [&str; 2], floors: [&str; 2]| {
        let export = |name: &str, tenant: &str, floor: &str| {
            format!("[[export]]\nname = \"{name}\"\ntarget = \"memory:4M\"\ntenant = \"{tenant}\"\n{floor}")
        };
        let exports = [export("a", tenants[0], floors[0]), export("b", tenants[1], floors[1])].concat();
        std::fs::write(&config, format!("allocate = \"lru-sp\"\n{exports}")).unwrap();
    };
    write(["vm", "vm"], ["floor = \"1M\"\n", ""]);
    let path = text(&config).to_owned();
    let nigh = Controlled::start_as(folder, &["--config", &path]);
    let tenants = || {
        let status = nigh.status();
        let shown = |tenant: &Value| (tenant["name"].clone(), tenant["disks"].clone(), tenant["floor"].clone());
        status["tenants"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
    };
    let of = |name: &str, disks: &[&str], floor: u64| (name.into(), disks.into(), floor.into());
    assert_eq!(tenants(), [of("vm", &["a", "b"], MIB)]);
    nigh.does(&["reload"]);
    assert_eq!(tenants(), [of("vm", &["a", "b"], MIB)]);
    write(["vm", "other"], ["", "floor = \"2M\"\n"]);
    nigh.does(&["reload"]);
    assert_eq!(tenants(), [of("vm", &["a"], 0), of("other", &["b"], 2 * MIB)]);
    write(["vm", "vm"], ["floor = \"1M\"\n", "floor = \"2M\"\n"]);
    assert!(nigh.refuses(&["reload"]).contains("disks a and b of tenant vm give different values of floor"));
    nigh.server.end();
}

#[test]
fn memory_moves_to_the_tenant_that_gains_and_its_share_is_shown() {
    let arguments =
        ["loop=memory:32M", "other=memory:32M", "--allocate", "utility", "--policy", "lirs", "--readahead", "none"];
    let nigh = Controlled::start_as(tempfile::tempdir().unwrap(), &arguments);
    let share = |at: usize| nigh.status()["tenants"][at]["share"].as_u64().unwrap();
    assert_eq!(share(0), share(1), "nothing is known yet");
    // One reads 12 MiB again and again, for which its part of 8 MiB is too small; the other reads all it has, once in a while.
    let (mut looping, mut scanning) = (nigh.connect("loop"), nigh.connect("other"));
    let mut place = 0;
    for _ in 0..40 {
        for at in (0..12 * MIB).step_by(64 << 10) {
            looping.read(at, 64 << 10).unwrap();
        }
        for _ in 0..32 {
            scanning.read(place, 64 << 10).unwrap();
            place = (place + (64 << 10)) % (32 * MIB);
        }
    }
    assert!(share(0) > 2 * share(1) && share(0) + share(1) <= 16 * MIB, "{} and {}", share(0), share(1));
    let shown = nigh.does(&["status"]);
    assert!(shown.contains("SHARE"), "{shown}");
    let mut top = super::nigh(&["top", "--control", text(&nigh.path("control")), "--json", "--interval", "0.1"]);
    let top: Value = serde_json::from_slice(&top.output().unwrap().stdout).unwrap();
    assert_eq!(top["tenants"][0]["share"], share(0));
    looping.disconnect().unwrap();
    scanning.disconnect().unwrap();
    nigh.server.end();
}
