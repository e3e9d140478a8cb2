/* Threads that read one file as fast as they can: FILE THREADS CALLS. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *name;
static int calls;

static void *reads(void *nothing) {
    char byte;
    int fd = open(name, O_RDONLY);
    for (int at = 0; at < calls; at++)
        if (pread(fd, &byte, 1, at % 4096) != 1) abort();
    return nothing;
}

int main(int count, char **arguments) {
    if (count != 4) return 1;
    name = arguments[1];
    calls = atoi(arguments[3]);
    int threads = atoi(arguments[2]);
    pthread_t all[256];
    for (int at = 0; at < threads; at++) pthread_create(&all[at], NULL, reads, NULL);
    for (int at = 0; at < threads; at++) pthread_join(all[at], NULL);
    printf("%d\n", threads * calls);
    return 0;
}
