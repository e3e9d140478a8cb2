/* Threads, fork, a signal handler that reads, and a thread that is cancelled while it reads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, READS = 2000 };
static volatile int handled;
static int cleaned;
static int own;

static void *reads(void *name) {
    char page[512];
    int fd = open(name, O_RDONLY);
    for (int at = 0; at < READS; at++) {
        errno = 77;
        if (pread(fd, page, sizeof page, at % 8 * 512) != sizeof page || errno != 77) abort();
    }
    close(fd);
    return NULL;
}

static void on_timer(int number) {
    char page[64];
    (void)number;
    if (pread(own, page, sizeof page, 0) == sizeof page) handled++;
}

static void on_cancel(void *argument) { (void)argument; cleaned = 1; }

static void *waits(void *pipe) {
    char byte;
    pthread_cleanup_push(on_cancel, NULL);
    read(*(int *)pipe, &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], waiting;
    (void)argc;
    own = open(argv[1], O_RDONLY);
    signal(SIGALRM, on_timer);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, reads, argv[1]);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    while (handled < 3) usleep(1000);
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int at = 0; at < 4; at++)
        if (fork() == 0) { reads(argv[1]); _exit(0); }
    while (wait(NULL) > 0) {}
    int ends[2];
    if (pipe(ends)) return 1;
    pthread_create(&waiting, NULL, waits, ends);
    usleep(20000);
    pthread_cancel(waiting);
    void *result;
    pthread_join(waiting, &result);
    // Bad pointers return EFAULT, as without nigh.
    char *nowhere = (char *)8;
    if (readv(own, (struct iovec *)nowhere, 2) != -1 || errno != EFAULT) return 1;
    if (sendfile(ends[1], own, (off_t *)nowhere, 1) != -1 || errno != EFAULT) return 1;
    if (writev(own, (struct iovec *)nowhere, 2) != -1) return 1;
    if (execve(nowhere, NULL, NULL) != -1 || errno != EFAULT) return 1;
    if (execve("/nowhere", NULL, (char **)nowhere) != -1) return 1;
    // A vector at the end of a page, with nothing behind it.
    char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    struct iovec *last = (struct iovec *)(pages + 4096) - 1;
    last->iov_base = pages;
    last->iov_len = 10;
    if (preadv(own, last, 1, 0) != 10) return 1;
    if (rename(nowhere, "x") != -1 || errno != EFAULT) return 1;
    printf("%d %d\n", cleaned, result == PTHREAD_CANCELED);
    return 0;
}
