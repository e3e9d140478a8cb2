//! The help of `serve` after its flags.

pub(super) const SERVE_HELP: &str = "\
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

Options of a disk (NAME=TARGET,OPTION,..., --set, 'nigh ctl set export', or keys of [[export]] in --config):
  next=TARGET              a target on which the disk continues (repeat for more, in order; fixed while the disk is served)
  write-log=TARGET:SIZE    a file or block device on a fast device: writes are stable there before they are acknowledged, and reach the
                           disk's target later (fixed while the disk is served; write-mode is then through)
  read-only                refuse writes; read-only=no allows them
  write-mode=back|through  when writes reach the device
  client=NAME              only for clients whose certificate has this name (repeat for more; client=any allows all clients)
  connections=N            most clients at a time (none for no limit, here and below)
  requests=N               most requests in progress of each client
  iops=N, bandwidth=SIZE   most requests, and most bytes read and written, per second by all clients
  tenant=NAME              disks with the same NAME are one tenant (with --allocate) [default: the disk's name]
  floor=SIZE, ceiling=SIZE least and most that its tenant has of a full cache (with --allocate)
  policy=POLICY            which of its blocks its tenant loses (with --allocate; none for --policy)
  share=GROUP              disks with the same GROUP share the memory of equal and similar blocks (with --content); how long a read takes
                           then shows whether another disk of the group has the same block [default: only disks of its tenant]

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
