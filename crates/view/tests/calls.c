// Makes every interposed call, with a path in the view and with one outside it.
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FOLDER "/sys/class/infiniband/ferroce_lo"
#define FILE_ FOLDER "/node_type"
#define LINK FOLDER "/link"
#define DEVICE "/dev/infiniband/uverbs0"
#define CHECK(what)                                                                                \
    do {                                                                                           \
        errno = 0;                                                                                 \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));                \
            failed = 1;                                                                            \
        }                                                                                          \
    } while (0)

int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
char *__realpath_chk(const char *, char *, size_t);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);

#ifdef __x86_64__
// Used by programs linked with glibc before 2.33.
int old_stat(int, const char *, struct stat *);
int old_lstat(int, const char *, struct stat *);
int old_fstatat(int, int, const char *, struct stat *, int);
__asm__(".symver old_stat,__xstat@GLIBC_2.2.5");
__asm__(".symver old_lstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver old_fstatat,__fxstatat@GLIBC_2.4");
#endif

int main(void) {
    int failed = 0;
    char text[PATH_MAX];
    struct stat found;
    struct statx wide;
    struct statfs system;
    struct dirent **list;
    FILE *file;

    CHECK(open(FILE_, O_RDONLY) >= 0);
    CHECK(open64(FILE_, O_RDONLY) >= 0);
    CHECK(openat(AT_FDCWD, FILE_, O_RDONLY) >= 0);
    CHECK(openat64(-1, FILE_, O_RDONLY) >= 0);
    CHECK(__open_2(FILE_, O_RDONLY) >= 0);
    CHECK(__open64_2(FILE_, O_RDONLY) >= 0);
    CHECK(__openat_2(-1, FILE_, O_RDONLY) >= 0);
    CHECK(__openat64_2(-1, FILE_, O_RDONLY) >= 0);
    CHECK(open(DEVICE, O_RDWR) >= 0);
    CHECK((file = fopen(FILE_, "r")) && fgets(text, sizeof text, file) && !strcmp(text, "1: CA\n"));
    CHECK((file = freopen(FILE_, "r", file)) && fgets(text, sizeof text, file));
    CHECK(fopen64(FILE_, "r"));

    // The mode is passed through.
    umask(0);
    CHECK(open(FOLDER "/made", O_CREAT | O_WRONLY, 0640) >= 0);
    CHECK(stat(FOLDER "/made", &found) == 0 && (found.st_mode & 07777) == 0640);
    CHECK(openat(-1, FOLDER "/made2", O_CREAT | O_WRONLY, 0604) >= 0);
    CHECK(stat(FOLDER "/made2", &found) == 0 && (found.st_mode & 07777) == 0604);
    CHECK(creat(FOLDER "/made3", 0611) >= 0);
    CHECK(stat(FOLDER "/made3", &found) == 0 && (found.st_mode & 07777) == 0611);

    CHECK(opendir("/sys/class/infiniband"));
    CHECK(scandir("/sys/class/infiniband", &list, NULL, alphasort) == 3);
    CHECK(!strcmp(list[2]->d_name, "ferroce_lo"));
    CHECK(scandirat(-1, "/sys/class/infiniband", &list, NULL, alphasort) == 3);

    CHECK(stat(DEVICE, &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(stat64(FILE_, (struct stat64 *)&found) == 0 && S_ISREG(found.st_mode));
    CHECK(lstat(LINK, &found) == 0 && S_ISLNK(found.st_mode));
    CHECK(lstat64(LINK, (struct stat64 *)&found) == 0 && S_ISLNK(found.st_mode));
    CHECK(fstatat(-1, FILE_, &found, 0) == 0 && S_ISREG(found.st_mode));
    CHECK(statx(-1, FILE_, 0, STATX_MODE, &wide) == 0 && S_ISREG(wide.stx_mode));
#ifdef __x86_64__
    CHECK(old_stat(1, FILE_, &found) == 0 && S_ISREG(found.st_mode));
    CHECK(old_lstat(1, LINK, &found) == 0 && S_ISLNK(found.st_mode));
    CHECK(old_fstatat(1, -1, FILE_, &found, 0) == 0 && S_ISREG(found.st_mode));
    CHECK(old_stat(1, "/", &found) == 0 && S_ISDIR(found.st_mode));
#endif
    CHECK(access(FILE_, R_OK) == 0);
    CHECK(eaccess(FILE_, R_OK) == 0);
    CHECK(euidaccess(FILE_, R_OK) == 0);
    CHECK(faccessat(-1, DEVICE, R_OK | W_OK, 0) == 0);
    CHECK(statfs(FILE_, &system) == 0);
    CHECK(pathconf(FILE_, _PC_NAME_MAX) > 0);
    CHECK(getxattr(FILE_, "user.none", text, sizeof text) < 0 && errno != ENOENT);
    CHECK(lgetxattr(LINK, "user.none", text, sizeof text) < 0 && errno != ENOENT);
    CHECK(listxattr(FILE_, text, sizeof text) >= 0 || errno != ENOENT);
    CHECK(llistxattr(FILE_, text, sizeof text) >= 0 || errno != ENOENT);

    CHECK(readlink(LINK, text, sizeof text) == 9 && !memcmp(text, "node_type", 9));
    CHECK(readlinkat(-1, LINK, text, sizeof text) == 9);
    CHECK(__readlink_chk(LINK, text, 9, sizeof text) == 9);
    CHECK(__readlinkat_chk(-1, LINK, text, 9, sizeof text) == 9);
    CHECK(realpath(LINK, text) && strstr(text, FILE_) > text);
    CHECK(__realpath_chk(LINK, text, sizeof text) && strstr(text, FILE_) > text);
    CHECK(canonicalize_file_name(LINK));

    // The names found keep the original path.
    glob_t names = {0};
    CHECK(glob("/sys/class/infiniband/*/node_t*", 0, NULL, &names) == 0);
    CHECK(names.gl_pathc == 1 && !strcmp(names.gl_pathv[0], FILE_));
    globfree(&names);
    CHECK(glob("/etc/pass*d", 0, NULL, &names) == 0 && names.gl_pathc == 1);

    // Other paths are not redirected.
    CHECK(open("/etc/passwd", O_RDONLY) >= 0);
    CHECK(open("/sys/class/infinibandits", O_RDONLY) < 0 && errno == ENOENT);
    CHECK(open(FOLDER "/nothing", O_RDONLY) < 0 && errno == ENOENT);
    CHECK(freopen(NULL, "r", stdin));
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "/dev/infiniband/", 16);
    text[sizeof text - 1] = 0;
    CHECK(open(text, O_RDONLY) < 0 && errno == ENAMETOOLONG);
    // A successful call preserves errno.
    errno = 77;
    int fd = open(FILE_, O_RDONLY);
    if (fd < 0 || errno != 77) {
        fprintf(stderr, "errno is %d\n", errno);
        failed = 1;
    }

    CHECK(chdir(FOLDER) == 0 && access("node_type", R_OK) == 0);
    return failed;
}
