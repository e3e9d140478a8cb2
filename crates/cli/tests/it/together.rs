//! The matrix of pairs: any two of these go together, or one sentence has the reason.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

use nigh_nbd::client::Client;

use super::command::{nigh, refusal};
use super::serving::{self, Folder};

/// Something that a command is asked for: flags with their values.
type Ask<'a> = (&'static str, Vec<(&'static str, &'a str)>);

/// The flags of both, each once: with the value that `one` gives it, or, for policies of which there may be several, with both.
fn both(one: &Ask, other: &Ask, several: bool) -> Vec<String> {
    let mut flags: BTreeMap<&str, String> = one.1.iter().map(|&(flag, value)| (flag, value.to_owned())).collect();
    for &(flag, value) in &other.1 {
        let given = flags.entry(flag).or_insert_with(|| value.to_owned());
        if several && flag == "--policy" && given != value {
            *given += &format!(",{value}");
        }
    }
    let texts = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    texts.filter(|text| !text.is_empty()).collect()
}

/// Each pair that `run` refuses, with the reason, which names both.
fn refused(asks: &[Ask], several: bool, run: impl Fn(&[&str]) -> Result<(), String>) -> Vec<String> {
    let run = |one: &Ask, other: &Ask| {
        let flags = both(one, other, several);
        run(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (mut pairs, mut unexplained) = (Vec::new(), Vec::new());
    for (at, one) in asks.iter().enumerate() {
        run(one, one).unwrap_or_else(|error| panic!("{} alone: {error}", one.0));
        for other in &asks[at + 1..] {
            if let Err(error) = run(one, other) {
                let reason = error.split_once(" does not go with ").and_then(|(_, rest)| rest.split_once(": "));
                if reason.is_none_or(|(_, why)| why.len() <= 20) {
                    unexplained.push(format!("{} + {}: {error}", one.0, other.0));
                }
                pairs.push(format!("{} + {}", one.0, other.0));
            }
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.concat());
    pairs
}

#[test]
fn of_a_simulation() {
    let folder = Folder::new();
    let trace = folder.text("trace.csv");
    let rows: String = (0..400).map(|at| format!("{},4096\n", at * 7 % 90 * 4096)).collect();
    std::fs::write(&trace, format!("offset,length\n{rows}")).unwrap();
    let contents = folder.text("contents.toml");
    std::fs::write(&contents, "seed = 1\n[generated]\nmachines = 1\nblocks = 90\n").unwrap();
    let control = folder.text("control.toml");
    std::fs::write(&control, "[[at]]\nset_priority = [{ file = 0, priority = 1 }]\n").unwrap();
    let device = ("--device", "ssd-sata");
    let asks: Vec<Ask> = vec![
        ("sizes", vec![("--size", "40b")]),
        ("LIRS", vec![("--policy", "lirs")]),
        ("DULO", vec![("--policy", "dulo")]),
        ("reads only", vec![("--ops", "reads")]),
        ("collapse", vec![("--collapse", "")]),
        ("sample", vec![("--sample", "50%")]),
        ("shards", vec![("--shards", "2"), ("--size", "40b")]),
        ("warmup", vec![("--warmup", "100")]),
        ("patterns", vec![("--patterns", &trace), ("--policy", "aoio")]),
        ("contents", vec![("--contents", &contents), ("--content", "none")]),
        ("levels", vec![("--levels", "20b,40b")]),
        ("device", vec![device]),
        ("level", vec![device, ("--level", "ssd-nvme:128K")]),
        ("ULC", vec![device, ("--level", "ssd-nvme:128K"), ("--policy", "ulc")]),
        ("tenants", vec![device, ("--allocate", "lru-sp")]),
        ("equal parts", vec![device, ("--allocate", "static")]),
        ("hints", vec![device, ("--allocate", "lru-sp"), ("--control", &control)]),
        ("shared disks", vec![device, ("--shared", "")]),
        ("read-ahead", vec![device, ("--readahead", "linux")]),
    ];
    let run = |flags: &[&str]| {
        // Only several traces can share their disks.
        let traces = vec![&*trace; if flags.contains(&"--shared") { 2 } else { 1 }];
        let output = nigh(&[&["sim"], &traces[..], flags].concat());
        if output.status.success() { Ok(()) } else { Err(refusal(&output)) }
    };
    let mut pairs = refused(&asks, true, run);
    // A flag that is refused with a device is refused with all that need one.
    let need_device = ["level", "ULC", "tenants", "equal parts", "hints", "shared disks", "read-ahead"];
    let known = pairs.clone();
    pairs.retain(|pair| {
        let (one, other) = pair.split_once(" + ").unwrap();
        !need_device.contains(&other) || !known.contains(&format!("{one} + device"))
    });
    let expected = [
        "sizes + levels",
        "DULO + sample",
        "collapse + device",
        "sample + shards",
        "sample + patterns",
        "sample + contents",
        "sample + levels",
        "sample + device",
        "shards + warmup",
        "shards + contents",
        "shards + levels",
        "shards + device",
        "patterns + contents",
        "patterns + levels",
        "patterns + device",
        "contents + levels",
        "levels + device",
        "ULC + tenants",
        "ULC + equal parts",
        "ULC + hints",
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn of_a_server() {
    let folder = Folder::new();
    let (level, image) = (format!("file:{}:4M", folder.text("level")), folder.empty_image("image", 4 << 20));
    let (disk, warm) = (format!("disk={image}"), folder.text("warm"));
    let asks: Vec<Ask> = vec![
        ("LIRS", vec![("--policy", "lirs")]),
        ("DULO", vec![("--policy", "dulo")]),
        ("level", vec![("--level", &level)]),
        ("ULC", vec![("--policy", "ulc"), ("--level", &level)]),
        ("contents", vec![("--content", "dedup+lz4")]),
        ("tenants", vec![("--allocate", "lru-sp")]),
        ("a policy of its own", vec![("--allocate", "static"), ("--set", "disk:policy=arc")]),
        ("shards", vec![("--shards", "2")]),
        ("read-ahead", vec![("--readahead", "linux")]),
        ("write-through", vec![("--write-mode", "through")]),
        ("warm list", vec![("--warm", &warm)]),
    ];
    let run = |flags: &[&str]| {
        let checked = serving::nigh(&[&disk, "--check"], flags).output().unwrap();
        if !checked.status.success() {
            return Err(refusal(&checked));
        }
        let server = folder.serve(&[&[&*disk], flags].concat());
        let mut client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap();
        for _ in 0..2 {
            client.write(4096, &[7; 8192]).unwrap();
            assert_eq!(client.read(4096, 8192).unwrap(), [7; 8192]);
        }
        client.disconnect().unwrap();
        server.end();
        Ok(())
    };
    let expected = [
        "ULC + contents",
        "ULC + tenants",
        "ULC + a policy of its own",
        "tenants + shards",
        "a policy of its own + shards",
    ];
    assert_eq!(refused(&asks, false, run), expected);
}
