//! Tests on the first device of the OpenCL library that is found. They fail on a machine without a
//! device.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::code_name;
use super::loader::open_from;
use super::*;
use crate::ir::half;
use crate::sys::own::{OwnFile, ReadError};

const SOURCE: &str = "\
__kernel void add(__global const float *a, __global const float *b, __global float *sum, uint n, \
float plus)
{
    uint i = get_global_id(0);
    if (i < n) sum[i] = a[i] + b[i] + plus;
}
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void turn(__global float *x, __local float *t)
{
    uint i = get_local_id(0);
    t[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = t[7 - i];
}
__kernel void pick(__read_only image2d_t from, __global float4 *to)
{
    const sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | \
    CLK_FILTER_NEAREST;
    int x = get_global_id(0), y = get_global_id(1);
    to[y * get_global_size(0) + x] = read_imagef(from, at, (int2)(x, y));
}
";

const N: usize = 64;

fn first_device(library: &'static ClLibrary) -> Device {
    let all = devices(library).expect("platforms can be listed");
    all.devices
        .into_iter()
        .next()
        .expect("the tests need an OpenCL device")
}

fn queue_on(library: &'static ClLibrary, profiling: bool) -> Queue {
    let context = Context::new(&first_device(library)).unwrap();
    Queue::new(&context, profiling).unwrap()
}

fn queue(profiling: bool) -> Queue {
    queue_on(ClLibrary::open().expect("the tests need OpenCL"), profiling)
}

fn program(queue: &Queue) -> Program {
    Program::from_source(queue.context(), "test.cl", SOURCE, "").unwrap()
}

fn host_buffer(queue: &Queue, name: &str, bytes: usize) -> ClBuffer {
    ClBuffer::new(queue, name, bytes, Access::ReadWrite, BufferHome::Shared).unwrap()
}

/// Returns a whole buffer as an argument.
fn whole(buffer: &ClBuffer) -> Argument<'_> {
    Argument::Buffer {
        buffer,
        bytes: buffer.bytes(),
    }
}

/// Binds the kernel `add`, which adds the first `n` numbers of its buffers.
fn add(
    program: &Program,
    buffers: [&ClBuffer; 3],
    n: u32,
    plus: f32,
) -> Result<BoundKernel, ClError> {
    let [a, b, sum] = buffers.map(|buffer| Argument::Buffer {
        buffer,
        bytes: 4 * n as usize,
    });
    program
        .kernel("add")?
        .bind(&[a, b, sum, Argument::U32(n), Argument::F32(plus)])
}

/// A new folder for a test's files, removed at the end.
struct ShimFolder {
    path: PathBuf,
}

impl ShimFolder {
    fn new() -> ShimFolder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "mortonnet-cl-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        ShimFolder { path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Compiles a shared library and returns its path.
    fn compile(&self, name: &str, source: &Path, options: &[String]) -> String {
        let out = self.file(name);
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"])
            .args(options)
            .arg("-o")
            .args([&out, source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("the tests need cc");
        assert!(made.success());
        out.to_str().unwrap().to_string()
    }

    /// Compiles a shim around the OpenCL library that is found, and returns it. The shim logs each
    /// call in the file `log`. `fail` lists the calls that it fails.
    fn shim(&self, fail: &str, more: &[&str]) -> &'static ClLibrary {
        let real = ClLibrary::open().expect("the tests need OpenCL").path();
        let mut options = vec![
            format!("-DSHIM_REAL=\"{real}\""),
            format!("-DSHIM_LOG=\"{}\"", self.file("log").display()),
            format!("-DSHIM_FAIL=\"{fail}\""),
        ];
        options.extend(more.iter().map(|m| m.to_string()));
        let source = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/shim/opencl_shim.c"
        ));
        open_from(&[self.compile("libshim.so", source, &options)]).unwrap()
    }

    /// Returns the calls that the shim logged so far.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("log")).unwrap();
        text.lines().map(str::to_string).collect()
    }
}

impl Drop for ShimFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Two slots that add a constant to their input, as the engine runs its batches.
struct Slots {
    queue: Queue,
    slots: Vec<(MappedBuffer, MappedBuffer, BoundKernel)>,
}

impl Slots {
    fn new(queue: Queue) -> Slots {
        Slots::with(queue, |buffer, mode| Ok(MappedBuffer::new(buffer, mode)))
    }

    fn with(queue: Queue, mapped: fn(ClBuffer, MapMode) -> Result<MappedBuffer, ClError>) -> Slots {
        let program = program(&queue);
        let ones = host_buffer(&queue, "ones", 4 * N);
        ones.upload(&[1f32; N]).unwrap();
        let slot = |i: usize| {
            let input = ClBuffer::new(
                &queue,
                &format!("input {i}"),
                4 * N,
                Access::ReadOnly,
                BufferHome::Shared,
            )
            .unwrap();
            let results = ClBuffer::new(
                &queue,
                &format!("results {i}"),
                4 * N,
                Access::ReadWrite,
                BufferHome::Shared,
            )
            .unwrap();
            let kernel = add(&program, [&input, &ones, &results], N as u32, 0.5).unwrap();
            let mut input = mapped(input, MapMode::Overwrite).unwrap();
            input.enqueue_map().unwrap();
            input.wait().unwrap();
            (input, mapped(results, MapMode::Read).unwrap(), kernel)
        };
        let slots = (0..2).map(slot).collect();
        Slots { queue, slots }
    }

    fn submit(
        &mut self,
        slot: usize,
        batch: usize,
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        let (input, results, kernel) = &mut self.slots[slot];
        if results.is_mapped() {
            results.enqueue_unmap(None)?;
        }
        for (i, x) in input.slice_mut::<f32>().iter_mut().enumerate() {
            *x = (batch * N + i) as f32;
        }
        input.enqueue_unmap(None)?;
        self.queue.launch(kernel, &[N], Some(&[8]), event)?;
        results.enqueue_map()?;
        input.enqueue_map()?;
        self.queue.flush()
    }

    fn collect(&mut self, slot: usize, batch: usize) -> Result<(), ClError> {
        let (input, results, _) = &mut self.slots[slot];
        results.wait()?;
        for (i, x) in results.slice::<f32>().iter().enumerate() {
            assert_eq!(
                *x,
                (batch * N + i) as f32 + 1.5,
                "batch {batch}, element {i}"
            );
        }
        input.wait()
    }

    fn run(&mut self, batches: usize) -> Result<(), ClError> {
        self.submit(0, 0, None)?;
        for batch in 1..batches {
            self.submit(batch % 2, batch, None)?;
            self.collect((batch - 1) % 2, batch - 1)?;
        }
        self.collect((batches - 1) % 2, batches - 1)
    }
}

fn zero(buffer: &ClBuffer) -> Result<(), ClError> {
    buffer.fill_with(|all: &mut [u8]| all.fill(0))
}

#[test]
fn devices_say_what_they_are() {
    let device = first_device(ClLibrary::open().unwrap());
    assert!(!device.name.is_empty() && !device.platform_name.is_empty());
    assert!(device.opencl >= (1, 1), "{}", device.version);
    assert!(device.compute_units > 0 && device.max_work_group > 0 && device.available);
    assert_eq!(device.max_work_items.len(), 3);
    assert!(device.max_alloc > 0 && device.max_alloc <= device.global_mem);
    assert!(device.mem_align.is_power_of_two() && (16..=4096).contains(&device.mem_align));
    assert!(device.compiler_available && device.little_endian && device.timer_resolution > 0);
    assert_eq!(device.index, 0);
}

#[test]
fn two_slots_take_turns() {
    Slots::new(queue(false)).run(9).unwrap();
}

#[test]
fn objects_may_be_used_on_another_thread() {
    if std::env::var_os("OCLGRIND_UNINITIALIZED").is_some() {
        // With this variable, oclgrind 21.10 keeps state in the thread that created the context.
        return;
    }
    let mut slots = Slots::new(queue(false));
    std::thread::spawn(move || slots.run(4).unwrap())
        .join()
        .unwrap();
}

#[test]
fn a_library_of_1_1_is_enough() {
    let folder = ShimFolder::new();
    let queue = queue_on(folder.shim("", &["-DSHIM_ONLY_1_1"]), true);
    assert_eq!(queue.device().opencl, (1, 1));
    assert!(!queue.device().has_1_2());
    zeros(&queue);
    image_roundtrip(&queue, Channel::Float, |v| v);
    image_roundtrip(&queue, Channel::Half, half::from_f32);
    Slots::new(queue).run(4).unwrap();
    assert!(
        folder
            .calls()
            .iter()
            .all(|c| !["clCreateImage", "clEnqueueFillBuffer"].contains(&&**c))
    );
}

#[test]
fn the_hot_loop_creates_nothing_and_releases_every_event() {
    let folder = ShimFolder::new();
    let mut slots = Slots::new(queue_on(folder.shim("", &[]), false));
    slots.run(2).unwrap();
    let before = folder.calls().len();
    slots.run(10).unwrap();
    let calls = folder.calls().split_off(before);
    let count = |name: &str| calls.iter().filter(|c| *c == name).count();
    assert_eq!(count("clEnqueueNDRangeKernel"), 10);
    assert_eq!(count("clEnqueueMapBuffer"), 20);
    assert_eq!(count("clEnqueueUnmapMemObject"), 20);
    assert_eq!(count("clWaitForEvents"), 20);
    assert_eq!(count("clReleaseEvent"), 20);
    assert_eq!(count("clGetEventInfo"), 20);
    assert_eq!(count("clFlush"), 10);
    assert_eq!(calls.len(), 120, "{calls:?}");
}

#[test]
fn staged_slots_take_turns_with_one_copy_each_way() {
    let folder = ShimFolder::new();
    let mut slots = Slots::with(queue_on(folder.shim("", &[]), false), MappedBuffer::staged);
    slots.run(2).unwrap();
    let before = folder.calls().len();
    slots.run(10).unwrap();
    let calls = folder.calls().split_off(before);
    let count = |name: &str| calls.iter().filter(|c| *c == name).count();
    for name in [
        "clEnqueueNDRangeKernel",
        "clEnqueueWriteBuffer",
        "clEnqueueReadBuffer",
        "clFlush",
    ] {
        assert_eq!(count(name), 10, "{name}");
    }
    assert_eq!(
        (count("clWaitForEvents"), count("clReleaseEvent")),
        (20, 20)
    );
    assert_eq!(calls.len(), 80 + count("clGetEventInfo"), "{calls:?}");
    assert_eq!(count("clGetEventInfo"), 20);
}

#[test]
fn a_staged_buffer_has_the_states_of_a_mapped_one() {
    let folder = ShimFolder::new();
    let fail = "clEnqueueReadBuffer:2:-5,clWaitForEvents:1:-6";
    let queue = queue_on(folder.shim(fail, &[]), false);
    let kernel = program(&queue).kernel("turn").unwrap();
    let bytes = 4 * N;
    let device =
        |name| ClBuffer::new(&queue, name, bytes, Access::ReadWrite, BufferHome::Device).unwrap();
    let mut input = MappedBuffer::staged(device("input"), MapMode::Overwrite).unwrap();
    input.enqueue_map().unwrap();
    assert!(input.is_mapped(), "nothing to wait for");
    let bound = kernel
        .bind(&[whole(input.buffer()), Argument::Local(32)])
        .unwrap();
    let error = queue
        .launch(&bound, &[N], Some(&[8]), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("(input) is mapped for the host"), "{error}");
    input
        .slice_mut::<f32>()
        .iter_mut()
        .enumerate()
        .for_each(|(i, x)| *x = i as f32);
    input.enqueue_unmap(None).unwrap();
    queue.launch(&bound, &[N], Some(&[8]), None).unwrap();
    let mut results = MappedBuffer::staged(input.buffer().clone(), MapMode::Read).unwrap();
    results.enqueue_map().unwrap();
    assert!(input.enqueue_map().is_err(), "one view at a time");
    let error = results.wait().unwrap_err();
    assert_eq!((error.call, error.code), ("clWaitForEvents", -6));
    let error = results.enqueue_map().unwrap_err();
    assert_eq!((error.call, error.code), ("clEnqueueReadBuffer", -5));
    results.enqueue_map().unwrap();
    results.wait().unwrap();
    assert!((0..N).all(|i| results.slice::<f32>()[i] == (i / 8 * 8 + 7 - i % 8) as f32));
    drop((input, results, bound));
    drop(queue);
    let calls = folder.calls();
    let count = |name: &str| calls.iter().filter(|c| *c == name).count();
    assert_eq!(count("clCreateBuffer"), count("clReleaseMemObject"));
    assert_eq!(
        count("clEnqueueMapBuffer"),
        count("clEnqueueUnmapMemObject")
    );
    // The three events are those of the write and of two reads. The third read was refused.
    assert_eq!(count("clReleaseEvent"), 3);
}

#[test]
fn everything_is_released() {
    let folder = ShimFolder::new();
    let library = folder.shim("", &[]);
    let mut slots = Slots::new(queue_on(library, true));
    slots.run(3).unwrap();
    // The slots are dropped while a batch is in flight and an event is held.
    let mut event = Event::new();
    slots.submit(0, 3, Some(&mut event)).unwrap();
    drop(slots);
    event.wait().unwrap();
    drop(event);
    let calls = folder.calls();
    let count = |name: &str| calls.iter().filter(|c| *c == name).count();
    for (create, release) in [
        ("clCreateContext", "clReleaseContext"),
        ("clCreateCommandQueue", "clReleaseCommandQueue"),
        ("clCreateBuffer", "clReleaseMemObject"),
        ("clCreateProgramWithSource", "clReleaseProgram"),
        ("clCreateKernel", "clReleaseKernel"),
        ("clEnqueueMapBuffer", "clEnqueueUnmapMemObject"),
    ] {
        assert!(count(create) > 0);
        assert_eq!(count(create), count(release), "{create}");
    }
    // The two numbers are equal. The blocking map of the constant has no event, but the last kernel
    // launch has one.
    assert_eq!(count("clReleaseEvent"), count("clEnqueueMapBuffer"));
}

#[test]
fn failures_are_reported_and_leave_a_usable_state() {
    let folder = ShimFolder::new();
    let fail = "clEnqueueNDRangeKernel:2:-5,clWaitForEvents:4:-6,clEnqueueMapBuffer:9:-12,\
        clCreateKernel:3:-46";
    let queue = queue_on(folder.shim(fail, &[]), false);
    let mut slots = Slots::new(queue.clone());
    slots.submit(0, 0, None).unwrap();
    let error = slots.submit(1, 1, None).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "clEnqueueNDRangeKernel of add: CL_OUT_OF_RESOURCES (-5): global [64], work"
        ),
        "{error}"
    );
    assert!(error.contains("a smaller batch"), "{error}");
    // The shim counts waits. Waits 1 and 2 are for the slots' first maps, 3 is for the results'
    // map, 4 for the input's.
    let error = slots.collect(0, 0).unwrap_err();
    assert_eq!((error.call, error.code), ("clWaitForEvents", -6));
    let (input, ..) = &mut slots.slots[0];
    assert!(!input.is_mapped() && input.wait().is_err());
    input.enqueue_map().unwrap();
    input.wait().unwrap();
    assert_eq!(input.slice::<f32>().len(), N);
    // Six maps were enqueued so far: 1 of the constant, 2 at the start, 2 of the first batch, 1 of
    // the input. Two more make the next one the ninth, which the shim fails.
    let mut other = MappedBuffer::new(host_buffer(&queue, "other", 16), MapMode::Write);
    for _ in 0..2 {
        other.enqueue_map().unwrap();
        other.enqueue_unmap(None).unwrap();
    }
    let error = other.enqueue_map().unwrap_err().to_string();
    assert_eq!(error, "clEnqueueMapBuffer of other: CL_MAP_FAILURE (-12)");
    other.enqueue_map().unwrap();
    let error = program(&queue).kernel("add").unwrap_err().to_string();
    assert_eq!(
        error,
        "clCreateKernel of add in test.cl: CL_INVALID_KERNEL_NAME (-46)"
    );
}

#[test]
fn a_mapped_buffer_is_not_for_kernels() {
    let queue = queue(false);
    let device = queue.device().clone();
    let mut slots = Slots::new(queue.clone());
    let (input, _, kernel) = &mut slots.slots[0];
    let error = queue
        .launch(kernel, &[N], None, None)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "clEnqueueNDRangeKernel of add: CL_INVALID_OPERATION (-59): argument 0 (input 0) is \
         mapped for the host"
    );
    let twin = input.buffer().clone();
    for error in [
        twin.upload(&[0u8]).unwrap_err(),
        zero(&twin).unwrap_err(),
        twin.write(0, &[0u8]).unwrap_err(),
        twin.read(0, &mut [0u8]).unwrap_err(),
        MappedBuffer::new(twin.clone(), MapMode::Read)
            .enqueue_map()
            .unwrap_err(),
        input.enqueue_map().unwrap_err(),
    ] {
        assert_eq!(
            (error.code, &*error.detail),
            (-59, "it is mapped for the host already")
        );
    }
    // The refusal of a second map did not undo the first.
    assert!(input.is_mapped() && queue.launch(kernel, &[N], None, None).is_err());
    input.enqueue_unmap(None).unwrap();
    queue.launch(kernel, &[N], None, None).unwrap();
    // A sub-buffer counts as mapped while another part of its parent is.
    let whole = host_buffer(&queue, "whole", 2 * device.mem_align);
    let [left, right] = [0, 1].map(|i| whole.sub_buffer("part", i * device.mem_align, 4).unwrap());
    let mut mapped = MappedBuffer::new(left, MapMode::Write);
    mapped.enqueue_map().unwrap();
    assert!(zero(&right).is_err() && zero(&whole).is_err());
    drop(mapped);
    zero(&whole).unwrap();
}

#[test]
fn memory_of_another_queue_is_refused() {
    let (here, there) = (queue(false), queue(false));
    let far = host_buffer(&there, "far", 64);
    let error = add(&program(&here), [&far; 3], 1, 0.0).unwrap_err();
    assert_eq!((error.code, &*error.object), (-38, "argument 0 of add"));
    let second = Queue::new(here.context(), false).unwrap();
    let kernel = add(
        &program(&here),
        [&host_buffer(&second, "near", 64); 3],
        1,
        0.0,
    )
    .unwrap();
    let error = here.launch(&kernel, &[1], None, None).unwrap_err();
    assert_eq!(error.detail, "argument 0 (near) belongs to another queue");
    assert_eq!(
        there.launch(&kernel, &[1], None, None).unwrap_err().code,
        -34
    );
}

/// Arguments with which a kernel would access freed or foreign memory are refused before the driver
/// gets them.
#[test]
fn only_a_kernel_with_all_its_arguments_can_be_launched() {
    let folder = ShimFolder::new();
    let queue = queue_on(folder.shim("", &[]), false);
    let program = program(&queue);
    let buffer = host_buffer(&queue, "short", 4 * N - 4);
    let refused = |arguments: &[Argument<'_>]| {
        program
            .kernel("add")
            .unwrap()
            .bind(arguments)
            .unwrap_err()
            .to_string()
    };
    let all = [
        whole(&buffer),
        whole(&buffer),
        whole(&buffer),
        Argument::U32(1),
        Argument::F32(0.0),
    ];
    for (count, given) in [
        (0, &all[..0]),
        (4, &all[..4]),
        (6, &[&all[..], &all[..1]].concat()),
    ] {
        let text =
            format!("CL_INVALID_KERNEL_ARGS (-52): the kernel takes 5 arguments, found {count}");
        assert_eq!(refused(given), format!("clSetKernelArg of add: {text}"));
    }
    let text = "CL_INVALID_BUFFER_SIZE (-61): short has 252 bytes, the kernel may touch 256";
    let error = add(&program, [&buffer; 3], N as u32, 0.0)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!("clSetKernelArg of argument 0 of add: {text}")
    );
    assert!(!folder.calls().iter().any(|c| c == "clSetKernelArg"));
    // The bound kernel keeps its memory alive.
    let ones = host_buffer(&queue, "ones", 4 * N);
    ones.upload(&[1f32; N]).unwrap();
    let kernel = add(&program, [&ones, &ones, &ones], N as u32, 0.5).unwrap();
    let released = |name: &str| folder.calls().iter().filter(|c| *c == name).count();
    let before = released("clReleaseMemObject");
    drop((ones, program));
    queue.launch(&kernel, &[N], None, None).unwrap();
    queue.finish().unwrap();
    assert_eq!(released("clReleaseMemObject"), before);
    drop(kernel);
    assert_eq!(released("clReleaseMemObject"), before + 1);
}

#[test]
fn sub_buffers() {
    let queue = queue(false);
    let align = queue.device().mem_align;
    let program = program(&queue);
    let arena = ClBuffer::new(
        &queue,
        "arena",
        3 * align.max(4 * N),
        Access::ReadWrite,
        BufferHome::Device,
    )
    .unwrap();
    let step = align.max(4 * N);
    let parts: Vec<ClBuffer> = (0..3)
        .map(|i| arena.sub_buffer("part", i * step, 4 * N).unwrap())
        .collect();
    drop(arena);
    parts[0].write(0, &[2f32; N]).unwrap();
    parts[1].write(0, &[3f32; N]).unwrap();
    let kernel = add(&program, [&parts[0], &parts[1], &parts[2]], 5, 0.0).unwrap();
    zero(&parts[2]).unwrap();
    let last = parts[2].clone();
    // The kernel keeps its arguments alive.
    drop(parts);
    queue.launch(&kernel, &[N], None, None).unwrap();
    let mut sums = [9f32; N];
    last.read(0, &mut sums).unwrap();
    assert_eq!(sums[..5], [5f32; 5]);
    assert_eq!(sums[5..], [0f32; N - 5]);
    let whole = host_buffer(&queue, "whole", 4 * align);
    assert_eq!(whole.sub_buffer("odd", align / 2, 4).unwrap_err().code, -13);
    assert_eq!(whole.sub_buffer("far", 4 * align, 4).unwrap_err().code, -30);
}

fn zeros(queue: &Queue) {
    let buffer = host_buffer(queue, "zeros", 13);
    buffer.upload(&[7u8; 13]).unwrap();
    zero(&buffer).unwrap();
    let mut bytes = [1u8; 13];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 13]);
}

#[test]
fn reads_and_writes_stay_inside() {
    let queue = queue(false);
    zeros(&queue);
    let buffer = host_buffer(&queue, "small", 12);
    buffer
        .fill_with(|x: &mut [f32]| x.copy_from_slice(&[1.0, 2.0, 3.0]))
        .unwrap();
    buffer.write(8, &[9f32]).unwrap();
    let mut values = [0f32; 3];
    buffer.read(0, &mut values).unwrap();
    assert_eq!(values, [1.0, 2.0, 9.0]);
    let error = buffer.write(4, &values).unwrap_err().to_string();
    assert_eq!(
        error,
        "clEnqueueWriteBuffer of small: CL_INVALID_VALUE (-30): 12 bytes at 4 are outside its 12 \
         bytes"
    );
    assert!(buffer.read(usize::MAX, &mut values).is_err() && buffer.upload(&[0u8; 13]).is_err());
    let mut mapped = MappedBuffer::new(buffer, MapMode::Read);
    assert!(mapped.enqueue_map_prefix(13).is_err());
    mapped.enqueue_map_prefix(8).unwrap();
    mapped.wait().unwrap();
    assert_eq!(mapped.slice::<f32>(), [1.0, 2.0]);
    assert_eq!(mapped.slice::<u8>().len(), 8);
    let most = queue.device().max_alloc as usize;
    let error = ClBuffer::new(
        &queue,
        "huge",
        most + 1,
        Access::ReadOnly,
        BufferHome::Device,
    )
    .unwrap_err();
    assert_eq!(error.code, -61);
    assert!(
        error
            .to_string()
            .ends_with(&format!("the device allows {most} in one buffer"))
    );
}

#[test]
fn a_panic_while_filling_unmaps() {
    let queue = queue(false);
    let buffer = host_buffer(&queue, "small", 16);
    let fill =
        std::panic::AssertUnwindSafe(|| buffer.fill_with(|_: &mut [u8]| panic!("as intended")));
    assert!(std::panic::catch_unwind(fill).is_err());
    zero(&buffer).unwrap();
}

#[test]
#[should_panic(expected = "small is not mapped for the host")]
fn slices_of_an_unmapped_buffer_panic() {
    let mut mapped = MappedBuffer::new(host_buffer(&queue(false), "small", 16), MapMode::Read);
    mapped.enqueue_map().unwrap();
    mapped.slice::<u8>();
}

#[test]
#[should_panic(expected = "small is mapped to be read only")]
fn writing_to_a_read_map_panics() {
    let mut mapped = MappedBuffer::new(host_buffer(&queue(false), "small", 16), MapMode::Read);
    mapped.enqueue_map().unwrap();
    mapped.wait().unwrap();
    mapped.slice_mut::<u8>();
}

#[test]
fn event_times_are_in_order() {
    let queue = queue(true);
    let mut slots = Slots::new(queue.clone());
    let mut event = Event::new();
    assert!(event.wait().is_err() && event.times().is_err());
    let mut last = 0;
    for batch in 0..4 {
        slots.submit(0, batch, Some(&mut event)).unwrap();
        slots.collect(0, batch).unwrap();
        event.wait().unwrap();
        let t = event.times().unwrap();
        assert!(
            t.queued <= t.submit && t.submit <= t.start && t.start <= t.end,
            "{t:?}"
        );
        assert!(t.start >= last && t.end > 0, "{t:?} after {last}");
        last = t.end;
    }
    event.release();
    assert!(event.times().is_err());
    let (_, results, _) = &mut slots.slots[0];
    results.enqueue_unmap(Some(&mut event)).unwrap();
    event.wait().unwrap();
    results.enqueue_map().unwrap();
    let t = results.wait_timed().unwrap();
    assert!(t.queued <= t.start && t.start <= t.end);
    assert!(results.wait_timed().is_err() && results.wait().is_ok());
}

#[test]
fn kernels_know_their_limits() {
    let queue = queue(false);
    let program = program(&queue);
    let turn = program.kernel("turn").unwrap();
    let buffer = host_buffer(&queue, "x", 4 * N);
    buffer
        .fill_with(|x: &mut [f32]| (0..N).for_each(|i| x[i] = i as f32))
        .unwrap();
    let turn = turn.bind(&[whole(&buffer), Argument::Local(32)]).unwrap();
    assert!(turn.work_group_limit().unwrap() >= 8);
    queue.launch(&turn, &[N], Some(&[8]), None).unwrap();
    let mut x = [0f32; N];
    buffer.read(0, &mut x).unwrap();
    assert!((0..N).all(|i| x[i] == (i ^ 7) as f32), "{x:?}");

    let code = |global: &[usize], local| queue.launch(&turn, global, local, None).unwrap_err().code;
    assert_eq!(code(&[N], Some(&[16])), -54);
    assert_eq!(code(&[60], Some(&[8])), -54);
    assert_eq!(code(&[N], Some(&[8, 1])), -54);
    assert_eq!(code(&[], None), -53);
    let error = program.kernel("nothing").unwrap_err().to_string();
    assert_eq!(
        error,
        "clCreateKernel of nothing in test.cl: CL_INVALID_KERNEL_NAME (-46)"
    );
}

#[test]
fn a_wrong_source_gives_the_log() {
    let queue = queue(false);
    let error = Program::from_source(
        queue.context(),
        "kernels/bad.cl",
        "__kernel void f() { missing(); }",
        "",
    )
    .unwrap_err();
    assert_eq!((error.call, error.code), ("clBuildProgram", -11));
    assert!(error.detail.contains("missing"), "{}", error.detail);
    let whole = crate::error::Error::from(error.clone());
    assert_eq!(
        std::error::Error::source(&whole).and_then(|e| e.downcast_ref()),
        Some(&error)
    );
    let text = whole.to_string();
    assert!(
        text.starts_with("clBuildProgram of kernels/bad.cl: CL_BUILD_PROGRAM_FAILURE (-11)\n"),
        "{text}"
    );
    assert!(Program::from_source(queue.context(), "empty.cl", "", "").is_err());
    assert_eq!(
        Program::from_source(queue.context(), "x.cl", SOURCE, "-DA\0")
            .unwrap_err()
            .code,
        -43
    );
}

#[test]
fn options_reach_the_compiler() {
    let queue = queue(false);
    let source = "__kernel void five(__global uint *x) { x[0] = VALUE; }";
    let program = Program::from_source(queue.context(), "five.cl", source, "-DVALUE=5u").unwrap();
    let buffer = host_buffer(&queue, "x", 4);
    let kernel = program
        .kernel("five")
        .unwrap()
        .bind(&[whole(&buffer)])
        .unwrap();
    queue.launch(&kernel, &[1], None, None).unwrap();
    let mut x = [0u32];
    buffer.read(0, &mut x).unwrap();
    assert_eq!(x, [5]);
}

#[test]
fn binaries_come_back() {
    let queue = queue(false);
    let binary = program(&queue).binary().unwrap();
    assert!(!binary.as_bytes().is_empty());
    let again = Program::from_binary(queue.context(), "test.cl", &binary, "").unwrap();
    again.kernel("add").unwrap();
    // The cache folder keeps binaries in files. A file that others may write is refused, and so is
    // an empty one.
    let folder = ShimFolder::new();
    let file = folder.file("binary");
    std::fs::write(&file, binary.as_bytes()).unwrap();
    let from = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        OwnFile::open(&file)
            .and_then(|own| own.read(1 << 20))
            .map(ProgramBinary::from)
    };
    assert!(
        matches!(from(0o664), Err(ReadError::Refused(why)) if why.contains("others may write"))
    );
    let kept = from(0o644).unwrap();
    Program::from_binary(queue.context(), "test.cl", &kept, "")
        .unwrap()
        .kernel("add")
        .unwrap();
    std::fs::write(&file, b"").unwrap();
    assert!(Program::from_binary(queue.context(), "bad", &from(0o644).unwrap(), "").is_err());
}

/// Checks that kernels read the values that the host wrote to an image. `stored` converts a value
/// to the image's type.
fn image_roundtrip<T: Element + PartialEq + std::fmt::Debug>(
    queue: &Queue,
    channel: Channel,
    stored: impl Fn(f32) -> T,
) {
    let (width, height) = (5, 3);
    let image = Image2d::new(queue, "image", width, height, channel, Access::ReadOnly).unwrap();
    let out = host_buffer(queue, "pixels", width * height * 16);
    let kernel = program(queue).kernel("pick").unwrap();
    let kernel = kernel
        .bind(&[Argument::Image(&image), whole(&out)])
        .unwrap();
    // The second row holds small multiples of 2^-24, which are subnormal halves.
    let value =
        |y: usize, x: usize| (100 * y + x) as f32 * if y == 1 { 2f32.powi(-24) } else { -1.0 };
    let mut mapped = image.map(MapMode::Overwrite).unwrap();
    for y in 0..height {
        mapped
            .row_mut(y)
            .iter_mut()
            .enumerate()
            .for_each(|(x, v)| *v = stored(value(y, x)));
    }
    assert!(image.map(MapMode::Read).is_err());
    assert!(queue.launch(&kernel, &[width, height], None, None).is_err());
    mapped.unmap().unwrap();
    queue.launch(&kernel, &[width, height], None, None).unwrap();
    let mut pixels = vec![0f32; width * height * 4];
    out.read(0, &mut pixels).unwrap();
    for (i, &p) in pixels.iter().enumerate() {
        assert_eq!(p, value(i / (4 * width), i % (4 * width)));
    }
    let mapped = image.map(MapMode::Read).unwrap();
    assert_eq!(mapped.row::<T>(2)[3], stored(-203.0));
    mapped.unmap().unwrap();
    let all: Vec<T> = (0..4 * width * height).map(|i| stored(i as f32)).collect();
    image.upload(&all).unwrap();
    queue.launch(&kernel, &[width, height], None, None).unwrap();
    out.read(0, &mut pixels).unwrap();
    assert!(
        pixels.iter().enumerate().all(|(i, &p)| p == i as f32),
        "{pixels:?}"
    );
}

#[test]
fn images() {
    let queue = queue(false);
    image_roundtrip(&queue, Channel::Float, |v| v);
    image_roundtrip(&queue, Channel::Half, half::from_f32);
    let error = Image2d::new(&queue, "flat", 0, 1, Channel::Half, Access::ReadOnly).unwrap_err();
    assert_eq!(error.code, -40);
}

#[test]
fn libraries_that_are_not_opencl_are_passed_over() {
    let folder = ShimFolder::new();
    let source = folder.file("empty.c");
    std::fs::write(&source, "int clGetPlatformInfo(void) { return 0; }\n").unwrap();
    let empty = folder.compile("libempty.so", &source, &[]);
    let text = folder.file("libtext.so").display().to_string();
    std::fs::write(&text, "not a library").unwrap();
    let shim = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/shim/opencl_shim.c"
    ));
    let real = ClLibrary::open().unwrap().path().to_string();
    let fail = [
        format!("-DSHIM_REAL=\"{real}\""),
        "-DSHIM_FAIL=\"clGetPlatformIDs:0:-1001\"".to_string(),
    ];
    let bare = folder.compile("libbare.so", shim, &fail);
    let error = open_from(&[empty.clone(), text.clone(), bare.clone()])
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 4, "{error}");
    assert_eq!(
        lines[1],
        format!("  {empty}: has no function clGetPlatformIDs")
    );
    assert!(
        lines[2].starts_with(&format!("  {text}: ")) && lines[2].len() > text.len() + 6,
        "{error}"
    );
    assert!(
        lines[3].contains("CL_PLATFORM_NOT_FOUND_KHR (-1001): the OpenCL loader found no driver"),
        "{error}"
    );
    assert_eq!(open_from(&[empty, real.clone()]).unwrap().path(), real);
}

#[test]
fn codes_have_names_and_advice() {
    assert_eq!(code_name(-5), Some("CL_OUT_OF_RESOURCES"));
    assert_eq!(code_name(-68), Some("CL_INVALID_DEVICE_PARTITION_COUNT"));
    assert_eq!(code_name(-1001), Some("CL_PLATFORM_NOT_FOUND_KHR"));
    assert_eq!(code_name(-9999), None);
    assert!((-19..=0).chain(-68..=-30).all(|c| code_name(c).is_some()));
    let error = ClError::new("clEnqueueMapBuffer", -9999, "");
    assert_eq!(
        error.to_string(),
        "clEnqueueMapBuffer: unknown code (-9999)"
    );
    let error = ClError::new("clCreateBuffer", -4, "arena").detail("12 bytes");
    assert_eq!(
        error.to_string(),
        "clCreateBuffer of arena: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4): 12 bytes; too little \
         memory for the device; \
         a smaller batch may fit"
    );
}

/// What a device offers, as its compiler defines it, and the functions that come with it.
const OFFERS: [(&str, &str); 4] = [
    ("", ""),
    (
        "-Dcl_khr_integer_dot_product",
        "int dot_4x8packed_ss_int(uint a, uint b) { return of(as_char4(a), as_char4(b)); }",
    ),
    (
        "-Dcl_arm_integer_dot_product_int8",
        "__attribute__((overloadable)) int arm_dot(char4 a, char4 b) { return of(a, b); }",
    ),
    (
        "-Dcl_arm_integer_dot_product_int8 -Dcl_arm_integer_dot_product_accumulate_int8",
        "__attribute__((overloadable)) int arm_dot_acc(char4 a, char4 b, int c) \
         { return c + of(a, b); }",
    ),
];

/// DOT is called as its extensions say. Their functions are written here, as no device of the
/// tests has them.
#[test]
fn products_of_bytes_are_the_same_by_each_extension() {
    let queue = queue(false);
    let (a, b) = (
        host_buffer(&queue, "a", 4 * N),
        host_buffer(&queue, "b", 4 * N),
    );
    let sums = host_buffer(&queue, "sums", 4 * N);
    let word = |i: u32, by: u32| i.wrapping_mul(by) ^ 0x807F_FF80;
    let words = |by| (0..N as u32).map(|i| word(i, by)).collect::<Vec<_>>();
    let (values, weights) = (words(2_654_435_761), words(40_503_001));
    a.upload(&values).unwrap();
    b.upload(&weights).unwrap();
    for (options, functions) in OFFERS {
        let source = format!(
            "int of(char4 a, char4 b) {{ const int4 p = convert_int4(a) * convert_int4(b); \
             return p.x + p.y + p.z + p.w; }}\n{functions}\n{}\n\
             __kernel void dots(__global const uint *a, __global const uint *b, \
             __global int *sums, int c)\n\
             {{ uint i = get_global_id(0); sums[i] = DOT(a[i], b[i], c); }}\n",
            include_str!("../../kernels/common/dot.cl")
        );
        let options = format!("-cl-std=CL1.1 {options}");
        let program = Program::from_source(queue.context(), "dots.cl", &source, &options).unwrap();
        let arguments = [whole(&a), whole(&b), whole(&sums), Argument::U32(7)];
        let kernel = program.kernel("dots").unwrap().bind(&arguments).unwrap();
        queue.launch(&kernel, &[N], None, None).unwrap();
        queue.finish().unwrap();
        let mut found = [0u32; N];
        sums.read(0, &mut found).unwrap();
        let bytes = |w: u32| w.to_le_bytes().map(|b| i32::from(b as i8));
        for ((&v, &w), sum) in values.iter().zip(&weights).zip(found) {
            let products = bytes(v).into_iter().zip(bytes(w)).map(|(x, y)| x * y);
            assert_eq!(
                sum as i32,
                7 + products.sum::<i32>(),
                "{options}: {v:x} and {w:x}"
            );
        }
    }
}
