//! `steps STEP ROUNDS`: one step of encoding, on the same generated blocks in each round. `cargo xtask instructions` counts
//! the instructions that a round adds.

use std::hint::black_box;

use nigh_content::generated::{Class, Machines};
use nigh_content::{
    BLOCK_BYTES, Block, Codec, Codecs, ContentId, Copied, ENCODED_MAX, Encoder, Rules, Settings, Store, hash,
    signature, sketch,
};

/// Blocks of a round.
const BLOCKS: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [step, rounds] = arguments.as_slice() else { panic!("expected STEP ROUNDS, not {arguments:?}") };
    let rounds: usize = rounds.parse().expect("a number of rounds");
    let machines = Machines::new(1, 2, 2000);
    match step.as_str() {
        "hash" => each(&pairs(&machines, Class::Shifted), rounds, |block, _| hash(1, block)),
        "signature" => each(&pairs(&machines, Class::Shifted), rounds, |block, _| signature(block)),
        "sketch" => each(&pairs(&machines, Class::Shifted), rounds, |block, _| sketch(block)),
        "line-encode" => encode(&pairs(&machines, Class::InPlace), rounds, Codec::Line),
        "line-decode" => decode(&pairs(&machines, Class::InPlace), rounds, Codec::Line),
        "lz4-decode" => decode(&pairs(&machines, Class::Shifted), rounds, Codec::Lz4),
        "zstd-difference-decode" => decode(&pairs(&machines, Class::Shifted), rounds, Codec::ZstdDelta),
        "hit" => hits(&machines, rounds),
        _ => panic!("no step {step}"),
    }
}

/// Blocks of a class, each with the one that it was derived from.
fn pairs(machines: &Machines, class: Class) -> Vec<(Block, Block)> {
    let derived = (0..machines.distinct()).filter(|&content| machines.class(content) == class);
    let derived = derived.filter_map(|content| Some((content, machines.derived_from(content)?)));
    let pairs: Vec<_> = derived.take(BLOCKS).map(|(one, other)| (machines.bytes(one), machines.bytes(other))).collect();
    assert_eq!(pairs.len(), BLOCKS);
    pairs
}

fn each<T>(pairs: &[(Block, Block)], rounds: usize, mut step: impl FnMut(&Block, &Block) -> T) {
    for (block, base) in std::iter::repeat_n(pairs, rounds).flatten() {
        black_box(step(black_box(block), black_box(base)));
    }
}

fn encode(pairs: &[(Block, Block)], rounds: usize, codec: Codec) {
    let (mut codecs, mut out) = (Codecs::new(), [0; ENCODED_MAX]);
    each(pairs, rounds, |block, base| codecs.encode(codec, block, base, &mut out).expect("it has room"));
}

fn decode(pairs: &[(Block, Block)], rounds: usize, codec: Codec) {
    let (mut codecs, mut out) = (Codecs::new(), [0; ENCODED_MAX]);
    let encoded: Vec<Vec<u8>> = pairs
        .iter()
        .map(|(block, base)| {
            let length = codecs.encode(codec, block, base, &mut out).expect("it has room");
            out[..length].to_vec()
        })
        .collect();
    let mut decoded = [0; BLOCK_BYTES];
    for _ in 0..rounds {
        for (bytes, (_, base)) in encoded.iter().zip(pairs) {
            codecs.decode(codec, black_box(bytes), base, &mut decoded).expect("as it was encoded");
            black_box(&decoded);
        }
    }
}

/// Contents of a store, however it encoded them: copied out of its memory and decoded.
fn hits(machines: &Machines, rounds: usize) {
    let settings = Settings { pages: BLOCKS as u32, contents: 4 * BLOCKS as u32, ..Settings::default() };
    let (mut store, mut encoder) = (Store::new(settings), Encoder::new(Rules::default()));
    let mut add = |content| {
        let plan = store.plan(&mut encoder, 0, &machines.bytes(content));
        store.apply(&plan).expect("it has room")
    };
    let ids: Vec<ContentId> = (0..BLOCKS as u32).map(&mut add).collect();
    let (mut copied, mut codecs, mut out) = (Copied::new(), Codecs::new(), [0; BLOCK_BYTES]);
    for &id in std::iter::repeat_n(&ids, rounds).flatten() {
        assert!(store.copy(id, &mut copied) && copied.decode(&mut codecs, &mut out));
        black_box(&out);
    }
}
