// A program that goes over a file again and again through a mapping, page by page and without read-ahead: LOOP FILE TOUCHES.
// It prints the number of touches done, ten times a second. It runs on the processor of the other programs, and ends with the bench.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

// Microseconds of work for each touch.
enum { PAGE = 4096, ROUNDS = 16 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t processor;
    CPU_ZERO(&processor);
    CPU_SET(0, &processor);
    sched_setaffinity(0, sizeof processor, &processor);
    struct stat file;
    int opened = open(words[1], O_RDONLY);
    if (opened < 0 || fstat(opened, &file)) return 1;
    const unsigned long *all = mmap(0, file.st_size, PROT_READ, MAP_SHARED, opened, 0);
    if (all == MAP_FAILED || madvise((void *)all, file.st_size, MADV_RANDOM)) return 1;
    long pages = file.st_size / PAGE, touches = atol(words[2]);
    volatile unsigned long sum = 0;
    double told = now();
    for (long done = 0; done < touches; done++) {
        const unsigned long *page = all + done % pages * (PAGE / sizeof *all);
        for (int round = 0; round < ROUNDS; round++)
            for (size_t at = 0; at < PAGE / sizeof *all; at++) sum = (sum << 5 | sum >> 59) + page[at];
        if (now() - told > 0.1) {
            printf("%ld\n", done);
            fflush(stdout);
            told = now();
        }
    }
    printf("%ld\n", touches);
    return 0;
}
