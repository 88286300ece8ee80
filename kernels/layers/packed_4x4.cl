// All layers of a small network, and the arg-max, in one launch. A work-group computes 16 records
// from input to classes, and only its own work-items wait for each other between layers.
// Differs from affine/packed_4x4: 16 work-items share a tile of 16 rows by the 16 records. A
// work-group of n * 16 computes n tiles at a time. Padding rows and terms are left out.
// Source: own; benches/mali says how it compiles for Mali, and when one launch should be faster.
// Layouts: a holds the weights (R_16_1_C each) and the biases of all layers; b, hidden and r are
// C_1_16_R.
// LAYERS: affine layers, at most 8. CLASSES: rows that the arg-max compares, 0 for no arg-max.
// HIDDEN, ROWS: a work-group's part of hidden and of r, in fours of values.
// For each layer n: Ln columns of its padded weights; Kn terms of a sum without padding; Qn rows
// without padding, in fours; ACTn as ACTIVATION in common/activation, with the parameters PARAMSn;
// An and Bn the offsets of its weights and biases in a, in fours; Sn the offset of its results in
// the work-group's part of hidden, in fours, 0 for the last layer.
// K_STEP: terms of the sum in a turn, 1 (few registers: Midgard) or 4 (few branches: the others).
// Every Kn is a multiple of it.
// HALF_WEIGHTS, BYTE_WEIGHTS: the format of the weights. Sums are floats.
//
//   work-items of a tile:    0  4  8 12     a work-item: 4 rows of 4 records
//   (rows down, records to   1  5  9 13
//   the right)               2  6 10 14
//                            3  7 11 15
#ifndef K_STEP
#define K_STEP 1
#endif
#ifndef GROUP_0
#define GROUP_0 64
#endif
#if LAYERS < 1 || LAYERS > 8
#error "layers_packed_4x4: LAYERS must be 1 to 8"
#endif
#ifdef BYTE_WEIGHTS
#define UNIT_BYTES 4
#elif defined HALF_WEIGHTS
#define UNIT_BYTES 8
#else
#define UNIT_BYTES 16
#endif

// The rows, in fours, and the four columns of work-item t of a tile.
#define ROW(t) ((((t) & 0xFFFF) >> 4) * 4 + ((t) & 3))
#define COL(t) (((t) >> 2) & 3)

#define ADD_PRODUCT(x, y)                                                              \
    c0 += (x).s0 * (y);                                                                \
    c1 += (x).s1 * (y);                                                                \
    c2 += (x).s2 * (y);                                                                \
    c3 += (x).s3 * (y)

// Computes one layer. The compiler knows all arguments except t, a, b and r. Only t lives from
// layer to layer, to save registers. Its upper half is the work-group. Its lower half is the
// work-item, plus GROUP_0 for each finished tile.
uint layer(uint t, global const float4 *a, global const float4 *b, global float4 *r,
           const uint weights, const uint biases, const uint l, const uint terms, const uint quads,
           const uint activation, const float2 params, const uint b_group, const uint b_start,
           const uint r_group, const uint r_start)
{
    for (; ROW(t) < quads; t += GROUP_0) {
        // The bias is read first, so its address takes no register in the loop.
        const float4 s = FIRST(a + biases, ROW(t));
        float4 c0 = (float4)(s.s0), c1 = (float4)(s.s1), c2 = (float4)(s.s2), c3 = (float4)(s.s3);
        // Addresses are integers. Otherwise compilers keep pointer and index apart and add them in
        // every turn of the sum.
        global const WEIGHT4 *pa = (global const WEIGHT4 *)((size_t)a +
            UNIT_BYTES * (weights + ((t & 0xFFFF) >> 4) * (4 * l) + (t & 3)));
        global const float4 *pb = (global const float4 *)((size_t)b +
            16 * ((t >> 16) * b_group + b_start + COL(t)));
#if K_STEP == 1
        for (uint k = 0; k != 4 * terms; k += 4) {
            const float4 x = LOAD4(pa, k), y = pb[k];
            ADD_PRODUCT(x, y);
        }
#elif K_STEP == 4
        // t itself is the counter, which saves a register. No compiler unrolls a loop with this
        // unknown number of turns.
        const uint end = t + terms / 4;
        do {
            ADD_PRODUCT(LOAD4(pa, 0), pb[0]);
            ADD_PRODUCT(LOAD4(pa, 4), pb[4]);
            ADD_PRODUCT(LOAD4(pa, 8), pb[8]);
            ADD_PRODUCT(LOAD4(pa, 12), pb[12]);
            pa += 16 * UNIT4;
            pb += 16;
        } while (++t != end);
        t -= terms / 4;
#else
#error "layers_packed_4x4: K_STEP must be 1 or 4"
#endif
        SCALE_SUMS(a + biases, ROW(t));
        const uint at = (t >> 16) * r_group + r_start + 16 * ROW(t) + COL(t);
        if (activation == 2) {
            c0 = RELU(c0);
            c1 = RELU(c1);
            c2 = RELU(c2);
            c3 = RELU(c3);
        }
        if (activation == 4) {
            c0 = LEAKY_RELU(c0);
            c1 = LEAKY_RELU(c1);
            c2 = LEAKY_RELU(c2);
            c3 = LEAKY_RELU(c3);
        }
        if (activation == 5) {
            c0 = CLIP(c0);
            c1 = CLIP(c1);
            c2 = CLIP(c2);
            c3 = CLIP(c3);
        }
        r[at] = c0;
        r[at + 4] = c1;
        r[at + 8] = c2;
        r[at + 12] = c3;
        // In place, one row at a time. The registers of the sums are free now.
        if (activation == 1) {
            for (uint row = at; row != at + 16; row += 4) {
                const float4 x = r[row];
                r[row] = SIGMOID_EXP2(x);
            }
        }
        if (activation == 3) {
            for (uint row = at; row != at + 16; row += 4) {
                const float4 x = r[row];
                r[row] = TANH_EXP2(x);
            }
        }
    }
    return t & (0xFFFF0000u | (GROUP_0 - 1));
}

// LAYER computes layer n from the array `from`. NEXT computes it from hidden, after layer m.
#define LAYER(n, from, group, start)                                                         \
    t = layer(t, a, from, n + 1 < LAYERS ? hidden : r, A##n, B##n, L##n, K##n, Q##n, ACT##n, \
              (float2)(PARAMS##n), group, start, n + 1 < LAYERS ? HIDDEN : ROWS, S##n)
#define NEXT(n, m)                 \
    barrier(CLK_GLOBAL_MEM_FENCE); \
    LAYER(n, hidden, HIDDEN, S##m)

__attribute__((reqd_work_group_size(GROUP_0, 1, 1)))
kernel void layers_packed_4x4(global const float4 *restrict a,
                              global const float4 *restrict b,
                              global float4 *hidden,
                              global float4 *r,
                              global uint *classes)
{
    uint t = get_group_id(1) << 16 | get_local_id(0);
    LAYER(0, b, 4 * L0, 0);
#if LAYERS > 1
    NEXT(1, 0);
#endif
#if LAYERS > 2
    NEXT(2, 1);
#endif
#if LAYERS > 3
    NEXT(3, 2);
#endif
#if LAYERS > 4
    NEXT(4, 3);
#endif
#if LAYERS > 5
    NEXT(5, 4);
#endif
#if LAYERS > 6
    NEXT(6, 5);
#endif
#if LAYERS > 7
    NEXT(7, 6);
#endif
#if CLASSES
    barrier(CLK_GLOBAL_MEM_FENCE);
    if ((t & 0xFFFF) < 16) {
        const uint group = t >> 16, id = t & 15;
        global const float *column = (global const float *)(r + group * ROWS) + id;
        float best = column[0];
        uint at = 0;
        bool refused = !isfinite(best);
        for (uint row = 1; row < CLASSES; ++row) {
            const float x = column[16 * row];
            refused |= !isfinite(x);
            if (x > best) {
                best = x;
                at = row;
            }
        }
        classes[16 * group + id] = refused ? 0xFFFFFFFFu : at;
    }
#endif
}
