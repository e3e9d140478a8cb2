/* Shared by the programs of the tests. Each gets a folder for its files, and ends with status 1 at the first check that fails. */
#ifndef CHECK_H
#define CHECK_H

#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nigh.h>

#define MIB (1024 * 1024)

#define CHECK(holds)                                                                                  \
    do {                                                                                              \
        if (!(holds)) {                                                                               \
            fprintf(stderr, "%s:%d: %s; the last error: %s\n", __FILE__, __LINE__, #holds, nigh_error()); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The call returns this. */
#define RETURNS(expected, call)                                                                                           \
    do {                                                                                                                  \
        int returned = (call);                                                                                            \
        if (returned != (expected)) {                                                                                     \
            fprintf(stderr, "%s:%d: %s: %d instead of %d; the last error: %s\n", __FILE__, __LINE__, #call, returned,     \
                    (int)(expected), nigh_error());                                                                       \
            exit(1);                                                                                                      \
        }                                                                                                                 \
    } while (0)

static inline nigh_host *open_host(const char *settings)
{
    nigh_host *host = NULL;
    RETURNS(0, nigh_open(settings, strlen(settings), &host));
    return host;
}

static inline nigh_disk *open_disk(nigh_host *host, const char *name)
{
    nigh_disk *disk = NULL;
    RETURNS(0, nigh_open_disk(host, name, strlen(name), &disk));
    return disk;
}

/* All bytes of `data` are `byte`. */
static inline int is_all(const void *data, size_t length, int byte)
{
    const unsigned char *bytes = data;
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != byte)
            return 0;
    return 1;
}

#endif
