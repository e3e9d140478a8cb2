/* Hits from C: random blocks are pinned and released. */
#include <nigh.h>

/* The generator of the other side (wyrand). */
static uint64_t below(uint64_t *state, uint64_t bound)
{
    *state += 0x2d358dccaa6c78a5;
    unsigned __int128 product = (unsigned __int128)*state * (*state ^ 0x8bb84b93962eacc9);
    uint64_t random = (uint64_t)product ^ (uint64_t)(product >> 64);
    return (uint64_t)(((unsigned __int128)random * bound) >> 64);
}

/* Hits `count` times; returns 0 if all are hits. */
int pins_hit(nigh_disk *disk, uint64_t *state, uint64_t blocks, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++) {
        nigh_pinned pinned;
        int result = nigh_pin(disk, below(state, blocks) * NIGH_BLOCK, NIGH_BLOCK, NIGH_NOWAIT, &pinned);
        if (result < 0 || (result = nigh_unpin(&pinned)) < 0)
            return result;
    }
    return 0;
}
