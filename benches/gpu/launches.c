// Measures a launch and its wait on a GPU, by the way to wait and the number of buffers. Also
// measures how fast one work-group reads memory, and the gap between launches that wait for each
// other.
//
//     cc -O2 -o launches benches/gpu/launches.c -ldl && ./launches [part of a device's name]
//
// Times are the host's around the calls in microseconds, the median of 800 after 100 that do not
// count, in three turns. A kernel alone has the device's time. MORTONNET_OPENCL names the library.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFERS = 12, ITEMS = 1024, TIMED = 800, UNTIMED = 100, TURNS = 3, BYTES = 1 << 24 };

// The part of the API that is used here, without its headers.
typedef void *handle;
typedef const void *list;
#define FUNCTIONS(F) \
    F(clGetPlatformIDs, uint32_t, handle *, uint32_t *) \
    F(clGetDeviceIDs, handle, uint64_t, uint32_t, handle *, uint32_t *) \
    F(clGetDeviceInfo, handle, uint32_t, size_t, void *, size_t *) \
    F(clBuildProgram, handle, uint32_t, const handle *, const char *, void *, void *) \
    F(clSetKernelArg, handle, uint32_t, size_t, const void *) \
    F(clEnqueueNDRangeKernel, handle, handle, uint32_t, list, const size_t *, const size_t *, \
      uint32_t, list, handle *) \
    F(clEnqueueReadBuffer, handle, handle, uint32_t, size_t, size_t, void *, uint32_t, list, \
      handle *) \
    F(clEnqueueBarrierWithWaitList, handle, uint32_t, list, handle *) \
    F(clGetEventProfilingInfo, handle, uint32_t, size_t, void *, size_t *) \
    F(clWaitForEvents, uint32_t, const handle *) \
    F(clReleaseEvent, handle) \
    F(clFinish, handle)
#define MAKERS(F) \
    F(clCreateContext, list, uint32_t, const handle *, void *, void *, int32_t *) \
    F(clCreateCommandQueue, handle, handle, uint64_t, int32_t *) \
    F(clCreateBuffer, handle, uint64_t, size_t, void *, int32_t *) \
    F(clCreateProgramWithSource, handle, uint32_t, const char **, list, int32_t *) \
    F(clCreateKernel, handle, const char *, int32_t *)
#define DECLARE(name, ...) static int32_t (*name)(__VA_ARGS__);
#define DECLARE_MAKER(name, ...) static handle (*name)(__VA_ARGS__);
FUNCTIONS(DECLARE)
MAKERS(DECLARE_MAKER)

static handle device, context, queue, profiled, unordered;
static handle buffers[BUFFERS], of_buffers[BUFFERS + 1];

static void check(int32_t code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "launches: %s: OpenCL error %d\n", what, code);
        exit(1);
    }
}

static handle kernel(const char *source, const char *options, int count)
{
    int32_t code;
    handle program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, options, NULL, NULL), "clBuildProgram");
    handle made = clCreateKernel(program, "probe", &code);
    check(code, "clCreateKernel");
    for (int i = 0; i < count; ++i)
        check(clSetKernelArg(made, i, sizeof buffers[i], &buffers[i]), "clSetKernelArg");
    return made;
}

static void launch(handle to, handle what, handle *event)
{
    const size_t items = ITEMS;
    check(clEnqueueNDRangeKernel(to, what, 1, NULL, &items, &items, 0, NULL, event),
          "clEnqueueNDRangeKernel");
}

static void finish(handle what)
{
    launch(queue, what, NULL);
    check(clFinish(queue), "clFinish");
}

static void of_event(handle to, handle what)
{
    handle event;
    launch(to, what, &event);
    check(clWaitForEvents(1, &event), "clWaitForEvents");
    clReleaseEvent(event);
}

static void wait_event(handle what) { of_event(queue, what); }
static void wait_profiled(handle what) { of_event(profiled, what); }

static void read_back(handle what)
{
    float value;
    launch(queue, what, NULL);
    check(clEnqueueReadBuffer(queue, buffers[0], 1, 0, sizeof value, &value, 0, NULL, NULL),
          "clEnqueueReadBuffer");
}

static void nothing(handle what)
{
    (void)what;
    check(clFinish(queue), "clFinish");
}

// How many launches, of which each waits for the one before.
static int chain = 2;

static void in_order(handle what)
{
    for (int i = 0; i < chain; ++i)
        launch(queue, what, NULL);
    nothing(what);
}

static void by_barriers(handle what)
{
    for (int i = 0; i < chain; ++i) {
        if (i > 0)
            check(clEnqueueBarrierWithWaitList(unordered, 0, NULL, NULL),
                  "clEnqueueBarrierWithWaitList");
        launch(unordered, what, NULL);
    }
    check(clFinish(unordered), "clFinish");
}

static void by_events(handle what)
{
    const size_t items = ITEMS;
    handle before = NULL, event;
    for (int i = 0; i < chain; ++i) {
        check(clEnqueueNDRangeKernel(unordered, what, 1, NULL, &items, &items, i > 0,
                                     i > 0 ? &before : NULL, &event),
              "clEnqueueNDRangeKernel");
        if (i > 0)
            clReleaseEvent(before);
        before = event;
    }
    check(clFinish(unordered), "clFinish");
    clReleaseEvent(before);
}

static void without_waits(handle what)
{
    for (int i = 0; i < chain; ++i)
        launch(unordered, what, NULL);
    check(clFinish(unordered), "clFinish");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(void (*run)(handle), handle what)
{
    static double times[TIMED];
    for (int i = -UNTIMED; i < TIMED; ++i) {
        const double start = now();
        run(what);
        if (i >= 0)
            times[i] = now() - start;
    }
    qsort(times, TIMED, sizeof *times, compare);
    return times[TIMED / 2];
}

static void find(const char *part)
{
    handle platforms[16], devices[16];
    uint32_t found = 0, count;
    char name[256];
    check(clGetPlatformIDs(16, platforms, &found), "clGetPlatformIDs");
    for (uint32_t p = 0; p < found; ++p) {
        if (clGetDeviceIDs(platforms[p], 0xFFFFFFFF, 16, devices, &count) != 0)
            continue;
        for (uint32_t d = 0; d < count; ++d) {
            check(clGetDeviceInfo(devices[d], 0x102B, sizeof name, name, NULL), "clGetDeviceInfo");
            if (device == NULL && strstr(name, part)) {
                device = devices[d];
                printf("%s\n", name);
            }
        }
    }
    if (device == NULL) {
        fprintf(stderr, "launches: no OpenCL device has \"%s\" in its name\n", part);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    const char *file = getenv("MORTONNET_OPENCL");
    void *library = dlopen(file ? file : "libOpenCL.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "launches: %s\n", dlerror());
        return 1;
    }
#define LOAD(name, ...) *(void **)&name = dlsym(library, #name);
    FUNCTIONS(LOAD)
    MAKERS(LOAD)
    find(count > 1 ? arguments[1] : "");

    int32_t code;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    profiled = clCreateCommandQueue(context, device, 2, &code);
    check(code, "clCreateCommandQueue with profiling");
    unordered = clCreateCommandQueue(context, device, 1, &code);
    check(code, "clCreateCommandQueue without order");
    for (int i = 0; i < BUFFERS; ++i) {
        buffers[i] = clCreateBuffer(context, 1, BYTES, NULL, &code);
        check(code, "clCreateBuffer");
    }
    for (int n = 1; n <= BUFFERS; ++n) {
        char source[1024] = "__attribute__((reqd_work_group_size(1024, 1, 1))) "
                            "kernel void probe(global float *b0";
        for (int i = 1; i < n; ++i)
            sprintf(source + strlen(source), ", global float *b%d", i);
        strcat(source, ") { if (get_global_id(0) == 0) b0[0] = 1");
        for (int i = 1; i < n; ++i)
            sprintf(source + strlen(source), " + b%d[0]", i);
        strcat(source, "; }");
        of_buffers[n] = kernel(source, "", n);
    }

    const struct { const char *name; void (*run)(handle); int buffers; } ways[] = {
        { "clFinish, 1 buffer", finish, 1 },
        { "clFinish, 2 buffers", finish, 2 },
        { "clFinish, 3 buffers", finish, 3 },
        { "clFinish, 5 buffers", finish, 5 },
        { "clFinish, 12 buffers", finish, 12 },
        { "clWaitForEvents, 5 buffers", wait_event, 5 },
        { "the same, queue with profiling", wait_profiled, 5 },
        { "blocking read of 4 bytes, 5 buffers", read_back, 5 },
        { "two launches, clFinish, 5 buffers", in_order, 5 },
        { "clFinish alone", nothing, 1 },
    };
    enum { WAYS = sizeof ways / sizeof *ways };
    double of_ways[WAYS][TURNS];
    for (int turn = 0; turn < TURNS; ++turn)
        for (int i = 0; i < WAYS; ++i)
            of_ways[i][turn] = median(ways[i].run, of_buffers[ways[i].buffers]);
    for (int i = 0; i < WAYS; ++i)
        printf("%-38s %6.2f %6.2f %6.2f\n", ways[i].name, of_ways[i][0], of_ways[i][1],
               of_ways[i][2]);

    // A load of all work-items reads 16 KB.
    static const int loads[] = { 0, 8, 16, 24, 32, 48, 64, 96, 128 };
    enum { SIZES = sizeof loads / sizeof *loads };
    static const int forms[] = { 8, 24 };
    handle readers[2][SIZES];
    double of_sizes[2][SIZES][TURNS];
    const char *source = "__attribute__((reqd_work_group_size(1024, 1, 1)))\n"
                         "kernel void probe(global const float4 *restrict a, global float *r)\n"
                         "{\n"
                         "    const uint id = get_local_id(0);\n"
                         "    float4 sum = 0;\n"
                         "#pragma unroll UNROLL\n"
                         "    for (uint k = 0; k < LOADS; ++k) sum += a[k * 1024 + id];\n"
                         "    r[id] = sum.x + sum.y + sum.z + sum.w;\n"
                         "}\n";
    for (int form = 0; form < 2; ++form)
        for (int i = 0; i < SIZES; ++i) {
            char options[64];
            sprintf(options, "-DLOADS=%d -DUNROLL=%d", loads[i], forms[form]);
            readers[form][i] = kernel(source, options, 2);
        }
    for (int turn = 0; turn < TURNS; ++turn)
        for (int form = 0; form < 2; ++form)
            for (int i = 0; i < SIZES; ++i)
                of_sizes[form][i][turn] = median(finish, readers[form][i]);
    for (int form = 0; form < 2; ++form)
        for (int i = 0; i < SIZES; ++i)
            printf("1 work-group, %4d KB, %2d loads at once   %6.2f %6.2f %6.2f\n", loads[i] * 16,
                   forms[form],
                   of_sizes[form][i][0], of_sizes[form][i][1], of_sizes[form][i][2]);

    // A kernel of some 20 us on a large GPU.
    const handle busy = kernel("__attribute__((reqd_work_group_size(1024, 1, 1)))\n"
                               "kernel void probe(global float *r, global const float *a)\n"
                               "{\n"
                               "    float x = r[get_local_id(0)];\n"
                               "    for (uint k = 0; k < 2000; ++k) x = fma(x, 0.5f, a[k & 1]);\n"
                               "    r[get_local_id(0)] = x;\n"
                               "}\n", "", 2);
    handle event;
    double alone[TIMED];
    for (int i = -UNTIMED; i < TIMED; ++i) {
        uint64_t start, end;
        launch(profiled, busy, &event);
        check(clWaitForEvents(1, &event), "clWaitForEvents");
        check(clGetEventProfilingInfo(event, 0x1282, sizeof start, &start, NULL),
              "clGetEventProfilingInfo");
        check(clGetEventProfilingInfo(event, 0x1283, sizeof end, &end, NULL),
              "clGetEventProfilingInfo");
        clReleaseEvent(event);
        if (i >= 0)
            alone[i] = (end - start) / 1e3;
    }
    qsort(alone, TIMED, sizeof *alone, compare);
    printf("a kernel by its events                 %6.2f\n", alone[TIMED / 2]);
    const struct { const char *name; void (*run)(handle); } chains[] = {
        { "in order", in_order }, { "barriers", by_barriers }, { "events", by_events },
        { "no waits", without_waits },
    };
    enum { CHAINS = sizeof chains / sizeof *chains, LONGEST = 6 };
    double of_chains[CHAINS][LONGEST][TURNS];
    for (int turn = 0; turn < TURNS; ++turn)
        for (int i = 0; i < CHAINS; ++i)
            for (chain = 1; chain <= LONGEST; ++chain)
                of_chains[i][chain - 1][turn] = median(chains[i].run, busy);
    for (int i = 0; i < CHAINS; ++i)
        for (chain = 1; chain <= LONGEST; ++chain)
            printf("%d of them, %-8s                     %6.2f %6.2f %6.2f\n", chain,
                   chains[i].name, of_chains[i][chain - 1][0], of_chains[i][chain - 1][1],
                   of_chains[i][chain - 1][2]);
    return 0;
}
