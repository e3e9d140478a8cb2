//! Meanings of the quantities that policies report of themselves.

use nigh_policy::registry;

/// Policy, name of the quantity, explanation. An empty policy stands for any.
const ABOUT: &[(&str, &str, &str)] = &[
    ("2q", "a1in", "blocks in the queue of those referenced once"),
    ("arc", "p", "blocks that ARC aims to give to those referenced once; it adapts to ghost hits"),
    ("arc", "t1", "resident blocks referenced once"),
    ("arc", "t2", "resident blocks referenced more than once"),
    ("car", "p", "blocks that CAR aims to give to those referenced once; it adapts to ghost hits"),
    ("car", "t1", "resident blocks referenced once"),
    ("car", "t2", "resident blocks referenced more than once"),
    ("eelru", "early_point", "LRU position from which blocks are evicted early; 0 while it evicts as LRU"),
    ("eelru", "late_point", "LRU position at which the late region ends"),
    ("fbr", "count_sum", "sum of the reference counts of all blocks; counts are halved when it grows too large"),
    ("lirs", "stack", "blocks in stack S: LIR blocks, and those whose last reference is as recent"),
    ("lirs", "lir", "LIR blocks, which are kept"),
    ("lirs", "hir_resident", "resident HIR blocks, the next victims"),
    ("linux", "active", "pages in the active list: those used more than once, and those that returned soon"),
    ("linux", "activating_refaults", "evicted pages that returned soon enough to become active at once"),
    ("lru-2", "once", "resident blocks with only one known reference"),
    ("lru-k", "few", "resident blocks with fewer than K known references"),
    ("slru", "protected", "blocks in the protected segment, hit since they were loaded"),
    ("lfu-da", "age", "the key of the last victim, with which a new block begins"),
    ("cacheus", "lru_weight", "thousandths of the choices that are SR-LRU's, and not CR-LFU's"),
    ("cacheus", "r", "size of R, whose oldest block SR-LRU evicts"),
    ("lecar", "lru_weight", "thousandths of the choices that are LRU's, and not LFU's"),
    ("mq", "lowest_queue", "blocks in the queue of the fewest references, the next victims"),
    ("mq", "history", "evicted blocks whose reference counts are remembered"),
    ("s3-fifo", "small", "blocks in the small queue, where new blocks wait for a second reference"),
    ("w-tinylfu", "protected", "blocks in the protected segment, referenced again since they were admitted"),
    ("w-tinylfu", "sample", "references counted since the frequencies were last halved"),
    ("clock-pro", "cold_target", "cold blocks that CLOCK-Pro aims to keep; it adapts to references in test periods"),
    ("clock-pro", "cold_resident", "resident cold blocks, the next victims"),
    ("clock-pro", "hot", "hot blocks, which are kept"),
    ("aoio", "seq", "blocks of code that reads in sequence and once, the next victims"),
    ("aoio", "rand", "blocks of code without a regularity, the next victims after those"),
    ("aoio", "short", "blocks of code that reads short sequences again and again"),
    ("aoio", "loop", "blocks of code that reads long sequences again and again, the last to leave"),
    ("amp", "one_shot", "blocks of code that hardly uses any block again, in MRU order"),
    ("amp", "looping", "blocks of code that uses its oldest blocks again, in MRU order"),
    ("amp", "clustered", "blocks of code that uses its latest blocks again, in LRU order"),
    ("amp", "probabilistic", "blocks of code that uses any of them again, in LFU order"),
    ("ubm", "sequential", "blocks of sequences that were not read again, the next victims"),
    ("ubm", "looping", "blocks of sequences that are read again and again"),
    ("ubm", "other", "all other blocks, in LRU order"),
    ("pcc", "sequential", "blocks of code that reads in sequence and once, the next victims"),
    ("pcc", "looping", "blocks of code that reads sequences again and again"),
    ("pcc", "other", "blocks of other code, in LRU order"),
    ("dulo", "bank", "blocks in the sequencing bank, which are examined for sequences"),
    ("dulo", "evicting", "blocks in the evicting section, in the order in which they leave"),
    ("dulo", "table_nodes", "nodes of the block table in use"),
    ("dulo", "sequencings_per_1000_misses", "times that the bank was divided into sequences, for 1,000 misses"),
    ("dulo", "comparisons_per_1000_misses", "timestamps compared while dividing it, for 1,000 misses"),
    ("auto", "changes", "times that another policy took charge"),
    ("auto", "in_charge", "the policy in charge, by its place among the candidates: 0 for the first"),
    ("auto", "floor", "hits that a candidate can be behind the leader at most; the more, the rarer are changes"),
    ("", "ghosts", "evicted blocks that are remembered"),
];

/// The meaning of `quantity` of `policy`; empty if it is unknown. A policy that stands on another reports that one's, too.
pub(super) fn about(policy: &str, quantity: &str) -> &'static str {
    let name = policy.split(':').next().unwrap_or(policy);
    if name == "auto" && registry().iter().any(|info| info.name == quantity) {
        return "sampled hits by which this candidate is behind the leader";
    }
    let of_policy = ABOUT.iter().find(|(of, known, _)| *known == quantity && *of == name);
    of_policy.or_else(|| ABOUT.iter().find(|(_, known, _)| *known == quantity)).map_or("", |(_, _, about)| about)
}

#[cfg(test)]
mod tests {
    use nigh_sim::replay::Watch;
    use nigh_sim::{Loader, Ops, Options, replay};
    use nigh_trace::Request;

    use super::*;

    #[test]
    fn every_quantity_of_every_policy_is_explained() {
        let options =
            Options { block_bytes: 4096, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        let requests = (0..2_000).map(|at| Request { offset: at * at % 97 * 4096, length: 4096, ..Request::default() });
        loader.push(&requests.collect::<Vec<_>>()).unwrap();
        let references = loader.finish();
        let future = references.future();
        let mut seen = 0;
        let names = registry().iter().map(|info| info.name.to_owned());
        for name in names.chain(["dulo:base=lirs".to_owned(), "dulo:base=clock-pro".to_owned()]) {
            let watch = Watch { gauges: 2, ..Watch::default() };
            let run = replay(&references, &name.parse().unwrap(), 20, Some(future.clone()), watch).unwrap();
            for quantity in run.series.names {
                assert!(!about(&name, quantity).is_empty(), "{name}: {quantity}");
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }
}
