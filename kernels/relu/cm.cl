// ReLU in place, one element per work-item of a column-major matrix.
// Differs from relu_rm: neighbours along dimension 0 are neighbours in memory.
// relu_cm_grouped is the same with work-groups of 4x16.
// Source: thesis, section 9.2 (measured there for the sigmoid); groups: section 7.2.
// Layouts: r C.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void relu_cm(uint h, global float *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    const uint at = col * h + row;
    const float x = r[at];
    r[at] = RELU(x);
}
