// Products on tensor cores, with the accuracy of floats. This stands in front of every source whose
// kernel needs instructions of a warp: its work-groups compute a tile of BM rows for BN columns, a
// warp 32 rows for all of them. Each operand is a sum of two halves (11 binary digits each) times a
// power of two; of the four products the three larger ones are summed, by the instruction: it need
// not round sums to the nearest. The power of a row of a, or a column of b, is the one that brings
// the largest of its first terms to 2^3 to 2^4: the more room above, the fewer sparse columns
// misfit. Where a later number is then above 2^15 (halves end at 65504), or all of them are too
// small for the power of those that begin with zeros, whole fours of rows, or single columns, are
// computed again, of products of floats. What a column gets depends on nothing but a and itself.
// Weights that are halves or bytes are one such number as they are. A term is off by 8 units of
// 2^-24 at most and 1 mostly, and a number by 2^-28 of the largest of its row, or column, in the
// part that a slice has of the common dimension; by 2^-24 of it at most where that begins with
// zeros. Halves below 2^-14 count. So sums are as exact as those of floats where small numbers of a
// column do not meet the large ones of rows: a plan has a kernel without halves for layers whose
// columns of weights differ much (`"most": {"spread": …}`). a goes from memory to the registers of
// the one warp that multiplies it, only b is shared. A panel of 32 rows is what a warp takes: a
// work-item has four rows at a time, those of a fragment of mma.m16n8k16 and of the next. A stage
// is 16 terms for each of two slices of the common dimension: a work-item fetches four terms of
// four columns and makes halves of them where they stand, while others multiply the stage before.
// What it then reads for a tile of columns is one vector. Slices wait for each other only at the
// end. Where there is no PTX a work-item computes the same sums, of products of floats. Layouts: a
// R_32_1_C; b C (a column's terms contiguous); r C, of each column the parts after each other.
// Terms are a multiple of 16, columns of 4. HALF_WEIGHTS, BYTE_WEIGHTS: as in common/weights and
// common/bias.
//
//   WARPS x 2 warps; BM = 32 * WARPS, BN = 8 * TILES; BK: terms of a stage of both slices, 32
#ifndef WARPS
#define WARPS 4
#define TILES 13
#define BK 32
#endif
// Tiles of columns whose products are under way at a time.
#define TURN 3

// One stage is multiplied, of the next one halves are made, the third comes.
#define STAGES 3
// x % n: a pair of / and % is compiled to what oclgrind's check of values does not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
#define BM (32 * WARPS)
#define BN (8 * TILES)
#define MEMBERS (32 * WARPS)
#define GROUP (2 * MEMBERS)
#define STAGE (BK * BN)
#define FOURS (BN / 4)
// Of a work-item's columns the number of that in place i of tile j.
#define COLUMN(j, i) (2 * (j) + (i))
// Tiles that slice 0 adds up, and how many at a time of either slice stand in the stages.
#define HALF ((TILES + 1) / 2)
#define EXCHANGED (STAGES * STAGE / (2 * 8 * MEMBERS))

#if TILES > 4 * WARPS || TILES > 15 || EXCHANGED == 0 || BK != 32
#error "products: a work-item fetches for at most four columns and has at most 30 columns, the sums of a tile of both slices fit into the stages, and a stage has 16 terms for each slice"
#endif

// Of weights of four rows, of terms a and b, those of row r as halves.
#ifdef BYTE_WEIGHTS
#define PAIR_OF(a, b, r) halves_of_bytes((as_uint(a) >> 8 * (r) & 0xff) | (as_uint(b) >> 8 * (r) & 0xff) << 16)
#elif defined HALF_WEIGHTS
#define TWO_ROWS(a, r) ((r) / 2 ? as_uint2(a).y : as_uint2(a).x)
#define PAIR_OF(a, b, r) \
    ((r) % 2 ? TWO_ROWS(a, r) >> 16 | (TWO_ROWS(b, r) & 0xffff0000) : (TWO_ROWS(a, r) & 0xffff) | TWO_ROWS(b, r) << 16)
#endif

#if WARP
// The powers of two for rows and columns that begin with zeros: of numbers up to 8, and up to 256.
#define ROW_POWER 0x1p12f
#define COLUMN_POWER 0x1p7f
// The largest number that halves hold with its power, and the smallest largest one that they hold
// well.
#define LARGEST 0x1p15f
#define SMALLEST 0.5f
// Whether the power is not the one for numbers of which this is the largest.
#define MISFITS(most, power) ((most) * (power) > LARGEST || ((most) * (power) < SMALLEST && (most) > 0.0f))
// 1 / power.
#define INVERSE(power) as_float(0x7f000000u - as_uint(power))

// The largest of four neighbours' numbers.
float largest_of_four(float x)
{
    x = fmax(x, across(x, 1));
    return fmax(x, across(x, 2));
}

// The power that brings `most`, the largest of the first terms, to 2^3 to 2^4. Of two such powers
// the product is a float.
float first_power(float most, float without)
{
    return most >= 0x1p-40f && most <= 0x1p40f ? as_float((257u - (as_uint(most) >> 23)) << 23) : without;
}

// Two numbers times a power as sums of two halves.
void split(uint *large, uint *small, float x, float y, float power)
{
    *large = halves(x * power, y * power);
    const float2 of = of_halves(*large);
    *small = halves(x * power - of.x, y * power - of.y);
}

// Where the vector of a work-item's quarter of 16 terms stands for column i of four. Eight
// work-items reach 32 banks, when they fetch and when they multiply.
#define SLOT(four, i) ((four) * 16 + (((i) * 4 + quarter) ^ ((four) % 2 * 4)))
#define SLOTS (STAGE / 4)
// Behind the stages: factors of columns, those of each slice; then whether anything misfits, which
// columns do, and which fours of rows.
#define BEHIND (2 * BN + 1 + BN + BM / 4)
#define FACTORS(slice) (stages + STAGES * STAGE + (slice) * BN)
#define MISFIT ((local uint *)(stages + STAGES * STAGE + 2 * BN))

// A work-item's sums of the terms from `begin` to `end`, of its four rows and of two columns of
// each tile; fragment m has the rows 2 m and 2 m + 1. MISFIT gets the rows and columns that powers
// are not for. `pa`: the four rows.
__attribute__((always_inline)) void sums_of_halves(float sum[2][TILES][4], local float *stages, uint l, uint w, uint first,
                                                   uint begin, uint end, bool has_rows, global const UNIT *pa, global const float *b)
{
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint eighth = id % 32 / 4, quarter = id % 4;
    // Four columns of which this work-item fetches four terms each, as four vectors. They are its
    // alone until they are multiplied.
    const uint four = member / 4;
    const bool fetches = four < FOURS;
    local uint4 *slots = (local uint4 *)stages + slice * (4 * BN);
    local uint4 *own = slots + SLOT(four, 0), *odd_own = slots + SLOT(four, 1);
    // Of a tile the vectors of this work-item's column.
    local const uint4 *values = slots + SLOT(eighth / 4, eighth % 4);
    KEEP_LOCAL(own);
    KEEP_LOCAL(odd_own);
    KEEP_LOCAL(values);
    const uint of_slice = slice * 16, term = (begin + of_slice < end ? begin + of_slice : 0) + 4 * quarter;
    pa += term * 8;
    // Columns are a multiple of four: behind the last ones are those again.
    global const float *pb = b + (size_t)min(first + 4 * min(four, (uint)FOURS - 1), w - 4) * l + term;
    KEEP_POINTER(pa);
    KEEP_POINTER(pb);
#define OWN(stage, i) ((i) % 2 ? odd_own : own)[(stage) + (i) / 2 * 8]
    // Fetches the work-item's values of the stage that begins with term k; behind the last terms
    // they are 0.
#define FETCH(stage, k) \
    do { \
        const uint bytes = (k) + of_slice < end ? 16 : 0; \
        if (fetches) \
            _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
                COPY_16(&OWN(stage, i), pb + i * l, bytes); \
        COMMIT_COPIES; \
        pb += BK; \
    } while (0)
    // Loads its weights; behind the last terms they are others, for values that are 0.
#define LOAD_WEIGHTS(to, k) \
    do { \
        _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
            (to)[i] = HINTED(&pa[i * 8], policy); \
        pa += (k) + BK + of_slice < end ? BK * 8 : 0; \
    } while (0)
    // The terms of the work-item's row r.
#define TERMS(from, r) ((float4)(ROW(from, 0, r), ROW(from, 1, r), ROW(from, 2, r), ROW(from, 3, r)))
#define ROW(from, i, r) ((r) == 0 ? (from)[i].x : (r) == 1 ? (from)[i].y : (r) == 2 ? (from)[i].z : (from)[i].w)
#define SIZE4(of) fmax(fmax(fabs((of).x), fabs((of).y)), fmax(fabs((of).z), fabs((of).w)))
    // The values of a stage that have come, and halves made of them.
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
    // Of the work-item's four rows, and of its four columns: their powers and largest numbers.
    float row_power[4], power[4], row_most[4], most[4];
    float4 raw[4];
    // Stages after each other have registers of their own for weights that come.
    UNIT weights[2][4];
    // Weights that no other work-group multiplies leave the cache to values and parts of sums.
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
            // Of fragment m the two halves number i: of row 2 m + i % 2 and of terms i / 2 * 2 and
            // the next.
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
#define EACH_TILE _Pragma("unroll") for (uint j = 0; j < TURN; ++j) if (j0 + j < TILES)
                uint4 v[TURN];
                EACH_TILE
                    v[j] = at[(j0 + j) * 32];
#define PRODUCTS(of, q0, q1) \
    EACH_TILE _Pragma("unroll") for (uint m = 0; m < 2; ++m) MULTIPLY_F16(sum[m][j0 + j], of[m], v[j].q0, v[j].q1)
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
    // What comes for behind the last stage comes where sums will stand.
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
        // Of sums the powers are taken away.
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

// The same sums, of products of floats.
__attribute__((always_inline)) void sums_of_floats(float sum[2][TILES][4], local float *stages, uint l, uint w, uint first,
                                                   uint begin, uint end, global const UNIT *pa, global const float *b)
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

// Gives the other slice the sums of its tiles, which begin with `others`: EXCHANGED of them, from
// the one with number j0 on. And adds what it gave to those of the tiles that begin with `own`.
#define SEND(j0, others) \
    _Pragma("unroll") for (uint j = 0; j < EXCHANGED; ++j) \
        if ((j0) + j < HALF && (others) + (j0) + j < TILES) \
            _Pragma("unroll") for (uint i = 0; i < 8; ++i) \
                stages[((slice * EXCHANGED + j) * 8 + i) * MEMBERS + member] = sum[i / 4][(others) + (j0) + j][i % 4]
#define RECEIVE(j0, own) \
    _Pragma("unroll") for (uint j = 0; j < EXCHANGED; ++j) \
        if ((j0) + j < HALF && (own) + (j0) + j < TILES) \
            _Pragma("unroll") for (uint i = 0; i < 8; ++i) \
                sum[i / 4][(own) + (j0) + j][i % 4] += stages[(((1 - slice) * EXCHANGED + j) * 8 + i) * MEMBERS + member]
// What becomes of the sums of one part: bias and activation of an affine layer.
#ifdef ACTIVATION
#define FINISH(x) \
    if (parts == 1 && has_rows) { \
        x = LAST4((x) + FIRST(bias, at / 4), bias, at / 4); \
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

// A tile of the product, the columns from `first` on: `part` of as many parts of the common
// dimension, each with a result of its own; one part is finished. `stages`: LOCAL_FLOATS, on 16
// bytes.
#define LOCAL_FLOATS (STAGES * STAGE + BEHIND)
__attribute__((always_inline)) void tile_of_product(local float *stages, uint l, uint w, uint h, uint tile, uint first, uint part,
                                                    uint parts, float2 params, global const UNIT *a, global const float *b,
                                                    global const float4 *bias, global float4 *r)
{
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint eighth = id % 32 / 4, quarter = id % 4;
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    // Of a last tile of rows some warps have none.
    const uint row = tile * BM + member / 32 * 32, at = row + 4 * eighth;
    const bool has_rows = row < h;
    // Four rows of a term; a warp takes four terms at a time.
    global const UNIT *pa = a + (has_rows ? (size_t)row / 4 * l : 0) + eighth;

    float sum[2][TILES][4];
    // Which of the work-item's columns are to be stored.
    uint stored = (1u << 2 * TILES) - 1;
#if WARP
    for (uint i = id; i < 1 + BN + BM / 4; i += GROUP)
        MISFIT[i] = 0;
    sums_of_halves(sum, stages, l, w, first, begin, end, has_rows, pa, b);
#pragma unroll 1
    for (uint again = 0;; again = 1) {
        const bool misfits = !again && MISFIT[0];
        // Those to be computed again.
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

    // A slice adds up half of the tiles.
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
