// The fields of the argument `geometry`: the images that a kernel reads and writes, and its window.
// This file precedes every source whose kernel has that argument. Element (c, y, x) of an image is
// in row FIRST + y * LINE + x * PIXEL + c of its matrix.
#define IN_FIRST geometry.s0
#define IN_PIXEL geometry.s1
#define IN_LINE geometry.s2
#define IN_HEIGHT (geometry.s3 & 0xFFFF)
#define IN_WIDTH (geometry.s3 >> 16)
#define OUT_FIRST geometry.s4
#define OUT_PIXEL geometry.s5
#define OUT_LINE geometry.s6
#define OUT_HEIGHT (geometry.s7 & 0xFFFF)
#define OUT_WIDTH (geometry.s7 >> 16)
#define WINDOW_HEIGHT (geometry.s8 & 0xFFFF)
#define WINDOW_WIDTH (geometry.s8 >> 16)
#define STRIDE_Y (geometry.s9 & 0xFFFF)
#define STRIDE_X (geometry.s9 >> 16)
#define DILATION_Y (geometry.sa & 0xFFFF)
#define DILATION_X (geometry.sa >> 16)
#define BORDER_TOP (geometry.sb & 0xFFFF)
#define BORDER_LEFT (geometry.sb >> 16)
#define BORDER_BOTTOM (geometry.sc & 0xFFFF)
#define BORDER_RIGHT (geometry.sc >> 16)
#define GROUP_CHANNELS geometry.sd
#define GROUP_OUTPUTS geometry.se
#define OUTPUTS geometry.sf

// Starts an image kernel: finds pixel (y, x) of the result, and the column or group of columns.
// Dimension 1 runs over pixels, then the columns of each. `unit` names the variable for the column
// or group. All numbers have 32 bits, because a 64-bit division takes 300 instructions on a
// Bifrost.
#define PIXEL_AND(unit) \
    const uint number = get_global_id(1); \
    const uint units = (uint)get_global_size(1) / (OUT_HEIGHT * OUT_WIDTH); \
    const uint pixel = number / units, unit = number - pixel * units; \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
// Like PIXEL_AND, with columns outermost. A work-group on a CPU then reads an image in memory
// order.
#define PIXEL_OF(unit) \
    const uint number = get_global_id(1), pixels = OUT_HEIGHT * OUT_WIDTH; \
    const uint unit = number / pixels, pixel = number - unit * pixels; \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
// Like PIXEL_AND, for columns packed by 16. Dimension 1 runs over chunks, the pixels of each, then
// its four fours of columns. The image lines of a window then stay in the cache. `unit` names the
// variable for the four.
#define PACKED_PIXEL_AND(chunk, unit) \
    const uint number = (uint)get_global_id(1) >> 2, unit = get_global_id(1) & 3; \
    const uint chunk = number / (OUT_HEIGHT * OUT_WIDTH); \
    const uint pixel = number - chunk * (OUT_HEIGHT * OUT_WIDTH); \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
#define OUT_ROW (OUT_FIRST + y * OUT_LINE + x * OUT_PIXEL)

// Finds the window elements from..end inside an image of `size` pixels. The window starts at pixel
// (at - border) and has n elements, `dilation` apart. The loops rarely turn, and nothing is
// divided.
#define INSIDE(from, end, at, border, dilation, size, n) \
    uint from = 0, end = (n); \
    while (from < end && (at) + from * (dilation) < (border)) \
        ++from; \
    while (end > from && (at) + (end - 1) * (dilation) >= (border) + (size)) \
        --end

// Finds the part of the window at pixel (y, x) that is inside the image, so that loops over it need
// no check.
#define WINDOW_INSIDE \
    const uint top = y * STRIDE_Y, left = x * STRIDE_X; \
    INSIDE(from_y, end_y, top, BORDER_TOP, DILATION_Y, IN_HEIGHT, WINDOW_HEIGHT); \
    INSIDE(from_x, end_x, left, BORDER_LEFT, DILATION_X, IN_WIDTH, WINDOW_WIDTH)
#define IN_ROW(ky, kx) \
    (IN_FIRST + (top + (ky) * DILATION_Y - BORDER_TOP) * IN_LINE \
     + (left + (kx) * DILATION_X - BORDER_LEFT) * IN_PIXEL)

// Finds the runs of contiguous rows in a line of the window: their number, their length and the
// distance between them. A line is one run if its pixels and channels are contiguous.
#define RUNS_INSIDE \
    const uint inside = end_x - from_x; \
    const bool whole = IN_PIXEL == GROUP_CHANNELS && DILATION_X == 1; \
    const uint runs = whole ? min(inside, 1u) : inside; \
    const uint length = whole ? inside * GROUP_CHANNELS : GROUP_CHANNELS; \
    const uint step = whole ? 0 : DILATION_X * IN_PIXEL; \
    const uint taps = WINDOW_HEIGHT * WINDOW_WIDTH * GROUP_CHANNELS

// POOL: 0 the largest value, 1 the mean of the elements inside the image, 2 the mean with zeros in
// the border. A mean divides by ELEMENTS, which excludes elements outside the border.
#ifndef POOL
#define POOL 0
#endif
#define BEFORE(at, dilation, n, end) min((n), ((end) - (at) + (dilation) - 1) / (dilation))
#define ELEMENTS \
    (POOL == 1 ? (float)((end_y - from_y) * (end_x - from_x)) \
                 : (float)(BEFORE(top, DILATION_Y, WINDOW_HEIGHT, \
                                  BORDER_TOP + IN_HEIGHT + BORDER_BOTTOM) * \
                           BEFORE(left, DILATION_X, WINDOW_WIDTH, \
                                  BORDER_LEFT + IN_WIDTH + BORDER_RIGHT)))

// Single weights and vectors of 16. common/bias has vectors of four.
#ifdef BYTE_WEIGHTS
#define WEIGHT char
#define LOAD(p, i) convert_float((p)[i])
#define LOAD16(p, i) convert_float16(vload16((i), (p)))
#elif defined HALF_WEIGHTS
#define WEIGHT half
#define LOAD(p, i) vload_half((i), (p))
#define LOAD16(p, i) vload_half16((i), (p))
#else
#define WEIGHT float
#define LOAD(p, i) (p)[i]
#define LOAD16(p, i) vload16((i), (p))
#endif

// Loads 16 channels of column n from row `row` on. The matrix has chunks of 16 rows by RECORDS
// columns. Channels behind `last` repeat it. Rows that do not start a chunk are loaded one by one.
#define LOAD_CHANNELS(v, p, row, n, last) \
    float16 v; \
    if (((row) & 15) == 0) { \
        v = vload16(0, (p) + (size_t)RECORDS * (row) + 16 * (n)); \
    } else { \
        float all[16]; \
        for (uint c = 0; c < 16; ++c) { \
            const uint at = (row) + min(c, (uint)(last)); \
            all[c] = (p)[(at >> 4) * (16 * RECORDS) + 16 * (n) + (at & 15)]; \
        } \
        v = vload16(0, all); \
    }
// A mask of the channels that exist among the 16 from `first` on.
#define REAL_CHANNELS(first) \
    ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (int)(first) < (int)OUTPUTS)
