// Reads a part of a file's last page, and then touches all pages of its mapping, from the last one to the first.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int file = open(arguments[1], O_RDONLY);
    struct stat about;
    char bytes[100];
    fstat(file, &about);
    if (pread(file, bytes, sizeof bytes, about.st_size - 4096) != sizeof bytes) return 1;
    char *mapped = mmap(0, about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) return 1;
    volatile int sum = 0;
    for (long at = about.st_size - 4096; at >= 0; at -= 4096) sum += mapped[at];
    return sum == 0;
}
