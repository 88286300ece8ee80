//! `mortonnet bench` on both witnesses. All kernels are right. A wrong kernel is found and not
//! timed.

use super::checked;
use super::signals::{Lines, end, send, started};
use super::support::{DIGITS, Folder, Witness, command, feed, on, root, run, shim};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn bench(witness: Witness, args: &[&str]) -> super::support::Run {
    bench_with(witness, &[], args)
}

fn bench_with(witness: Witness, settings: &[(&str, &str)], args: &[&str]) -> super::support::Run {
    let folder = Folder::new();
    let log = folder.path("oclgrind.log");
    let mut c = command(DIGITS);
    on(witness, &mut c, &log);
    let r = feed(c.envs(settings.iter().copied()).arg("bench").args(args), "");
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(said.is_empty(), "{args:?}: {said}");
    r
}

/// Neither witness has warp instructions, so a CPU emulates them.
#[test]
#[ignore = "long: tests/long.py"]
fn kernels_with_instructions_of_a_warp_are_right() {
    let python =
        std::env::var("MORTONNET_TEST_PYTHON").expect("MORTONNET_TEST_PYTHON is set by tests/run");
    let check = Command::new(python)
        .arg(root().join("tests/warp/check.py"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr),
    );
    assert!(check.status.success(), "{out}{err}");
    assert!(
        out.contains("affine_mma_128x104: 108 cases, ") && out.lines().count() == 3,
        "{out}"
    );
}

/// Checks these kernels and requires that each one is right.
fn right(witness: Witness, settings: &[(&str, &str)], names: &[&str]) {
    let r = bench_with(
        witness,
        settings,
        &[&["--check", "-o", "csv"], names].concat(),
    );
    let right = r
        .lines()
        .iter()
        .filter(|l| l.contains("\"right, largest error"))
        .count();
    assert!(
        r.code == Some(0) && right == names.len(),
        "{right} of {}\n{}{}",
        names.len(),
        r.out,
        r.err
    );
}

/// Returns the kernels that `args` select, each with the hash of its check's inputs.
pub fn inputs(
    witness: Witness,
    settings: &[(&'static str, &'static str)],
    args: &[&str],
) -> Vec<(String, String)> {
    let r = bench_with(
        witness,
        settings,
        &[&["--check", "--inputs", "-o", "csv"], args].concat(),
    );
    let rows = r
        .lines()
        .into_iter()
        .filter_map(|line| line.strip_prefix("inputs,"));
    rows.map(|row| {
        let mut cells = row.split(',');
        let name = cells.next().unwrap().to_string();
        (name, cells.nth(1).unwrap().to_string())
    })
    .collect()
}

/// Checks the kernels on all cores and adds the right ones to the list.
fn all_right(witness: Witness, kernels: Vec<checked::Kernel>) {
    // Each thread takes one kernel at a time, so that no thread runs alone for minutes.
    // Convolutions take longest and come first.
    let mut kernels = kernels;
    kernels.sort_by_key(|kernel| kernel.name.starts_with("convolution"));
    let kernels = Mutex::new(kernels);
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            s.spawn(|| {
                loop {
                    let Some(kernel) = kernels.lock().unwrap().pop() else {
                        return;
                    };
                    checked::record(witness, &kernel, || {
                        right(witness, &kernel.settings, &[&kernel.name])
                    });
                }
            });
        }
    });
}

/// Returns no settings, because PoCL needs none.
fn plain(_: &str) -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

#[test]
fn every_kernel_is_right_on_pocl() {
    let all = checked::kernels(Witness::Pocl, plain);
    assert!(all.len() > 50, "{} kernels", all.len());
    all_right(Witness::Pocl, checked::due(Witness::Pocl, all));
}

/// Checks all kernels, also listed ones: the list's hash does not cover machine code for this CPU.
#[test]
#[ignore = "long: tests/long.py"]
fn every_kernel_is_right_on_pocl_whatever_the_list_says() {
    all_right(Witness::Pocl, checked::kernels(Witness::Pocl, plain));
}

/// One kernel of each family.
#[test]
fn chosen_kernels_are_right_on_oclgrind_with_mali_like_limits() {
    let names = [
        "affine_packed_4x4",
        "matmul_morton_4_2",
        "bias_morton_4_2_grouped",
        "relu_unbound",
        "argmax_packed",
    ];
    right(Witness::Oclgrind, &[], &names);
}

/// Returns the simulator's settings for a kernel. Races and uninitialised values are reported, and
/// the limits are those of a Mali. Kernels for more local memory or larger work-groups have higher
/// limits. The simulator wrongly reports each read of an image, and a store of the tiled products,
/// as uninitialised.
fn simulated(name: &str) -> Vec<(&'static str, &'static str)> {
    const LARGE: (&str, &str) = ("OCLGRIND_LOCAL_MEM_SIZE", "49152");
    const WIDE: (&str, &str) = ("OCLGRIND_MAX_WGSIZE", "1024");
    match name {
        "layers_few" => vec![LARGE, WIDE],
        "affine_few" => vec![("OCLGRIND_MAX_WGSIZE", "512")],
        "reducepair_cm" => vec![LARGE, ("OCLGRIND_MAX_WGSIZE", "512")],
        _ if ["image", "matmul_tiled", "matmul_mma"]
            .iter()
            .any(|f| name.contains(f)) =>
        {
            vec![LARGE, ("OCLGRIND_UNINITIALIZED", "0")]
        }
        // Their checks add up the parts of kernels with much local memory.
        "reduce_rm" | "reduce_cm" => vec![LARGE],
        _ if ["affine_tiled", "affine_mma", "pair"]
            .iter()
            .any(|f| name.starts_with(f)) =>
        {
            vec![LARGE]
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_kernel_is_right_on_oclgrind_with_mali_like_limits() {
    let all = checked::kernels(Witness::Oclgrind, simulated);
    assert!(all.len() > 50, "{} kernels", all.len());
    all_right(Witness::Oclgrind, checked::due(Witness::Oclgrind, all));
}

/// A table can be selected by its name.
#[test]
fn a_table_is_measured_by_its_name() {
    let sections = |args: &[&str]| {
        let r = bench(
            Witness::Pocl,
            &[args, &["--repeat", "3", "-o", "json"]].concat(),
        );
        assert_eq!(r.code, Some(0), "{}", r.err);
        let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        v["sections"].as_array().unwrap().clone()
    };
    let ids = |all: &[serde_json::Value]| {
        all.iter()
            .map(|s| s["id"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    let found = sections(&["thesis_7_1", "--sizes", "32"]);
    assert_eq!(ids(&found), ["check", "thesis_7_1"]);
    let found = sections(&["arm_1_1", "--sizes", "64"]);
    assert_eq!(ids(&found), ["check", "arm_1_1"]);
    let columns = found[1]["columns"].as_array().unwrap();
    let at = |name: &str| columns.iter().position(|c| c == name).unwrap();
    let char8 = found[1]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["label"] == "sobel_char8")
        .unwrap();
    let cell = |name: &str| &char8["cells"][at(name)];
    assert_eq!(cell("pixels a work-item"), "8");
    assert_eq!(
        cell("words a work-item (arithmetic + load-store), document"),
        "17 + 9"
    );
    assert!(
        (cell("arithmetic words a cycle, document")["document"]
            .as_f64()
            .unwrap()
            - 3.8)
            .abs()
            < 0.05
    );
    assert!(
        cell("largest work-group")
            .as_str()
            .unwrap()
            .parse::<u32>()
            .unwrap()
            >= 16
    );

    let found = sections(&["thesis_10", "--time-limit", "1"]);
    assert_eq!(ids(&found), ["check", "thesis_10"]);
    let r = bench(Witness::Pocl, &["thesis_11"]);
    assert!(
        r.code == Some(2) && r.err.contains("a table (thesis_7_1, "),
        "{}",
        r.err
    );
}

#[test]
fn tables_are_measured_and_compared() {
    let folder = Folder::new();
    // The first rows of two tables, and a kernel of ARM's table. All products would take PoCL a
    // minute to compile.
    let kernels = [
        "matmul_blocked_rmcm",
        "matmul_morton_4_2",
        "matmul_blocked_nt_1x4x4",
        "matmul_naive",
    ];
    let json = bench(
        Witness::Pocl,
        &[
            &kernels[..],
            &["--sizes", "32,64", "--repeat", "3", "-o", "json"],
        ]
        .concat(),
    );
    assert_eq!(json.code, Some(0), "{}", json.err);
    let v: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let sections = v["sections"].as_array().unwrap();
    let table = sections.iter().find(|s| s["id"] == "thesis_8_2").unwrap();
    assert!(
        table["rows"][1]["cells"][0]["value"].as_f64().unwrap() > 0.0,
        "{table}"
    );
    // Each table says how it counts flop.
    let notes = |id: &str| sections.iter().find(|s| s["id"] == id).unwrap()["notes"].to_string();
    assert!(
        notes("thesis_8_2").contains("flop by the library: 2 a multiply-add;"),
        "{}",
        notes("thesis_8_2")
    );
    assert!(
        notes("arm_1_4").contains("2 a multiply-add, with α and β two more"),
        "{}",
        notes("arm_1_4")
    );
    let file = folder.put("other.json", &json.out);
    let page = folder.path("page.html");
    let args = [
        "matmul_naive",
        "--sizes",
        "32,64",
        "--repeat",
        "3",
        "--against",
        file.to_str().unwrap(),
    ];
    let r = bench(
        Witness::Pocl,
        &[&args[..], &["--report", page.to_str().unwrap(), "-o", "md"]].concat(),
    );
    assert!(
        r.code == Some(0) && r.out.contains("matmul_naive / other"),
        "{}{}",
        r.out,
        r.err
    );
    let html = fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!") && html.contains("<svg") && !html.contains("http://"));
    let csv = bench(
        Witness::Pocl,
        &[
            "matmul_naive",
            "--sizes",
            "32",
            "--repeat",
            "2",
            "-o",
            "csv",
        ],
    );
    assert!(
        csv.out
            .lines()
            .any(|l| l.starts_with("thesis_7_1,32,matmul_naive,")),
        "{}",
        csv.out
    );
}

/// ARM's figures are printed beside the measured ones, as data in every format.
#[test]
fn figures_of_arm_stand_beside_ours() {
    let kernels = [
        "matmul_scalar_nn",
        "matmul_blocked_nt",
        "matmul_blocked_nt_1x4x4",
    ];
    let folder = Folder::new();
    let page = folder.path("page.html");
    let report = ["--report", page.to_str().unwrap()];
    let with = |format| {
        [
            &kernels[..],
            &["--sizes", "96,100", "--repeat", "2", "-o", format],
        ]
        .concat()
    };
    let r = bench(Witness::Pocl, &[&with("json")[..], &report].concat());
    assert_eq!(r.code, Some(0), "{}", r.err);
    let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    let table = |id: &str| {
        v["sections"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["id"] == id)
            .unwrap()
            .clone()
    };
    let t = table("arm_1_3");
    let columns = [
        "scalar_nn",
        "scalar_nn, document",
        "blocked_nt",
        "blocked_nt, document",
    ];
    assert_eq!(t["columns"], serde_json::json!(columns));
    let cells = &t["rows"][0]["cells"];
    let figure = |cell: &serde_json::Value| cell["document"].as_f64().unwrap();
    assert_eq!((figure(&cells[1]), figure(&cells[3])), (2.0, 11.2));
    assert!(
        cells[0]["value"].as_f64().unwrap() > 0.0 && t["rows"][1]["cells"][1].is_null(),
        "{t}"
    );
    let t = table("arm_1_4");
    let cells = &t["rows"][0]["cells"];
    assert_eq!((figure(&cells[1]), figure(&cells[3])), (9.3, 9.4));
    assert!(
        cells[0]["value"].as_f64() <= cells[2]["value"].as_f64(),
        "{t}"
    );
    assert!(fs::read_to_string(page).unwrap().contains("<i>11.2</i>"));
    for (format, figure) in [
        ("table", "(11.2)"),
        ("md", "*11.2*"),
        ("csv", ",11.2,GFLOPS,,,,,,document"),
    ] {
        let r = bench(Witness::Pocl, &with(format));
        assert!(r.out.contains(figure), "{}", r.out);
    }
}

/// Images have the given size. By default they start with ARM's size and grow until launches are a
/// small part of the time.
#[test]
fn sobel_grows_until_launches_do_not_count() {
    let sobel = |more: &[&str]| {
        let args = ["sobel_char", "sobel_2xchar8", "--repeat", "2", "-o", "json"];
        let r = bench(Witness::Pocl, &[&args, more].concat());
        assert_eq!(r.code, Some(0), "{}", r.err);
        let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        v["sections"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["id"] == "arm_1_1")
            .unwrap()
            .clone()
    };
    let t = sobel(&["--sizes", "64,3000", "--full"]);
    let columns = [
        "64×64",
        "64×64, million pixels/s",
        "3000×3000",
        "3000×3000, million pixels/s",
    ];
    let found = t["columns"].as_array().unwrap();
    assert_eq!(found[..columns.len()], columns, "{t}");
    assert_eq!(found[columns.len()], "pixels a work-item");
    assert!(
        t["rows"][1]["cells"][2]["value"].as_f64().unwrap() > 0.0,
        "{t}"
    );
    assert_eq!(t["rows"][0]["cells"][2]["value"].as_f64(), Some(1.0), "{t}");
    let t = sobel(&[]);
    assert_eq!(t["columns"][1], "512×512, document (T604)");
    assert_eq!(
        t["rows"][0]["cells"][1]["document"].as_f64(),
        Some(1.0),
        "{t}"
    );
    assert!(
        t["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("A launch on 16×16 pixels takes "),
        "{t}"
    );
}

/// A kernel is read from a folder. A wrong kernel is named and not timed, and one with other
/// arguments is refused.
#[test]
fn edited_kernels_are_checked_like_any_other() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    let dir = folder.0.to_str().unwrap();
    let names = ["matmul_naive", "matmul_morton_4_2"];
    let args = [
        &names[..],
        &[
            "--kernels",
            dir,
            "--sizes",
            "32",
            "--repeat",
            "2",
            "-o",
            "csv",
        ],
    ]
    .concat();
    folder.put(
        "matmul/naive.cl",
        source.replace("float sum = 0.0f", "float sum = 0.25f"),
    );
    let r = bench(Witness::Pocl, &args);
    assert_eq!(r.code, Some(1));
    assert!(
        r.err.contains("matmul_naive: WRONG") && r.out.contains("matmul_morton_4_2"),
        "{}",
        r.err
    );
    let timed = |name: &str| {
        r.out
            .lines()
            .any(|l| l.contains(name) && !l.starts_with("check,"))
    };
    assert!(
        !timed("matmul_naive") && timed("matmul_morton_4_2"),
        "{}",
        r.out
    );
    folder.put(
        "matmul/naive.cl",
        source.replace("uint l, uint w,", "uint l,"),
    );
    let r = bench(Witness::Pocl, &args);
    assert!(
        r.code == Some(1)
            && r.err
                .contains("expected the parameters (uint l, uint w, a, b, r)"),
        "{}",
        r.err
    );
    folder.put(
        "matmul/naive.cl",
        source.replace("float sum", "r[-1] = 0.0f; float sum"),
    );
    let r = bench(Witness::Pocl, &args);
    assert!(
        r.code == Some(1) && r.err.contains("wrote outside r"),
        "{}",
        r.err
    );
    let r = bench(Witness::Pocl, &["--kernels", "/no/such/folder", "--check"]);
    assert_eq!(r.code, Some(2), "{}", r.err);
    // The main command reads kernels from a folder, too.
    folder.put("matmul/naive.cl", source.replace("sum +=", "sum += sum +"));
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    let r = feed(
        c.args([
            "-d",
            "opencl",
            "--plan",
            "thesis-baseline",
            "--selftest",
            "--kernels",
            dir,
        ]),
        "",
    );
    assert!(
        r.code == Some(1) && r.err.contains("self-test failed"),
        "{}",
        r.err
    );
}

/// Kernels that a driver refuses are counted apart from wrong ones. Both end with exit code 1.
#[test]
fn what_a_driver_refuses_is_not_called_wrong() {
    let folder = Folder::new();
    let shim = shim(&folder, &[]);
    fs::create_dir_all(folder.path("matmul")).unwrap();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    let shimmed = |fail: &str, args: &[&str]| {
        let settings = [
            ("MORTONNET_OPENCL", shim.to_str().unwrap()),
            ("MORTONNET_SHIM_REAL", "libOpenCL.so.1"),
            ("MORTONNET_SHIM_FAIL", fail),
        ];
        bench_with(
            Witness::Pocl,
            &settings,
            &[&["--check", "-o", "csv"], args].concat(),
        )
    };
    for (fail, code) in [
        ("clBuildProgram:0:-11", "CL_BUILD_PROGRAM_FAILURE"),
        ("clEnqueueNDRangeKernel:0:-5", "CL_OUT_OF_RESOURCES"),
        ("clEnqueueNDRangeKernel:0:-54", "CL_INVALID_WORK_GROUP_SIZE"),
    ] {
        let r = shimmed(fail, &["matmul_naive", "bias_rm"]);
        assert_eq!(r.code, Some(1), "{fail}: {}", r.err);
        let count = "kernels refused by the driver here, not timed: 2\n";
        assert!(
            r.err.contains(count) && r.err.contains(code),
            "{fail}: {}",
            r.err
        );
        assert!(
            !r.err.contains("WRONG") && !r.out.contains("WRONG"),
            "{fail}: {}{}",
            r.out,
            r.err
        );
        let cells = r
            .out
            .lines()
            .filter(|l| l.contains("refused by the driver: cl") && l.contains(code));
        assert_eq!(cells.count(), 2, "{fail}: {}", r.out);
    }
    // The first launch is refused, the second kernel is wrong, and the third is not a kernel.
    folder.put(
        "matmul/naive.cl",
        source.replace("float sum = 0.0f", "float sum = 0.25f"),
    );
    let rmcm = fs::read_to_string(root().join("kernels/matmul/rmcm.cl")).unwrap();
    folder.put("matmul/rmcm.cl", rmcm.replace("kernel void", "void"));
    let dir = folder.0.to_str().unwrap();
    let names = ["matmul_naive", "matmul_rmcm", "bias_rm", "--kernels", dir];
    let broken = fs::read_to_string(root().join("kernels/bias/rm.cl")).unwrap();
    fs::create_dir_all(folder.path("bias")).unwrap();
    folder.put("bias/rm.cl", broken.replace("+=", "+= nonsense +"));
    let r = bench(
        Witness::Pocl,
        &[&["--sizes", "32", "--repeat", "2", "-o", "csv"], &names[..]].concat(),
    );
    assert_eq!(r.code, Some(1));
    let said: Vec<&str> = r
        .err
        .lines()
        .filter(|l| l.contains("not timed: 1"))
        .collect();
    assert_eq!(
        said,
        [
            "mortonnet: kernels computing something else here, not timed: 1",
            "kernels refused by the driver here, not timed: 1",
            "kernels failing before they ran here, not timed: 1",
        ],
        "{}",
        r.err
    );
    for part in [
        "matmul_naive: WRONG: ",
        "bias_rm: refused by the driver: clBuildProgram",
        "matmul_rmcm: failed: ",
    ] {
        assert!(r.err.contains(part), "{part} is not in\n{}", r.err);
    }
}

#[test]
fn options_that_nothing_would_use_are_refused() {
    for (args, part) in [
        (
            &["network", "--report", "page.html"][..],
            "bench network does not use --report",
        ),
        (
            &["network", "--against", "other.json"],
            "bench network does not use --against",
        ),
        (
            &["bias", "--sizes", "32"],
            "bench bias: --sizes is for matmul, affine, sobel and their kernels",
        ),
    ] {
        let r = bench(Witness::Pocl, args);
        assert_eq!((r.code, &*r.out), (Some(2), ""), "{args:?}: {}", r.err);
        assert!(r.err.contains(part), "{args:?}: {}", r.err);
    }
}

#[test]
fn networks_are_one_row() {
    let row = |r: super::support::Run| {
        let names = "network,device,plan,batch,launches,median_us,p95_us,gflops";
        let fields: Vec<String> = r.lines()[1].split(',').map(String::from).collect();
        assert!(fields[5].parse::<f64>().unwrap() > 0.0, "{fields:?}");
        match fields.get(8) {
            None => assert_eq!(r.lines()[0], names),
            Some(last) => {
                let more = r.lines()[0].strip_prefix(names).unwrap().to_string();
                assert!([",from_slot_us", ",peak_share"].contains(&&*more), "{more}");
                assert!(last.parse::<f64>().unwrap() > 0.0, "{fields:?}");
            }
        }
        fields
    };
    let host = row(run(
        DIGITS,
        &[
            "bench",
            "network",
            "--shape",
            "partial-cifar",
            "--batch",
            "10",
        ],
        "",
    ));
    assert_eq!(
        (&*host[0], &*host[2], &*host[3]),
        ("partial-cifar", "host", "10")
    );
    let from_host = row(run(DIGITS, &["bench", "network", "--host"], ""));
    assert_eq!(
        (&*from_host[0], from_host.len(), host.len()),
        ("digits", 9, 9)
    );
    let device = row(bench(
        Witness::Pocl,
        &[
            "network",
            "--shape",
            "20-30-5:tanh",
            "--plan",
            "thesis-morton",
            "--batch",
            "7",
        ],
    ));
    assert_eq!((&*device[2], &*device[4]), ("thesis-morton", "5"));
    for (shape, launches) in [("partial-cifar", "1"), ("400-400-10", "2")] {
        let device = row(bench(
            Witness::Pocl,
            &[
                "network",
                "--shape",
                shape,
                "--plan",
                "mali-midgard",
                "--batch",
                "7",
            ],
        ));
        assert_eq!((&*device[2], &*device[4]), ("mali-midgard", launches));
    }
    let r = run(DIGITS, &["bench", "network", "--shape", "20-x"], "");
    assert!(
        r.code == Some(2) && r.err.contains("--shape: expected sizes"),
        "{}",
        r.err
    );
}

/// With `--layers` each step of the host engine has a line, then come their sum and the batch.
#[test]
fn layers_have_lines() {
    let layers = |format: &str| {
        let args = ["bench", "network", "--shape", "ds-cnn", "--batch", "1"];
        let r = run(
            DIGITS,
            &[&args[..], &["--layers", "-o", format]].concat(),
            "",
        );
        assert_eq!((r.code, &*r.err), (Some(0), ""));
        r
    };
    let csv = layers("csv");
    let lines = csv.lines();
    assert_eq!(
        lines[0],
        "step,operation,shape,median_us,gflops,bound_us,bound_by,share,layer"
    );
    let rows: Vec<Vec<&str>> = lines[1..].iter().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["0", "convolution", "10x4/2 1→64 at 25x5"]);
    let number = |row: &[&str], column: usize| row[column].parse::<f64>().unwrap();
    let [steps @ .., total, batch] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!((total[0], batch[0]), ("total", "batch"));
    for row in &rows {
        let (us, bound, share) = (number(row, 3), number(row, 5), number(row, 7));
        assert!(us > 0.0 && bound > 0.0, "{row:?}");
        // The numbers are printed with two or three decimals.
        let exact = bound / us;
        assert!(
            (share - exact).abs() < 0.002 + 0.01 * (1.0 + exact) / us.min(bound),
            "{row:?}"
        );
    }
    for row in steps {
        assert!(
            ["flop", "bytes"].contains(&row[6]) && !row[8].is_empty(),
            "{row:?}"
        );
    }
    for column in [3, 5] {
        let sum: f64 = steps.iter().map(|row| number(row, column)).sum();
        let off = (sum - number(total, column)).abs();
        assert!(off < 0.01 * rows.len() as f64, "{sum} {total:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&layers("json").out).unwrap();
    assert_eq!(json["layers"].as_array().unwrap().len(), steps.len());
    assert_eq!(json["layers"][0]["shape"], "10x4/2 1→64 at 25x5");
    assert!(json["total"]["share"].is_number() && json["peak_gflops"].is_number());
    for format in ["table", "md"] {
        let text = layers(format).out;
        let shapes = text.matches("10x4/2 1→64 at 25x5").count();
        assert!(
            shapes == 1 && text.contains("GFLOPS") && text.contains("batch"),
            "{text}"
        );
    }
}

#[test]
fn layers_are_for_the_host() {
    let layers = ["network", "--shape", "20-30-5", "--layers"];
    let both = bench(Witness::Pocl, &[&layers[..], &["--host"]].concat());
    assert_eq!(both.code, Some(2), "{}", both.err);
    assert!(
        both.err.contains("--layers times steps on resident input"),
        "{}",
        both.err
    );
    let device = bench(Witness::Pocl, &[&layers[..], &["-d", "opencl"]].concat());
    assert_eq!((device.code, &*device.out), (Some(2), ""), "{}", device.err);
    assert!(device.err.contains("add --device host"), "{}", device.err);
}

#[test]
fn the_cache_model_needs_no_device() {
    let r = run(DIGITS, &["bench", "--cache-model", "--sizes", "96"], "");
    assert!(
        r.code == Some(0) && r.out.contains("morton_4_2"),
        "{}",
        r.err
    );
    for product in checked::kernels(Witness::Pocl, plain)
        .iter()
        .map(|k| k.name.clone())
    {
        let is_product = ["matmul_", "affine_", "pair_", "layers_"]
            .iter()
            .any(|p| product.starts_with(p));
        let rows = r
            .lines()
            .iter()
            .filter(|l| l.split_whitespace().next() == Some(&product))
            .count();
        assert!(rows >= 8 || !is_product, "{product}: {rows} rows");
    }
    let r = run(DIGITS, &["bench", "--cache", "line=60"], "");
    assert_eq!(r.code, Some(2), "{}", r.err);
    assert!(run(DIGITS, &["bench", "--help"], "").lines()[0].starts_with("mortonnet bench"));
    assert_eq!(run(DIGITS, &["bench", "no_such_kernel"], "").code, Some(2));
}

/// With a device, the model has its cache line, cache and cores. Values of `--cache` take
/// precedence.
#[test]
fn the_cache_model_asks_a_chosen_device() {
    let r = bench(
        Witness::Pocl,
        &[
            "-d",
            "0",
            "--cache-model",
            "--cache",
            "l2_lines=2048,page=65536",
            "--sizes",
            "32",
        ],
    );
    assert!(
        r.code == Some(0) && r.out.starts_with("line, L2 and cores of  "),
        "{}{}",
        r.out,
        r.err
    );
    assert!(
        r.out.contains("L2 2048 lines") && r.out.contains("pages of 65536"),
        "{}",
        r.out
    );
    let r = run(
        DIGITS,
        &["bench", "-d", "0", "--cache-model", "--sizes", "32"],
        "",
    );
    assert!(r.code == Some(1) && r.err.contains("OpenCL"), "{}", r.err);
}

#[test]
fn a_layout_is_drawn() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    let draw = |more: &[&str]| {
        let r = run(
            DIGITS,
            &[&["bench", "--layout", "C_4_2_C", "--sizes", "8x4"], more].concat(),
            "",
        );
        assert_eq!((r.code, &*r.err), (Some(0), ""), "{more:?}");
        r.out
    };
    let text = draw(&["--report", page.to_str().unwrap()]);
    assert!(text.contains("\n1 |  1  5 | 17 21 |\n"), "{text}");
    let html = fs::read_to_string(page).unwrap();
    assert!(
        html.contains("<h1>mortonnet bench: layout C_4_2_C</h1>")
            && html.contains("class=\"grid\"")
    );
    assert!(
        draw(&["-o", "md"]).contains("| 1 | 1 | 5 | 17 | 21 |"),
        "{}",
        draw(&["-o", "md"])
    );
    assert!(
        draw(&["-o", "csv"])
            .lines()
            .any(|l| l.starts_with("layout,1,2,") && l.contains(",17"))
    );
    let json: serde_json::Value = serde_json::from_str(&draw(&["-o", "json"])).unwrap();
    assert_eq!(json["sections"][0]["rows"][1]["cells"][2], "17");
    assert_eq!(json["sections"][0]["plot"], "grid");
    let r = run(
        DIGITS,
        &["bench", "--layout", "C_4_2_C", "--sizes", "6x4"],
        "",
    );
    assert!(
        r.code == Some(2) && r.err.contains("chunks of 4 rows × 2 columns do not divide"),
        "{}",
        r.err
    );
}

/// Makes a bench command on a device with all streams piped.
fn piped(witness: Witness, args: &[&str]) -> Command {
    let mut c = command(DIGITS);
    on(witness, &mut c, "/dev/null".as_ref());
    c.arg("bench")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

const INT: i32 = 2;

/// Finished tables are printed before the run ends. A signal ends the run with the part of the next
/// table that is done.
#[test]
fn a_signal_ends_a_run_with_what_is_done() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    // After the bias, products grow for minutes.
    let endless = [
        "bias_rm",
        "matmul_naive",
        "--repeat",
        "3",
        "--full",
        "--report",
        page.to_str().unwrap(),
    ];
    let mut child = started(
        &mut piped(Witness::Pocl, &[&endless[..], &["-o", "csv"]].concat()),
        INT,
    );
    let (out, err) = (
        Lines::of(child.stdout.take()),
        Lines::of(child.stderr.take()),
    );
    let first = std::iter::from_fn(|| Some(out.next()))
        .find(|l| l.starts_with("thesis_9_1,"))
        .unwrap();
    assert!(
        first.contains(",ms,") && child.try_wait().unwrap().is_none(),
        "{first}"
    );
    send(&child, INT);
    assert_eq!(end(&mut child).signal(), Some(INT));
    assert!(
        err.rest()
            .iter()
            .any(|l| l.starts_with("mortonnet: incomplete: a signal ended the run"))
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("<dt>incomplete</dt>") && html.contains("Bias (thesis, fig. 9.1)"),
        "{html}"
    );
    // JSON is one complete document all the same.
    let mut child = started(
        &mut piped(Witness::Pocl, &[&endless[..5], &["-o", "json"]].concat()),
        INT,
    );
    let (out, err) = (
        Lines::of(child.stdout.take()),
        Lines::of(child.stderr.take()),
    );
    send(&child, INT);
    assert_eq!(end(&mut child).signal(), Some(INT), "{:?}", err.rest());
    let v: serde_json::Value = serde_json::from_str(&out.rest().join("\n")).unwrap();
    assert!(
        v["head"]["incomplete"].is_string() && v["head"]["date"].is_string(),
        "{v}"
    );
}

/// The second signal ends even a long check on a simulator.
#[test]
fn the_second_signal_ends_a_run_at_once() {
    let args = ["affine_tiled_128x128", "--check", "-o", "csv"];
    let mut child = started(&mut piped(Witness::Oclgrind, &args), INT);
    let (out, err) = (
        Lines::of(child.stdout.take()),
        Lines::of(child.stderr.take()),
    );
    assert!(out.next().starts_with("section,row,"));
    // The simulator's compiler prints a warning in the middle of the check. A signal before that
    // would end the run in good order.
    assert!(err.next().contains("warning"));
    send(&child, INT);
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none());
    let start = Instant::now();
    send(&child, INT);
    assert_eq!(end(&mut child).signal(), Some(INT));
    assert!(start.elapsed() < Duration::from_secs(5) && out.rest().is_empty());
}

/// Progress is shown in the last line of a terminal and never in a file.
#[test]
fn progress_is_for_terminals() {
    let program = format!("{DIGITS} bench bias_rm --check -o csv");
    let mut c = command("script");
    on(Witness::Pocl, &mut c, "/dev/null".as_ref());
    let r = feed(c.args(["-qec", &program, "/dev/null"]), "");
    assert!(
        r.out.contains("\rchecking 1/1 bias_rm "),
        "{}{}",
        r.out,
        r.err
    );
    let r = bench(Witness::Pocl, &["bias_rm", "--check", "-o", "csv"]);
    assert!(
        r.code == Some(0) && !r.err.contains("checking") && !r.out.contains('\r'),
        "{}",
        r.err
    );
}

/// Named kernels of several tables share a table, in the order of their names and before all
/// others. With sizes, tables whose size is the document's own are left out.
#[test]
fn what_was_named_comes_first_and_side_by_side() {
    let tables = |args: &[&str]| {
        let r = bench(
            Witness::Pocl,
            &[args, &["--repeat", "2", "-o", "json"]].concat(),
        );
        assert_eq!(r.code, Some(0), "{}", r.err);
        let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        v["sections"].as_array().unwrap().clone()
    };
    let ids = |all: &[serde_json::Value]| -> Vec<String> {
        all.iter()
            .map(|s| s["id"].as_str().unwrap().to_string())
            .collect()
    };
    let names = ["matmul_columns", "matmul_blocked_nt", "affine_packed_4x4"];
    let all = tables(&[&names[..], &["--sizes", "32,65"]].concat());
    // The tutorial's table has a size of its own.
    assert_eq!(ids(&all), ["check", "named", "products", "arm_1_3"]);
    assert_eq!(all[1]["columns"], serde_json::json!(names));
    for row in all[1]["rows"].as_array().unwrap() {
        let cells = row["cells"].as_array().unwrap();
        assert!(
            cells.len() == 3 && cells.iter().all(|c| c["value"].as_f64().unwrap() > 0.0),
            "{row}"
        );
    }
    let all = tables(&["bias_rm", "relu_rm"]);
    assert_eq!(
        ids(&all),
        ["check", "named_shapes", "thesis_9_1", "thesis_9_2"]
    );
    assert_eq!(all[1]["rows"][1]["label"], "relu_rm");
    // A single kernel, or kernels of one table, stay in their own table.
    assert_eq!(
        ids(&tables(&["matmul_morton_4_4", "--sizes", "32"]))[1],
        "thesis_8_2"
    );
    assert_eq!(
        ids(&tables(&["bias_rm", "bias_cm"])),
        ["check", "thesis_9_1"]
    );
}

/// The time of a kernel that is unexpectedly slow at larger sizes is not predicted. One launch is
/// enough.
#[test]
fn a_long_launch_is_the_only_one() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    let source = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    // One work-item of a larger product takes 3 s, in a loop that no compiler removes.
    let slow = "if (l > 300 && get_global_id(0) + get_global_id(1) == 0) {\n\
        volatile float x = 0.0f;\n for (uint i = 0; i < 1500000000u; i++) x += 1.0f;\n }\n float \
        sum = 0.0f";
    folder.put("matmul/naive.cl", source.replace("float sum = 0.0f", slow));
    let dir = folder.0.to_str().unwrap();
    let args = [
        "matmul_naive",
        "--kernels",
        dir,
        "--sizes",
        "256,320,640",
        "--repeat",
        "2",
        "-o",
        "csv",
    ];
    let r = bench(Witness::Pocl, &args);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let cell = |size: &str| {
        let begin = format!("thesis_7_1,{size},matmul_naive,");
        r.out
            .lines()
            .find_map(|l| l.strip_prefix(&*begin))
            .unwrap_or_else(|| panic!("{}", r.out))
            .to_string()
    };
    assert!(cell("256").contains("GFLOPS"), "{}", r.out);
    assert!(
        cell("320").contains("skipped: the first launch took "),
        "{}",
        r.out
    );
    assert!(
        cell("640").contains("skipped: a launch would take about "),
        "{}",
        r.out
    );
}

/// A user's library has a kernel with another work-group or source. It is checked and timed beside
/// others.
#[test]
fn a_library_of_the_users_is_checked_and_timed() {
    let folder = Folder::new();
    let library = fs::read(root().join("kernels/library.json")).unwrap();
    let library: serde_json::Value = serde_json::from_slice(&library).unwrap();
    let entry = |name: &str| {
        let found = library["sources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|k| k["codename"] == name);
        found.unwrap().clone()
    };
    let mut mine = entry("matmul_naive_grouped");
    (mine["codename"], mine["restrictions"]["workGroup"]) =
        ("matmul_mine".into(), serde_json::json!([2, 8]));
    mine.as_object_mut().unwrap().remove("aliases");
    let put = |entries: &[&serde_json::Value]| {
        let file = serde_json::json!({"format": 1, "sources": entries});
        folder
            .put("mine.json", file.to_string())
            .to_str()
            .unwrap()
            .to_string()
    };
    let file = put(&[&mine]);
    let args = [
        "--library",
        &file,
        "--sizes",
        "32",
        "--repeat",
        "2",
        "-o",
        "csv",
    ];
    let r = bench(Witness::Pocl, &args);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let checked: Vec<&str> = r.out.lines().filter(|l| l.contains(",result,")).collect();
    assert!(
        checked.len() == 1 && checked[0].starts_with("check,matmul_mine,result,\"right"),
        "{}",
        r.out
    );
    assert!(
        r.out
            .lines()
            .any(|l| l.starts_with("products,32,matmul_mine,")),
        "{}",
        r.out
    );
    // A user's kernel is added to the baked ones, or replaces a baked one of the same name.
    let own = fs::read_to_string(root().join("kernels/matmul/naive.cl")).unwrap();
    fs::create_dir_all(folder.path("matmul")).unwrap();
    folder.put(
        "matmul/other.cl",
        own.replace("matmul_naive", "matmul_other"),
    );
    let mut other = entry("matmul_naive");
    (other["function"], other["source"]) = ("matmul_other".into(), "matmul/other.cl".into());
    let file = put(&[&mine, &other]);
    let dir = folder.0.to_str().unwrap();
    let both = [
        "matmul_mine",
        "matmul_naive",
        "matmul_rmcm",
        "--kernels",
        dir,
    ];
    let r = bench(
        Witness::Pocl,
        &[&both, &args[..1], &[&*file], &args[2..]].concat(),
    );
    assert_eq!(r.code, Some(0), "{}", r.err);
    for name in &both[..3] {
        assert!(
            r.out
                .lines()
                .any(|l| l.starts_with(&format!("named,32,{name},"))),
            "{}",
            r.out
        );
    }
    folder.put(
        "matmul/other.cl",
        own.replace("matmul_naive", "matmul_other")
            .replace("= 0.0f", "= 0.25f"),
    );
    let r = bench(
        Witness::Pocl,
        &[&both, &args[..1], &[&*file], &args[2..]].concat(),
    );
    assert!(
        r.code == Some(1) && r.err.contains("matmul_naive: WRONG"),
        "{}",
        r.err
    );
}

/// The example in docs/EXTENDING.md runs with the command shown there.
#[test]
fn the_documented_kernel_runs_without_a_build() {
    let document = fs::read_to_string(root().join("docs/EXTENDING.md")).unwrap();
    let example = document.split("### An example").nth(1).unwrap();
    let block = |language: &str| {
        let begin = format!("```{language}\n");
        example
            .split(&begin)
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap()
            .to_string()
    };
    let folder = Folder::new();
    fs::create_dir_all(folder.path("mine/matmul")).unwrap();
    folder.put("mine/matmul/rows_1x8.cl", block("c"));
    folder.put("mine/library.json", block("json"));
    let mine = folder.path("mine");
    let line = block("console").replace("\\\n", "");
    let line = line.trim().strip_prefix("$ mortonnet bench ").unwrap();
    for (witness, sizes) in [
        (Witness::Pocl, ("96", "104")),
        (Witness::Oclgrind, ("16", "24")),
    ] {
        // The sizes come first, because the folder's path may contain the same digits.
        let line = line
            .replace("96", sizes.0)
            .replace("1000", sizes.1)
            .replace("mine", mine.to_str().unwrap());
        let args: Vec<&str> = line
            .split_whitespace()
            .chain(["--repeat", "2", "-o", "csv"])
            .collect();
        let r = bench(witness, &args);
        assert_eq!(r.code, Some(0), "{}", r.err);
        assert!(
            r.out.contains("check,matmul_rows_1x8,result,\"right"),
            "{}",
            r.out
        );
        let row = format!("named,{},matmul_rows_1x8,", sizes.0);
        assert!(r.out.lines().any(|l| l.starts_with(&row)), "{}", r.out);
    }
}

/// Mistakes in a user's library get the messages of the build.
#[test]
fn mistakes_of_a_users_library_are_named() {
    let folder = Folder::new();
    let refused = |text: &str, args: &[&str], code: i32, part: &str| {
        let file = folder.put("mine.json", text);
        let r = bench(
            Witness::Pocl,
            &[&["--library", file.to_str().unwrap()], args].concat(),
        );
        assert!(
            r.code == Some(code) && r.out.is_empty() && r.err.contains(part),
            "{part}: {}",
            r.err
        );
    };
    let entry = |codename: &str, more: &str| {
        format!(
            "{{\"format\": 1, \"sources\": [{{\"codename\": \"{codename}\", \"function\": \
             \"matmul_naive\", \
             \"source\": \"matmul/naive.cl\", \"restrictions\": {{\"arglist\": \"lw\", \"flop\": \
             2, {more} \
             \"scale\": {{\"rows\": 1, \"cols\": 1}}}}}}]}}"
        )
    };
    let operands = ["a", "b", "r"]
        .map(|o| {
            format!("\"{o}\": {{\"representation\": \"R\", \"rowAlign\": 1, \"colAlign\": 1}},")
        })
        .concat();
    let whole = entry("matmul_mine", &operands);
    refused(
        "{\n\"format\": 1,\n]",
        &[],
        1,
        "mine.json:3:1: not valid JSON: expected a string",
    );
    refused(
        "{\"format\": 2}",
        &[],
        1,
        "mine.json: the key \"sources\" is missing",
    );
    refused(
        "{\"format\": 2}",
        &[],
        1,
        "mine.json: format: expected 1, found 2",
    );
    refused(
        &entry("mine", &operands),
        &[],
        1,
        "sources[0]: codename: expected OPERATION_VARIANT with one of ",
    );
    refused(
        &entry("matmul_mine", ""),
        &[],
        1,
        "sources[0]: restrictions: matmul needs an operand a",
    );
    refused(
        &entry("matmul_mine", "\"tiel\": 1,"),
        &[],
        1,
        "unknown key \"tiel\"; expected args, arglist, ",
    );
    let lost = whole
        .replace("naive.cl", "lost.cl")
        .replace("matmul_naive", "matmul_lost");
    refused(
        &lost,
        &[],
        1,
        "matmul_mine: expected its source matmul/lost.cl in the folder of --kernels, or in ",
    );
    refused(
        &whole,
        &["bias_rm"],
        2,
        "bench bias_rm runs none of its kernels (matmul_mine)",
    );
    refused(
        &whole,
        &["--plan", "generic"],
        2,
        "--plan is for networks, which bench --library leaves out",
    );
    refused(
        "{\"format\": 1, \"sources\": []}",
        &[],
        2,
        "expected a kernel with a source, which a device runs",
    );
    refused(
        &whole,
        &["network"],
        2,
        "bench network does not use --library, which is for bench, ",
    );
}
