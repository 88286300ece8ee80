// Weights as floats, halves or bytes. This file precedes common/products and every source of affine
// layers with local memory. UNIT: four weights; WIDE: their values as floats. WEIGHT: an element of
// an array; LOAD: its value. NARROW: 1 if weights are not floats.
// BY_SLICES: the place of value k in local memory. Each slice takes every `slices`-th value and
// reads its next AHEAD values in fours. OF_FOURS: number i of those values, where i is a constant.
#define BY_SLICES(k, slices) \
    (((k) / (slices) / AHEAD * (slices) + (k) - mul24((k) / (slices), (uint)(slices))) * AHEAD \
     + (k) / (slices) % AHEAD)
#define OF_FOURS(fours, i) \
    ((i) % 4 == 0 ? (fours)[(i) / 4].x \
     : (i) % 4 == 1 ? (fours)[(i) / 4].y \
     : (i) % 4 == 2 ? (fours)[(i) / 4].z : (fours)[(i) / 4].w)
#ifdef BYTE_WEIGHTS
#define NARROW 1
#define UNIT char4
#define WIDE(x) convert_float4(x)
#define WEIGHT char
#define LOAD(p, i) convert_float((p)[i])
#elif defined HALF_WEIGHTS
#define NARROW 1
// NVIDIA's vload_half4 may become four loads, because it does not know the alignment. This is one
// load with conversions.
#ifdef __NV_CL_C_VERSION
#define UNIT ulong
float4 wide(ulong from)
{
    float x, y, z, w;
    __asm("{.reg .b16 a, b, c, d; mov.b64 {a, b, c, d}, %4; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; "
          "cvt.f32.f16 %2, c; cvt.f32.f16 %3, d;}" : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
          : "l"(from));
    return (float4)(x, y, z, w);
}
#else
#define UNIT ushort4
float4 wide(ushort4 from)
{
    return vload_half4(0, (const half *)&from);
}
#endif
#define WIDE(x) wide(x)
#define WEIGHT half
#define LOAD(p, i) vload_half((i), (p))
#else
#define NARROW 0
#define UNIT float4
#define WIDE(x) (x)
#define WEIGHT float
#define LOAD(p, i) (p)[i]
#endif
