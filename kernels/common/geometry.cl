// Where a kernel that knows of images reads and writes: the parts of its argument `geometry`. This stands in front of
// every source whose kernel has that argument.
// An image stands among the rows of a matrix: element (c, y, x) in row FIRST + y * LINE + x * PIXEL + c.
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

// The first turn of a loop over a window that is inside an image, and the turn behind the last one: of a window that
// begins at pixel (at - border), n pixels wide, whose elements are `dilation` apart.
#define FIRST_INSIDE(at, border, dilation) ((at) < (border) ? ((border) - (at) + (dilation) - 1) / (dilation) : 0u)
#define END_INSIDE(at, border, dilation, size, n) \
    ((at) < (border) + (n) ? min((size), ((border) + (n) - (at) + (dilation) - 1) / (dilation)) : 0u)
