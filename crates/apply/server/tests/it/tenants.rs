//! Exports as tenants: directives on behalf of their clients, and their effects.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_server::NBD;
use nigh_service::{
    Allocation, Chunk, Directive, DiskSettings, DiskStatistics, ExportOptions, ExportSettings, FileExtent, Order,
    Service, Settings, TenantStatistics,
};

const BLOCK: u64 = 4096;
/// Blocks of the cache.
const CACHE: u64 = 256;

fn start(allocate: Option<Allocation>, exports: &[&str]) -> Service {
    start_with(allocate, exports, nigh_host::Settings::PREFETCH_WINDOW)
}

fn start_with(allocate: Option<Allocation>, exports: &[&str], prefetch_window: u32) -> Service {
    let export = |name: &&str| ExportSettings::new(*name, "memory:64M".parse().unwrap());
    let mut settings = Settings::new(CACHE * BLOCK, "lru".parse().unwrap(), exports.iter().map(export).collect());
    settings.host.allocate = allocate;
    settings.host.prefetch_window = prefetch_window;
    Service::start(settings).unwrap()
}

fn connect(server: &Service, export: &str) -> Client<UnixStream> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    Client::connect(ours, export, &[]).unwrap()
}

fn read(client: &mut Client<UnixStream>, blocks: impl IntoIterator<Item = u64>) {
    for block in blocks {
        client.read(block * BLOCK, BLOCK as usize).unwrap();
    }
}

fn export(server: &Service, at: usize) -> DiskStatistics {
    server.statistics().exports[at].disk.clone()
}

fn tenant(server: &Service, at: usize) -> TenantStatistics {
    server.statistics().tenants[at].clone()
}

/// Waits for what happens in its own time.
fn until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn set(server: &Service, name: &str, option: &str) -> Result<(), String> {
    let mut options = ExportOptions::default();
    options.add(option).unwrap();
    server.set(name, &options).map_err(|error| error.to_string())
}

fn mru() -> Directive {
    Directive::SetPolicy { priority: 0, policy: Order::Mru }
}

#[test]
fn who_loops_and_says_so_misses_less_and_its_neighbour_no_more() {
    let misses = |smart: bool| {
        let server = start(Some(Allocation::LruSp), &["loop", "other"]);
        if smart {
            server.hint("loop", &mru()).unwrap();
        }
        let (mut loops, mut other) = (connect(&server, "loop"), connect(&server, "other"));
        for step in 0..6 * 300 {
            read(&mut loops, [step % 300]);
            read(&mut other, [step * 7 % 60]);
        }
        let of = [export(&server, 0).misses, export(&server, 1).misses];
        server.shut_down().unwrap();
        of
    };
    let (silent, smart) = (misses(false), misses(true));
    assert_eq!((silent, smart[1]), ([6 * 300, 60], 60));
    // It has about 196 of the 300 blocks; of the rest each round misses all, and a few more.
    assert!(smart[0] < 300 + 5 * 130, "{smart:?}");
}

#[test]
fn nbd_s_cache_makes_the_list_longer_and_trim_says_what_is_not_needed() {
    let server = start_with(Some(Allocation::LruSp), &["disk"], 0);
    let mut client = connect(&server, "disk");
    client.cache(0, 20 * BLOCK).unwrap();
    client.cache(20 * BLOCK, 12 * BLOCK).unwrap();
    // Across two extents.
    client.cache((1 << 20) - BLOCK, 2 * BLOCK).unwrap();
    until(|| export(&server, 0).prefetch_issued == 34 && server.statistics().host.loading == 0);
    let said = server.hints("disk").unwrap();
    assert!(
        said.contains("predict = [{ file = 0, offset = 0, length = 131072 }, { file = 0, offset = 1044480"),
        "{said}"
    );
    read(&mut client, (0..32).chain(255..257));
    let disk = export(&server, 0);
    assert_eq!((disk.misses, disk.prefetch_used, disk.prefetch_wasted), (0, 34, 0));
    assert_eq!((tenant(&server, 0).predicted, server.hints("disk").unwrap()), (34, String::new()));
    client.trim(0, 32 * BLOCK).unwrap();
    assert_eq!(tenant(&server, 0).resident_bytes, 2 * BLOCK);
    server.shut_down().unwrap();
}

#[test]
fn cache_fetches_two_batches_until_some_are_read() {
    let server = start(Some(Allocation::LruSp), &["disk"]);
    let mut client = connect(&server, "disk");
    client.cache(0, 100 * BLOCK).unwrap();
    let issued = |blocks: u64| export(&server, 0).prefetch_issued == blocks && server.statistics().host.loading == 0;
    until(|| issued(32));
    // Each gives way to itself and to one more.
    read(&mut client, 0..10);
    until(|| issued(32 + 20));
    read(&mut client, 10..100);
    let disk = export(&server, 0);
    assert_eq!((disk.misses, disk.prefetch_used, disk.prefetch_wasted), (0, 100, 0));
    server.shut_down().unwrap();
}

#[test]
fn a_client_that_floods_cache_has_a_bounded_list() {
    let server = start(Some(Allocation::LruSp), &["disk"]);
    let mut client = connect(&server, "disk");
    for block in 0..6000 {
        // No two are neighbours.
        client.cache(block * 2 % 16_000 * BLOCK, BLOCK).unwrap();
    }
    let entries = server.hints("disk").unwrap().matches("offset").count();
    assert_eq!(entries, 5000);
    read(&mut client, [3, 5, 3]);
    server.shut_down().unwrap();
}

#[test]
fn floors_and_ceilings_change_while_clients_work() {
    let server = start(Some(Allocation::LruSp), &["one", "two"]);
    let (mut one, mut two) = (connect(&server, "one"), connect(&server, "two"));
    let kept = |server: &Service| tenant(server, 0).resident_bytes / BLOCK;
    read(&mut one, 0..100);
    set(&server, "one", "floor=320K").unwrap();
    read(&mut two, 0..1000);
    assert_eq!(kept(&server), 80);
    set(&server, "one", "floor=none").unwrap();
    read(&mut two, 1000..2000);
    assert_eq!(kept(&server), 0);
    set(&server, "two", "ceiling=400K").unwrap();
    let others = |server: &Service| tenant(server, 1).resident_bytes / BLOCK;
    read(&mut one, 0..CACHE - 100);
    assert_eq!(others(&server), 100);
    read(&mut two, 3000..3300);
    assert_eq!(others(&server), 100);
    assert!(set(&server, "two", "floor=1M").unwrap_err().contains("disk two: expected a floor up to"));
    assert_eq!(server.statistics().exports[1].options.floor, Some(0), "what was refused is not so");
    server.shut_down().unwrap();
}

#[test]
fn a_reload_moves_a_floor_from_one_export_to_another() {
    let server = start(Some(Allocation::LruSp), &["one", "two"]);
    let with = |one: u64, two: u64| {
        let export = |name: &str, floor: u64| {
            let disk = DiskSettings::new(name, "memory:64M".parse().unwrap());
            DiskSettings { floor: floor * BLOCK, ..disk }.into()
        };
        let mut settings =
            Settings::new(CACHE * BLOCK, "lru".parse().unwrap(), vec![export("one", one), export("two", two)]);
        settings.host.allocate = Some(Allocation::LruSp);
        settings
    };
    for (one, two) in [(200, 10), (10, 200), (200, 10)] {
        server.reload(&with(one, two)).unwrap();
        assert_eq!(server.statistics().exports[0].options.floor, Some(one * BLOCK));
        assert_eq!(server.statistics().exports[1].options.floor, Some(two * BLOCK));
    }
    let mut other = with(200, 10);
    other.host.allocate = Some(Allocation::Static);
    assert!(server.reload(&other).unwrap_err()[0].to_string().contains("allocation, batches and prefetch window"));
    server.shut_down().unwrap();
}

#[test]
fn files_of_a_disk_have_priorities_of_their_own() {
    let server = start(Some(Allocation::LruSp), &["disk"]);
    let extent = |file, offset: u64, disk: u64, length: u64| FileExtent {
        file,
        offset: offset * BLOCK,
        disk: disk * BLOCK,
        length: length * BLOCK,
    };
    server.name_files("disk", &[extent(4, 0, 1000, 50), extent(4, 50, 0, 50), extent(9, 0, 2000, 3000)]).unwrap();
    server.hint("disk", &Directive::SetPriority { file: 4, priority: 1 }).unwrap();
    let mut client = connect(&server, "disk");
    read(&mut client, (1000..1050).chain(0..50).chain(2000..4000));
    let before = export(&server, 0).misses;
    read(&mut client, (0..50).chain(1000..1050));
    assert_eq!(export(&server, 0).misses, before, "what is needed more was given up");
    assert!(server.hints("disk").unwrap().contains("set_priority = [{ file = 4, priority = 1 }]"));

    let refused = |result: Result<(), nigh_service::ChangeError>| result.unwrap_err().to_string();
    let missing = Directive::Predict { accesses: vec![Chunk { file: 0, bytes: None }] };
    assert_eq!(refused(server.hint("disk", &missing)), "disk disk: there is no file 0");
    let priority = Directive::SetPriority { file: 1 << 16 | 4, priority: 1 };
    assert_eq!(refused(server.hint("disk", &priority)), "disk disk: there is no file 65540");
    for bad in [extent(1 << 16, 0, 0, 1), extent(1, 0, 16_384, 1), extent(1, 0, 0, 0)] {
        assert!(refused(server.name_files("disk", &[bad])).contains("expected extents that begin at"), "{bad:?}");
    }
    let odd = FileExtent { disk: 100, ..extent(1, 0, 0, 1) };
    assert!(refused(server.name_files("disk", &[odd])).contains("multiples of 4096"));
    assert!(refused(server.name_files("disk", &[extent(1, 0, 0, 9), extent(2, 0, 8, 9)])).contains("overlap"));
    server.shut_down().unwrap();
}

#[test]
fn an_export_that_goes_takes_what_was_said_along() {
    let server = start(Some(Allocation::LruSp), &["stays", "goes"]);
    server.hint("goes", &mru()).unwrap();
    set(&server, "goes", "floor=900K").unwrap();
    assert!(set(&server, "stays", "floor=900K").is_err());
    server.remove("goes", false).unwrap();
    set(&server, "stays", "floor=900K").unwrap();
    server.add(ExportSettings::new("comes", "memory:64M".parse().unwrap())).unwrap();
    assert_eq!(server.hints("comes").unwrap(), "");
    let greedy = DiskSettings { floor: 1 << 20, ..DiskSettings::new("greedy", "memory:64M".parse().unwrap()) };
    assert!(server.add(greedy.into()).unwrap_err().to_string().contains("disk greedy: expected a floor up to"));
    assert_eq!(server.statistics().exports.len(), 2);
    server.shut_down().unwrap();
}

#[test]
fn without_tenants_nobody_is_heard_and_with_them_the_cache_stays_as_it_is() {
    let server = start(None, &["disk"]);
    assert!(server.hint("disk", &mru()).unwrap_err().to_string().contains("need an allocation"));
    assert!(set(&server, "disk", "ceiling=100K").unwrap_err().contains("needs an allocation"));
    assert!(server.statistics().tenants.is_empty());
    let mut client = connect(&server, "disk");
    client.cache(0, 16 * BLOCK).unwrap();
    until(|| export(&server, 0).prefetch_issued == 16);
    server.shut_down().unwrap();

    let server = start(Some(Allocation::Global), &["disk"]);
    assert_eq!((server.statistics().host.policy.as_str(), server.statistics().host.shards), ("global", 1));
    let refused = server.change(Some(CACHE * BLOCK), Some(&"lirs".parse().unwrap())).unwrap_err().to_string();
    assert!(refused.contains("in one list under lru"), "{refused}");
    for memory in [CACHE * BLOCK / 2, CACHE * BLOCK] {
        server.change(Some(memory), None).unwrap();
        assert_eq!(server.statistics().host.memory_bytes, memory);
    }
    assert!(server.hint("disc", &mru()).unwrap_err().to_string().contains("no export disc"));
    server.shut_down().unwrap();
}
