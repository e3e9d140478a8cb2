/* Reads by pread in a thread, by read in a child, and by stdio: FILE, of 10 pages. With a second argument, again and again until the
   file OVER exists. Exits with 5. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char page[4096];

static void *pages(void *name) {
    int fd = open(name, O_RDONLY);
    for (int at = 0; at < 100; at++)
        if (pread(fd, page, sizeof page, at % 10 * 4096) != sizeof page) _exit(1);
    close(fd);
    return NULL;
}

int main(int count, char **arguments) {
    do {
        pthread_t thread;
        pthread_create(&thread, NULL, pages, arguments[1]);
        pthread_join(thread, NULL);
        if (fork() == 0) {
            int fd = open(arguments[1], O_RDONLY);
            while (read(fd, page, sizeof page) > 0) {}
            _exit(0);
        }
        wait(NULL);
        FILE *file = fopen(arguments[1], "r");
        while (fread(page, 1, 100, file) == 100) {}
        fclose(file);
        if (count > 2) usleep(1000);
    } while (count > 2 && access("OVER", F_OK) != 0);
    printf("done\n");
    return 5;
}
