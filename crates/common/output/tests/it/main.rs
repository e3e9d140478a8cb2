//! Outputs beside files that are there already, or that appear meanwhile.

use std::fs;
use std::io::Write;
use std::path::Path;

use nigh_output::{Destination, Error, is_growing};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn destroys_1_a_file_that_appears_after_the_check_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    for grows in [false, true] {
        let to = Destination::new(&path, false, &[]).unwrap();
        let mut draft = if grows { to.grow(|_| false) } else { to.draft() }.unwrap();
        draft.write_all(b"new").unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(draft.commit(), Err(Error::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(names(folder.path()), ["out.part"], "what grew is not lost");
}

#[test]
fn destroys_2_what_grew_stays_and_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let to = Destination::new(&path, false, &[]).unwrap();
    let begin = |text: &str| {
        let mut draft = to.grow(|_| false).unwrap();
        draft.write_all(text.as_bytes()).unwrap();
        draft
    };
    let part = folder.path().join("out.part");
    let first = begin("first");
    assert!(is_growing(&part) && first.set_aside().is_none());
    assert!(matches!(to.grow(|_| true), Err(Error::Busy(path)) if path == part));
    // As after a kill.
    drop(first);
    assert!(!is_growing(&part));
    let second = begin("second");
    assert_eq!(second.set_aside().unwrap(), folder.path().join("out.part.1"));
    drop(second);
    let third = begin("third");
    assert_eq!(third.set_aside().unwrap(), folder.path().join("out.part.2"));
    drop(third);
    let fourth = to.grow(|_| true).unwrap();
    assert_eq!(fourth.set_aside(), None, "the third was of no use");
    fourth.commit().unwrap();
    assert_eq!(names(folder.path()), ["out", "out.part.1", "out.part.2"]);
    assert_eq!(fs::read(folder.path().join("out.part.1")).unwrap(), b"first");
    assert_eq!(fs::read(folder.path().join("out.part.2")).unwrap(), b"second");
}

#[test]
fn links_and_folders_at_the_name_of_a_part_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, part) = (folder.path().join("out"), folder.path().join("out.part"));
    fs::write(folder.path().join("victim"), "precious").unwrap();
    let to = Destination::new(&path, true, &[]).unwrap();
    std::os::unix::fs::symlink("victim", &part).unwrap();
    assert!(to.grow(|_| true).is_err());
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    assert!(to.grow(|_| true).is_err());
    assert_eq!(fs::read(folder.path().join("victim")).unwrap(), b"precious");
}
