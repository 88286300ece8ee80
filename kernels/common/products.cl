// Products on tensor cores with the accuracy of floats. This file precedes every source whose
// kernel needs warp instructions. A work-group computes a tile of BM rows and BN columns, and each
// warp 32 of the rows. Without PTX a work-item computes the same sums with products of floats.
// Operands: a number is a power of two times the sum of two halves, which have 11 binary digits
// each. Three of the four products are added by the tensor cores, which may truncate sums. The
// power of a row of a, or of a column of b, brings its largest first term between 2^3 and 2^4. This
// leaves room for larger terms later, which sparse columns often have. A term above 2^15 misfits,
// because halves end at 65504. The default power, for rows or columns that begin with zeros,
// misfits if all terms are too small for it. Then whole fours of rows, or single columns, are
// computed again with floats. A column's result depends only on a and on the column. Weights that
// are halves or bytes need one half.
// Errors: a term is off by at most 8 units of 2^-24, mostly by 1. A number is off by 2^-28 of the
// largest of its row or column in a slice. If the slice begins with zeros, this can be 2^-24.
// Halves below 2^-14 keep their value. Sums are as exact as those of floats unless small numbers of
// a column meet large numbers of rows. For layers whose columns of weights differ much, plans have
// a kernel with floats (`"most": {"spread": …}`).
// Data: weights go from memory to the registers of the one warp that multiplies them. A warp takes
// a panel of 32 rows. A work-item has four rows, those of a fragment of mma.m16n8k16 and of the
// next one. A stage has 16 terms for each of two slices of the common dimension. A work-item copies
// four terms of four columns and converts them in place to halves, while the previous stage is
// multiplied. It then reads one vector for each tile of columns. Slices wait for each other only at
// the end.
// Layouts: a R_32_1_C; b C (a column's terms are contiguous); r C, with the parts of a column one
// after the other. Terms are a multiple of 16, columns of 4. HALF_WEIGHTS, BYTE_WEIGHTS: as in
// common/weights and common/bias.
//
//   WARPS x 2 warps; BM = 32 * WARPS, BN = 8 * TILES; BK: terms of a stage of both slices, 32
#ifndef WARPS
#define WARPS 4
#define TILES 13
#define BK 32
#endif
// Tiles of columns that are multiplied together to overlap latencies.
#define TURN 3

// One stage is multiplied, the next is converted to halves, and the third is being copied.
#define STAGES 3
// x % n. A / and % of the same operands compile to an instruction that oclgrind's value check does
// not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
#define BM (32 * WARPS)
#define BN (8 * TILES)
#define MEMBERS (32 * WARPS)
#define GROUP (2 * MEMBERS)
#define STAGE (BK * BN)
#define FOURS (BN / 4)
// The number of a work-item's column i in tile j.
#define COLUMN(j, i) (2 * (j) + (i))
// HALF: tiles that slice 0 adds up. EXCHANGED: tiles of each slice that fit into the stages at a
// time.
#define HALF ((TILES + 1) / 2)
#define EXCHANGED (STAGES * STAGE / (2 * 8 * MEMBERS))

#if TILES > 4 * WARPS || TILES > 15 || EXCHANGED == 0 || BK != 32
#error "products: TILES is at most 15 and 4 * WARPS, a tile's sums fit into the stages, BK is 32"
#endif

// Weights of row r from terms a and b, as two halves. Each term has the weights of four rows.
#ifdef BYTE_WEIGHTS
#define PAIR_OF(a, b, r) \
    halves_of_bytes((as_uint(a) >> 8 * (r) & 0xff) | (as_uint(b) >> 8 * (r) & 0xff) << 16)
#elif defined HALF_WEIGHTS
#define TWO_ROWS(a, r) ((r) / 2 ? as_uint2(a).y : as_uint2(a).x)
#define PAIR_OF(a, b, r) \
    ((r) % 2 ? TWO_ROWS(a, r) >> 16 | (TWO_ROWS(b, r) & 0xffff0000) \
             : (TWO_ROWS(a, r) & 0xffff) | TWO_ROWS(b, r) << 16)
#endif

#if WARP
// The powers for rows and for columns that begin with zeros. They suit numbers up to 8 and up to
// 256.
#define ROW_POWER 0x1p12f
#define COLUMN_POWER 0x1p7f
// The largest scaled number that a half holds, and the smallest maximum that keeps enough digits.
#define LARGEST 0x1p15f
#define SMALLEST 0.5f
// True if `power` does not suit numbers whose largest is `most`.
#define MISFITS(most, power) \
    ((most) * (power) > LARGEST || ((most) * (power) < SMALLEST && (most) > 0.0f))
#define INVERSE(power) as_float(0x7f000000u - as_uint(power))

// Returns the largest x of four neighbouring work-items.
float largest_of_four(float x)
{
    x = fmax(x, across(x, 1));
    return fmax(x, across(x, 2));
}

// Returns the power that brings `most`, the largest of the first terms, between 2^3 and 2^4.
// Returns `without` if `most` is 0 or extreme. The product of two such powers is a float.
float first_power(float most, float without)
{
    return most >= 0x1p-40f && most <= 0x1p40f ? as_float((257u - (as_uint(most) >> 23)) << 23)
                                               : without;
}

// Splits two numbers, times a power, into sums of two halves.
void split(uint *large, uint *small, float x, float y, float power)
{
    *large = halves(x * power, y * power);
    const float2 of = of_halves(*large);
    *small = halves(x * power - of.x, y * power - of.y);
}

// The place of a vector, the work-item's quarter of 16 terms, for column i of four. Eight
// work-items use 32 different banks, both when they copy and when they multiply.
#define SLOT(four, i) ((four) * 16 + (((i) * 4 + quarter) ^ ((four) % 2 * 4)))
#define SLOTS (STAGE / 4)
// Local memory behind the stages: the columns' factors for each slice, then flags. The first flag
// is for any misfit, the others are for each column and each four rows.
#define BEHIND (2 * BN + 1 + BN + BM / 4)
#define FACTORS(slice) (stages + STAGES * STAGE + (slice) * BN)
#define MISFIT ((local uint *)(stages + STAGES * STAGE + 2 * BN))

// The macros below name variables of sums_of_halves. OWN is column i of the work-item's four.
#define OWN(stage, i) ((i) % 2 ? odd_own : own)[(stage) + (i) / 2 * 8]
// Copies the work-item's values of the stage that starts with term k. Values behind the last
// term are 0.
#define FETCH(stage, k) \
    do { \
        const uint bytes = (k) + of_slice < end ? 16 : 0; \
        if (fetches) \
            _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
                COPY_16(&OWN(stage, i), pb + i * l, bytes); \
        COMMIT_COPIES; \
        pb += BK; \
    } while (0)
// Loads the work-item's weights. Behind the last term it loads any weights, because the values
// are 0.
#define LOAD_WEIGHTS(to, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
            (to)[i] = HINTED(&pa[i * 8], policy); \
        pa += (k) + BK + of_slice < end ? BK * 8 : 0; \
    } while (0)
// Four terms of the work-item's row r.
#define TERMS(from, r) \
    ((float4)(ROW(from, 0, r), ROW(from, 1, r), ROW(from, 2, r), ROW(from, 3, r)))
#define ROW(from, i, r) \
    ((r) == 0 ? (from)[i].x : (r) == 1 ? (from)[i].y : (r) == 2 ? (from)[i].z : (from)[i].w)
#define SIZE4(of) fmax(fmax(fabs((of).x), fabs((of).y)), fmax(fabs((of).z), fabs((of).w)))
// VALUES reads the copied values of a stage, and CONVERT replaces them by halves.
#define VALUES(stage) \
    _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
        raw[i] = fetches ? as_float4(OWN(stage, i)) : (float4)(0.0f)
#define CONVERT(stage) \
    _Pragma("unroll") for (uint i = 0; i < 4; ++i) { \
        const float4 x = raw[i]; \
        uint h[4]; \
        split(&h[0], &h[2], x.x, x.y, power[i]); \
        split(&h[1], &h[3], x.z, x.w, power[i]); \
        most[i] = fmax(most[i], SIZE4(x)); \
        if (fetches) \
            OWN(stage, i) = (uint4)(h[0], h[1], h[2], h[3]); \
    }
// Tiles that are multiplied together, and their products with fragments of rows.
#define EACH_TILE _Pragma("unroll") for (uint j = 0; j < TURN; ++j) if (j0 + j < TILES)
#define PRODUCTS(of, q0, q1) \
    EACH_TILE _Pragma("unroll") for (uint m = 0; m < 2; ++m) \
        MULTIPLY_F16(sum[m][j0 + j], of[m], v[j].q0, v[j].q1)

// Computes a work-item's sums of the terms from `begin` to `end`, for its four rows and two columns
// of each tile. Fragment m has rows 2 m and 2 m + 1. MISFIT gets the rows and columns that misfit
// their powers. `pa` points to the four rows.
__attribute__((always_inline)) void sums_of_halves(float sum[2][TILES][4], local float *stages,
                                                   uint l, uint w, uint first, uint begin,
                                                   uint end, bool has_rows,
                                                   global const UNIT *pa, global const float *b)
{
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint eighth = id % 32 / 4, quarter = id % 4;
    // This work-item copies four terms, a vector, of each of four columns. No other work-item uses
    // them until they are multiplied.
    const uint four = member / 4;
    const bool fetches = four < FOURS;
    local uint4 *slots = (local uint4 *)stages + slice * (4 * BN);
    local uint4 *own = slots + SLOT(four, 0), *odd_own = slots + SLOT(four, 1);
    // The vectors of this work-item's column of a tile.
    local const uint4 *values = slots + SLOT(eighth / 4, eighth % 4);
    KEEP_LOCAL(own);
    KEEP_LOCAL(odd_own);
    KEEP_LOCAL(values);
    const uint of_slice = slice * 16;
    const uint term = (begin + of_slice < end ? begin + of_slice : 0) + 4 * quarter;
    pa += term * 8;
    // Columns are a multiple of four. Behind the end the last four are read again.
    global const float *pb =
        b + (size_t)min(first + 4 * min(four, (uint)FOURS - 1), w - 4) * l + term;
    KEEP_POINTER(pa);
    KEEP_POINTER(pb);
    // The powers and the largest numbers of the work-item's four rows and four columns.
    float row_power[4], power[4], row_most[4], most[4];
    float4 raw[4];
    // Consecutive stages have separate registers for weights in flight.
    UNIT weights[2][4];
    // Weights that no other work-group reads leave the cache first, so values and partial sums
    // stay.
    const ulong policy = get_num_groups(1) > 1 ? USUAL : LEAVES;
    FETCH(0, begin);
    FETCH(SLOTS, begin + BK);
    LOAD_WEIGHTS(weights[0], begin);
    LOAD_WEIGHTS(weights[1], begin + BK);
#pragma unroll
    for (uint j = 0; j < TILES; ++j)
#pragma unroll
        for (uint i = 0; i < 8; ++i)
            sum[i / 4][j][i % 4] = 0.0f;
    AWAIT_COPIES(1);
    VALUES(0);
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        power[i] = first_power(largest_of_four(SIZE4(raw[i])), COLUMN_POWER);
        most[i] = row_most[i] = 0.0f;
    }
    CONVERT(0);
#if !NARROW
#pragma unroll
    for (uint r = 0; r < 4; ++r) {
        const float4 x = TERMS(weights[0], r);
        row_power[r] = first_power(largest_of_four(SIZE4(x)), ROW_POWER);
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    uint now = 0, then = SLOTS, free = 2 * SLOTS;
    for (uint k = begin; k < end;) {
#pragma unroll
        for (uint p = 0; p < 2; ++p) {
            if (p > 0 && k >= end)
                break;
            FETCH(free, k + 2 * BK);
            AWAIT_COPIES(1);
            VALUES(then);
            // Number i of fragment m holds two halves: row 2 m + i % 2, terms i / 2 * 2 and the
            // next.
            uint large[2][4], small[2][4];
#pragma unroll
            for (uint r = 0; r < 4; ++r) {
                uint *of_row = &large[r / 2][r % 2];
#if NARROW
                of_row[0] = PAIR_OF(weights[p][0], weights[p][1], r);
                of_row[2] = PAIR_OF(weights[p][2], weights[p][3], r);
#else
                const float4 x = TERMS(weights[p], r);
                split(&of_row[0], &small[r / 2][r % 2], x.x, x.y, row_power[r]);
                split(&of_row[2], &small[r / 2][r % 2 + 2], x.z, x.w, row_power[r]);
                row_most[r] = fmax(row_most[r], SIZE4(x));
#endif
            }
            LOAD_WEIGHTS(weights[p], k + 2 * BK);
            CONVERT(then);
            local const uint4 *at = values + now;
#pragma unroll
            for (uint j0 = 0; j0 < TILES; j0 += TURN) {
                uint4 v[TURN];
                EACH_TILE
                    v[j] = at[(j0 + j) * 32];
                PRODUCTS(large, z, w);
#if !NARROW
                PRODUCTS(small, x, y);
#endif
                PRODUCTS(large, x, y);
            }
            BARRIER_OF(1 + slice, MEMBERS);
            const uint last = now;
            now = then, then = free, free = last, k += BK;
        }
    }
    // Copies behind the last stage must end, because sums will take their place.
    AWAIT_COPIES(0);

#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const float of_column = largest_of_four(most[i]);
        if (fetches && MISFITS(of_column, power[i]))
            MISFIT[1 + 4 * four + i] = MISFIT[0] = 1;
#if !NARROW
        const float of_row = largest_of_four(row_most[i]);
        if (has_rows && MISFITS(of_row, row_power[i]))
            MISFIT[1 + BN + member / 4] = MISFIT[0] = 1;
#endif
        // These factors remove the powers of the columns from the sums.
        if (fetches && quarter == 0)
            FACTORS(slice)[4 * four + i] = INVERSE(power[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < TILES; ++j) {
        local const float *by = FACTORS(slice) + 8 * j + 2 * quarter;
#pragma unroll
        for (uint i = 0; i < 8; ++i)
            sum[i / 4][j][i % 4] *= NARROW ? by[i % 2] : INVERSE(row_power[i / 2]) * by[i % 2];
    }
}
#else
#define BEHIND 0
#endif

// Computes the sums with products of floats.
__attribute__((always_inline)) void sums_of_floats(float sum[2][TILES][4], local float *stages,
                                                   uint l, uint w, uint first, uint begin,
                                                   uint end, global const UNIT *pa,
                                                   global const float *b)
{
    const uint id = get_local_id(0), slice = id / MEMBERS, quarter = id % 4;
#pragma unroll
    for (uint j = 0; j < TILES; ++j)
#pragma unroll
        for (uint i = 0; i < 8; ++i)
            sum[i / 4][j][i % 4] = 0.0f;
    for (uint k = begin; k < end; k += BK) {
        for (uint i = id; i < STAGE; i += GROUP) {
            const uint at = k + i / BN, col = first + REST(i, BN);
            stages[i] = at < end && col < w ? b[col * l + at] : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint q = slice * 16; q < slice * 16 + 16 && k + q < end; ++q) {
            const float4 x = WIDE(pa[(k + q) * 8]);
#pragma unroll
            for (uint j = 0; j < TILES; ++j)
#pragma unroll
                for (uint i = 0; i < 2; ++i) {
                    const float v = stages[q * BN + j * 8 + quarter * 2 + i];
                    sum[0][j][i] = fma(x.x, v, sum[0][j][i]);
                    sum[0][j][2 + i] = fma(x.y, v, sum[0][j][2 + i]);
                    sum[1][j][i] = fma(x.z, v, sum[1][j][i]);
                    sum[1][j][2 + i] = fma(x.w, v, sum[1][j][2 + i]);
                }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// SEND gives the other slice EXCHANGED of its tiles, the tiles from `others` + j0 on. RECEIVE adds
// what the other slice sent to the tiles from `own` + j0 on.
#define SEND(j0, others) \
    _Pragma("unroll") for (uint j = 0; j < EXCHANGED; ++j) \
        if ((j0) + j < HALF && (others) + (j0) + j < TILES) \
            _Pragma("unroll") for (uint i = 0; i < 8; ++i) \
                stages[((slice * EXCHANGED + j) * 8 + i) * MEMBERS + member] = \
                    sum[i / 4][(others) + (j0) + j][i % 4]
#define RECEIVE(j0, own) \
    _Pragma("unroll") for (uint j = 0; j < EXCHANGED; ++j) \
        if ((j0) + j < HALF && (own) + (j0) + j < TILES) \
            _Pragma("unroll") for (uint i = 0; i < 8; ++i) \
                sum[i / 4][(own) + (j0) + j][i % 4] += \
                    stages[(((1 - slice) * EXCHANGED + j) * 8 + i) * MEMBERS + member]
// Bias and activation of an affine layer, if there is one part.
#ifdef ACTIVATION
#define FINISH(x) \
    if (parts == 1 && has_rows) { \
        x = LAST((x) + FIRST(bias, at / 4), bias, at / 4); \
        x = ACTIVATE(x); \
    }
#else
#define FINISH(x)
#endif
// Stores the sums of the tiles from `own` to `last`.
#define STORE(own, last) \
    _Pragma("unroll") for (uint j = (own); j < (last); ++j) \
        _Pragma("unroll") for (uint i = 0; i < 2; ++i) { \
            const uint col = first + j * 8 + quarter * 2 + i; \
            float4 x = (float4)(sum[0][j][i], sum[0][j][2 + i], sum[1][j][i], sum[1][j][2 + i]); \
            FINISH(x) \
            if (col < w && has_rows && stored >> COLUMN(j, i) & 1) \
                r[(col * parts + part) * (h / 4) + at / 4] = x; \
        }

// Computes a tile of the product, in the columns from `first` on. If several parts share the common
// dimension, each writes a partial result. A single part is finished with bias and activation.
// `stages` has LOCAL_FLOATS floats and is aligned to 16 bytes.
#define LOCAL_FLOATS (STAGES * STAGE + BEHIND)
__attribute__((always_inline)) void tile_of_product(local float *stages, uint l, uint w, uint h,
                                                    uint tile, uint first, uint part, uint parts,
                                                    float2 params,
                                                    global const UNIT *a, global const float *b,
                                                    global const float4 *bias, global float4 *r)
{
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint eighth = id % 32 / 4, quarter = id % 4;
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    // In the last tile of rows some warps have no rows.
    const uint row = tile * BM + member / 32 * 32, at = row + 4 * eighth;
    const bool has_rows = row < h;
    // A unit has four rows of a term. A warp reads four terms at a time.
    global const UNIT *pa = a + (has_rows ? (size_t)row / 4 * l : 0) + eighth;

    float sum[2][TILES][4];
    // A bit for each of the work-item's columns that is stored.
    uint stored = (1u << 2 * TILES) - 1;
#if WARP
    for (uint i = id; i < 1 + BN + BM / 4; i += GROUP)
        MISFIT[i] = 0;
    sums_of_halves(sum, stages, l, w, first, begin, end, has_rows, pa, b);
#pragma unroll 1
    for (uint again = 0;; again = 1) {
        const bool misfits = !again && MISFIT[0];
        // A bit for each column that is computed again.
        uint others = 0;
        if (misfits) {
#pragma unroll
            for (uint j = 0; j < TILES; ++j)
#pragma unroll
                for (uint i = 0; i < 2; ++i)
                    others |= MISFIT[1 + 8 * j + 2 * quarter + i] << COLUMN(j, i);
            if (MISFIT[1 + BN + member / 4])
                others = (1u << 2 * TILES) - 1;
        }
#else
    sums_of_floats(sum, stages, l, w, first, begin, end, pa, b);
#endif

    // Each slice adds up half of the tiles.
#pragma unroll
    for (uint j0 = 0; j0 < HALF; j0 += EXCHANGED) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
            SEND(j0, HALF);
        } else {
            SEND(j0, 0);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
            RECEIVE(j0, 0);
        } else {
            RECEIVE(j0, HALF);
        }
    }
    if (slice == 0) {
        STORE(0, HALF);
    } else {
        STORE(HALF, TILES);
    }
#if WARP
        if (!misfits)
            break;
        stored = others;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums_of_floats(sum, stages, l, w, first, begin, end, pa, b);
    }
#endif
}
