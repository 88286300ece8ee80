// Convolution with bias and activation, where a record's values are contiguous. A work-group
// computes TM outputs of LANES * TN columns. A work-item computes all TM outputs of TN columns,
// which are LANES apart.
// Differs from the others: columns are the pixels of all records, so one record keeps many
// work-items busy. If columns are few, SLICES work-items share a column's window and add their sums
// in local memory. Weights pass through local memory, CHANNELS elements of the window at a time,
// while the next ones are loaded. Source: own.
// Layouts: a R_TM_1_C, with columns in the order ky, kx, c; b and r C; bias is plain.
// ACTIVATION: as in common/activation. ADD: c has the layout of r and is added before the
// activation. HALF_WEIGHTS, BYTE_WEIGHTS: the format of a, converted to floats on the way into
// local memory.
// Dimension 0 runs over work-groups of TM outputs, dimension 1 over those of columns, record by
// record. Behind the last column the last one is computed again and not stored.
#ifndef TM
#define TM 16
#define TN 1
#define LANES 32
#define SLICES 8
#endif
#define ROWS (TM / 4)
#define GROUP (LANES * SLICES)
// Groups of four weights that a work-item moves at a time.
#define MOVES (TM > 16 ? 8 : 4)
#define CHANNELS (MOVES * GROUP / ROWS)
#define SUMS (SLICES > 1 ? GROUP * TN * ROWS : 0)

// Runs over this slice's part of the elements from `chunk` on, WIDE channels in a turn. SUM adds
// `values`, one for each column, of turn `at`.
#define TURNS(VALUES, WIDE, SUM) \
    do { \
        const uint turns = GROUP_CHANNELS / WIDE, count = min(all - chunk, (uint)CHANNELS) / WIDE; \
        const uint end = (slice + 1) * count / SLICES; \
        uint at = slice * count / SLICES, tap = (chunk / WIDE + at) / turns; \
        uint c = chunk / WIDE + at - tap * turns; \
        for (; at < end; ++tap, c = 0) { \
            const uint ky = tap / WINDOW_WIDTH, kx = tap - ky * WINDOW_WIDTH; \
            const uint last = min(turns, c + end - at); \
            global const VALUES *from[TN]; \
            uint inside[TN]; \
            _Pragma("unroll") for (uint t = 0; t < TN; ++t) { \
                const uint line = top[t] + ky * DILATION_Y, pixel = left[t] + kx * DILATION_X; \
                inside[t] = line < IN_HEIGHT && pixel < IN_WIDTH; \
                from[t] = (global const VALUES *)( \
                    record[t] + (inside[t] ? line * IN_LINE + pixel * IN_PIXEL : 0)); \
            } \
            _Pragma("unroll 4") for (; c < last; ++c, ++at) { \
                VALUES values[TN]; \
                _Pragma("unroll") for (uint t = 0; t < TN; ++t) \
                    values[t] = inside[t] ? from[t][c] : (VALUES)(0.0f); \
                SUM \
            } \
        } \
    } while (0)
#define PRODUCTS(channel, part) \
    _Pragma("unroll") for (uint i = 0; i < ROWS; ++i) { \
        const float4 weights = staged[(channel) * ROWS + i]; \
        _Pragma("unroll") for (uint t = 0; t < TN; ++t) sums[t][i] += weights * values[t] part; \
    }
// Loads weights from element `from` on into registers.
#define FETCH(from) \
    _Pragma("unroll") for (uint i = 0; i < MOVES; ++i) { \
        const uint four = id + i * GROUP; \
        next[i] = (from) + four / ROWS < all ? LOAD4(pa, (from) * ROWS + four) : (float4)(0.0f); \
    }

__attribute__((reqd_work_group_size(LANES * SLICES, 1, 1)))
kernel void convolution_records(uint l, uint w, uint h, float2 params, uint16 geometry,
                                global const WEIGHT4 *restrict a,
                                global const float *restrict b,
                                global const float4 *restrict bias,
#ifdef ADD
                                global const float4 *restrict c,
#endif
                                global float4 *restrict r)
{
    local float4 staged[SUMS > MOVES * GROUP ? SUMS : MOVES * GROUP];
    const uint id = get_local_id(0), slice = id / LANES, lane = id - slice * LANES;
    const uint panel = get_group_id(0), first = get_group_id(1) * (LANES * TN) + lane;
    const uint pixels = OUT_HEIGHT * OUT_WIDTH, columns = w * pixels;
    const uint all = WINDOW_HEIGHT * WINDOW_WIDTH * GROUP_CHANNELS;
    global const WEIGHT4 *pa = a + UNIT4 * ROWS * (panel * all);
    float4 next[MOVES];
    FETCH(0)
    global const float *record[TN];
    uint top[TN], left[TN], to[TN];
    float4 sums[TN][ROWS];
#pragma unroll
    for (uint t = 0; t < TN; ++t) {
        const uint column = min(first + t * LANES, columns - 1);
        const uint n = column / pixels, pixel = column - n * pixels;
        const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH;
        record[t] = b + n * l + IN_FIRST;
        to[t] = n * h + OUT_ROW;
        // Coordinates above or left of the image wrap to large numbers, so one comparison finds
        // both sides.
        top[t] = y * STRIDE_Y - BORDER_TOP;
        left[t] = x * STRIDE_X - BORDER_LEFT;
#pragma unroll
        for (uint i = 0; i < ROWS; ++i)
            sums[t][i] = (float4)(0.0f);
    }
    const bool wide = ((l | IN_FIRST | IN_LINE | IN_PIXEL | GROUP_CHANNELS) & 3) == 0;
    for (uint chunk = 0; chunk < all; chunk += CHANNELS) {
#pragma unroll
        for (uint i = 0; i < MOVES; ++i)
            staged[id + i * GROUP] = next[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        FETCH(chunk + CHANNELS)
        if (wide)
            TURNS(float4, 4, PRODUCTS(4 * at, .s0) PRODUCTS(4 * at + 1, .s1)
                                 PRODUCTS(4 * at + 2, .s2) PRODUCTS(4 * at + 3, .s3));
        else
            TURNS(float, 1, PRODUCTS(at, ));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if SLICES > 1
    // Each slice adds up some of the results over all slices.
#pragma unroll
    for (uint t = 0; t < TN; ++t)
#pragma unroll
        for (uint i = 0; i < ROWS; ++i)
            staged[((slice * TN + t) * ROWS + i) * LANES + lane] = sums[t][i];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#pragma unroll
    for (uint t = 0; t < TN; ++t)
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
            const uint row = panel * ROWS + i;
            if ((t * ROWS + i) % SLICES != slice || first + t * LANES >= columns
                || 4 * row >= OUT_PIXEL)
                continue;
            float4 sum = sums[t][i];
#if SLICES > 1
            sum = (float4)(0.0f);
            for (uint s = 0; s < SLICES; ++s)
                sum += staged[((s * TN + t) * ROWS + i) * LANES + lane];
#endif
            sum = LAST(sum + FIRST(bias, row), bias, row);
#ifdef ADD
            sum += c[to[t] / 4 + row];
#endif
            r[to[t] / 4 + row] = ACTIVATE(sum);
        }
}
