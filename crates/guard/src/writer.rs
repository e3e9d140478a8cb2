//! How values reach the kernel: through its files, or through systemd, which otherwise sets its own units' values again.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes values of cgroups.
#[derive(Clone, Debug)]
pub enum Writer {
    /// Straight to the files.
    Files,
    /// Values that systemd manages are set by this `systemctl`, until the next boot.
    Systemd(PathBuf),
}

impl Writer {
    /// What fits the running system.
    pub fn of_system() -> Writer {
        let systemctl =
            ["/usr/bin/systemctl", "/bin/systemctl"].into_iter().map(PathBuf::from).find(|path| path.exists());
        match systemctl {
            // The folder exists while systemd is the first process (sd_booted(3)).
            Some(path) if Path::new("/run/systemd/system").is_dir() => Writer::Systemd(path),
            _ => Writer::Files,
        }
    }

    /// Sets `file` to `value`.
    pub(crate) fn write(&self, file: &Path, value: &str) -> io::Result<()> {
        if let Writer::Systemd(systemctl) = self
            && let Some((unit, property)) = unit_property(file)
        {
            return set_property(systemctl, unit, property, value);
        }
        // Without leave to create: what has vanished stays away.
        let mut file = fs::File::options().write(true).truncate(true).open(file)?;
        file.write_all(value.as_bytes())
    }
}

/// The unit of the system's manager that `file` belongs to, and its name for the value. Units of users have managers of their own.
fn unit_property(file: &Path) -> Option<(&str, &'static str)> {
    let property = match file.file_name()?.to_str()? {
        "memory.low" => "MemoryLow",
        "memory.high" => "MemoryHigh",
        _ => return None,
    };
    let folder = file.parent()?;
    let unit = folder.file_name()?.to_str()?;
    let of_user =
        folder.components().any(|part| part.as_os_str().to_str().is_some_and(|name| name.starts_with("user@")));
    let is_unit = [".service", ".scope", ".slice"].iter().any(|suffix| unit.ends_with(suffix));
    (is_unit && !of_user).then_some((unit, property))
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
