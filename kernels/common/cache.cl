// Loads that state how long weights stay in the caches of NVIDIA GPUs from compute capability 8.0.
// Elsewhere they are plain loads. This file follows common/weights in sources of kernels that keep
// weights in the cache or need warp instructions.
// HINTED: a load with a policy for the shared cache. LEAVES drops the weights first, STAYS drops
// them last, USUAL has no preference.
// ONCE: like HINTED, but the work-group's own cache keeps nothing. The shared cache fetches whole
// lines of 128 bytes.
#ifdef __NV_CL_C_VERSION
#define POLICY(name, priority) \
    ulong name(void) \
    { \
        ulong policy; \
        __asm("createpolicy.fractional." priority ".b64 %0, 0f3F800000;" : "=l"(policy)); \
        return policy; \
    }
POLICY(leaves, "L2::evict_first")
POLICY(stays, "L2::evict_last")
POLICY(usual, "L2::evict_normal")
#define LEAVES leaves()
#define STAYS stays()
#define USUAL usual()
#ifdef BYTE_WEIGHTS
#define UNIT_BY(load, to, p, policy) \
    uint bits; \
    __asm(load "u32 %0, [%1], %2;" : "=r"(bits) : "l"(p), "l"(policy)); \
    const char4 to = as_char4(bits)
#elif defined HALF_WEIGHTS
#define UNIT_BY(load, to, p, policy) \
    ulong to; \
    __asm(load "u64 %0, [%1], %2;" : "=l"(to) : "l"(p), "l"(policy))
#else
#define UNIT_BY(load, to, p, policy) \
    float4 to; \
    __asm(load "v4.f32 {%0, %1, %2, %3}, [%4], %5;" \
          : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w) : "l"(p), "l"(policy))
#endif
#define LOADED(name, load) \
    UNIT name(global const UNIT *p, const ulong policy) \
    { \
        UNIT_BY(load, unit, p, policy); \
        return unit; \
    }
LOADED(hinted, "ld.global.L2::cache_hint.")
LOADED(once, "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.")
#define HINTED(p, policy) hinted((p), (policy))
#define ONCE(p, policy) once((p), (policy))
#else
#define LEAVES 0
#define STAYS 0
#define USUAL 0
#define HINTED(p, policy) (*(p))
#define ONCE(p, policy) (*(p))
#endif
