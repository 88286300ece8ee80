// Products of whole numbers in bytes. This file precedes every source whose kernel multiplies them.
// A word has four signed bytes of the common dimension, the first one in its lowest bits. A value's
// byte counts it from the middle of its range, which is 128 more than the least value. DOT returns
// c plus the products of four values and four weights. No sum exceeds 31 bits.
#if defined(__NV_CL_C_VERSION)
// One instruction from compute capability 6.1.
int DOT(uint values, uint weights, int c)
{
    int r;
    __asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(values), "r"(weights), "r"(c));
    return r;
}
#elif defined(cl_khr_integer_dot_product)
#define DOT(values, weights, c) ((c) + dot_4x8packed_ss_int(values, weights))
#elif defined(cl_arm_integer_dot_product_accumulate_int8)
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#define DOT(values, weights, c) arm_dot_acc(as_char4(values), as_char4(weights), c)
#elif defined(cl_arm_integer_dot_product_int8)
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_int8 : enable
#define DOT(values, weights, c) ((c) + arm_dot(as_char4(values), as_char4(weights)))
#else
int DOT(uint values, uint weights, int c)
{
    const int4 products = convert_int4(as_char4(values)) * convert_int4(as_char4(weights));
    return c + (products.x + products.y) + (products.z + products.w);
}
#endif
// WHOLE_BITS: a float's bits after `shift` was added, which is 3 * 2^22 less the least value. The
// lowest byte then has the value, counted from the least one. The other bits are those of PROVEN,
// unless the value is NaN, infinite or outside of the range.
#define PROVEN 0x4B400000u
#define WHOLE_BITS(values, shift) as_uint4((values) + (shift))
#define SHIFT(least) (12582912.0f - (least))
// The bytes of four such values. Inverting the highest bit of a byte takes 128 from it.
#define MIDDLE 0x80808080u
#define BYTES_OF(bits) \
    (((bits).x & 255 | ((bits).y & 255) << 8 | ((bits).z & 255) << 16 | (bits).w << 24) ^ MIDDLE)
