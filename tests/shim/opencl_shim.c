/* An OpenCL library for tests: passes every call on to a real one, and counts, logs and fails calls on the way.
 *
 *   MORTONNET_SHIM_REAL  the real library (absolute path, or a name that the dynamic loader finds)
 *   MORTONNET_SHIM_LOG   a file that gets the name of each call, one per line, in the order of the calls
 *   MORTONNET_SHIM_FAIL  NAME:N:CODE[,NAME:N:CODE...]: the Nth call of NAME (from 1; 0: every call) returns CODE
 *                        (negative) instead of doing anything; a clCreate... or map call gives NULL
 *   MORTONNET_SHIM_DISCRETE  set: devices say that their memory is not the host's
 *
 * The macros SHIM_REAL, SHIM_LOG and SHIM_FAIL (string literals) are their defaults, for tests that cannot change the
 * environment. With SHIM_ONLY_1_1 it is a library of OpenCL 1.1: it exports nothing newer, its platforms and devices
 * say 1.1, and it refuses CL_MAP_WRITE_INVALIDATE_REGION.
 *
 *   cc -shared -fPIC -O1 -Wall -Werror [-DSHIM_ONLY_1_1] -o libshim.so opencl_shim.c -ldl -lpthread
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SHIM_REAL
#define SHIM_REAL NULL
#endif
#ifndef SHIM_LOG
#define SHIM_LOG NULL
#endif
#ifndef SHIM_FAIL
#define SHIM_FAIL NULL
#endif

typedef int32_t I;
typedef uint32_t U;
typedef uint64_t B;
typedef size_t Z;
typedef void *H; /* any handle */

enum { INVALID_VALUE = -30, INVALID_OPERATION = -59, PLATFORM_NOT_FOUND = -1001 };

static H real;
static int log_file = -1;
static const char *failures;

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value && *value ? value : otherwise;
}

static void start(void)
{
	const char *path = setting("MORTONNET_SHIM_REAL", SHIM_REAL);
	const char *log = setting("MORTONNET_SHIM_LOG", SHIM_LOG);
	failures = setting("MORTONNET_SHIM_FAIL", SHIM_FAIL);
	if (log)
		log_file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (path)
		real = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!real)
		fprintf(stderr, "opencl_shim: %s\n", path ? dlerror() : "MORTONNET_SHIM_REAL is not set");
}

/* Logs the call; the code that it shall fail with, or 0 and the real function. */
static I enter(const char *name, unsigned *count, H *function)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned call = __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
	Z length = strlen(name);
	const char *at;

	pthread_once(&once, start);
	if (log_file >= 0) {
		char line[64];
		int bytes = snprintf(line, sizeof line, "%s\n", name);
		if (write(log_file, line, bytes) != bytes)
			abort();
	}
	for (at = failures; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		unsigned which;
		int code;
		if (!strncmp(at, name, length) && sscanf(at + length, ":%u:%d", &which, &code) == 2
		    && (which == 0 || which == call))
			return code;
	}
	if (!real)
		return PLATFORM_NOT_FOUND;
	*function = dlsym(real, name);
	return *function ? 0 : INVALID_OPERATION;
}

#define ENTER(name) \
	static unsigned count; \
	H function = NULL; \
	I code = enter(#name, &count, &function)

/* Calls that return a code. */
#define CODE(name, parameters, arguments) \
	I name parameters \
	{ \
		ENTER(name); \
		return code ? code : ((I (*) parameters)function)arguments; \
	}

/* Calls that return a handle or pointer and store their code in `err`. */
#define HANDLE(name, parameters, arguments) \
	H name parameters \
	{ \
		ENTER(name); \
		if (!code) \
			return ((H (*) parameters)function)arguments; \
		if (err) \
			*err = code; \
		return NULL; \
	}

#define INFO(name, object) \
	CODE(name, (object, U what, Z size, H value, Z *needed), (o, what, size, value, needed))
#define RELEASE(name) CODE(name, (H o), (o))
#define EVENTS U n, const H *wait, H *event
#define PASS_EVENTS n, wait, event

CODE(clGetPlatformIDs, (U n, H *ids, U *found), (n, ids, found))
CODE(clGetDeviceIDs, (H o, B type, U n, H *ids, U *found), (o, type, n, ids, found))

HANDLE(clCreateContext, (const intptr_t *props, U n, const H *devices, H notify, H user, I *err),
       (props, n, devices, notify, user, err))
RELEASE(clReleaseContext)
HANDLE(clCreateCommandQueue, (H o, H device, B props, I *err), (o, device, props, err))
RELEASE(clReleaseCommandQueue)

HANDLE(clCreateBuffer, (H o, B flags, Z size, H host, I *err), (o, flags, size, host, err))
HANDLE(clCreateSubBuffer, (H o, B flags, U type, const void *info, I *err), (o, flags, type, info, err))
HANDLE(clCreateImage2D, (H o, B flags, const void *format, Z width, Z height, Z pitch, H host, I *err),
       (o, flags, format, width, height, pitch, host, err))
RELEASE(clReleaseMemObject)

HANDLE(clCreateProgramWithSource, (H o, U n, const char **text, const Z *lengths, I *err),
       (o, n, text, lengths, err))
HANDLE(clCreateProgramWithBinary,
       (H o, U n, const H *devices, const Z *lengths, const unsigned char **bytes, I *status, I *err),
       (o, n, devices, lengths, bytes, status, err))
CODE(clBuildProgram, (H o, U n, const H *devices, const char *options, H notify, H user),
     (o, n, devices, options, notify, user))
CODE(clGetProgramBuildInfo, (H o, H device, U what, Z size, H value, Z *needed),
     (o, device, what, size, value, needed))
INFO(clGetProgramInfo, H o)
RELEASE(clReleaseProgram)

HANDLE(clCreateKernel, (H o, const char *name, I *err), (o, name, err))
CODE(clSetKernelArg, (H o, U index, Z size, const void *value), (o, index, size, value))
CODE(clGetKernelWorkGroupInfo, (H o, H device, U what, Z size, H value, Z *needed),
     (o, device, what, size, value, needed))
RELEASE(clReleaseKernel)

CODE(clEnqueueNDRangeKernel,
     (H o, H kernel, U dims, const Z *offset, const Z *global, const Z *local, EVENTS),
     (o, kernel, dims, offset, global, local, PASS_EVENTS))
CODE(clEnqueueUnmapMemObject, (H o, H mem, H pointer, EVENTS), (o, mem, pointer, PASS_EVENTS))
CODE(clEnqueueReadBuffer, (H o, H mem, U block, Z offset, Z size, H data, EVENTS),
     (o, mem, block, offset, size, data, PASS_EVENTS))
CODE(clEnqueueWriteBuffer, (H o, H mem, U block, Z offset, Z size, const void *data, EVENTS),
     (o, mem, block, offset, size, data, PASS_EVENTS))
CODE(clFlush, (H o), (o))
CODE(clFinish, (H o), (o))

CODE(clWaitForEvents, (U n, const H *events), (n, events))
INFO(clGetEventInfo, H o)
INFO(clGetEventProfilingInfo, H o)
RELEASE(clReleaseEvent)

#define MAP_BUFFER (H o, H mem, U block, B flags, Z offset, Z size, EVENTS, I *err)
#define MAP_IMAGE (H o, H mem, U block, B flags, const Z *origin, const Z *region, Z *row, Z *slice, EVENTS, I *err)
#define MAP_BUFFER_ARGUMENTS (o, mem, block, flags, offset, size, PASS_EVENTS, err)
#define MAP_IMAGE_ARGUMENTS (o, mem, block, flags, origin, region, row, slice, PASS_EVENTS, err)

#ifndef SHIM_ONLY_1_1

INFO(clGetPlatformInfo, H o)
I clGetDeviceInfo(H o, U what, Z size, H value, Z *needed)
{
	ENTER(clGetDeviceInfo);
	if (!code)
		code = ((I (*)(H, U, Z, H, Z *))function)(o, what, size, value, needed);
	if (!code && value && what == 0x1035 /* CL_DEVICE_HOST_UNIFIED_MEMORY */ && getenv("MORTONNET_SHIM_DISCRETE"))
		*(U *)value = 0;
	return code;
}
HANDLE(clEnqueueMapBuffer, MAP_BUFFER, MAP_BUFFER_ARGUMENTS)
HANDLE(clEnqueueMapImage, MAP_IMAGE, MAP_IMAGE_ARGUMENTS)
HANDLE(clCreateImage, (H o, B flags, const void *format, const void *shape, H host, I *err),
       (o, flags, format, shape, host, err))
CODE(clEnqueueFillBuffer, (H o, H mem, const void *pattern, Z bytes, Z offset, Z size, EVENTS),
     (o, mem, pattern, bytes, offset, size, PASS_EVENTS))
CODE(clCreateSubDevices, (H o, const intptr_t *props, U n, H *devices, U *found), (o, props, n, devices, found))
RELEASE(clReleaseDevice)

#else

/* The real call, except that one or two questions have an answer of our own. */
#define INFO_1_1(name, answer) \
	I name(H o, U what, Z size, H value, Z *needed) \
	{ \
		ENTER(name); \
		const char *text = answer; \
		Z bytes = text ? strlen(text) + 1 : 0; \
		if (code) \
			return code; \
		if (!text) \
			return ((I (*)(H, U, Z, H, Z *))function)(o, what, size, value, needed); \
		if (value && size < bytes) \
			return INVALID_VALUE; \
		if (value) \
			memcpy(value, text, bytes); \
		if (needed) \
			*needed = bytes; \
		return 0; \
	}

#define MAP_1_1(name, parameters, arguments) \
	H name parameters \
	{ \
		ENTER(name); \
		if (!code && !(flags & 4)) /* CL_MAP_WRITE_INVALIDATE_REGION */ \
			return ((H (*) parameters)function)arguments; \
		if (err) \
			*err = code ? code : INVALID_VALUE; \
		return NULL; \
	}

INFO_1_1(clGetPlatformInfo, what == 0x0901 /* CL_PLATFORM_VERSION */ ? "OpenCL 1.1 shim" : NULL)
INFO_1_1(clGetDeviceInfo, what == 0x102F /* CL_DEVICE_VERSION */ ? "OpenCL 1.1 shim"
			: what == 0x103D /* CL_DEVICE_OPENCL_C_VERSION */ ? "OpenCL C 1.1 shim" : NULL)
MAP_1_1(clEnqueueMapBuffer, MAP_BUFFER, MAP_BUFFER_ARGUMENTS)
MAP_1_1(clEnqueueMapImage, MAP_IMAGE, MAP_IMAGE_ARGUMENTS)

#endif
