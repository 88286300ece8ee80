/* An OpenCL library for tests. It passes every call on to a real library, and counts, logs and
 * fails calls. N counts the calls of a function from 1, and 0 means every call. QUEUE counts the
 * created queues from 0, which is the order of the devices in a list. FROM counts the launches of a
 * queue from 1.
 *
 *   MORTONNET_SHIM_REAL  the real library: a path, or a name that the dynamic loader finds
 *   MORTONNET_SHIM_LOG   a file that gets the name of each call, one per line, in their order
 *   MORTONNET_SHIM_FAIL  NAME:N:CODE[,...]: call N of NAME does nothing and returns CODE:
 *                          negative     an error; a call that returns a handle or map gives NULL
 *                          positive     the process dies of this signal
 *                          -9999        success; a call that returns a handle or map gives NULL
 *                          -9998        the call hangs
 *                          -10000 - MS  the call waits MS milliseconds and then does its work
 *   MORTONNET_SHIM_SIZE  NAME:N: NAME (clGet...Info or clGet...IDs) reports N as each size
 *   MORTONNET_SHIM_BINARY  N: the reported size of a program's binary
 *   MORTONNET_SHIM_LARGEST  BYTES: larger buffers are refused, as with too little memory
 *   MORTONNET_SHIM_SLEEP NAME:MS: calls of NAME take MS milliseconds longer
 *   MORTONNET_SHIM_DISCRETE  set: devices report memory of their own
 *   MORTONNET_SHIM_SLOW  QUEUE:FACTOR:US:FROM[,...]: from launch FROM on, launches and flushes of a
 *                        queue take FACTOR times as long, and launches US microseconds more
 *   MORTONNET_SHIM_DIE   QUEUE:FROM:CODE[,...]: from launch FROM on, all launches fail with CODE
 *   MORTONNET_SHIM_IDLE  QUEUE:FROM[:EVERY]: from launch FROM on, every EVERY-th launch (default:
 *                        each) succeeds and does nothing
 *   MORTONNET_SHIM_EVENT  QUEUE:N:CODE: launch N of a queue does nothing, and its event ends with
 *                        the negative CODE. The launch, the wait and later commands succeed
 *   MORTONNET_SHIM_SKIP  N: launches of N work-items in dimension 0 succeed and do nothing
 *   MORTONNET_SHIM_WORK_GROUP  a lower limit of work-items in a work-group, for each kernel
 *   MORTONNET_SHIM_DRIVER  the answer for CL_DRIVER_VERSION
 *   MORTONNET_SHIM_NAME    the answer for CL_DEVICE_NAME and CL_DEVICE_VENDOR
 *   MORTONNET_SHIM_ANSWER  DEVICE:QUERY=ANSWER[;...]: the answers of clGetDeviceInfo. DEVICE counts
 *                        devices from 0 in the order of clGetDeviceIDs, and * is every device.
 *                        QUERY is hexadecimal. An answer of digits is a number, else a text
 *   MORTONNET_SHIM_SHY     set: clGetPlatformIDs without room for an ID does not write the count,
 *                        as in VC4CL
 *
 * The macros SHIM_REAL, SHIM_LOG and SHIM_FAIL (string literals) are the defaults of the first
 * three, for tests that cannot change the environment. With SHIM_ONLY_1_1 it is a library of OpenCL
 * 1.1. It exports nothing newer, and its platforms and devices report 1.1. It compiles kernels as
 * OpenCL C 1.1, and refuses flags and queries of OpenCL 1.2.
 *
 *   cc -shared -fPIC -O1 -Wall -Werror [-DSHIM_ONLY_1_1] -o libshim.so opencl_shim.c -ldl -lpthread
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

enum {
	NO_MEMORY = -4, NOTHING = -9999, HANGS = -9998, INVALID_VALUE = -30, INVALID_BUILD_OPTIONS = -43, INVALID_WORK_GROUP_SIZE = -54, INVALID_OPERATION = -59,
	PLATFORM_NOT_FOUND = -1001
};

static H real;
static int log_file = -1;
static const char *failures, *sleeps, *sizes, *binary;

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
	sleeps = setting("MORTONNET_SHIM_SLEEP", NULL);
	sizes = setting("MORTONNET_SHIM_SIZE", NULL);
	binary = setting("MORTONNET_SHIM_BINARY", NULL);
	if (log)
		log_file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (path)
		real = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!real)
		fprintf(stderr, "opencl_shim: %s\n", path ? dlerror() : "MORTONNET_SHIM_REAL is not set");
}

/* Hangs or waits if the code says so. Returns the code, or 0 if the call shall do its work. */
static I back(I code)
{
	while (code == HANGS)
		pause();
	if (code > -10000)
		return code;
	usleep(1000 * (-10000 - code));
	return 0;
}

/* Logs the call. Returns the code that it shall fail with, or 0 and the real function. */
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
	if (sleeps && !strncmp(sleeps, name, length) && sleeps[length] == ':')
		usleep(atoi(sleeps + length + 1) * 1000);
	for (at = failures; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		unsigned which;
		int code;
		if (!strncmp(at, name, length) && sscanf(at + length, ":%u:%d", &which, &code) == 2
		    && (which == 0 || which == call)) {
			if (code > 0) {
				signal(code, SIG_DFL);
				raise(code);
			}
			if ((code = back(code)))
				return code;
		}
	}
	if (!real)
		return PLATFORM_NOT_FOUND;
	*function = dlsym(real, name);
	return *function ? 0 : INVALID_OPERATION;
}

/* Returns the size that NAME shall report. */
static Z size_of(const char *name, Z size)
{
	Z length = strlen(name);
	if (sizes && !strncmp(sizes, name, length) && sizes[length] == ':')
		size = strtoull(sizes + length + 1, NULL, 10);
	return size;
}

#define ENTER(name) \
	static unsigned count; \
	H function = NULL; \
	I code = enter(#name, &count, &function)

/* True for flags and queries that a library of OpenCL 1.1 refuses. */
#ifdef SHIM_ONLY_1_1
#define UNKNOWN_IN_1_1(newer) (newer)
#else
#define UNKNOWN_IN_1_1(newer) 0
#endif
#define NEW_MEMORY (flags & ~(B)63) /* flags above CL_MEM_COPY_HOST_PTR */

/* Calls that return a code. */
#define CODE(name, parameters, arguments) CODE_UNLESS(name, 0, parameters, arguments)
#define CODE_UNLESS(name, newer, parameters, arguments) \
	I name parameters \
	{ \
		ENTER(name); \
		if (!code && UNKNOWN_IN_1_1(newer)) \
			code = INVALID_VALUE; \
		if (code) \
			return code == NOTHING ? 0 : code; \
		return ((I (*) parameters)function)arguments; \
	}

/* Calls that return a handle or pointer and store their code in `err`. */
#define HANDLE(name, parameters, arguments) HANDLE_UNLESS(name, 0, parameters, arguments)
#define HANDLE_UNLESS(name, newer, parameters, arguments) \
	H name parameters \
	{ \
		ENTER(name); \
		if (!code && UNKNOWN_IN_1_1(newer)) \
			code = INVALID_VALUE; \
		if (!code) \
			return ((H (*) parameters)function)arguments; \
		if (err) \
			*err = code == NOTHING ? 0 : code; \
		return NULL; \
	}

#define INFO(name, object) INFO_UNLESS(name, 0, object)
#define INFO_UNLESS(name, newer, object) \
	I name(object, U what, Z size, H value, Z *needed) \
	{ \
		ENTER(name); \
		if (!code && UNKNOWN_IN_1_1(newer)) \
			code = INVALID_VALUE; \
		if (code) \
			return code == NOTHING ? 0 : code; \
		code = ((I (*)(H, U, Z, H, Z *))function)(o, what, size, value, needed); \
		if (needed) \
			*needed = size_of(#name, *needed); \
		if (binary && value && what == 0x1165) /* CL_PROGRAM_BINARY_SIZES */ \
			*(Z *)value = strtoull(binary, NULL, 10); \
		return code; \
	}
#define RELEASE(name) CODE(name, (H o), (o))
#define EVENTS U n, const H *wait, H *event
#define PASS_EVENTS n, wait, event

I clGetPlatformIDs(U n, H *ids, U *found)
{
	ENTER(clGetPlatformIDs);
	if (!code && !n && getenv("MORTONNET_SHIM_SHY"))
		return 0;
	if (!code)
		code = ((I (*)(U, H *, U *))function)(n, ids, found);
	if (found)
		*found = size_of("clGetPlatformIDs", *found);
	return code;
}

enum { MOST_DEVICES = 64 };
static H devices[MOST_DEVICES];
static unsigned device_count;

I clGetDeviceIDs(H o, B type, U n, H *ids, U *found)
{
	ENTER(clGetDeviceIDs);
	if (!code)
		code = ((I (*)(H, B, U, H *, U *))function)(o, type, n, ids, found);
	if (found)
		*found = size_of("clGetDeviceIDs", *found);
	for (U i = 0; !code && ids && i < n && device_count < MOST_DEVICES; ++i)
		devices[device_count++] = ids[i];
	return code;
}

/* Returns the text and length of the MORTONNET_SHIM_ANSWER to a query, or NULL without one. */
static const char *answer(H device, U what, Z *length)
{
	const char *at = getenv("MORTONNET_SHIM_ANSWER");
	for (; at && *at; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
		unsigned which = MOST_DEVICES, question;
		int start = 0;
		if (*at == '*' ? sscanf(at, "*:%x=%n", &question, &start) != 1 || !start
			       : sscanf(at, "%u:%x=%n", &which, &question, &start) != 2 || !start || which >= device_count)
			continue;
		if (question == what && (which == MOST_DEVICES || devices[which] == device)) {
			*length = strcspn(at + start, ";");
			return at + start;
		}
	}
	return NULL;
}

/* Writes the answer as the specification demands: a number of the expected size, or a text with
 * its zero byte. */
static I give(const char *text, Z length, Z size, H value, Z *needed)
{
	if (strspn(text, "0123456789") >= length) {
		B number = strtoull(text, NULL, 10);
		if (value)
			memcpy(value, &number, size < sizeof number ? size : sizeof number);
		return 0;
	}
	if (value && size <= length)
		return INVALID_VALUE;
	if (value) {
		memcpy(value, text, length);
		((char *)value)[length] = 0;
	}
	if (needed)
		*needed = length + 1;
	return 0;
}

HANDLE(clCreateContext, (const intptr_t *props, U n, const H *devices, H notify, H user, I *err),
       (props, n, devices, notify, user, err))
RELEASE(clReleaseContext)
RELEASE(clReleaseCommandQueue)

H clCreateBuffer(H o, B flags, Z size, H host, I *err)
{
	const char *largest = getenv("MORTONNET_SHIM_LARGEST");
	ENTER(clCreateBuffer);
	if (!code && UNKNOWN_IN_1_1(NEW_MEMORY))
		code = INVALID_VALUE;
	if (!code && largest && size > strtoull(largest, NULL, 10))
		code = NO_MEMORY;
	if (!code)
		return ((H (*)(H, B, Z, H, I *))function)(o, flags, size, host, err);
	if (err)
		*err = code == NOTHING ? 0 : code;
	return NULL;
}
HANDLE_UNLESS(clCreateSubBuffer, NEW_MEMORY, (H o, B flags, U type, const void *info, I *err),
	      (o, flags, type, info, err))
HANDLE_UNLESS(clCreateImage2D, NEW_MEMORY,
	      (H o, B flags, const void *format, Z width, Z height, Z pitch, H host, I *err),
	      (o, flags, format, width, height, pitch, host, err))
RELEASE(clReleaseMemObject)

HANDLE(clCreateProgramWithSource, (H o, U n, const char **text, const Z *lengths, I *err),
       (o, n, text, lengths, err))
HANDLE(clCreateProgramWithBinary,
       (H o, U n, const H *devices, const Z *lengths, const unsigned char **bytes, I *status, I *err),
       (o, n, devices, lengths, bytes, status, err))
I clBuildProgram(H o, U n, const H *devices, const char *options, H notify, H user)
{
	char text[4096];
	const char *standard = options ? strstr(options, "-cl-std=") : NULL;
	ENTER(clBuildProgram);
	if (!code && UNKNOWN_IN_1_1(1)) {
		if ((standard && strncmp(standard, "-cl-std=CL1.1", 13))
		    || (options && strstr(options, "-cl-kernel-arg-info")))
			return INVALID_BUILD_OPTIONS;
		snprintf(text, sizeof text, "%s%s", standard ? "" : "-cl-std=CL1.1 ", options ? options : "");
		options = text;
	}
	return code ? code : ((I (*)(H, U, const H *, const char *, H, H))function)(o, n, devices, options, notify, user);
}
CODE_UNLESS(clGetProgramBuildInfo, what > 0x1183 /* CL_PROGRAM_BUILD_LOG */,
	    (H o, H device, U what, Z size, H value, Z *needed), (o, device, what, size, value, needed))
INFO_UNLESS(clGetProgramInfo, what > 0x1166 /* CL_PROGRAM_BINARIES */, H o)
RELEASE(clReleaseProgram)

HANDLE(clCreateKernel, (H o, const char *name, I *err), (o, name, err))
CODE(clSetKernelArg, (H o, U index, Z size, const void *value), (o, index, size, value))
INFO_UNLESS(clGetKernelInfo, what > 0x1194 /* CL_KERNEL_PROGRAM */, H o)
static Z most_items(void)
{
	const char *most = setting("MORTONNET_SHIM_WORK_GROUP", NULL);
	return most ? (Z)atoi(most) : SIZE_MAX;
}

I clGetKernelWorkGroupInfo(H o, H device, U what, Z size, H value, Z *needed)
{
	ENTER(clGetKernelWorkGroupInfo);
	if (!code && UNKNOWN_IN_1_1(what > 0x11B4) /* CL_KERNEL_PRIVATE_MEM_SIZE */)
		code = INVALID_VALUE;
	if (!code)
		code = ((I (*)(H, H, U, Z, H, Z *))function)(o, device, what, size, value, needed);
	if (!code && value && what == 0x11B0 /* CL_KERNEL_WORK_GROUP_SIZE */ && *(Z *)value > most_items())
		*(Z *)value = most_items();
	return code;
}
RELEASE(clReleaseKernel)

CODE(clEnqueueUnmapMemObject, (H o, H mem, H pointer, EVENTS), (o, mem, pointer, PASS_EVENTS))
CODE(clEnqueueReadBuffer, (H o, H mem, U block, Z offset, Z size, H data, EVENTS),
     (o, mem, block, offset, size, data, PASS_EVENTS))
CODE(clEnqueueWriteBuffer, (H o, H mem, U block, Z offset, Z size, const void *data, EVENTS),
     (o, mem, block, offset, size, data, PASS_EVENTS))
CODE(clEnqueueCopyBuffer, (H o, H from, H to, Z from_offset, Z to_offset, Z size, EVENTS),
     (o, from, to, from_offset, to_offset, size, PASS_EVENTS))
CODE(clFinish, (H o), (o))

CODE(clWaitForEvents, (U n, const H *events), (n, events))
INFO(clGetEventProfilingInfo, H o)

/* Events of launches that MORTONNET_SHIM_EVENT lets fail. */

enum { MOST_FAILED = 256 };
static struct { H event; I code; } failed[MOST_FAILED];
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;

/* Stores the code that an event ends with, or removes it if the code is 0. Returns the old one. */
static I ends_with(H event, const I *code)
{
	I before = 0;
	pthread_mutex_lock(&failing);
	unsigned i = 0;
	while (i < MOST_FAILED && failed[i].event != event)
		++i;
	if (i < MOST_FAILED)
		before = failed[i].code;
	if (code && *code && i == MOST_FAILED)
		for (i = 0; i < MOST_FAILED && failed[i].event; ++i)
			;
	if (code && i < MOST_FAILED) {
		failed[i].event = *code ? event : NULL;
		failed[i].code = *code;
	}
	pthread_mutex_unlock(&failing);
	return before;
}

I clGetEventInfo(H o, U what, Z size, H value, Z *needed)
{
	ENTER(clGetEventInfo);
	if (code)
		return code == NOTHING ? 0 : code;
	code = ((I (*)(H, U, Z, H, Z *))function)(o, what, size, value, needed);
	I end = ends_with(o, NULL);
	if (!code && value && end && what == 0x11D3 /* CL_EVENT_COMMAND_EXECUTION_STATUS */)
		*(I *)value = end;
	if (needed)
		*needed = size_of("clGetEventInfo", *needed);
	return code;
}

I clReleaseEvent(H o)
{
	ENTER(clReleaseEvent);
	const I forget = 0;
	if (code)
		return code == NOTHING ? 0 : code;
	ends_with(o, &forget);
	return ((I (*)(H))function)(o);
}

/* Slow and failing queues. */

enum { MOST_QUEUES = 64 };
static H queues[MOST_QUEUES];
static unsigned launches[MOST_QUEUES], queue_count;

/* Returns the index of the last queue that was created with this handle. */
static unsigned which_queue(H o)
{
	unsigned i = __atomic_load_n(&queue_count, __ATOMIC_ACQUIRE);
	while (i-- > 0)
		if (queues[i] == o)
			return i;
	return MOST_QUEUES;
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Sleeps for the additional time that a slow queue would need since `start`. */
static void slow_down(unsigned queue, double start, int launch)
{
	const char *at = getenv("MORTONNET_SHIM_SLOW");
	unsigned which, from;
	double factor, us;
	for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		if (sscanf(at, "%u:%lf:%lf:%u", &which, &factor, &us, &from) != 4 || which != queue
		    || launches[queue] < from)
			continue;
		double all = (factor - 1) * (now_us() - start) + (launch ? us : 0);
		struct timespec t = { (time_t)(all / 1e6), (long)((all - (time_t)(all / 1e6) * 1e6) * 1e3) };
		nanosleep(&t, NULL);
	}
}

H clCreateCommandQueue(H o, H device, B props, I *err)
{
	ENTER(clCreateCommandQueue);
	if (!code && UNKNOWN_IN_1_1(props & ~(B)3))
		code = INVALID_VALUE;
	if (!code) {
		H made = ((H (*)(H, H, B, I *))function)(o, device, props, err);
		unsigned i = __atomic_load_n(&queue_count, __ATOMIC_ACQUIRE);
		if (made && i < MOST_QUEUES) {
			queues[i] = made;
			__atomic_store_n(&queue_count, i + 1, __ATOMIC_RELEASE);
		}
		return made;
	}
	if (err)
		*err = code == NOTHING ? 0 : code;
	return NULL;
}

I clEnqueueNDRangeKernel(H o, H kernel, U dims, const Z *offset, const Z *global, const Z *local, EVENTS)
{
	ENTER(clEnqueueNDRangeKernel);
	unsigned queue = which_queue(o), which, from;
	const char *at = getenv("MORTONNET_SHIM_DIE");
	double start = now_us();
	int with;
	Z items = 1;
	for (U i = 0; local && i < dims; ++i)
		items *= local[i];
	if (!code && items > most_items())
		code = INVALID_WORK_GROUP_SIZE;
	if (code || queue == MOST_QUEUES)
		return code ? code : INVALID_OPERATION;
	launches[queue]++;
	for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (sscanf(at, "%u:%u:%d", &which, &from, &with) == 3 && which == queue && launches[queue] >= from
		    && (with = back(with)))
			return with;
	at = getenv("MORTONNET_SHIM_EVENT");
	if (at && sscanf(at, "%u:%u:%d", &which, &from, &with) == 3 && which == queue
	    && (!from || launches[queue] == from)) {
		code = event ? ((I (*)(H, H *))dlsym(real, "clEnqueueMarker"))(o, event) : 0;
		if (!code && event)
			ends_with(*event, &with);
		return code;
	}
	at = getenv("MORTONNET_SHIM_IDLE");
	const char *skip = getenv("MORTONNET_SHIM_SKIP");
	unsigned every = 1;
	if ((at && sscanf(at, "%u:%u:%u", &which, &from, &every) >= 2 && which == queue && launches[queue] >= from
	     && (launches[queue] - from) % every == 0)
	    || (skip && strtoull(skip, NULL, 10) == global[0]))
		return event ? ((I (*)(H, H *))dlsym(real, "clEnqueueMarker"))(o, event) : 0;
	code = ((I (*)(H, H, U, const Z *, const Z *, const Z *, EVENTS))function)(o, kernel, dims, offset, global,
										   local, PASS_EVENTS);
	slow_down(queue, start, 1);
	return code;
}

I clFlush(H o)
{
	ENTER(clFlush);
	unsigned queue = which_queue(o);
	double start = now_us();
	if (!code)
		code = ((I (*)(H))function)(o);
	if (queue < MOST_QUEUES)
		slow_down(queue, start, 0);
	return code;
}

#define MAP_BUFFER (H o, H mem, U block, B flags, Z offset, Z size, EVENTS, I *err)
#define MAP_IMAGE (H o, H mem, U block, B flags, const Z *origin, const Z *region, Z *row, Z *slice, EVENTS, I *err)
#define MAP_BUFFER_ARGUMENTS (o, mem, block, flags, offset, size, PASS_EVENTS, err)
#define MAP_IMAGE_ARGUMENTS (o, mem, block, flags, origin, region, row, slice, PASS_EVENTS, err)

static const char *driver(U what)
{
	switch (what) {
	case 0x102D: /* CL_DRIVER_VERSION */
		return setting("MORTONNET_SHIM_DRIVER", NULL);
	case 0x102B: /* CL_DEVICE_NAME */
	case 0x102C: /* CL_DEVICE_VENDOR */
		return setting("MORTONNET_SHIM_NAME", NULL);
	}
	return NULL;
}

/* Calls the real function, except for queries with an answer of the shim. */
#define ANSWERED(name, newer, otherwise) \
	I name(H o, U what, Z size, H value, Z *needed) \
	{ \
		ENTER(name); \
		Z length = 0; \
		const char *own, *text = otherwise; \
		Z bytes = text ? strlen(text) + 1 : 0; \
		if (!code && UNKNOWN_IN_1_1(newer)) \
			code = INVALID_VALUE; \
		if (!code && (own = answer(o, what, &length))) \
			return give(own, length, size, value, needed); \
		if (!code && !text) \
			code = ((I (*)(H, U, Z, H, Z *))function)(o, what, size, value, needed); \
		else if (!code && value && size < bytes) \
			code = INVALID_VALUE; \
		if (code) \
			return code; \
		if (text && value) \
			memcpy(value, text, bytes); \
		if (text && needed) \
			*needed = bytes; \
		if (value && what == 0x1035 /* CL_DEVICE_HOST_UNIFIED_MEMORY */ && getenv("MORTONNET_SHIM_DISCRETE")) \
			*(U *)value = 0; \
		if (needed) \
			*needed = size_of(#name, *needed); \
		return 0; \
	}

#ifndef SHIM_ONLY_1_1

INFO(clGetPlatformInfo, H o)
ANSWERED(clGetDeviceInfo, 0, driver(what))
HANDLE(clEnqueueMapBuffer, MAP_BUFFER, MAP_BUFFER_ARGUMENTS)
HANDLE(clEnqueueMapImage, MAP_IMAGE, MAP_IMAGE_ARGUMENTS)
HANDLE(clCreateImage, (H o, B flags, const void *format, const void *shape, H host, I *err),
       (o, flags, format, shape, host, err))
CODE(clEnqueueFillBuffer, (H o, H mem, const void *pattern, Z bytes, Z offset, Z size, EVENTS),
     (o, mem, pattern, bytes, offset, size, PASS_EVENTS))
CODE(clCreateSubDevices, (H o, const intptr_t *props, U n, H *devices, U *found), (o, props, n, devices, found))
RELEASE(clReleaseDevice)

#else

ANSWERED(clGetPlatformInfo, what > 0x0904 /* CL_PLATFORM_EXTENSIONS */,
	 what == 0x0901 /* CL_PLATFORM_VERSION */ ? "OpenCL 1.1 shim" : NULL)
ANSWERED(clGetDeviceInfo, what > 0x103D /* CL_DEVICE_OPENCL_C_VERSION */,
	 what == 0x102F /* CL_DEVICE_VERSION */ ? "OpenCL 1.1 shim"
	 : what == 0x103D ? "OpenCL C 1.1 shim" : driver(what))
HANDLE_UNLESS(clEnqueueMapBuffer, flags & ~(B)3, MAP_BUFFER, MAP_BUFFER_ARGUMENTS)
HANDLE_UNLESS(clEnqueueMapImage, flags & ~(B)3, MAP_IMAGE, MAP_IMAGE_ARGUMENTS)

#endif
