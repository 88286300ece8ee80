/* A render node of an Arm Mali, as far as Mesa's drivers (panfrost) need one to compile. This
 * preloaded library answers opens of the node and its ioctls. Nothing is ever executed. NODE_GPU is
 * the product id in hexadecimal.
 *
 * The descriptor is a sparse memory file, so dup, fcntl and mmap work without interception.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char node[] = "/dev/dri/renderD128";
enum { MOST_OBJECTS = 1 << 16 };

static int is_node(const char *path) { return path && !strcmp(path, node); }
static int is_hidden(const char *path)
{
    return path && !strncmp(path, "/dev/dri/", 9) && !is_node(path);
}

static long gpu(void)
{
    const char *id = getenv("NODE_GPU");
    return id ? strtol(id, NULL, 16) : 0x7212;
}

/* --- files --- */

static int open_path(int folder, const char *path, int flags, mode_t mode)
{
    if (is_node(path)) {
        int fd = syscall(SYS_memfd_create, "mali", 1u);
        return fd >= 0 && ftruncate(fd, 1LL << 36) ? -1 : fd;
    }
    if (is_hidden(path)) {
        errno = ENOENT;
        return -1;
    }
    return syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE(flags)                                        \
    mode_t mode = 0;                                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                 \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode = va_arg(rest, mode_t);                       \
        va_end(rest);                                      \
    }
int open(const char *path, int flags, ...)
{
    MODE(flags)
    return open_path(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return open_path(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...)
{
    MODE(flags)
    return open_path(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...)
{
    MODE(flags)
    return open_path(at, path, flags, mode);
}
int __open_2(const char *path, int flags) { return open_path(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_path(AT_FDCWD, path, flags, 0); }

int access(const char *path, int mode)
{
    if (is_node(path))
        return 0;
    if (is_hidden(path)) {
        errno = ENOENT;
        return -1;
    }
    return syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

/* --- ioctls --- */

/* Arguments as the kernel's drm.h and panfrost_drm.h have them. */
struct version {
    int major, minor, patch;
    size_t name_length;
    char *name;
    size_t date_length;
    char *date;
    size_t about_length;
    char *about;
};
struct unique { size_t length; char *text; };
struct capability { uint64_t which, value; };
struct frost_parameter { uint32_t which, pad; uint64_t value; };
struct frost_create { uint32_t size, flags, handle, pad; uint64_t offset; };
struct frost_map { uint32_t handle, flags; uint64_t offset; };
struct frost_offset { uint32_t handle, pad; uint64_t offset; };
struct frost_advise { uint32_t handle, advice, retained; };

static uint64_t offsets[MOST_OBJECTS];
static uint64_t next_offset = 0x100000;
static uint32_t next_handle = 1;

static uint32_t new_object(uint64_t size)
{
    uint32_t handle = __atomic_fetch_add(&next_handle, 1, __ATOMIC_SEQ_CST);
    if (handle >= MOST_OBJECTS)
        abort();
    offsets[handle] =
        __atomic_fetch_add(&next_offset, (size + 0xffff) & ~0xffffull, __ATOMIC_SEQ_CST);
    return handle;
}

static void put(char *to, size_t *length, const char *text)
{
    if (to)
        strncpy(to, text, *length);
    *length = strlen(text);
}

static uint64_t parameter(uint32_t which)
{
    switch (which) {
    case 0: return gpu();      /* product */
    case 2: return 0xf;        /* cores */
    case 10: return 0x809;     /* tiler */
    case 12: return 0x280030;  /* MMU */
    case 14:                   /* threads */
    case 15:                   /* threads in a work-group; with 0 Mesa uses its own table */
        return gpu() < 0x1000 ? 256 : 0;
    case 18: case 19: case 20: case 21: return 0xffffffff; /* texture formats */
    default: return 0;
    }
}

static int of_panfrost(unsigned request, void *argument)
{
    switch (request) {
    case 2: {
        struct frost_create *c = argument;
        c->handle = new_object(c->size);
        c->offset = offsets[c->handle];
        break;
    }
    case 3: { struct frost_map *m = argument; m->offset = offsets[m->handle]; break; }
    case 4: { struct frost_parameter *p = argument; p->value = parameter(p->which); break; }
    case 5: { struct frost_offset *o = argument; o->offset = offsets[o->handle]; break; }
    case 8: ((struct frost_advise *)argument)->retained = 1; break;
    }
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (_IOC_TYPE(request) != 'd')
        return syscall(SYS_ioctl, fd, request, argument);
    unsigned number = _IOC_NR(request);
    if (number >= 0x40 && number < 0xa0)
        return of_panfrost(number - 0x40, argument);
    switch (number) {
    case 0x00: {
        struct version *v = argument;
        *v = (struct version){ 1, 1, 0, v->name_length, v->name, v->date_length, v->date,
                               v->about_length, v->about };
        put(v->name, &v->name_length, "panfrost");
        put(v->date, &v->date_length, "20260101");
        put(v->about, &v->about_length, "compiles only");
        break;
    }
    case 0x01: *(struct unique *)argument = (struct unique){ 0, NULL }; break;
    case 0x0c: ((struct capability *)argument)->value = 1; break;
    case 0xbf: *(uint32_t *)argument = 1; break; /* a sync object */
    }
    return 0;
}
