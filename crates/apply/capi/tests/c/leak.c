/* Pins that are never released: their number is limited, and they stop nobody else. */
#include "check.h"

enum { MOST = 4096 };

static nigh_pinned pins[MOST];
static char block[NIGH_BLOCK];

/* Pins blocks from `first` on until there are as many as possible. */
static int pin_all(nigh_disk *disk, int first)
{
    int count = first;
    for (int result = 0; result == 0 && count < MOST; count += result == 0) {
        result = nigh_pin(disk, (uint64_t)(count - first) * NIGH_BLOCK, 1, 0, &pins[count]);
        CHECK(result == 0 || (result == -ENOBUFS && pins[count].opaque == NULL));
    }
    CHECK(count < MOST);
    return count;
}

/* Reads and writes all of a disk that is larger than the cache. */
static void use_all(nigh_disk *disk, int byte)
{
    for (uint64_t at = 0; at < 4 * MIB; at += NIGH_BLOCK) {
        memset(block, byte, sizeof block);
        RETURNS(0, nigh_write(disk, at, block, sizeof block, 0));
        memset(block, 0, sizeof block);
        RETURNS(0, nigh_read(disk, at, block, sizeof block));
        CHECK(is_all(block, sizeof block, byte));
    }
    RETURNS(0, nigh_flush(disk));
}

int main(void)
{
    nigh_host *host = open_host("memory = '1M'\n"
                                "[[disk]]\nname = 'leaky'\ntarget = 'memory:16M'\n"
                                "[[disk]]\nname = 'other'\ntarget = 'memory:4M'\n");
    nigh_disk *leaky = open_disk(host, "leaky"), *other = open_disk(host, "other");
    int leaked = pin_all(leaky, 0);
    CHECK(leaked >= 16);
    CHECK(strstr(nigh_error(), "pinned"));
    RETURNS(0, nigh_close_disk(leaky));
    /* A handle of the same disk, and another disk. */
    leaky = open_disk(host, "leaky");
    int again = pin_all(leaky, leaked), all = pin_all(other, again);
    CHECK(again > leaked && all - again >= 16);
    use_all(other, 5);
    for (int at = again; at < all; at++)
        RETURNS(0, nigh_unpin(&pins[at]));
    CHECK(pin_all(other, again) - again >= 16);
    RETURNS(0, nigh_change(host, MIB / 2, "clock", 5));
    use_all(other, 6);
    use_all(leaky, 7);
    RETURNS(0, nigh_remove(host, "leaky", 5, 0));
    RETURNS(0, nigh_close_disk(leaky));
    RETURNS(0, nigh_close_disk(other));
    RETURNS(0, nigh_close(host, 10000));
    CHECK(is_all(pins[0].data, 1, 0));
    return 0;
}
