use super::judge::{judge, layout_of_result};
use super::operands::Operands;
use super::setup::KernelRun;
use super::*;
use crate::baked::library;
use crate::cl::{ClLibrary, devices};

/// Inputs and result of a worked example for `sgemm`, as the web page of ARM's Mali SDK prints
/// them.
#[rustfmt::skip]
const A: [f32; 16] = [
    0.852691, 0.004421, -0.103067, -0.191788,
    -0.23658, 0.0336409, 0.15781, 0.582199,
    -0.0814268, -0.857794, -0.63804, -0.0184786,
    0.793476, 0.459307, 0.955647, -0.306809,
];
#[rustfmt::skip]
const B: [f32; 16] = [
    0.0529994, 0.507535, -0.55821, -0.849519,
    -0.929501, 0.914186, 0.464341, -0.652125,
    0.409218, -0.125776, -0.273086, 0.731335,
    -0.371732, 0.43648, -0.8001, 0.233541,
];
#[rustfmt::skip]
const C: [f32; 16] = [
    -0.380438, -0.188046, 0.665832, -0.503661,
    -0.262456, -0.278552, -0.5179, -0.965873,
    0.459781, 0.720241, -0.22676, -0.719225,
    -0.277435, -0.126954, -0.0564545, -0.142268,
];
#[rustfmt::skip]
const RESULT: [f32; 16] = [
    0.0321557, 0.347259, -0.225749, -0.897793,
    -0.221897, 0.117096, -0.413021, 0.333833,
    0.584754, -0.681301, -0.186507, 0.0857027,
    0.0925018, 0.5558, -0.250792, -0.360579,
];

/// Returns `alpha`·A·B + `beta`·`c`, computed by kernel `entry` without padding.
fn product(lab: &mut Lab, entry: &Entry, c: [f32; 16], alpha: f32, beta: f32) -> Vec<f32> {
    let real = Problem { h: 4, w: 4, l: 4 };
    let mut data = Operands::draw(&mut lab.random(), entry, real, (alpha, beta));
    (data.first.weights, data.b, data.r) = (A.to_vec(), B.to_vec(), c.to_vec());
    let run = KernelRun {
        entry,
        activation: Activation::None,
        group: entry.restrictions.work_group,
        parts: 1,
        canaries: true,
    };
    let setup = lab.setup(&run, &data).unwrap();
    assert!(lab.run(&setup).unwrap());
    judge(&run, &setup, &data).unwrap();
    let Problem { h, w, .. } = setup.padded;
    let r = setup.buffer("r").unwrap().read::<f32>(h * w).unwrap();
    layout_of_result(entry).unpack(&r, (4, 4), (h, w))
}

/// Every kernel with alpha and beta computes the SDK's worked example. With beta = 0 it must not
/// read the old contents of the result.
#[test]
fn the_worked_example_of_the_sdk() {
    let all = devices(ClLibrary::open().expect("the tests need OpenCL")).unwrap();
    let device = all
        .devices
        .into_iter()
        .next()
        .expect("the tests need an OpenCL device");
    let mut lab = Lab::new(&device, Sources::default()).unwrap();
    let scaled: Vec<&Entry> = library()
        .kernels
        .iter()
        .filter(|k| k.restrictions.scaled)
        .collect();
    assert!(scaled.iter().any(|k| k.codename == "matmul_sgemm"));
    for entry in scaled {
        let close = |found: &[f32], expected: &dyn Fn(usize) -> f32| {
            for (i, &x) in found.iter().enumerate() {
                let (e, name) = (expected(i), &entry.codename);
                assert!((x - e).abs() <= 1e-6, "{name}: element {i} is {x}, not {e}");
            }
        };
        close(&product(&mut lab, entry, C, 1.0, 0.1), &|i| RESULT[i]);
        close(&product(&mut lab, entry, [f32::NAN; 16], 1.0, 0.0), &|i| {
            RESULT[i] - 0.1 * C[i]
        });
    }
}
