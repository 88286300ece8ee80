// kernels/common/warp.cl for a CPU: the same names, carried out by warp.c.
#define WARP 1
void multiply_f16(float *c, const uint *a, uint b0, uint b1);
#define MULTIPLY_F16(c, a, b0, b1) multiply_f16(c, a, b0, b1)
uint halves(float x, float y);
float2 of_halves(uint pair);
uint halves_of_bytes(uint pair);
void barrier_of(uint number, uint items);
#define BARRIER_OF(number, items) barrier_of(number, items)
float across(float x, uint bits);
#define KEEP_POINTER(p)
#define KEEP_LOCAL(p)
void copy_async(local void *to, global const void *from, uint whole, uint bytes);
void commit_copies(void);
void await_copies(uint n);
#define COPY_16(to, from, bytes) copy_async(to, from, 16, bytes)
#define COMMIT_COPIES commit_copies()
#define AWAIT_COPIES(n) await_copies(n)
