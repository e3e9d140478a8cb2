/* A child gets an error from every function, waits for nothing and ends; its parent goes on. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>

static char block[NIGH_BLOCK];
static volatile int over;

/* Takes the cache's locks as often as it can, so that forks happen while they are held. */
static void *use(void *disk)
{
    char own[NIGH_BLOCK];
    nigh_pinned pinned;
    for (uint64_t at = 0; !over; at++) {
        RETURNS(0, nigh_read(disk, at % 1000 * NIGH_BLOCK, own, sizeof own));
        RETURNS(0, nigh_pin(disk, at % 1000 * NIGH_BLOCK, 1, 0, &pinned));
        RETURNS(0, nigh_unpin(&pinned));
    }
    return NULL;
}

static void in_child(nigh_host *host, nigh_disk *disk, nigh_queue *queue, nigh_pinned *pinned, nigh_pinned_mut *change)
{
    nigh_pinned pin;
    nigh_pinned_mut other;
    nigh_completion done;
    nigh_disk *opened;
    uint64_t bytes;
    char *text;
    static const nigh_device device = { .size = sizeof device, .name = "d", .name_length = 1, .threads = 1 };
    CHECK(is_all(pinned->data, pinned->length, 1));
    RETURNS(-ECHILD, nigh_read(disk, 0, block, 1));
    CHECK(strstr(nigh_error(), "forked"));
    RETURNS(-ECHILD, nigh_write(disk, 0, block, 1, 0));
    RETURNS(-ECHILD, nigh_flush(disk));
    RETURNS(-ECHILD, nigh_trim(disk, 0, 1));
    RETURNS(-ECHILD, nigh_zero(disk, 0, 1));
    RETURNS(-ECHILD, nigh_prefetch(disk, 0, 1));
    RETURNS(-ECHILD, nigh_hint(disk, "x", 1));
    RETURNS(-ECHILD, nigh_size(disk, &bytes));
    RETURNS(-ECHILD, nigh_pin(disk, 0, 1, 0, &pin));
    RETURNS(-ECHILD, nigh_pin(disk, 0, 1, NIGH_NOWAIT, &pin));
    RETURNS(-ECHILD, nigh_pin_mut(disk, 4 * NIGH_BLOCK, NIGH_BLOCK, NIGH_NEW, &other));
    RETURNS(-ECHILD, nigh_unpin(pinned));
    RETURNS(-ECHILD, nigh_commit(change, 0));
    RETURNS(-ECHILD, nigh_abort(change));
    RETURNS(-ECHILD, nigh_read_async(disk, queue, 0, block, 1, NULL));
    RETURNS(-ECHILD, nigh_write_async(disk, queue, 0, block, 1, 0, NULL));
    RETURNS(-ECHILD, nigh_flush_async(disk, queue, NULL));
    RETURNS(-ECHILD, nigh_pin_async(disk, queue, 0, 1, NULL));
    RETURNS(-ECHILD, nigh_completions(queue, &done, 1, -1));
    RETURNS(-ECHILD, nigh_queue_fd(queue));
    RETURNS(-ECHILD, nigh_queue_close(queue));
    RETURNS(-ECHILD, nigh_open_disk(host, "disk", 4, &opened));
    RETURNS(-ECHILD, nigh_close_disk(disk));
    RETURNS(-ECHILD, nigh_add(host, "name = 'a'\ntarget = 'memory:1M'", 30));
    RETURNS(-ECHILD, nigh_add_device(host, &device));
    RETURNS(-ECHILD, nigh_remove(host, "disk", 4, 0));
    RETURNS(-ECHILD, nigh_change(host, MIB, NULL, 0));
    RETURNS(-ECHILD, nigh_statistics_json(host, &text, NULL));
    RETURNS(-ECHILD, nigh_close(host, -1));
    _exit(0);
}

/* A child may open a cache of its own, and its parent's queue is none for it. */
static void in_other_child(nigh_queue *queue)
{
    nigh_host *host = open_host("memory = '1M'\n[[disk]]\nname = 'own'\ntarget = 'memory:1M'\n");
    nigh_disk *disk = open_disk(host, "own");
    RETURNS(0, nigh_write(disk, 0, "x", 1, 0));
    RETURNS(-ECHILD, nigh_flush_async(disk, queue, NULL));
    RETURNS(0, nigh_close_disk(disk));
    RETURNS(0, nigh_close(host, 5000));
    _exit(0);
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    nigh_host *host = open_host("memory = '1M'\n[[disk]]\nname = 'disk'\ntarget = 'memory:4M'\n");
    nigh_disk *disk = open_disk(host, "disk");
    nigh_disk *used = open_disk(host, "disk");
    nigh_queue *queue;
    nigh_pinned pinned;
    nigh_pinned_mut change;
    pthread_t user;
    memset(block, 1, sizeof block);
    RETURNS(0, nigh_write(disk, 0, block, sizeof block, 0));
    RETURNS(0, nigh_pin(disk, 0, NIGH_BLOCK, 0, &pinned));
    RETURNS(0, nigh_pin_mut(disk, NIGH_BLOCK, NIGH_BLOCK, 0, &change));
    RETURNS(0, nigh_queue_new(4, &queue));
    CHECK(pthread_create(&user, NULL, use, used) == 0);
    for (int children = 0; children < 20; children++) {
        pid_t child = fork();
        if (child == 0)
            in_child(host, disk, queue, &pinned, &change);
        wait_for(child);
    }
    over = 1;
    CHECK(pthread_join(user, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        in_other_child(queue);
    wait_for(child);

    /* The parent goes on. */
    memset(change.data, 2, NIGH_BLOCK);
    RETURNS(0, nigh_commit(&change, NIGH_DURABLE));
    RETURNS(0, nigh_read(disk, NIGH_BLOCK, block, sizeof block));
    CHECK(is_all(block, sizeof block, 2) && is_all(pinned.data, NIGH_BLOCK, 1));
    RETURNS(0, nigh_unpin(&pinned));
    RETURNS(0, nigh_queue_close(queue));
    RETURNS(0, nigh_close_disk(disk));
    RETURNS(0, nigh_close_disk(used));
    RETURNS(0, nigh_close(host, -1));
    return 0;
}
