//! `nigh sim --contents` with the real binary.

use crate::command::{json, printed, refused};

/// Five machines of 2000 blocks.
const MACHINES: &str = "zipf:blocks=2k:alpha=0.7+zipf:blocks=2k:alpha=0.7+zipf:blocks=2k:alpha=0.7+zipf:blocks=2k:alpha=0.7+\
                        zipf:blocks=2k:alpha=0.7";

const ARGUMENTS: [&str; 10] =
    ["sim", "--generate", MACHINES, "--requests", "120k", "--writes", "0%", "--size", "2000b", "--contents"];

fn file(folder: &std::path::Path, text: &str) -> String {
    let path = folder.join("contents.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn schemes_are_compared_on_generated_machines() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "seed = 3\n[generated]\nmachines = 5\nblocks = 2000\n");
    let found = json(&[&ARGUMENTS[..], &[&path]].concat());
    let rows = found["results"].as_array().unwrap();
    let hits = |content: &str| {
        let row = rows.iter().find(|row| row["content"] == content).unwrap_or_else(|| panic!("{found}"));
        assert_eq!((row["references"].as_u64(), row["size_blocks"].as_u64()), (Some(120_000), Some(2000)));
        row["hits"].as_u64().unwrap()
    };
    // As published, LPU finds equal blocks only in its scans, and its delta area takes room: it may have fewer hits than none.
    assert!(hits("none") < hits("dedup") && hits("dedup") < hits("lpu-dedup") && hits("lpu") > 0, "{found}");
    let lpu = rows.iter().find(|row| row["content"] == "lpu").unwrap();
    assert_eq!(lpu["lpu"]["scans"], 2);
    assert!(lpu["lpu"]["associate_blocks"].as_u64() > Some(0) && lpu["factor"].as_f64() > Some(0.9), "{lpu}");
}

#[test]
fn images_are_read_from_the_folder_of_their_list() {
    let folder = tempfile::tempdir().unwrap();
    // Each block is equal to that of the other image.
    let image: Vec<u8> = (0..2000u32).flat_map(|block| vec![block.to_le_bytes(); 1024].concat()).collect();
    std::fs::write(folder.path().join("1.img"), &image).unwrap();
    std::fs::write(folder.path().join("2.img"), &image).unwrap();
    let text = "[[image]]\npath = \"1.img\"\n[[image]]\npath = \"2.img\"\noffset = \"8192000\"\n";
    let path = file(folder.path(), text);
    let found = json(&[
        "sim",
        "--generate",
        "uniform:blocks=2000+uniform:blocks=2000",
        "--requests",
        "100k",
        "--size",
        "2000b",
        "--contents",
        &path,
        "--content",
        "none,dedup",
    ]);
    assert_eq!(found["distinct_contents"], 2000);
    let [none, dedup] = [0, 1].map(|at| found["results"][at]["hits"].as_u64().unwrap());
    // Half of the blocks fit without a scheme, and all with one: then only first references miss.
    assert!((45_000..52_000).contains(&none) && dedup == 96_000, "{none} {dedup}");
    let text = printed(&[
        "sim",
        "--generate",
        "uniform:blocks=2000",
        "--requests",
        "10k",
        "--size",
        "10%",
        "--contents",
        &path,
    ]);
    assert!(text.contains("1,989 distinct contents") && text.contains("lpu-dedup"), "{text}");
}

#[test]
fn encoded_blocks_save_time_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "[generated]\nmachines = 5\nblocks = 2000\n");
    let timed = ["--device", "net-volume", "--think", "20us"];
    let found = json(&[&ARGUMENTS[..], &[&path], &timed].concat());
    let [none, lz4, sketch] = &found["results"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!([none, lz4, sketch].map(|row| row["content"].as_str()), ["none", "dedup+lz4", "sketch"].map(Some));
    let time = |row: &serde_json::Value| row["execution_s"].as_f64().unwrap();
    assert!(time(sketch) < time(lz4) && time(lz4) < time(none), "{found}");
    assert!(none["encoded"].is_null() && none["encoded_hits"] == 0, "{none}");
    let encoded = &sketch["encoded"];
    assert!(encoded["decoded"] == sketch["encoded_hits"] && encoded["decoded"].as_u64() > Some(10_000), "{encoded}");
    assert!(encoded["blocks"].as_u64() > Some(2000) && encoded["differences"].as_u64() > Some(100), "{encoded}");
    let page = folder.path().join("page.html");
    let small = ["--requests", "20k", "--content", "none,dedup+zstd", "--html", page.to_str().unwrap()];
    let text = printed(
        &[&["sim", "--generate", "zipf:blocks=2k", "--size", "300b", "--contents", &path], &timed[..], &small[..]]
            .concat(),
    );
    assert!(text.contains("lru, dedup+zstd") && text.contains("blocks decoded in"), "{text}");
    assert!(std::fs::read_to_string(page).unwrap().contains("lru, dedup+zstd"));
}

#[test]
fn tenants_have_encoded_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "[generated]\nmachines = 5\nblocks = 2000\n");
    let arguments = ["sim", "--generate", "zipf:blocks=2k", "--requests", "20k", "--size", "300b", "--contents", &path];
    let timed = ["--device", "net-volume", "--think", "20us", "--content", "sketch"];
    let row = |more: &[&str]| json(&[&arguments[..], &timed, more].concat())["results"][0].clone();
    let (lru, tenant) = (row(&[]), row(&["--allocate", "lru-sp"]));
    assert!(tenant["encoded"]["decoded"].as_u64() > Some(1000), "{tenant}");
    assert_eq!((&lru["encoded"], &lru["execution_s"]), (&tenant["encoded"], &tenant["execution_s"]));
}

#[test]
fn a_trace_may_say_what_is_equal() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (file(folder.path(), "recorded = true\n"), folder.path().join("mail.fiu"));
    // Each of 50 contents is at 40 places, all of which are read twice; then half of them are written.
    let line = |time: u32, op| format!("{time} 7 imapd {} 8 {op} 8 0 {:x}beef\n", time % 2000 * 8, time % 50);
    let lines: String = (0..4000).map(|time| line(time, 'R')).chain((4000..5000).map(|time| line(time, 'W'))).collect();
    std::fs::write(&trace, lines).unwrap();
    let trace = trace.to_str().unwrap();
    let arguments = ["sim", trace, "--size", "60b", "--contents", &path];
    let found = json(&[&arguments[..], &["--content", "none,dedup,dedup+lz4"]].concat());
    assert_eq!((&found["distinct_contents"], &found["trace"]["format"]), (&50.into(), &"fiu".into()));
    let hits: Vec<u64> = (0..3).map(|at| found["results"][at]["hits"].as_u64().unwrap()).collect();
    assert_eq!((hits[0], hits[1]), (0, 3000), "all contents fit: only the first references miss");
    assert!(hits[2] >= 3000, "{hits:?}");
    let larger = ["sim", trace, "--size", "600b", "--contents", &path];
    let timed =
        json(&[&larger[..], &["--device", "ssd-sata", "--pace", "closed", "--content", "none,dedup+zstd"]].concat());
    let [none, zstd] = [0, 1].map(|at| timed["results"][at]["device_reads"].as_u64().unwrap());
    assert!(zstd < none && timed["results"][1]["encoded_hits"].as_u64() > Some(1000), "{timed}");
    // Converted, it has the same contents.
    let parquet = folder.path().join("mail.parquet");
    printed(&["trace", "convert", trace, parquet.to_str().unwrap()]);
    let converted =
        json(&["sim", parquet.to_str().unwrap(), "--size", "60b", "--contents", &path, "--content", "dedup"]);
    assert_eq!(
        (converted["results"][0]["hits"].as_u64(), &converted["distinct_contents"]),
        (Some(hits[1]), &50.into())
    );
}

#[test]
fn slips_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let good = "[generated]\nmachines = 5\nblocks = 2000\n";
    for (text, more, says) in [
        ("", &[][..], "expected one of [generated], [[image]]"),
        ("recorded = true\n[generated]\nmachines = 5\nblocks = 5\n", &[], "expected one of [generated], [[image]]"),
        ("recorded = true\n", &[], "does not say what was read and written"),
        ("[generated]\nmachines = 0\nblocks = 5\n", &[], "machines: expected 1 to"),
        ("[generated]\nmachines = 5\nblocks = 0\n", &[], "blocks of all machines"),
        ("[generated]\nmachines = 5\nblock = 5\n", &[], "unknown field"),
        ("[generated]\nmachines = 5\nblocks = 5\nzeros = 1.5\n", &[], "zeros: expected a share from 0 to 1"),
        ("[generated]\nmachines = 5\nblocks = 5\nkind = \"pages\"\n", &[], "unknown variant"),
        ("[[image]]\npath = \"none.img\"\n", &[], "none.img"),
        ("[[image]]\npath = \"contents.toml\"\noffset = \"5\"\n", &[], "offset 5: expected a multiple of 4096"),
        (good, &["--content", "lzma"], "--content lzma"),
        (good, &["--policy", "lirs"], "needs --policy lru"),
        (good, &["--block-size", "8K"], "set --block-size"),
        (good, &["--csv"], "--html, --svg and --csv need --device"),
        (good, &["--content-cpu", "5%"], "--device"),
        (good, &["--device", "net-volume", "--content", "lpu"], "without --device only"),
        (good, &["--device", "net-volume", "--content-cpu", "2"], "from 1% to 100%"),
        (good, &["--device", "net-volume", "--block-size", "8K"], "set --block-size"),
    ] {
        let path = file(folder.path(), text);
        let found = refused(&[&ARGUMENTS[..], &[&path], more].concat());
        assert!(found.contains(says), "{text} {more:?}: {found}");
    }
}
