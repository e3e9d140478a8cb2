/* loses IMAGE STABLE ORDER PROGRAM ARGUMENT...: runs PROGRAM on a disk, the file IMAGE, whose writes are volatile until
 * they are synced.
 *
 * The file STABLE is the stable storage. Each fsync or fdatasync of PROGRAM first copies IMAGE to STABLE. If the file
 * ORDER exists, the next one fails with EIO instead: ORDER is removed, and what was not synced is lost, that is,
 * STABLE is copied to IMAGE. As on Linux, later ones succeed. io_uring is refused, so that PROGRAM syncs by system calls.
 *
 * PROGRAM is this process; a child answers its system calls. Exits with 77 if the kernel does not support that. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SKIPPED 77

static void check(int fine, const char *what) {
    if (!fine) {
        perror(what);
        exit(SKIPPED);
    }
}

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    check(in >= 0 && out >= 0, "open");
    ssize_t length;
    while ((length = read(in, bytes, sizeof bytes)) > 0)
        check(write(out, bytes, length) == length, "write");
    check(length == 0, "read");
    close(in);
    close(out);
}

static void answer(int listener, const char *image, const char *stable, const char *order) {
    for (;;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (poll(&ready, 1, -1) < 0 || !(ready.revents & POLLIN))
            exit(0);
        struct seccomp_notif call;
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
            continue;
        struct seccomp_notif_resp reply = {.id = call.id};
        if (unlink(order) == 0) {
            copy(stable, image);
            reply.error = -EIO;
        } else {
            copy(image, stable);
            reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        }
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
    }
}

int main(int count, char **arguments) {
    if (count < 5)
        return 2;
    int numbers[2], listener;
    check(pipe2(numbers, O_CLOEXEC) == 0, "pipe");
    copy(arguments[1], arguments[2]);
    /* The child shares the descriptors until PROGRAM is executed, and has its own afterwards. */
    long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    check(child >= 0, "clone");
    if (child == 0) {
        if (read(numbers[0], &listener, sizeof listener) != sizeof listener)
            exit(0);
        answer(listener, arguments[1], arguments[2], arguments[3]);
    }
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0)
        kill(child, SIGKILL);
    check(listener >= 0, "seccomp");
    check(write(numbers[1], &listener, sizeof listener) == sizeof listener, "write");
    execv(arguments[4], arguments + 4);
    perror(arguments[4]);
    return 1;
}
