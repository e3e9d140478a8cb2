//! `nigh content`: what it finds in images that are made up, with the real binary.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{json, printed, refused};

const BLOCK: usize = 4096;

/// Ten blocks of each kind, in this order; the first kind is the base of the next three.
struct Kinds {
    other: Vec<u8>,
    equal: Vec<u8>,
    edited: Vec<u8>,
    moved: Vec<u8>,
    compressible: Vec<u8>,
}

fn kinds() -> Kinds {
    let mut random = fastrand::Rng::with_seed(1);
    let mut other = vec![0; 10 * BLOCK];
    random.fill(&mut other);
    let mut edited = other.clone();
    edited.chunks_mut(BLOCK).for_each(|block| block[1000..1010].fill(1));
    let mut moved = other.clone();
    for block in moved.chunks_mut(BLOCK) {
        block.copy_within(..BLOCK - 100, 100);
        block[..100].fill(7);
    }
    let mut compressible = Vec::new();
    for _ in 0..10 {
        let pattern: Vec<u8> = (0..512).map(|_| random.u8(..)).collect();
        compressible.extend(pattern.repeat(8));
    }
    Kinds { equal: other.clone(), other, edited, moved, compressible }
}

fn image(folder: &Path, name: &str, parts: &[&[u8]]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, parts.concat()).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn blocks(found: &Value) -> [u64; 7] {
    let names = ["total", "zero", "equal", "similar_in_place", "similar_shifted", "compressible", "other"];
    names.map(|name| found["blocks"][name].as_u64().unwrap())
}

fn scheme<'a>(found: &'a Value, name: &str) -> &'a Value {
    found["schemes"].as_array().unwrap().iter().find(|scheme| scheme["scheme"] == name).expect(name)
}

#[test]
fn each_block_has_its_class_and_each_scheme_its_factor() {
    let folder = tempfile::tempdir().unwrap();
    let Kinds { other, equal, edited, moved, compressible } = kinds();
    let one = image(folder.path(), "one.img", &[&other, &vec![0; 30 * BLOCK], &compressible]);
    let two = image(folder.path(), "two.img", &[&equal, &edited, &moved]);
    let found = json(&["content", text(&one), text(&two), "--memory", "100K"]);
    assert_eq!(blocks(&found), [80, 30, 10, 10, 10, 10, 10]);
    let factor = |name: &str| scheme(&found, name)["factor"].as_f64().unwrap();
    assert_eq!(factor("none"), 1.0);
    // 50 blocks are not zero, 40 of them distinct, and each content has 37 bytes of metadata.
    assert!((factor("dedup") - 50.0 * 4096.0 / (40.0 * 4133.0)).abs() < 1e-9, "{}", factor("dedup"));
    // 40 are raw with LZ4, and 10 take about 540 bytes, in runs of 64.
    let lz4 = scheme(&found, "lz4")["stored_bytes"].as_u64().unwrap();
    assert!((40 * 4133 + 10 * (540 + 37)..40 * 4133 + 10 * (640 + 37)).contains(&lz4), "{lz4}");
    assert!(factor("dedup+lz4") > factor("lz4") && factor("dedup+lz4") > factor("dedup"));
    // Ten blocks are raw, ten compressed, ten take a line, and ten a few.
    let sketch = scheme(&found, "sketch")["stored_bytes"].as_u64().unwrap();
    assert!((10 * (4096 + 512 + 64 + 128)..10 * (4096 + 640 + 64 + 256 + 4 * 50)).contains(&sketch), "{sketch}");
    let kept = |name: &str| scheme(&found, name)["kept"].as_f64().unwrap();
    assert!((kept("none") - 102_400.0 / (50.0 * 4096.0)).abs() < 1e-9);
    assert_eq!(kept("sketch"), 1.0);
    assert_eq!(found["memory"]["best"], "sketch");
    assert_eq!(found["memory"]["data_bytes"], 50 * 4096);

    let table = printed(&["content", text(&one), text(&two), "--memory", "100K"]);
    for line in [
        "2 images of 320 KiB: 80 blocks of 4 KiB",
        " 37.50 %  zero",
        " 12.50 %  similar to another block, with content that moved",
        "best in 100 KiB: sketch, which keeps 100.0 % of 200 KiB",
    ] {
        assert!(table.lines().any(|found| found == line), "{line}\n{table}");
    }
    let table = printed(&["content", text(&one)]);
    assert!(!table.contains("kept") && !table.contains("best"), "{table}");
}

/// The order of the images, not that of the threads, decides which block is the base.
#[test]
fn what_is_found_does_not_depend_on_the_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    let parts: Vec<Vec<u8>> = (0..40)
        .map(|_| {
            let mut kinds = kinds();
            (0..40).for_each(|_| kinds.edited[random.usize(..10 * BLOCK)] ^= 1 << random.u8(..8));
            [kinds.edited, kinds.moved, kinds.compressible].concat()
        })
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let path = image(folder.path(), "one.img", &parts);
    let found = ["1", "2", "7"].map(|threads| {
        let found = json(&["content", text(&path), "--threads", threads]);
        let stored: Vec<Value> =
            found["schemes"].as_array().unwrap().iter().map(|scheme| scheme["stored_bytes"].clone()).collect();
        (blocks(&found), stored)
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
    assert!(found[0].0[3] > 300, "{:?}", found[0]);
}

#[test]
fn holes_are_zeros_and_a_sample_has_the_same_extents_of_all_images() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one.img", "two.img"].map(|name| folder.path().join(name));
    let mut random = fastrand::Rng::with_seed(3);
    let mut data = vec![0; 1 << 20];
    for path in &paths {
        let file = File::create(path).unwrap();
        // The last block is half a block.
        file.set_len((64 << 20) + 2048).unwrap();
        for extent in 0..8 {
            random.seed(extent);
            random.fill(&mut data);
            file.write_all_at(&data, extent * (8 << 20)).unwrap();
        }
        file.write_all_at(&[1; 2048], 64 << 20).unwrap();
    }
    let found = json(&["content", text(&paths[0]), text(&paths[1])]);
    assert_eq!(blocks(&found)[..3], [2 * (64 * 256 + 1), 2 * 56 * 256, 8 * 256 + 1]);
    assert_eq!(found["sample"], 1.0);
    let found = json(&["content", text(&paths[0]), text(&paths[1]), "--sample", "50%"]);
    let [total, zero, equal, ..] = blocks(&found);
    assert!((20 * 256..46 * 256).contains(&(total / 2)), "{total}");
    assert_eq!(equal, (total - zero) / 2, "the second image equals the first");
    assert!(found["notes"][0].as_str().unwrap().starts_with("the sample finds fewer"));
}

#[test]
fn wrong_files_are_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, bytes: &[u8]| image(folder.path(), name, &[bytes]);
    let (good, empty) = (of("good.img", &[1; 5000]), of("empty.img", &[]));
    let qcow2 = of("disk.qcow2", &[b"QFI\xfb".as_slice(), &[0; 5000]].concat());
    let link = folder.path().join("link.img");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let name = text(folder.path());
    for (arguments, expected) in [
        (vec![name], format!("{name}: this is a folder; expected an image of a disk or a block device")),
        (vec!["/nonexistent"], "/nonexistent: No such file or directory (os error 2)".to_owned()),
        (vec!["/dev/null"], "/dev/null: expected an image of a disk or a block device".to_owned()),
        (vec![text(&empty)], format!("{}: it is empty", text(&empty))),
        (
            vec![text(&qcow2)],
            format!("{}: it is a qcow2 image, not a raw disk; make a raw copy and study that", text(&qcow2)),
        ),
        (
            vec![text(&good), text(&link)],
            format!("{}: this file is there twice; all its blocks would be equal", text(&link)),
        ),
        (vec![text(&good), "--memory", "3"], "--memory 3: expected a size of at least 4K, such as 4G".to_owned()),
        (
            vec![text(&good), "--sample", "0"],
            "--sample 0: expected a rate above 0 and up to 1, such as 0.1 or 1%".to_owned(),
        ),
    ] {
        let all = [vec!["content"], arguments].concat();
        assert_eq!(refused(&all), format!("nigh: {expected}\n"));
    }
}

#[test]
fn zeros_alone_are_kept_by_all_schemes() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(folder.path(), "zero.img", &[&[0; 10 * BLOCK]]);
    let found = json(&["content", text(&path), "--memory", "1M"]);
    assert_eq!(blocks(&found), [10, 10, 0, 0, 0, 0, 0]);
    assert!(found["schemes"].as_array().unwrap().iter().all(|scheme| scheme["factor"] == 1.0));
    assert_eq!(found["memory"]["best"], "none");
    assert_eq!(found["notes"][0], "all blocks are zero");
}
