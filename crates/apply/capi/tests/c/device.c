/* A disk on a device of the program's own, which finishes its requests on a thread of its own. */
#include "check.h"

#include <pthread.h>

enum { BYTES = 4 * MIB + 100, WAITING = 256 };

/* Memory as a device: a thread performs what `perform` put into the line. */
struct store {
    char *bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    const nigh_request *waiting[WAITING];
    int count;
    int fails; /* writes fail with this */
    int flushes;
    int closed;
};

static int perform_now(struct store *store, const nigh_request *request)
{
    char *at = store->bytes + request->offset;
    size_t sum = 0;
    CHECK(request->offset + request->length <= BYTES);
    switch (request->action) {
    case NIGH_ACTION_READ:
    case NIGH_ACTION_WRITE:
        if (request->action == NIGH_ACTION_WRITE && store->fails)
            return -store->fails;
        for (uint32_t part = 0; part < request->parts_count; part++) {
            const struct iovec *memory = &request->parts[part];
            if (request->action == NIGH_ACTION_READ)
                memcpy(memory->iov_base, at + sum, memory->iov_len);
            else
                memcpy(at + sum, memory->iov_base, memory->iov_len);
            sum += memory->iov_len;
        }
        CHECK(sum == request->length);
        return 0;
    case NIGH_ACTION_FLUSH:
        CHECK(request->length == 0 && request->parts_count == 0);
        store->flushes++;
        return 0;
    case NIGH_ACTION_ZERO:
        memset(at, 0, request->length);
        return 0;
    default:
        CHECK(request->action == NIGH_ACTION_DISCARD);
        return 0;
    }
}

static void *work(void *user)
{
    struct store *store = user;
    pthread_mutex_lock(&store->lock);
    for (;;) {
        while (store->count == 0 && !store->closed)
            pthread_cond_wait(&store->more, &store->lock);
        if (store->count == 0)
            break;
        const nigh_request *request = store->waiting[--store->count];
        int result = perform_now(store, request);
        pthread_mutex_unlock(&store->lock);
        RETURNS(0, nigh_finish(request, result));
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static int64_t bytes_of(void *user)
{
    (void)user;
    return BYTES;
}

static int64_t no_bytes(void *user)
{
    (void)user;
    return -ENODEV;
}

static void perform(void *user, const nigh_request *request)
{
    struct store *store = user;
    pthread_mutex_lock(&store->lock);
    CHECK(store->count < WAITING && !store->closed);
    store->waiting[store->count++] = request;
    pthread_cond_signal(&store->more);
    pthread_mutex_unlock(&store->lock);
}

static void close_it(void *user)
{
    struct store *store = user;
    pthread_mutex_lock(&store->lock);
    store->closed++;
    pthread_cond_signal(&store->more);
    pthread_mutex_unlock(&store->lock);
}

int main(void)
{
    static struct store store = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };
    nigh_device device = { .size = sizeof device, .name = "store", .name_length = 5, .threads = 2, .user = &store,
                           .bytes = bytes_of, .perform = perform, .close = close_it };
    nigh_host *host = open_host("memory = '1M'\nfail-after = '0s'\n");
    char byte = 0, *block = malloc(NIGH_BLOCK);
    CHECK(block && (store.bytes = calloc(1, BYTES)));
    CHECK(pthread_create(&store.thread, NULL, work, &store) == 0);

    nigh_device wrong = device;
    wrong.size = 8;
    RETURNS(-EINVAL, nigh_add_device(host, &wrong));
    wrong = device;
    wrong.perform = NULL;
    RETURNS(-EINVAL, nigh_add_device(host, &wrong));
    wrong = device;
    wrong.threads = 0;
    RETURNS(-EINVAL, nigh_add_device(host, &wrong));
    wrong = device;
    wrong.bytes = no_bytes;
    RETURNS(-EINVAL, nigh_add_device(host, &wrong));
    CHECK(strstr(nigh_error(), "store"));
    RETURNS(-EINVAL, nigh_add_device(host, NULL));
    CHECK(store.closed == 0);
    RETURNS(-EINVAL, nigh_finish(NULL, 0));

    RETURNS(0, nigh_add_device(host, &device));
    RETURNS(-EEXIST, nigh_add_device(host, &device));
    CHECK(store.closed == 0);
    nigh_disk *disk = open_disk(host, "store");
    for (uint64_t at = 0; at < 4 * MIB; at += NIGH_BLOCK) {
        memset(block, (int)(at / NIGH_BLOCK % 251), NIGH_BLOCK);
        RETURNS(0, nigh_write(disk, at, block, NIGH_BLOCK, 0));
    }
    RETURNS(0, nigh_write(disk, BYTES - 1, "z", 1, 0));
    RETURNS(0, nigh_flush(disk));
    CHECK(store.flushes > 0 && store.bytes[BYTES - 1] == 'z');
    for (uint64_t at = 0; at < 4 * MIB; at += NIGH_BLOCK) {
        CHECK(is_all(store.bytes + at, NIGH_BLOCK, (int)(at / NIGH_BLOCK % 251)));
        RETURNS(0, nigh_read(disk, at, block, NIGH_BLOCK));
        CHECK(is_all(block, NIGH_BLOCK, (int)(at / NIGH_BLOCK % 251)));
    }
    RETURNS(0, nigh_zero(disk, 0, 2 * NIGH_BLOCK));
    RETURNS(0, nigh_trim(disk, MIB, MIB));
    RETURNS(0, nigh_flush(disk));
    CHECK(is_all(store.bytes, 2 * NIGH_BLOCK, 0));

    /* Its errors arrive. */
    pthread_mutex_lock(&store.lock);
    store.fails = ENOSPC;
    pthread_mutex_unlock(&store.lock);
    RETURNS(-ENOSPC, nigh_write(disk, 0, "a", 1, NIGH_DURABLE));
    pthread_mutex_lock(&store.lock);
    store.fails = 0;
    pthread_mutex_unlock(&store.lock);
    RETURNS(0, nigh_flush(disk));
    RETURNS(0, nigh_read(disk, 0, &byte, 1));
    CHECK(byte == 'a' && store.bytes[0] == 'a');

    RETURNS(0, nigh_close_disk(disk));
    RETURNS(0, nigh_close(host, -1));
    CHECK(pthread_join(store.thread, NULL) == 0);
    CHECK(store.closed == 1);
    free(store.bytes);
    free(block);
    return 0;
}
