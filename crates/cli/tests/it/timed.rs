//! `nigh sim --device` and `nigh trace layout`, as their users meet them.

use std::path::Path;

use serde_json::Value;

use crate::command::{nigh, printed, refused};

const WORKLOAD: [&str; 5] = ["sim", "--generate", "scan:blocks=3k:weight=4+zipf:blocks=5k", "--requests", "20k"];

fn workload<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let timed = ["--device", "hdd-10k", "--readahead", "linux", "--scheduler", "deadline", "--think", "0.1ms"];
    [&WORKLOAD[..], &timed, more].concat()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_same_trace_flags_and_seed_give_the_same_bytes() {
    let policies = ["--policy", "clock,lirs,2q", "--size", "2M..8M", "--json", "--writes", "20%"];
    let run = |more: &[&str]| printed(&workload(&[&policies, more].concat()));
    let first = run(&["--threads", "1"]);
    assert_eq!(first, run(&["--threads", "2"]));
    assert_ne!(first, run(&["--seed", "2"]));
    let value: Value = serde_json::from_str(&first).unwrap();
    let rows = value["results"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    for row in rows {
        let number = |name: &str| row[name].as_u64().unwrap();
        assert_eq!(number("hits") + number("joined") + number("misses"), 20_000);
        assert!(number("prefetch_used") + number("prefetch_wasted") <= number("prefetch_issued"));
        let (busy, execution) = (row["device_busy_s"].as_f64().unwrap(), row["execution_s"].as_f64().unwrap());
        assert!(busy > 0.0 && execution >= 2.0 && busy < execution + 0.1, "{busy} of {execution}");
        assert_eq!(row["sequences"]["share"].as_array().unwrap().last().unwrap(), 1.0);
    }
    // More memory, less time.
    let clock = rows.iter().filter(|row| row["policy"] == "clock").map(|row| row["execution_s"].as_f64());
    assert!(clock.is_sorted_by(|one, next| one >= next));
}

#[test]
fn tables_csv_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let table = printed(&workload(&["--policy", "clock", "--size", "10%", "--html", page.to_str().unwrap()]));
    for part in [
        "execution time in s",
        "Seagate",
        "read-ahead linux:max=128K, scheduler deadline",
        "after a think time of 0.1ms",
    ] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("\"execution_s\":") && html.contains("\"sequences\":[["));
    let csv = printed(&workload(&["--policy", "clock,lru", "--size", "10%,20%", "--csv"]));
    assert_eq!(csv.lines().count(), 5);
    assert!(csv.starts_with("policy,size_blocks,size_bytes,execution_s,device_busy_s,"), "{csv}");
}

#[test]
fn read_ahead_saves_time_where_streams_take_turns() {
    let time = |readahead: &str| {
        let text = printed(&[
            "sim",
            "--generate",
            "scan:blocks=20k+scan:blocks=20k",
            "--requests",
            "20k",
            "--device",
            "hdd-10k",
            "--policy",
            "lru",
            "--size",
            "8M",
            "--think",
            "1us",
            "--json",
            "--readahead",
            readahead,
        ]);
        let value: Value = serde_json::from_str(&text).unwrap();
        (value["results"][0]["execution_s"].as_f64().unwrap(), value["results"][0]["device_requests"].as_u64().unwrap())
    };
    // A disk alone reads ahead into its buffer, but not for two streams whose requests come one by one.
    let (none, linux) = (time("none"), time("linux"));
    assert!(linux.0 * 2.0 < none.0 && linux.1 * 10 < none.1, "{none:?} {linux:?}");
}

#[test]
fn levels_spare_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let run = |more: &[&str]| {
        let looped =
            ["sim", "--generate", "loop:blocks=4k", "--requests", "12k", "--device", "hdd-7200", "--size", "4M"];
        printed(&[&looped[..], &["--policy", "lru", "--readahead", "none"], more].concat())
    };
    let level = ["--level", "ssd-nvme:32M"];
    let (alone, with) = (run(&["--json"]), run(&[&level[..], &["--json"]].concat()));
    assert_eq!(with, run(&[&level[..], &["--json"]].concat()), "the same arguments give the same bytes");
    let [alone, with] = [alone, with].map(|text| serde_json::from_str::<Value>(&text).unwrap());
    assert_eq!((&alone["levels"], &alone["results"][0]["levels"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(
        (&with["levels"][0]["name"], &with["levels"][0]["size_bytes"]),
        (&"ssd-nvme".into(), &(32 << 20).into())
    );
    let (alone, with) = (&alone["results"][0], &with["results"][0]);
    let blocks = with["misses"].as_u64().unwrap();
    assert_eq!((blocks, alone["misses"].as_u64()), (12_000, Some(blocks)), "LRU misses each reference");
    assert_eq!(with["device_read_bytes"], 4_000 * 4096);
    assert_eq!((&with["levels"][0]["hits"], &with["level_1_hits"]), (&8_000.into(), &8_000.into()));
    assert!(with["levels"][0]["stores"].as_u64() >= Some(3_000));
    assert!(with["device_reads"].as_u64() < alone["device_reads"].as_u64());
    let table = run(&[&level[..], &["--html", page.to_str().unwrap()]].concat());
    assert!(table.contains("level of 32 MiB on ssd-nvme") && table.contains("8000 blocks read from it"), "{table}");
    assert!(std::fs::read_to_string(page).unwrap().contains("\"hits\":8000"));
    let csv = run(&[&level[..], &["--csv"]].concat());
    assert!(csv.lines().next().unwrap().contains("level_1_hits,level_2_hits"), "{csv}");
}

/// Beside the pure scheme on the same references: the engine has the same hits in memory, and in the level but for blocks that are in the
/// transit buffer, and reads the rest from the disk.
#[test]
fn the_engine_follows_unified_level_aware_caching() {
    let references =
        ["sim", "--generate", "zipf:blocks=8k", "--requests", "60k", "--policy", "ulc:first=out", "--json"];
    let run = |more: &[&str]| serde_json::from_str::<Value>(&printed(&[&references[..], more].concat())).unwrap();
    // The engine leaves 32 places of the level free.
    let pure = run(&["--levels", "400b,2016b"]);
    let timed = run(&["--size", "400b", "--device", "hdd-7200", "--level", "ssd-nvme:8M", "--think", "1ms"]);
    let (pure, timed) = (&pure["results"][0], &timed["results"][0]);
    let number = |of: &Value| of.as_i64().unwrap();
    let level = &timed["levels"][0];
    let expected = [number(&pure["hits"][0]), number(&pure["hits"][1]), number(&pure["misses"])];
    let found = [number(&timed["hits"]), number(&level["hits"]), number(&timed["device_read_bytes"]) / 4096];
    println!("{expected:?} by the scheme, {found:?} by the engine; {level}");
    let transit = number(&timed["misses"]) - found[1] - found[2];
    assert_eq!(found[0], expected[0]);
    assert_eq!(found[1] + found[2] + transit, expected[1] + expected[2]);
    assert!(
        (0..1500).contains(&transit) && found[1] <= expected[1] && found[2] <= expected[2],
        "{expected:?} {found:?}"
    );
    assert!(level["stores"].as_u64() > Some(1_000) && level["drops"] == 0);
}

#[test]
fn slips_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "far.csv", "time_ns,op,volume,offset,length\n0,read,0,4000000000000000000,4096\n");
    let two = write(folder.path(), "two.csv", "time_ns,op,volume,offset,length\n0,read,0,0,4096\n5,read,1,0,4096\n");
    let near = write(folder.path(), "near.csv", "time_ns,op,volume,offset,length\n0,read,0,0,4096\n");
    let opens = "t_us,\n0,9,cc,read,5,0,8192,1,2,3,4\n5,9,cc,read,6,0,8192,1,2,3,4\n";
    let files = write(folder.path(), "files.csv", opens);
    let profile = write(folder.path(), "disk.toml", "kind = 'disk'\ntitle = 'x'\nbytes = 1048576\nrpm = 0\n");
    let extents = write(folder.path(), "bad.extents", "file,offset,disk,length\n1,0,0,4096\n2,0,100,4096\n");
    let simulate = |more: &[&str]| refused(&[&["sim", "--policy", "lru", "--size", "1M"], more].concat());
    let beyond = simulate(&[&trace, "--device", "hdd-10k"]);
    assert!(beyond.contains("reaches byte 4000000000000004096 of volume 0"), "{beyond}");
    assert!(simulate(&[&files, "--device", "hdd-10k"]).contains("trace layout"));
    let devices = |asked: &str| simulate(&[&two, "--device", asked]);
    assert!(devices("1=hdd-10k").contains("volume 0 has no device: add 0=PROFILE"));
    assert!(devices("hdd-10k,2=ssd-sata").contains("2=ssd-sata: no request is to volume 2, only to 0, 1"));
    assert!(devices("hdd-10k,ssd-sata").contains("two profiles for all volumes"));
    assert!(devices("0=hdd-10k,0=ssd-sata").contains("two profiles for volume 0"));
    assert!(devices("x=hdd-10k").contains("'x' is no number of a volume"));
    assert!(simulate(&[&near, "--device", "hdd-11k"]).contains("hdd-10k"));
    assert!(simulate(&[&near, "--device", &profile]).contains("disk.toml: 'rpm' is 0"));
    assert!(simulate(&[&near, "--device", "none.toml"]).contains("none.toml"));
    assert!(simulate(&[&near, "--device", "hdd-10k", "--readahead", "x"]).contains("no read-ahead 'x'"));
    assert!(simulate(&[&near, "--device", "hdd-10k", "--scheduler", "x"]).contains("no scheduler 'x'"));
    assert!(simulate(&[&near, "--device", "hdd-10k", "--think", "1"]).contains("0.1ms"));
    assert!(simulate(&[&near, "--device", "hdd-10k", "--extents", &extents]).contains("overlaps"));
    let empty = write(folder.path(), "empty.extents", "");
    let lists = format!("{empty},{empty}");
    assert!(simulate(&[&near, "--device", "hdd-10k", "--extents", &lists]).contains("2 lists for 1 traces"));
    assert!(simulate(&[&near, "--device", "hdd-10k", "--sample", "10%"]).contains("--sample"));
    assert!(simulate(&[&near, "--readahead", "linux", "--sample", "10%"]).contains("would have gaps"));
    assert!(simulate(&[&near, &near, "--readahead", "linux"]).contains("one trace"));
    let level = |more: &[&str]| simulate(&[&[near.as_str(), "--device", "hdd-10k"], more].concat());
    for form in ["ssd-nvme", "ssd-nvme:", ":64M", "ssd-nvme:0", "ssd-nvme:64X"] {
        assert!(level(&["--level", form]).contains("such as ssd-nvme:64M"), "{form}");
    }
    assert!(
        level(&["--level", "ssd-nvm:64M"])
            .contains("--level ssd-nvm:64M: there is no profile 'ssd-nvm': 'nigh devices' lists them")
    );
    assert!(level(&["--level", "hdd-10k:9T"]).contains("--level: a level of"));
    assert!(level(&["--level", "hdd-10k:4095"]).contains("from 1 to"));
    assert!(level(&["--level", "ssd-nvme:1M"].repeat(3)).contains("at most two levels"));
    assert!(level(&["--policy", "ulc"]).contains("it needs levels: nigh sim has --levels, and --level with --device"));
    assert!(simulate(&[&near, "--policy", "lru,ulc"]).contains("ulc decides at which level"));
    assert!(simulate(&[&near, "--level", "ssd-nvme:1M"]).contains("--device"));
    let opt = refused(&["sim", &near, "--device", "hdd-10k", "--policy", "opt"]);
    assert!(opt.contains("future"), "{opt}");
}

/// Random reads of a volume of this many GiB.
fn random_reads(volume: u32, gib: u64, count: u64) -> Vec<String> {
    // The finalizer of SplitMix64.
    let mixed = |at: u64| (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let place = |at: u64| {
        let at = mixed((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (at ^ at >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) % (gib << 18) * 4096
    };
    (0..count).map(|at| format!("{},read,{volume},{},4096\n", at * 1_000, place(at))).collect()
}

const HEADER: &str = "time_ns,op,volume,offset,length\n";

#[test]
fn devices_3_are_as_long_as_the_trace_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let trace =
        |name: &str, gib| write(folder.path(), name, &(HEADER.to_owned() + &random_reads(0, gib, 2000).concat()));
    let (near, far) = (trace("near.csv", 8), trace("far.csv", 200));
    // As docs/sim.md has it.
    let example =
        ["--readahead", "linux", "--scheduler", "deadline", "--policy", "clock,dulo,lirs", "--size", "1M..4M"];
    let table = printed(&[&["sim", &far, "--device", "hdd-10k"], &example[..]].concat());
    assert!(table.contains("hdd-10k has 8.5 GiB, and is modelled with 204 GiB because"), "{table}");
    let run = |trace: &str, device: &str| {
        let flags = ["--device", device, "--policy", "lru", "--size", "1M", "--json", "--think", "0ms"];
        serde_json::from_str::<Value>(&printed(&[&["sim", trace], &flags[..]].concat())).unwrap()
    };
    let (short, long) = (run(&near, "hdd-10k"), run(&far, "hdd-10k"));
    assert_eq!((&short["device"]["profile_bytes"], &short["notes"]), (&Value::Null, &Value::Array(vec![])));
    assert_eq!(long["device"]["profile_bytes"], 9_105_018_880u64);
    assert_eq!(long["device"]["bytes"], 24 * 9_105_018_880u64);
    // Random reads of the whole disk take as long, whatever its size.
    let time = |value: &Value| value["results"][0]["execution_s"].as_f64().unwrap();
    assert!((time(&long) / time(&short) - 1.0).abs() < 0.05, "{} {}", time(&short), time(&long));
    for device in ["rz56", "ssd-sata", "net-volume", "object-store"] {
        assert!(time(&run(&far, device)) > 0.0, "{device}");
    }
}

#[test]
fn devices_3_are_one_for_each_volume() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [0, 3].map(|volume| random_reads(volume, 8, 1000));
    let both: String = one.iter().zip(&other).map(|(one, other)| format!("{one}{other}")).collect();
    let trace = write(folder.path(), "both.csv", &(HEADER.to_owned() + &both));
    let run = |device: &str| {
        let flags = ["--device", device, "--policy", "lru", "--size", "1M", "--json", "--think", "0ms"];
        serde_json::from_str::<Value>(&printed(&[&["sim", &trace], &flags[..]].concat())).unwrap()
    };
    let (disks, mixed) = (run("hdd-10k"), run("hdd-10k,3=ssd-sata"));
    let requests = |value: &Value, at: usize| value["results"][0]["disks"][at]["device_requests"].as_u64().unwrap();
    assert_eq!((requests(&disks, 0), requests(&disks, 1)), (1000, 1000));
    assert_eq!((&mixed["devices"][1]["volume"], &mixed["devices"][1]["name"]), (&3.into(), &"ssd-sata".into()));
    let busy = |value: &Value, at: usize| value["results"][0]["disks"][at]["device_busy_s"].as_f64().unwrap();
    assert!(
        (busy(&mixed, 0) / busy(&disks, 0) - 1.0).abs() < 0.05 && busy(&mixed, 1) * 10.0 < busy(&disks, 1),
        "{mixed}"
    );
    assert_eq!(
        mixed,
        run("0=hdd-10k,3=ssd-sata")
            .pointer("/results")
            .map(|results| {
                let mut named = mixed.clone();
                named["results"] = results.clone();
                named
            })
            .unwrap()
    );
    let flags = ["--device", "0=hdd-10k,3=ssd-sata", "--policy", "lru", "--size", "1M", "--think", "0ms"];
    let table = printed(&[&["sim", &trace], &flags[..]].concat());
    assert!(table.contains("volume 3 on ssd-sata"), "{table}");
    // Formats with a number for each device.
    let mqsim = write(folder.path(), "two.mqsim", "0 0 0 8 1\n1000 1 64 8 1\n2000 0 800 8 0\n");
    let table =
        printed(&["sim", &mqsim, "--format", "mqsim", "--device", "ssd-nvme", "--policy", "lru", "--size", "1M"]);
    assert!(table.contains("volume 1 on ssd-nvme"), "{table}");
    // Of many volumes, the busiest ones have a line.
    let rows: String = (0..200u64).map(|at| format!("{} {} {} 8 1\n", at * 1000, at % 20 * at % 7, at * 8)).collect();
    let mqsim = write(folder.path(), "many.mqsim", &rows);
    let table =
        printed(&["sim", &mqsim, "--format", "mqsim", "--device", "ssd-nvme", "--policy", "lru", "--size", "1M"]);
    assert!(
        table.matches("on ssd-nvme: busy for").count() == 3 && table.contains("4 other volumes: the busiest of them"),
        "{table}"
    );
}

#[test]
fn several_traces_are_programs_on_one_disk() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |from: u64| (0..500u64).map(move |at| format!("{},read,0,{},4096\n", at * 1_000, (from + at) * 4096));
    let header = "time_ns,op,volume,offset,length\n".to_owned();
    let one = write(folder.path(), "one.csv", &(header.clone() + &rows(0).collect::<String>()));
    let other = write(folder.path(), "other.csv", &(header + &rows(1_000_000).collect::<String>()));
    let run = |traces: &[&str]| {
        let more = ["--device", "hdd-10k", "--policy", "lru", "--size", "8M", "--json", "--readahead", "linux"];
        let closed = ["--pace", "closed"];
        serde_json::from_str::<Value>(&printed(&[&["sim"], traces, &more, &closed].concat())).unwrap()
    };
    let alone = run(&[&one]);
    let both = run(&[&one, &other, "--shared"]);
    let programs = |value: &Value| value["results"][0]["programs"].as_array().unwrap().clone();
    assert_eq!((programs(&alone).len(), programs(&both).len()), (1, 2));
    assert_eq!((&programs(&both)[0]["name"], &programs(&both)[1]["name"]), (&"one.csv".into(), &"other.csv".into()));
    // Each waits for the other's requests, too.
    let time = |program: &Value| program["execution_s"].as_f64().unwrap();
    assert!(time(&programs(&both)[0]) > 1.5 * time(&programs(&alone)[0]));
    // The same trace twice reads each block once.
    let twice = run(&[&one, &one, "--shared"]);
    assert_eq!(twice["results"][0]["misses"].as_u64(), alone["results"][0]["misses"].as_u64());
    assert_eq!(twice["trace"]["distinct_blocks"], 500);
}

#[test]
fn layout_puts_files_on_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let header = "t_us,pid,app,op,file_id,off,len,pc5,pc8,pc16,ra0,sp_dist,nframes\n";
    let rows =
        "0,9,cc,read,5,0,8192,1,2,3,4,0,9\n7,9,cc,read,8,4096,100,1,2,3,4,0,9\n9,9,cc,write,5,9000,10,1,2,3,4,0,9\n";
    let trace = write(folder.path(), "cc.csv", &format!("{header}{rows}"));
    let files = write(folder.path(), "files.csv", "file_id,size,path\n5,20000,/z, with a comma\n8,5000,/a\n");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (placed, extents) = (path("placed.csv"), path("extents.csv"));
    printed(&[
        "trace",
        "layout",
        &trace,
        &placed,
        "--files",
        &files,
        "--order",
        "name",
        "--at",
        "1M",
        "--extents",
        &extents,
    ]);
    let text = std::fs::read_to_string(&placed).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // File 8 lies first, in two blocks.
    let expected =
        ["0,read,0,1056768,8192,9,2,0,0", "7000,read,0,1052672,100,9,2,0,0", "9000,write,0,1065768,10,9,2,0,0"];
    assert_eq!(lines[1..], expected);
    let text = std::fs::read_to_string(&extents).unwrap();
    assert_eq!(text, "file,offset,disk,length\n8,0,1048576,5000\n5,0,1056768,20000\n");

    // The same places again, from the list.
    let again = path("again.csv");
    printed(&["trace", "layout", &trace, &again, "--places", &extents]);
    assert_eq!(std::fs::read_to_string(&again).unwrap(), std::fs::read_to_string(&placed).unwrap());
    // In pieces, the same for the same seed.
    let pieces = |seed: &str, name: &str| {
        let to = path(name);
        printed(&["trace", "layout", &trace, &to, "--files", &files, "--fragmentation", "100%", "--seed", seed]);
        std::fs::read_to_string(to).unwrap()
    };
    let first = pieces("1", "1.csv");
    assert_eq!(first.lines().count(), 5, "{first}");
    assert_eq!(first, pieces("1", "2.csv"));

    let simulate =
        ["sim", &placed, "--device", "hdd-10k", "--extents", &extents, "--readahead", "linux", "--policy", "lru"];
    assert!(printed(&simulate).contains("execution time"));
    let short = write(folder.path(), "short.extents", "5,0,0,4096\n");
    let error = refused(&["trace", "layout", &trace, &path("x.csv"), "--places", &short]);
    assert!(error.contains("file 5: no extents cover"), "{error}");
    assert!(!folder.path().join("x.csv").exists());
    assert!(refused(&["trace", "layout", &trace, &path("x.csv"), "--at", "100"]).contains("whole blocks"));
    assert!(refused(&["trace", "layout", &trace, &path("x.csv"), "--fragmentation", "2"]).contains("share"));
}

#[test]
fn real_files_lie_where_the_system_says() {
    if !nigh_testkit::tools::installed("real_files_lie_where_the_system_says", "filefrag") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let real = write(folder.path(), "real", &"x".repeat(200_000));
    std::fs::File::open(&real).unwrap().sync_all().unwrap();
    let trace =
        write(folder.path(), "t.csv", "t_us,\n0,9,cc,read,5,0,8192,1,2,3,4\n5,9,cc,read,5,100000,8192,1,2,3,4\n");
    let files = write(folder.path(), "files.csv", &format!("file_id,size,path\n5,200000,{real}\n"));
    let to = folder.path().join("to.csv");
    let output =
        nigh(&["trace", "layout", &trace, to.to_str().unwrap(), "--files", &files, "--fiemap", "--format", "pc"]);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("filefrag reports no extents"), "{text}");
        println!("skipped: real_files_lie_where_the_system_says: this file system does not tell");
        return;
    }
    let text = std::fs::read_to_string(to).unwrap();
    let offsets: Vec<u64> = text.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().parse().unwrap()).collect();
    assert!(offsets.len() >= 2 && offsets[0] > 0, "{text}");
    let missing = write(folder.path(), "missing.csv", "file_id,size,path\n5,200000,/no/such/file\n");
    let none = folder.path().join("none.csv");
    let error = refused(&[
        "trace",
        "layout",
        &trace,
        none.to_str().unwrap(),
        "--files",
        &missing,
        "--fiemap",
        "--format",
        "pc",
    ]);
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn shared_9_traces_share_blocks_only_if_told() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..100).map(|at| format!("{},4096\n", at * 4096)).collect();
    let trace = write(folder.path(), "trace.csv", &format!("offset,length\n{rows}"));
    let run = |more: &[&str]| {
        let two = ["sim", &trace, &trace, "--device", "ssd-sata", "--size", "1000b", "--policy", "lru", "--json"];
        let found = printed(&[&two[..], &["--readahead", "none"], more].concat());
        let found: Value = serde_json::from_str(&found).unwrap();
        (
            found["trace"]["distinct_blocks"].clone(),
            found["devices"].as_array().unwrap().len(),
            found["results"][0]["misses"].clone(),
        )
    };
    assert_eq!(run(&["--shared"]), (100.into(), 1, 100.into()));
    assert_eq!(run(&[]), (200.into(), 2, 200.into()));
}

#[test]
fn shared_9_volumes_of_later_traces_get_free_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, volumes: &[u32]| {
        let rows: String = volumes.iter().map(|volume| format!("{volume},0,4096\n")).collect();
        write(folder.path(), name, &format!("volume,offset,length\n{rows}"))
    };
    let (one, other) = (trace("one.csv", &[1, 7]), trace("other.csv", &[7, 1, 3]));
    let volumes = |flags: &[&str]| {
        let more = ["--policy", "lru", "--size", "8b", "--json"];
        let found: Value = serde_json::from_str(&printed(&[&["sim"], flags, &more].concat())).unwrap();
        let devices = found["devices"].as_array().unwrap();
        devices.iter().map(|device| device["volume"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(volumes(&[&one, "--device", "ssd-sata"]), [1, 7], "one trace keeps its numbers");
    assert_eq!(volumes(&[&one, &other, "--device", "ssd-sata,2=ssd-nvme"]), [1, 7, 0, 2, 3]);
    assert_eq!(volumes(&[&one, &other, "--device", "ssd-sata", "--shared"]), [1, 7, 3]);
    // Files are laid out on one disk.
    let places = write(folder.path(), "places.csv", "file,offset,disk,length\n0,0,0,4096\n");
    let said = refused(&["sim", &one, &one, "--device", "ssd-sata", "--extents", &places]);
    assert!(said.contains("add --shared"), "{said}");
}

#[test]
fn what_programs_say_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let control = |name: &str, text: &str| write(folder.path(), name, text);
    let run = |more: &[&str]| {
        let loops =
            ["sim", "--generate", "loop:blocks=1k", "--requests", "5k", "--size", "800b", "--device", "hdd-10k"];
        printed(&[&loops[..], &["--think", "1ms", "--readahead", "none", "--json"], more].concat())
    };
    let row = |text: String| serde_json::from_str::<Value>(&text).unwrap()["results"][0].clone();
    let lru = row(run(&["--policy", "lru"]));
    let mut oblivious = row(run(&["--allocate", "global"]));
    assert_eq!((&oblivious["policy"], &oblivious["programs"][0]["prefetch_issued"]), (&"global".into(), &0.into()));
    oblivious["policy"] = lru["policy"].clone();
    oblivious["programs"][0].as_object_mut().unwrap().retain(|name, _| !name.starts_with("prefetch"));
    assert_eq!(oblivious, lru);

    // One program has the whole cache, so its policy decides as it would alone.
    let alone = row(run(&["--policy", "lirs"]));
    let tenant = row(run(&["--policy", "lirs", "--allocate", "lru-sp"]));
    assert_eq!(tenant["policy"], "lru-sp/lirs");
    let [alone, tenant] = [alone, tenant].map(|row| row["misses"].as_f64().unwrap());
    assert!((tenant / alone - 1.0).abs() < 0.02, "{tenant} misses, and {alone} alone");
    let global = refused(&workload(&["--size", "2M", "--allocate", "global", "--policy", "lirs"]));
    assert!(global.contains("in one list under lru"), "{global}");

    let mru = control("mru.toml", "[[at]]\nset_policy = [{ priority = 0, policy = 'mru' }]");
    let smart = row(run(&["--allocate", "lru-sp", "--control", &mru]));
    let told = "[[at]]\npredict = [".to_owned() + &"{ file = 0, offset = 0, length = 4096000 },".repeat(5) + "]";
    let told = control("told.toml", &told);
    let ahead = row(run(&["--allocate", "lru-sp", "--control", &told, "--prefetch", "batch=32"]));
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let batches = |more: &[&str]| row(run(&[&["--allocate", "lru-sp", "--control", &told], more].concat()));
    let [single, adapting] = [batches(&["--prefetch", "batch=1"]), batches(&["--prefetch", "batch=32,adapt"])];
    let [large, adapting, single] = [&ahead, &adapting, &single].map(|row| number(row, "device_requests"));
    assert!(large < adapting && adapting < single, "{large}, {adapting}, {single}");
    assert_eq!(number(&lru, "misses"), 5000.0);
    assert!((1800.0..1850.0).contains(&number(&smart, "misses")), "{smart}");
    assert!(number(&ahead, "misses") < 100.0, "{ahead}");
    assert!(number(&ahead, "execution_s") < number(&smart, "execution_s"), "{ahead} {smart}");

    // It is alone, so that what was fetched ahead was fetched for it; and it does not compute for long.
    let page = folder.path().join("page.html");
    let hurry = |last: &[&str]| {
        let loops =
            ["sim", "--generate", "loop:blocks=1k", "--requests", "5k", "--size", "800b", "--device", "hdd-10k"];
        let told = ["--think", "0.02ms", "--allocate", "lru-sp", "--control", &told];
        printed(&[&loops[..], &told, last].concat())
    };
    let all = row(hurry(&["--json"]));
    let program = &all["programs"][0];
    for name in ["prefetch_issued", "prefetch_used", "prefetch_late", "prefetch_wasted", "prefetch_accuracy"] {
        assert_eq!(program[name], all[name], "{name}");
    }
    let late = number(program, "prefetch_late") / number(program, "prefetch_used");
    assert!(late > 0.0 && (number(program, "prefetch_lateness") - late).abs() < 1e-8, "{program}");
    assert_eq!(number(program, "prefetch_waste"), 0.0);
    let table = hurry(&["--html", page.to_str().unwrap()]);
    let line = format!(" ahead: used 100.0 %, late {:.1} %, wasted 0.0 %", 100.0 * late);
    assert!(table.contains(&line), "no {line:?} in\n{table}");
    let lateness = format!("\"prefetch_lateness\":{}", program["prefetch_lateness"]);
    assert!(std::fs::read_to_string(page).unwrap().contains(&lateness), "{lateness}");

    let slip = |text: &str| {
        let file = control("slip.toml", text);
        refused(&workload(&["--size", "2M", "--allocate", "lru-sp", "--control", &file]))
    };
    assert!(slip("[[at]]\ntenant = 1\npredict = []").contains("tenant 1 is none of the 1 traces"));
    assert!(slip("[[at]]\nsays = 1").contains("slip.toml: line 2: unknown field `says`"));
    assert!(slip("[[at]]\nrequest = 3\npredict = [{ file = 9 }]").contains("before request 3"));
    assert!(
        refused(&workload(&["--size", "2M", "--allocate", "lru-sp", "--control", "none.toml"])).contains("none.toml")
    );
}

#[test]
fn requests_come_at_their_times_unless_a_program_waits_for_replies() {
    let folder = tempfile::tempdir().unwrap();
    let header = "time_ns,op,volume,offset,length\n";
    // A request every 0.5 ms, each fourth a write.
    let rows = |step_ns: u64| -> String {
        let row = |at: u64| {
            let op = if at % 4 == 3 { "write" } else { "read" };
            format!("{},{op},0,{},4096\n", at * step_ns, at * 37 % 2_000 * 1_000 * 4096)
        };
        header.to_owned() + &(0..2000).map(row).collect::<String>()
    };
    let trace = write(folder.path(), "disk.csv", &rows(500_000));
    let run = |trace: &str, more: &[&str]| {
        let base =
            ["sim", trace, "--device", "hdd-7200", "--policy", "lru", "--size", "40b", "--readahead", "none", "--json"];
        serde_json::from_str::<Value>(&printed(&[&base, more].concat())).unwrap()
    };
    let number = |value: &Value, field: &str| value["results"][0][field].as_f64().unwrap();
    // The disk cannot keep up with 2,000 a second, and can with 40.
    let fast = run(&trace, &[]);
    assert_eq!(
        (fast["loop"].as_str(), fast["speed"].as_f64(), &fast["think"]),
        (Some("open"), Some(1.0), &Value::Null)
    );
    assert_eq!((&fast["results"][0]["overloaded"], &fast["results"][0]["idle_share"]), (&true.into(), &Value::Null));
    let slow = run(&trace, &["--pace", "0.02x"]);
    assert_eq!((slow["speed"].as_f64(), &slow["results"][0]["overloaded"]), (Some(0.02), &false.into()));
    assert!(number(&slow, "latency_mean_us") < 10_000.0 && number(&fast, "latency_mean_us") > 100_000.0);
    assert!((49.9..50.5).contains(&number(&slow, "execution_s")), "{slow}");
    let [reads, writes] = ["read_latency", "write_latency"].map(|of| slow["results"][0][of]["count"].as_u64());
    assert_eq!((reads, writes), (Some(1500), Some(500)));
    assert!(
        slow["results"][0]["read_latency"]["p999_us"].as_f64() >= slow["results"][0]["read_latency"]["p90_us"].as_f64()
    );
    // A think time, or the word, makes it a closed loop.
    for closed in [run(&trace, &["--pace", "closed"]), run(&trace, &["--think", "100%"])] {
        assert_eq!((closed["loop"].as_str(), closed["think"].as_str()), (Some("closed"), Some("100%")));
        assert_eq!(closed["results"][0]["overloaded"], false);
    }
    // The table reports first that a device cannot keep up.
    let base =
        ["sim", &trace, "--device", "hdd-7200", "--policy", "lru,lirs", "--size", "40b,80b", "--readahead", "none"];
    let text = printed(&base);
    let [warning, table] =
        ["cannot keep up with any policy and size", "mean time from a request"].map(|of| text.find(of));
    assert!(warning.is_some() && warning < table, "{text}");
    assert!(text.contains("busy %") && text.contains("reads: mean") && !text.contains("idle"), "{text}");
    assert!(!printed(&[&base[..], &["--pace", "0.02x"]].concat()).contains("keep up"));
    assert!(printed(&[&base[..], &["--pace", "closed"]].concat()).contains("execution time in s"));

    // Programs, workloads that were made up and traces without times are closed loops.
    let program = header.replace("volume", "stream") + &rows(500_000)[header.len()..].replace(",0,", ",77,");
    let program = write(folder.path(), "program.csv", &program);
    assert_eq!(run(&program, &[])["loop"], "closed");
    assert_eq!(run(&program, &["--pace", "recorded"])["loop"], "open");
    let timeless = write(folder.path(), "timeless.csv", &rows(0));
    assert_eq!(run(&timeless, &[])["loop"], "closed");
    let generated =
        ["sim", "--generate", "zipf:blocks=1k", "--requests", "2k", "--device", "ssd-sata", "--size", "10%", "--json"];
    let loops = |more: &[&str]| {
        serde_json::from_str::<Value>(&printed(&[&generated, more].concat())).unwrap()["loop"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(loops(&[]), "closed");
    assert_eq!(
        (loops(&["--arrivals", "500us"]), loops(&["--arrivals", "poisson:100us"])),
        ("open".to_owned(), "open".to_owned())
    );
    assert_eq!(loops(&["--arrivals", "500us", "--pace", "closed"]), "closed");
    let mixed = run(&trace, &[&program]);
    assert_eq!((mixed["loop"].as_str(), mixed["think"].as_str()), (Some("mixed"), Some("100%")));

    let slip = |more: &[&str]| refused(&[&["sim", trace.as_str(), "--device", "hdd-7200"], more].concat());
    assert!(refused(&["sim", &timeless, "--device", "hdd-7200", "--pace", "2x"]).contains("no times"));
    assert!(slip(&["--pace", "2"]).contains("--pace 2: expected recorded, closed"));
    assert!(slip(&["--pace", "2x", "--think", "1ms"]).contains("--think does not go with --pace of an open loop"));
    assert!(
        refused(&["plan", &trace, "--device", "hdd-7200", "--pace", "2x", "--think", "1ms"])
            .contains("does not go with")
    );
    let plan =
        printed(&["plan", &trace, "--device", "hdd-7200", "--policy", "lru,lirs", "--have", "40b", "--add", "10b"]);
    assert!(plan.contains("at their recorded times") && plan.contains("come faster"), "{plan}");
}
