//! Files belong to the programs that create them, and the modes and ACLs of the source count. These tests need root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::Mounted;

/// A user and a group without rights, which need not have names.
const OTHER: u32 = 54_321;

/// A mount for all users; `None`, with a note, for who is not root.
fn mounted_for_all() -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as other users");
        return None;
    }
    let mounted = Mounted::with(|settings| settings.allow_other = true, |_| ())?;
    // The folder of the test is its owner's alone.
    for folder in [mounted.behind(""), mounted.inside("")] {
        let folders = folder.ancestors().take_while(|above| above.starts_with("/tmp/")).map(Path::to_owned);
        folders.for_each(|above| fs::set_permissions(above, fs::Permissions::from_mode(0o777)).unwrap());
    }
    Some(mounted)
}

/// Runs a script as [`OTHER`] in the mount; whether it succeeded.
fn run(mounted: &Mounted, script: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(mounted.inside("")).uid(OTHER).gid(OTHER);
    let output = shell.output().unwrap();
    if !output.status.success() {
        eprintln!("{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn new_files_belong_to_their_creator() {
    let Some(mounted) = mounted_for_all() else { return };
    fs::create_dir(mounted.behind("group")).unwrap();
    chown(mounted.behind("group"), None, Some(777)).unwrap();
    fs::set_permissions(mounted.behind("group"), fs::Permissions::from_mode(0o2777)).unwrap();
    assert!(run(
        &mounted,
        "umask 027; echo text > file; mkdir folder; ln -s file link; mkfifo pipe; echo > group/file; mkdir group/folder"
    ));
    for (name, group, bits) in [
        ("file", OTHER, Some(0o640)),
        ("folder", OTHER, Some(0o750)),
        ("link", OTHER, None),
        ("pipe", OTHER, Some(0o640)),
        ("group/file", 777, Some(0o640)),
        ("group/folder", 777, Some(0o2750)),
    ] {
        let found = fs::symlink_metadata(mounted.behind(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (OTHER, group), "{name}");
        bits.into_iter().for_each(|bits| assert_eq!(mode(&mounted.behind(name)), bits, "{name}"));
    }
    // A file that root creates afterwards belongs to root.
    fs::write(mounted.inside("own"), b"").unwrap();
    assert_eq!(fs::metadata(mounted.behind("own")).unwrap().uid(), 0);
    mounted.end();
}

#[test]
fn modes_of_the_source_count() {
    let Some(mounted) = mounted_for_all() else { return };
    fs::write(mounted.behind("secret"), b"secret").unwrap();
    fs::set_permissions(mounted.behind("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(mounted.behind("closed")).unwrap();
    fs::write(mounted.behind("closed/file"), b"text").unwrap();
    fs::set_permissions(mounted.behind("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    // It is cached, and still nobody else's.
    assert_eq!(fs::read(mounted.inside("secret")).unwrap(), b"secret");
    assert!(!run(&mounted, "cat secret"));
    assert!(!run(&mounted, "cat closed/file"));
    assert!(!run(&mounted, "echo > secret"));
    assert!(!run(&mounted, "chmod 777 secret"));
    assert!(!run(&mounted, "echo > closed/new"));
    fs::set_permissions(mounted.behind("secret"), fs::Permissions::from_mode(0o604)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(run(&mounted, "cat secret"));
    mounted.end();
}

#[test]
fn rights_to_run_as_the_owner_are_lost_by_writes() {
    let Some(mounted) = mounted_for_all() else { return };
    for (name, change) in [
        ("written", "echo more >> written"),
        ("shortened", "truncate -s 1 shortened"),
        ("replaced", "echo new > replaced"),
    ] {
        fs::write(mounted.behind(name), b"program").unwrap();
        fs::set_permissions(mounted.behind(name), fs::Permissions::from_mode(0o6777)).unwrap();
        assert!(run(&mounted, change));
        assert_eq!(mode(&mounted.behind(name)), 0o777, "{name}");
    }
    // Root keeps them, as natively.
    fs::write(mounted.behind("own"), b"program").unwrap();
    fs::set_permissions(mounted.behind("own"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(mounted.inside("own"), b"changed").unwrap();
    assert_eq!(mode(&mounted.behind("own")), 0o4755);
    // Natively, a new owner costs them, too.
    chown(mounted.inside("own"), Some(OTHER), None).unwrap();
    assert_eq!(mode(&mounted.behind("own")), 0o755);
    mounted.end();
}

/// An ACL as an extended attribute (version 2): a tag, rights, and a user or group for each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn acls_of_the_source_count() {
    let Some(mounted) = mounted_for_all() else { return };
    let none = u32::MAX;
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty())
    };
    fs::write(mounted.behind("file"), b"text").unwrap();
    fs::create_dir(mounted.behind("folder")).unwrap();
    // The owner: 6, the other user: 4, the group: 0, the mask: 4, others: 0.
    let one = acl(&[(1, 6, none), (2, 4, OTHER), (4, 0, none), (16, 4, none), (32, 0, none)]);
    if let Err(error) = set(&mounted.behind("file"), "system.posix_acl_access", &one) {
        eprintln!("skipped: the file system of the test has no ACLs: {error}");
        return;
    }
    assert!(run(&mounted, "cat file"));
    assert!(!run(&mounted, "echo > file"));
    // By the mount: the user may write, too.
    let more = acl(&[(1, 6, none), (2, 6, OTHER), (4, 0, none), (16, 6, none), (32, 0, none)]);
    set(&mounted.inside("file"), "system.posix_acl_access", &more).unwrap();
    assert!(run(&mounted, "echo > file"));
    // A file that is created in a folder with a default ACL has that in place of the umask.
    let default = acl(&[(1, 7, none), (4, 6, none), (32, 6, none)]);
    set(&mounted.inside("folder"), "system.posix_acl_default", &default).unwrap();
    fs::set_permissions(mounted.behind("folder"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(run(&mounted, "umask 077; echo > folder/file"));
    assert_eq!(mode(&mounted.behind("folder/file")), 0o666);
    mounted.end();
}
