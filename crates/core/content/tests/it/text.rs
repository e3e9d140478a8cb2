//! Tables 1 and 2 of the paper, and the transitions of its sections 2.2 and 3, one by one.

use nigh_content::Content;
use nigh_content::lpu::{Census, Contents, Kind, Lpu, Settings, Signature, View, signature};
use nigh_policy::Slot;

/// Contents that are their names: the sub-signatures, a letter each, and after a colon the bytes of a difference from
/// any other content. Without these, a difference has the sub-blocks that differ: the tables' perfect encoding.
#[derive(Default)]
struct Names(Vec<&'static str>);

impl Names {
    fn content(&mut self, name: &'static str) -> Content {
        let known = self.0.iter().position(|&other| other == name);
        Content(known.unwrap_or_else(|| {
            self.0.push(name);
            self.0.len() - 1
        }) as u32)
    }
}

impl Contents for Names {
    fn signature(&mut self, content: Content) -> Signature {
        self.0[content.0 as usize].as_bytes()[..8].try_into().unwrap()
    }

    fn delta_bytes(&mut self, content: Content, reference: Content) -> u32 {
        if let Some((_, bytes)) = self.0[content.0 as usize].split_once(':') {
            return bytes.parse().unwrap();
        }
        let (one, other) = (self.signature(content), self.signature(reference));
        512 * one.iter().zip(other).filter(|&(&one, other)| one != other).count() as u32
    }
}

/// A cache, its disk and its requests.
struct Case {
    lpu: Lpu,
    names: Names,
    disk: [&'static str; 32],
}

const SETTINGS: Settings = Settings {
    data_blocks: 8,
    delta_blocks: 96,
    virtual_blocks: 16,
    scan_every: 1000,
    warm_blocks: 20_000,
    similarity: 7,
    delta_bytes_most: 768,
    identical: false,
};

impl Case {
    fn new(settings: Settings) -> Case {
        Case { lpu: Lpu::new(32, settings), names: Names::default(), disk: ["--------"; 32] }
    }

    /// A cache that scans after the `blocks`, which are read once, the first one last. Among equally popular ones, the
    /// scan takes the first one first.
    fn scanned(settings: Settings, blocks: &[&'static str]) -> Case {
        let mut case = Case::new(Settings { scan_every: blocks.len() as u64, ..settings });
        for (address, block) in blocks.iter().enumerate().rev() {
            case.disk[address] = block;
            case.read(address);
        }
        assert_eq!(case.lpu.counts().scans, 1);
        case
    }

    fn read(&mut self, address: usize) -> bool {
        let content = self.names.content(self.disk[address]);
        let hit = self.lpu.access(Slot(address as u32), false, content, &mut self.names);
        self.lpu.check();
        hit
    }

    fn write(&mut self, address: usize, block: &'static str) -> bool {
        self.disk[address] = block;
        let content = self.names.content(block);
        let hit = self.lpu.access(Slot(address as u32), true, content, &mut self.names);
        self.lpu.check();
        hit
    }

    fn view(&self, address: usize) -> Option<View> {
        self.lpu.queue().find(|view| view.slot == Slot(address as u32))
    }

    fn kind(&self, address: usize) -> Kind {
        self.view(address).unwrap().kind
    }

    fn order(&self) -> Vec<u32> {
        self.lpu.queue().map(|view| view.slot.0).collect()
    }
}

const AB: &str = "aaaabbbb";
const CD: &str = "ccccdddd";
const AD: &str = "aaaadddd";
const BD: &str = "bbbbdddd";

/// Rows 0 and 4 of the Heatmap stand for the table's two; a row has four letters.
fn heat(lpu: &Lpu) -> [Vec<u64>; 2] {
    [0, 4].map(|row| lpu.heatmap().row(row)[usize::from(b'a')..=usize::from(b'd')].to_vec())
}

#[test]
fn table_1_the_buildup_of_the_heatmap() {
    let mut case = Case::new(SETTINGS);
    let rows = [
        (AB, [[1, 0, 0, 0], [0, 1, 0, 0]]),
        (CD, [[1, 0, 1, 0], [0, 1, 0, 1]]),
        (AD, [[2, 0, 1, 0], [0, 1, 0, 2]]),
        (BD, [[2, 1, 1, 0], [0, 1, 0, 3]]),
    ];
    assert_eq!(heat(&case.lpu), [[0; 4]; 2]);
    for (address, (block, expected)) in rows.into_iter().enumerate() {
        case.disk[address] = block;
        case.read(address);
        assert_eq!(heat(&case.lpu), expected, "after {block}");
    }
}

/// Half a block that matches is 4 of 8 sub-blocks here, so that is the threshold, and a popularity is four times the
/// table's.
#[test]
fn table_2_the_selection_of_a_reference_block() {
    let settings = Settings { similarity: 4, delta_bytes_most: 2048, ..SETTINGS };
    let mut case = Case::scanned(settings, &[AB, CD, AD, BD]);
    for (block, popularity) in [(AB, 3), (CD, 4), (AD, 5), (BD, 4)] {
        let content = case.names.content(block);
        let signature = case.names.signature(content);
        assert_eq!(case.lpu.heatmap().popularity(&signature), 4 * popularity, "{block}");
    }
    assert_eq!(case.kind(2), Kind::Reference);
    assert!([0, 1, 3].into_iter().all(|address| case.kind(address) == Kind::Associate(Slot(2))));
    // 2.5 cache blocks, where LRU needs 4.
    let data = case.lpu.queue().filter(|view| view.data).count();
    let Census { references, associates, independents, cached, delta_blocks } = case.lpu.census();
    assert_eq!((references, associates, independents, cached), (1, 3, 0, 4));
    assert_eq!(data as f64 + f64::from(delta_blocks * 64) / 4096.0, 2.5);
    assert!((0..4).all(|address| case.read(address)));
}

/// 2.1: the bytes at offsets 0, 16, 32 and 64 of each 512, modulo 256.
#[test]
fn a_signature_is_four_bytes_of_each_sub_block() {
    let mut block = [7; 4096];
    for (at, byte) in [(0, 250), (16, 3), (32, 2), (64, 4), (512, 9), (4095, 1), (3584, 0)] {
        block[at] = byte;
    }
    assert_eq!(signature(&block), [3, 30, 28, 28, 28, 28, 28, 21]);
}

/// 4.2.1: the delta area is min{16 MB, 1/8 of the cache}, and part of it.
#[test]
fn the_delta_area_is_an_eighth_of_a_small_cache() {
    let area = |mb: u32| {
        let settings = Settings::published(mb * 256);
        assert_eq!(settings.data_blocks * 4096 + settings.delta_blocks * 64, mb << 20);
        (settings.delta_blocks * 64) >> 20
    };
    assert_eq!([64, 128, 256, 1024].map(area), [8, 16, 16, 16]);
}

/// 2.2: "Before this virtual block is selected, it is an independent block. Its signature is updated upon every write."
#[test]
fn a_block_is_independent_at_first() {
    let mut case = Case::new(SETTINGS);
    assert!(!case.read(1));
    let view = case.view(1).unwrap();
    assert_eq!((view.kind, view.data, view.delta_blocks), (Kind::Independent, true, 0));
    assert!(case.read(1) && case.write(1, "abcdefgh"));
    assert_eq!(case.view(1).unwrap().signature, *b"abcdefgh");
    assert!(!case.write(2, "zzzzzzzz") && case.read(2));
}

/// 3.1: "The LPU queue is scanned after every 50,000 I/O requests."
#[test]
fn a_scan_follows_a_number_of_requests() {
    let mut case = Case::new(Settings { scan_every: Settings::published(1024).scan_every, ..SETTINGS });
    for _ in 0..49_999 {
        case.read(1);
    }
    assert_eq!(case.lpu.counts().scans, 0);
    case.read(1);
    assert_eq!(case.lpu.counts().scans, 1);
    assert_eq!(Settings::published(1024).warm_blocks, 20_000);
}

/// 3.1 and 3.3: similarity 7, delta 768.
#[test]
fn thresholds() {
    for (block, bytes, associated) in [
        ("aaaaaaab:768", 768, true),
        ("aaaaaaab:769", 769, false),
        ("aaaaaabb:10", 10, false),
        ("aaaaaaaa:1", 1, true),
        ("aaaaaaaa:1000", 1000, false),
    ] {
        let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", block]);
        let Counts { encodes, false_positives } = Counts::of(&case.lpu);
        let view = case.view(1).unwrap();
        if associated {
            assert_eq!(view.kind, Kind::Associate(Slot(0)), "{block}");
            assert_eq!((view.data, view.delta_blocks), (false, u32::div_ceil(bytes, 64)));
            assert_eq!((encodes, false_positives), (1, 0));
        } else {
            assert_eq!((view.kind, view.data), (Kind::Independent, true), "{block}");
            assert_eq!(case.kind(0), Kind::Independent);
            let are_similar = block != "aaaaaabb:10";
            assert_eq!((encodes, false_positives), (u64::from(are_similar), u64::from(are_similar)));
        }
        assert!(case.read(0) && case.read(1));
    }
}

/// Counters of scans.
#[derive(PartialEq, Eq)]
struct Counts {
    encodes: u64,
    false_positives: u64,
}

impl Counts {
    fn of(lpu: &Lpu) -> Counts {
        let counts = lpu.counts();
        Counts { encodes: counts.encodes, false_positives: counts.false_positives }
    }
}

/// 3.1: a popular block that is similar to a more popular one refers to it.
#[test]
fn the_most_popular_of_similar_blocks_is_the_reference() {
    let mut case = Case::new(Settings { scan_every: 6, ..SETTINGS });
    for (address, block) in ["0000000x", "8000000x", "00000000"].into_iter().enumerate() {
        case.disk[address] = block;
    }
    [0, 1, 2, 2, 2, 2].into_iter().for_each(|address| {
        case.read(address);
    });
    assert_eq!((case.kind(2), case.kind(0)), (Kind::Reference, Kind::Associate(Slot(2))));
    // It matches only 6 sub-signatures of the reference, and so was a candidate; nothing is similar to it.
    assert_eq!(case.kind(1), Kind::Independent);
}

/// 3.3: the most similar reference block; identical ones need no difference.
#[test]
fn the_most_similar_reference_is_taken() {
    // Blocks 0 and 1 have 6 matches; 2 has 7 with each, and 3 is identical to 1.
    let mut case = Case::new(Settings { scan_every: 10, ..SETTINGS });
    for (address, block) in ["aaaaaaaa", "aaaaaabb", "aaaaaaab", "aaaaaabb"].into_iter().enumerate() {
        case.disk[address] = block;
    }
    [0, 0, 0, 0, 0, 0, 3, 1, 1, 2].into_iter().for_each(|address| {
        case.read(address);
    });
    assert_eq!(case.kind(3), Kind::Associate(Slot(1)));
    assert_eq!((case.view(3).unwrap().delta_blocks, case.view(2).unwrap().delta_blocks), (0, 8));
    // Of two with equal similarity, the more popular.
    assert_eq!(case.kind(2), Kind::Associate(Slot(0)));
}

/// 3.3: "If an associate block is selected as a reference, it will be replaced using its reference block instead."
#[test]
fn references_are_not_cascaded() {
    let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", "aaaaaaab"]);
    assert_eq!(case.kind(1), Kind::Associate(Slot(0)));
    // By now the associate block is more popular than its reference block.
    (0..20).for_each(|_| assert!(case.read(1)));
    case.disk[2] = "aaaaaaab";
    case.read(2);
    case.read(2);
    assert_eq!(case.kind(2), Kind::Associate(Slot(0)));
    assert_eq!((case.kind(0), case.kind(1)), (Kind::Reference, Kind::Associate(Slot(0))));
}

/// 2.2: "A reference block is always ahead of its associate blocks in the LPU queue."
#[test]
fn a_read_of_an_associate_block_accesses_its_reference() {
    let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", "xxxxxxxx", "yyyyyyyy", "aaaaaaab"]);
    case.read(1);
    assert_eq!(case.order(), [1, 0, 2, 3]);
    assert!(case.read(3));
    assert_eq!(case.order(), [0, 3, 1, 2]);
}

#[test]
fn a_write_to_an_associate_block_changes_its_delta() {
    let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", "aaaaaaab"]);
    assert!(case.write(1, "axaaaaab:65"));
    let view = case.view(1).unwrap();
    assert_eq!((view.kind, view.delta_blocks, view.signature), (Kind::Associate(Slot(0)), 2, *b"axaaaaab"));
    // It becomes equal to its reference, and different again.
    assert!(case.write(1, "aaaaaaaa"));
    assert_eq!(case.view(1).unwrap().delta_blocks, 0);
    assert!(case.write(1, "axaaaaab:768"));
    assert_eq!(case.view(1).unwrap().delta_blocks, 12);
}

/// 2.2: "A block disconnects the link to its reference if this block has been changed a lot."
#[test]
fn a_block_that_changed_a_lot_is_disconnected() {
    let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", "aaaaaaab"]);
    assert!(case.write(1, "aaaaaaab:769"));
    let view = case.view(1).unwrap();
    assert_eq!((view.kind, view.data, view.delta_blocks), (Kind::Independent, true, 0));
    assert_eq!(case.lpu.counts().disconnected, 1);
    // Nothing refers to the reference block any more.
    assert_eq!(case.kind(0), Kind::Independent);
    assert!(case.read(0) && case.read(1));
}

/// 2.2: writes to a reference block "need update its delta blocks. But the signature does not change".
#[test]
fn a_write_to_a_reference_block_goes_to_its_delta() {
    let mut case = Case::scanned(SETTINGS, &["aaaaaaaa", "aaaaaaab"]);
    assert!(case.write(0, "zzzzzzzz:1500"));
    let view = case.view(0).unwrap();
    assert_eq!((view.kind, view.delta_blocks, view.signature), (Kind::Reference, 24, *b"aaaaaaaa"));
    assert!(case.read(0) && case.read(1));
    // "In the worst case, a reference block can occupy twice as much as the original block." (4.2.1)
    assert!(case.write(0, "yyyyyyyy:5000"));
    assert_eq!(case.lpu.census().delta_blocks, 64 + 8);
}

/// 2.2: the second kind of replacement.
#[test]
fn the_data_block_of_a_reference_block_can_be_evicted() {
    let mut case = Case::scanned(Settings { data_blocks: 2, ..SETTINGS }, &["aaaaaaaa", "aaaaaaab"]);
    case.lpu.check();
    for address in 2..4 {
        case.disk[address] = ["xxxxxxxx", "yyyyyyyy"][address - 2];
        assert!(!case.read(address));
    }
    let view = case.view(0).unwrap();
    assert_eq!((view.kind, view.data), (Kind::Reference, false));
    // The associate block keeps its delta, and its reference block is read from the disk again.
    assert_eq!((case.kind(1), case.view(1).unwrap().delta_blocks), (Kind::Associate(Slot(0)), 8));
    assert!(!case.read(1));
    assert!(case.view(0).unwrap().data && case.read(1) && case.read(0));
    // An evicted independent block stays in the queue: it is known, and a miss.
    assert!(case.view(2).is_some_and(|view| !view.data) && !case.read(2));
}

/// 2.2: the first kind of replacement.
#[test]
fn the_last_virtual_block_that_is_no_reference_is_replaced() {
    let settings = Settings { virtual_blocks: 4, ..SETTINGS };
    let mut case = Case::scanned(settings, &["xxxxxxxx", "yyyyyyyy", "aaaaaaaa", "aaaaaaab"]);
    // The reference block was moved ahead when the associate block was encoded.
    assert_eq!(case.order(), [2, 0, 1, 3]);
    case.disk[5] = "uuuuuuuu";
    case.read(5);
    assert_eq!((case.order(), case.lpu.counts().virtual_replaced), (vec![5, 2, 0, 1], 1));
    assert!(!case.read(3));
}

/// 2.2: the third kind of replacement, of the least recently used block with a delta that is no reference block.
#[test]
fn delta_blocks_are_taken_from_the_end_of_the_queue() {
    let settings = Settings { delta_blocks: 20, ..SETTINGS };
    let mut case = Case::scanned(settings, &["aaaaaaaa", "aaaaaaab", "aaaaaaac", "xxxxxxxx"]);
    assert_eq!((case.lpu.census().associates, case.lpu.census().delta_blocks), (2, 16));
    assert!(case.read(1) && case.read(2));
    assert!(case.write(0, "zzzzzzzz:640"));
    assert!(case.view(1).is_none() && case.view(2).is_some());
    assert_eq!((case.lpu.counts().delta_replaced, case.lpu.census().delta_blocks), (1, 18));
    // Its own delta blocks are free for a block's new difference.
    assert!(case.write(2, "aaaaaaac:640"));
    assert_eq!((case.kind(2), case.lpu.counts().delta_replaced), (Kind::Associate(Slot(0)), 1));
    // No delta of another associate block can be replaced.
    assert!(case.write(2, "aaaaaaac:700"));
    assert_eq!((case.kind(2), case.view(2).unwrap().data), (Kind::Independent, true));
}

/// When there are no delta blocks for a reference block, its associate blocks leave it.
#[test]
fn a_reference_block_without_room_for_its_delta_is_independent() {
    let settings = Settings { delta_blocks: 10, ..SETTINGS };
    let mut case = Case::scanned(settings, &["aaaaaaaa", "aaaaaaaa", "xxxxxxxx"]);
    assert_eq!((case.kind(1), case.lpu.census().delta_blocks), (Kind::Associate(Slot(0)), 0));
    assert!(case.write(0, "zzzzzzzz:641"));
    assert_eq!((case.kind(0), case.kind(1), case.lpu.counts().dissolved), (Kind::Independent, Kind::Independent, 1));
    assert_eq!(case.view(0).unwrap().signature, *b"zzzzzzzz");
    assert!(case.read(0) && !case.read(1));
}

/// Not in the text: identical blocks need not wait for a scan.
#[test]
fn identical_blocks_can_be_associated_at_once() {
    let mut case = Case::new(Settings { identical: true, ..SETTINGS });
    (case.disk[1], case.disk[2]) = ("aaaaaaaa", "aaaaaaaa");
    assert!(!case.read(1) && !case.read(2));
    assert_eq!(
        (case.kind(1), case.kind(2), case.view(2).unwrap().data),
        (Kind::Reference, Kind::Associate(Slot(1)), false)
    );
    assert!(!case.write(3, "bbbbbbbb") && case.write(3, "aaaaaaaa"));
    assert_eq!(case.kind(3), Kind::Associate(Slot(1)));
    assert!(case.write(2, "cccccccc:2000") && case.write(3, "dddddddd:2000"));
    assert!([1, 2, 3].into_iter().all(|address| case.kind(address) == Kind::Independent && case.read(address)));
}
