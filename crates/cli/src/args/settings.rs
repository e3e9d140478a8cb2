//! The settings of a server: flags of `nigh serve`, keys of its file, and the tables of docs/config.md.
//!
//! A new one is a line here, and the code in `serve.rs` (`plan_for`) that uses it and fills in its default, for `--print-config`. `cargo xtask docs` writes
//! the documents again.

use std::path::PathBuf;

use clap::ArgAction;
use clap::builder::{BoolValueParser, TypedValueParser};
use serde::Deserialize;
use toml::de::ValueDeserializer;

use super::setting::{On, Reloaded, Setting, settings};
use super::values::{
    Address, Content, LongTime, Metrics, Mode, Policy, Prefetch, Processor, ReadAhead, Scheduler, Size, Slow, Time,
};
use super::{AllocateArg, TlsArg, WriteModeArg};
use crate::completion;

settings! {
    "Cache" cache: CacheArgs {
        /// Memory for blocks, such as 512M; at least 4K [default: 512M]
        #[arg(short, long, value_name = "SIZE", add = Reloaded)]
        memory: Option<Size>,
        /// Upper limit for changes of --memory at run time [default: twice --memory]
        #[arg(long, value_name = "SIZE")]
        memory_max: Option<Size>,
        /// Policy that chooses the block to evict ('nigh policies' lists them), or ulc, which also decides what each --level has
        /// [default: lirs; lru with --allocate]
        #[arg(short, long, value_name = "POLICY", add = completion::live_policies(), add = Reloaded)]
        policy: Option<Policy>,
        /// Read-ahead for sequential reads: none, auto, one-block, one-block:sequential, linux:max=128K or extent:64K [default: auto]
        #[arg(long, value_name = "READAHEAD", add = Reloaded)]
        readahead: Option<ReadAhead>,
        /// A file on a faster disk that keeps blocks evicted from memory, such as file:/fast/nigh.level:32G; it is created
        /// if absent, and is warm after a restart. Or memory of another host, of a 'nigh level' there: tcp:HOST:PORT:SIZE, or tls:HOST:PORT:SIZE, with
        /// options: ca=FILE, certificate=FILE and key=FILE for tls, name=NAME, required and wait=TIME. For several levels, the fastest is first; one on another host
        /// is the last
        #[arg(long, value_name = "file:PATH:SIZE|tcp:HOST:PORT:SIZE[,OPTION...]")]
        level: Vec<String>,
    }

    "Cache" blocks: BlockArgs {
        /// Keep evicted blocks in a part of --memory, as long as that pays, in encoded form: dedup (equal blocks once), dedup+lz4 or
        /// dedup+zstd (also compressed), or sketch or sketch+zstd (also similar blocks as differences). Disks share blocks only with
        /// those of their tenant or of the same share=GROUP. It is fixed at the start [default: none]
        #[arg(long, value_name = "SCHEME")]
        content: Option<Content>,
        /// Processor time for encoding, as a share of one processor, from 1% to 100% [default: 25%]
        #[arg(long, value_name = "SHARE")]
        content_cpu: Option<Processor>,
        /// The list of the blocks in memory, kept every minute and at the end; they are loaded again after a start, into free memory
        /// only; none for no such list [default: the path of --control, or of the file of --level, with .warm appended]
        #[arg(long, value_name = "FILE")]
        warm: Option<PathBuf>,
        /// Compare checksums of blocks in memory before they are written to devices, and at some reads [default: true]
        #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        verify: Option<bool>,
        /// Minimum number of a cache's blocks that are sampled to estimate its hit ratio with less and with more memory, from 64 to 65536; 0 for no
        /// estimate [default: one in 64, at least 512 and at most 8192]
        #[arg(long, value_name = "BLOCKS")]
        curves: Option<u32>,
        /// Parts of the cache, each with its own lock; at least 1 [default: one per four processors, more or fewer so that each has 4M to 8G; 1 with --allocate]
        #[arg(long, value_name = "N")]
        shards: Option<usize>,
    }

    "Tenants" tenants: TenantArgs {
        /// How tenants, each with one or several disks, share the cache: lru-sp (no tenant loses by what others choose), global (one
        /// LRU list), static (equal parts) or utility (by measured gain). --policy is then that of each tenant. Hints come
        /// from 'nigh ctl hint' and NBD's CACHE
        #[arg(long, value_name = "ALLOCATION")]
        allocate: Option<AllocateArg>,
        /// How predicted blocks are prefetched, with --allocate: batch=BLOCKS, the most at a time, from 1 to 4096; window=BLOCKS, how many of a tenant may wait to be
        /// used beyond its first two batches (0: any number); adapt, to choose between single blocks and batches, for each device, by their time. To
        /// be used with batch=64 [default: batch=16,window=4096]
        #[arg(long, value_name = "batch=N,window=N,adapt")]
        prefetch: Option<Prefetch>,
    }

    "Devices" devices: DeviceArgs {
        /// When writes reach the devices; a disk can have a mode of its own [default: back]
        #[arg(long, visible_alias = "write", value_enum, value_name = "MODE")]
        write_mode: Option<WriteModeArg>,
        /// In which order requests go to a device: first-come, batch:16, elevator, look or deadline [default: batch:16]
        #[arg(long, value_name = "SCHEDULER")]
        scheduler: Option<Scheduler>,
        /// Maximum number of requests that each shard has in progress at a device, at least 1; the scheduler orders the others [default: 32]
        #[arg(long, value_name = "N")]
        depth: Option<u32>,
        /// How long writes to a block may fail before further ones to it do, and all writes of a disk before those that would wait for memory do; from 0s to
        /// 1h [default: 5s]
        #[arg(long, value_name = "TIME")]
        fail_after: Option<Time>,
    }

    "Clients" clients: ClientArgs {
        /// Listen here: unix:PATH or tcp:HOST:PORT; sockets passed in LISTEN_FDS are used, too, with the permissions of their unit
        #[arg(short, long, value_name = "ADDRESS")]
        listen: Vec<Address>,
        /// A Unix socket for a virtual machine (vhost-user-blk), which then has the disk in its memory; queues=N, poll=TIME, memory=SIZE, unsealed
        #[arg(long, value_name = "NAME=PATH[,OPTION...]")]
        vhost_user: Vec<String>,
        /// A block device /dev/ublkbN of this host with the disk, for any program; queues=N, depth=N, id=N, keep
        #[arg(long, value_name = "NAME[,OPTION...]")]
        ublk: Vec<String>,
        /// Permissions of the Unix sockets of --listen and --vhost-user, in octal [default: 0600, or 0660 with --socket-group]
        #[arg(long, value_name = "MODE")]
        socket_mode: Option<Mode>,
        /// Group of the Unix sockets of --listen and --vhost-user, by name or number: its members can connect [default: the server's]
        #[arg(long, value_name = "GROUP")]
        socket_group: Option<String>,
        /// Most clients at a time; 4 of them are reserved for each export (fewer if there are many exports) [default: 1024]
        #[arg(long, value_name = "N")]
        connections: Option<usize>,
        /// Let other machines connect over TCP without encryption, and read --metrics without a token
        #[arg(long)]
        insecure_tcp: bool,
        /// The server's certificate (followed by any intermediate ones) and its private key, and the authority of the only clients that may connect
        /// over TCP, if not all may (PEM)
        #[arg(long, value_name = "certificate=FILE,key=FILE[,client-ca=FILE]", add = Reloaded)]
        tls: Option<TlsArg>,
    }

    "Operation" watch: WatchArgs {
        /// Accept commands of 'nigh ctl' and 'nigh top' on this Unix socket, accessible to its owner only
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// Serve statistics over HTTP here: a page with the last hour at /, /metrics for Prometheus, /json. With token=FILE, which addresses of other
        /// than this machine need, only to clients that send the token in that file, read at the start ('Authorization: Bearer TOKEN', or as the password that browsers
        /// ask for)
        #[arg(long, value_name = "HOST:PORT[,token=FILE]")]
        metrics: Option<Metrics>,
        /// Count requests that take longer, such as 100ms, and log them with what they waited for: up to ten a second, from 1ms to 1h or
        /// none [default: none]
        #[arg(long, value_name = "TIME")]
        slow: Option<Slow>,
        /// Time limit for the end of the server, from 1s to 1h, fixed at the start: data that is not written by then is lost, and its disks are named
        /// [default: 8s]
        #[arg(long, value_name = "TIME")]
        stop_within: Option<LongTime>,
    }

    "Rights" rights: RightsArgs {
        /// Let core dumps and debuggers of the same user see the server's memory, which has the contents of disks
        #[arg(long)]
        core_dumps: bool,
        /// Switch to this user, with its groups and no other privileges, when everything is open [default: the user that starts it]
        #[arg(long, value_name = "NAME[:GROUP]")]
        user: Option<String>,
        /// A folder with files that commands of 'nigh ctl' or a reload may open, besides the folders of disks, levels and sockets
        #[arg(long, value_name = "FOLDER")]
        sandbox_allow: Vec<PathBuf>,
        /// Do not restrict access to other files (Landlock), nor to system calls that no server needs (seccomp)
        #[arg(long = "no-sandbox", action = ArgAction::SetFalse, value_parser = BoolValueParser::new().map(On), conflicts_with = "sandbox_allow")]
        sandbox: On,
    }
}
