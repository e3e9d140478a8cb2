/* Changes the blocks of a file and flushes after each change, until it is killed. Prints the number of each flushed change. */
#include "check.h"

int main(int count, char **arguments)
{
    char settings[2048];
    CHECK(count == 2);
    snprintf(settings, sizeof settings, "memory = '1M'\n[[disk]]\nname = 'disk'\ntarget = '%s/killed.data'\n", arguments[1]);
    nigh_host *host = open_host(settings);
    nigh_disk *disk = open_disk(host, "disk");
    for (uint64_t step = 1;; step++) {
        nigh_pinned_mut change;
        RETURNS(0, nigh_pin_mut(disk, step % 64 * NIGH_BLOCK, NIGH_BLOCK, 0, &change));
        memcpy(change.data, &step, sizeof step);
        RETURNS(0, nigh_commit(&change, 0));
        RETURNS(0, nigh_flush(disk));
        printf("%llu\n", (unsigned long long)step);
        fflush(stdout);
    }
}
