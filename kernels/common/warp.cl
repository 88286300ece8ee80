// Instructions of a warp, which is 32 work-items with consecutive numbers that run in step. This
// file precedes every source whose kernel needs them. WARP is 1 if the compiler has PTX. tests/warp
// has the same functions for checks on a CPU.
#ifdef __NV_CL_C_VERSION
#define WARP 1

// c += a b with 16 rows, 8 columns and 16 terms. a and b are halves, two in a uint. Work-item 4 g +
// t holds these elements. Of c: rows g and g + 8, columns 2 t and 2 t + 1. Of a: the same rows,
// terms 2 t and 2 t + 1, then the terms 8 further on. Of b: the same terms of column g.
#define MULTIPLY_F16(c, a, b0, b1) \
    __asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " \
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
          : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
          : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))

// Returns two numbers as halves, x in the lower one.
uint halves(float x, float y)
{
    uint r;
    __asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}

// Returns the lower half, then the upper half.
float2 of_halves(uint pair)
{
    float x, y;
    __asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
          : "=f"(x), "=f"(y) : "r"(pair));
    return (float2)(x, y);
}

// Returns the signed bytes in bits 0 to 7 and 16 to 23 as halves. All other bits are 0.
uint halves_of_bytes(uint pair)
{
    // A half of 1024 or more has the byte in its lowest bits.
    uint r;
    __asm("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(pair ^ 0x64806480), "r"(0x64806480));
    return r;
}

// Returns the x of the work-item whose number in the warp differs in `bits`.
float across(float x, uint bits)
{
    float r;
    __asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(x), "r"(bits));
    return r;
}

// A barrier for the warps that name the same `number`, which is not 0. They have `items`
// work-items.
#define BARRIER_OF(number, items) \
    __asm volatile("bar.sync %0, %1;" ::"r"((uint)(number)), "n"(items) : "memory")

// Keep a pointer in its register, so that the compiler does not compute it again. KEEP_LOCAL is for
// local memory.
#define KEEP_POINTER(p) __asm volatile("" : "+l"(p))
#define KEEP_LOCAL(p) \
    do { \
        uint place = (uint)(size_t)(p); \
        __asm volatile("" : "+r"(place)); \
        (p) = (local void *)(size_t)place; \
    } while (0)

// Starts to copy 16 bytes to local memory, or zeros if `bytes` is 0. COMMIT_COPIES groups the
// copies since the last group. AWAIT_COPIES waits until at most n groups are in flight.
#define COPY_16(to, from, bytes) \
    __asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
                   ::"r"((uint)(size_t)(to)), "l"(from), "r"((uint)(bytes)) : "memory")
#define COMMIT_COPIES __asm volatile("cp.async.commit_group;" ::: "memory")
#define AWAIT_COPIES(n) __asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define WARP 0
#endif
