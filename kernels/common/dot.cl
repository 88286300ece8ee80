// Products of whole numbers in bytes. This file precedes every source whose kernel multiplies them.
// A word has four bytes of the common dimension, the first one in its lowest bits. Values are
// counted from the least one, so their bytes have no sign. Weights are from -128 to 127.
// DOT returns c plus the products of four values and four weights. No sum exceeds 31 bits.
#ifdef __NV_CL_C_VERSION
// One instruction from compute capability 6.1.
int DOT(uint values, uint weights, int c)
{
    int r;
    __asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(values), "r"(weights), "r"(c));
    return r;
}
#else
int DOT(uint values, uint weights, int c)
{
    const int4 products = convert_int4(as_uchar4(values)) * convert_int4(as_char4(weights));
    return c + (products.x + products.y) + (products.z + products.w);
}
#endif
// WHOLE_BITS: a float's bits after `shift` was added, which is 3 * 2^22 less the least value. The
// lowest byte then has the value, counted from the least one. The other bits are those of PROVEN,
// unless the value is NaN, infinite or outside of the range.
#define PROVEN 0x4B400000u
#define WHOLE_BITS(values, shift) as_uint4((values) + (shift))
#define SHIFT(least) (12582912.0f - (least))
#define BYTES_OF(bits) \
    ((bits).x & 255 | ((bits).y & 255) << 8 | ((bits).z & 255) << 16 | (bits).w << 24)
