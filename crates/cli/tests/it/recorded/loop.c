/* Reads a file again and again, in pieces of 64 KiB: FILE PASSES. Prints the sum of its bytes, and exits with 7. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned char piece[1 << 16];

int main(int count, char **arguments) {
    if (count != 3) return 1;
    unsigned long sum = 0;
    for (int pass = 0; pass < atoi(arguments[2]); pass++) {
        int fd = open(arguments[1], O_RDONLY);
        if (fd < 0) return 1;
        ssize_t got;
        while ((got = read(fd, piece, sizeof piece)) > 0)
            for (ssize_t at = 0; at < got; at++) sum += piece[at];
        close(fd);
    }
    printf("%lu\n", sum);
    return 7;
}
