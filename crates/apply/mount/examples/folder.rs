//! Mounts a folder at another one until it is unmounted: `folder SOURCE AT`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use nigh_mount::{MountSettings, Prepared};
use nigh_service::{ExportSettings, Service, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(source), Some(at)) = (arguments.next(), arguments.next()) else {
        return Err("say SOURCE and AT, two folders".into());
    };
    let mut settings = MountSettings::new(source, at);
    settings.allow_other = rustix::process::geteuid().is_root();
    let prepared = Prepared::new(settings, &[])?;
    let export = ExportSettings::new("files", prepared.target());
    let service = Arc::new(Service::start(Settings::new(64 << 20, "lirs".parse()?, vec![export]))?);
    let mount = prepared.mount(&service, "files")?;
    while !mount.is_over() {
        std::thread::sleep(Duration::from_millis(100));
    }
    service.shut_down().map_err(|unwritten| format!("{unwritten:?}"))?;
    Ok(())
}
