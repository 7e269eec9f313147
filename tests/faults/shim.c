/* Faults at the file-system calls of a process, through LD_PRELOAD.

   Counted is every call of libc that changes something below one directory. At the n-th of them
   the process is killed, stopped, or told that it failed. All calls can be logged, with the
   bytes they write, so that a test can play them back and stop anywhere. The tests reach
   `shim_*` through ctypes; processes that are only started read FAULT_* from the environment. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NONE, KILL, KILL_TORN, STOP, FAIL, FAIL_ON, SHORT_ON };

/* Classes of calls, so that a full disk refuses what needs space and nothing else. */
enum { NEEDS_SPACE = 1, SYNCS = 2, FREES = 4, MARKS = 8, WRITES = 16, ANY = 31 };

static char root[PATH_MAX];
static size_t root_length;
static long at, count;
static int action, error_code, classes = ANY;
static int log_fd = -1;
static int link_error, symlink_error, flock_error = -1; /* flock: -1 as it is, 0 does nothing, else errno */
static long slow_us;
static char at_name[32], last_name[32];

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

void shim_arm(const char *where, long n, int what, int error, int which) {
    root_length = strlen(where);
    memcpy(root, where, root_length + 1);
    at = n;
    action = what;
    error_code = error;
    classes = which;
    count = 0;
    at_name[0] = 0;
}
void shim_disarm(void) { action = NONE; root_length = 0; }
long shim_count(void) { return count; }
const char *shim_name(void) { return at_name; }
void shim_links(int error, int symlinks) { link_error = error; symlink_error = symlinks ? error : 0; }
void shim_flock(int error) { flock_error = error; }
void shim_log(int fd) { log_fd = fd; }

__attribute__((constructor)) static void from_environment(void) {
    const char *value = getenv("FAULT_ROOT");
    if (value) shim_arm(value, 0, NONE, 0, ANY);
    if ((value = getenv("FAULT_LINK"))) link_error = atoi(value);
    if ((value = getenv("FAULT_SYMLINK"))) symlink_error = atoi(value);
    if ((value = getenv("FAULT_FLOCK"))) flock_error = atoi(value);
    if ((value = getenv("FAULT_SLOW_US"))) slow_us = atol(value);
}

static void emit(const char *text, size_t length) {
    while (length) {
        long n = syscall(SYS_write, log_fd, text, length);
        if (n <= 0) abort();
        text += n;
        length -= (size_t)n;
    }
}

static void record(const char *format, ...) {
    if (log_fd < 0) return;
    int saved = errno;
    char line[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[n] = '\n';
    emit(line, (size_t)n + 1);
    errno = saved;
}

void shim_mark(const char *text) { record("mark\t%s", text); }

static void record_bytes(unsigned long ino, long offset, const unsigned char *data, size_t n) {
    if (log_fd < 0 || n == 0) return;
    int saved = errno;
    char *line = malloc(64 + 2 * n + 1);
    size_t used = (size_t)sprintf(line, "write\t%lu\t%ld\t", ino, offset);
    for (size_t i = 0; i < n; i++) used += (size_t)sprintf(line + used, "%02x", data[i]);
    line[used++] = '\n';
    emit(line, used);
    free(line);
    errno = saved;
}

static const char *absolute(int directory, const char *path, char *into) {
    if (path[0] == '/') return strncpy(into, path, PATH_MAX - 1);
    char link[64];
    if (directory == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else sprintf(link, "/proc/self/fd/%d", directory);
    ssize_t n = readlink(link, into, PATH_MAX - 2);
    if (n < 0) n = 0;
    into[n] = '/';
    strncpy(into + n + 1, path, PATH_MAX - (size_t)n - 2);
    return into;
}

static int below(const char *path) {
    return root_length && !strncmp(path, root, root_length) &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static int fd_below(int fd, char *into) {
    if (!root_length || fd == log_fd) return 0;
    char link[64];
    int saved = errno;
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    errno = saved;
    if (n < 0) return 0;
    into[n] = 0;
    return below(into);
}

static unsigned long inode(const char *path) {
    struct stat seen;
    int saved = errno;
    unsigned long found = lstat(path, &seen) ? 0 : seen.st_ino;
    errno = saved;
    return found;
}

static unsigned long fd_inode(int fd) {
    struct stat seen;
    int saved = errno;
    unsigned long found = fstat(fd, &seen) ? 0 : seen.st_ino;
    errno = saved;
    return found;
}

static void record_time(const struct stat *seen) {
    record("mtime\t%lu\t%lld", seen->st_ino,
           (long long)seen->st_mtim.tv_sec * 1000000000 + seen->st_mtim.tv_nsec);
}

static void record_fd_time(int fd) {
    struct stat seen;
    int saved = errno;
    if (log_fd >= 0 && !fstat(fd, &seen)) record_time(&seen);
    errno = saved;
}

/* One call that changes something. Returns -1 if it must fail with errno, 1 for a short or torn
   write, else 0. */
static int step(const char *name, int class) {
    count++;
    strcpy(last_name, name);
    if (action == NONE) return 0;
    if (action == FAIL_ON || action == SHORT_ON) {
        if (count < at || !(classes & class)) return 0;
        if (!at_name[0]) strcpy(at_name, name);
        if (action == SHORT_ON) return 1;
        errno = error_code;
        return -1;
    }
    if (count != at || !(classes & class)) return 0;
    strcpy(at_name, name);
    switch (action) {
    case KILL: raise(SIGKILL); break;
    case KILL_TORN: return 1;
    case STOP: raise(SIGSTOP); break;
    case FAIL: errno = error_code; return -1;
    }
    return 0;
}

static void slowly(void) {
    if (!slow_us) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep((unsigned)(slow_us / 2 + now.tv_nsec % slow_us));
}

static int open_common(int directory, const char *path, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "openat64");
    char full[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE ||
        !below(absolute(directory, path, full)))
        return real(directory, path, flags, mode);
    unsigned long before = inode(full);
    if (step("open", before ? MARKS : NEEDS_SPACE)) return -1;
    int fd = real(directory, path, flags, mode);
    if (fd >= 0) {
        struct stat seen;
        if (!before && !fstat(fd, &seen))
            record("create\t%s\t%lu\t%o", full, seen.st_ino, seen.st_mode & 07777);
        else if (flags & O_TRUNC) record("truncate\t%lu\t0", fd_inode(fd));
        record_fd_time(fd);
    }
    return fd;
}

#define MODE va_list a; va_start(a, flags); mode_t mode = va_arg(a, mode_t); va_end(a)
int open(const char *path, int flags, ...) { MODE; return open_common(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; return open_common(AT_FDCWD, path, flags, mode); }
int openat(int d, const char *path, int flags, ...) { MODE; return open_common(d, path, flags, mode); }
int openat64(int d, const char *path, int flags, ...) { MODE; return open_common(d, path, flags, mode); }

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    char full[PATH_MAX];
    if (!fd_below(fd, full)) return real(fd, data, n);
    int told = step("write", NEEDS_SPACE | WRITES);
    if (told < 0) return -1;
    if (told > 0 && n > 1) n = n / 2;
    ssize_t done = real(fd, data, n);
    if (done > 0 && log_fd >= 0)
        record_bytes(fd_inode(fd), lseek(fd, 0, SEEK_CUR) - done, data, (size_t)done);
    record_fd_time(fd);
    if (told > 0 && action == KILL_TORN) raise(SIGKILL);
    return done;
}

static void record_copied(int fd, off_t from, ssize_t n) {
    if (log_fd < 0 || n <= 0) return;
    char link[64];
    sprintf(link, "/proc/self/fd/%d", fd);
    REAL(open64);
    int reader = real(link, O_RDONLY);
    unsigned char *data = malloc((size_t)n);
    if (reader < 0 || pread(reader, data, (size_t)n, from) != n) abort();
    record_bytes(fd_inode(fd), from, data, (size_t)n);
    free(data);
    close(reader);
    record_fd_time(fd);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) {
    REAL(sendfile64);
    char full[PATH_MAX];
    if (!fd_below(out, full)) return real(out, in, offset, n);
    int told = step("write", NEEDS_SPACE | WRITES);
    if (told < 0) return -1;
    if (told > 0) n = 1;
    off_t from = lseek(out, 0, SEEK_CUR);
    ssize_t done = real(out, in, offset, n);
    record_copied(out, from, done);
    if (told > 0 && action == KILL_TORN) raise(SIGKILL);
    return done;
}

int ioctl(int fd, unsigned long request, ...) {
    va_list a;
    va_start(a, request);
    void *argument = va_arg(a, void *);
    va_end(a);
    static int (*real)(int, unsigned long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "ioctl");
    char full[PATH_MAX];
    if (request != 0x40049409 || !fd_below(fd, full)) return real(fd, request, argument);
    if (step("reflink", NEEDS_SPACE) < 0) return -1;
    int done = real(fd, request, argument);
    struct stat seen;
    if (!done && !fstat(fd, &seen)) record_copied(fd, 0, seen.st_size);
    return done;
}

int fsync(int fd) {
    REAL(fsync);
    char full[PATH_MAX];
    if (!fd_below(fd, full)) return real(fd);
    if (step("fsync", SYNCS)) return -1;
    int done = real(fd);
    if (!done) record("sync\t%lu", fd_inode(fd));
    return done;
}
int fdatasync(int fd) { return fsync(fd); }

int linkat(int d, const char *from, int e, const char *to, int flags) {
    REAL(linkat);
    char a[PATH_MAX] = "", b[PATH_MAX] = "";
    absolute(d, from, a);
    if (!below(absolute(e, to, b))) return real(d, from, e, to, flags);
    slowly();
    if (step("link", NEEDS_SPACE)) return -1;
    if (link_error) { errno = link_error; return -1; }
    int done = real(d, from, e, to, flags);
    if (!done) record("link\t%s\t%s", a, b);
    return done;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int d, const char *from, int e, const char *to) {
    REAL(renameat);
    char a[PATH_MAX] = "", b[PATH_MAX] = "";
    absolute(d, from, a);
    if (!below(absolute(e, to, b))) return real(d, from, e, to);
    slowly();
    if (step("rename", NEEDS_SPACE)) return -1;
    int done = real(d, from, e, to);
    if (!done) record("rename\t%s\t%s", a, b);
    return done;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int d, const char *path, int flags) {
    REAL(unlinkat);
    char full[PATH_MAX] = "";
    if (!below(absolute(d, path, full))) return real(d, path, flags);
    if (step(flags & AT_REMOVEDIR ? "rmdir" : "unlink", FREES)) return -1;
    int done = real(d, path, flags);
    if (!done) record("%s\t%s", flags & AT_REMOVEDIR ? "rmdir" : "unlink", full);
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int d, const char *path, mode_t mode) {
    REAL(mkdirat);
    char full[PATH_MAX] = "";
    if (!below(absolute(d, path, full))) return real(d, path, mode);
    if (step("mkdir", NEEDS_SPACE)) return -1;
    int done = real(d, path, mode);
    if (!done) record("mkdir\t%s\t%lu", full, inode(full));
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int symlinkat(const char *target, int d, const char *path) {
    REAL(symlinkat);
    char full[PATH_MAX] = "";
    if (!below(absolute(d, path, full))) return real(target, d, path);
    if (step("symlink", NEEDS_SPACE)) return -1;
    if (symlink_error) { errno = symlink_error; return -1; }
    int done = real(target, d, path);
    if (!done) record("symlink\t%s\t%s\t%lu", target, full, inode(full));
    return done;
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int fchmod(int fd, mode_t mode) {
    REAL(fchmod);
    char full[PATH_MAX];
    if (!fd_below(fd, full)) return real(fd, mode);
    if (step("chmod", MARKS)) return -1;
    int done = real(fd, mode);
    if (!done) record("chmod\t%lu\t%o", fd_inode(fd), mode & 07777);
    return done;
}

int fchmodat(int d, const char *path, mode_t mode, int flags) {
    REAL(fchmodat);
    char full[PATH_MAX] = "";
    if (!below(absolute(d, path, full))) return real(d, path, mode, flags);
    if (step("chmod", MARKS)) return -1;
    int done = real(d, path, mode, flags);
    if (!done) record("chmod\t%lu\t%o", inode(full), mode & 07777);
    return done;
}
int chmod(const char *path, mode_t mode) { return fchmodat(AT_FDCWD, path, mode, 0); }

int utimensat(int d, const char *path, const struct timespec times[2], int flags) {
    REAL(utimensat);
    char full[PATH_MAX] = "";
    if (!below(absolute(d, path, full))) return real(d, path, times, flags);
    if (step("utime", MARKS)) return -1;
    int done = real(d, path, times, flags);
    struct stat seen;
    if (!done && !lstat(full, &seen)) record_time(&seen);
    return done;
}

int futimens(int fd, const struct timespec times[2]) {
    REAL(futimens);
    char full[PATH_MAX];
    if (!fd_below(fd, full)) return real(fd, times);
    if (step("utime", MARKS)) return -1;
    int done = real(fd, times);
    struct stat seen;
    if (!done && !fstat(fd, &seen)) record_time(&seen);
    return done;
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    char full[PATH_MAX];
    if (!fd_below(fd, full)) return real(fd, size);
    if (step("truncate", MARKS)) return -1;
    int done = real(fd, size);
    if (!done) record("truncate\t%lu\t%ld", fd_inode(fd), (long)size);
    record_fd_time(fd);
    return done;
}

int truncate64(const char *path, off64_t size) {
    REAL(truncate64);
    char full[PATH_MAX] = "";
    if (!below(absolute(AT_FDCWD, path, full))) return real(path, size);
    if (step("truncate", MARKS)) return -1;
    int done = real(path, size);
    if (!done) record("truncate\t%lu\t%ld", inode(full), (long)size);
    return done;
}

int flock(int fd, int operation) {
    REAL(flock);
    if (flock_error < 0) return real(fd, operation);
    if (flock_error == 0) return 0;
    errno = flock_error;
    return -1;
}

/* Not used by the store below its root; a test that meets one must hear of it. */
ssize_t copy_file_range(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned flags) {
    char full[PATH_MAX];
    if (fd_below(out, full)) abort();
    REAL(copy_file_range);
    return real(in, a, out, b, n, flags);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) {
    char full[PATH_MAX];
    if (fd_below(fd, full)) abort();
    REAL(pwrite64);
    return real(fd, data, n, offset);
}
