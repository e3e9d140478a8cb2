//! `nigh serve --ublk` on a kernel without ublk. `cargo xtask ublk-guest` has the rest.

use std::path::Path;
use std::process::Command;

use crate::serving::Folder;

fn fails(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).arg("serve").args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_kernel_without_ublk_is_named() {
    if Path::new("/dev/ublk-control").exists() {
        println!("skipped: a_kernel_without_ublk_is_named: this kernel has ublk");
        return;
    }
    let folder = Folder::new();
    let disk = format!("data={}", folder.empty_image("image", 4 << 20));
    let why = "--ublk data: this kernel has no ublk: there is no /dev/ublk-control. It needs Linux 6.5 or later with CONFIG_BLK_DEV_UBLK; if that is a module, \
         load it (modprobe ublk_drv)";
    assert!(fails(&[&disk, "--ublk", "data"]).contains(why), "{}", fails(&[&disk, "--ublk", "data"]));
    let checked = fails(&[&disk, "--ublk", "data", "--check"]);
    assert!(checked.contains("this kernel has no ublk"), "{checked}");
}

#[test]
fn a_device_is_of_an_export_that_is_there() {
    let folder = Folder::new();
    let disk = format!("data={}", folder.empty_image("image", 4 << 20));
    assert!(fails(&[&disk, "--ublk", "root"]).contains("there is no export root"));
    assert!(fails(&[&disk, "--ublk", "data", "--ublk", "data,id=2"]).contains("the same name"));
}
