/* One call site for each class of accesses, and a reader by stdio. The number of calls of each is known. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, SEQ = 300, LOOP = 100, ROUNDS = 4, SHORT_FILES = 30, SHORT = 3, RAND = 200 };
static char page[PAGE];

#define SITE __attribute__((noinline))
static SITE ssize_t seq(int fd) { ssize_t n = read(fd, page, PAGE); __asm__ volatile(""); return n; }
static SITE ssize_t loop(int fd, off_t at) { ssize_t n = pread(fd, page, PAGE, at); __asm__ volatile(""); return n; }
static SITE ssize_t shorts(int fd) { ssize_t n = read(fd, page, PAGE); __asm__ volatile(""); return n; }
static SITE ssize_t random_one(int fd, off_t at) { ssize_t n = pread(fd, page, PAGE, at); __asm__ volatile(""); return n; }

/* One call site: not unrolled. */
static SITE void short_file(int fd, int pages) {
    for (int at = 0; at < pages; at++) shorts(fd);
}

static void make(const char *name, int pages) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) exit(1);
    for (int at = 0; at < pages; at++)
        if (write(fd, page, PAGE) != PAGE) exit(1);
    close(fd);
}

int main(int argc, char **argv) {
    char name[64];
    if (argc > 1 && strcmp(argv[1], "make") == 0) {
        make("seq", SEQ);
        make("loop", LOOP);
        make("rand", 100000 / 10);
        make("stdio", 8);
        for (int file = 0; file < SHORT_FILES; file++) {
            snprintf(name, sizeof name, "short%d", file);
            make(name, SHORT);
        }
        return 0;
    }
    int fd = open("seq", O_RDONLY);
    while (seq(fd) > 0) {}
    close(fd);
    fd = open("loop", O_RDONLY);
    for (int round = 0; round < ROUNDS; round++)
        for (int at = 0; at < LOOP; at++) loop(fd, (off_t)at * PAGE);
    close(fd);
    for (int round = 0; round < ROUNDS; round++)
        for (int file = 0; file < SHORT_FILES; file++) {
            snprintf(name, sizeof name, "short%d", file);
            fd = open(name, O_RDONLY);
            short_file(fd, SHORT);
            close(fd);
        }
    fd = open("rand", O_RDONLY);
    uint64_t state = 88172645463325252u;
    for (int at = 0; at < RAND; at++) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17;
        random_one(fd, (off_t)(state % 10000) * PAGE);
    }
    close(fd);
    FILE *file = fopen("stdio", "r");
    int bytes = 0;
    while (getc(file) != EOF) bytes++;
    fclose(file);
    printf("%d\n", bytes);
    return 7;
}
