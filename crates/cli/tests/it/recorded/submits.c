/* Submits requests to the kernel: FILE aio|ring|thread, the last to a thread of the kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { REQUESTS = 40, BYTES = 2048 };

/* Reads by io_uring in one call: of the descriptor, of a registered file, of two buffers, where the descriptor is, and
   beyond the end. Prints how many requests were taken, and the bytes that they read. */
static int by_ring(int fd, unsigned flags) {
    static char bytes[8][BYTES];
    struct io_uring_params params = {.flags = flags};
    long ring = syscall(SYS_io_uring_setup, 8, &params);
    if (ring < 0) {
        puts("no io_uring");
        return 0;
    }
    char *all = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *requests = mmap(0, 8 * sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (all == MAP_FAILED || requests == MAP_FAILED) return 3;
    int files[2] = {-1, fd};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, files, 2)) return 4;
    struct iovec parts[2] = {{bytes[2], BYTES / 2}, {bytes[2] + BYTES / 2, BYTES / 2}};
    lseek(fd, 7 * BYTES, SEEK_SET);
    memset(requests, 0, 8 * sizeof *requests);
    for (int at = 0; at < 6; at++)
        requests[at] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .off = (uint64_t)at * BYTES,
            .addr = (uintptr_t)bytes[at], .len = BYTES};
    requests[1].fd = 1;
    requests[1].flags = IOSQE_FIXED_FILE;
    requests[2].opcode = IORING_OP_READV;
    requests[2].addr = (uintptr_t)parts;
    requests[2].len = 2;
    requests[3].off = -1;
    requests[4].opcode = IORING_OP_NOP;
    requests[5].opcode = IORING_OP_FSYNC;
    requests[5].off = requests[5].addr = requests[5].len = 0;
    /* Their order in the ring is another than in memory. */
    unsigned *array = (unsigned *)(all + params.sq_off.array);
    for (unsigned at = 0; at < 6; at++) array[at] = 5 - at;
    __atomic_store_n((unsigned *)(all + params.sq_off.tail), 6, __ATOMIC_RELEASE);
    long taken = syscall(SYS_io_uring_enter, ring, 6, 6, IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP, 0, 0);
    char *end = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    long read = 0;
    struct io_uring_cqe *results = (struct io_uring_cqe *)(end + params.cq_off.cqes);
    for (int at = 0; at < 6; at++) read += results[at].res;
    printf("%ld %ld\n", taken, read);
    /* Long enough that the recorder reads its descriptors. */
    usleep(100000);
    return pread(fd, bytes[6], BYTES, 9 * BYTES) != BYTES;
}

int main(int count, char **arguments) {
    static char bytes[REQUESTS][BYTES];
    if (count != 3) return 1;
    int fd = open(arguments[1], O_RDONLY);
    if (!strcmp(arguments[2], "ring")) return by_ring(fd, 0);
    if (!strcmp(arguments[2], "thread")) return by_ring(fd, IORING_SETUP_SQPOLL);
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, REQUESTS, &context)) return 2;
    struct iocb blocks[REQUESTS], *all[REQUESTS];
    struct iovec parts[2] = {{bytes[0], BYTES / 2}, {bytes[0] + BYTES / 2, BYTES / 2}};
    memset(blocks, 0, sizeof blocks);
    for (int at = 0; at < REQUESTS; at++) {
        blocks[at] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd,
            .aio_buf = (uintptr_t)bytes[at], .aio_nbytes = BYTES, .aio_offset = (long long)at * BYTES};
        all[at] = &blocks[at];
    }
    blocks[7].aio_lio_opcode = IOCB_CMD_PREADV;
    blocks[7].aio_buf = (uintptr_t)parts;
    blocks[7].aio_nbytes = 2;
    long taken = syscall(SYS_io_submit, context, REQUESTS, all);
    struct io_event events[REQUESTS];
    long ended = syscall(SYS_io_getevents, context, taken, REQUESTS, events, NULL);
    printf("%ld %ld\n", taken, ended);
    return 0;
}
