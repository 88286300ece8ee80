// Where a kernel that knows of images reads and writes: the parts of its argument `geometry`. This
// stands in front of every source whose kernel has that argument. An image stands among the rows of
// a matrix: element (c, y, x) in row FIRST + y * LINE + x * PIXEL + c.
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

// What every kernel of images begins with: dimension 1 runs over columns, or units of several,
// pixel by pixel. unit: the name of the column's number; (y, x) is the pixel of the result. In 32
// bits: a 64-bit division is 300 instructions of a Bifrost.
#define PIXEL_AND(unit) \
    const uint number = get_global_id(1), units = (uint)get_global_size(1) / (OUT_HEIGHT * OUT_WIDTH); \
    const uint pixel = number / units, unit = number - pixel * units; \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
// The same, the units one after the other: a work-group of a CPU goes through an image as it stands
// in memory.
#define PIXEL_OF(unit) \
    const uint number = get_global_id(1), pixels = OUT_HEIGHT * OUT_WIDTH; \
    const uint unit = number / pixels, pixel = number - unit * pixels; \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
// The same where columns are packed by 16: dimension 1 runs over fours of them, chunk by chunk and
// there pixel by pixel, so that the lines of an image that a window needs are still in the cache.
// unit: which of a chunk's fours.
#define PACKED_PIXEL_AND(chunk, unit) \
    const uint number = (uint)get_global_id(1) >> 2, unit = get_global_id(1) & 3; \
    const uint chunk = number / (OUT_HEIGHT * OUT_WIDTH), pixel = number - chunk * (OUT_HEIGHT * OUT_WIDTH); \
    const uint y = pixel / OUT_WIDTH, x = pixel - y * OUT_WIDTH
#define OUT_ROW (OUT_FIRST + y * OUT_LINE + x * OUT_PIXEL)

// The turns of a loop over a window that are inside an image of `size` pixels: of a window that
// begins at pixel (at - border), n pixels wide, whose elements are `dilation` apart. Few loops have
// a turn, and none divides.
#define INSIDE(from, end, at, border, dilation, size, n) \
    uint from = 0, end = (n); \
    while (from < end && (at) + from * (dilation) < (border)) \
        ++from; \
    while (end > from && (at) + (end - 1) * (dilation) >= (border) + (size)) \
        --end

// The border once for all of the window at pixel (y, x): its turns are those inside the image.
#define WINDOW_INSIDE \
    const uint top = y * STRIDE_Y, left = x * STRIDE_X; \
    INSIDE(from_y, end_y, top, BORDER_TOP, DILATION_Y, IN_HEIGHT, WINDOW_HEIGHT); \
    INSIDE(from_x, end_x, left, BORDER_LEFT, DILATION_X, IN_WIDTH, WINDOW_WIDTH)
#define IN_ROW(ky, kx) \
    (IN_FIRST + (top + (ky) * DILATION_Y - BORDER_TOP) * IN_LINE + (left + (kx) * DILATION_X - BORDER_LEFT) * IN_PIXEL)

// A line of the window is one run of rows where its pixels and their channels stand one after the
// other: how many runs there are, how long each is, and rows from one to the next.
#define RUNS_INSIDE \
    const uint inside = end_x - from_x; \
    const bool whole = IN_PIXEL == GROUP_CHANNELS && DILATION_X == 1; \
    const uint runs = whole ? min(inside, 1u) : inside; \
    const uint length = whole ? inside * GROUP_CHANNELS : GROUP_CHANNELS; \
    const uint step = whole ? 0 : DILATION_X * IN_PIXEL; \
    const uint taps = WINDOW_HEIGHT * WINDOW_WIDTH * GROUP_CHANNELS

// POOL: 0 the largest value, 1 the mean of what is inside the image, 2 the mean with zeros in the
// border. A mean divides by ELEMENTS: what lies behind the border does not count.
#ifndef POOL
#define POOL 0
#endif
#define BEFORE(at, dilation, n, end) min((n), ((end) - (at) + (dilation) - 1) / (dilation))
#define ELEMENTS \
    (POOL == 1 ? (float)((end_y - from_y) * (end_x - from_x)) \
                 : (float)(BEFORE(top, DILATION_Y, WINDOW_HEIGHT, BORDER_TOP + IN_HEIGHT + BORDER_BOTTOM) * \
                           BEFORE(left, DILATION_X, WINDOW_WIDTH, BORDER_LEFT + IN_WIDTH + BORDER_RIGHT)))

// Weights are floats, halves or bytes: single ones and vectors of 16 (those of 4: common/bias).
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

// 16 channels of column n of a matrix whose chunks are 16 rows by RECORDS columns, from row `row`
// on; behind the last channel the last one again. Where they do not begin with a chunk, one by one.
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
// Which of 16 channels from channel `first` on there are.
#define REAL_CHANNELS(first) \
    ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (int)(first) < (int)OUTPUTS)
