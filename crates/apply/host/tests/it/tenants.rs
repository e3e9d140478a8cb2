//! Tenants with several disks: what holds for all of them, and what stays when one goes.

use nigh_host::{Allocation, BLOCK, Directive, DiskSettings, Host, Order, Session, Settings, TenantStatistics};

/// Blocks of the cache.
const CACHE: u64 = 256;

fn disk(name: &str, tenant: Option<&str>, floor: u64) -> DiskSettings {
    let disk = DiskSettings::new(name, "memory:16M".parse().unwrap());
    DiskSettings { tenant: tenant.map(str::to_owned), floor: floor * BLOCK, ..disk }
}

fn start(disks: Vec<DiskSettings>) -> Result<Host, String> {
    let mut settings = Settings::new(CACHE * BLOCK, "lru".parse().unwrap(), disks);
    settings.allocate = Some(Allocation::LruSp);
    Host::start(settings).map_err(|error| error.to_string())
}

fn read(session: &Session, blocks: impl IntoIterator<Item = u64>) {
    let mut block = [0; BLOCK as usize];
    blocks.into_iter().for_each(|at| session.read(at * BLOCK, &mut block).unwrap());
}

fn tenant(host: &Host, name: &str) -> Option<TenantStatistics> {
    host.tenant_statistics().into_iter().find(|tenant| tenant.name == name)
}

fn misses(host: &Host, disk: &str) -> u64 {
    host.disk_statistics(&host.disk(disk).unwrap()).misses
}

/// The default export of NBD has no name, and others may have long ones.
#[test]
fn a_tenant_is_called_as_its_disk_whatever_that_is_called() {
    let names = [String::new(), "x".repeat(1000)];
    let disks = || names.iter().map(|name| disk(name, None, 0)).collect::<Vec<_>>();
    let with_tenants = start(disks()).unwrap();
    let without = Host::start(Settings::new(CACHE * BLOCK, "lru".parse().unwrap(), disks())).unwrap();
    for host in [with_tenants, without] {
        names.iter().for_each(|name| read(&host.open(name).unwrap(), 0..4));
        assert_eq!(names.each_ref().map(|name| misses(&host, name)), [4, 4]);
        host.shut_down().unwrap();
    }
}

#[test]
fn disks_of_a_tenant_share_its_floor() {
    let host = start(vec![disk("a", Some("vm"), 80), disk("b", Some("vm"), 0), disk("c", None, 0)]).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| host.open(name).unwrap());
    read(&a, 0..40);
    read(&b, 0..40);
    read(&c, 0..1000);
    let vm = tenant(&host, "vm").unwrap();
    assert_eq!((vm.disks, vm.floor, vm.resident_bytes), (vec!["a".into(), "b".into()], 80 * BLOCK, 80 * BLOCK));
    assert_eq!(host.tenant_statistics().len(), 2);
    read(&a, 0..40);
    read(&b, 0..40);
    assert_eq!((misses(&host, "a"), misses(&host, "b")), (40, 40));
    // A change by one of them is one for both.
    host.set("b", |disk| (disk.floor, disk.ceiling) = (0, 50 * BLOCK)).unwrap();
    let bounds = |name| (host.disk(name).unwrap().settings().floor, host.disk(name).unwrap().settings().ceiling);
    assert_eq!((bounds("a"), bounds("c")), ((0, 50 * BLOCK), (0, 0)));
    host.shut_down().unwrap();
}

#[test]
fn a_disk_that_goes_leaves_the_other_its_blocks_and_hints() {
    let host = start(vec![disk("a", Some("vm"), 60), disk("b", Some("vm"), 60), disk("c", None, 0)]).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| host.open(name).unwrap());
    host.hint("a", &Directive::SetPriority { file: 0, priority: 3 }).unwrap();
    host.hint("b", &Directive::SetPriority { file: 0, priority: 4 }).unwrap();
    host.hint("b", &Directive::SetPolicy { priority: 3, policy: Order::Mru }).unwrap();
    // One list, on both.
    a.prefetch(0..4 * BLOCK).unwrap();
    b.prefetch(0..4 * BLOCK).unwrap();
    a.prefetch(8 * BLOCK..9 * BLOCK).unwrap();
    let predicts = |name: &str| host.hints(name).unwrap().matches("offset").count();
    assert_eq!((predicts("a"), predicts("b"), predicts("c")), (2, 1, 0));
    read(&a, 0..4);
    read(&b, 0..4);
    assert_eq!(tenant(&host, "vm").unwrap().predicted, 8);
    read(&a, 20..32);
    read(&b, 20..32);
    host.remove("b", false).unwrap();
    let said = host.hints("a").unwrap();
    assert!(said.contains("set_priority = [{ file = 0, priority = 3 }]") && said.contains("mru"), "{said}");
    assert!(said.contains("offset = 32768") && said.contains("bounds = { floor = 60"), "{said}");
    assert_eq!(tenant(&host, "vm").unwrap().disks, ["a"]);
    read(&c, 0..1000);
    let before = misses(&host, "a");
    read(&a, (0..4).chain(8..9).chain(20..32));
    assert_eq!(misses(&host, "a"), before, "the floor kept them");

    // Another disk of the tenant has what holds for it, and forgets nothing.
    host.add(disk("d", Some("vm"), 0)).unwrap();
    assert_eq!(host.disk("d").unwrap().settings().floor, 60 * BLOCK);
    assert!(host.hints("a").unwrap().contains("priority = 3"));
    assert!(!host.hints("d").unwrap().contains("set_priority"));
    // With the last one the tenant goes, and what it kept is free for others.
    assert!(host.set("c", |disk| disk.floor = 200 * BLOCK).is_err());
    for name in ["a", "d"] {
        host.remove(name, false).unwrap();
    }
    host.set("c", |disk| disk.floor = 200 * BLOCK).unwrap();
    assert!(tenant(&host, "vm").is_none());
    host.add(disk("a", Some("vm"), 0)).unwrap();
    assert_eq!(host.hints("a").unwrap(), "");
    drop((a, b));
    host.shut_down().unwrap();
}

#[test]
fn what_cannot_be_is_one_line() {
    let refused = |disks| start(disks).err().unwrap();
    let differ = refused(vec![disk("a", Some("vm"), 1), disk("x", Some("vm"), 0), disk("b", Some("vm"), 2)]);
    assert_eq!(differ, "disks a and b of tenant vm give different values of floor: give it for one disk only");
    assert!(refused(vec![disk("a", Some(""), 0)]).contains("the name of a tenant must have"));
    assert!(refused(vec![disk("a", Some("x\ny"), 0)]).contains("no control characters"));
    let host = start(vec![disk("a", None, 5)]).unwrap();
    // A disk may be of the tenant that another one is by its name.
    host.add(disk("b", Some("a"), 0)).unwrap();
    let other = host.add(disk("c", Some("a"), 6)).err().unwrap().to_string();
    assert!(other.starts_with("disks a and c of tenant a give different values of floor"), "{other}");
    let moved = host.set("b", |disk| disk.tenant = None).unwrap_err().to_string();
    assert_eq!(moved, "the tenant of disk b, a, cannot change while it is open: remove it and add it again");
    host.remove("b", false).unwrap();
    host.add(disk("b", None, 0)).unwrap();
    assert_eq!(host.tenant_statistics().len(), 2);
    let greedy = host.add(disk("greedy", None, CACHE)).err().unwrap().to_string();
    assert!(greedy.contains("disk greedy: expected a floor up to"), "{greedy}");
    assert_eq!(host.tenant_statistics().len(), 2);
    host.shut_down().unwrap();

    let under =
        |name: &str, policy: &str| DiskSettings { policy: Some(policy.parse().unwrap()), ..disk(name, Some("vm"), 0) };
    let two = start(vec![under("a", "lirs"), disk("b", Some("vm"), 0), under("c", "arc")]).err().unwrap();
    assert!(two.contains("disks a and c of tenant vm give different values of policy"), "{two}");
    let offline = start(vec![under("a", "opt")]).err().unwrap();
    assert!(offline.contains("disk a: ") && offline.contains("opt"), "{offline}");

    let plain = Settings::new(CACHE * BLOCK, "lru".parse().unwrap(), vec![disk("a", Some("vm"), 0)]);
    let error = Host::start(plain).err().unwrap().to_string();
    assert!(
        error.contains("a tenant, a floor, a ceiling or a policy of its own needs an allocation, such as lru-sp"),
        "{error}"
    );
}

/// A loop that needs more than half of the memory, beside reads that nothing helps.
#[test]
fn memory_moves_to_the_disk_that_gains_by_it() {
    let run = |allocation| {
        let mut settings =
            Settings::new(CACHE * BLOCK, "lirs".parse().unwrap(), vec![disk("loop", None, 0), disk("scan", None, 0)]);
        settings.allocate = Some(allocation);
        let host = Host::start(settings).unwrap();
        let [looped, scan] = ["loop", "scan"].map(|name| host.open(name).unwrap());
        for at in 0..12_000 {
            read(&looped, [at % 180]);
            read(&scan, [at % 4096]);
        }
        (misses(&host, "loop"), tenant(&host, "loop").unwrap(), tenant(&host, "scan").unwrap())
    };
    let (equal, ..) = run(Allocation::Static);
    let (misses, looped, scan) = run(Allocation::Utility);
    assert!(2 * misses < equal, "{misses} misses, {equal} with equal parts");
    assert!(looped.share.unwrap() >= 180 * BLOCK && scan.share.unwrap() >= CACHE / 4 * BLOCK, "{looped:?} {scan:?}");
    assert!(looped.resident_bytes >= 175 * BLOCK, "{}", looped.resident_bytes);
}
