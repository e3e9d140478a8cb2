/* Submits requests to the kernel: FILE aio|ring. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { REQUESTS = 40, BYTES = 2048 };

int main(int count, char **arguments) {
    static char bytes[REQUESTS][BYTES];
    if (count != 3) return 1;
    int fd = open(arguments[1], O_RDONLY);
    if (!strcmp(arguments[2], "ring")) {
        struct io_uring_params params = {0};
        long ring = syscall(SYS_io_uring_setup, 8, &params);
        printf("%d\n", ring >= 0);
        usleep(20000);
        return pread(fd, bytes[0], BYTES, 0) != BYTES;
    }
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
