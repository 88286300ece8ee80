// Runs kernels that use instructions of a warp on a CPU: a work-item is a coroutine, who goes on is
// drawn by a seed, and what the 32 of a warp exchange waits until all of them have come to the same
// instruction. A copy to local memory leaves NaN there until its work-item waits for it. What is
// against the rules ends the process with a sentence.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef signed char char4 __attribute__((ext_vector_type(4)));

enum { WARP = 32, MOST_ITEMS = 1024, STACK = 1 << 16, COPIES = 64, GROUPS = 8 };
enum What { NOTHING, ENDED, SOME, BARRIER, MULTIPLY_F16, ACROSS };

struct Copy {
    char *to;
    const char *from;
    uint32_t whole, bytes;
};

struct Item {
    ucontext_t context;
    // What it waits for with the others of its warp or group, and what it brought.
    enum What waits;
    void *site;
    uint32_t words[6];
    float *c;
    // Groups of copies under way, the oldest first; the last one is not committed.
    struct Copy copies[GROUPS][COPIES];
    uint32_t lengths[GROUPS], groups;
};

static struct Item items[MOST_ITEMS];
static char stacks[MOST_ITEMS][STACK] __attribute__((aligned(64)));
static uint32_t count, current, group[2], groups[2];
static ucontext_t scheduler;
static void (*entry)(const uint32_t *, void *const *);
static const uint32_t *sizes;
static void *const *pointers;
static uint64_t state;
static char *local_memory;
static uint32_t local_bytes;

static void wrong(const char *what)
{
    fprintf(stderr, "work-item %u of group (%u, %u): %s\n", current, group[0], group[1], what);
    exit(1);
}

static uint32_t drawn(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

// Lets others go on until all that take part have come here.
static struct Item *wait_for(enum What what, void *site)
{
    struct Item *item = &items[current];
    const uint32_t me = current;
    item->waits = what, item->site = site;
    swapcontext(&item->context, &scheduler);
    current = me;
    return item;
}

static void body(void)
{
    entry(sizes, pointers);
    for (uint32_t g = 0; g < items[current].groups; ++g)
        if (items[current].lengths[g])
            wrong("it ended, and a copy is under way");
    wait_for(ENDED, NULL);
}

static float as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// By hand: not every Clang knows halves here.
static float of_half(uint32_t bits)
{
    const uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, digits = bits & 0x3ff;
    if (exponent == 0)
        return (sign ? -0x1p-24f : 0x1p-24f) * (float)digits;
    return as_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | digits << 13);
}

// The nearest half, of two as near the even one.
static uint32_t to_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return sign | 0x7e00;
    if (size < 0x38800000)
        return sign | (uint32_t)__builtin_rintf(as_float(size) * 0x1p24f);
    const uint32_t half = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
    return sign | (size >= 0x7f800000 || half > 0x7c00 ? 0x7c00 : half);
}

// What a warp that has come together does. Fragments: see kernels/common/warp.cl.
static void together(struct Item *warp, enum What what)
{
    float a[16][16], b[16][8];
    switch (what) {
    case MULTIPLY_F16:
        for (uint32_t n = 0; n < WARP; ++n)
            for (uint32_t i = 0; i < 6; ++i) {
                const uint32_t word = warp[n].words[i], g = n / 4, t = n % 4, row = i % 2 * 8 + g;
                for (uint32_t j = 0; j < 2; ++j) {
                    const uint32_t k = 8 * (i < 4 ? i / 2 : i - 4) + 2 * t + j;
                    if (i < 4)
                        a[row][k] = of_half(word >> 16 * j);
                    else
                        b[k][g] = of_half(word >> 16 * j);
                }
            }
        for (uint32_t n = 0; n < WARP; ++n)
            for (uint32_t i = 0; i < 4; ++i) {
                double sum = 0;
                for (uint32_t k = 0; k < 16; ++k)
                    sum += (double)a[n / 4 + i / 2 * 8][k] * b[k][n % 4 * 2 + i % 2];
                warp[n].c[i] = (float)(warp[n].c[i] + sum);
            }
        break;
    case ACROSS: {
        uint32_t words[WARP];
        for (uint32_t n = 0; n < WARP; ++n)
            words[n] = warp[n].words[0];
        for (uint32_t n = 0; n < WARP; ++n)
            warp[n].words[0] = words[n ^ warp[n].words[1]];
        break;
    }
    default:
        break;
    }
}

// Whether all of `n` work-items from `first` on wait for the same; those that do go on.
static int met(uint32_t first, uint32_t n, enum What what)
{
    for (uint32_t i = first; i < first + n; ++i)
        if (items[i].waits != what)
            return 0;
        else if (items[i].site != items[first].site)
            wrong("its warp or group came to the same instruction at different places");
    if (n == WARP)
        together(items + first, what);
    for (uint32_t i = first; i < first + n; ++i)
        items[i].waits = what == ENDED ? ENDED : NOTHING;
    return 1;
}

// Whether as many work-items as `items[first]` says wait at its barrier of some; those that do go
// on.
static int some_met(uint32_t first)
{
    const uint32_t number = items[first].words[0], wanted = items[first].words[1];
    uint32_t there = 0;
#define AT_BARRIER(i) (items[i].waits == SOME && items[i].words[0] == number)
    for (uint32_t i = 0; i < count; ++i)
        if (AT_BARRIER(i)) {
            ++there;
            if (items[i].site != items[first].site || items[i].words[1] != wanted)
                wrong("others wait at this barrier of some at another place, or for another number");
        }
    if (there > wanted)
        wrong("more work-items at a barrier of some than it has");
    for (uint32_t i = 0; there == wanted && i < count; ++i)
        if (AT_BARRIER(i))
            items[i].waits = NOTHING;
    return there == wanted;
}

static void run_group(void)
{
    // What a group before has left there is nobody's: NaN, and large numbers.
    for (uint32_t i = 0; i < local_bytes; ++i)
        local_memory[i] = drawn(2) ? -1 : 0x7e;
    for (uint32_t i = 0; i < count; ++i) {
        struct Item *item = &items[i];
        memset(item->lengths, 0, sizeof item->lengths);
        item->waits = NOTHING;
        item->groups = 1;
        getcontext(&item->context);
        item->context.uc_stack.ss_sp = stacks[i];
        item->context.uc_stack.ss_size = STACK;
        makecontext(&item->context, body, 0);
    }
    for (;;) {
        // All that can go on do, in an order of the seed's.
        uint32_t ready[MOST_ITEMS], n = 0;
        for (uint32_t i = 0; i < count; ++i)
            if (items[i].waits == NOTHING)
                ready[n++] = i;
        if (n == 0) {
            int some = 0;
            for (uint32_t i = 0; i < count; i += WARP)
                some |= items[i].waits > BARRIER && met(i, WARP, items[i].waits);
            if (!some && !met(0, count, BARRIER)) {
                if (met(0, count, ENDED))
                    return;
                wrong("its warp or group waits for different things");
            }
            continue;
        }
        // A warp now and then, not the whole group in step.
        const uint32_t warp = ready[drawn(n)] / WARP;
        for (uint32_t i = 0; i < n; ++i)
            if (ready[i] / WARP == warp) {
                current = ready[i];
                swapcontext(&scheduler, &items[current].context);
            }
        if (items[warp * WARP].waits > BARRIER)
            met(warp * WARP, WARP, items[warp * WARP].waits);
        else if (items[warp * WARP].waits == SOME)
            some_met(warp * WARP);
    }
}

// Runs `kernel` for `items_of_group` work-items of each of `g0` x `g1` groups, which have `bytes`
// of local memory at `local`.
void launch(void (*kernel)(const uint32_t *, void *const *), const uint32_t *s, void *const *p, char *local, uint32_t bytes,
            uint32_t g0, uint32_t g1, uint32_t items_of_group, uint64_t seed)
{
    local_memory = local, local_bytes = bytes;
    entry = kernel, sizes = s, pointers = p, count = items_of_group, groups[0] = g0, groups[1] = g1, state = seed;
    for (group[1] = 0; group[1] < g1; ++group[1])
        for (group[0] = 0; group[0] < g0; ++group[0])
            run_group();
}

void multiply_f16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    struct Item *item = &items[current];
    memcpy(item->words, a, 16);
    item->words[4] = b0, item->words[5] = b1, item->c = c;
    wait_for(MULTIPLY_F16, __builtin_return_address(0));
}

uint32_t halves(float x, float y)
{
    return to_half(x) | to_half(y) << 16;
}

float2 of_halves(uint32_t pair)
{
    return (float2){of_half(pair), of_half(pair >> 16)};
}

uint32_t halves_of_bytes(uint32_t pair)
{
    return halves((int8_t)pair, (int8_t)(pair >> 16));
}

void barrier_of(uint32_t number, uint32_t of)
{
    items[current].words[0] = number, items[current].words[1] = of;
    wait_for(SOME, __builtin_return_address(0));
}

float across(float x, uint32_t bits)
{
    memcpy(items[current].words, &x, 4);
    items[current].words[1] = bits;
    return as_float(wait_for(ACROSS, __builtin_return_address(0))->words[0]);
}

void copy_async(void *to, const void *from, uint32_t whole, uint32_t bytes)
{
    struct Item *item = &items[current];
    uint32_t *length = &item->lengths[item->groups - 1];
    if ((uintptr_t)to % whole || (uintptr_t)from % whole)
        wrong("a copy is not aligned");
    if ((bytes != 0 && bytes != whole) || *length == COPIES)
        wrong("a copy of part of its bytes, or too many of them");
    item->copies[item->groups - 1][(*length)++] = (struct Copy){to, from, whole, bytes};
    memset(to, 0xff, whole);
}

void commit_copies(void)
{
    if (items[current].groups++ == GROUPS)
        wrong("too many groups of copies");
}

void await_copies(uint32_t n)
{
    struct Item *item = &items[current];
    while (item->groups - 1 > n) {
        for (uint32_t i = 0; i < item->lengths[0]; ++i) {
            const struct Copy *copy = &item->copies[0][i];
            memset(copy->to, 0, copy->whole);
            memcpy(copy->to, copy->from, copy->bytes);
        }
        --item->groups;
        memmove(item->copies, item->copies + 1, item->groups * sizeof *item->copies);
        memmove(item->lengths, item->lengths + 1, item->groups * sizeof *item->lengths);
        item->lengths[item->groups] = 0;
    }
}

// What the kernels use of OpenCL C's functions, under the names that its compiler gives them.
#define NAMED(name) __asm__(name)
void barrier(uint32_t flags) NAMED("_Z7barrierj");
size_t get_local_id(uint32_t d) NAMED("_Z12get_local_idj");
size_t get_group_id(uint32_t d) NAMED("_Z12get_group_idj");
size_t get_num_groups(uint32_t d) NAMED("_Z14get_num_groupsj");
uint32_t mul24_u(uint32_t x, uint32_t y) NAMED("_Z5mul24jj");
uint32_t min_u(uint32_t x, uint32_t y) NAMED("_Z3minjj");
float max_f(float x, float y) NAMED("_Z3maxff");
float4 max_f4(float4 x, float y) NAMED("_Z3maxDv4_ff");
float fmax_f(float x, float y) NAMED("_Z4fmaxff");
float fmin_f(float x, float y) NAMED("_Z4fminff");
float fabs_f(float x) NAMED("_Z4fabsf");
float fma_f(float x, float y, float z) NAMED("_Z3fmafff");
float4 convert_c4(char4 x) NAMED("_Z14convert_float4Dv4_c");
float4 load_half4(size_t at, const uint16_t *from) NAMED("_Z11vload_half4mPU9CLprivateKDh");

void barrier(uint32_t flags)
{
    (void)flags;
    wait_for(BARRIER, __builtin_return_address(0));
}

size_t get_local_id(uint32_t d)
{
    return d ? 0 : current;
}

size_t get_group_id(uint32_t d)
{
    return group[d];
}

size_t get_num_groups(uint32_t d)
{
    return groups[d];
}

uint32_t mul24_u(uint32_t x, uint32_t y)
{
    return x * y;
}

uint32_t min_u(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

float fmax_f(float x, float y)
{
    return x != x || x < y ? y : x;
}

float fmin_f(float x, float y)
{
    return x != x || x > y ? y : x;
}

float max_f(float x, float y)
{
    return x < y ? y : x;
}

float4 max_f4(float4 x, float y)
{
    return (float4){max_f(x.x, y), max_f(x.y, y), max_f(x.z, y), max_f(x.w, y)};
}

float fabs_f(float x)
{
    return __builtin_fabsf(x);
}

float fma_f(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

float4 convert_c4(char4 x)
{
    return __builtin_convertvector(x, float4);
}

float4 load_half4(size_t at, const uint16_t *from)
{
    from += 4 * at;
    return (float4){of_half(from[0]), of_half(from[1]), of_half(from[2]), of_half(from[3])};
}
