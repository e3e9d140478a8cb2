/* Reads a file before and after it limits its system calls: FILE strict|few|refused|most. Exits with 7. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))

static struct sock_filter few[] = {
    NUMBER, ALLOW(__NR_read), ALLOW(__NR_pread64), ALLOW(__NR_write), ALLOW(__NR_exit_group), ALLOW(__NR_exit),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_filter refused[] = {
    NUMBER, ALLOW(__NR_read), ALLOW(__NR_pread64), ALLOW(__NR_write), ALLOW(__NR_exit_group), ALLOW(__NR_exit),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};
static struct sock_filter most[] = {
    NUMBER, KILL(__NR_getrusage), KILL(__NR_openat), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

int main(int count, char **arguments) {
    char bytes[100];
    if (count != 3) return 1;
    int fd = open(arguments[1], O_RDONLY), other = open(arguments[1], O_RDONLY);
    if (read(fd, bytes, 100) != 100) return 2;
    if (!strcmp(arguments[2], "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
    } else {
        int is_most = !strcmp(arguments[2], "most");
        struct sock_fprog program = {sizeof few / sizeof *few, few};
        if (is_most) program = (struct sock_fprog){sizeof most / sizeof *most, most};
        if (!strcmp(arguments[2], "refused")) program = (struct sock_fprog){sizeof refused / sizeof *refused, refused};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (is_most ? syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                    : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 4;
    }
    for (int at = 0; at < 3; at++)
        if (read(fd, bytes, 100) != 100) return 5;
    if (strcmp(arguments[2], "strict"))
        for (int at = 0; at < 2; at++)
            if (pread(at ? other : fd, bytes, 100, 1000) != 100) return 6;
    write(1, "done\n", 5);
    syscall(__NR_exit, 7);
    return 8;
}
