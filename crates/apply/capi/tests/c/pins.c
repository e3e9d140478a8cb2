/* Reads, writes, pins and changes, and what is done to a cache while it runs. */
#include "check.h"

#include <time.h>

static char block[NIGH_BLOCK];

/* A cache with a file that is larger than it, and a slow disk in memory. */
static nigh_host *start(const char *folder)
{
    static char settings[4096];
    char path[1024];
    snprintf(path, sizeof path, "%s/pins.data", folder);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && ftruncate(file, 16 * MIB) == 0 && close(file) == 0);
    snprintf(settings, sizeof settings,
             "memory = '1M'\npolicy = 'lirs'\n"
             "[[disk]]\nname = 'file'\ntarget = '%s'\n"
             "[[disk]]\nname = 'slow'\ntarget = 'delay:30ms:memory:4M'\n",
             path);
    return open_host(settings);
}

static void pins(nigh_host *host)
{
    nigh_disk *disk = open_disk(host, "file"), *slow = open_disk(host, "slow");
    nigh_pinned pinned, again;
    uint64_t bytes;
    RETURNS(0, nigh_size(disk, &bytes));
    CHECK(bytes == 16 * MIB);

    memset(block, 1, sizeof block);
    RETURNS(0, nigh_write(disk, 0, block, sizeof block, 0));
    RETURNS(0, nigh_pin(disk, 10, 100, 0, &pinned));
    CHECK(pinned.length == 100 && is_all(pinned.data, 100, 1));
    /* Its bytes stay, whatever is written. */
    memset(block, 2, sizeof block);
    RETURNS(0, nigh_write(disk, 0, block, sizeof block, NIGH_DURABLE));
    for (uint64_t at = 0; at < bytes; at += sizeof block)
        RETURNS(0, nigh_read(disk, at, block, sizeof block));
    CHECK(is_all(pinned.data, 100, 1));
    RETURNS(0, nigh_pin(disk, 0, NIGH_BLOCK, 0, &again));
    CHECK(is_all(again.data, NIGH_BLOCK, 2));
    RETURNS(0, nigh_unpin(&again));
    RETURNS(-EINVAL, nigh_unpin(&again));
    CHECK(again.data == NULL && again.length == 0);
    RETURNS(0, nigh_unpin(&pinned));

    /* A try loads nothing. */
    RETURNS(-EAGAIN, nigh_pin(slow, 8192, 1, NIGH_NOWAIT, &pinned));
    RETURNS(-EAGAIN, nigh_pin(slow, 8192, 1, NIGH_NOWAIT, &pinned));
    CHECK(strstr(nigh_error(), "not in the cache"));
    RETURNS(0, nigh_pin(slow, 8192, 1, 0, &pinned));
    RETURNS(0, nigh_unpin(&pinned));
    RETURNS(0, nigh_pin(slow, 8192, 1, NIGH_NOWAIT, &pinned));
    RETURNS(0, nigh_unpin(&pinned));
    /* Blocks that are fetched ahead are found soon. */
    RETURNS(0, nigh_prefetch(slow, 65536, 4096));
    struct timespec pause = { 0, 5000000 };
    int found = -EAGAIN;
    for (int tries = 0; tries < 2000 && (found = nigh_pin(slow, 65536, 1, NIGH_NOWAIT, &pinned)) == -EAGAIN; tries++)
        nanosleep(&pause, NULL);
    RETURNS(0, found);
    RETURNS(0, nigh_unpin(&pinned));
    RETURNS(0, nigh_close_disk(slow));
    RETURNS(0, nigh_close_disk(disk));
}

static void changes(nigh_host *host)
{
    nigh_disk *disk = open_disk(host, "file"), *other = open_disk(host, "file");
    nigh_pinned_mut change, second;
    memset(block, 5, sizeof block);
    RETURNS(0, nigh_write(disk, NIGH_BLOCK, block, sizeof block, 0));
    RETURNS(0, nigh_pin_mut(disk, 0, 2 * NIGH_BLOCK, 0, &change));
    CHECK(change.length == 2 * NIGH_BLOCK && is_all((char *)change.data + NIGH_BLOCK, NIGH_BLOCK, 5));
    ((char *)change.data)[NIGH_BLOCK + 7] = 6;
    RETURNS(-EBUSY, nigh_pin_mut(other, NIGH_BLOCK, NIGH_BLOCK, 0, &second));
    CHECK(second.data == NULL);
    RETURNS(-EINVAL, nigh_commit(&second, 0));
    RETURNS(0, nigh_read(disk, NIGH_BLOCK + 7, block, 1));
    CHECK(block[0] == 5);
    RETURNS(-EINVAL, nigh_commit(&change, NIGH_NOWAIT));
    RETURNS(0, nigh_commit(&change, NIGH_DURABLE));
    RETURNS(-EINVAL, nigh_commit(&change, 0));
    RETURNS(-EINVAL, nigh_abort(&change));
    RETURNS(0, nigh_read(disk, NIGH_BLOCK + 7, block, 1));
    CHECK(block[0] == 6);

    RETURNS(0, nigh_pin_mut(disk, NIGH_BLOCK, NIGH_BLOCK, NIGH_NEW, &change));
    CHECK(is_all(change.data, NIGH_BLOCK, 0));
    memset(change.data, 9, NIGH_BLOCK);
    RETURNS(0, nigh_abort(&change));
    RETURNS(0, nigh_read(disk, NIGH_BLOCK, block, 1));
    CHECK(block[0] == 5);
    /* A change survives its handle. */
    RETURNS(0, nigh_pin_mut(other, NIGH_BLOCK, NIGH_BLOCK, NIGH_NEW, &change));
    RETURNS(0, nigh_close_disk(other));
    RETURNS(0, nigh_commit(&change, 0));
    RETURNS(0, nigh_read(disk, NIGH_BLOCK, block, sizeof block));
    CHECK(is_all(block, sizeof block, 0));

    memset(block, 3, sizeof block);
    RETURNS(0, nigh_write(disk, 3 * NIGH_BLOCK, block, sizeof block, 0));
    RETURNS(0, nigh_zero(disk, 3 * NIGH_BLOCK, 100));
    RETURNS(0, nigh_read(disk, 3 * NIGH_BLOCK, block, sizeof block));
    CHECK(is_all(block, 100, 0) && is_all(block + 100, sizeof block - 100, 3));
    RETURNS(0, nigh_trim(disk, 3 * NIGH_BLOCK, NIGH_BLOCK));
    RETURNS(0, nigh_flush(disk));
    RETURNS(0, nigh_close_disk(disk));
}

static void mistakes(nigh_host *host)
{
    nigh_disk *disk = open_disk(host, "file"), *none = (nigh_disk *)host;
    nigh_pinned pinned;
    nigh_pinned_mut change;
    nigh_host *another = NULL;
    uint64_t bytes;
    RETURNS(-EINVAL, nigh_open(NULL, 0, &another));
    RETURNS(-EINVAL, nigh_open("memory = 'x'", 12, &another));
    CHECK(strstr(nigh_error(), "memory"));
    RETURNS(-EINVAL, nigh_open("memory = '1M'", 13, NULL));
    RETURNS(-EINVAL, nigh_open("\xff\xfe", 2, &another));
    RETURNS(-ENOENT, nigh_open("[[disk]]\nname = 'a'\ntarget = '/no/such/file'", 44, &another));
    CHECK(another == NULL && strstr(nigh_error(), "/no/such/file"));
    RETURNS(-ENOENT, nigh_open_disk(host, "none", 4, &none));
    CHECK(none == (nigh_disk *)host);
    RETURNS(-EINVAL, nigh_open_disk(NULL, "file", 4, &none));
    RETURNS(-EINVAL, nigh_read(disk, 0, NULL, 1));
    RETURNS(-EINVAL, nigh_read(disk, 0, block, 0));
    RETURNS(-EINVAL, nigh_read(disk, 0, block, SIZE_MAX));
    RETURNS(-EINVAL, nigh_read(NULL, 0, block, 1));
    RETURNS(-ERANGE, nigh_read(disk, 16 * MIB - 1, block, 2));
    RETURNS(-ERANGE, nigh_read(disk, UINT64_MAX, block, 2));
    RETURNS(-EINVAL, nigh_write(disk, 0, block, 1, NIGH_NEW));
    RETURNS(-ERANGE, nigh_trim(disk, 1, UINT64_MAX));
    RETURNS(-EINVAL, nigh_zero(disk, 1, 0));
    RETURNS(-EINVAL, nigh_size(disk, NULL));
    RETURNS(-EINVAL, nigh_pin(disk, 4095, 2, 0, &pinned));
    RETURNS(-EINVAL, nigh_pin(disk, 0, 0, 0, &pinned));
    RETURNS(-EINVAL, nigh_pin(disk, 0, 1, NIGH_DURABLE, &pinned));
    CHECK(pinned.opaque == NULL);
    RETURNS(-EINVAL, nigh_pin(disk, 0, 1, 0, NULL));
    RETURNS(-ERANGE, nigh_pin(disk, 16 * MIB, 1, 0, &pinned));
    RETURNS(-EINVAL, nigh_pin_mut(disk, 1, NIGH_BLOCK, 0, &change));
    RETURNS(-EINVAL, nigh_pin_mut(disk, 0, NIGH_PIN_MOST + NIGH_BLOCK, 0, &change));
    RETURNS(-EINVAL, nigh_unpin(NULL));
    RETURNS(-EINVAL, nigh_commit(NULL, 0));
    RETURNS(-EINVAL, nigh_close(NULL, 0));
    RETURNS(-EINVAL, nigh_close_disk(NULL));
    RETURNS(-EINVAL, nigh_hint(disk, "x", 1));
    RETURNS(-ENOENT, nigh_remove(host, "none", 4, 0));
    RETURNS(-EINVAL, nigh_remove(host, "file", 4, NIGH_NEW));
    RETURNS(-ENOMEM, nigh_change(host, (uint64_t)1 << 50, NULL, 0));
    RETURNS(-EINVAL, nigh_change(host, 0, "no-such", 7));
    RETURNS(0, nigh_size(disk, &bytes));
    RETURNS(0, nigh_close_disk(disk));
}

static void while_it_runs(nigh_host *host)
{
    static const char added[] = "name = 'added'\ntarget = 'memory:1M'\nread-only = true\n";
    nigh_disk *disk;
    char *text;
    size_t length;
    RETURNS(0, nigh_change(host, 2 * MIB, "clock", 5));
    RETURNS(0, nigh_change(host, MIB, NULL, 0));
    RETURNS(0, nigh_add(host, added, strlen(added)));
    RETURNS(-EEXIST, nigh_add(host, added, strlen(added)));
    disk = open_disk(host, "added");
    RETURNS(-EROFS, nigh_write(disk, 0, block, 1, 0));
    RETURNS(-EROFS, nigh_zero(disk, 0, 1));
    RETURNS(0, nigh_statistics_json(host, &text, &length));
    CHECK(strlen(text) == length && strstr(text, "\"policy\":\"clock\"") && strstr(text, "\"memory_bytes\":1048576"));
    CHECK(strstr(text, "\"disks\":[") && strstr(text, "\"name\":\"added\"") && strstr(text, "\"hits\":"));
    nigh_free(text);
    nigh_free(NULL);
    RETURNS(0, nigh_statistics_json(host, &text, NULL));
    nigh_free(text);
    RETURNS(0, nigh_remove(host, "added", 5, NIGH_DISCARD));
    RETURNS(-ESHUTDOWN, nigh_read(disk, 0, block, 1));
    RETURNS(0, nigh_close_disk(disk));
}

static void hints(void)
{
    static const char hint[] = "[[at]]\nset_priority = [{ file = 0, priority = -1 }]\n";
    nigh_host *host = open_host("memory = '1M'\nallocate = 'lru-sp'\n[[disk]]\nname = 'a'\ntarget = 'memory:1M'\n");
    nigh_disk *disk = open_disk(host, "a");
    RETURNS(0, nigh_hint(disk, hint, strlen(hint)));
    RETURNS(-EINVAL, nigh_hint(disk, "{}", 2));
    RETURNS(0, nigh_close_disk(disk));
    RETURNS(0, nigh_close(host, -1));
}

int main(int count, char **arguments)
{
    CHECK(count == 2 && strlen(nigh_version()) >= 5 && nigh_error()[0] == 0);
    nigh_host *host = start(arguments[1]);
    pins(host);
    changes(host);
    mistakes(host);
    while_it_runs(host);
    hints();

    /* The end: what it led to stays valid, and calls fail. */
    nigh_disk *disk = open_disk(host, "file");
    nigh_pinned pinned;
    nigh_pinned_mut change;
    memset(block, 4, sizeof block);
    RETURNS(0, nigh_write(disk, 0, block, sizeof block, 0));
    RETURNS(0, nigh_pin(disk, 0, NIGH_BLOCK, 0, &pinned));
    RETURNS(0, nigh_pin_mut(disk, 0, NIGH_BLOCK, 0, &change));
    RETURNS(0, nigh_close(host, 10000));
    CHECK(is_all(pinned.data, NIGH_BLOCK, 4));
    RETURNS(-ESHUTDOWN, nigh_commit(&change, 0));
    RETURNS(-ESHUTDOWN, nigh_read(disk, 0, block, 1));
    RETURNS(-ESHUTDOWN, nigh_flush(disk));
    RETURNS(0, nigh_close_disk(disk));
    RETURNS(0, nigh_unpin(&pinned));
    return 0;
}
