// Measures how fast a device computes: chains of multiply-adds on vectors in registers, without
// memory in the loop. The CHAINS chains are independent, so each hides the latency of the others.
// WIDTH is the length of the vectors. Source: own. Layouts: plain numbers, WIDTH per work-item.
// Each number becomes x * 0.75 + 0.5, l times.
#ifndef WIDTH
#define WIDTH 4
#endif

#define GLUE(a, b) a##b
#define OF_WIDTH(name, width) GLUE(name, width)
typedef OF_WIDTH(float, WIDTH) vector;

kernel void probe_fma(uint l,
                      global const float *restrict a,
                      global float *restrict r)
{
    const uint i = get_global_id(1) * get_global_size(0) + get_global_id(0);
    const vector m = (vector)(0.75f);
    const vector b = (vector)(0.5f);
    vector c0 = OF_WIDTH(vload, WIDTH)(i, a), c1 = c0 + 1.0f, c2 = c0 + 2.0f, c3 = c0 + 3.0f;
    vector c4 = c0 + 4.0f, c5 = c0 + 5.0f, c6 = c0 + 6.0f, c7 = c0 + 7.0f;
    for (uint k = 0; k < l; ++k) {
        c0 = c0 * m + b;
        c1 = c1 * m + b;
        c2 = c2 * m + b;
        c3 = c3 * m + b;
        c4 = c4 * m + b;
        c5 = c5 * m + b;
        c6 = c6 * m + b;
        c7 = c7 * m + b;
    }
    const vector sum = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7));
    OF_WIDTH(vstore, WIDTH)(sum, i, r);
}
