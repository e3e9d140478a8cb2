/* A timer whose handler jumps out of reads: FILE JUMPS. Prints how many reads returned. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile long returned, jumps, most;
static volatile int fd;

static void handle(int number) {
    (void)number;
    if (jumps < most) {
        jumps++;
        siglongjmp(back, 1);
    }
}

/* Reads from stacks of different depths. */
__attribute__((noinline)) static void reads(int deeper) {
    volatile char filler[512];
    char byte;
    filler[0] = 0;
    if (deeper > 0) return reads(deeper - 1);
    for (;;) {
        if (pread(fd, &byte, 1, 0) != 1) abort();
        returned++;
        if (jumps >= most && returned % 1000 == 0) return;
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 1;
    fd = open(arguments[1], O_RDONLY);
    most = atoi(arguments[2]);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, NULL);
    sigsetjmp(back, 1);
    reads(jumps % 7);
    printf("%ld\n", returned);
    return 0;
}
