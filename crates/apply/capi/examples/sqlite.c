/*
 * SQLite with nigh as its page cache: a VFS whose main database is a disk of nigh, and a load that compares it with SQLite's own page cache.
 *
 * Reads of pages are pins, writes go to the cache, syncs are flushes. Journals go to the system as usual. The database is used by one process
 * (locking_mode=EXCLUSIVE). The disk has a fixed size: the file is made longer when it is opened, and cut when it is closed.
 *
 *     cc -O2 sqlite.c -o sqlite $(pkg-config --cflags --libs nigh sqlite3)
 *     ./sqlite FOLDER [MIB [ROWS [TRANSACTIONS [POLICY]]]]
 *
 * It prints a line for SQLite's own cache above the kernel's page cache, for the same one with O_DIRECT, and for nigh, each with the same memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nigh.h>

enum { PAGE = 4096, GROWTH = 16 << 20, OWN_PAGES = 40 };

enum mode { KERNEL, DIRECT, NIGH };

/* How the database is stored in this run, and what was read of it. */
static struct {
    enum mode mode;
    nigh_host *host;
    nigh_disk *disk;
    int fd;
    sqlite3_int64 bytes; /* of the database; the disk is longer */
    long long reads;     /* pages that the file was asked for */
    void *aligned;       /* a page for O_DIRECT */
} store;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, nigh_error());
    exit(1);
}

/* ---- The file: the methods of SQLite's VFS -------------------------------------------------------------------------------------------- */

/* Reads or writes bytes within a page. With O_DIRECT, the page is read whole. */
static int move_directly(sqlite3_int64 offset, char *bytes, size_t length, int writes)
{
    sqlite3_int64 page = offset / PAGE * PAGE;
    char *aligned = store.aligned;
    if (!writes || length < PAGE) {
        ssize_t got = pread(store.fd, aligned, PAGE, page);
        if (got < 0)
            return -errno;
        memset(aligned + got, 0, PAGE - got);
        store.reads += !writes;
    }
    if (!writes) {
        memcpy(bytes, aligned + (offset - page), length);
        return 0;
    }
    memcpy(aligned + (offset - page), bytes, length);
    return pwrite(store.fd, aligned, PAGE, page) == PAGE ? 0 : -EIO;
}

static int move(sqlite3_int64 offset, char *bytes, size_t length, int writes)
{
    nigh_pinned pinned;
    if (store.mode == DIRECT)
        return move_directly(offset, bytes, length, writes);
    if (writes)
        return nigh_write(store.disk, offset, bytes, length, 0);
    int result = nigh_pin(store.disk, offset, length, 0, &pinned);
    if (result < 0)
        return result;
    memcpy(bytes, pinned.data, length);
    return nigh_unpin(&pinned);
}

static int db_read(sqlite3_file *file, void *buffer, int length, sqlite3_int64 offset)
{
    sqlite3_int64 there = store.bytes > offset ? store.bytes - offset : 0;
    int part = there < length ? (int)there : length;
    (void)file;
    if (part > 0 && move(offset, buffer, part, 0) < 0)
        return SQLITE_IOERR_READ;
    memset((char *)buffer + part, 0, length - part); /* as SQLite wants it */
    return part == length ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int db_write(sqlite3_file *file, const void *buffer, int length, sqlite3_int64 offset)
{
    int result = ((void)file, move(offset, (char *)buffer, length, 1));
    if (result < 0)
        return result == -ERANGE || result == -ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    if (offset + length > store.bytes)
        store.bytes = offset + length;
    return SQLITE_OK;
}

static int db_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return (store.mode == NIGH ? nigh_flush(store.disk) : fdatasync(store.fd)) == 0 ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

static int db_close(sqlite3_file *file) { return db_sync(file, 0); }
static int db_truncate(sqlite3_file *file, sqlite3_int64 bytes) { return (void)file, store.bytes = bytes, SQLITE_OK; }
static int db_size(sqlite3_file *file, sqlite3_int64 *bytes) { return (void)file, *bytes = store.bytes, SQLITE_OK; }
/* The database has one user. */
static int db_lock(sqlite3_file *file, int level) { return (void)file, (void)level, SQLITE_OK; }
static int db_is_locked(sqlite3_file *file, int *is) { return (void)file, *is = 0, SQLITE_OK; }
static int db_control(sqlite3_file *file, int op, void *arg) { return (void)file, (void)op, (void)arg, SQLITE_NOTFOUND; }
static int db_sector(sqlite3_file *file) { return (void)file, PAGE; }
static int db_features(sqlite3_file *file) { return (void)file, 0; }

static const sqlite3_io_methods methods = {
    .iVersion = 1, .xClose = db_close, .xRead = db_read, .xWrite = db_write, .xTruncate = db_truncate, .xSync = db_sync,
    .xFileSize = db_size, .xLock = db_lock, .xUnlock = db_lock, .xCheckReservedLock = db_is_locked,
    .xFileControl = db_control, .xSectorSize = db_sector, .xDeviceCharacteristics = db_features,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    sqlite3_vfs *system = vfs->pAppData;
    if (!(flags & SQLITE_OPEN_MAIN_DB))
        return system->xOpen(system, name, file, flags, out);
    file->pMethods = &methods;
    return SQLITE_OK;
}

/* A copy of the system's VFS, with another function to open files. */
static void register_vfs(void)
{
    static sqlite3_vfs vfs;
    sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    vfs = *system;
    vfs.zName = "nigh", vfs.pAppData = system, vfs.pNext = NULL, vfs.xOpen = vfs_open;
    sqlite3_vfs_register(&vfs, 0);
}

/* ---- The load ------------------------------------------------------------------------------------------------------------------------- */

static unsigned long long seed;

/* A row: half of the requests go to 3 % of the table, in groups of 32 rows (a page or less) that are everywhere in it. */
static long long row_of(long long rows)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    double random = (seed >> 11) / (double)(1ULL << 53);
    long long rank = (long long)(rows * pow(random, 5.0)), groups = rows / 32;
    return rank / 32 % groups * 1000003 % groups * 32 + rank % 32 + 1;
}

static void check(sqlite3 *db, int result)
{
    if (result != SQLITE_OK)
        fail(db ? sqlite3_errmsg(db) : "cannot open the database");
}

static void run_sql(sqlite3 *db, const char *sql) { check(db, sqlite3_exec(db, sql, NULL, NULL, NULL)); }

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    check(db, sqlite3_prepare_v2(db, sql, -1, &statement, NULL));
    return statement;
}

/* Runs a statement for a row and returns its number. */
static long long step(sqlite3_stmt *statement, long long row, long long delta)
{
    sqlite3_bind_int64(statement, 1, row);
    sqlite3_bind_int64(statement, 2, delta); /* ignored where there is no second one */
    long long value = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    check(sqlite3_db_handle(statement), sqlite3_reset(statement));
    return value;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void make(const char *path, long long rows)
{
    sqlite3 *db;
    char sql[512];
    remove(path);
    check(NULL, sqlite3_open(path, &db));
    snprintf(sql, sizeof sql,
             "PRAGMA page_size=%d; CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT); WITH RECURSIVE n(i) AS "
             "(SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%lld) INSERT INTO accounts SELECT i, 0, printf('%%080d', i) FROM n;",
             PAGE, rows);
    run_sql(db, sql);
    sqlite3_close(db);
    sync();
}

/* Pages that were read from the file so far. */
static long long file_reads(void)
{
    char *text, *at;
    if (store.mode == DIRECT)
        return store.reads;
    if (nigh_statistics_json(store.host, &text, NULL) < 0 || !(at = strstr(text, "\"device_read_bytes\":")))
        fail("statistics");
    long long bytes = atoll(strchr(at, ':') + 1);
    nigh_free(text);
    return bytes / PAGE;
}

/* A counter of SQLite's own cache. */
static long long counter(sqlite3 *db, int which)
{
    int value, high;
    return sqlite3_db_status(db, which, &value, &high, 0) == SQLITE_OK ? value : 0;
}

static void run(enum mode mode, const char *path, int mib, long long rows, long long transactions, const char *policy)
{
    static const char *names[] = { "SQLite, kernel", "SQLite, direct", "SQLite on nigh" };
    char text[2048];
    sqlite3 *db;
    struct stat about;
    if (stat(path, &about) < 0)
        fail(path);
    memset(&store, 0, sizeof store);
    store.mode = mode, store.bytes = about.st_size, store.fd = -1;
    if (mode == DIRECT && ((store.fd = open(path, O_RDWR | O_DIRECT)) < 0 || !(store.aligned = aligned_alloc(PAGE, PAGE))))
        fail("O_DIRECT");
    if (mode == NIGH) {
        snprintf(text, sizeof text, "memory = '%dB'\npolicy = '%s'\nreadahead = 'none'\n[[disk]]\nname = 'db'\ntarget = '%s'\n",
                 (mib << 20) - OWN_PAGES * PAGE, policy, path);
        if (truncate(path, about.st_size / PAGE * PAGE + GROWTH) < 0 || nigh_open(text, strlen(text), &store.host) < 0 ||
            nigh_open_disk(store.host, "db", 2, &store.disk) < 0)
            fail(path);
    }
    check(NULL, sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, mode == KERNEL ? NULL : "nigh"));
    snprintf(text, sizeof text, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=%d;",
             mode == NIGH ? OWN_PAGES : (mib << 20) / PAGE);
    run_sql(db, text);
    sqlite3_stmt *update = prepare(db, "UPDATE accounts SET balance = balance + ?2 WHERE id = ?1");
    sqlite3_stmt *select = prepare(db, "SELECT balance FROM accounts WHERE id = ?1");
    long long pages = 0, misses = 0, reads = 0;
    double begin = 0;
    seed = 42;
    /* The first half fills the cache, the second one is counted. */
    for (long long at = 0; at <= 2 * transactions; at++) {
        if (at > 0 && at % transactions == 0) {
            misses = counter(db, SQLITE_DBSTATUS_CACHE_MISS) - misses;
            pages = counter(db, SQLITE_DBSTATUS_CACHE_HIT) + counter(db, SQLITE_DBSTATUS_CACHE_MISS) - pages;
            reads = mode == KERNEL ? misses : file_reads() - reads;
            begin = now() - begin;
        }
        if (at == 2 * transactions)
            break;
        long long row = row_of(rows);
        run_sql(db, "BEGIN");
        step(update, row, 1);
        for (int selects = 0; selects < 5; selects++)
            step(select, selects ? row_of(rows) : row, 0);
        run_sql(db, "COMMIT");
    }
    sqlite3_finalize(update), sqlite3_finalize(select);
    sqlite3_stmt *all = prepare(db, "SELECT sum(balance) FROM accounts");
    if (step(all, 0, 0) != 2 * transactions)
        fail("the sum of the balances is wrong");
    sqlite3_finalize(all);
    if (sqlite3_close(db) != SQLITE_OK || (mode == NIGH && (nigh_close_disk(store.disk) < 0 || nigh_close(store.host, -1) < 0)))
        fail("close");
    if (mode == DIRECT)
        close(store.fd), free(store.aligned);
    if (mode == NIGH && truncate(path, store.bytes) < 0)
        fail(path);
    printf("%-16s %12.0f %10.2f %% %12lld\n", names[mode], transactions / begin, 100.0 - 100.0 * reads / pages, reads);
}

int main(int count, char **arguments)
{
    int mib = count > 2 ? atoi(arguments[2]) : 4;
    long long rows = count > 3 ? atoll(arguments[3]) : 200000, transactions = count > 4 ? atoll(arguments[4]) : 20000;
    char path[1024];
    if (count < 2 || mib < 1)
        return fprintf(stderr, "usage: sqlite FOLDER [MIB [ROWS [TRANSACTIONS [POLICY]]]]\n"), 2;
    snprintf(path, sizeof path, "%s/accounts.db", arguments[1]);
    register_vfs();
    printf("%lld accounts, %lld transactions of an update and five reads, %d MiB of cache\n", rows, transactions, mib);
    printf("%-16s %12s %12s %12s\n", "", "a second", "hits", "file reads");
    for (int mode = KERNEL; mode <= NIGH; mode++) {
        make(path, rows);
        run(mode, path, mib, rows, transactions, count > 5 ? arguments[5] : "lirs");
    }
    remove(path);
    return 0;
}
