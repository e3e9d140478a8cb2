//! The help of `serve` after its flags.

use nigh_service::{ExportOption, ExportOptions};

use crate::wrap::broken;

const BEFORE: &str = "\
Targets:
  PATH                     a regular file or block device; images of other formats (qcow2, VMDK, ...) are refused
  raw:PATH                 the same, without a check for other formats
  unlocked:PATH            the same, although others, such as a running VM, have it open and may change it
  memory:SIZE              memory, zeros at first; lost when the server ends
  nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH
                           an export of another NBD server, such as qemu-nbd with a qcow2 image
  s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX
                           a disk in an object store; 'nigh object create' makes one
  delay:TIME:TARGET        another target, slower by TIME (also delay:seek=0.5ms..12ms,rotation=3ms,100M/s:TARGET)
  delay:disk=NAME:TARGET   another target, as slow as a modelled device ('nigh devices' lists them)
  fault:read=3:TARGET      another target, with failures of chosen operations

Options of a disk (NAME=TARGET,OPTION,..., --set, 'nigh ctl set export', or keys of [[export]] in --config). Repeat next and client for \
several; client=any allows all clients again, and none removes a limit:
";

const AFTER: &str = "\
Options of a level on another host (--level tcp:HOST:PORT:SIZE,OPTION,...; with several servers, behind any of them):
  ca=FILE, certificate=FILE, key=FILE
                           for tls:, the authority of the level server's certificate, and this host's certificate (followed by any
                           intermediate ones) and its private key (PEM)
  name=NAME                the name by which the level server knows this one; no two may have the same [default: HOSTNAME/EXPORT of the first export]
  required                 do not start if it cannot be reached; otherwise it is used as soon as it can be
  wait=TIME                how long the start waits for it, up to 1h [default: 0s]

TLS: with --tls, clients over TCP must start TLS (FORCEDTLS); Unix sockets stay unencrypted. With its client-ca=, clients over TCP need a certificate of that authority.

SIGTERM and SIGINT write everything back and end the server, as does the end of the client of --stdio. SIGHUP, like 'nigh ctl reload', reads --config and the certificates
again and sets memory, policy, read-ahead and exports as flags and file specify.";

/// The column at which the description of an option begins, and the last one.
const COLUMNS: (usize, usize) = (27, 100);

/// The help after the flags.
pub(super) fn help() -> String {
    let options = ExportOptions::ALL.iter().map(|ExportOption { name, value, help, .. }| {
        let name = if value.is_empty() { format!("  {name}") } else { format!("  {name}={value}") };
        format!("{name:<width$}{}\n", broken(help, COLUMNS.1, COLUMNS.0), width = COLUMNS.0)
    });
    format!("{BEFORE}{}\n{AFTER}", options.collect::<String>())
}
