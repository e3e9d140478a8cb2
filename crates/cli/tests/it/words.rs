//! How names, sizes and parameters are read, and what is printed about wrong ones.

use crate::command::{json, nigh, printed};

#[test]
fn typos_get_the_nearest_name_in_a_sentence_of_its_own() {
    let cases: [(&[&str], &str); 16] = [
        (&["smi"], "sim"),
        (&["trace", "conver"], "convert"),
        (&["ctl", "set", "memry", "3"], "memory"),
        (&["man", "smi"], "sim"),
        (&["sim", "--polcy", "lru", "x"], "--policy"),
        (&["sim", "x", "--allocate", "lru-ps", "--device", "hdd-10k"], "lru-sp"),
        (&["completions", "bsh"], "bash"),
        (&["policies", "lur"], "lru"),
        (&["policies", "clok-pro"], "clock-pro"),
        (&["policies", "lirs:hri=3"], "hir"),
        (&["devices", "hdd-72"], "hdd-7200"),
        (&["sim", "x", "--format", "vscssi"], "vscsi"),
        (&["sim", "--generate", "zapf"], "zipf"),
        (&["sim", "--generate", "zipf:blocs=3"], "blocks"),
        (&["sim", "x", "--device", "hdd-10k", "--readahead", "linx"], "linux"),
        (&["sim", "x", "--device", "hdd-10k", "--scheduler", "lok"], "look"),
    ];
    for (arguments, name) in cases {
        let output = nigh(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        let sentence = format!(". Did you mean '{name}'?\n");
        assert!(text.ends_with(&sentence) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
    let output = nigh(&["serve", "d=memory:1M", "--set", "d:celing=1M", "--check"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Did you mean 'ceiling'?"), "{output:?}");
}

#[test]
fn parameters_10_out_of_range_are_errors_that_name_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let message = |arguments: &[&str]| {
        let output = nigh(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let generated = ["sim", "--generate", "zipf:blocks=1k", "--requests", "1k", "--policy"];
    let policy = |text: &str| message(&[&generated[..], &[text]].concat());
    assert!(policy("lirs:hir=900%").contains("a share from 0% to 100%, or blocks from 1 to one less than the cache"));
    assert!(policy("lrfu:lambda=2").contains("a number from 0 to 1"));
    assert!(policy("mq:queues=17").contains("a whole number from 1 to 16"));
    let export = ["serve", "d=memory:1M", "--allocate", "lru-sp", "--check", "--set"];
    assert!(message(&[&export[..], &["d:ceiling=0"]].concat()).contains("bytes such as 100M, or none"));
    let sidecar = folder.path().join("zero.toml");
    std::fs::write(&sidecar, "[[at]]\nbounds = { ceiling = 0 }\n").unwrap();
    let timed = ["sim", "--generate", "zipf:blocks=1k", "--requests", "1k", "--device", "ssd-sata"];
    let zero = message(&[&timed[..], &["--allocate", "lru-sp", "--control", sidecar.to_str().unwrap()]].concat());
    assert!(zero.contains("a ceiling is from 1 to 4294967295 blocks"), "{zero}");
    let output = nigh(&["policies", "lirs"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("a share from 0% to 100%"));
}

#[test]
fn sizes_are_read_alike_everywhere() {
    let serve =
        |arguments: &[&str]| printed(&[&["serve", "--check", "--listen", "tcp:localhost:0"], arguments].concat());
    for (size, bytes, exact, shown) in [
        ("1MiB", 1u64 << 20, "1M", "1 MiB"),
        ("1048576B", 1 << 20, "1M", "1 MiB"),
        ("1M", 1 << 20, "1M", "1 MiB"),
        ("8.192MB", 8_192_000, "8000K", "7.8 MiB"),
    ] {
        let generated =
            ["sim", "--generate", "zipf:blocks=1Ki", "--requests", "1e3", "--policy", "lru", "--size", size];
        let sim = json(&generated);
        assert_eq!(sim["results"][0]["size_bytes"], bytes, "{size}: {sim}");
        let timed = json(&[&generated[..], &["--device", "ssd-sata", "--level", &format!("ssd-nvme:{size}")]].concat());
        let sizes = [&timed["results"][0]["size_bytes"], &timed["levels"][0]["size_bytes"]];
        assert_eq!(sizes, [bytes; 2], "{size}: {timed}");
        let served = serve(&[&format!("d=memory:{size}"), "--memory", size, "--readahead", "linux:max=64KiB"]);
        for part in
            [format!("d from memory:{exact},"), format!("memory   {shown} in "), "ahead    linux:max=64K\n".to_owned()]
        {
            assert!(served.contains(&part), "{size}: no {part:?} in\n{served}");
        }
        printed(&["policies", &format!("dulo:table={size}")]);
    }
    let served = serve(&["d=memory:1048576", "--set", "d:bandwidth=16GB,requests=1e3"]);
    // 16,000,000,000 / 2^30.
    assert!(served.contains(", at most 1000 requests a client, at most 14.9 GiB/s\n"), "{served}");
}
