/*
 * nigh.h: a buffer cache inside a program.
 *
 * A host is a cache: memory, a replacement policy, and disks. A disk is a file, a block device, an NBD export, or a device of the program's own. A
 * program reads and writes a disk through a handle, and pins blocks to use them where they are in the cache.
 *
 *     static const char settings[] =
 *         "memory = \"256M\"\n"
 *         "policy = \"lirs\"\n"
 *         "[[disk]]\n"
 *         "name = \"db\"\n"
 *         "target = \"/srv/db.data\"\n";
 *     nigh_host *host;
 *     nigh_disk *disk;
 *     nigh_pinned page;
 *
 *     if (nigh_open(settings, strlen(settings), &host) < 0 || nigh_open_disk(host, "db", 2, &disk) < 0)
 *         return fail(nigh_error());
 *     if (nigh_pin(disk, 8192, 4096, 0, &page) == 0) {
 *         use(page.data, page.length);
 *         nigh_unpin(&page);
 *     }
 *     nigh_close_disk(disk);
 *     if (nigh_close(host, 10000) < 0)
 *         return fail(nigh_error());
 *
 * Results. Unless its comment states otherwise, a function returns 0, or a negative errno. nigh_error() then has the reason in words.
 * Results that several functions have:
 *
 *     -EINVAL            an argument: a null pointer, a length of 0, an unknown flag, a range that cannot be pinned, an invalid setting
 *     -ERANGE            the range passes the end of the disk
 *     -EROFS             the disk is read-only
 *     -ENOENT            there is no disk of this name
 *     -ESHUTDOWN         the disk was removed, or its host closed
 *     -ECHILD            this process is a child, after fork(), of the one that opened the host or queue
 *     -ENOTRECOVERABLE   an assertion of the cache failed: a part of it is out of use, and its unwritten changes are lost
 *     -EIO               the device failed, or data was lost because a flush failed, or a bug of the library (nigh_error() tells which)
 *
 * and the error of the device, such as -ENOSPC, where it has one.
 *
 * Threads. Any thread may call any function with any handle, and pins may be released by another thread than the one that got them. A call that closes or
 * frees something (nigh_close, nigh_close_disk, nigh_queue_close, nigh_unpin, nigh_commit, nigh_abort, nigh_free) is the last one with it, and no other
 * call with it may be in progress: this cannot be detected. Handles made from a closed one stay valid: pins of a closed disk, and disks and pins
 * of a closed host.
 *
 * Ranges. Offsets and lengths are in bytes. Reads, writes and pins need no alignment; nigh_pin_mut does. A block has NIGH_BLOCK bytes.
 *
 * fork(). A child cannot use the cache of its parent: all calls with its handles return -ECHILD, without waiting, and free nothing. The parent is not
 * affected. The child may open a host of its own, with other files: a file is locked while it is open.
 *
 * Strings are UTF-8 with a length, and need no 0 at their end.
 */
#ifndef NIGH_H
#define NIGH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a block. */
#define NIGH_BLOCK 4096
/* Most bytes of a change (nigh_pin_mut). */
#define NIGH_PIN_MOST 262144

/* nigh_pin: returns -EAGAIN instead of loading a block. */
#define NIGH_NOWAIT 1
/* nigh_pin_mut: the bytes are zeros, and nothing is read. */
#define NIGH_NEW 2
/* nigh_write, nigh_commit: returns when the bytes are on stable storage. */
#define NIGH_DURABLE 4
/* nigh_remove: changes that are not written yet are dropped. */
#define NIGH_DISCARD 8
/* nigh_add_device: writes are rejected. */
#define NIGH_READ_ONLY 16

/* The actions of a nigh_request. */
#define NIGH_ACTION_READ 1
#define NIGH_ACTION_WRITE 2
#define NIGH_ACTION_FLUSH 3
#define NIGH_ACTION_DISCARD 4
#define NIGH_ACTION_ZERO 5

/* A cache. */
typedef struct nigh_host nigh_host;
/* A program's use of a disk. Handles of the same disk share its blocks; each has its own read-ahead and its own pins. With a handle for each
 * thread, hits of different threads share nothing. */
typedef struct nigh_disk nigh_disk;
/* A queue of completions. */
typedef struct nigh_queue nigh_queue;

/* Bytes in the cache (nigh_pin). They never change: a write of the same block goes to other memory. */
typedef struct nigh_pinned {
    const void *data;
    size_t length;
    void *opaque; /* the library's */
} nigh_pinned;

/* A copy of whole blocks that is to be changed (nigh_pin_mut). */
typedef struct nigh_pinned_mut {
    void *data;
    size_t length;
    void *opaque; /* the library's */
} nigh_pinned_mut;

/* The end of an asynchronous request. */
typedef struct nigh_completion {
    void *user;         /* as given with the request */
    int result;         /* 0 or a negative errno */
    uint32_t reserved;  /* 0 */
    nigh_pinned pinned; /* of nigh_pin_async, if result is 0; otherwise zeros */
} nigh_completion;

/* A request to a device of the program's own. It is valid until nigh_finish. */
typedef struct nigh_request {
    uint32_t action;           /* one of NIGH_ACTION_* */
    uint32_t parts_count;      /* of reads and writes; otherwise 0 */
    uint64_t offset;           /* whole blocks of the device, except at its end; 0 for a flush */
    uint64_t length;           /* 0 for a flush */
    const struct iovec *parts; /* memory of the cache: to be filled by a read, and only read by a write. Sums up to length */
    void *opaque;              /* the library's */
} nigh_request;

/*
 * A device of the program's own.
 *
 * The library calls `perform` by `threads` threads of its own. The function may do the request and finish it, or return and finish it later, on
 * any thread. A request that is never finished holds up its disk, and no other. Requests that are in progress at the same time never
 * change the same bytes. A flush covers the requests that were finished when it began; a discard may be ignored.
 *
 * The functions must return, not jump out, and must not use the disk that they are the device of: such a call could wait for itself.
 */
typedef struct nigh_device {
    size_t size;      /* sizeof(nigh_device): fields may be added at the end */
    const char *name; /* of the disk */
    size_t name_length;
    uint32_t threads; /* at least 1 */
    uint32_t flags;   /* 0 or NIGH_READ_ONLY */
    void *user;       /* the first argument of the functions */
    /* The size in bytes, or a negative errno. Returns at once; any thread calls it. */
    int64_t (*bytes)(void *user);
    /* Performs a request and calls nigh_finish, now or later. */
    void (*perform)(void *user, const nigh_request *request);
    /* The last call, when the disk is closed. It may be NULL. If nigh_add_device fails, it is not called. */
    void (*close)(void *user);
} nigh_device;

/* ---- The library -------------------------------------------------------------------------------------------------------------------------- */

/* The reason of the last error of a call by this thread, in words, with a 0 at its end. Valid until this thread's next call that fails; empty if none
 * did. */
const char *nigh_error(void);

/* The version of the library, such as "0.1.0". */
const char *nigh_version(void);

/* ---- A cache ------------------------------------------------------------------------------------------------------------------------------ */

/*
 * Opens the disks and starts the threads of a cache.
 *
 * `settings` is TOML of `length` bytes, with these keys of the configuration file of `nigh serve` (docs/config.md), which mean the same and have the same
 * defaults: memory, memory-max, policy, allocate, write-mode, readahead, scheduler, depth, fail-after, verify, curves, shards. A table [[disk]] for each
 * disk has these of [[export]]: name, target, next, read-only, write-mode, iops, bandwidth, tenant, floor, ceiling, policy. An unknown key is an error.
 *
 * Also returns -EBUSY if a file is in use, -ENOENT or -EACCES if it cannot be opened, and -ENOMEM if the machine has less memory.
 */
int nigh_open(const char *settings, size_t length, nigh_host **host);

/*
 * Ends requests in progress, writes everything back, flushes the devices and frees the handle, whatever it returns. Calls with its disks then return
 * -ESHUTDOWN.
 *
 * `timeout_ms` is the longest time that this may take, or negative for no limit. Returns -ETIMEDOUT if a device did not complete in time: the process
 * should then end. Returns the device's error if blocks could not be written in three attempts; they are lost. nigh_error() names
 * the disks, and how many bytes are not written. Call nigh_flush before to try again as long as the program likes.
 */
int nigh_close(nigh_host *host, int timeout_ms);

/* Opens another disk: `settings` are the keys of one [[disk]], without the line [[disk]]. Returns -EEXIST if there is one of this name. */
int nigh_add(nigh_host *host, const char *settings, size_t length);

/* Opens a disk on a device of the program's own. `device` may be freed afterwards, what its `user` points to may not. */
int nigh_add_device(nigh_host *host, const nigh_device *device);

/* The request is done (`result` 0) or failed (a negative errno). Frees `request`. */
int nigh_finish(const nigh_request *request, int result);

/* Closes the disk of this name: its changes are written, or dropped with NIGH_DISCARD. If they cannot be written, it returns the error and the disk
 * stays. */
int nigh_remove(nigh_host *host, const char *name, size_t length, uint32_t flags);

/* Changes the memory, in bytes, unless it is 0, and the policy, unless it is NULL, while the cache is in use. Returns -ENOMEM for more memory
 * than `memory-max` or the machine has. */
int nigh_change(nigh_host *host, uint64_t memory, const char *policy, size_t length);

/* The state of the cache as JSON, with a 0 after its `length` bytes. The fields are those of docs/json.md ("nigh ctl status --json"), with `disks`
 * instead of `exports`. To be freed by nigh_free. `length` may be NULL. */
int nigh_statistics_json(nigh_host *host, char **text, size_t *length);

/* Frees a text of the library; NULL is ignored. */
void nigh_free(char *text);

/* ---- A disk ------------------------------------------------------------------------------------------------------------------------------- */

/* A handle of the disk of this name. */
int nigh_open_disk(nigh_host *host, const char *name, size_t length, nigh_disk **disk);

/* Frees the handle. Pins, changes and asynchronous requests of it stay valid. The disk stays open, and nothing is written. */
int nigh_close_disk(nigh_disk *disk);

/* The size of the disk. */
int nigh_size(nigh_disk *disk, uint64_t *bytes);

/* Reads `length` bytes. */
int nigh_read(nigh_disk *disk, uint64_t offset, void *buffer, size_t length);

/* Writes `length` bytes: into the cache; with NIGH_DURABLE, to stable storage. */
int nigh_write(nigh_disk *disk, uint64_t offset, const void *buffer, size_t length, uint32_t flags);

/* Returns when everything that was written before is on stable storage: it survives a crash of the program and of the machine. */
int nigh_flush(nigh_disk *disk);

/* The contents of the range are no longer needed. */
int nigh_trim(nigh_disk *disk, uint64_t offset, uint64_t length);

/* Makes the range read as zeros. */
int nigh_zero(nigh_disk *disk, uint64_t offset, uint64_t length);

/* The range will be read soon. Never waits. */
int nigh_prefetch(nigh_disk *disk, uint64_t offset, uint64_t length);

/* Applies hints: which blocks are needed less, and which will be read (docs/control.md, the text of a sidecar). The settings must have `allocate`. */
int nigh_hint(nigh_disk *disk, const char *sidecar, size_t length);

/* ---- Pins --------------------------------------------------------------------------------------------------------------------------------- */

/*
 * Pins a range within one block, without a copy: `pinned` gets its place in memory. Loads the block if it is not in the cache; with NIGH_NOWAIT, returns
 * -EAGAIN instead.
 *
 * A pin should be short. Blocks that are pinned and leave the cache take memory beyond it, of which there is little: a handle that has too many pins gets
 * -ENOBUFS (docs/embed.md, "Reading"). Pins that are never released stay counted, and hold up nothing else.
 */
int nigh_pin(nigh_disk *disk, uint64_t offset, size_t length, uint32_t flags, nigh_pinned *pinned);

/* Releases a pin, and clears `pinned`: a second call returns -EINVAL. */
int nigh_unpin(nigh_pinned *pinned);

/*
 * A copy of the whole blocks of a range, to be changed; at the end of the disk, a block may be shorter. The range has at most NIGH_PIN_MOST bytes and
 * does not cross a multiple of 1 MiB. Loads the blocks, or with NIGH_NEW fills the copy with zeros.
 *
 * There is one change at a time for each block: another one gets -EBUSY, and does not wait. Other writes are not excluded; the last one counts.
 */
int nigh_pin_mut(nigh_disk *disk, uint64_t offset, size_t length, uint32_t flags, nigh_pinned_mut *pinned);

/* Writes the change as nigh_write does, frees it and clears `pinned`. After an error, none, a part or all of it may be in the cache. */
int nigh_commit(nigh_pinned_mut *pinned, uint32_t flags);

/* Drops the change and clears `pinned`. */
int nigh_abort(nigh_pinned_mut *pinned);

/* ---- Asynchronous requests ---------------------------------------------------------------------------------------------------------------- */

/*
 * Requests return at once, with 0 if they were taken, and their ends are collected from a queue, in any order. A request that is invalid (-ERANGE, ...) ends
 * with that result. Each request returns -EAGAIN if the queue has as many requests as its depth, collected ones not counted.
 * On a disk with rates (iops, bandwidth), a request waits for its turn, and briefly where the cache has as many requests in progress as it can.
 */

/* A queue for at most `depth` requests, 1 to 65536. */
int nigh_queue_new(size_t depth, nigh_queue **queue);

/* Frees the queue. Its requests go on: writes take effect, pins are released, buffers are left alone. */
int nigh_queue_close(nigh_queue *queue);

/* Returns an eventfd, which is readable (poll, epoll) while there are ends to collect. It is the queue's: only nigh_completions reads it, and
 * nigh_queue_close closes it. */
int nigh_queue_fd(nigh_queue *queue);

/* Reads. `buffer` is the library's until the end is collected, and is filled by the call of nigh_completions that returns it. */
int nigh_read_async(nigh_disk *disk, nigh_queue *queue, uint64_t offset, void *buffer, size_t length, void *user);

/* Writes a copy of the buffer, which is the program's again when the call returns. */
int nigh_write_async(nigh_disk *disk, nigh_queue *queue, uint64_t offset, const void *buffer, size_t length, uint32_t flags, void *user);

/* Ends when everything that was written before is on stable storage. */
int nigh_flush_async(nigh_disk *disk, nigh_queue *queue, void *user);

/* Pins as nigh_pin does. The pin is in the completion, and released by nigh_unpin of it or of a copy. */
int nigh_pin_async(nigh_disk *disk, nigh_queue *queue, uint64_t offset, size_t length, void *user);

/*
 * Collects up to `most` ends, and returns their number. If there is none, waits for the first one at most `timeout_ms`, for ever if that is negative, and
 * returns 0 if the time is over. Signals do not interrupt it.
 */
int nigh_completions(nigh_queue *queue, nigh_completion *completions, size_t most, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
