/* Builds OpenCL programs for the first device and creates their kernels, so that Mesa prints its
 * code.
 *
 * usage: compile < JOBS, a job per line: NAME<tab>FILE<tab>OPTIONS. Prints "@begin NAME" before and
 * "@end NAME" after a job that went well, else "@fail NAME" and the build log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of OpenCL that is used; no headers are needed. */
typedef struct object *object;
#define CL_DEVICE_TYPE_ALL 0xffffffff
#define CL_PROGRAM_BUILD_LOG 0x1183
int clGetPlatformIDs(unsigned, object *, unsigned *);
int clGetDeviceIDs(object, unsigned long, unsigned, object *, unsigned *);
object clCreateContext(const long *, unsigned, const object *, void *, void *, int *);
object clCreateProgramWithSource(object, unsigned, const char **, const size_t *, int *);
int clBuildProgram(object, unsigned, const object *, const char *, void *, void *);
int clGetProgramBuildInfo(object, object, unsigned, size_t, void *, size_t *);
int clCreateKernelsInProgram(object, unsigned, object *, unsigned *);

static char source[1 << 20], build_log[1 << 16], line[1 << 12];

static int job(object context, object device, const char *file, const char *options)
{
    const char *text = source;
    object kernels[8];
    unsigned count = 0;
    int error;
    FILE *f = fopen(file, "r");
    if (!f) {
        perror(file);
        return 1;
    }
    source[fread(source, 1, sizeof source - 1, f)] = 0;
    fclose(f);
    object program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    if (error || clBuildProgram(program, 1, &device, options, NULL, NULL)) {
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof build_log, build_log,
                              NULL);
        puts(build_log);
        return 1;
    }
    return clCreateKernelsInProgram(program, 8, kernels, &count) || count != 1;
}

int main(void)
{
    object platform, device;
    unsigned platforms = 0, devices = 0;
    int error;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (clGetPlatformIDs(1, &platform, &platforms) ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &devices)) {
        fputs("no Mali device\n", stderr);
        return 1;
    }
    object context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (error)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        char *name = strtok(line, "\t\n"), *file = strtok(NULL, "\t\n");
        char *options = strtok(NULL, "\t\n");
        printf("@begin %s\n", name);
        int bad = job(context, device, file, options ? options : "");
        fflush(stderr);
        printf("@%s %s\n", bad ? "fail" : "end", name);
    }
    return 0;
}
