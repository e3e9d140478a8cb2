//! The description of unified level-aware caching (ULC) and its parameters. ULC decides for all levels of a cache at once, so it is
//! no [`Policy`](crate::Policy): `nigh-tier` implements it, and hosts with levels create it.

use crate::spec::{Info, Param, Params, SpecError};
use crate::values::{HISTORY, Values};

pub(crate) const INFO: Info = Info {
    name: "ulc",
    summary: "decides at which level of a cache each block belongs, from the distance of its last re-use",
    paper: "Jiang, dissertation, College of William and Mary 2004, chapter 5",
    params: &[
        Param {
            published: None,
            key: "ghosts",
            default: "1",
            values: HISTORY,
            doc: "most blocks in uniLRUstack that no level has, as a multiple of the size of all levels",
        },
        Param {
            published: None,
            key: "first",
            default: "adapt",
            values: Values::Words(&["out", "last", "adapt"]),
            doc: "where an unknown block is cached when all levels are full: nowhere (as in the text), at the last level, or where a \
                  sample of the references has fewer misses",
        },
    ],
    offline: false,
    spatial: false,
    streams: false,
};

/// Level of an unknown block when all levels are full: `out`, `last` or `adapt`.
pub(crate) fn first(params: &Params) -> Result<&'static str, SpecError> {
    params.one_of("first", &["out", "last", "adapt"])
}

/// The most blocks in the stack that no level has, if the levels hold `blocks` together.
pub(crate) fn ghosts(params: &Params, blocks: u32) -> Result<u32, SpecError> {
    // Without any, the incoming block would be forgotten before it is loaded.
    Ok(params.history()?.of(blocks, 1, u32::MAX))
}
