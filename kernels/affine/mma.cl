// Affine layer on tensor cores, with the accuracy of floats: a work-group computes BM rows for BN records, a warp 32 rows
// for all of them.
// Each operand is a sum of two halves (11 binary digits each) times a power of two; of the four products the three larger
// ones are summed in floats. A row's, or a record's, power is at first the one that brings the largest of its first terms to
// 2^3 to 2^4. Where a later number is then above 2^15, where halves overflow, or all of them are too small for the power of
// those that begin with zeros, fours of rows, and records, are computed again: with powers that bring the largest number so
// far to 2^11 to 2^15. Where a larger one comes, the sums so far are brought to its power. What a record gets depends on
// nothing but the weights and itself. Weights that are halves or bytes are one such number as they are.
// A term is off by 8 units of 2^-24 at most and 1 mostly, and by 2^-27 of the largest number of its row or record in the part
// that a slice has of the common dimension; by 2^-23 of it where that begins with zeros.
// Differs from affine/tiled: the same tile, parts and slices; weights go from memory to the registers of the one warp that
// multiplies them, only values are shared. A panel of 32 rows is what a warp takes: a work-item has four rows at a time,
// those of a fragment of mma.m16n8k16 and of the next. A stage is 16 terms for each slice: a work-item fetches 16 values, four
// terms of four records, and makes halves of them where they stand, while others multiply the stage before. What it then
// reads for a tile of records is one vector. Results are four rows of a record, one vector.
// Where there is no PTX a work-item computes the same sums of the tile that its fragments hold.
// Source: own.
// Layouts: a R_32_1_C; b C (a record's values contiguous); r C, of each record the parts after each other.
// ACTIVATION: as in common/activation.
// HALF_WEIGHTS, BYTE_WEIGHTS: as in common/weights and common/bias.
//
//   WARPS x SLICES warps; BM = 32 * WARPS, BN = 8 * TILES; slices share the common dimension
#ifndef WARPS
#define WARPS 4
#define TILES 13
#define SLICES 2
#define BK 32
#endif
// Tiles of columns whose products are under way at a time.
#ifndef TURN
#define TURN 4
#endif
// Stages that weights are loaded ahead.
#ifndef AHEAD
#define AHEAD 2
#endif

// One stage is multiplied, of the next one halves are made, the third comes.
#define STAGES 3
// x % n: a pair of / and % is compiled to what oclgrind's check of values does not know.
#define REST(x, n) ((x) - mul24((x) / (uint)(n), (uint)(n)))
#define BM (32 * WARPS)
#define BN (8 * TILES)
#define MEMBERS (32 * WARPS)
#define GROUP (MEMBERS * SLICES)
#define STAGE (BK * BN)
#define FOURS (BN / 4)
// Of a work-item's columns the number of that in place i of tile j.
#define COLUMN(j, i) (2 * (j) + (i))

#if BK != 16 * SLICES || TILES > 4 * WARPS || TILES > 15 || (SLICES > 1 && STAGES * STAGE < (SLICES - 1) * 4 * TILES * MEMBERS)
#error "affine_mma: a stage is 16 terms for each slice, a work-item fetches for at most four records and has at most 30 columns, and the sums of half a warp's rows of every slice fit into the stages"
#endif

#if WARP
// The powers of two for rows and records that begin with zeros: of weights up to 8, of values up to 256.
#define ROW_POWER 0x1p12f
#define RECORD_POWER 0x1p7f
// The largest number that halves hold with its power, and the smallest largest one that they hold well.
#define LARGEST 0x1p15f
#define SMALLEST 0.5f

// What two halves lack of x and y.
uint lacking(float x, float y, uint large)
{
    const float2 of = of_halves(large);
    return halves(x - of.x, y - of.y);
}

// The largest of four neighbours' numbers.
float largest_of_four(float x)
{
    x = fmax(x, across(x, 1));
    return fmax(x, across(x, 2));
}
// Whether the power is not the one for numbers of which this is the largest.
#define MISFITS(most, power) ((most) * (power) > LARGEST || ((most) * (power) < SMALLEST && (most) > 0.0f))

// The power that brings `most`, the largest of the first terms, to 2^3 to 2^4. Of two such powers the product is a float.
float first_power(float most, float without)
{
    return most >= 0x1p-40f && most <= 0x1p40f ? as_float((257u - (as_uint(most) >> 23)) << 23) : without;
}

// A power before anything has been seen.
#define NOTHING 0x1p126f
// The power that brings the largest of four neighbours' numbers to 2^11 to 2^12, if it is too large with the one so far. A half of
// what is larger is above 2^15: a row's or record's own numbers decide, whoever of the warp has voted.
float power_for(float most, float power)
{
    most = largest_of_four(most);
    const bool large = most * power > 0x1.002p15f && most < INFINITY;
    return large ? as_float((265u - (as_uint(most) >> 23)) << 23) : power;
}
// Not 0 if a half of the pair is above 2^15.
#define TOO_LARGE(pair) ((((pair) & 0x7fff7fffu) + 0x07ff07ffu) & 0x80008000u)
// 1 / power.
#define INVERSE(power) as_float(0x7f000000u - as_uint(power))
#define SIZE4(x) fmax(fmax(fabs((x)[0]), fabs((x)[1])), fmax(fabs((x)[2]), fabs((x)[3])))

// Where the vector of a work-item's quarter of 16 terms stands for record i of four. Eight work-items reach 32 banks, when they
// fetch and when they multiply.
#define SLOT(four, i) ((four) * 16 + (((i) * 4 + quarter) ^ ((four) % 2 * 4)))
#define SLOTS (STAGE / 4)
// Behind the stages, for two of them: factors of a slice's records, and whether those of a warp are not 1.
#define BEHIND (2 * SLICES * (BN + WARPS) + 1 + BN + BM / 4)
#define FACTORS(odd, slice) (stages + STAGES * STAGE + ((odd) * SLICES + (slice)) * BN)
#define CHANGED(odd, slice) ((local uint *)(stages + STAGES * STAGE + 2 * SLICES * BN) + ((odd) * SLICES + (slice)) * WARPS)
// Behind those, after the first sums: which fours of rows and which records misfit, and whether any does.
#define MISFIT ((local uint *)(stages + STAGES * STAGE + 2 * SLICES * (BN + WARPS)))
#else
#define BEHIND 0
#endif

// A work-item's sums of the terms from `begin` to `end`: of each fragment two rows of two columns; fragment m has rows 2 m and
// 2 m + 1 of the work-item's four. `follow`: powers are those of the largest number so far; else they are the first ones, and
// MISFIT gets the rows and records that these are not for. `pa`: the warp's rows, if it has some.
__attribute__((always_inline)) void sums(const bool follow, float sum[2][TILES][4], local float *stages, uint l, uint w,
                                         uint begin, uint end, bool has_rows, global const UNIT *pa, global const float *b)
{
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint lane = id % 32, eighth = lane / 4, quarter = lane % 4;
    const uint first = get_group_id(1) * BN;
#pragma unroll
    for (uint m = 0; m < 2; ++m)
#pragma unroll
        for (uint j = 0; j < TILES; ++j)
#pragma unroll
            for (uint i = 0; i < 4; ++i)
                sum[m][j][i] = 0.0f;

#if WARP
    // Four records of which this work-item fetches four terms each, as four vectors. They are its alone until they are
    // multiplied.
    const uint four = member / 4;
    const bool fetches = four < FOURS;
    local uint4 *slots = (local uint4 *)stages + slice * (4 * BN);
    local uint4 *own = slots + SLOT(four, 0), *odd_own = slots + SLOT(four, 1);
#define OWN(stage, i) ((i) % 2 ? odd_own + (stage) : own + (stage))[(i) / 2 * 8]
    // Records are a multiple of four: behind the last ones are those again.
    const uint term = slice * 16 + 4 * quarter;
    uint from = min(first + 4 * four, w - 4) * l + begin + term;
    const bool aligned = l % 4 == 0;
    // Fetches the stage that begins with term k: what is behind the last term is 0.
#define FETCH(stage, k) \
    do { \
        const int rest = (int)end - (int)((k) + term); \
        global const float *pb = b + from; \
        if (fetches && aligned) \
            _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
                COPY_16(&OWN(stage, i), pb + i * l, rest > 0 ? 16 : 0); \
        else if (fetches) \
            _Pragma("unroll") for (uint i = 0; i < 16; ++i) \
                COPY_4((local float *)&OWN(stage, i / 4) + i % 4, pb + i / 4 * l + i % 4, rest > (int)(i % 4) ? 4 : 0); \
        from += BK; \
    } while (0)
    pa += (begin + term) * 8;
    // Loads the weights of the stage that begins with term k. Behind the last one there are none.
#define LOAD_WEIGHTS(to, k) \
    do { \
        if (has_rows && (k) + BK <= end) { \
            _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
                (to)[i] = pa[i * 8]; \
        } else if ((k) < end) { \
            const int rest = has_rows ? (int)end - (int)((k) + term) : 0; \
            _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
                (to)[i] = rest > (int)i ? pa[i * 8] : (UNIT)(0); \
        } \
        pa += BK * 8; \
    } while (0)
    // Of the work-item's four rows, and of its four records: their powers and largest numbers.
    float row_power[4], power[4], row_most[4], most[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        row_power[i] = NARROW ? 1.0f : NOTHING;
        power[i] = NOTHING;
        row_most[i] = most[i] = 0.0f;
    }
    // The four terms of each of the work-item's records; of its rows, of weights that have come.
#define VALUES(to, stage) \
    _Pragma("unroll") for (uint i = 0; i < 4; ++i) { \
        const float4 x = fetches ? as_float4(OWN(stage, i)) : (float4)(0.0f); \
        (to)[i][0] = x.x, (to)[i][1] = x.y, (to)[i][2] = x.z, (to)[i][3] = x.w; \
    }
#define TERMS(to, weights) \
    _Pragma("unroll") for (uint i = 0; i < 4; ++i) { \
        const float4 x = WIDE((weights)[i]); \
        (to)[0][i] = x.x, (to)[1][i] = x.y, (to)[2][i] = x.z, (to)[3][i] = x.w; \
    }
#define FIRST_POWERS(to, terms, without) \
    _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
        (to)[i] = first_power(largest_of_four(SIZE4((terms)[i])), without)
    // Makes halves of the values of a stage; of two stages after each other one is odd.
#define CONVERT(stage, odd) \
    do { \
        float raw[4][4]; \
        VALUES(raw, stage); \
        uint large[4][2], size = 0; \
        _Pragma("unroll") for (uint i = 0; i < 8; ++i) { \
            large[i / 2][i % 2] = HALVES(raw, i / 2, i % 2); \
            if (follow) \
                LARGER(size, large[i / 2][i % 2]); \
            else if (i % 2) \
                most[i / 2] = fmax(most[i / 2], SIZE4(raw[i / 2])); \
        } \
        if (follow) { \
            const bool other = any_of_warp(TOO_LARGE(size)); \
            if (other) \
                _Pragma("unroll") for (uint i = 0; i < 4; ++i) { \
                    const float to = power_for(SIZE4(raw[i]), power[i]); \
                    if (fetches && quarter == 0) \
                        FACTORS(odd, slice)[4 * four + i] = to * INVERSE(power[i]); \
                    power[i] = to; \
                    large[i][0] = HALVES(raw, i, 0); \
                    large[i][1] = HALVES(raw, i, 1); \
                } \
            if (lane == 0) \
                CHANGED(odd, slice)[member / 32] = other; \
        } \
        _Pragma("unroll") for (uint i = 0; i < 4; ++i) \
            if (fetches) \
                OWN(stage, i) = (uint4)(large[i][0], large[i][1], REST_OF(raw, i, 0, large[i][0]), REST_OF(raw, i, 1, large[i][1])); \
    } while (0)
#define HALVES(raw, n, i) halves(raw[n][2 * (i)] * power[n], raw[n][2 * (i) + 1] * power[n])
#define REST_OF(raw, n, i, large) lacking(raw[n][2 * (i)] * power[n], raw[n][2 * (i) + 1] * power[n], large)

    if (begin < end)
        FETCH(0, begin);
    COMMIT_COPIES;
    if (begin + BK < end)
        FETCH(SLOTS, begin + BK);
    COMMIT_COPIES;
    UNIT weights[AHEAD][4];
#pragma unroll
    for (uint s = 0; s < AHEAD; ++s) {
#pragma unroll
        for (uint i = 0; i < 4; ++i)
            weights[s][i] = (UNIT)(0);
        LOAD_WEIGHTS(weights[s], begin + s * BK);
    }
    AWAIT_COPIES(1);
    float terms[4][4];
    if (begin < end) {
        if (!follow) {
            VALUES(terms, 0);
            FIRST_POWERS(power, terms, RECORD_POWER);
        }
        CONVERT(0, 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!follow && !NARROW) {
        TERMS(terms, weights[0]);
        FIRST_POWERS(row_power, terms, ROW_POWER);
    }

    // Of a tile the vectors of this work-item's record.
    local const uint4 *values = slots + SLOT(eighth / 4, eighth % 4);
    uint now = 0, then = SLOTS, free = 2 * SLOTS, odd = 0;
#define CONVERT_NEXT \
    do { \
        AWAIT_COPIES(1); \
        if (k + BK < end) \
            CONVERT(then, odd ^ 1); \
    } while (0)
    for (uint k = begin; k < end;) {
        // Each of the turns has registers of its own for the weights that come.
#pragma unroll
        for (uint p = 0; p < AHEAD; ++p) {
            if (p > 0 && k >= end)
                break;
            if (k + 2 * BK < end)
                FETCH(free, k + 2 * BK);
            COMMIT_COPIES;
            // Half of the warps make halves of the next stage while the others multiply.
            if (slice % 2)
                CONVERT_NEXT;
            TERMS(terms, weights[p]);
            uint large[2][4], small[2][4];
            // Of fragment i / 4 the two halves number i % 4: of which row, and of which terms.
#define ROW(i) ((i) / 4 * 2 + (i) % 2)
#define PAIR(i) ((i) % 4 / 2 * 2)
#define LARGE_TERMS \
            _Pragma("unroll") for (uint i = 0; i < 8; ++i) \
                large[i / 4][i % 4] = halves(terms[ROW(i)][PAIR(i)] * row_power[ROW(i)], terms[ROW(i)][PAIR(i) + 1] * row_power[ROW(i)])
            LARGE_TERMS;
#if !NARROW
            uint size = 0;
#pragma unroll
            for (uint i = 0; i < 8; ++i)
                if (follow)
                    LARGER(size, large[i / 4][i % 4]);
                else if (i % 2)
                    row_most[i / 2] = fmax(row_most[i / 2], SIZE4(terms[i / 2]));
            if (follow && any_of_warp(TOO_LARGE(size))) {
#pragma unroll
                for (uint i = 0; i < 4; ++i) {
                    const float to = power_for(SIZE4(terms[i]), row_power[i]);
                    const float by = to * INVERSE(row_power[i]);
                    row_power[i] = to;
#pragma unroll
                    for (uint j = 0; j < TILES; ++j) {
                        sum[i / 2][j][i % 2 * 2] *= by;
                        sum[i / 2][j][i % 2 * 2 + 1] *= by;
                    }
                }
                LARGE_TERMS;
            }
#pragma unroll
            for (uint i = 0; i < 8; ++i)
                small[i / 4][i % 4] = lacking(terms[ROW(i)][PAIR(i)] * row_power[ROW(i)],
                                              terms[ROW(i)][PAIR(i) + 1] * row_power[ROW(i)], large[i / 4][i % 4]);
#endif
            LOAD_WEIGHTS(weights[p], k + AHEAD * BK);
            uint any = 0;
#pragma unroll
            for (uint g = 0; g < WARPS; ++g)
                if (follow)
                    any |= CHANGED(odd, slice)[g];
            if (any)
#pragma unroll
                for (uint j = 0; j < TILES; ++j)
                    if (CHANGED(odd, slice)[j / 4]) {
                        local const float *by = FACTORS(odd, slice) + 8 * j + 2 * quarter;
#pragma unroll
                        for (uint i = 0; i < 8; ++i)
                            sum[i / 4][j][i % 4] *= by[i % 2];
                    }
            local const uint4 *at = values + now;
#pragma unroll
            for (uint j0 = 0; j0 < TILES; j0 += TURN) {
#define EACH_TILE _Pragma("unroll") for (uint j = 0; j < TURN; ++j) if (j0 + j < TILES)
                uint4 v[TURN];
                EACH_TILE
                    v[j] = at[(j0 + j) * 32];
#define PRODUCTS(p, q0, q1) EACH_TILE _Pragma("unroll") for (uint m = 0; m < 2; ++m) MULTIPLY_F16(sum[m][j0 + j], p[m], v[j].q0, v[j].q1)
                PRODUCTS(large, z, w);
#if !NARROW
                PRODUCTS(small, x, y);
#endif
                PRODUCTS(large, x, y);
            }
            if (slice % 2 == 0)
                CONVERT_NEXT;
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint last = now;
            now = then, then = free, free = last, odd ^= 1, k += BK;
        }
    }

    if (!follow)
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            const float of_record = largest_of_four(most[i]), of_row = largest_of_four(row_most[i]);
            if (fetches && MISFITS(of_record, power[i]))
                MISFIT[1 + 4 * four + i] = MISFIT[0] = 1;
            if (!NARROW && MISFITS(of_row, row_power[i]))
                MISFIT[1 + BN + member / 32 * 8 + eighth] = MISFIT[0] = 1;
        }
    // Of sums the powers are taken away: those of rows, then those of records.
    if (fetches && quarter == 0)
#pragma unroll
        for (uint i = 0; i < 4; ++i)
            FACTORS(0, slice)[4 * four + i] = INVERSE(power[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < TILES; ++j) {
        local const float *by = FACTORS(0, slice) + 8 * j + 2 * quarter;
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            const float of_row = INVERSE(row_power[i / 2]), of_record = by[i % 2], both = of_row * of_record;
            // Where both are no float, the smaller one first: nothing overflows on the way.
            const bool apart = follow && (both < 0x1p-126f || both > 0x1p126f);
            sum[i / 4][j][i % 4] *= apart ? fmin(of_row, of_record) : both;
            if (apart)
                sum[i / 4][j][i % 4] *= fmax(of_row, of_record);
        }
    }
#else
    for (uint k = begin; k < end; k += BK) {
        for (uint i = id; i < STAGE; i += GROUP) {
            const uint at = k + i / BN, col = first + REST(i, BN);
            stages[i] = at < end && col < w ? b[col * l + at] : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint q = slice * 16; q < slice * 16 + 16; ++q) {
            const float4 x = k + q < end && has_rows ? WIDE(pa[(k + q) * 8]) : (float4)(0.0f);
            for (uint j = 0; j < TILES; ++j)
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
#endif

}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void affine_mma(uint l, uint w, uint h, float2 params,
                       global const UNIT *restrict a,
                       global const float *restrict b,
                       global const float4 *restrict bias,
                       global float4 *restrict r)
{
    local float stages[STAGES * STAGE + BEHIND] __attribute__((aligned(16)));
    const uint id = get_local_id(0);
    const uint slice = id / MEMBERS, member = id % MEMBERS;
    const uint lane = id % 32, eighth = lane / 4, quarter = lane % 4;
    const uint tiles = (h + BM - 1) / BM, parts = get_num_groups(0) / tiles;
    const uint part = (uint)get_group_id(0) / tiles, tile = REST((uint)get_group_id(0), tiles);
    const uint depth = ((l + BK - 1) / BK + parts - 1) / parts * BK;
    const uint begin = min(part * depth, l), end = min(begin + depth, l);
    const uint first = get_group_id(1) * BN;
    // Of a last tile of rows some warps have none.
    const uint row = tile * BM + member / 32 * 32;
    const bool has_rows = row < h;
    // Four rows of a column; a warp takes four columns at a time.
    global const UNIT *pa = a + (has_rows ? row : 0) / 4 * l + eighth;

    float sum[2][TILES][4];
    // Which of the work-item's columns are to be stored.
    uint stored = (1u << 2 * TILES) - 1;
#if WARP
    for (uint i = id; i < 1 + BN + BM / 4; i += GROUP)
        MISFIT[i] = 0;
    sums(false, sum, stages, l, w, begin, end, has_rows, pa, b);
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
            if (MISFIT[1 + BN + member / 32 * 8 + eighth])
                others = stored;
        }
#else
    sums(false, sum, stages, l, w, begin, end, has_rows, pa, b);
#endif

#if SLICES > 1
    // First the sums of one fragment's rows, then of the other's.
#pragma unroll
    for (uint m = 0; m < 2; ++m) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice > 0) {
#pragma unroll
            for (uint i = 0; i < 4 * TILES; ++i)
                stages[((slice - 1) * (4 * TILES) + i) * MEMBERS + member] = sum[m][i / 4][i % 4];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
#pragma unroll
            for (uint s = 0; s + 1 < SLICES; ++s)
#pragma unroll
                for (uint i = 0; i < 4 * TILES; ++i)
                    sum[m][i / 4][i % 4] += stages[(s * (4 * TILES) + i) * MEMBERS + member];
        }
    }
#endif

    const uint at = row + 4 * eighth;
    if (slice == 0 && has_rows)
#pragma unroll
        for (uint j = 0; j < TILES; ++j)
#pragma unroll
            for (uint i = 0; i < 2; ++i) {
                const uint col = first + j * 8 + quarter * 2 + i;
                float4 x = (float4)(sum[0][j][i], sum[0][j][2 + i], sum[1][j][i], sum[1][j][2 + i]);
                if (parts == 1) {
                    x += FIRST(bias, at / 4);
                    x = LAST4(x, bias, at / 4);
                    x = ACTIVATE(x);
                }
                if (col < w && stored >> COLUMN(j, i) & 1)
                    r[(col * parts + part) * (h / 4) + at / 4] = x;
            }
#if WARP
        if (!misfits)
            break;
        stored = others;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums(true, sum, stages, l, w, begin, end, has_rows, pa, b);
    }
#endif
}
