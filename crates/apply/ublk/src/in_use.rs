//! Uses of a block device that would not survive its end: file systems, swap space, and devices that stand on it.

use std::fs;
use std::path::Path;

/// Folders in which the system shows mounts and swap space, and block devices.
struct System<'a> {
    proc: &'a Path,
    block: &'a Path,
}

/// The use of the block device `name` (such as `ublkb0`) or one of its partitions, as far as this process can see. A program that has it open is not seen.
pub(crate) fn use_of(name: &str) -> Option<String> {
    System { proc: Path::new("/proc"), block: Path::new("/sys/block") }.use_of(name)
}

impl System<'_> {
    fn use_of(&self, name: &str) -> Option<String> {
        let whole = self.block.join(name);
        let entries = fs::read_dir(&whole).into_iter().flatten().flatten().map(|entry| entry.path());
        let parts = entries.filter(|path| path.join("partition").exists());
        let folders: Vec<_> = std::iter::once(whole.clone()).chain(parts).collect();
        let names: Vec<String> =
            folders.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        let holder = folders.iter().find_map(|path| fs::read_dir(path.join("holders")).ok()?.flatten().next());
        if let Some(holder) = holder {
            return Some(format!("{} stands on it", holder.file_name().to_string_lossy()));
        }
        let swaps = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        if swaps
            .lines()
            .filter_map(|line| line.split_whitespace().next()?.strip_prefix("/dev/"))
            .any(|swap| names.iter().any(|name| name == swap))
        {
            return Some("it has swap space".to_owned());
        }
        let numbers = folders.iter().filter_map(|path| fs::read_to_string(path.join("dev")).ok());
        let numbers: Vec<String> = numbers.map(|text| text.trim().to_owned()).collect();
        let processes = fs::read_dir(self.proc).into_iter().flatten().flatten().map(|entry| entry.path());
        // File systems are mounted in some namespace, which is that of some process.
        processes
            .filter_map(|path| fs::read_to_string(path.join("mountinfo")).ok())
            .find_map(|text| mounted(&text, &numbers))
    }
}

/// The use by a mount of `mountinfo`, if one is of these devices.
fn mounted(mountinfo: &str, numbers: &[String]) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let is_on_it = fields.next().is_some_and(|number| numbers.iter().any(|own| own == number));
        is_on_it.then(|| format!("a file system of it is mounted at {}", fields.nth(1).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn uses_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, block) = (folder.path().join("proc"), folder.path().join("block"));
        let use_of = || System { proc: &proc, block: &block }.use_of("ublkb1");
        write(&block.join("ublkb1/dev"), "259:1\n");
        write(&block.join("ublkb1/ublkb1p2/dev"), "259:2\n");
        write(&block.join("ublkb1/ublkb1p2/partition"), "2\n");
        write(&proc.join("swaps"), "Filename\tType\tSize\n/dev/ublkb10 partition 5\n");
        write(&proc.join("7/mountinfo"), "25 1 259:11 / /mnt rw - ext4 /dev/ublkb11 rw\n");
        assert_eq!(use_of(), None);
        write(
            &proc.join("8/mountinfo"),
            "24 1 0:5 / /proc rw - proc proc rw\n25 1 259:2 / /data rw - ext4 /dev/ublkb1p2 rw\n",
        );
        assert_eq!(use_of().unwrap(), "a file system of it is mounted at /data");
        write(&proc.join("swaps"), "Filename\tType\tSize\n/dev/ublkb1 partition 5\n");
        assert_eq!(use_of().unwrap(), "it has swap space");
        write(&block.join("ublkb1/ublkb1p2/holders/dm-3"), "");
        assert_eq!(use_of().unwrap(), "dm-3 stands on it");
    }
}
