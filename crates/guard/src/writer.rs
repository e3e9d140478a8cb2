//! How values reach the kernel: through its files, or through systemd, which would otherwise overwrite the values of its own units.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes values of cgroups.
#[derive(Clone, Debug)]
pub enum Writer {
    /// Straight to the files.
    Files,
    /// Properties of the running systemd's own units are set by `systemctl`, until the next boot.
    Systemd {
        /// The program.
        systemctl: PathBuf,
        /// Where cgroups are mounted: a unit is known by its whole path from here.
        cgroupfs: PathBuf,
    },
}

impl Writer {
    /// The one for the running system, whose cgroups are mounted at `cgroupfs`.
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
        // Without leave to create: what has vanished stays away.
        let mut file = fs::File::options().write(true).truncate(true).open(file)?;
        file.write_all(value.as_bytes())
    }
}

/// The unit of the system's manager that `file`, a path below the root of the cgroups, belongs to, and the property that it holds.
///
/// systemd places each unit in its slice, and each slice in the slice that its name continues (systemd.slice(5)). Whatever lies below
/// a service or a scope, or below a group that is no slice, belongs to a manager of its own, such as a user's or a container's, and
/// may bear the name of a unit of the host.
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

/// The stem of the name of a slice, where systemd would place it below the slice with the stem `above`.
fn stem_below<'a>(above: &str, group: &'a str) -> Option<&'a str> {
    let stem = group.strip_suffix(".slice")?;
    let parent = stem.rsplit_once('-').map_or("", |(parent, _)| parent);
    (parent == above).then_some(stem)
}

/// systemd puts an underscore before a name that could be taken for a file of the kernel.
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
