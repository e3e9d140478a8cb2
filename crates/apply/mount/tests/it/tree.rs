//! Names and attributes are those of the source.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt, symlink};

use crate::support::Mounted;

#[test]
fn names_and_attributes_are_those_of_the_source() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir_all(mounted.behind("a/b/c")).unwrap();
    fs::write(mounted.behind("a/file"), b"text").unwrap();
    fs::set_permissions(mounted.behind("a/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(mounted.behind("a/file"), mounted.behind("a/b/other")).unwrap();
    symlink("../file", mounted.behind("a/b/link")).unwrap();
    for number in 0..3000 {
        fs::write(mounted.behind(&format!("a/b/c/{number}")), b"").unwrap();
    }
    for name in ["a", "a/b", "a/file", "a/b/other", "a/b/link", "a/b/c/17"] {
        let (behind, inside) = (mounted.behind(name), mounted.inside(name));
        let (behind, inside) = (behind.symlink_metadata().unwrap(), inside.symlink_metadata().unwrap());
        let of = |meta: &fs::Metadata| {
            (
                meta.ino(),
                meta.mode(),
                meta.nlink(),
                meta.uid(),
                meta.gid(),
                meta.size(),
                meta.mtime_nsec(),
                meta.ctime(),
            )
        };
        assert_eq!(of(&behind), of(&inside), "{name}");
    }
    assert_eq!(fs::read_link(mounted.inside("a/b/link")).unwrap().to_str(), Some("../file"));
    assert_eq!(fs::read(mounted.inside("a/b/link")).unwrap(), b"text");
    let list = |folder: std::path::PathBuf| -> BTreeSet<_> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.ino()))
            .collect()
    };
    assert_eq!(list(mounted.behind("a/b/c")), list(mounted.inside("a/b/c")));
    assert_eq!(list(mounted.inside("a/b/c")).len(), 3000);
    mounted.end();
}

/// Descriptors of this process that are files of the source.
fn descriptors(mounted: &Mounted) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.starts_with(mounted.behind(""))).count()
}

#[test]
fn the_kernel_forgets_files_beyond_a_limit() {
    let Some(mounted) = Mounted::with(|settings| settings.known_most = Some(100), |_| ()) else { return };
    fs::create_dir(mounted.behind("folder")).unwrap();
    for number in 0..2000 {
        fs::write(mounted.behind(&format!("folder/{number}")), number.to_string()).unwrap();
    }
    let open = fs::File::open(mounted.inside("folder/7")).unwrap();
    for number in 0..2000 {
        assert_eq!(fs::read_to_string(mounted.inside(&format!("folder/{number}"))).unwrap(), number.to_string());
    }
    let begun = std::time::Instant::now();
    while descriptors(&mounted) > 150 {
        assert!(begun.elapsed().as_secs() < 20, "{} descriptors", descriptors(&mounted));
        std::thread::sleep(std::time::Duration::from_millis(20));
        // Somebody has to find a file for it to be noticed.
        fs::metadata(mounted.inside("folder/1")).unwrap();
    }
    // One that is in use is not forgotten.
    assert_eq!(std::io::read_to_string(&open).unwrap(), "7");
    assert_eq!(fs::read_to_string(mounted.inside("folder/3")).unwrap(), "3");
    drop(open);
    mounted.end();
}

#[test]
fn a_fresh_folder_is_listed_with_what_the_mount_changed_in_it() {
    let fresh = std::time::Duration::from_secs(3600);
    let Some(mounted) = Mounted::with(|settings| settings.fresh = fresh, |_| ()) else { return };
    for number in 0..300 {
        fs::write(mounted.behind(&format!("{number}")), number.to_string()).unwrap();
    }
    let names = || -> BTreeSet<_> {
        fs::read_dir(mounted.inside(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names().len(), 300);
    fs::write(mounted.inside("new"), b"new").unwrap();
    fs::remove_file(mounted.inside("7")).unwrap();
    fs::rename(mounted.inside("8"), mounted.inside("eight")).unwrap();
    let found = names();
    assert_eq!(found.len(), 300);
    assert!(found.contains("new") && found.contains("eight") && !found.contains("7") && !found.contains("8"));
    for number in 9..300 {
        assert_eq!(fs::metadata(mounted.inside(&number.to_string())).unwrap().len(), number.to_string().len() as u64);
        assert_eq!(fs::read_to_string(mounted.inside(&number.to_string())).unwrap(), number.to_string());
    }
    mounted.end();
}
