//! Writing values to the kernel: through its files, or through systemd, which would otherwise overwrite the values of
//! its own units.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes values of cgroups.
#[derive(Clone, Debug)]
pub enum Writer {
    /// Directly to the files.
    Files,
    /// Properties of units of the running systemd are set with `systemctl`, until the next boot.
    Systemd {
        /// The program.
        systemctl: PathBuf,
        /// The mount point of cgroups: a unit is identified by its whole path from here.
        cgroupfs: PathBuf,
    },
}

impl Writer {
    /// The writer for the running system with cgroups mounted at `cgroupfs`.
    pub fn of_system(cgroupfs: &Path) -> Writer {
        let systemctl =
            ["/usr/bin/systemctl", "/bin/systemctl"].into_iter().map(PathBuf::from).find(|path| path.exists());
        match systemctl {
            // The folder exists while systemd is the first process (sd_booted(3)).
            Some(systemctl) if Path::new("/run/systemd/system").is_dir() => {
                Writer::Systemd { systemctl, cgroupfs: cgroupfs.to_owned() }
            }
            _ => Writer::Files,
        }
    }

    /// Sets `file` to `value`.
    pub(crate) fn write(&self, file: &Path, value: &str) -> io::Result<()> {
        if let Writer::Systemd { systemctl, cgroupfs } = self
            && let Ok(file) = file.strip_prefix(cgroupfs)
            && let Some((unit, property)) = unit_property(file)
        {
            return set_property(systemctl, unit, property, value);
        }
        // Without creating it: a file that was removed must stay away.
        let mut file = fs::File::options().write(true).truncate(true).open(file)?;
        file.write_all(value.as_bytes())
    }
}

/// The unit of the system manager that `file`, a path below the root of the cgroups, belongs to, and the property that
/// the file holds.
///
/// systemd places each unit in its slice, and each slice in its parent slice, whose name is a prefix of its own
/// (systemd.slice(5)). A group below a service or a scope, or below a group that is no slice, belongs to another
/// manager, such as that of a user or a container. Its name can equal that of a unit of the host.
fn unit_property(file: &Path) -> Option<(&str, &'static str)> {
    let property = match file.file_name()?.to_str()? {
        "memory.low" => "MemoryLow",
        "memory.high" => "MemoryHigh",
        _ => return None,
    };
    let groups: Vec<&str> = file.parent()?.iter().map(|group| group.to_str().map(unescaped)).collect::<Option<_>>()?;
    let (unit, slices) = groups.split_last()?;
    let above = slices.iter().try_fold("", |above, slice| stem_below(above, slice))?;
    let is_unit = unit.ends_with(".service") || unit.ends_with(".scope") || stem_below(above, unit).is_some();
    is_unit.then_some((unit, property))
}

/// The stem of a slice's name, if systemd would place it below the slice with the stem `above`.
fn stem_below<'a>(above: &str, group: &'a str) -> Option<&'a str> {
    let stem = group.strip_suffix(".slice")?;
    let parent = stem.rsplit_once('-').map_or("", |(parent, _)| parent);
    (parent == above).then_some(stem)
}

/// systemd prepends an underscore to a name that could be mistaken for a file of the kernel.
fn unescaped(group: &str) -> &str {
    group.strip_prefix('_').unwrap_or(group)
}

fn set_property(systemctl: &Path, unit: &str, property: &str, value: &str) -> io::Result<()> {
    let value = if value == "max" { "infinity" } else { value };
    let mut command = Command::new(systemctl);
    command.args(["set-property", "--runtime", "--", unit]).arg(format!("{property}={value}"));
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().next().unwrap_or("systemctl failed").to_owned()))
}
