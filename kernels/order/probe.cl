// Numbers the work-items from 1, in the order in which the device runs them. A group is one
// work-item, so the numbers show the order of groups. Source: thesis, section 7.2.1 and figure
// 12.1, a 33x33 matrix. Its kernel counts the non-zero entries, which is a race between groups, so
// this one counts atomically. Layouts: r R, plain numbers. counter is 0 before the launch, and w
// times the rows after it.
#ifdef GROUP_0
__attribute__((reqd_work_group_size(GROUP_0, GROUP_1, 1)))
#endif
kernel void order_probe(uint w,
                        global volatile uint *restrict counter,
                        global uint *restrict r)
{
    const uint row = get_global_id(0);
    const uint col = get_global_id(1);
    r[row * w + col] = atomic_inc(counter) + 1;
}
