//! A B-tree of numbers on a disk. Look-ups pin pages and copy none; a changed page is committed as a whole.
//!
//! `cargo run --release -p nigh-host --example btree`

#![allow(clippy::print_stdout, reason = "its output")]

use std::error::Error;
use std::ops::Range;

use nigh_host::{BLOCK, DiskSettings, Host, HostError, Session, Settings};

/// Bytes before the entries: whether the page is a leaf, and the number of entries. In page 0, the root and the number of pages.
const HEAD: usize = 16;
/// A key, and its value or the child with the keys from this one on.
const ENTRY: usize = 16;
const ENTRIES: usize = (BLOCK as usize - HEAD) / ENTRY;

struct Tree {
    pages: Session,
    root: u64,
    count: u64,
}

fn place(page: u64) -> Range<u64> {
    page * BLOCK..(page + 1) * BLOCK
}

fn number(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

fn set_number(page: &mut [u8], at: usize, number: u64) {
    page[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn is_leaf(page: &[u8]) -> bool {
    number(page, 0) == 1
}

fn len(page: &[u8]) -> usize {
    number(page, 8) as usize
}

fn key(page: &[u8], at: usize) -> u64 {
    number(page, HEAD + at * ENTRY)
}

fn value(page: &[u8], at: usize) -> u64 {
    number(page, HEAD + at * ENTRY + 8)
}

/// Number of entries with keys up to `wanted`.
fn position(page: &[u8], wanted: u64) -> usize {
    let (mut low, mut high) = (0, len(page));
    while low < high {
        let middle = low.midpoint(high);
        if key(page, middle) <= wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// Adds an entry to a page with room, or replaces the one with its key.
fn put(page: &mut [u8], new: u64, value: u64) {
    let at = position(page, new);
    if at > 0 && key(page, at - 1) == new {
        return set_number(page, HEAD + (at - 1) * ENTRY + 8, value);
    }
    let count = len(page);
    page.copy_within(HEAD + at * ENTRY..HEAD + count * ENTRY, HEAD + (at + 1) * ENTRY);
    set_number(page, HEAD + at * ENTRY, new);
    set_number(page, HEAD + at * ENTRY + 8, value);
    set_number(page, 8, count as u64 + 1);
}

impl Tree {
    /// The tree on a disk; a new one on a disk of zeros.
    fn open(pages: Session) -> Result<Tree, HostError> {
        let (root, count) = {
            let head = pages.pin(place(0))?;
            (number(&head, 0), number(&head, 8))
        };
        if count > 0 {
            return Ok(Tree { pages, root, count });
        }
        let mut leaf = pages.pin_new(place(1))?;
        set_number(&mut leaf, 0, 1);
        leaf.commit(false)?;
        Ok(Tree { pages, root: 1, count: 2 })
    }

    fn get(&self, wanted: u64) -> Result<Option<u64>, HostError> {
        let mut page = self.pages.pin(place(self.root))?;
        while !is_leaf(&page) {
            let at = position(&page, wanted).max(1) - 1;
            page = self.pages.pin(place(value(&page, at)))?;
        }
        let at = position(&page, wanted);
        Ok((at > 0 && key(&page, at - 1) == wanted).then(|| value(&page, at - 1)))
    }

    fn insert(&mut self, new: u64, value_of: u64) -> Result<(), HostError> {
        if len(&self.pages.pin(place(self.root))?) == ENTRIES {
            let old = std::mem::replace(&mut self.root, self.count);
            self.count += 1;
            let mut root = self.pages.pin_new(place(self.root))?;
            put(&mut root, 0, old);
            root.commit(false)?;
            self.split(self.root, old)?;
        }
        let mut at = self.root;
        loop {
            let page = self.pages.pin(place(at))?;
            if is_leaf(&page) {
                break;
            }
            let child = value(&page, position(&page, new).max(1) - 1);
            // A page on the way always has room for one entry more.
            if len(&self.pages.pin(place(child))?) == ENTRIES {
                self.split(at, child)?;
            } else {
                at = child;
            }
        }
        let mut leaf = self.pages.pin_mut(place(at))?;
        put(&mut leaf, new, value_of);
        leaf.commit(false)
    }

    /// Moves half of the full page `child` to a new page, which gets an entry in `parent`.
    fn split(&mut self, parent: u64, child: u64) -> Result<(), HostError> {
        let (mut left, mut right) = (self.pages.pin_mut(place(child))?, self.pages.pin_new(place(self.count))?);
        let half = ENTRIES / 2;
        right[..8].copy_from_slice(&left[..8]);
        set_number(&mut right, 8, (ENTRIES - half) as u64);
        right[HEAD..HEAD + (ENTRIES - half) * ENTRY]
            .copy_from_slice(&left[HEAD + half * ENTRY..HEAD + ENTRIES * ENTRY]);
        set_number(&mut left, 8, half as u64);
        let first = key(&right, 0);
        right.commit(false)?;
        left.commit(false)?;
        let mut parent = self.pages.pin_mut(place(parent))?;
        put(&mut parent, first, self.count);
        self.count += 1;
        parent.commit(false)
    }

    /// Writes root and size, and makes all changes stable. A tree that survives a crash at any moment would write a log before.
    fn save(&self) -> Result<(), HostError> {
        let mut head = self.pages.pin_new(place(0))?;
        set_number(&mut head, 0, self.root);
        set_number(&mut head, 8, self.count);
        head.commit(false)?;
        self.pages.flush()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    const KEYS: u64 = 50_000;
    let path = std::env::temp_dir().join(format!("nigh-btree-{}", std::process::id()));
    std::fs::File::create(&path)?.set_len(8 << 20)?;
    let start = || -> Result<Host, Box<dyn Error>> {
        let disk = DiskSettings::new("tree", path.display().to_string().parse()?);
        // A quarter of the pages of the tree.
        Ok(Host::start(Settings::new(256 * BLOCK, "lirs".parse()?, vec![disk]))?)
    };
    // Odd multipliers visit all numbers below a power of two.
    let key = |at: u64| at.wrapping_mul(0x9e37_79b9) % (1 << 32);
    let host = start()?;
    let mut tree = Tree::open(host.open("tree")?)?;
    for at in 0..KEYS {
        tree.insert(key(at), at)?;
    }
    tree.save()?;
    host.shut_down().map_err(|unwritten| format!("{unwritten:?}"))?;

    let host = start()?;
    let tree = Tree::open(host.open("tree")?)?;
    for at in 0..KEYS {
        assert_eq!(tree.get(key(at))?, Some(at));
    }
    assert_eq!(tree.get(key(KEYS))?, None);
    let disk = &host.statistics().1[0];
    println!("{KEYS} keys in {} pages; {} hits, {} misses", tree.count, disk.hits, disk.misses);
    std::fs::remove_file(path)?;
    Ok(())
}
