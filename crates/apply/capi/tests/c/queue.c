/* Asynchronous requests, whose ends are collected when poll() reports the queue's eventfd. */
#include "check.h"

#include <poll.h>

enum { REQUESTS = 64 };

static char blocks[REQUESTS][NIGH_BLOCK];

/* Waits until the eventfd is readable. */
static void wait_readable(nigh_queue *queue, int expected)
{
    struct pollfd fd = { .fd = nigh_queue_fd(queue), .events = POLLIN };
    CHECK(fd.fd >= 0);
    RETURNS(expected, poll(&fd, 1, expected ? 10000 : 0));
}

/* The only end that there is, within 10 s. */
static nigh_completion one(nigh_queue *queue)
{
    nigh_completion done;
    RETURNS(1, nigh_completions(queue, &done, 1, 10000));
    CHECK(done.reserved == 0);
    return done;
}

/* Requests that are in progress together. */
static void many(nigh_disk *disk)
{
    nigh_queue *queue;
    nigh_completion done[16];
    int seen[REQUESTS] = { 0 }, ended = 0, waits = 0;
    RETURNS(0, nigh_queue_new(REQUESTS, &queue));
    wait_readable(queue, 0);
    RETURNS(0, nigh_completions(queue, done, 16, 0));
    for (int at = 0; at < REQUESTS; at++) {
        memset(blocks[at], at + 1, NIGH_BLOCK);
        RETURNS(0, nigh_write_async(disk, queue, (uint64_t)at * NIGH_BLOCK, blocks[at], NIGH_BLOCK, 0, &seen[at]));
        /* The library has a copy. */
        memset(blocks[at], 0, NIGH_BLOCK);
    }
    RETURNS(-EAGAIN, nigh_flush_async(disk, queue, NULL));
    for (int round = 0; round < 2; round++) {
        for (ended = 0; ended < REQUESTS;) {
            wait_readable(queue, 1);
            waits++;
            int count = nigh_completions(queue, done, 16, -1);
            CHECK(count > 0 && count <= 16);
            for (int at = 0; at < count; at++) {
                CHECK(done[at].result == 0 && done[at].pinned.data == NULL);
                ++*(int *)done[at].user;
            }
            ended += count;
        }
        wait_readable(queue, 0);
        if (round == 0) {
            for (int at = 0; at < REQUESTS; at++)
                RETURNS(0, nigh_read_async(disk, queue, (uint64_t)at * NIGH_BLOCK, blocks[at], NIGH_BLOCK, &seen[at]));
        }
    }
    for (int at = 0; at < REQUESTS; at++)
        CHECK(seen[at] == 2 && is_all(blocks[at], NIGH_BLOCK, at + 1));
    CHECK(waits >= 2 * REQUESTS / 16);
    RETURNS(0, nigh_flush_async(disk, queue, &ended));
    nigh_completion flushed = one(queue);
    CHECK(flushed.user == &ended && flushed.result == 0);
    RETURNS(0, nigh_queue_close(queue));
}

/* A read that waits for the device leaves its buffer alone until it is collected. */
static void slow(nigh_disk *disk)
{
    nigh_queue *queue;
    nigh_completion done;
    RETURNS(0, nigh_queue_new(2, &queue));
    memset(blocks[0], 7, NIGH_BLOCK);
    RETURNS(0, nigh_read_async(disk, queue, 0, blocks[0], NIGH_BLOCK, NULL));
    wait_readable(queue, 1);
    CHECK(is_all(blocks[0], NIGH_BLOCK, 7));
    done = one(queue);
    CHECK(done.result == 0 && is_all(blocks[0], NIGH_BLOCK, 0));
    /* Time passes without an end. */
    RETURNS(0, nigh_completions(queue, &done, 1, 20));

    RETURNS(0, nigh_pin_async(disk, queue, 100 * NIGH_BLOCK + 5, 10, &queue));
    done = one(queue);
    CHECK(done.user == &queue && done.result == 0 && done.pinned.length == 10 && is_all(done.pinned.data, 10, 0));
    RETURNS(0, nigh_unpin(&done.pinned));

    /* Errors of a request are its end; those of a call are returned. */
    RETURNS(0, nigh_read_async(disk, queue, (uint64_t)1 << 40, blocks[0], 1, NULL));
    RETURNS(-ERANGE, one(queue).result);
    RETURNS(-EINVAL, nigh_read_async(disk, queue, 0, NULL, 1, NULL));
    RETURNS(-EINVAL, nigh_read_async(disk, NULL, 0, blocks[0], 1, NULL));
    RETURNS(-EINVAL, nigh_write_async(disk, queue, 0, blocks[0], 1, NIGH_NOWAIT, NULL));
    RETURNS(-EINVAL, nigh_pin_async(disk, queue, 4000, 1000, NULL));
    RETURNS(-EINVAL, nigh_flush_async(NULL, queue, NULL));
    RETURNS(-EINVAL, nigh_completions(queue, NULL, 1, 0));
    RETURNS(-EINVAL, nigh_completions(queue, &done, 0, 0));
    RETURNS(-EINVAL, nigh_queue_new(0, &queue));
    RETURNS(-EINVAL, nigh_queue_fd(NULL));
    RETURNS(-EINVAL, nigh_queue_close(NULL));

    /* The depth counts what is not collected. */
    RETURNS(0, nigh_flush_async(disk, queue, NULL));
    RETURNS(0, nigh_flush_async(disk, queue, NULL));
    wait_readable(queue, 1);
    RETURNS(-EAGAIN, nigh_flush_async(disk, queue, NULL));
    one(queue);
    RETURNS(0, nigh_flush_async(disk, queue, NULL));
    RETURNS(0, nigh_queue_close(queue));
}

/* A queue that is closed while its requests go on, and a disk whose handle is. */
static void closed(nigh_host *host)
{
    nigh_disk *disk = open_disk(host, "slow");
    nigh_queue *queue;
    char *buffer = malloc(NIGH_BLOCK);
    nigh_pinned pinned;
    CHECK(buffer);
    memset(buffer, 8, NIGH_BLOCK);
    RETURNS(0, nigh_queue_new(8, &queue));
    RETURNS(0, nigh_read_async(disk, queue, 300 * NIGH_BLOCK, buffer, NIGH_BLOCK, NULL));
    RETURNS(0, nigh_pin_async(disk, queue, 301 * NIGH_BLOCK, 1, NULL));
    RETURNS(0, nigh_write_async(disk, queue, 302 * NIGH_BLOCK, buffer, NIGH_BLOCK, 0, NULL));
    /* One end that is never collected. */
    RETURNS(0, nigh_pin(disk, 303 * NIGH_BLOCK, 1, 0, &pinned));
    RETURNS(0, nigh_unpin(&pinned));
    RETURNS(0, nigh_pin_async(disk, queue, 303 * NIGH_BLOCK, 1, NULL));
    RETURNS(0, nigh_queue_close(queue));
    free(buffer);
    RETURNS(0, nigh_close_disk(disk));
    disk = open_disk(host, "slow");
    char byte = 0;
    RETURNS(0, nigh_read(disk, 300 * NIGH_BLOCK, &byte, 1));
    for (int tries = 0; byte != 8 && tries < 2000; tries++)
        RETURNS(0, nigh_read(disk, 302 * NIGH_BLOCK, &byte, 1));
    CHECK(byte == 8);
    RETURNS(0, nigh_close_disk(disk));
}

int main(void)
{
    nigh_host *host = open_host("memory = '4M'\nreadahead = 'none'\n"
                                "[[disk]]\nname = 'fast'\ntarget = 'memory:4M'\n"
                                "[[disk]]\nname = 'slow'\ntarget = 'delay:20ms:memory:4M'\n");
    nigh_disk *fast = open_disk(host, "fast"), *late = open_disk(host, "slow");
    many(fast);
    slow(late);
    closed(host);
    RETURNS(0, nigh_close_disk(fast));
    RETURNS(0, nigh_close_disk(late));
    RETURNS(0, nigh_close(host, -1));
    return 0;
}
