// Convolution of whole numbers with bias and activation, where a record's values are contiguous. A
// work-group computes TM outputs of TC columns. A work-item computes 4 * RF outputs of four
// neighbouring columns.
// Differs from convolution/records: products of bytes are summed in integers, four at a time.
// Values are floats in memory. A work-group packs KQ fours of the window of each column into local
// memory, while the next ones are loaded. SLICES parts of the work-group share these fours and add
// their sums in local memory. Source: own.
// Layouts: a R_TM_4_R, with columns in the order ky, kx, c; b and r C. The first column of bias has
// whole numbers as the bits of integers, the others are as in common/bias. The kernel counts values
// from 128 more than `value`, and these numbers contain what that changes.
// ACTIVATION: as in common/activation. ADD: c has the layout of r and is added before the
// activation.
// Dimension 0 runs over work-groups of TM outputs, dimension 1 over those of columns, record by
// record. Behind the last column the last one is computed again and not stored.
#define ROWS (TM / 4)
#define LANES (TC / 4)
#define ITEMS (ROWS / RF * LANES)
#define GROUP (ITEMS * SLICES)
// Fours of values that a work-item packs at a time, and their columns' distance.
#define LOADS (TC * KQ / GROUP)
#define APART (GROUP / KQ)
// Words that a work-item moves at a time, as vectors of four.
#define MOVED (ROWS * KQ)
#define MOVES ((MOVED + GROUP - 1) / GROUP)
// A line of packed values. Four more words put the lines of neighbours into different banks.
#define LINE (TC + 4)
#define STAGED (MOVED + KQ * LINE / 4)
#define SUMS (SLICES > 1 ? GROUP * 4 * RF : 0)

// Loads weights and values of the fours from `from` on into registers.
#define FETCH(from) \
    _Pragma("unroll") for (uint i = 0; i < MOVES; ++i) { \
        const uint at = id + i * GROUP; \
        next[i] = at < MOVED && (from) + at / ROWS < all ? pa[(from) * ROWS + at] : (uint4)(0); \
    } \
    while (channel >= turns) { \
        channel -= turns; \
        if (++kx == WINDOW_WIDTH) \
            kx = 0, ++ky; \
    } \
    _Pragma("unroll") for (uint p = 0; p < LOADS; ++p) { \
        const uint line = top[p] + ky * DILATION_Y, pixel = left[p] + kx * DILATION_X; \
        inside[p] = line < IN_HEIGHT && pixel < IN_WIDTH && (from) + mine < all; \
        if (inside[p]) \
            values[p] = vload4(channel, record[p] + line * IN_LINE + pixel * IN_PIXEL); \
    } \
    channel += KQ;
// Adds the products of the values `v` of column t and the weights of four outputs.
#define PRODUCTS(t, v) \
    sums[t][i] = (int4)(DOT(v, weights.x, sums[t][i].x), DOT(v, weights.y, sums[t][i].y), \
                        DOT(v, weights.z, sums[t][i].z), DOT(v, weights.w, sums[t][i].w))

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void convolution_whole(uint l, uint w, uint h, float2 params, float value, uint16 geometry,
                              global const uint4 *restrict a,
                              global const float *restrict b,
                              global const float4 *restrict bias,
#ifdef ADD
                              global const float4 *restrict c,
#endif
                              global float4 *restrict r)
{
    local uint4 staged[SUMS > STAGED ? SUMS : STAGED];
    local uint misfits[TC];
    local uint *packed = (local uint *)(staged + MOVED);
    const uint id = get_local_id(0), slice = id / ITEMS, item = id - slice * ITEMS;
    const uint some = item / LANES * RF, lane = item - some / RF * LANES;
    const uint panel = get_group_id(0), first = get_group_id(1) * TC;
    const uint pixels = OUT_HEIGHT * OUT_WIDTH, columns = w * pixels;
    const uint turns = GROUP_CHANNELS / 4, all = WINDOW_HEIGHT * WINDOW_WIDTH * turns;
    global const uint4 *pa = a + ROWS * (panel * all);
    const float shift = SHIFT(value);
    const uint border = (uint)-(int)value * 0x01010101u ^ MIDDLE;
    // This work-item packs number `mine` of the fours.
    const uint mine = id % KQ;
    global const float *record[LOADS];
    uint top[LOADS], left[LOADS], bits[LOADS];
#pragma unroll
    for (uint p = 0; p < LOADS; ++p) {
        const uint column = min(first + id / KQ + p * APART, columns - 1);
        const uint n = column / pixels, pixel = column - n * pixels;
        const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
        record[p] = b + n * l + IN_FIRST;
        // Coordinates above or left of the image wrap to large numbers, so one comparison finds
        // both sides.
        top[p] = y * STRIDE_Y - BORDER_TOP;
        left[p] = x * STRIDE_X - BORDER_LEFT;
        bits[p] = PROVEN;
    }
    for (uint i = id; i < TC; i += GROUP)
        misfits[i] = 0;
    uint tap = mine / turns, ky = tap / WINDOW_WIDTH, kx = tap - ky * WINDOW_WIDTH;
    uint channel = mine - tap * turns;
    float4 values[LOADS];
    uint inside[LOADS];
    uint4 next[MOVES];

    int4 sums[4][RF];
#pragma unroll
    for (uint t = 0; t < 4; ++t)
#pragma unroll
        for (uint i = 0; i < RF; ++i)
            sums[t][i] = (int4)(0);
    FETCH(0)
    for (uint chunk = 0; chunk < all; chunk += KQ) {
#pragma unroll
        for (uint i = 0; i < MOVES; ++i)
            if (MOVED % GROUP == 0 || id + i * GROUP < MOVED)
                staged[id + i * GROUP] = next[i];
#pragma unroll
        for (uint p = 0; p < LOADS; ++p) {
            const uint4 whole = WHOLE_BITS(values[p], shift);
            bits[p] |= inside[p] ? whole.x | whole.y | whole.z | whole.w : 0;
            packed[mine * LINE + id / KQ + p * APART] = inside[p] ? BYTES_OF(whole) : border;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FETCH(chunk + KQ)
#pragma unroll
        for (uint q = 0; q < KQ / SLICES; ++q) {
            const uint four = q * SLICES + slice;
            const uint4 v = vload4(lane, packed + four * LINE);
#pragma unroll
            for (uint i = 0; i < RF; ++i) {
                const uint4 weights = staged[four * ROWS + some + i];
                PRODUCTS(0, v.x);
                PRODUCTS(1, v.y);
                PRODUCTS(2, v.z);
                PRODUCTS(3, v.w);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    // A NaN or an infinity among a column's values makes all its results NaN.
#pragma unroll
    for (uint p = 0; p < LOADS; ++p)
        if ((bits[p] & ~255u) != PROVEN)
            atomic_or(misfits + id / KQ + p * APART, 1u);
#if SLICES > 1
    // Each slice adds up some of the results over all slices.
#pragma unroll
    for (uint t = 0; t < 4; ++t)
#pragma unroll
        for (uint i = 0; i < RF; ++i)
            staged[((slice * 4 + t) * RF + i) * ITEMS + item] = as_uint4(sums[t][i]);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint t = 0; t < 4; ++t) {
        const uint column = first + 4 * lane + t;
        const uint n = column / pixels, pixel = column - n * pixels;
        const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
        const uint to = (n * h + OUT_ROW) / 4;
#pragma unroll
        for (uint i = 0; i < RF; ++i) {
            const uint row = panel * ROWS + some + i;
            if ((t * RF + i) % SLICES != slice || column >= columns || 4 * row >= OUT_PIXEL)
                continue;
            int4 whole = sums[t][i];
#if SLICES > 1
            whole = (int4)(0);
            for (uint s = 0; s < SLICES; ++s)
                whole += as_int4(staged[((s * 4 + t) * RF + i) * ITEMS + item]);
#endif
            float4 sum = convert_float4(whole + as_int4(FIRST(bias, row)));
            if (misfits[4 * lane + t])
                sum = (float4)(NAN);
            sum = LAST(sum, bias, row);
#ifdef ADD
            sum += c[to + row];
#endif
            r[to + row] = ACTIVATE(sum);
        }
    }
}
