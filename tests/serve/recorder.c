/* Records what a process writes below a folder, and when it syncs: LD_PRELOAD=recorder.so with RECORD_UNDER and
 * RECORD_TO. Each record is appended by one call, after the operation succeeded: a header, a path, and data.
 * While a file FAIL_WHILE exists, writes and syncs below the folder fail with an I/O error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct header { uint32_t kind, path; uint64_t offset, size; };

static int to = -1;
static char under[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("RECORD_UNDER"), *file = getenv("RECORD_TO");
    if (!folder || !file || !realpath(folder, under)) return;
    to = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

static int recorded(const char *path) {
    size_t length = strlen(under);
    return to >= 0 && !strncmp(path, under, length) && path[length] == '/';
}

static void record(char kind, const char *path, uint64_t offset, const struct iovec *data, int parts, uint64_t size) {
    struct header header = {(uint32_t)kind, (uint32_t)strlen(path), offset, size};
    struct iovec all[66] = {{&header, sizeof header}, {(void *)path, header.path}};
    int count = 2;
    for (uint64_t left = size; data && left && count < 66 && count - 2 < parts; count++) {
        all[count] = data[count - 2];
        if (all[count].iov_len > left) all[count].iov_len = left;
        left -= all[count].iov_len;
    }
    if (writev(to, all, count) < 0) abort();
}

/* The path of an open file; 0 where it is not recorded. */
static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = to < 0 ? -1 : readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return recorded(path);
}

/* The absolute form of a path whose folder exists. */
static int absolute(const char *name, char *path) {
    char folder[PATH_MAX];
    const char *last = strrchr(name, '/');
    snprintf(folder, sizeof folder, "%.*s", last ? (int)(last - name) : 1, last ? name : ".");
    if (to < 0 || !realpath(folder, path)) return 0;
    size_t length = strlen(path);
    snprintf(path + length, PATH_MAX - length, "/%s", last ? last + 1 : name);
    return recorded(path);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static int fails(int fd) {
    char path[PATH_MAX];
    const char *sign = getenv("FAIL_WHILE");
    int failing = sign && !access(sign, F_OK) && path_of(fd, path);
    if (failing) errno = EIO;
    return failing;
}

static ssize_t wrote(int fd, ssize_t size, off_t offset, const struct iovec *data, int parts) {
    char path[PATH_MAX];
    if (size > 0 && path_of(fd, path)) record('w', path, (uint64_t)offset, data, parts, (uint64_t)size);
    return size;
}

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t done = fails(fd) ? -1 : REAL(write)(fd, data, size);
    struct iovec part = {(void *)data, size};
    return to < 0 || done <= 0 ? done : wrote(fd, done, lseek(fd, 0, SEEK_CUR) - done, &part, 1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return fails(fd) ? -1 : wrote(fd, REAL(pwrite)(fd, data, size, offset), offset, &part, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }

ssize_t pwritev(int fd, const struct iovec *data, int parts, off_t offset) {
    return wrote(fd, REAL(pwritev)(fd, data, parts, offset), offset, data, parts);
}
ssize_t pwritev64(int fd, const struct iovec *data, int parts, off64_t offset) {
    return pwritev(fd, data, parts, offset);
}

static int changed(int fd, int failed, char kind, uint64_t size) {
    char path[PATH_MAX];
    if (!failed && path_of(fd, path)) record(kind, path, size, NULL, 0, 0);
    return failed;
}

int fsync(int fd) { return fails(fd) ? -1 : changed(fd, REAL(fsync)(fd), 's', 0); }
int fdatasync(int fd) { return fails(fd) ? -1 : changed(fd, REAL(fdatasync)(fd), 's', 0); }
int ftruncate(int fd, off_t size) { return changed(fd, REAL(ftruncate)(fd, size), 't', (uint64_t)size); }
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int posix_fallocate(int fd, off_t offset, off_t size) {
    return changed(fd, REAL(posix_fallocate)(fd, offset, size), 'a', (uint64_t)(offset + size));
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

int rename(const char *from, const char *name) {
    char old[PATH_MAX], new[PATH_MAX];
    int failed = REAL(rename)(from, name);
    if (!failed && absolute(name, new) && absolute(from, old)) {
        struct iovec part = {new, strlen(new)};
        record('r', old, 0, &part, 1, part.iov_len);
    }
    return failed;
}

int unlink(const char *name) {
    char path[PATH_MAX];
    int failed = REAL(unlink)(name);
    if (!failed && absolute(name, path)) record('u', path, 0, NULL, 0, 0);
    return failed;
}

int mkdir(const char *name, mode_t mode) {
    char path[PATH_MAX];
    int failed = REAL(mkdir)(name, mode);
    if (!failed && absolute(name, path)) record('d', path, 0, NULL, 0, 0);
    return failed;
}

int open(const char *name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int fd = REAL(open)(name, flags, mode);
    return fd < 0 || !(flags & (O_CREAT | O_TRUNC)) ? fd : (changed(fd, 0, flags & O_TRUNC ? 't' : 'a', 0), fd);
}
int open64(const char *name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open(name, flags, mode);
}
