//! Clients that others wrote against the sessions of this crate, and this crate's client against a server that others
//! wrote. A tool that is not installed skips its tests by name.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command as Process};
use std::time::{Duration, Instant};

use crate::common::{Server, export};
use nigh_nbd::client::{Client, Handshake};
use nigh_nbd::{Command, Framing};
use nigh_testkit::tools::{fio_speaks_nbd, half_empty, installed, python_with_libnbd, qemu_io, run};

const MIB: u64 = 1 << 20;

/// A file of `length` bytes whose middle half is zeroes.
fn half_empty_file(path: &Path, length: u64) -> Vec<u8> {
    let data = half_empty(length as usize);
    std::fs::write(path, &data).unwrap();
    data
}

#[test]
fn nbdinfo_describes_and_lists() {
    if !installed("nbdinfo_describes_and_lists", "nbdinfo") {
        return;
    }
    let server = Server::start("nbdinfo", vec![export("root", 8 * MIB), export("data", 3 * MIB + 512)]);
    let text = run("nbdinfo", &[&server.uri("root")]);
    for line in [
        "newstyle-fixed without TLS",
        "using structured packets",
        "export-size: 8388608",
        "the disk root",
        "base:allocation",
        "x-nigh:cache",
        "is_rotational: true",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let list = run("nbdinfo", &["--list", &server.uri("")]);
    for line in ["export=\"root\"", "export=\"data\"", "export-size: 3146240"] {
        assert!(list.contains(line), "no {line:?} in\n{list}");
    }
    let size = run("nbdinfo", &["--size", &server.uri("data")]);
    assert_eq!(size.trim(), "3146240");
    let missing = Process::new("nbdinfo").arg(server.uri("absent")).output().unwrap();
    assert!(!missing.status.success());
}

#[test]
fn nbdinfo_maps_allocation_and_cache() {
    if !installed("nbdinfo_maps_allocation_and_cache", "nbdinfo") {
        return;
    }
    let server = Server::start("map", vec![export("disk", MIB)]);
    let mut client = Client::connect(server.connect(), "disk", &[]).unwrap();
    client.write(64 << 10, &[7; 64 << 10]).unwrap();
    client.flush().unwrap();
    client.write(256 << 10, &[9; 4096]).unwrap();
    client.cache(512 << 10, 128 << 10).unwrap();
    let rows = |context: &str| -> Vec<String> {
        let text = run("nbdinfo", &[&format!("--map={context}"), &server.uri("disk")]);
        text.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(
        rows("base:allocation"),
        ["0 65536 3", "65536 65536 0", "131072 131072 3", "262144 4096 0", "266240 782336 3"]
    );
    assert_eq!(
        rows("x-nigh:cache"),
        [
            "0 65536 0",
            "65536 65536 1",
            "131072 131072 0",
            "262144 4096 3",
            "266240 258048 0",
            "524288 131072 1",
            "655360 393216 0"
        ]
    );
}

#[test]
fn nbdcopy_both_ways() {
    if !installed("nbdcopy_both_ways", "nbdcopy") {
        return;
    }
    let server = Server::start("nbdcopy", vec![export("disk", 32 * MIB)]);
    let (source, copy) = (server.folder().join("source"), server.folder().join("copy"));
    let data = half_empty_file(&source, 32 * MIB);
    run("nbdcopy", &["--flush", source.to_str().unwrap(), &server.uri("disk")]);
    run("nbdcopy", &[&server.uri("disk"), copy.to_str().unwrap()]);
    assert!(std::fs::read(&copy).unwrap() == data, "the copy differs");
    run("cmp", &[source.to_str().unwrap(), copy.to_str().unwrap()]);
}

#[test]
fn qemu_img_compares_and_converts() {
    if !installed("qemu_img_compares_and_converts", "qemu-img") {
        return;
    }
    let server = Server::start("qemu-img", vec![export("disk", 16 * MIB)]);
    let (source, copy) = (server.folder().join("source"), server.folder().join("copy"));
    let data = half_empty_file(&source, 16 * MIB);
    let (source, copy_name, uri) = (source.to_str().unwrap(), copy.to_str().unwrap(), server.uri("disk"));
    let info = run("qemu-img", &["info", &uri]);
    assert!(info.contains("virtual size: 16 MiB (16777216 bytes)"), "{info}");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", source, &uri]);
    let compared = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri]);
    assert!(compared.contains("Images are identical."), "{compared}");
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, copy_name]);
    assert!(std::fs::read(&copy).unwrap() == data, "the copy differs");
    let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"zero\": true"), "{map}");
}

#[test]
fn qemu_io_reads_writes_discards_and_zeroes() {
    if !installed("qemu_io_reads_writes_discards_and_zeroes", "qemu-io") {
        return;
    }
    let server = Server::start("qemu-io", vec![export("disk", 16 * MIB)]);
    qemu_io(&server.uri("disk"));
}

#[test]
fn qemu_io_is_refused_writes_to_a_read_only_export() {
    if !installed("qemu_io_is_refused_writes_to_a_read_only_export", "qemu-io") {
        return;
    }
    let mut disk = export("disk", MIB);
    disk.features.read_only = true;
    let server = Server::start("read-only", vec![disk]);
    let uri = server.uri("disk");
    run("qemu-io", &["-r", "-f", "raw", "-c", "read 0 1M", &uri]);
    let output = Process::new("qemu-io").args(["-f", "raw", "-c", "write 0 4k", &uri]).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn fio_verifies() {
    if !fio_speaks_nbd("fio_verifies") {
        return;
    }
    let server = Server::start("fio", vec![export("disk", 64 * MIB)]);
    let uri = format!("--uri={}", server.uri("disk"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bssplit=512/20:4k/40:64k/30:1m/10",
        "--bs_unaligned=0",
        "--iodepth=16",
        "--numjobs=4",
        "--size=16m",
        "--offset_increment=16m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--group_reporting",
        &uri,
    ];
    run("fio", &arguments);
}

#[test]
fn libnbd_from_python() {
    let Some(python) = python_with_libnbd("libnbd_from_python") else { return };
    let server = Server::start("python", vec![export("a", 4 * MIB), export("b", 4 * MIB)]);
    let script = r#"
import errno, nbd, sys
socket = sys.argv[1]

def handle(export):
    h = nbd.NBD()
    h.set_export_name(export)
    h.add_meta_context("base:allocation")
    h.add_meta_context("x-nigh:cache")
    h.add_meta_context("x-other:context")
    h.connect_unix(socket)
    return h

a, b = handle("a"), handle("b")
assert a.get_structured_replies_negotiated()
assert a.can_meta_context("x-nigh:cache") and not a.can_meta_context("x-other:context")
a.pwrite(b"A" * 8192, 4096)
b.pwrite(b"B" * 8192, 4096, nbd.CMD_FLAG_FUA)
assert a.pread(8192, 4096) == b"A" * 8192 and b.pread(8192, 4096) == b"B" * 8192
chunks = []
whole = a.pread_structured(12288, 0, lambda data, offset, status, error: chunks.append(offset), nbd.CMD_FLAG_DF)
assert whole == bytes(4096) + b"A" * 8192 and chunks == [0], chunks
a.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
a.zero(4096, 8192, nbd.CMD_FLAG_FAST_ZERO)
assert a.pread(16384, 0) == bytes(16384)
a.cache(65536, 1048576)
a.trim(8192, 8192)
a.flush()

found = {}
def extents(context, offset, entries, error):
    found[context] = (offset, entries)
a.block_status(262144, 0, extents)
assert found["x-nigh:cache"][0] == 0 and set(found["x-nigh:cache"][1][1::2]) == {0, 1}, found
assert sum(found["base:allocation"][1][0::2]) == 262144, found
a.block_status(262144, 0, extents, nbd.CMD_FLAG_REQ_ONE)
assert len(found["base:allocation"][1]) == 2, found

def refused(call, number):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == number, error
    else:
        raise AssertionError("not refused")

a.set_strict_mode(0)
end = a.get_size()
refused(lambda: a.pread(4096, end - 100), errno.EINVAL)
refused(lambda: a.pwrite(bytes(4096), end - 100), errno.ENOSPC)
refused(lambda: a.zero(4096, end), errno.ENOSPC)
refused(lambda: a.trim(4096, end), errno.EINVAL)
refused(lambda: a.pread(0, 0), errno.EINVAL)
refused(lambda: a.pread(512, 0, nbd.CMD_FLAG_NO_HOLE), errno.EINVAL)
refused(lambda: a.pwrite(bytes(512), 0, nbd.CMD_FLAG_DF), errno.EINVAL)
assert b.pread(4, 4096) == b"BBBB" and a.pread(4, 0) == bytes(4)

simple = nbd.NBD()
simple.set_request_structured_replies(False)
simple.set_export_name("b")
simple.connect_unix(socket)
assert not simple.get_structured_replies_negotiated() and not simple.can_df()
assert simple.pread(8192, 4096) == b"B" * 8192

options = nbd.NBD()
options.set_opt_mode(True)
options.connect_unix(socket)
names = []
options.opt_list(lambda name, description: names.append((name, description)))
assert names == [("a", "the disk a"), ("b", "the disk b")], names
options.set_export_name("absent")
refused(options.opt_info, errno.ENOENT)
options.set_export_name("b")
options.opt_info()
assert options.get_size() == 4194304
for query, expected in (None, ["base:allocation", "x-nigh:cache"]), ("base:", ["base:allocation"]), \
        ("x-nigh:", ["x-nigh:cache"]), ("x-nigh:cache", ["x-nigh:cache"]), ("other:", []):
    options.clear_meta_contexts()
    if query:
        options.add_meta_context(query)
    contexts = []
    options.opt_list_meta_context(contexts.append)
    assert contexts == expected, (query, contexts)
options.opt_go()
assert options.pread(4, 4096) == b"BBBB"

zeroes = nbd.NBD()
zeroes.set_handshake_flags(0)
zeroes.set_export_name("b")
zeroes.connect_unix(socket)
assert zeroes.pread(4, 4096) == b"BBBB" and zeroes.get_protocol() == "newstyle"

many = handle("a")
buffers = []
for i in range(256):
    many.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i]) * 512), i * 512)
while many.aio_in_flight() > 0:
    many.poll(-1)
for i in range(256):
    assert a.pread(512, i * 512) == bytes([i]) * 512
for h in a, b, simple, options, zeroes, many:
    h.shutdown()
print("done")
"#;
    let text = run(python, &["-c", script, server.socket().to_str().unwrap()]);
    assert_eq!(text.trim(), "done");
}

/// nbdkit with a disk in memory, stopped when dropped.
struct Nbdkit {
    process: Child,
    folder: std::path::PathBuf,
}

impl Nbdkit {
    fn start(test: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("nigh-nbdkit-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let process = Process::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(arguments).spawn().unwrap();
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < Duration::from_secs(10), "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, folder }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.join("socket")).unwrap()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn exercise(mut client: Client<UnixStream>, status: bool) {
    assert_eq!(client.export().size, 64 * MIB);
    client.write(12345, b"bytes at no boundary").unwrap();
    assert_eq!(client.read(12345, 20).unwrap(), b"bytes at no boundary");
    client.write(MIB, &vec![0xaa; MIB as usize]).unwrap();
    client.zero(MIB + 4096, 8192).unwrap();
    client.trim(MIB + 65536, 65536).unwrap();
    client.flush().unwrap();
    let data = client.read(MIB, 16384).unwrap();
    assert!(data[..4096].iter().chain(&data[12288..]).all(|&byte| byte == 0xaa));
    assert!(data[4096..12288].iter().all(|&byte| byte == 0));
    assert!(client.read(40 * MIB, MIB as usize).unwrap().iter().all(|&byte| byte == 0));
    if client.export().features.cache {
        client.cache(0, MIB).unwrap();
    }
    if status {
        let statuses = client.block_status(0, 64 * MIB).unwrap();
        assert_eq!(statuses[0].context, "base:allocation");
        assert!(statuses[0].extents.len() > 1, "{statuses:?}");
    }
    let failure = client.read(64 * MIB - 1, 2).unwrap_err();
    assert!(failure.to_string().contains("EINVAL"), "{failure}");

    let mut expected = std::collections::HashMap::new();
    for i in 0..64 {
        let cookie = client.submit_read(MIB + i * 512, vec![1; 512]).unwrap();
        expected.insert(cookie, if (8..24).contains(&i) { 0 } else { 0xaa });
    }
    client.submit(Command::Flush, 0, 0).unwrap();
    assert_eq!(client.in_flight(), 65);
    for _ in 0..65 {
        let completion = client.receive().unwrap();
        completion.result.unwrap();
        if let Some(byte) = expected.remove(&completion.cookie) {
            assert!(completion.buffer == [byte; 512], "request {}", completion.cookie);
        }
    }
    assert!(expected.is_empty());
    client.disconnect().unwrap().flush().unwrap();
}

#[test]
fn client_with_nbdkit() {
    if !installed("client_with_nbdkit", "nbdkit") {
        return;
    }
    let nbdkit = Nbdkit::start("client", &["memory", "64M"]);
    exercise(Client::connect(nbdkit.connect(), "", &["base:allocation"]).unwrap(), true);

    let mut handshake = Handshake::begin(nbdkit.connect()).unwrap();
    assert_eq!(handshake.list().unwrap().len(), 1);
    assert_eq!(handshake.info("").unwrap().size, 64 * MIB);
    // nbdkit 1.32 does not know extended headers; later ones do.
    let extended = handshake.extended_headers().unwrap();
    let client = handshake.go("").unwrap();
    assert_eq!(client.framing(), if extended { Framing::Extended } else { Framing::Simple });
    exercise(client, false);

    exercise(Handshake::begin(nbdkit.connect()).unwrap().export_name("").unwrap(), false);
    Handshake::begin(nbdkit.connect()).unwrap().abort().unwrap();
}

#[test]
fn client_with_own_sessions() {
    let server = Server::start("own", vec![export("disk", 64 * MIB)]);
    let contexts = ["base:allocation", "x-nigh:cache"];
    exercise(Client::connect(server.connect(), "disk", &contexts).unwrap(), true);

    let mut handshake = Handshake::begin(server.connect()).unwrap();
    assert!(handshake.extended_headers().unwrap());
    assert_eq!(handshake.set_contexts("disk", &contexts).unwrap(), contexts);
    let mut client = handshake.go("disk").unwrap();
    client.trim(0, 64 * MIB).unwrap();
    assert_eq!(client.framing(), Framing::Extended);
    exercise(client, true);

    exercise(Handshake::begin(server.connect()).unwrap().export_name("disk").unwrap(), false);
}
