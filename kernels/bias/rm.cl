// Adds a bias to every column, one element per work-item.
// Baseline.
// Source: thesis, source 6.3.
// Layouts: r R; bias is plain.
kernel void bias_rm(uint w,
                    global float *restrict r,
                    global const float *restrict bias)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    r[row * w + col] += bias[row];
}
